//! One subscription with a backend, and the task that keeps it open.
//!
//! A change of what it is for reopens it, first the new subscription and then the end of the old one, so
//! that nothing is missed; after a gap everything behind it counts as changed.

use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout_at;

use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::catalog::entry::Home;
use crate::listen::hub::Hub;
use crate::listen::task;
use crate::model::chance;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::protocol::tasks::TASK_ID;

/// How long what is wanted is let settle before a strand is reopened for it.
const SETTLE: Duration = Duration::from_millis(20);

/// A subscription that held for so long was no failure.
const SOUND: Duration = Duration::from_secs(30);

/// Most changes that are still read of a subscription that another has taken the place of.
const LEFTOVERS: usize = 1_000;

/// One subscription with a backend.
pub(in crate::listen) struct Strand {
    tenant: TenantName,
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
pub(in crate::listen) enum Heard {
    /// Nothing yet.
    Nothing,
    /// It could not be asked.
    Failed,
    /// Changes will be told.
    Honoured,
    /// They will not.
    Refused,
}

impl Strand {
    pub(super) fn new(tenant: TenantName, home: Arc<Home>) -> Self {
        let (state, changed, settled) = (Mutex::default(), Notify::new(), Notify::new());
        Self { tenant, home, state, changed, settled }
    }

    /// Whose it is.
    pub(in crate::listen) fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// How many resources are wanted of it.
    pub(super) fn resources(&self) -> usize {
        self.state().resources.len()
    }

    /// One resource more; where it is `late`, somebody listens to it already.
    pub(super) fn add(&self, own: &Arc<str>, late: bool) {
        let mut state = self.state();
        // Who comes while it is tried again does not wait for that.
        let heard = if state.failing { Heard::Failed } else { Heard::Nothing };
        let late = late || state.failing;
        state.resources.insert(own.clone(), Standing { heard, late });
        state.reopen = Reopen::Soon;
        drop(state);
        self.changed.notify_one();
    }

    /// One resource less.
    pub(super) fn remove(&self, own: &str) {
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
    pub(in crate::listen) async fn settled(&self, own: &str, deadline: Instant) -> Heard {
        loop {
            let mut settled = pin!(self.settled.notified());
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
    async fn opened(&self, hub: &Hub, sent: &[Arc<str>], honoured: &Interest) {
        let honoured = task::honoured(&self.home.config.name, honoured);
        let mut missed = Vec::new();
        {
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
        }
        self.settled.notify_waiters();
        for own in missed {
            hub.missed(&self.tenant, &self.home, own).await;
        }
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
pub(in crate::listen) async fn follow(hub: Arc<Hub>, strand: Arc<Strand>) {
    let mut open: Option<Open> = None;
    let (mut failures, mut retrying) = (0, false);
    let mut at = Some(Instant::now());
    loop {
        tokio::select! {
            change = next(&mut open) => match change {
                Some(change) => tell(&hub, &strand, change).await,
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
                        if let Some(old) = old {
                            finish(&hub, &strand, old).await;
                        }
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
    let interest = task::interest(uris);
    match strand.home.live.watch(interest).await {
        Ok(watching) => {
            strand.opened(hub, uris, &watching.honoured).await;
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
async fn finish(hub: &Hub, strand: &Strand, mut old: Open) {
    for _ in 0..LEFTOVERS {
        match old.watching.changes.next().now_or_never() {
            Some(Some(change)) => tell(hub, strand, change).await,
            Some(None) | None => return,
        }
    }
}

async fn tell(hub: &Hub, strand: &Strand, change: Change) {
    match change {
        Change::Resource(own) => {
            hub.resource_changed(&strand.tenant, &strand.home.config.name, &own).await;
        }
        Change::Task(task) => {
            let own = task.member(TASK_ID).and_then(|id| id.string()).unwrap_or_default();
            hub.missed(&strand.tenant, &strand.home, &task::key(&strand.home.config.name, &own)).await;
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

/// How long nothing is tried after so many failures: doubled each time, up to a bound, and by chance.
fn pause(limits: &Limits, failures: u32) -> Duration {
    let doubled = limits.open_pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(limits.open_pause_most).mul_f64(0.5 + chance::fraction() / 2.0)
}
