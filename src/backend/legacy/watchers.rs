//! Who in a session waits for what changes, and what each has not heard yet.
//!
//! Nothing is queued: what changed and was not taken is kept once, however often it is said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::Notify;

use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::protocol::json::Json;

/// Most parts of resources that are kept for one watcher; of more, it hears what it asked for.
const PARTS: usize = 256;

/// The watchers of one session.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Vec<Arc<Watcher>>>);

/// What one of them wants, and has not taken yet.
pub(super) struct Watcher {
    interest: Interest,
    unheard: Mutex<Unheard>,
    woken: Notify,
}

#[derive(Default)]
struct Unheard {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<Arc<str>>,
    /// Nothing more will come.
    ended: bool,
}

impl Watchers {
    /// One more, from now on.
    pub(super) fn add(&self, interest: Interest) -> Arc<Watcher> {
        let watcher = Watcher { interest, unheard: Mutex::default(), woken: Notify::new() };
        let watcher = Arc::new(watcher);
        self.all().push(watcher.clone());
        watcher
    }

    /// One less.
    pub(super) fn remove(&self, watcher: &Arc<Watcher>) {
        self.all().retain(|one| !Arc::ptr_eq(one, watcher));
    }

    /// Takes a message of the server.
    pub(super) fn hear(&self, message: &Json) {
        self.all().iter().for_each(|watcher| watcher.hear(message));
    }

    /// Nothing more will come for those that there are.
    pub(super) fn end(&self) {
        for watcher in self.all().drain(..) {
            watcher.unheard().ended = true;
            watcher.woken.notify_one();
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// The next thing that changed; `None` after the end.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn next(&self) -> Option<Change> {
        loop {
            let woken = self.woken.notified();
            {
                let mut unheard = self.unheard();
                if let Some(change) = unheard.take() {
                    return Some(change);
                }
                if unheard.ended {
                    return None;
                }
            }
            woken.await;
        }
    }

    fn hear(&self, message: &Json) {
        let Some(change) = self.interest.change(message) else { return };
        self.unheard().put(change, &self.interest);
        self.woken.notify_one();
    }

    fn unheard(&self) -> MutexGuard<'_, Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unheard {
    fn put(&mut self, change: Change, interest: &Interest) {
        match change {
            Change::Tools => self.tools = true,
            Change::Prompts => self.prompts = true,
            Change::Resources => self.resources = true,
            Change::Resource(uri) if self.uris.len() < PARTS => drop(self.uris.insert(uri)),
            Change::Resource(uri) => self.uris.extend(interest.above(&uri).cloned()),
            // There are none in this era.
            Change::Task(_) => {}
        }
    }

    fn take(&mut self) -> Option<Change> {
        for (changed, change) in [
            (&mut self.tools, Change::Tools),
            (&mut self.prompts, Change::Prompts),
            (&mut self.resources, Change::Resources),
        ] {
            if std::mem::take(changed) {
                return Some(change);
            }
        }
        self.uris.pop_first().map(Change::Resource)
    }
}
