//! The task that keeps the subscription of a strand open.
//!
//! A change of what it is for reopens it, first the new subscription and then, a moment later, the end of
//! the old one, so that nothing is missed; after a gap everything behind it counts as changed. A backend
//! that answers with no subscription is asked for less at a time, until what is in the way is found.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use futures_util::stream::SelectAll;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout_at;

use crate::backend::BackendError;
use crate::backend::watch::Change;
use crate::backend::watch::Watching;
use crate::listen::hub::Hub;
use crate::listen::task;
use crate::listen::upstream::bounds::Pace;
use crate::listen::upstream::strand::Plan;
use crate::listen::upstream::strand::SETTLE;
use crate::listen::upstream::strand::Strand;
use crate::model::chance;
use crate::model::limits::Limits;
use crate::protocol::tasks::TASK_ID;

/// A subscription that held for so long was no failure.
const SOUND: Duration = Duration::from_secs(30);

/// How long a subscription is still read after another has taken its place: what was said before that may be
/// on its way.
const OVERLAP: Duration = Duration::from_secs(1);

/// How many times less, or more, is asked for after a failure, or after none.
const STEP: usize = 4;

/// So many failures in a row may be those of one resource: what is in the way is looked for without a pause.
const SEARCH: u32 = 8;

type Changes = Pin<Box<dyn Stream<Item = Change> + Send>>;

/// The task of one strand.
pub(super) struct Follower {
    hub: Arc<Hub>,
    strand: Arc<Strand>,
    open: Option<Open>,
    /// What others have taken the place of.
    old: SelectAll<Changes>,
    opening: Option<Opening>,
    /// When it is to be opened.
    at: Option<Instant>,
    pace: Pace,
    /// How many resources more are asked for at a time.
    most: usize,
    /// Failures in a row.
    failures: u32,
    /// Answers in a row that were no subscription.
    refusals: u32,
    /// Whatever is wanted, it is not opened before its time.
    retrying: bool,
}

/// A subscription that is open.
struct Open {
    changes: Changes,
    since: Instant,
}

/// One that is about to be.
struct Opening {
    plan: Plan,
    begun: BoxFuture<'static, Result<Watching, BackendError>>,
}

impl Follower {
    /// Of a strand that is to be opened now.
    pub(super) fn new(hub: Arc<Hub>, strand: Arc<Strand>) -> Self {
        Self {
            hub,
            strand,
            open: None,
            old: SelectAll::new(),
            opening: None,
            at: Some(Instant::now()),
            pace: Pace::new(),
            most: usize::MAX,
            failures: 0,
            refusals: 0,
            retrying: false,
        }
    }

    /// Follows it until nobody wants anything of it.
    ///
    /// # Cancel safety
    /// Dropping the future ends the subscription.
    pub(super) async fn run(mut self) {
        loop {
            let at = self.at.filter(|_| self.opening.is_none());
            let at = at.map(|at| at.max(self.pace.earliest()));
            tokio::select! {
                change = next(&mut self.open) => match change {
                    Some(change) => self.tell(change).await,
                    None => self.ended(),
                },
                Some(change) = self.old.next(), if !self.old.is_empty() => self.tell(change).await,
                begun = begun(&mut self.opening) => {
                    let Some(Opening { plan, .. }) = self.opening.take() else { continue };
                    match begun {
                        Ok(watching) => self.opened(&plan, watching).await,
                        Err(error) => self.failed(&plan, &error),
                    }
                }
                () = self.strand.changed.notified() => {
                    if !self.retrying {
                        self.at = [self.at, self.strand.due(&self.hub.limits)].into_iter().flatten().min();
                    }
                }
                () = until(at) => {
                    let plan = self.strand.plan(self.most, self.open.is_some());
                    if !plan.uris.is_empty() {
                        self.begin(plan);
                    } else if self.hub.dismiss(&self.strand) {
                        return;
                    }
                }
            }
        }
    }

    /// Asks for a subscription.
    fn begin(&mut self, plan: Plan) {
        self.pace.take(Instant::now());
        self.at = None;
        let (strand, interest) = (self.strand.clone(), task::interest(&plan.uris));
        let begun = async move { strand.home().live.watch(interest).await };
        self.opening = Some(Opening { plan, begun: Box::pin(begun) });
    }

    async fn opened(&mut self, plan: &Plan, watching: Watching) {
        let (now, limits) = (Instant::now(), &self.hub.limits);
        let is_refused = self.strand.opened(&self.hub, &plan.uris, &watching.honoured).await;
        (self.retrying, self.refusals) = (false, 0);
        self.most = self.most.saturating_mul(STEP);
        // Whoever still listens to what is refused may hear of it again.
        let again = is_refused.then(|| now + limits.refresh_time);
        let left = self.strand.left().map(|tries| now + search_pause(limits, tries));
        let due = self.strand.due(limits);
        self.at = [self.at, again, left, due].into_iter().flatten().min();
        if let Some(old) = self.open.replace(Open { changes: watching.changes, since: now }) {
            self.old.push(leftovers(old.changes, now + OVERLAP));
        }
    }

    fn failed(&mut self, plan: &Plan, error: &BackendError) {
        let (tenant, backend) = (self.strand.tenant(), &self.strand.home().config.name);
        tracing::debug!(%tenant, %backend, %error, "a backend's resources are not subscribed to; tried again");
        let limits = &self.hub.limits;
        let is_of_resources = error.sent() && !plan.added.is_empty();
        let pause = if is_of_resources {
            self.refusals = self.refusals.saturating_add(1);
            self.most = (plan.added.len() / STEP).max(1);
            if let [own] = &*plan.added {
                self.strand.blame(own);
            }
            let tries = self.strand.left().unwrap_or_default();
            search_pause(limits, tries.max(self.refusals.saturating_sub(SEARCH)))
        } else {
            self.failures = self.failures.saturating_add(1);
            pause(limits, self.failures)
        };
        self.retrying = !is_of_resources;
        self.strand.failed(false, !is_of_resources || self.open.is_none());
        self.at = Some(Instant::now() + pause);
    }

    /// The subscription is over.
    fn ended(&mut self) {
        let was_sound = self.open.take().is_some_and(|open| open.since.elapsed() >= SOUND);
        self.failures = if was_sound { 1 } else { self.failures.saturating_add(1) };
        self.strand.failed(true, true);
        self.retrying = true;
        // What is being opened may take its place.
        if self.opening.is_none() {
            self.at = Some(Instant::now() + pause(&self.hub.limits, self.failures));
        }
    }

    async fn tell(&mut self, change: Change) {
        let (hub, strand) = (self.hub.clone(), self.strand.clone());
        match change {
            Change::Resource(own) => {
                hub.resource_changed(strand.tenant(), &strand.home().config.name, &own).await;
            }
            Change::Task(task) => {
                let own = task.member(TASK_ID).and_then(|id| id.string()).unwrap_or_default();
                let key = task::key(&strand.home().config.name, &own);
                hub.missed(strand.tenant(), strand.home(), &key).await;
            }
            // Not asked for here.
            Change::Tools | Change::Prompts | Change::Resources => {}
        }
    }
}

/// What a subscription says until then, and what of that has not been read by then.
fn leftovers(changes: Changes, until: Instant) -> Changes {
    Box::pin(stream::unfold(changes, move |mut changes| async move {
        let change = timeout_at(until, changes.next()).await.ok()??;
        Some((change, changes))
    }))
}

async fn next(open: &mut Option<Open>) -> Option<Change> {
    match open {
        Some(open) => open.changes.next().await,
        None => pending().await,
    }
}

async fn begun(opening: &mut Option<Opening>) -> Result<Watching, BackendError> {
    match opening {
        Some(opening) => (&mut opening.begun).await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// How long nothing is tried for what was in the way so often.
fn search_pause(limits: &Limits, tries: u32) -> Duration {
    if tries == 0 { SETTLE } else { pause(limits, tries) }
}

/// How long nothing is tried after so many failures: doubled each time, up to a bound, and by chance.
fn pause(limits: &Limits, failures: u32) -> Duration {
    let doubled = limits.open_pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(limits.open_pause_most).mul_f64(0.5 + chance::fraction() / 2.0)
}
