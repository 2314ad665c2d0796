//! What one listener wants to hear of, and what of that has changed since it was told last.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::listen::ListenError;
use crate::listen::task;
use crate::model::limits::Limits;
use crate::model::tally::Counted;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;

/// What `limits.notification_rate` counts in.
const SECOND: Duration = Duration::from_secs(1);

/// One listener: a stream, or a session with all its streams.
pub(super) struct Listener {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    kinds: Kinds,
    dirty: Kinds,
    /// The resources that it subscribes to, by their public URIs.
    resources: HashMap<Arc<str>, Wish>,
    /// Those that are dirty, in the order that they are told in.
    queue: VecDeque<Arc<str>>,
    /// Of all their URIs.
    bytes: usize,
    /// The end of the second that is counted, and how many resources were taken in it.
    second: Option<Instant>,
    taken: usize,
}

/// A resource that it subscribes to.
struct Wish {
    is_dirty: bool,
    _counted: Counted<Arc<str>>,
}

/// What is to be told.
#[derive(Default)]
pub(super) struct Round {
    pub(super) kinds: Kinds,
    /// Tasks, which are asked for when they are told, after all else.
    pub(super) uris: VecDeque<Arc<str>>,
}

/// One thing of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    List(Kind),
    Resource(Arc<str>),
}

impl Listener {
    pub(super) fn new(kinds: Kinds) -> Self {
        Self { state: Mutex::new(State { kinds, ..State::default() }), wake: Notify::new() }
    }

    /// Those of `kinds` that it wants are dirty.
    pub(super) fn mark(&self, kinds: Kinds) {
        let mut state = self.state();
        let before = state.dirty;
        state.dirty = before.or(kinds.and(state.kinds));
        let fresh = state.dirty != before;
        drop(state);
        if fresh {
            self.wake.notify_waiters();
        }
    }

    /// This resource is dirty, if it wants it, and told after those that are already.
    pub(super) fn mark_resource(&self, uri: &Arc<str>) {
        let mut state = self.state();
        let fresh = state.soil(uri);
        if fresh {
            state.queue.push_back(uri.clone());
        }
        drop(state);
        if fresh {
            self.wake.notify_waiters();
        }
    }

    /// It wants this resource from now on, which its caller is counted for. `false` if it does already.
    pub(super) fn want(
        &self,
        uri: &Arc<str>,
        limits: &Limits,
        count: impl FnOnce() -> Option<Counted<Arc<str>>>,
    ) -> Result<bool, ListenError> {
        let mut state = self.state();
        if state.resources.contains_key(uri) {
            return Ok(false);
        }
        let bytes = state.bytes + uri.len();
        if state.resources.len() >= limits.subscription_uris || bytes > limits.subscription_bytes {
            return Err(ListenError::TooManyResources);
        }
        let counted = count().ok_or(ListenError::TooManyResources)?;
        state.bytes = bytes;
        state.resources.insert(uri.clone(), Wish { is_dirty: false, _counted: counted });
        Ok(true)
    }

    /// It does not want this resource any more. `false` if it did not before.
    pub(super) fn forget(&self, uri: &str) -> bool {
        let mut state = self.state();
        let Some(wish) = state.resources.remove(uri) else { return false };
        state.bytes -= uri.len();
        if wish.is_dirty {
            state.queue.retain(|dirty| **dirty != *uri);
        }
        true
    }

    /// Every resource that it wants.
    pub(super) fn resources(&self) -> Vec<Arc<str>> {
        self.state().resources.keys().cloned().collect()
    }

    /// Whether it wants any.
    pub(super) fn has_resources(&self) -> bool {
        !self.state().resources.is_empty()
    }

    /// Ends when something becomes dirty after it was enabled.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// When something may be told, where `rate` resources may be in a second. `None` if nothing is dirty.
    pub(super) fn due(&self, rate: usize) -> Option<Instant> {
        let (state, now) = (self.state(), Instant::now());
        if state.dirty != Kinds::NONE {
            return Some(now);
        }
        let full = state.second.filter(|end| *end > now && state.taken >= rate);
        (!state.queue.is_empty()).then(|| full.unwrap_or(now))
    }

    /// What is dirty, which is clean after that; of resources so many as are left of `rate` in this second.
    pub(super) fn take(&self, rate: usize) -> Round {
        let (mut state, now) = (self.state(), Instant::now());
        if state.second.is_none_or(|end| end <= now) {
            (state.second, state.taken) = (Some(now + SECOND), 0);
        }
        let count = rate.saturating_sub(state.taken).min(state.queue.len());
        state.taken += count;
        let taken: Vec<_> = state.queue.drain(..count).collect();
        for uri in &taken {
            if let Some(wish) = state.resources.get_mut(uri) {
                wish.is_dirty = false;
            }
        }
        let kinds = std::mem::take(&mut state.dirty);
        let (tasks, uris): (Vec<_>, Vec<_>) = taken.into_iter().partition(|uri| task::read(uri).is_some());
        Round { kinds, uris: uris.into_iter().chain(tasks).collect() }
    }

    /// What of a round was not told is dirty again, and told before all else.
    pub(super) fn put_back(&self, round: &Round) {
        self.mark(round.kinds);
        let mut state = self.state();
        state.taken = state.taken.saturating_sub(round.uris.len());
        for uri in round.uris.iter().rev() {
            if state.soil(uri) {
                state.queue.push_front(uri.clone());
            }
        }
        drop(state);
        if !round.uris.is_empty() {
            self.wake.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `true` if it wants this resource, and it was clean.
    fn soil(&mut self, uri: &str) -> bool {
        self.resources.get_mut(uri).is_some_and(|wish| !std::mem::replace(&mut wish.is_dirty, true))
    }
}

impl Due {
    pub(super) fn uri(&self) -> Option<&Arc<str>> {
        match self {
            Self::List(_) => None,
            Self::Resource(uri) => Some(uri),
        }
    }

    pub(super) fn is_task(&self) -> bool {
        self.uri().is_some_and(|uri| task::read(uri).is_some())
    }

    /// What it is called in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::List(kind) => kind.label(),
            Self::Resource(_) if self.is_task() => "task",
            Self::Resource(_) => "updated",
        }
    }
}

impl Round {
    /// The next thing to tell: lists first.
    pub(super) fn next(&self) -> Option<Due> {
        let list = self.kinds.iter().next().map(Due::List);
        list.or_else(|| self.uris.front().cloned().map(Due::Resource))
    }

    /// That was told.
    pub(super) fn done(&mut self, due: &Due) {
        match due {
            Due::List(kind) => self.kinds = self.kinds.without(*kind),
            Due::Resource(_) => {
                self.uris.pop_front();
            }
        }
    }
}
