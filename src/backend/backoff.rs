//! Whether it is worth trying to open a server, and who tries first.
//!
//! An opening is what has to succeed before anything can be asked: telling the server's era, beginning a
//! session. A server that is known to be well may be opened by several at once. One that may not be well
//! is opened by one, and the others wait for what becomes of it; after a failure nobody tries for a while,
//! so that a dead server sees one opening a step, however many calls there are.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use crate::backend::BackendError;
use crate::model::chance::fraction;
use crate::model::limits::Limits;

/// How many openings of a server that is well go on at a time: after its restart everybody needs one.
const AT_ONCE: usize = 16;

/// The openings of one server.
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    state: Mutex<State>,
    /// Of those who try while the server is well.
    turns: Semaphore,
    /// Of the one who tries while nobody knows.
    first_turn: Semaphore,
}

#[derive(Default)]
struct State {
    /// Whether the last that was heard of the server was good.
    well: bool,
    /// Failures in a row.
    failures: u32,
    /// Counts the steps: whoever began in an earlier one says nothing about this one.
    step: u64,
    /// Until when nobody tries, and what they are told.
    closed: Option<(Instant, BackendError)>,
}

/// Leave to try an opening. Dropped without a word, it says nothing about the server.
#[must_use]
pub(super) struct Opening<'a> {
    backoff: &'a Backoff,
    step: u64,
    _turn: SemaphorePermit<'a>,
}

impl Backoff {
    /// Of a server that nothing is known of.
    pub(super) fn new(limits: &Limits) -> Self {
        let (first, most) = (limits.open_pause, limits.open_pause_most);
        let (turns, first_turn) = (Semaphore::new(AT_ONCE), Semaphore::new(1));
        Self { first, most, state: Mutex::default(), turns, first_turn }
    }

    /// Waits for leave to try; soon after a failure there is none, but the failure's error.
    ///
    /// # Cancel safety
    /// Dropping the future gives its place in the queue away.
    pub(super) async fn enter(&self) -> Result<Opening<'_>, BackendError> {
        loop {
            let well = self.state().is_well()?;
            let turns = if well { &self.turns } else { &self.first_turn };
            let turn = turns.acquire().await.expect("the semaphore is never closed");
            let mut state = self.state();
            // Whoever was before may have settled it.
            if state.is_well()? == well {
                state.step += u64::from(!well);
                return Ok(Opening { backoff: self, step: state.step, _turn: turn });
            }
        }
    }

    /// Something went wrong that an opening might, too: the next ones go one by one.
    pub(super) fn doubt(&self) {
        self.state().well = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the server is well; an error while nobody may try.
    fn is_well(&self) -> Result<bool, BackendError> {
        match &self.closed {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(self.well),
        }
    }
}

impl Opening<'_> {
    /// It succeeded: the server is well.
    pub(super) fn succeeded(self) {
        let mut state = self.backoff.state();
        if state.step == self.step {
            *state = State { well: true, step: self.step, ..State::default() };
        }
    }

    /// It failed: nobody tries again for a while. Others that began with it have nothing to add, and what
    /// is wrong with our credential is not wrong with the server.
    pub(super) fn failed(self, error: &BackendError) {
        if let BackendError::Unauthorized | BackendError::CredentialMissing | BackendError::Busy = error {
            return;
        }
        let mut state = self.backoff.state();
        if state.step != self.step {
            return;
        }
        let doubled = self.backoff.first.saturating_mul(2_u32.saturating_pow(state.failures));
        let pause = doubled.min(self.backoff.most).mul_f64(0.75 + 0.25 * fraction());
        let closed = Some((Instant::now() + pause, error.clone()));
        let (failures, step) = (state.failures.saturating_add(1), state.step + 1);
        *state = State { well: false, failures, step, closed };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::StreamExt;
    use futures_util::future::join_all;
    use futures_util::stream::FuturesUnordered;
    use tokio::time::Instant;

    use super::AT_ONCE;
    use super::Backoff;
    use super::Opening;
    use crate::backend::BackendError;
    use crate::model::limits::Limits;

    const DOWN: BackendError = BackendError::NotOpened("it is down");

    fn backoff() -> Backoff {
        let (open_pause, open_pause_most) = (Duration::from_millis(20), Duration::from_millis(160));
        Backoff::new(&Limits { open_pause, open_pause_most, ..Limits::default() })
    }

    /// Waits for the end of a pause.
    async fn reopened(backoff: &Backoff) -> Opening<'_> {
        loop {
            match backoff.enter().await {
                Ok(opening) => return opening,
                Err(error) => assert_eq!(error.to_string(), DOWN.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_pause_doubles_up_to_the_longest_and_a_success_ends_it() {
        let backoff = backoff();
        for round in 0..2 {
            let mut opening = backoff.enter().await.unwrap();
            for doubled in [20, 40, 80, 160, 160] {
                opening.failed(&DOWN);
                let began = Instant::now();
                opening = reopened(&backoff).await;
                let waited = began.elapsed().as_millis();
                assert!(waited * 4 >= doubled * 3, "{round}: {waited} ms in place of {doubled}");
                assert!(waited < doubled * 2 + 100, "{round}: {waited} ms in place of {doubled}");
            }
            opening.succeeded();
        }
    }

    #[tokio::test]
    async fn who_waits_is_told_what_became_of_the_first() {
        let backoff = backoff();
        let first = backoff.enter().await.unwrap();
        let mut waiting = Box::pin(join_all((0..50).map(|_| backoff.enter())));
        assert!(waiting.as_mut().now_or_never().is_none());
        first.failed(&DOWN);
        assert!(waiting.await.iter().all(|entered| matches!(entered, Err(BackendError::NotOpened(_)))));
        let first = reopened(&backoff).await;
        let mut waiting = Box::pin(join_all((0..50).map(|_| backoff.enter())));
        assert!(waiting.as_mut().now_or_never().is_none());
        first.succeeded();
        assert!(waiting.as_mut().now_or_never().is_none(), "not more than may go at once");
        let mut others: FuturesUnordered<_> = (0..50).map(|_| backoff.enter()).collect();
        drop(waiting);
        while let Some(entered) = others.next().await {
            entered.unwrap().succeeded();
        }
    }

    #[tokio::test]
    async fn many_that_fail_together_are_one_failure() {
        let backoff = backoff();
        backoff.enter().await.unwrap().succeeded();
        let together = join_all((0..AT_ONCE).map(|_| backoff.enter())).await;
        together.into_iter().for_each(|opening| opening.unwrap().failed(&DOWN));
        let began = Instant::now();
        assert!(backoff.enter().await.is_err());
        reopened(&backoff).await.succeeded();
        assert!(began.elapsed() < Duration::from_millis(120), "the first step, not the last");
    }

    #[tokio::test]
    async fn in_doubt_openings_go_one_by_one_and_no_word_says_nothing() {
        let backoff = backoff();
        backoff.enter().await.unwrap().succeeded();
        let early = backoff.enter().await.unwrap();
        backoff.doubt();
        let first = backoff.enter().await.unwrap();
        assert!(backoff.enter().now_or_never().is_none());
        // What began before the doubt says nothing about it.
        early.succeeded();
        assert!(backoff.enter().now_or_never().is_none());
        drop(first);
        backoff.enter().now_or_never().unwrap().unwrap().succeeded();
        assert!(backoff.enter().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_refused_credential_starts_no_pause() {
        let backoff = backoff();
        backoff.enter().await.unwrap().failed(&BackendError::Unauthorized);
        assert!(backoff.enter().await.is_ok());
    }
}
