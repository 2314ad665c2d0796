//! Tenants that live in the database: read once as a whole, then one by one as they change.
//!
//! A tenant whose rows do not load stays what it was, and no other is concerned. What two tenants
//! would both have, which the database refuses, is the one's whose rows are newer read.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::report::Report;
use crate::model::chance;
use crate::model::name::TenantName;
use crate::store::Store;
use crate::store::Stored;
use crate::store::changes::What;
use crate::store::error::OpenError;
use crate::store::error::StoreError;
use crate::store::serving::Deployment;
use crate::store::serving::Whole;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome;
use crate::tenant::file::Entry;
use crate::tenant::file::Loaded;
use crate::tenant::file::Loader;
use crate::tenant::file::SharedIssuer;
use crate::tenant::secret::Secrets;
use crate::tenant::source::Sources;
use crate::tenant::source::Tenants;

/// Between two tries to read, at least; jittered.
const PAUSE: Duration = Duration::from_millis(500);

/// How long nothing may be heard before it is asked whether the database is there.
const SILENCE: Duration = Duration::from_secs(5);

/// What is known of the database's content.
#[derive(Default)]
struct Known {
    /// The change up to which it was read; none before the first reading.
    seq: Option<u64>,
    shared: Vec<SharedIssuer>,
    tenants: BTreeMap<TenantName, Held>,
    secrets: Secrets,
}

/// A tenant as it was read last.
struct Held {
    /// As it is served; none where it never loaded.
    entry: Option<Entry>,
    /// Why its rows do not load now.
    refused: Option<Report>,
}

/// Why a reading of the database ended.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("reading the tenants ended unexpectedly")]
    Ended,
}

impl Tenants {
    /// Serves what `store` has, and what changes there, until `shutdown`. Nobody is served before the
    /// first reading; afterwards a database that is away leaves everybody as they are.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the last good tenants in place.
    pub async fn follow(self: Arc<Self>, store: Store, metrics: Arc<Metrics>, shutdown: CancellationToken) {
        let mut changes = store.changes();
        let mut known = Known::default();
        let mut away = false;
        while !shutdown.is_cancelled() {
            changes.mark_unchanged();
            let read = shutdown.run_until_cancelled(self.read(&store, known, &metrics)).await;
            let Some(read) = read else { return };
            match read {
                (now, Ok(())) => {
                    known = now;
                    if std::mem::take(&mut away) {
                        tracing::info!("the database is there again");
                    }
                    // The feed also tells of what this process wrote.
                    let news = timeout(SILENCE, changes.changed());
                    shutdown.run_until_cancelled(news).await;
                }
                (now, Err(error)) => {
                    known = now;
                    metrics.store.read(Outcome::Failed);
                    if !std::mem::replace(&mut away, true) {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        let cause = cause.unwrap_or_default();
                        tracing::error!(%error, cause, "the tenants in the database cannot be read, and stay what they were");
                    }
                    let pause = PAUSE.mul_f64(1.0 + chance::fraction());
                    shutdown.run_until_cancelled(sleep(pause)).await;
                }
            }
        }
    }

    /// Reads what changed, and puts it in place.
    async fn read(
        &self,
        store: &Store,
        known: Known,
        metrics: &Arc<Metrics>,
    ) -> (Known, Result<(), ReadError>) {
        match self.news(store, known.seq).await {
            Ok(None) => (known, Ok(())),
            Ok(Some(news)) => {
                let sources = self.sources().clone();
                let read = tokio::task::spawn_blocking(move || known.after(&sources, news)).await;
                // What it knew is lost with it: everything is read again.
                let Ok((known, loaded)) = read else { return (Known::default(), Err(ReadError::Ended)) };
                metrics.store.read(Outcome::Ok);
                metrics.store.refused(known.tenants.values().filter(|held| held.refused.is_some()).count());
                self.swap(loaded);
                (known, Ok(()))
            }
            Err(error) => (known, Err(error)),
        }
    }

    async fn news(&self, store: &Store, seq: Option<u64>) -> Result<Option<News>, ReadError> {
        let Some(seq) = seq else {
            store.check().await?;
            return Ok(Some(News::Everything(store.everything().await?)));
        };
        let changed = store.changed_since(seq).await?;
        match changed.what {
            What::Everything => Ok(Some(News::Everything(store.everything().await?))),
            What::Tenants(names) if names.is_empty() => Ok(None),
            What::Tenants(names) => {
                let mut read = Vec::with_capacity(names.len());
                for name in names {
                    let whole = store.tenant(&name).await?;
                    read.push((name, whole));
                }
                Ok(Some(News::Tenants(changed.seq, read)))
            }
        }
    }
}

/// What was read.
enum News {
    Everything(Deployment),
    /// Up to this change, these tenants; one without rows is gone.
    Tenants(u64, Vec<(TenantName, Option<Whole>)>),
}

impl Known {
    /// What is known after `news`, and what is served then.
    fn after(mut self, sources: &Sources, news: News) -> (Self, Loaded) {
        let (seq, changed) = match news {
            News::Everything(deployment) => {
                self.share(&deployment.issuers);
                let gone = |name: &TenantName| {
                    deployment.tenants.binary_search_by(|whole| whole.tenant.name.cmp(name)).is_err()
                };
                self.tenants.retain(|name, _| !gone(name));
                let all = deployment.tenants.into_iter();
                (deployment.seq, all.map(|whole| (whole.tenant.name.clone(), Some(whole))).collect())
            }
            News::Tenants(seq, changed) => (seq, changed),
        };
        self.seq = Some(seq);
        let loaded = self.load(sources, changed);
        (self, loaded)
    }

    /// Takes the shared issuers as they are now. One that does not load stays what it was.
    fn share(&mut self, stored: &[Stored<String>]) {
        let mut shared = Vec::with_capacity(stored.len());
        for stored in stored {
            match Loader::shared_issuer(stored) {
                Ok(issuer) => shared.push(issuer),
                Err(report) => {
                    tracing::error!("a shared issuer stays what it was, since it does not load:\n{report}");
                    shared.extend(self.shared.iter().find(|old| *old.issuer.url == stored.name).cloned());
                }
            }
        }
        self.shared = shared;
    }

    /// Loads what changed, beside what is as it was.
    fn load(&mut self, sources: &Sources, changed: Vec<(TenantName, Option<Whole>)>) -> Loaded {
        let known = std::mem::take(&mut self.secrets);
        let mut loader = sources.loader(&known);
        loader.share(self.shared.clone());
        for (name, _) in &changed {
            // Where its rows do not load it comes back as it was, behind those that do.
            self.tenants.entry(name.clone()).or_insert(Held { entry: None, refused: None });
        }
        let is_changed = |name: &TenantName| changed.iter().any(|(other, _)| other == name);
        let mut stale = Vec::new();
        for (name, held) in &self.tenants {
            let Some(entry) = &held.entry else { continue };
            match held.refused.is_some() || is_changed(name) {
                true => stale.push(name.clone()),
                false => drop(loader.keep(entry)),
            }
        }
        for (name, whole) in &changed {
            let Some(whole) = whole else {
                self.tenants.remove(name);
                continue;
            };
            let read = loader.stored(whole);
            let Some(held) = self.tenants.get_mut(name) else { continue };
            match read {
                Ok(entry) => *held = Held { entry: Some(entry), refused: None },
                Err(report) => held.refuse(name, report),
            }
        }
        for name in stale {
            let Some(held) = self.tenants.get_mut(&name).filter(|held| held.refused.is_some()) else {
                continue;
            };
            if held.entry.as_ref().is_some_and(|entry| !loader.keep(entry)) {
                tracing::error!(
                    tenant = name.as_str(),
                    "a tenant that does not load has lost what another has now"
                );
                held.entry = None;
            }
        }
        let mut loaded = loader.into_loaded();
        loaded
            .secrets
            .keep(&known, self.tenants.iter().filter(|(_, held)| held.entry.is_some()).map(|(name, _)| name));
        loaded.tenants = self.tenants.values().filter_map(|held| held.entry.clone()).collect();
        self.secrets = loaded.secrets.clone();
        loaded
    }
}

impl Held {
    /// Notes why the rows do not load, and says so once.
    fn refuse(&mut self, name: &TenantName, report: Report) {
        if self.refused.as_ref() != Some(&report) {
            tracing::error!(
                tenant = name.as_str(),
                "a tenant stays what it was, since it does not load:\n{report}"
            );
        }
        self.refused = Some(report);
    }
}
