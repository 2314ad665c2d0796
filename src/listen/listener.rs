//! What one listener wants to hear of, and what of that has changed since it was told last.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::listen::ListenError;
use crate::model::limits::Limits;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;

/// One listener: a stream, or a session with all its streams.
pub(super) struct Listener {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    kinds: Kinds,
    dirty: Kinds,
    resources: Vec<Resource>,
    /// Of all their URIs.
    bytes: usize,
}

/// A resource that it subscribes to, by its public URI.
struct Resource {
    uri: Arc<str>,
    dirty: bool,
}

/// What is to be told.
#[derive(Default)]
pub(super) struct Round {
    pub(super) kinds: Kinds,
    pub(super) uris: Vec<Arc<str>>,
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

    /// This resource is dirty, if it wants it.
    pub(super) fn mark_resource(&self, uri: &str) {
        let mut state = self.state();
        let Some(resource) = state.resources.iter_mut().find(|resource| *resource.uri == *uri) else {
            return;
        };
        let fresh = !std::mem::replace(&mut resource.dirty, true);
        drop(state);
        if fresh {
            self.wake.notify_waiters();
        }
    }

    /// It wants this resource from now on. `false` if it does already.
    pub(super) fn want(&self, uri: &Arc<str>, limits: &Limits) -> Result<bool, ListenError> {
        let mut state = self.state();
        if state.resources.iter().any(|resource| resource.uri == *uri) {
            return Ok(false);
        }
        let bytes = state.bytes + uri.len();
        if state.resources.len() >= limits.subscription_uris || bytes > limits.subscription_bytes {
            return Err(ListenError::TooManyResources);
        }
        state.bytes = bytes;
        state.resources.push(Resource { uri: uri.clone(), dirty: false });
        Ok(true)
    }

    /// It does not want this resource any more. `false` if it did not before.
    pub(super) fn forget(&self, uri: &str) -> bool {
        let mut state = self.state();
        let before = state.resources.len();
        state.resources.retain(|resource| *resource.uri != *uri);
        let gone = state.resources.len() < before;
        if gone {
            state.bytes -= uri.len();
        }
        gone
    }

    /// Every resource that it wants.
    pub(super) fn resources(&self) -> Vec<Arc<str>> {
        self.state().resources.iter().map(|resource| resource.uri.clone()).collect()
    }

    /// Whether it wants any.
    pub(super) fn has_resources(&self) -> bool {
        !self.state().resources.is_empty()
    }

    /// Ends when something becomes dirty after it was enabled.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    pub(super) fn is_dirty(&self) -> bool {
        let state = self.state();
        state.dirty != Kinds::NONE || state.resources.iter().any(|resource| resource.dirty)
    }

    /// Everything that is dirty, which is clean after that.
    pub(super) fn take(&self) -> Round {
        let mut state = self.state();
        let kinds = std::mem::take(&mut state.dirty);
        let dirty = state.resources.iter_mut().filter(|resource| resource.dirty);
        let uris = dirty.map(|resource| {
            resource.dirty = false;
            resource.uri.clone()
        });
        Round { kinds, uris: uris.collect() }
    }

    /// What of a round was not told is dirty again.
    pub(super) fn put_back(&self, round: &Round) {
        self.mark(round.kinds);
        round.uris.iter().for_each(|uri| self.mark_resource(uri));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Round {
    /// The next thing to tell: lists first.
    pub(super) fn next(&self) -> Option<Due> {
        let list = self.kinds.iter().next().map(Due::List);
        list.or_else(|| self.uris.last().cloned().map(Due::Resource))
    }

    /// That was told.
    pub(super) fn done(&mut self, due: &Due) {
        match due {
            Due::List(kind) => self.kinds = self.kinds.without(*kind),
            Due::Resource(_) => {
                self.uris.pop();
            }
        }
    }
}
