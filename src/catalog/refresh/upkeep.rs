//! The task of one backend: asks for its lists on a schedule, and whenever it says that they changed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::backend::Account;
use crate::backend::BackendError;
use crate::backend::listing::Listing;
use crate::backend::watch::Interest;
use crate::catalog::herald::Changed;
use crate::catalog::refresh::Inner;
use crate::catalog::refresh::State;
use crate::catalog::refresh::keeping;
use crate::catalog::source;
use crate::catalog::source::Source;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tenant::Catalog;
use crate::protocol::methods::List;
use crate::telemetry::metrics::Open;
use crate::telemetry::metrics::Outcome;

/// One backend of one tenant, kept up.
pub(super) struct Upkeep {
    pub(super) inner: Arc<Inner>,
    pub(super) state: Arc<State>,
    pub(super) source: Arc<Source>,
}

impl Upkeep {
    /// Asks the backend and listens to it until the future is dropped.
    pub(super) async fn run(self) {
        let stored = self.state.record.begin(&self.source.home.config).await;
        if self.source.home.config.catalog == Catalog::PerCaller {
            let (following, watching): (BoxFuture<'_, ()>, BoxFuture<'_, ()>) =
                (Box::pin(self.follow()), Box::pin(self.watch()));
            tokio::join!(following, watching);
            return;
        }
        if let Some(carried) = self.source.carried().or(stored) {
            self.install(carried).await;
            self.source.attempted();
            self.tell(Changed::NOTHING).await;
        }
        let (refreshing, watching): (BoxFuture<'_, ()>, BoxFuture<'_, ()>) =
            (Box::pin(self.refresh()), Box::pin(self.watch()));
        tokio::join!(refreshing, watching);
    }

    /// Asks on the schedule, and when something was said.
    async fn refresh(&self) {
        let (inner, source) = (&self.inner, &self.source);
        let mut failures = 0;
        let mut stale: Option<Open> = None;
        loop {
            let said = source.notices().begin();
            let (served, wait) = match source.list(&Account::Gateway, &inner.limits).await {
                Ok(answer) => {
                    source.is_back();
                    if let Some(listing) = answer.listing {
                        self.install(listing).await;
                    }
                    failures = if answer.failed.is_empty() { 0 } else { failures + 1 };
                    self.report(&answer.failed, failures);
                    let missed = answer.failed.iter().map(|(list, _)| Changed::from(*list));
                    let missed = missed.fold(Changed::NOTHING, |all, one| all | one);
                    let retry = source::back_off(failures);
                    (!missed, if failures == 0 { answer.wait } else { answer.wait.min(retry) })
                }
                Err(reason) => {
                    failures += 1;
                    self.report_none(&reason, failures);
                    let left = self.bear().await;
                    let wait = source::back_off(failures);
                    (Changed::NOTHING, left.map_or(wait, |left| wait.min(left)))
                }
            };
            inner.metrics.catalog_refresh(if failures == 0 { Outcome::Ok } else { Outcome::Failed });
            match failures {
                0 => stale = None,
                _ => drop(stale.get_or_insert_with(|| Open::new(&inner.metrics.catalogs_stale))),
            }
            if (said & served).resources {
                let (tenant, backend) = self.names();
                inner.cache.purge(tenant, backend, None);
            }
            source.notices().unserved(said & !served);
            source.attempted();
            self.tell(said & served).await;
            source.rest(wait).await;
        }
    }

    /// Hears what changes of a backend that lists for each caller: what they have of it is out of date then,
    /// and they are told at once, since each of them has it listed when it next asks.
    async fn follow(&self) {
        let source = &self.source;
        // Nobody waits for it.
        source.attempted();
        self.tell(Changed::NOTHING).await;
        loop {
            source.rest(source::MOST_TTL).await;
            let said = source.notices().begin();
            source.outdate();
            let (tenant, backend) = self.names();
            self.inner.cache.purge(tenant, backend, None);
            source.attempted();
            self.tell(said).await;
        }
    }

    /// The backend is away. Its lists stay for a while, and then they leave; how long that still is.
    async fn bear(&self) -> Option<Duration> {
        let left = self.source.is_away(self.inner.limits.catalog_grace)?;
        if !left.is_zero() {
            return Some(left);
        }
        self.report_leaving();
        self.install(Arc::new(Listing::gone())).await;
        self.source.has_left();
        None
    }

    /// Keeps a subscription to what changes open, as long as the backend has that.
    ///
    /// spec: patterns/subscriptions, Graceful Closure; rows SB-06, RL-07
    async fn watch(&self) {
        let (source, limits) = (&self.source, &self.inner.limits);
        // It is known what the backend is, and the first catalog does not wait for this.
        source.first_attempt().await;
        let (mut failures, mut was_open, mut is_away) = (0_u32, false, false);
        loop {
            let began = Instant::now();
            match source.home.live.watch(Interest::in_lists()).await {
                Ok(mut watching) => {
                    let heard = Changed::of(&watching.honoured);
                    let is_heard = heard != Changed::NOTHING;
                    if is_heard {
                        // What changed before is not known; of a backend that was away, clients are told.
                        source.notices().note(if is_away { heard } else { Changed::NOTHING });
                        (was_open, is_away) = (true, false);
                    }
                    while let Some(change) = watching.changes.next().await {
                        source.notices().note(Changed::from(&change));
                    }
                    let lasted = !is_heard || began.elapsed() >= source::STEADY;
                    failures = if lasted { 0 } else { failures.saturating_add(1) };
                }
                Err(error) => {
                    self.report_unheard(&error, failures);
                    failures = failures.saturating_add(1);
                    if was_open && !std::mem::replace(&mut is_away, true) {
                        source.notices().note(Changed::NOTHING);
                    }
                }
            }
            tokio::time::sleep(source::reopening(failures, limits)).await;
        }
    }

    /// Tells what was said, and what differs for clients.
    async fn tell(&self, said: Changed) {
        if self.state.tell(&*self.inner.herald, said) {
            self.state.settled().await;
        }
    }

    fn report(&self, failed: &[(List, String)], failures: u32) {
        let (tenant, backend) = self.names();
        for (list, reason) in failed {
            let list = list.method().name();
            tracing::warn!(%tenant, %backend, list, reason, failures, "a backend did not give one of its lists; the last one stays");
        }
    }

    fn report_none(&self, reason: &str, failures: u32) {
        let (tenant, backend) = self.names();
        tracing::warn!(%tenant, %backend, reason, failures, "a backend did not give its lists; the last ones stay");
    }

    fn report_leaving(&self) {
        let (tenant, backend) = self.names();
        tracing::error!(%tenant, %backend, "a backend is away for too long; what it has leaves the catalog");
    }

    fn report_unheard(&self, error: &BackendError, failures: u32) {
        let (tenant, backend) = self.names();
        tracing::debug!(%tenant, %backend, %error, failures, "a backend's changes are not heard");
    }

    /// Takes lists and puts them into the catalog, on a blocking thread.
    async fn install(&self, listing: Arc<Listing>) {
        self.report_cut(&listing);
        let changed = keeping::resources_change(&self.source, &listing);
        let (limits, of, from) = (self.inner.limits.clone(), self.state.clone(), self.source.clone());
        let turn = self.state.turns.next().await;
        let job = move || {
            let _until_done = turn;
            from.take(listing, &limits);
            of.compose()
        };
        match tokio::task::spawn_blocking(job).await {
            Ok(left_out) => {
                self.inner.metrics.entries_left_out(left_out as u64);
                if changed {
                    let (tenant, backend) = self.names();
                    self.inner.cache.purge(tenant, backend, None);
                }
            }
            Err(error) => self.report_uncompiled(&error),
        }
    }

    fn report_cut(&self, listing: &Listing) {
        let (tenant, backend) = self.names();
        for list in List::ALL {
            if let Some(reason) = listing.of(list).truncated() {
                tracing::error!(%tenant, %backend, list = list.method().name(), reason, "a backend's list is not complete");
            }
        }
    }

    fn report_uncompiled(&self, error: &JoinError) {
        let (tenant, backend) = self.names();
        tracing::error!(%tenant, %backend, %error, "a backend's lists could not be compiled; the last ones stay");
    }

    fn names(&self) -> (&TenantName, &BackendName) {
        (&self.state.tenant.name, &self.source.home.config.name)
    }
}
