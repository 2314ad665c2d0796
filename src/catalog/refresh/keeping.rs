//! What outlives a catalog: its lists and owners as a file, and what was read of its backends.

use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::atomic::Ordering;
#[cfg(test)]
use std::sync::mpsc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Surroundings;
use crate::backend::listing::Listing;
use crate::cache::Cache;
use crate::catalog::entry::Remark;
use crate::catalog::herald::Herald;
use crate::catalog::part::Part;
use crate::catalog::refresh::Catalogs;
use crate::catalog::refresh::Inner;
use crate::catalog::refresh::LINES;
use crate::catalog::refresh::State;
use crate::catalog::refresh::callers::rooms::Rooms;
use crate::catalog::source::Source;
use crate::catalog::stored::Shelf;
use crate::egress::Egress;
use crate::model::limits::Limits;
#[cfg(test)]
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;
use crate::telemetry::metrics::Metrics;

impl Catalogs {
    /// Catalogs that begin with what was last stored in `data_dir`. What `cache` has of a backend is
    /// purged when the resources that it lists change, and `herald` is told of changes. Belongs in a runtime.
    pub fn open(
        data_dir: &Path,
        cache: Arc<Cache>,
        herald: Arc<dyn Herald>,
        egress: Egress,
        limits: Arc<Limits>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let shelf = Shelf::open(data_dir, limits.clone());
        let catalogs = Self::with(shelf.clone(), cache, herald, egress, limits, metrics);
        catalogs.0.tasks.spawn(shelf.keep(catalogs.0.stop.clone()));
        catalogs.0.tasks.spawn(catalogs.0.rooms.clone().tend(catalogs.0.stop.clone()));
        catalogs
    }

    /// Catalogs that are stored on `shelf`.
    pub(super) fn with(
        shelf: Shelf,
        cache: Arc<Cache>,
        herald: Arc<dyn Herald>,
        egress: Egress,
        limits: Arc<Limits>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let around = Surroundings {
            egress,
            limits: limits.clone(),
            metrics: metrics.clone(),
            seats: Arc::default(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        let rooms = Rooms::new(&limits, metrics.clone());
        Self(Arc::new(Inner {
            limits,
            rooms,
            tenants: RwLock::default(),
            tasks,
            stop,
            metrics,
            shelf,
            cache,
            herald,
            around,
        }))
    }
}

#[cfg(test)]
impl Catalogs {
    /// Holds up whoever puts a snapshot of this tenant together, until there is something to receive.
    pub(in crate::catalog) fn hold_up(&self, tenant: &Arc<Tenant>, until: mpsc::Receiver<()>) {
        let state = self.state(tenant);
        let (held, is_held) = mpsc::channel();
        std::thread::spawn(move || {
            let _one = state.composing.lock();
            let _ = held.send(());
            until.recv()
        });
        let _ = is_held.recv();
    }
}

impl State {
    /// Records who owns what, now that it is shown: from now on it is a contract. Off the road, since there
    /// may be many names: only whoever has shown it first waits for this.
    pub(super) async fn settled(self: &Arc<Self>) {
        let shown = self.clone();
        let _ = tokio::task::spawn_blocking(move || shown.settle()).await;
    }

    fn settle(&self) {
        let mut settled = self.composing.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.is_none_or(|revision| revision < self.snapshot.load().revision) {
            let parts: Vec<_> = self.sources.iter().filter_map(|source| source.part()).collect();
            self.keep(&parts, &mut settled);
        }
    }

    /// Writes what is newly left out, and changed, into the log.
    pub(super) fn remark(&self, left_out: &[Remark], cleaned: &[Remark]) {
        let tenant = &self.tenant.name;
        for remark in left_out.iter().take(LINES) {
            let (backend, name, reason) = (&remark.backend, &remark.name, &remark.reason);
            tracing::warn!(%tenant, %backend, kind = remark.list.noun(), name, reason, "left out of the catalog");
        }
        for remark in cleaned.iter().take(LINES) {
            let (backend, name, reason) = (&remark.backend, &remark.name, &remark.reason);
            tracing::warn!(%tenant, %backend, kind = remark.list.noun(), name, reason, "changed in the catalog");
        }
        let untold = |remarks: &[Remark]| remarks.len().saturating_sub(LINES);
        let (more_left_out, more_changed) = (untold(left_out), untold(cleaned));
        if more_left_out + more_changed > 0 {
            tracing::warn!(%tenant, more_left_out, more_changed, "so many more are not told here");
        }
    }

    /// Has stored what there is now, unless it is an earlier configuration's, or what was stored is not
    /// known yet. `settled` is the last revision that was shown when its owners were recorded.
    pub(super) fn keep(&self, parts: &[Arc<Part>], settled: &mut Option<u64>) {
        if self.stop.is_cancelled() || !self.record.has_begun() {
            return;
        }
        if self.ready.load(Ordering::SeqCst) {
            let snapshot = self.snapshot.load();
            self.record.settle(parts, &snapshot, &self.limits);
            *settled = Some(snapshot.revision);
        }
        let carried = |source: &Arc<Source>| Some((source.home.config.name.clone(), source.carried()?));
        self.record.put(self.sources.iter().filter_map(carried).collect());
    }
}

/// Whether these lists have other resources than the last ones.
pub(super) fn resources_change(source: &Source, listing: &Listing) -> bool {
    let differ = |old: &Listing| {
        [List::Resources, List::Templates].iter().any(|list| old.of(*list) != listing.of(*list))
    };
    source.carried().is_some_and(|old| differ(&old))
}
