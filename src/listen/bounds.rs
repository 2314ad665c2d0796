//! How many subscriptions there are with a backend, and how often one is tried.

use std::time::Duration;

use crate::model::chance;
use crate::model::limits::Limits;

/// Most resources of one subscription.
pub(super) const STRAND: usize = 256;

/// How long what is wanted is let settle before a strand is reopened for it.
pub(super) const SETTLE: Duration = Duration::from_millis(20);

/// A subscription that held for so long was no failure.
pub(super) const SOUND: Duration = Duration::from_secs(30);

/// Most changes that are still read of a subscription that another has taken the place of.
pub(super) const LEFTOVERS: usize = 1_000;

/// Most strands of a line: each may be open twice while it is reopened, and lists need a subscription, too.
pub(super) fn most(limits: &Limits) -> usize {
    (limits.upstream_watches / 2).max(1)
}

/// How long nothing is tried after so many failures: doubled each time, up to a bound, and by chance.
pub(super) fn pause(limits: &Limits, failures: u32) -> Duration {
    let doubled = limits.open_pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(limits.open_pause_most).mul_f64(0.5 + chance::fraction() / 2.0)
}
