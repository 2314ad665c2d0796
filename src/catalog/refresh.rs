//! The catalogs of all tenants, kept fresh beside the requests and never by them.
//!
//! A tenant gets a state when it is first asked for, and a new one when its configuration
//! changes; each backend of it has one task (`upkeep`). A backend that fails keeps its last lists for a
//! while. What differs for clients is told to the [`Herald`] once it is in place.

mod callers;
mod keeping;
mod turns;
mod upkeep;

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::backend::Surroundings;
use crate::cache::Cache;
use crate::catalog::entry::Home;
use crate::catalog::herald::Changed;
use crate::catalog::herald::Herald;
use crate::catalog::refresh::callers::Callers;
use crate::catalog::refresh::callers::rooms::Rooms;
use crate::catalog::refresh::turns::Turns;
use crate::catalog::refresh::upkeep::Upkeep;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::source::Source;
use crate::catalog::stored::Record;
use crate::catalog::stored::Shelf;
use crate::catalog::viewer::Viewer;
use crate::egress::Egress;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tenant::Tenant;
use crate::telemetry::metrics::Metrics;

/// Most lines that one refresh writes about what was left out, and about what was changed.
const LINES: usize = 20;

/// The catalogs of all tenants. Clones share them.
#[derive(Clone)]
pub struct Catalogs(Arc<Inner>);

struct Inner {
    limits: Arc<Limits>,
    tenants: RwLock<Tenants>,
    tasks: TaskTracker,
    stop: CancellationToken,
    metrics: Arc<Metrics>,
    herald: Arc<dyn Herald>,
    /// Where the last good catalogs are.
    shelf: Shelf,
    /// What is kept of their answers.
    cache: Arc<Cache>,
    /// What the backends get.
    around: Surroundings,
    /// What they list for single callers.
    rooms: Arc<Rooms>,
}

#[derive(Default)]
struct Tenants {
    states: HashMap<TenantName, Arc<State>>,
    /// The tenants that there are now, where that was told.
    current: HashMap<TenantName, Arc<Tenant>>,
    /// Those that there were, in their last configuration, as long as some request holds them.
    gone: Vec<Weak<Tenant>>,
}

/// One tenant in one configuration.
struct State {
    tenant: Arc<Tenant>,
    limits: Arc<Limits>,
    sources: Vec<Arc<Source>>,
    snapshot: ArcSwap<Snapshot>,
    /// Whether every backend was asked once, or somebody waited long enough for it.
    ready: AtomicBool,
    /// Serialises the composing of snapshots; the last revision whose owners are recorded.
    composing: Mutex<Option<u64>>,
    /// Whose turn it is among its backends to be compiled.
    turns: Turns,
    untold: Mutex<Untold>,
    stop: CancellationToken,
    /// What is stored of it.
    record: Record,
    /// What its backends list for single callers.
    callers: Callers,
}

/// What nobody was told of yet.
#[derive(Default)]
struct Untold {
    /// What clients saw last of the earlier configuration, until there is as much of this one.
    before: Option<Arc<Snapshot>>,
    /// What differs from what they saw of this one.
    changed: Changed,
}

impl Catalogs {
    /// No catalogs yet, and none that outlive the process. Backends are asked through `egress`, and `herald`
    /// is told what changes.
    pub fn new(egress: Egress, limits: Arc<Limits>, metrics: Arc<Metrics>, herald: Arc<dyn Herald>) -> Self {
        let cache = Cache::new(&limits, metrics.clone());
        Self::with(Shelf::default(), cache, herald, egress, limits, metrics)
    }

    /// The tenant's catalog now, as `viewer` has it. Where its backends list for single callers, what they
    /// list for this one is asked for if it was not yet, and waited for at most `caller_catalog_time`.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the build goes on.
    pub async fn snapshot(&self, tenant: &Arc<Tenant>, viewer: Viewer<'_>) -> Arc<Snapshot> {
        let (state, shared) = self.current(tenant).await;
        match state.callers.are_alike() {
            true => shared,
            // Boxed: who does not come here does not carry what is needed here.
            false => Box::pin(callers::snapshot(&self.0, &state, shared, viewer)).await,
        }
    }

    /// What all callers of the tenant share of its catalog now, for what is done for none of them.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the build goes on.
    pub async fn shared(&self, tenant: &Arc<Tenant>) -> Arc<Snapshot> {
        self.current(tenant).await.1
    }

    /// Only the first build of a configuration is waited for, together, and at most `first_catalog_time`;
    /// then there is what is there.
    async fn current(&self, tenant: &Arc<Tenant>) -> (Arc<State>, Arc<Snapshot>) {
        let state = self.state(tenant);
        if !state.ready.load(Ordering::SeqCst) {
            let asked = join_all(state.sources.iter().map(|source| source.first_attempt()));
            let asked = state.stop.run_until_cancelled(asked);
            let _ = tokio::time::timeout(self.0.limits.first_catalog_time, asked).await;
            // The first one of many, and nobody waits for it.
            if !state.ready.swap(true, Ordering::SeqCst) {
                state.settled().await;
            }
        }
        // After that: what is put in place from now on and differs from this is told.
        let snapshot = state.snapshot.load_full();
        (state, snapshot)
    }

    /// The backend of this name, to call it. `None` if the tenant has none, or was never asked for.
    #[cfg(test)]
    pub(super) fn backend(&self, tenant: &TenantName, name: &BackendName) -> Option<Arc<Backend>> {
        self.source(tenant, name).map(|(_, source)| source.home.live.clone())
    }

    /// What is counted, as text.
    #[cfg(test)]
    pub(super) fn metrics(&self) -> String {
        self.0.metrics.encode()
    }

    /// Asks for an early refresh of one backend, unless it was asked a moment ago.
    #[cfg(test)]
    pub(super) fn nudge(&self, tenant: &TenantName, backend: &BackendName) {
        if let Some((_, source)) = self.source(tenant, backend) {
            source.nudge();
        }
    }

    /// Asks for an early refresh and waits for its end. `false` if there was none to wait for.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the refresh goes on.
    pub async fn refreshed(&self, tenant: &TenantName, backend: &BackendName) -> bool {
        let Some((state, source)) = self.source(tenant, backend) else { return false };
        let Some(attempt) = source.nudge() else { return false };
        state.stop.run_until_cancelled(source.attempt(attempt)).await.is_some()
    }

    /// Tells which tenants there are now: the others' catalogs are dropped, and backends of earlier
    /// configurations are not asked any more. A tenant that was asked for gets its new catalog at once:
    /// somebody may listen for it. A request that still travels with an earlier configuration is served
    /// with what there is, and makes nothing new. Belongs in a runtime.
    pub fn retain(&self, tenants: &[Arc<Tenant>]) {
        self.0.shelf.retain(tenants);
        let mut known = self.0.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let now = tenants.iter().map(|tenant| (tenant.name.clone(), tenant.clone())).collect();
        let before = std::mem::replace(&mut known.current, now);
        let Tenants { states, current, gone } = &mut *known;
        gone.retain(|tenant| tenant.strong_count() > 0);
        let left = |name, tenant| current.get(name).is_none_or(|now| !Arc::ptr_eq(now, tenant));
        gone.extend(before.iter().filter(|(name, old)| left(name, old)).map(|(_, old)| Arc::downgrade(old)));
        let mut changed = Vec::new();
        states.retain(|name, state| {
            let now = current.get(name);
            if now.is_none_or(|now| now.digest != state.tenant.digest) {
                state.retire();
                changed.extend(now.cloned());
            }
            // What is there of an earlier configuration is what the next one begins with.
            now.is_some()
        });
        for tenant in changed {
            self.begin(&mut known, tenant);
        }
    }

    /// Ends all refreshing, and what backends keep of their servers. Snapshots stay readable.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        let sources: Vec<_> = {
            let known = self.0.tenants.read().unwrap_or_else(PoisonError::into_inner);
            known.states.values().flat_map(|state| state.sources.clone()).collect()
        };
        join_all(sources.iter().map(|source| source.home.live.shutdown())).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn source(&self, tenant: &TenantName, backend: &BackendName) -> Option<(Arc<State>, Arc<Source>)> {
        let known = self.0.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let state = known.states.get(tenant)?;
        let source = state.sources.iter().find(|source| source.home.config.name == *backend)?;
        Some((state.clone(), source.clone()))
    }

    /// The state of this tenant in this configuration, or in a newer one; of a tenant that is gone,
    /// one that has nothing, is not kept and asks nobody.
    fn state(&self, tenant: &Arc<Tenant>) -> Arc<State> {
        let known = self.0.tenants.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = known.serving(tenant) {
            return state.clone();
        }
        drop(known);
        let mut known = self.0.tenants.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been faster.
        if let Some(state) = known.serving(tenant) {
            return state.clone();
        }
        let earlier = known.states.get(&tenant.name);
        if known.is_gone(tenant) {
            let passing = || {
                Arc::new(State::new(
                    &self.0,
                    Arc::new(Tenant { backends: Vec::new(), ..Tenant::clone(tenant) }),
                    None,
                ))
            };
            return earlier.cloned().unwrap_or_else(passing);
        }
        self.begin(&mut known, tenant.clone())
    }

    /// Begins with a tenant's configuration, in the place of its earlier one.
    fn begin(&self, known: &mut Tenants, tenant: Arc<Tenant>) -> Arc<State> {
        let earlier = known.states.get(&tenant.name).map(|state| &**state);
        let state = Arc::new(State::new(&self.0, tenant, earlier));
        for source in &state.sources {
            let upkeep = Upkeep { inner: self.0.clone(), state: state.clone(), source: source.clone() };
            self.0.tasks.spawn(state.stop.clone().run_until_cancelled_owned(upkeep.run()));
        }
        if state.sources.is_empty() {
            let (inner, bare) = (self.0.clone(), state.clone());
            self.0.tasks.spawn(async move { bare.tell(&*inner.herald, Changed::NOTHING) });
        }
        if let Some(earlier) = known.states.insert(state.tenant.name.clone(), state.clone()) {
            earlier.retire();
        }
        state
    }
}

impl Tenants {
    /// The state that serves a request with this configuration.
    fn serving(&self, tenant: &Tenant) -> Option<&Arc<State>> {
        let state = self.states.get(&tenant.name)?;
        let digest = state.tenant.digest;
        let current = || self.current.get(&tenant.name).is_some_and(|now| now.digest == digest);
        (digest == tenant.digest || current()).then_some(state)
    }

    /// Whether this configuration was replaced or removed. One that was never told of is newer.
    fn is_gone(&self, tenant: &Arc<Tenant>) -> bool {
        self.gone.iter().any(|gone| std::ptr::eq(gone.as_ptr(), Arc::as_ptr(tenant)))
    }
}

impl State {
    fn new(inner: &Inner, tenant: Arc<Tenant>, earlier: Option<&State>) -> Self {
        let source = |config: &Arc<_>| {
            let live = Backend::new(Arc::clone(config), tenant.name.clone(), inner.around.clone());
            let live = Arc::new(live);
            let earlier =
                earlier.and_then(|state| state.sources.iter().find(|s| s.home.config.name == config.name));
            let home = Home { config: config.clone(), live, tasks: false };
            Arc::new(Source::new(home, earlier.map(|source| &**source)))
        };
        let record = Record::new(inner.shelf.clone(), tenant.clone(), earlier.map(|state| &state.record));
        let revision = earlier.map_or(0, |state| state.snapshot.load().revision + 1);
        let sources: Vec<_> = tenant.backends.iter().map(source).collect();
        let nothing = Snapshot::compose(revision, &tenant, &[], &record.owners(), &inner.limits);
        let nothing = nothing.knowing(homes(&sources));
        Self {
            callers: Callers::new(&inner.rooms, &sources, &inner.limits),
            sources,
            snapshot: ArcSwap::from_pointee(nothing),
            limits: inner.limits.clone(),
            tenant,
            ready: AtomicBool::new(false),
            composing: Mutex::new(None),
            turns: earlier.map(|state| state.turns.clone()).unwrap_or_default(),
            untold: Mutex::new(Untold { before: earlier.and_then(State::shown), changed: Changed::NOTHING }),
            stop: inner.stop.child_token(),
            record,
        }
    }

    /// Tells that `said` changed, and whatever differs from what clients saw. Whether the catalog is shown
    /// from now on.
    fn tell(&self, herald: &dyn Herald, said: Changed) -> bool {
        let asked = self.sources.iter().all(|source| source.was_attempted());
        let first = asked && !self.ready.swap(true, Ordering::SeqCst);
        let mut changed = said;
        if self.ready.load(Ordering::SeqCst) {
            let untold = std::mem::take(&mut *self.untold());
            let before = untold.before.map(|before| Changed::between(&before, &self.snapshot.load()));
            changed = changed | untold.changed | before.unwrap_or_default();
        }
        if changed != Changed::NOTHING && !self.stop.is_cancelled() {
            herald.changed(&self.tenant.name, changed);
        }
        first
    }

    /// What clients saw last.
    fn shown(&self) -> Option<Arc<Snapshot>> {
        match self.ready.load(Ordering::SeqCst) {
            true => Some(self.snapshot.load_full()),
            false => self.untold().before.clone(),
        }
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its backends are not asked any more, but for requests that travel with it.
    fn retire(&self) {
        self.stop.cancel();
        self.callers.retire();
        self.sources.iter().for_each(|source| source.home.live.retire());
    }

    /// Puts what the sources have now in place. Says how many entries are newly left out.
    fn compose(&self) -> usize {
        let mut settled = self.composing.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<_> = self.sources.iter().filter_map(|source| source.part()).collect();
        let old = self.snapshot.load_full();
        let owners = self.record.owners().still(&parts);
        let new = Snapshot::compose(old.revision + 1, &self.tenant, &parts, &owners, &self.limits);
        let new = new.knowing(homes(&self.sources));
        let known: HashSet<_> = old.left_out.iter().chain(&old.cleaned).collect();
        let fresh = |remarks: &[_]| {
            remarks.iter().filter(|remark| !known.contains(remark)).cloned().collect::<Vec<_>>()
        };
        let (left_out, cleaned) = (fresh(&new.left_out), fresh(&new.cleaned));
        let new = Arc::new(new);
        self.snapshot.store(new.clone());
        self.callers.let_go();
        // Before, nobody can have seen another one.
        if self.ready.load(Ordering::SeqCst) {
            let mut untold = self.untold();
            untold.changed = untold.changed | Changed::between(&old, &new);
        }
        self.keep(&parts, &mut settled);
        self.remark(&left_out, &cleaned);
        left_out.len()
    }
}

fn homes(sources: &[Arc<Source>]) -> impl Iterator<Item = Arc<Home>> {
    sources.iter().map(|source| source.home.clone())
}
