//! A read-through cache: results that their backend allows to be kept, for as long as it says.
//!
//! Whoever asks it has been admitted already: policy decides each request before, and nothing here
//! does. A result is kept for one tenant, one backend, one URI, everything else that the backend was told,
//! and, unless it is public, one principal. [`Cache::look`] gives what is kept, or leave to ask the
//! backend; of those who ask for the same at the same time, one has it and the others wait for what it
//! brings. Purging also takes the leave to keep from whoever is asking at that moment.

mod rooms;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::rooms::Key;
use crate::cache::rooms::Rooms;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::caching;
use crate::protocol::json::Json;
use crate::telemetry::metrics::Metrics;

/// Longest time that a request waits for what another one brings. Then it asks itself.
const WAIT: Duration = Duration::from_secs(5);

/// Most backends of which it is remembered whether their results can be shared.
const HABITS: u64 = 10_000;

/// The results that are kept in this process.
pub struct Cache {
    /// What may be kept, in bytes; of one tenant; and for how long.
    most: usize,
    most_each: usize,
    longest: Duration,
    wait: Duration,
    rooms: Mutex<Rooms>,
    /// What the last result of a backend was like: whether it is worth waiting for another request.
    habits: moka::sync::Cache<(TenantName, BackendName), Habit>,
    metrics: Arc<Metrics>,
}

/// How far the results of a backend go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// It does not allow them to be kept.
    Never,
    /// To their principal.
    Private,
    /// To everybody in the tenant.
    Public,
}

/// What is asked for, and by whom.
#[derive(Clone)]
pub struct Question {
    /// The tenant.
    pub tenant: TenantName,
    /// The backend.
    pub backend: BackendName,
    /// The backend's own URI.
    pub uri: Arc<str>,
    /// A digest of everything else that may make a difference to the answer.
    pub variant: [u8; 32],
    /// A digest of who asks, with what rights.
    pub principal: [u8; 32],
    /// Whether nothing but the answer is asked for: who wants progress has to ask for itself.
    pub plain: bool,
    /// Whether the answer is its principal's alone, whatever its backend says of it.
    pub private: bool,
}

/// A result that is kept.
#[derive(Debug)]
pub struct Kept {
    /// It, with what the backend says of keeping it.
    pub result: Json,
    /// Whether everybody in the tenant may have it.
    pub public: bool,
    /// Until when the backend says that it is good.
    good: Instant,
}

impl Kept {
    /// What is left of its time, in milliseconds.
    pub fn left_ms(&self) -> u64 {
        let left = self.good.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What became of a question.
pub enum Found {
    /// The answer.
    Kept(Arc<Kept>),
    /// Leave to ask the backend, and to keep what it says.
    Ask(Lead),
}

/// Somebody who asks a backend. Others may wait for it: whoever drops it makes another of them ask.
pub struct Lead {
    cache: Arc<Cache>,
    question: Question,
    /// `None` where nothing is kept of the answer.
    flight: Option<Flight>,
}

struct Flight {
    number: u64,
    told: watch::Sender<Told>,
}

/// What those who wait are told.
#[derive(Clone)]
enum Told {
    /// Nothing yet.
    Nothing,
    /// The answer, which is good for all, or for this principal.
    Kept(Arc<Kept>, [u8; 32]),
    /// There is an answer that is nobody else's.
    NotYours,
}

/// What [`Cache::step`] comes to.
enum Step {
    Kept(Arc<Kept>),
    Wait(watch::Receiver<Told>),
    Lead(Lead),
}

impl Cache {
    /// An empty cache.
    pub fn new(limits: &Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            most: limits.cache_bytes,
            most_each: limits.tenant_cache_bytes.min(limits.cache_bytes),
            longest: limits.cache_time,
            wait: WAIT,
            rooms: Mutex::default(),
            habits: moka::sync::Cache::new(HABITS),
            metrics,
        })
    }

    /// What is kept of the answer, or leave to ask for it. Waits for somebody who asks the same, as far
    /// as its answer can be shared, and for at most five seconds.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn look(self: &Arc<Self>, question: Question) -> Found {
        let until = Instant::now() + self.wait;
        let mut alone = !question.plain || self.most_each == 0;
        loop {
            let mut waiting = match self.step(&question, alone) {
                Step::Kept(kept) => {
                    self.metrics.cache.looked(true);
                    return Found::Kept(kept);
                }
                Step::Lead(lead) => {
                    self.metrics.cache.looked(false);
                    return Found::Ask(lead);
                }
                Step::Wait(waiting) => waiting,
            };
            let told =
                tokio::time::timeout_at(until, waiting.wait_for(|told| !matches!(told, Told::Nothing)));
            let told = told.await.map(|told| told.map(|told| told.clone()));
            match told {
                Ok(Ok(Told::Kept(kept, principal))) if kept.public || principal == question.principal => {
                    self.metrics.cache.looked(true);
                    return Found::Kept(kept);
                }
                // It has left without an answer: one of those who waited is the next.
                Ok(Err(_)) => {}
                Ok(Ok(Told::Kept(..) | Told::NotYours | Told::Nothing)) | Err(_) => alone = true,
            }
        }
    }

    /// Forgets what is kept of a backend, of one of its URIs and all below it, or of all. What is being asked
    /// now is not kept.
    pub fn purge(&self, tenant: &TenantName, backend: &BackendName, uri: Option<&str>) {
        let mut rooms = self.rooms();
        rooms.purge(tenant, backend, uri);
        self.metrics.cache.weigh(rooms.bytes());
    }

    fn step(self: &Arc<Self>, question: &Question, alone: bool) -> Step {
        let habit = self.habits.get(&(question.tenant.clone(), question.backend.clone()));
        let mut rooms = self.rooms();
        let now = Instant::now();
        for key in [question.key(true), question.key(false)] {
            if let Some(kept) = rooms.get(&question.tenant, &key, now) {
                return Step::Kept(kept);
            }
        }
        let lead = |flight| Lead { cache: self.clone(), question: question.clone(), flight };
        if !question.plain || self.most_each == 0 {
            return Step::Lead(lead(None));
        }
        // Where nothing is known yet, it is worth waiting to learn it.
        let shared = match habit {
            _ if alone => None,
            None | Some(Habit::Public) if question.private => Some(question.key(false)),
            None | Some(Habit::Public) => Some(question.key(true)),
            Some(Habit::Private) => Some(question.key(false)),
            Some(Habit::Never) => None,
        };
        if let Some(waiting) = shared.as_ref().and_then(|key| rooms.waiting(&question.tenant, key)) {
            return Step::Wait(waiting);
        }
        let (told, waiting) = watch::channel(Told::Nothing);
        let number = rooms.begin(&question.tenant, question.key(false), shared.map(|key| (key, waiting)));
        Step::Lead(lead(Some(Flight { number, told })))
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// What an answer is kept under, if everybody may have it or if only its principal may.
    fn key(&self, public: bool) -> Key {
        Key {
            backend: self.backend.clone(),
            uri: self.uri.clone(),
            variant: self.variant,
            principal: (!public).then_some(self.principal),
        }
    }
}

impl Lead {
    /// The backend gave this result; `None` is an answer of any other kind, or none at all. It is kept if
    /// the backend allows it, and told to those who wait.
    ///
    /// spec: server/utilities/caching, Cacheable Model
    pub fn end(mut self, result: Option<&Json>) {
        let Some(Flight { number, told }) = self.flight.take() else { return };
        let (cache, question) = (&self.cache, &self.question);
        let ttl = Duration::from_millis(result.and_then(caching::ttl_ms).unwrap_or(0));
        let kept = result.filter(|_| !ttl.is_zero()).map(|result| {
            let (public, now) = (caching::is_public(result) && !question.private, Instant::now());
            Arc::new(Kept { result: result.alone(), public, good: now + ttl })
        });
        // An error says nothing about what a backend allows.
        if result.is_some() {
            let habit = kept.as_ref().map_or(Habit::Never, |kept| match kept.public {
                true => Habit::Public,
                false => Habit::Private,
            });
            cache.habits.insert((question.tenant.clone(), question.backend.clone()), habit);
        }
        let mut rooms = cache.rooms();
        let may_keep = rooms.end(&question.tenant, number);
        let kept = kept.filter(|_| may_keep);
        if let Some(kept) = &kept {
            let until = Instant::now() + ttl.min(cache.longest);
            let evicted = rooms.insert(
                &question.tenant,
                question.key(kept.public),
                kept,
                until,
                (cache.most, cache.most_each),
            );
            cache.metrics.cache.evicted(evicted);
            cache.metrics.cache.weigh(rooms.bytes());
        }
        drop(rooms);
        let now = kept.map_or(Told::NotYours, |kept| Told::Kept(kept, question.principal));
        // Nobody may be waiting.
        let _ = told.send(now);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.cache.rooms().end(&self.question.tenant, flight.number);
        }
    }
}
