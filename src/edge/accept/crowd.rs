//! Who is connected, and who leaves when there is room for nobody else.
//!
//! Holding a connection costs a stranger nothing, so a connection with nothing to do is no reason
//! to keep anybody out: when all slots are taken, the one that has rested longest makes room.
//! One with a request in hand never does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::edge::io::Socket;
use crate::edge::io::Wanted;

/// How long to wait for a slot before looking again at who rests.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Least time between two warnings that all slots are taken.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// The connections of one listener.
pub(super) struct Crowd {
    most: usize,
    slots: Arc<Semaphore>,
    wanted: Arc<Wanted>,
    // May hold some that have left, until the next look.
    members: Vec<Weak<Socket>>,
    // Longest first. Whoever came to rest after these were found has rested for less time.
    resting: VecDeque<(Instant, Weak<Socket>)>,
    warned: Option<Instant>,
}

impl Crowd {
    /// Room for `most` connections.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            slots: Arc::new(Semaphore::new(most)),
            wanted: Arc::default(),
            members: Vec::new(),
            resting: VecDeque::new(),
            warned: None,
        }
    }

    /// What its members look at to learn that a slot is wanted.
    pub fn wanted(&self) -> Arc<Wanted> {
        self.wanted.clone()
    }

    /// Counts a connection that got a slot.
    pub fn add(&mut self, socket: &Arc<Socket>) {
        if self.members.len() > 2 * self.most {
            self.forget_the_left();
        }
        self.members.push(Arc::downgrade(socket));
    }

    /// A slot: a free one, or that of whoever has rested longest; waits while all are busy.
    ///
    /// # Cancel safety
    /// Dropping the future may leave a resting connection closed for nothing.
    pub async fn slot(&mut self) -> OwnedSemaphorePermit {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return slot;
        }
        self.warn();
        loop {
            // Said before looking: who comes to rest behind the look leaves by itself.
            self.wanted.say(true);
            if self.dismiss() {
                self.wanted.say(false);
            }
            if let Ok(slot) = timeout(LOOK_AGAIN, self.slots.clone().acquire_owned()).await {
                self.wanted.say(false);
                return slot.expect("the semaphore is never closed");
            }
        }
    }

    /// Tells whoever has rested longest to leave; false if nobody rests.
    fn dismiss(&mut self) -> bool {
        let now = Instant::now();
        loop {
            while let Some((since, socket)) = self.resting.pop_front() {
                if socket.upgrade().is_some_and(|socket| socket.dismiss(since, now)) {
                    return true;
                }
            }
            self.forget_the_left();
            let rests = |member: &Weak<Socket>| Some((member.upgrade()?.rests(now)?, member.clone()));
            let mut resting: Vec<_> = self.members.iter().filter_map(rests).collect();
            if resting.is_empty() {
                return false;
            }
            resting.sort_unstable_by_key(|(since, _)| *since);
            // A good part of them, so that a flood of connections does not look at all for each.
            resting.truncate(self.most / 16 + 1);
            self.resting = resting.into();
        }
    }

    fn forget_the_left(&mut self) {
        self.members.retain(|member| member.strong_count() > 0);
    }

    fn warn(&mut self) {
        if self.warned.is_none_or(|at| at.elapsed() > WARN_AGAIN) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                connections = self.most,
                "all connections are taken; those at rest are closed for new ones"
            );
        }
    }
}
