//! What a backend says has changed, until a refresh that began afterwards has served it.
//!
//! However often something is said, it leads to one refresh that begins after it, soon; who says it
//! without end is refreshed at the pace of an allowance.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::catalog::herald::Changed;

/// Least time between the beginnings of two refreshes, where the second was asked for here.
const GAP: Duration = Duration::from_millis(500);

/// How many of them may follow each other like that: to compile a list takes a core that all tenants share.
const SAVED: f64 = 10.0;

/// How long it takes until one more may.
const REGAINED: Duration = Duration::from_secs(5);

/// What was said of one backend.
pub(super) struct Notices {
    state: Mutex<State>,
    woken: Notify,
}

struct State {
    /// What was said and is not served.
    said: Changed,
    /// Whether a refresh has to begin.
    wanted: bool,
    /// When the last refresh began.
    begun: Option<Instant>,
    /// How many refreshes may be asked for now, at `at`.
    left: f64,
    at: Instant,
}

impl Notices {
    /// Nothing was said.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new(Instant::now())), woken: Notify::new() }
    }

    /// Something may have changed, and of it this was said.
    pub(super) fn note(&self, said: Changed) {
        self.state().note(said);
        self.woken.notify_one();
    }

    /// A refresh begins: what was said until now, which it serves.
    pub(super) fn begin(&self) -> Changed {
        self.state().begin(Instant::now())
    }

    /// A refresh that began with this did not serve it. The next one may, whenever it is.
    pub(super) fn unserved(&self, said: Changed) {
        let mut state = self.state();
        state.said = state.said | said;
    }

    /// Waits until a refresh has to begin.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn due(&self) {
        loop {
            let woken = self.woken.notified();
            let due = self.state().due(Instant::now());
            match due {
                Some(due) => return tokio::time::sleep_until(due).await,
                None => woken.await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(at: Instant) -> Self {
        Self { said: Changed::NOTHING, wanted: false, begun: None, left: SAVED, at }
    }

    fn note(&mut self, said: Changed) {
        self.said = self.said | said;
        self.wanted = true;
    }

    fn begin(&mut self, now: Instant) -> Changed {
        self.regain(now);
        if std::mem::take(&mut self.wanted) {
            self.left = (self.left - 1.0).max(0.0);
        }
        self.begun = Some(now);
        std::mem::take(&mut self.said)
    }

    fn regain(&mut self, now: Instant) {
        let gained = now.saturating_duration_since(self.at).div_duration_f64(REGAINED);
        (self.left, self.at) = ((self.left + gained).min(SAVED), now);
    }

    /// When the next refresh may begin, if one has to.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        self.regain(now);
        let missing = REGAINED.mul_f64((1.0 - self.left).max(0.0));
        let allowed = now + missing;
        self.wanted.then(|| self.begun.map_or(allowed, |begun| allowed.max(begun + GAP)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::GAP;
    use super::State;
    use crate::catalog::herald::Changed;

    const TOOLS: Changed = Changed { tools: true, ..Changed::NOTHING };
    const PROMPTS: Changed = Changed { prompts: true, ..Changed::NOTHING };

    #[test]
    fn what_is_said_during_a_refresh_leads_to_one_more() {
        let began = Instant::now();
        let mut state = State::new(began);
        assert_eq!(state.due(began), None);
        assert_eq!(state.begin(began), Changed::NOTHING);
        state.note(TOOLS);
        state.note(PROMPTS);
        assert_eq!(state.due(began), Some(began + GAP));
        assert_eq!(state.begin(began + GAP), TOOLS | PROMPTS);
        assert_eq!(state.due(began + GAP), None, "one refresh serves all");
        // Long after the last one, it begins at once.
        let later = began + Duration::from_secs(60);
        state.note(TOOLS);
        assert_eq!(state.due(later), Some(later));
    }

    #[test]
    fn who_never_stops_saying_it_is_refreshed_less_often_until_there_is_silence() {
        let began = Instant::now();
        let (mut state, mut now, mut refreshes) = (State::new(began), began, 0);
        while now < began + Duration::from_secs(60) {
            state.note(TOOLS);
            now = state.due(now).unwrap();
            assert_eq!(state.begin(now), TOOLS);
            refreshes += 1;
        }
        assert!((20..=25).contains(&refreshes), "{refreshes}");
        state.note(TOOLS);
        assert!(state.due(now).unwrap() > now + GAP);
        let later = now + Duration::from_secs(60);
        assert_eq!(state.due(later), Some(later));
    }
}
