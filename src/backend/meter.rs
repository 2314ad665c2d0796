//! How much a server may say that nobody asked for: bytes and messages over time, each a bucket that
//! fills at a constant rate.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::time::Instant;

use crate::model::limits::Limits;

/// What is not said is saved up for so many seconds.
const SAVED_SECONDS: f64 = 30.0;

/// What a piece of a stream costs at least, in bytes: to take it costs more than what is in it.
const PIECE_BYTES: usize = 64;

/// What one server may still say in one session.
pub(super) struct Meter(Mutex<State>);

struct State {
    bytes: Bucket,
    messages: Bucket,
    /// Whether more was said than it may.
    is_spent: bool,
}

struct Bucket {
    /// What it gains in a second.
    rate: f64,
    left: f64,
    at: Instant,
}

impl Meter {
    /// With all of it saved up.
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Mutex::new(State::new(limits, Instant::now())))
    }

    /// Whether a piece of so many bytes may still be taken.
    pub(super) fn piece(&self, bytes: usize) -> bool {
        self.state().piece(bytes, Instant::now())
    }

    /// Whether a message may still be taken.
    pub(super) fn message(&self) -> bool {
        self.state().message(Instant::now())
    }

    /// Nothing may be taken any more.
    pub(super) fn spend(&self) {
        self.state().is_spent = true;
    }

    /// Whether more was said than it may: that stays so.
    pub(super) fn is_spent(&self) -> bool {
        self.state().is_spent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(limits: &Limits, at: Instant) -> Self {
        let bucket = |rate: usize| {
            let rate = rate as f64;
            Bucket { rate, left: rate * SAVED_SECONDS, at }
        };
        let (bytes, messages) = (bucket(limits.listen_bytes), bucket(limits.listen_messages));
        Self { bytes, messages, is_spent: false }
    }

    fn piece(&mut self, bytes: usize, now: Instant) -> bool {
        self.is_spent |= !self.bytes.take(bytes.max(PIECE_BYTES), now);
        !self.is_spent
    }

    fn message(&mut self, now: Instant) -> bool {
        self.is_spent |= !self.messages.take(1, now);
        !self.is_spent
    }
}

impl Bucket {
    fn take(&mut self, amount: usize, now: Instant) -> bool {
        let gained = self.rate * now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + gained).min(self.rate * SAVED_SECONDS) - amount as f64;
        self.left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::State;
    use crate::model::limits::Limits;

    fn fresh(at: Instant) -> State {
        State::new(&Limits { listen_bytes: 100, listen_messages: 10, ..Limits::default() }, at)
    }

    #[test]
    fn what_is_saved_up_may_be_said_at_once_and_then_so_much_a_second() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut by_bytes = fresh(began);
        assert!(by_bytes.piece(3_000, began) && by_bytes.piece(200, after(2)));
        assert!(!by_bytes.piece(1, after(2)));
        let mut by_messages = fresh(began);
        assert!((0..300).all(|_| by_messages.message(began)));
        assert!((0..10).all(|_| by_messages.message(after(1))));
        assert!(!by_messages.message(after(1)));
        // That stays so, whatever is saved up since.
        assert!(!by_messages.message(after(1_000)) && !by_messages.piece(1, after(1_000)));
    }

    #[test]
    fn silence_saves_no_more_than_that_and_small_pieces_are_not_free() {
        let began = Instant::now();
        let (mut state, later) = (fresh(began), began + Duration::from_secs(1_000));
        assert!((0..3_000 / 64).all(|_| state.piece(1, later)));
        assert!(!state.piece(1, later));
    }
}
