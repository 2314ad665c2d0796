//! Whether somebody who was admitted once, and still listens, would be admitted now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::app::App;
use crate::catalog::viewer::Viewer;
use crate::legacy::registry::Listening;
use crate::listen::places::Place;
use crate::listen::task::Late;
use crate::listen::writer::Audience;
use crate::listen::writer::Over;
use crate::methods;
use crate::methods::tasks::Asking;
use crate::pipeline::Party;
use crate::protocol::json::Json;
use crate::router;
use crate::router::listen;
use crate::telemetry::metrics::Open;

/// Somebody who listens, until this is dropped.
pub(super) struct Standing {
    app: Arc<App>,
    party: Party,
    /// In seconds since the Unix epoch.
    end: u64,
    changes: watch::Receiver<()>,
    seat: Seat,
    /// The tasks that it listens to: its own ids of them, by their keys.
    tasks: HashMap<Arc<str>, Arc<str>>,
    /// What its client declared that it can do.
    capabilities: Json,
}

/// What it listens on.
pub(super) enum Seat {
    /// An answer of its own.
    Listen {
        /// Its place among all listeners.
        _place: Place,
        /// It is counted as open.
        _counted: Open,
    },
    /// A stream of a session.
    Session(Listening),
}

impl Standing {
    /// `party`, whose client declared these capabilities, may listen until `end`, or until its session is over or nobody like it is admitted.
    pub(super) fn new(app: Arc<App>, party: Party, capabilities: Json, end: u64, seat: Seat) -> Self {
        let changes = app.tenants.changes();
        Self { app, party, end, changes, seat, tasks: HashMap::new(), capabilities }
    }

    /// The same, which listens to these tasks.
    pub(super) fn with_tasks(self, tasks: HashMap<Arc<str>, Arc<str>>) -> Self {
        Self { tasks, ..self }
    }

    fn viewer(&self) -> Viewer<'_> {
        Viewer { caller: &self.party.caller, capabilities: &self.capabilities }
    }

    fn is_admitted(&self) -> bool {
        match &self.seat {
            Seat::Listen { .. } => is_admitted(&self.app, &self.party),
            Seat::Session(_) => is_served(&self.app, &self.party),
        }
    }
}

impl Audience for Standing {
    async fn over(&self) -> Over {
        let mut changes = self.changes.clone();
        loop {
            // Each time it is asked, and not when something changes alone.
            let left = self.end.checked_sub(self.app.clock.now()).filter(|left| *left > 0);
            let Some(left) = left.filter(|_| self.is_admitted()) else { return Over::Barred };
            // Looked at again now and then: the wall clock may be moved.
            let left = Duration::from_secs(left).min(self.app.limits.keep_alive);
            tokio::select! {
                biased;
                () = ended(&self.seat) => return Over::Barred,
                () = self.app.leaving.cancelled() => return Over::Due,
                Ok(()) = changes.changed() => {}
                () = sleep(left) => {}
            }
        }
    }

    async fn may_read(&self, uri: &str) -> bool {
        let Party { caller, tenant, .. } = &self.party;
        let Some(tenant) = self.app.tenants.current().tenant(&tenant.name) else { return false };
        let snapshot = self.app.catalogs.snapshot(&tenant, self.viewer()).await;
        listen::readable(&snapshot, caller, &tenant, uri).is_ok()
    }

    async fn task(&self, key: &str) -> Result<Option<Json>, Late> {
        let (app, Party { caller, tenant, endpoint, .. }) = (&self.app, &self.party);
        let Some(id) = self.tasks.get(key) else { return Ok(None) };
        let Some(tenant) = app.tenants.current().tenant(&tenant.name) else { return Ok(None) };
        let snapshot = app.catalogs.snapshot(&tenant, self.viewer()).await;
        let found = router::task::find(&snapshot, &tenant, caller, id, &app.keys, app.clock.now());
        let Some(task) = found else { return Ok(None) };
        let (capabilities, limits) = (&self.capabilities, &app.limits);
        let clear_text = endpoint.resource.starts_with("http:");
        let asking = Asking { caller, capabilities, clear_text, limits };
        methods::tasks::current(asking, &task, &snapshot, &app.metrics).await.map_err(|_| Late)
    }
}

async fn ended(seat: &Seat) {
    match seat {
        Seat::Listen { .. } => std::future::pending().await,
        Seat::Session(listening) => listening.stopped().await,
    }
}

/// Whether who was admitted would be now, as far as the tenants decide: the tenant is there, and the
/// caller's issuer is trusted where the request came in.
fn is_admitted(app: &App, party: &Party) -> bool {
    let directory = app.tenants.current();
    directory.tenant(&party.tenant.name).is_some() && directory.trusts(&party.endpoint, &party.caller.issuer)
}

/// The same in a session, which the tenant has to serve.
pub(super) fn is_served(app: &App, party: &Party) -> bool {
    let has_sessions = |tenant: Arc<crate::model::tenant::Tenant>| tenant.handshake;
    app.tenants.current().tenant(&party.tenant.name).is_some_and(has_sessions) && is_admitted(app, party)
}
