//! Issuers' keys, kept fresh beside the road: one task per issuer does all its fetching, so that
//! requests only ever wait for a fetch in flight and a storm of them starts none of its own.
//!
//! A task fetches when its issuer is first used, on a schedule while it is in use, and once per
//! cool-down for a key id that nobody knows. Keys that were had stay until a set of keys takes
//! their place, be it empty: so an issuer withdraws keys, and with them what they verified.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::discovery;
use crate::auth::discovery::DiscoveryError;
use crate::auth::error::AuthError;
use crate::auth::jwks::KeySet;
use crate::egress::Egress;
use crate::model::endpoint::Issuer;
use crate::model::limits::Limits;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome;

/// How long a forgotten issuer's keys are not fetched for a request that was in flight; longer than
/// any request waits for keys.
const FORGOTTEN_TIME: Duration = Duration::from_secs(60);

/// How long a first failure keeps a task from trying again; doubled up to the cool-down.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The keys of every issuer in use. Owners never share them: the owner is part of the key.
pub(super) struct KeyStore {
    egress: Egress,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    book: Mutex<Book>,
    pub(super) tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Book {
    held: HashMap<Arc<Issuer>, Held>,
    /// Issuers that are not in use any more, and since when.
    forgotten: HashMap<Arc<Issuer>, Instant>,
}

struct Held {
    desk: Arc<Desk>,
    stop: CancellationToken,
}

/// Where requests meet the task of one issuer.
struct Desk {
    state: watch::Sender<State>,
    wake: Notify,
    used: AtomicBool,
}

#[derive(Clone)]
struct State {
    keys: Option<Arc<KeySet>>,
    /// Whether the keys were left unrefreshed while out of use.
    stale: bool,
    failure: Option<Arc<DiscoveryError>>,
    phase: Phase,
    /// Fetches that ended.
    rounds: u64,
    /// When an unknown key id may cause a fetch again.
    searchable: Instant,
}

#[derive(Clone, Copy)]
enum Phase {
    Fetching,
    /// Until the next fetch.
    Resting(Instant),
    /// Until the next use.
    Asleep,
    Ended,
}

impl KeyStore {
    pub fn new(egress: Egress, limits: &Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            egress,
            limits: Arc::new(limits.clone()),
            metrics,
            book: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// The keys of `issuer` now. Waits for the first fetch, and for the first after a time out of
    /// use; while an issuer's keys cannot be had, nobody waits for each further attempt.
    ///
    /// # Cancel safety
    /// Dropping the future cancels no fetch: others may wait for it.
    pub async fn current(&self, issuer: &Arc<Issuer>) -> Result<Arc<KeySet>, AuthError> {
        let desk = self.desk(issuer);
        desk.used.store(true, Ordering::Relaxed);
        let mut states = desk.state.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            if let Some(keys) = state.keys.filter(|_| !state.stale) {
                return Ok(keys);
            }
            match state.phase {
                Phase::Asleep => desk.wake.notify_one(),
                Phase::Fetching if state.failure.is_some() && !state.stale => {
                    return Err(AuthError::KeysUnavailable {
                        retry_after: FIRST_PAUSE,
                        cause: state.failure,
                    });
                }
                Phase::Fetching => {}
                Phase::Resting(until) => {
                    let retry_after = until.saturating_duration_since(Instant::now());
                    return Err(AuthError::KeysUnavailable { retry_after, cause: state.failure });
                }
                Phase::Ended => return Err(ended()),
            }
            states.changed().await.map_err(|_| ended())?;
        }
    }

    /// Newer keys than `seen`, which lack a key id: waits for a fetch in flight, or causes one if
    /// the cool-down is over; `None` if there is nothing newer.
    pub async fn newer(&self, issuer: &Arc<Issuer>, seen: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let desk = self.desk(issuer);
        let mut states = desk.state.subscribe();
        let state = states.borrow_and_update().clone();
        let other = |state: &State| state.keys.clone().filter(|keys| !Arc::ptr_eq(keys, seen));
        if let Some(keys) = other(&state) {
            return Some(keys);
        }
        let fetching = matches!(state.phase, Phase::Fetching);
        if !fetching && Instant::now() < state.searchable {
            return None;
        }
        if !fetching {
            desk.wake.notify_one();
        }
        let over = |s: &State| s.rounds > state.rounds || matches!(s.phase, Phase::Ended);
        let state = states.wait_for(over).await.ok()?;
        other(&state)
    }

    /// Drops the keys, and ends the tasks, of issuers that are not in `live`; requests in flight
    /// that still trust one do not bring it back.
    pub fn forget_unused(&self, live: &HashSet<Arc<Issuer>>) {
        let now = Instant::now();
        let Book { held, forgotten } = &mut *self.lock();
        forgotten.retain(|issuer, since| !live.contains(issuer) && *since + FORGOTTEN_TIME > now);
        for (issuer, held) in held.extract_if(|issuer, _| !live.contains(issuer)) {
            held.stop.cancel();
            forgotten.insert(issuer, now);
        }
    }

    /// Ends every task and waits for it.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn desk(&self, issuer: &Arc<Issuer>) -> Arc<Desk> {
        let mut book = self.lock();
        let ended = |held: &Held| matches!(held.desk.state.borrow().phase, Phase::Ended);
        if let Some(held) = book.held.get(issuer).filter(|held| self.stop.is_cancelled() || !ended(held)) {
            return held.desk.clone();
        }
        if book.forgotten.get(issuer).is_some_and(|since| since.elapsed() < FORGOTTEN_TIME) {
            return Arc::new(Desk::new(Phase::Ended));
        }
        let desk = Arc::new(Desk::new(Phase::Fetching));
        let stop = self.stop.child_token();
        book.held.insert(issuer.clone(), Held { desk: desk.clone(), stop: stop.clone() });
        let keeper = Keeper {
            desk: desk.clone(),
            egress: self.egress.clone(),
            issuer: issuer.clone(),
            limits: self.limits.clone(),
            metrics: self.metrics.clone(),
        };
        self.tasks.spawn(async move { stop.run_until_cancelled(keeper.keep()).await });
        desk
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> AuthError {
    AuthError::KeysUnavailable { retry_after: FIRST_PAUSE, cause: None }
}

impl Desk {
    fn new(phase: Phase) -> Self {
        let state =
            State { keys: None, stale: false, failure: None, phase, rounds: 0, searchable: Instant::now() };
        Self { state: watch::Sender::new(state), wake: Notify::new(), used: AtomicBool::new(true) }
    }
}

/// The task of one issuer.
struct Keeper {
    desk: Arc<Desk>,
    egress: Egress,
    issuer: Arc<Issuer>,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
}

impl Keeper {
    async fn keep(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let fetched = discovery::keys(&self.egress, &self.issuer, &self.limits).await;
            self.metrics.auth.key_fetch(match &fetched {
                Ok(_) => Outcome::Ok,
                Err(error) if error.is_late() => Outcome::TimedOut,
                Err(_) => Outcome::Failed,
            });
            let wait = match &fetched {
                Ok(_) => {
                    pause = FIRST_PAUSE;
                    jittered(self.limits.keys_refresh)
                }
                Err(error) => {
                    let (issuer, owner) = (&self.issuer.url, &self.issuer.owner);
                    tracing::warn!(%issuer, ?owner, %error, "an issuer's keys cannot be had");
                    let wait = pause.min(self.limits.keys_cooldown);
                    pause = (pause * 2).min(self.limits.keys_cooldown);
                    wait
                }
            };
            let until = Instant::now() + wait;
            self.desk.state.send_modify(|state| {
                match fetched {
                    Ok(mut keys) => {
                        if let Some(old) = &state.keys {
                            keys.follow(old);
                        }
                        (state.keys, state.failure) = (Some(Arc::new(keys)), None);
                    }
                    Err(error) => state.failure = Some(Arc::new(error)),
                }
                // Also after a failure: the keys that were had stay until newer ones are.
                state.stale = false;
                state.rounds += 1;
                state.phase = Phase::Resting(until);
            });
            self.rest(until).await;
            self.desk.state.send_modify(|state| state.phase = Phase::Fetching);
        }
    }

    /// Rests until there is a reason to fetch: the time, a key id that nobody knows, or, if
    /// nobody used the keys meanwhile, the next use.
    async fn rest(&self, until: Instant) {
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                () = self.desk.wake.notified() => {
                    let now = Instant::now();
                    // A wake-up may be left over from before the last fetch.
                    if now >= self.desk.state.borrow().searchable {
                        let searchable = now + self.limits.keys_cooldown;
                        self.desk.state.send_modify(|state| state.searchable = searchable);
                        return;
                    }
                }
            }
        }
        if !self.desk.used.swap(false, Ordering::Relaxed) {
            self.desk.state.send_modify(|state| (state.phase, state.stale) = (Phase::Asleep, true));
            self.desk.wake.notified().await;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.state.send_modify(|state| state.phase = Phase::Ended);
    }
}

/// About `time`, within a tenth, so that replicas and issuers do not fetch in step.
fn jittered(time: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness there is no jitter, which harms nobody.
    aws_lc_rs::rand::fill(&mut byte).ok();
    time.mul_f64(0.9 + f64::from(byte[0]) / 255.0 * 0.2)
}
