//! When a backend is asked again for what it lists for a caller, and who waits for it.

use std::time::Duration;

use tokio::time::Instant;

use crate::catalog::source;

/// How far what a backend lists for one caller is good.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How often it was out of date when the lists that there are were asked for.
    edition: Option<u64>,
    /// Until when they are good by themselves.
    good_until: Option<Instant>,
    /// How often in a row it did not give them.
    failures: u32,
    /// No other try is made before.
    retry_at: Option<Instant>,
    /// The asking that goes on.
    going_on: Option<GoingOn>,
}

#[derive(Debug)]
struct GoingOn {
    /// Its number.
    attempt: u64,
    /// Whether somebody has waited for it as long as anybody does.
    late: bool,
    /// Whether it is known what came of it.
    is_known: bool,
}

/// What a request has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    /// The backend is to be asked.
    pub(super) begin: bool,
    /// It waits for the asking of this number.
    pub(super) wait: Option<u64>,
}

impl Plan {
    /// What a request has to do now, where the backend was asked `attempts` times and said `edition` times
    /// that something has changed. What is only old is asked for beside the request; what is out of date, or
    /// was never had, is waited for, unless the backend was late with it or failed.
    pub(super) fn next(&mut self, edition: u64, attempts: u64, now: Instant) -> Next {
        let is_outdated = self.edition.is_none_or(|seen| seen < edition);
        let is_old = self.good_until.is_none_or(|until| until <= now);
        let may = self.retry_at.is_none_or(|at| at <= now);
        let begin = self.going_on.is_none() && (is_outdated || is_old) && may;
        if begin {
            self.going_on = Some(GoingOn { attempt: attempts + 1, late: false, is_known: false });
        }
        let waits = |one: &&GoingOn| is_outdated && self.failures == 0 && !one.late;
        Next { begin, wait: self.going_on.as_ref().filter(waits).map(|one| one.attempt) }
    }

    /// Somebody has waited for what goes on as long as anybody does.
    pub(super) fn is_late(&mut self) {
        if let Some(going_on) = &mut self.going_on {
            going_on.late = true;
        }
    }

    /// The asking is over. If nothing is known of what came of it, it failed.
    pub(super) fn over(&mut self, now: Instant) {
        if self.going_on.take().is_some_and(|one| !one.is_known) {
            self.failed(now);
        }
    }

    /// The backend listed, as of this edition, which is good for so long. `whole` if it gave every list.
    pub(super) fn listed(&mut self, edition: u64, good: Duration, whole: bool, now: Instant) {
        self.failures = if whole { 0 } else { self.failures.saturating_add(1) };
        let good = if whole { good } else { good.min(source::back_off(self.failures)) };
        (self.edition, self.good_until, self.retry_at) = (Some(edition), Some(now + good), None);
        self.is_known();
    }

    /// It did not.
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + source::back_off(self.failures));
        self.is_known();
    }

    fn is_known(&mut self) {
        if let Some(going_on) = &mut self.going_on {
            going_on.is_known = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Next;
    use super::Plan;

    const MINUTE: Duration = Duration::from_secs(60);
    const ASK_AND_WAIT: Next = Next { begin: true, wait: Some(1) };
    const WAIT: Next = Next { begin: false, wait: Some(1) };
    const ASK: Next = Next { begin: true, wait: None };
    const GO_ON: Next = Next { begin: false, wait: None };

    #[test]
    fn what_was_never_had_or_is_out_of_date_is_waited_for_and_what_is_old_is_not() {
        let now = Instant::now();
        let mut plan = Plan::default();
        assert_eq!(plan.next(0, 0, now), ASK_AND_WAIT);
        assert_eq!(plan.next(0, 0, now), WAIT, "one asks for all who wait");
        plan.listed(0, MINUTE, true, now);
        plan.over(now);
        assert_eq!(plan.next(0, 1, now), GO_ON);
        assert_eq!(plan.next(0, 1, now + MINUTE), ASK, "old");
        assert_eq!(plan.next(1, 1, now), Next { begin: false, wait: Some(2) }, "out of date meanwhile");
        plan.listed(0, MINUTE, true, now);
        plan.over(now);
        assert_eq!(plan.next(1, 2, now), Next { begin: true, wait: Some(3) });
    }

    #[test]
    fn nobody_waits_twice_for_who_is_late_nor_for_who_fails() {
        let now = Instant::now();
        let mut plan = Plan::default();
        assert_eq!(plan.next(0, 0, now), ASK_AND_WAIT);
        plan.is_late();
        assert_eq!(plan.next(0, 0, now), GO_ON);
        plan.over(now);
        assert_eq!(plan.next(0, 1, now), GO_ON, "it died, and there is a pause");
        assert_eq!(plan.next(0, 1, now + MINUTE), ASK);
        plan.listed(0, 60 * MINUTE, false, now);
        plan.over(now);
        assert_eq!(plan.next(0, 2, now), GO_ON);
        assert_eq!(plan.next(0, 2, now + MINUTE), ASK, "a list is missing");
    }
}
