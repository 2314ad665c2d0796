//! Everything that is built once and shared by every request.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Authenticator;
use crate::auth::dev_issuer::DevIssuer;
use crate::cache::Cache;
use crate::catalog::refresh::Catalogs;
use crate::legacy::lasting::Orphanage;
use crate::legacy::registry::Sessions;
use crate::listen::hub::Hub;
use crate::methods::checks::Checks;
use crate::model::clock::Clock;
use crate::model::limits::Limits;
use crate::seal::KeyRing;
use crate::store::Store;
use crate::stream::budget::Budget;
use crate::telemetry::metrics::Metrics;
use crate::tenant::source::Tenants;

/// The parts that requests share.
pub struct App {
    /// The limits of this process.
    pub limits: Arc<Limits>,
    /// The wall clock.
    pub clock: Clock,
    /// The keys of the baggage that goes on to backends.
    pub baggage: Vec<String>,
    /// Who the tenants are, now.
    pub tenants: Arc<Tenants>,
    /// Where they live, if no file declares them.
    pub store: Option<Store>,
    /// Who may come in.
    pub auth: Authenticator,
    /// What each tenant serves.
    pub catalogs: Catalogs,
    /// The results that backends allow to be kept.
    pub cache: Arc<Cache>,
    /// The checks of arguments and results that go on now.
    pub checks: Arc<Checks>,
    /// What the bodies that are held now may hold.
    pub bodies: Arc<Budget>,
    /// Who listens to changes.
    pub hub: Arc<Hub>,
    /// What handles are sealed with.
    pub keys: Arc<KeyRing>,
    /// The sessions of the handshake era, as far as one process has to know of them.
    pub sessions: Arc<Sessions>,
    /// Where calls in sessions go on whose clients have left.
    pub orphanage: Orphanage,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The issuer of `fondaco dev`, nowhere else.
    pub dev_issuer: Option<DevIssuer>,
    /// The tasks that read streams.
    pub tasks: TaskTracker,
    /// Cancelled when a draining process takes no new connection: streams that nothing else ends
    /// end then, since their clients will find another replica.
    pub leaving: CancellationToken,
}
