//! The wall clock, which tests can move. Timeouts use `tokio::time::Instant` instead.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

/// Tells wall-clock time; clones share their offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset: Arc<AtomicI64>,
}

impl Clock {
    /// Now, in seconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clock")]
    pub fn now(&self) -> u64 {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        real.saturating_add_signed(self.offset.load(Ordering::Relaxed))
    }

    /// Moves this clock, and its clones, by `seconds`.
    pub fn advance(&self, seconds: i64) {
        self.offset.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// The CPU time that this thread has had so far: what a test bounds where the machine may be busy with
/// other things.
#[cfg(test)]
pub fn cpu_time() -> std::time::Duration {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}
