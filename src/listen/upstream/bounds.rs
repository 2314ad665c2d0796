//! How much is asked of a backend for what listeners want: at a time, and one after another.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::limits::Limits;

/// Most resources of one subscription.
const RESOURCES: usize = 256;

/// How many subscriptions a strand opens at once, if it has opened none for a while.
const AT_ONCE: u32 = 4;

/// How long it takes until it may open one more.
const SPACING: Duration = Duration::from_secs(1);

/// Whether one more fits into a subscription to `resources` of so many `bytes`: its acknowledgement repeats
/// them, and has to be an event that is taken.
pub(super) fn fits(resources: usize, bytes: usize, own: &str, limits: &Limits) -> bool {
    resources == 0 || (resources < RESOURCES && bytes + escaped(own) <= limits.listen_event_bytes / 2)
}

/// How many bytes a URI takes in a list, however it is escaped there.
pub(super) fn escaped(own: &str) -> usize {
    let each = own.chars().map(|char| match char {
        '"' | '\\' | '/' => 2,
        ' '..='~' => 1,
        _ => 6 * char.len_utf16(),
    });
    each.sum::<usize>() + "\"\",".len()
}

/// How often a strand is opened.
pub(super) struct Pace {
    /// When it may open `AT_ONCE` again.
    rested: Instant,
}

impl Pace {
    /// Of one that was never opened.
    pub(super) fn new() -> Self {
        Self { rested: Instant::now() }
    }

    /// When it may be opened again.
    pub(super) fn earliest(&self) -> Instant {
        self.rested.checked_sub(SPACING * (AT_ONCE - 1)).unwrap_or_else(Instant::now)
    }

    /// It is opened at `now`.
    pub(super) fn take(&mut self, now: Instant) {
        self.rested = self.rested.max(now) + SPACING;
    }
}

#[cfg(test)]
mod tests {
    use super::AT_ONCE;
    use super::Pace;
    use super::SPACING;
    use super::escaped;
    use super::fits;
    use crate::model::limits::Limits;

    #[test]
    fn a_uri_is_as_long_as_it_can_be_escaped() {
        for (own, bytes) in [("", 3), ("a", 4), ("\"", 5), ("/", 5), ("\0", 9), ("é", 9), ("𝄞", 15)] {
            assert_eq!(escaped(own), bytes, "{own}");
        }
    }

    #[test]
    fn a_subscription_is_full_by_count_or_by_bytes_and_one_resource_always_fits() {
        let limits = Limits { listen_event_bytes: 200, ..Limits::default() };
        let long = "x".repeat(1_000);
        assert!(fits(0, 0, &long, &limits) && !fits(1, 4, &long, &limits));
        assert!(fits(1, 96, "a", &limits) && !fits(1, 97, "a", &limits));
        assert!(fits(255, 0, "a", &limits) && !fits(256, 0, "a", &limits));
    }

    #[test]
    fn a_few_are_opened_at_once_and_then_one_at_a_time() {
        let mut pace = Pace::new();
        let begun = pace.rested;
        for _ in 0..AT_ONCE {
            assert!(pace.earliest() <= begun);
            pace.take(begun);
        }
        for n in 1..4 {
            assert_eq!(pace.earliest(), begun + SPACING * n);
            pace.take(pace.earliest());
        }
    }
}
