//! One backend of a tenant, as the catalog asks it: when, and what of its answer is kept.

use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::Account;
use crate::backend::listing::Listing;
use crate::catalog::entry::Home;
use crate::catalog::notices::Notices;
use crate::catalog::part::Part;
use crate::model::chance::fraction;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::Catalog;
use crate::protocol::methods::List;

/// Shortest time that a list is kept, whatever its `ttlMs`.
const LEAST_TTL: Duration = Duration::from_secs(30);

/// Longest time.
pub(super) const MOST_TTL: Duration = Duration::from_secs(60 * 60);

/// First and longest pause after a failure.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Least time between two refreshes that were asked for.
const NUDGE_GAP: Duration = Duration::from_secs(5);

/// A subscription that was open for so long was a good one.
pub(super) const STEADY: Duration = Duration::from_secs(30);

/// A backend, its last lists and its place in the schedule.
pub(super) struct Source {
    pub(super) home: Arc<Home>,
    /// The last lists, raw.
    listing: ArcSwapOption<Listing>,
    /// The last lists, admitted.
    part: ArcSwapOption<Part>,
    nudged: Notify,
    attempts: watch::Sender<Attempts>,
    notices: Notices,
    away: Mutex<Option<Away>>,
    /// How often something was said that makes what callers have of it out of date.
    outdated: AtomicU64,
}

/// Of a backend that does not give its lists any more.
#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    /// Whether what it has is not in the catalog any more.
    has_left: bool,
}

/// How often the backend was asked, successfully or not, and the last refresh that was asked for.
#[derive(Clone, Copy, Default)]
struct Attempts {
    count: u64,
    nudge: Option<Nudge>,
}

/// A refresh that was asked for.
#[derive(Clone, Copy)]
struct Nudge {
    at: Instant,
    /// The attempt that serves it.
    attempt: u64,
}

impl Attempts {
    /// The attempt that was asked for and is still to come.
    fn pending(&self) -> Option<u64> {
        self.nudge.map(|nudge| nudge.attempt).filter(|attempt| *attempt > self.count)
    }
}

impl Source {
    /// A source that was not asked yet. It takes over the lists of an `earlier` one that asked the
    /// same place in the same way.
    pub(super) fn new(home: Home, earlier: Option<&Source>) -> Self {
        let is_shared = home.config.catalog == Catalog::Shared;
        let listing = earlier.filter(|earlier| is_shared && same_place(&earlier.home.config, &home.config));
        Self {
            home: Arc::new(home),
            listing: ArcSwapOption::new(listing.and_then(|earlier| earlier.listing.load_full())),
            part: ArcSwapOption::empty(),
            nudged: Notify::new(),
            attempts: watch::Sender::new(Attempts::default()),
            notices: Notices::new(),
            away: Mutex::new(listing.and_then(|earlier| *earlier.away())),
            outdated: AtomicU64::new(0),
        }
    }

    /// What it says has changed.
    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// It did not give its lists: how much of `grace` is left since it first did not. `None` if what it has
    /// has left the catalog.
    pub(super) fn is_away(&self, grace: Duration) -> Option<Duration> {
        let mut away = self.away();
        let away = away.get_or_insert(Away { since: Instant::now(), has_left: false });
        (!away.has_left).then(|| grace.saturating_sub(away.since.elapsed()))
    }

    /// What it has is not in the catalog any more.
    pub(super) fn has_left(&self) {
        if let Some(away) = &mut *self.away() {
            away.has_left = true;
        }
    }

    /// It gave its lists.
    pub(super) fn is_back(&self) {
        *self.away() = None;
    }

    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it puts into the catalog.
    pub(super) fn part(&self) -> Option<Arc<Part>> {
        self.part.load_full()
    }

    /// The lists that it has before it was asked.
    pub(super) fn carried(&self) -> Option<Arc<Listing>> {
        self.listing.load_full()
    }

    /// How often what callers have of it became out of date.
    pub(super) fn edition(&self) -> u64 {
        self.outdated.load(Ordering::SeqCst)
    }

    /// What callers have of it is out of date.
    pub(super) fn outdate(&self) {
        self.outdated.fetch_add(1, Ordering::SeqCst);
    }

    /// Asks the backend on this account, which keeps to `limits.list_time`. A list that it does not give is
    /// what it was.
    ///
    /// # Cancel safety
    /// Dropping the future closes its connections and changes nothing.
    pub(super) async fn list(&self, account: &Account, limits: &Limits) -> Result<Answer, String> {
        let mut listing = self.home.live.list(account).await.map_err(|error| chain(&error))?;
        let wait = until_next(listing.ttl_ms, limits);
        let earlier = self.listing.load_full();
        // It has what it had as long as it does not say otherwise.
        listing.tasks = listing.tasks.or(earlier.as_ref().and_then(|earlier| earlier.tasks));
        let mut failed = Vec::new();
        for (list, error) in std::mem::take(&mut listing.failed) {
            failed.push((list, chain(&error)));
            if let Some(earlier) = &earlier {
                *listing.of_mut(list) = earlier.of(list).clone();
            }
        }
        let known = self.part.load().is_some() && earlier.is_some_and(|earlier| earlier.is_same(&listing));
        Ok(Answer { wait, failed, listing: (!known).then(|| Arc::new(listing)) })
    }

    /// Judges lists and keeps them. Compiles schemas: belongs on a blocking thread.
    pub(super) fn take(&self, listing: Arc<Listing>, limits: &Limits) {
        self.put(listing.clone(), Part::of(&self.place(), &listing, limits));
    }

    /// Keeps lists that were judged.
    pub(super) fn put(&self, listing: Arc<Listing>, part: Part) {
        self.part.store(Some(Arc::new(part)));
        self.listing.store(Some(listing));
    }

    /// Where it is, as its lists know it: the same home as long as nothing about it is another, since who
    /// listens to it is not moved.
    pub(super) fn place(&self) -> Arc<Home> {
        self.part().map_or_else(|| self.home.clone(), |part| part.home.clone())
    }

    /// Notes that the backend was asked, and wakes who waits for it.
    pub(super) fn attempted(&self) {
        self.attempts.send_modify(|attempts| attempts.count += 1);
    }

    /// Whether the backend was asked at all.
    pub(super) fn was_attempted(&self) -> bool {
        self.attempts() > 0
    }

    /// Waits until the backend was asked for the first time.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(super) async fn first_attempt(&self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.attempts.subscribe().wait_for(|attempts| attempts.count > 0).await;
    }

    /// Asks for an early refresh, unless one was asked for a moment ago. Says which attempt to wait
    /// for. One of the schedule counts for nothing: the backend may have changed right after it.
    pub(super) fn nudge(&self) -> Option<u64> {
        let mut awaited = None;
        self.attempts.send_if_modified(|attempts| {
            awaited = attempts.pending();
            let recent = attempts.nudge.is_some_and(|nudge| nudge.at.elapsed() < NUDGE_GAP);
            if awaited.is_some() || recent {
                return false;
            }
            awaited = Some(attempts.count + 1);
            attempts.nudge = Some(Nudge { at: Instant::now(), attempt: attempts.count + 1 });
            self.nudged.notify_one();
            // Nobody waits for a nudge, only for attempts.
            false
        });
        awaited
    }

    /// How often the backend was asked.
    pub(super) fn attempts(&self) -> u64 {
        self.attempts.borrow().count
    }

    /// Waits until the backend was asked `count` times.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(super) async fn attempt(&self, count: u64) {
        let _ = self.attempts.subscribe().wait_for(|attempts| attempts.count >= count).await;
    }

    /// Waits until it is time to ask again.
    ///
    /// # Cancel safety
    /// Dropping the future loses at most a nudge.
    pub(super) async fn rest(&self, wait: Duration) {
        let mut until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = self.home.live.suspected() => {
                    let last = self.attempts.borrow().nudge.map(|nudge| nudge.at + LEAST_TTL);
                    match last.filter(|next| *next > Instant::now()) {
                        // Some servers lose sessions all the time.
                        Some(next) => until = until.min(next),
                        None if self.nudge().is_some() => return,
                        None => {}
                    }
                }
                () = tokio::time::sleep_until(until) => return,
                () = self.notices.due() => return,
                () = self.nudged.notified() => {
                    // A nudge that came while the backend was being asked is served already.
                    if self.attempts.borrow().pending().is_some() {
                        return;
                    }
                }
            }
        }
    }
}

/// What a backend answered.
pub(super) struct Answer {
    /// Its lists, if they are others than the last ones.
    pub(super) listing: Option<Arc<Listing>>,
    /// The lists that it has but did not give, and why.
    pub(super) failed: Vec<(List, String)>,
    /// How long it is good for.
    pub(super) wait: Duration,
}

/// How long to wait after so many failures in a row.
pub(super) fn back_off(failures: u32) -> Duration {
    let (first, longest) = BACK_OFF;
    let wait = first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1))).min(longest);
    wait.mul_f64(0.5 + 0.5 * fraction())
}

/// How long to wait before a subscription is opened anew, after so many that were not good.
pub(super) fn reopening(failures: u32, limits: &Limits) -> Duration {
    let doubled = limits.open_pause.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)));
    doubled.min(limits.open_pause_most).mul_f64(0.5 + 0.5 * fraction())
}

/// How long a list is good for.
///
/// spec: server/utilities/caching, Freshness Calculation (who polls MUST apply jitter)
pub(super) fn until_next(ttl_ms: Option<u64>, limits: &Limits) -> Duration {
    let wait = match ttl_ms {
        None | Some(0) => limits.refresh_time.mul_f64(0.9 + 0.2 * fraction()),
        Some(ttl) => Duration::from_millis(ttl).clamp(LEAST_TTL, MOST_TTL).mul_f64(1.0 + 0.1 * fraction()),
    };
    wait.min(MOST_TTL)
}

/// Whether both ask the same place with the same credential.
fn same_place(one: &tenant::Backend, other: &tenant::Backend) -> bool {
    let credential =
        |of: &tenant::Backend| of.credential.as_ref().map(|c| (c.place.clone(), c.secret.clone()));
    one.name == other.name && one.kind == other.kind && credential(one) == credential(other)
}

/// An error with what caused it, for the log.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
