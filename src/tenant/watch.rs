//! Follows the tenants file and the files of secrets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::RecommendedWatcher;
use notify::RecursiveMode;
use notify::Watcher;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome;
use crate::tenant::source::Reload;
use crate::tenant::source::Tenants;

/// How long a change may go on before it is looked at: files are written in pieces, and an
/// orchestrator replaces several.
const SETTLE: Duration = Duration::from_millis(200);

/// Between two looks where the system tells about changes, in case that it misses one.
const SELDOM: Duration = Duration::from_secs(60);

/// Between two looks where it does not.
const OFTEN: Duration = Duration::from_secs(3);

/// The system's watch over some directories.
struct Watch {
    watcher: Option<RecommendedWatcher>,
    directories: Vec<PathBuf>,
    whole: bool,
}

impl Tenants {
    /// Follows the tenants file and the files of secrets until `shutdown`, and reads them again on
    /// SIGHUP. A file that does not load leaves everything as it was. Reloads are counted.
    ///
    /// # Cancel safety
    /// Dropping the future stops the watch and leaves the last good tenants in place.
    pub async fn watch(self: Arc<Self>, metrics: Arc<Metrics>, shutdown: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let mut watch = Watch::new(Arc::clone(&changed));
        let mut hangup = Hangup::new();
        watch.cover(self.directories());
        loop {
            let tenants = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || tenants.reload()).await {
                Ok(Reload::Unchanged) => {}
                Ok(Reload::Swapped) => metrics.config_reload(Outcome::Ok),
                Ok(Reload::Refused) => metrics.config_reload(Outcome::Refused),
                Err(_) => {
                    metrics.config_reload(Outcome::Failed);
                    tracing::error!("reading the tenants ended unexpectedly; they stay what they were");
                }
            }
            let directories = self.directories();
            if watch.directories != directories {
                // What changed there before it was watched is seen by one more look.
                changed.notify_one();
            }
            // What was refused may wait for the file of a secret that nobody watches yet.
            let watched = watch.cover(directories) && !self.is_refused();
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(if watched { SELDOM } else { OFTEN }) => {}
                () = hangup.received() => tracing::info!("SIGHUP: the tenants are read again"),
                () = changed.notified() => {
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(SETTLE) => {}
                    }
                }
            }
        }
    }
}

impl Watch {
    fn new(changed: Arc<Notify>) -> Self {
        let told = move |event: notify::Result<notify::Event>| {
            // Our own reading is an access, and would wake us for ever.
            if event.is_ok_and(|event| !event.kind.is_access()) {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(told).inspect_err(|error| {
            tracing::warn!(%error, "changes of files cannot be watched and are looked for every 3 s");
        });
        Self { watcher: watcher.ok(), directories: Vec::new(), whole: false }
    }

    /// Watches these directories and no others; whether all of them could be.
    fn cover(&mut self, directories: Vec<PathBuf>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        if self.whole && self.directories == directories {
            return true;
        }
        for old in &self.directories {
            // It may be gone already.
            let _ = watcher.unwatch(old);
        }
        self.whole = true;
        for directory in &directories {
            self.whole &= watcher.watch(directory, RecursiveMode::NonRecursive).is_ok();
        }
        self.directories = directories;
        self.whole
    }
}

/// SIGHUP, where there is such a thing.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    #[cfg(unix)]
    fn new() -> Self {
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup());
        Self { signal: signal.inspect_err(|error| tracing::warn!(%error, "SIGHUP is not listened to")).ok() }
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self {}
    }

    #[cfg(unix)]
    async fn received(&mut self) {
        let received = match &mut self.signal {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending().await
        }
    }

    #[cfg(not(unix))]
    async fn received(&mut self) {
        std::future::pending().await
    }
}
