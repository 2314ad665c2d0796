//! Subscriptions with backends, one for all listeners who want the same.
//!
//! A backend of a tenant is a line; the resources that are wanted of it lie in strands, each of which is
//! one subscription. A change of what a strand has reopens it, first the new subscription and then the
//! end of the old one, so that nothing is missed; after a gap everything behind it counts as changed.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use futures_util::FutureExt;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout_at;

use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::listen::bounds::LEFTOVERS;
use crate::listen::bounds::SETTLE;
use crate::listen::bounds::SOUND;
use crate::listen::bounds::STRAND;
use crate::listen::bounds::most;
use crate::listen::bounds::pause;
use crate::listen::hub::Hub;
use crate::listen::task;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::tasks::TASK_ID;

/// The lines of one tenant, by the address of the home that each of them keeps.
#[derive(Default)]
pub(super) struct Lines(HashMap<usize, Line>);

struct Line {
    home: Arc<Home>,
    strands: Vec<Arc<Strand>>,
    /// By own URI.
    resources: HashMap<Arc<str>, Wanted>,
}

struct Wanted {
    /// The public URI.
    topic: Arc<str>,
    strand: Arc<Strand>,
}

/// One subscription with a backend.
pub(super) struct Strand {
    pub(super) tenant: TenantName,
    home: Arc<Home>,
    state: Mutex<State>,
    /// What is wanted is something else now.
    changed: Notify,
    /// What is heard is something else now.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// By own URI.
    resources: HashMap<Arc<str>, Standing>,
    /// Whether they have changed since it was last opened.
    reopen: Reopen,
    /// Whether it could not be opened the last time.
    failing: bool,
}

/// When a strand has to be opened anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reopen {
    #[default]
    Never,
    /// Something is not wanted any more: when there is time.
    Later,
    /// Something more is wanted.
    Soon,
}

struct Standing {
    heard: Heard,
    /// Somebody listens to it already: it counts as changed when it is open.
    late: bool,
}

/// What its backend says to the wish to hear of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// It could not be asked.
    Failed,
    /// Changes will be told.
    Honoured,
    /// They will not.
    Refused,
}

impl Lines {
    /// The public URIs that are subscribed to as `own` of a backend of this name.
    pub(super) fn topics<'a>(
        &'a self,
        backend: &'a BackendName,
        own: &'a str,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let lines = self.0.values().filter(move |line| line.home.config.name == *backend);
        lines.filter_map(move |line| Some(&line.resources.get(own)?.topic))
    }

    /// The same of one home.
    pub(super) fn topic(&self, home: &Arc<Home>, own: &str) -> Option<&Arc<str>> {
        Some(&self.0.get(&address(home))?.resources.get(own)?.topic)
    }

    /// One resource more, known as `topic`, and the strand that it is in. `None` where its backend has as
    /// many subscriptions as it may.
    pub(super) fn add(
        &mut self,
        hub: &Arc<Hub>,
        tenant: &TenantName,
        topic: &Arc<str>,
        entry: &Entry,
        late: bool,
    ) -> Option<Arc<Strand>> {
        let line = self.0.entry(address(&entry.home)).or_insert_with(|| Line {
            home: entry.home.clone(),
            strands: Vec::new(),
            resources: HashMap::new(),
        });
        let found = line.strands.iter().find(|strand| strand.state().resources.len() < STRAND).cloned();
        let strand = match found {
            Some(strand) => strand,
            None if line.strands.len() >= most(&hub.limits) => return None,
            None => {
                let strand = Arc::new(Strand::new(tenant.clone(), entry.home.clone()));
                line.strands.push(strand.clone());
                hub.follow(&strand);
                strand
            }
        };
        strand.add(&entry.own, late);
        line.resources.insert(entry.own.clone(), Wanted { topic: topic.clone(), strand: strand.clone() });
        Some(strand)
    }

    /// One resource less.
    pub(super) fn remove(&mut self, home: &Arc<Home>, own: &str) {
        let removed = self.0.get_mut(&address(home)).and_then(|line| line.resources.remove(own));
        if let Some(wanted) = removed {
            wanted.strand.remove(own);
        }
    }

    /// Forgets a strand in which nothing is. `false` if something is.
    pub(super) fn dismiss(&mut self, strand: &Arc<Strand>) -> bool {
        let address = address(&strand.home);
        let Some(line) = self.0.get_mut(&address) else { return true };
        if !strand.state().resources.is_empty() {
            return false;
        }
        line.strands.retain(|other| !Arc::ptr_eq(other, strand));
        if line.strands.is_empty() {
            self.0.remove(&address);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn address(home: &Arc<Home>) -> usize {
    Arc::as_ptr(home).addr()
}

impl Strand {
    fn new(tenant: TenantName, home: Arc<Home>) -> Self {
        let (state, changed, settled) = (Mutex::default(), Notify::new(), Notify::new());
        Self { tenant, home, state, changed, settled }
    }

    fn add(&self, own: &Arc<str>, late: bool) {
        let mut state = self.state();
        // Who comes while it is tried again does not wait for that.
        let heard = if state.failing { Heard::Failed } else { Heard::Nothing };
        let late = late || state.failing;
        state.resources.insert(own.clone(), Standing { heard, late });
        state.reopen = Reopen::Soon;
        drop(state);
        self.changed.notify_one();
    }

    fn remove(&self, own: &str) {
        let mut state = self.state();
        state.resources.remove(own);
        state.reopen = state.reopen.max(Reopen::Later);
        drop(state);
        self.changed.notify_one();
    }

    /// What the backend says to this resource, by `deadline` at the latest; after that it is late.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(super) async fn settled(&self, own: &str, deadline: Instant) -> Heard {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            match self.state().resources.get(own).map(|standing| standing.heard) {
                Some(Heard::Nothing) => {}
                Some(heard) => return heard,
                // It was moved elsewhere, where it counts as changed.
                None => return Heard::Nothing,
            }
            if timeout_at(deadline, settled).await.is_err() {
                if let Some(standing) = self.state().resources.get_mut(own) {
                    standing.late = true;
                }
                return Heard::Nothing;
            }
        }
    }

    /// What is to be asked for, now that it is.
    fn wanted(&self) -> Vec<Arc<str>> {
        let mut state = self.state();
        state.reopen = Reopen::Never;
        state.resources.keys().cloned().collect()
    }

    /// The backend was asked for `sent`: those who waited for it, and have heard nothing, hear of it now.
    fn opened(&self, hub: &Hub, sent: &[Arc<str>], honoured: &Interest) {
        let honoured = task::honoured(&self.home.config.name, honoured);
        let mut missed = Vec::new();
        let mut state = self.state();
        state.failing = false;
        for own in sent {
            let Some(standing) = state.resources.get_mut(own) else { continue };
            let is_honoured = honoured.contains(own);
            standing.heard = if is_honoured { Heard::Honoured } else { Heard::Refused };
            if is_honoured && std::mem::take(&mut standing.late) {
                missed.push(own);
            }
        }
        drop(state);
        self.settled.notify_waiters();
        missed.into_iter().for_each(|own| hub.missed(&self.tenant, &self.home, own));
    }

    /// It is not open, or not for all that is wanted: those who have heard nothing wait no longer. Where it
    /// is `lost`, nobody knows what changes from now on; what was refused stays refused.
    fn failed(&self, lost: bool) {
        let mut state = self.state();
        state.failing = true;
        for standing in state.resources.values_mut() {
            let is_open = standing.heard == Heard::Honoured;
            if standing.heard == Heard::Nothing || (is_open && lost) {
                *standing = Standing { heard: Heard::Failed, late: true };
            }
        }
        drop(state);
        self.settled.notify_waiters();
    }

    /// When it is to be opened anew, for what has changed.
    fn due(&self, limits: &Limits) -> Option<Instant> {
        match self.state().reopen {
            Reopen::Never => None,
            Reopen::Later => Some(Instant::now() + limits.watch_linger),
            Reopen::Soon => Some(Instant::now() + SETTLE),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription that is open.
struct Open {
    watching: Watching,
    since: Instant,
}

/// The task of one strand. Ends when nobody has wanted anything of it for `limits.watch_linger`.
///
/// # Cancel safety
/// Dropping the future ends the subscription.
pub(super) async fn follow(hub: Arc<Hub>, strand: Arc<Strand>) {
    let mut open: Option<Open> = None;
    let (mut failures, mut retrying) = (0, false);
    let mut at = Some(Instant::now());
    loop {
        tokio::select! {
            change = next(&mut open) => match change {
                Some(change) => tell(&hub, &strand, change),
                None => {
                    let was_sound = open.take().is_some_and(|open| open.since.elapsed() >= SOUND);
                    failures = if was_sound { 1 } else { failures + 1 };
                    retrying = true;
                    strand.failed(true);
                    at = Some(Instant::now() + pause(&hub.limits, failures));
                }
            },
            () = strand.changed.notified() => {
                if !retrying {
                    at = [at, strand.due(&hub.limits)].into_iter().flatten().min();
                }
            }
            () = until(at) => {
                let uris = strand.wanted();
                if uris.is_empty() {
                    if hub.dismiss(&strand) {
                        return;
                    }
                    continue;
                }
                let new = begin(&hub, &strand, &uris).await;
                retrying = new.is_none();
                match new {
                    Some(new) => {
                        at = None;
                        let old = open.replace(Open { watching: new, since: Instant::now() });
                        old.into_iter().for_each(|old| finish(&hub, &strand, old));
                    }
                    None => {
                        failures += 1;
                        strand.failed(false);
                        at = Some(Instant::now() + pause(&hub.limits, failures));
                    }
                }
            }
        }
    }
}

/// Opens a subscription for `uris`.
async fn begin(hub: &Hub, strand: &Strand, uris: &[Arc<str>]) -> Option<Watching> {
    match strand.home.live.watch(task::interest(uris)).await {
        Ok(watching) => {
            strand.opened(hub, uris, &watching.honoured);
            Some(watching)
        }
        Err(error) => {
            let (tenant, backend) = (&strand.tenant, &strand.home.config.name);
            tracing::debug!(%tenant, %backend, %error, "a backend's resources are not subscribed to; tried again");
            None
        }
    }
}

/// Takes what a subscription has still said before another one was open in its place.
fn finish(hub: &Hub, strand: &Strand, mut old: Open) {
    for _ in 0..LEFTOVERS {
        match old.watching.changes.next().now_or_never() {
            Some(Some(change)) => tell(hub, strand, change),
            Some(None) | None => return,
        }
    }
}

fn tell(hub: &Hub, strand: &Strand, change: Change) {
    match change {
        Change::Resource(own) => hub.resource_changed(&strand.tenant, &strand.home.config.name, &own),
        Change::Task(task) => {
            let own = task.member(TASK_ID).and_then(|id| id.string()).unwrap_or_default();
            hub.missed(&strand.tenant, &strand.home, &task::key(&strand.home.config.name, &own));
        }
        // Not asked for here.
        Change::Tools | Change::Prompts | Change::Resources => {}
    }
}

async fn next(open: &mut Option<Open>) -> Option<Change> {
    match open {
        Some(open) => open.watching.changes.next().await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
