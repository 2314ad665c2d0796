//! What backends list for single callers (`catalog: per_caller`).
//!
//! A caller's catalog is what all callers share, with what such backends list for it laid over. They are
//! asked when the caller asks, once for all of its requests that wait, and what they list is kept in
//! `rooms`, for this caller alone: keyed by its tenant, principal and what its client declares,
//! as sessions with backends are. Of a tenant whose backends all list for everybody there is
//! nothing of this.

mod own;
mod plan;
pub(super) mod rooms;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;

use crate::catalog::refresh::Inner;
use crate::catalog::refresh::State;
use crate::catalog::refresh::callers::own::Own;
use crate::catalog::refresh::callers::rooms::Room;
use crate::catalog::refresh::callers::rooms::Rooms;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::source::Source;
use crate::catalog::viewer::Viewer;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::Ask;
use crate::model::tenant::Catalog;
use crate::protocol::able::Able;
use crate::protocol::extensions;
use crate::protocol::json::Json;
use crate::protocol::meta::UI;
use crate::protocol::tasks::EXTENSIONS;

/// The callers of one tenant in one configuration.
pub(super) struct Callers {
    /// The backends that list for each of them, in the tenant's order.
    desks: Vec<Arc<Desk>>,
    /// The extensions that some of these may have with clients.
    extensions: Vec<Arc<str>>,
    room: Room,
}

/// A backend that lists for each caller, as all of them know it.
struct Desk {
    source: Arc<Source>,
    /// How many ask it at a time.
    loads: Semaphore,
    /// Whether it did not list last: that is said once.
    failing: AtomicBool,
}

/// Whose catalog it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: String,
    /// What a backend keeps of a caller's calls it keeps apart by this.
    extensions: BTreeSet<String>,
    able: Able,
}

impl Callers {
    /// Of a tenant with these backends.
    pub(super) fn new(rooms: &Arc<Rooms>, sources: &[Arc<Source>], limits: &Limits) -> Self {
        let lists = |source: &&Arc<Source>| source.home.config.catalog == Catalog::PerCaller;
        let desk = |source: &Arc<Source>| {
            let (loads, failing) = (Semaphore::new(limits.caller_catalog_loads), AtomicBool::new(false));
            Arc::new(Desk { source: source.clone(), loads, failing })
        };
        let desks: Vec<_> = sources.iter().filter(lists).map(desk).collect();
        let extensions = desks.iter().flat_map(|desk| desk.source.home.config.extensions.clone()).collect();
        Self { desks, extensions, room: rooms.open() }
    }

    /// Whether all callers see the same.
    pub(super) fn are_alike(&self) -> bool {
        self.desks.is_empty()
    }

    /// What all of them share is another now: what was laid over the last one is not held any more.
    pub(super) fn let_go(&self) {
        self.room.each(|own| own.let_go());
    }

    /// Nothing is kept any more.
    pub(super) fn retire(&self) {
        self.room.close();
    }
}

impl Desk {
    /// Notes whether it lists for callers. `true` if it did until now, and does not.
    fn fails(&self, fails: bool) -> bool {
        !self.failing.swap(fails, Ordering::Relaxed) && fails
    }
}

/// What `viewer` sees of a tenant whose callers share `shared`. Waits for backends at most
/// `limits.caller_catalog_time`, and no longer than for the tenant's first catalog.
///
/// # Cancel safety
/// Dropping the future changes nothing: what is asked for is had all the same.
pub(super) async fn snapshot(
    inner: &Arc<Inner>,
    state: &Arc<State>,
    shared: Arc<Snapshot>,
    viewer: Viewer<'_>,
) -> Arc<Snapshot> {
    let (callers, caller) = (&state.callers, viewer.caller);
    if caller.tenant != state.tenant.name {
        return shared;
    }
    let names = named(viewer.capabilities, &callers.extensions);
    let able = Able::of(viewer.capabilities);
    let key = Key { principal: caller.principal(), extensions: names, able };
    let new = |key: &Key| Own::new(caller, &callers.desks, |config| declared(key, config));
    let Some(own) = callers.room.enter(&key, new) else { return shared };
    own.renew(inner, state, &key).await;
    let now = state.snapshot.load_full();
    let seen = own.over(&now, state, &inner.limits);
    if state.snapshot.load().revision != now.revision {
        own.let_go();
    }
    seen
}

/// The extensions that a client declares, as far as they matter.
fn named(capabilities: &Json, allowed: &[Arc<str>]) -> BTreeSet<String> {
    let declared = capabilities.member(EXTENSIONS);
    let carried = declared.and_then(|declared| extensions::carried(&declared, allowed, false));
    carried.iter().flat_map(Json::members).map(|(name, _)| name.into_owned()).collect()
}

/// The extensions that this backend is told of, and what it may ask: as it is with calls.
fn declared(key: &Key, config: &tenant::Backend) -> (BTreeSet<String>, Able) {
    let is_told =
        |name: &&String| *name == UI || config.extensions.iter().any(|allowed| **allowed == ***name);
    let may = |ask: Ask| !config.refused.contains(&ask);
    let Able { form, url, sampling, tools, context, roots } = key.able;
    let able = Able {
        form: form && may(Ask::Form),
        url: url && may(Ask::Url),
        sampling: sampling && may(Ask::Sampling),
        tools: tools && may(Ask::Sampling),
        context: context && may(Ask::Sampling),
        roots: roots && may(Ask::Roots),
    };
    (key.extensions.iter().filter(is_told).cloned().collect(), able)
}
