//! The two clocks of a call: idle, which increasing progress winds up again, and total, which
//! nothing does.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// Which time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time to connect.
    Connect,
    /// The time to begin a session.
    Open,
    /// The longest silence in one call.
    Idle,
    /// The total time of one call.
    Total,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::Connect => "no connection within the connect timeout",
            Clock::Open => "no session within the open timeout",
            Clock::Idle => "no progress within the idle timeout",
            Clock::Total => "no result within the total timeout",
        })
    }
}

/// The clocks of one call in progress.
#[derive(Debug)]
pub(super) struct Clocks {
    idle: Duration,
    idle_end: Instant,
    total_end: Instant,
}

impl Clocks {
    /// Starts both clocks. `deadline` may only shorten `total`.
    pub(super) fn start(idle: Duration, total: Duration, deadline: Instant) -> Self {
        let now = Instant::now();
        Self { idle, idle_end: now + idle, total_end: deadline.min(now + total) }
    }

    /// Winds up the idle clock.
    pub(super) fn progressed(&mut self) {
        self.idle_end = Instant::now() + self.idle;
    }

    /// Waits for `work` until the first of the clocks runs out, and says which one it was.
    ///
    /// # Cancel safety
    /// As `work`, which is dropped when a clock runs out.
    pub(super) async fn race<T>(&self, work: impl Future<Output = T>) -> Result<T, Clock> {
        let (end, clock) = if self.total_end <= self.idle_end {
            (self.total_end, Clock::Total)
        } else {
            (self.idle_end, Clock::Idle)
        };
        tokio::time::timeout_at(end, work).await.map_err(|_| clock)
    }

    /// The same by the total clock alone: what is waited for is no answer.
    ///
    /// # Cancel safety
    /// As `work`, which is dropped when the clock runs out.
    pub(super) async fn race_total<T>(&self, work: impl Future<Output = T>) -> Result<T, Clock> {
        tokio::time::timeout_at(self.total_end, work).await.map_err(|_| Clock::Total)
    }
}
