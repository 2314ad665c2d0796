//! From settings to a running gateway: listeners, background work, and an orderly end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::future::join_all;
use futures_util::future::select;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::Admin;
use crate::admin::api::Api;
use crate::app::App;
use crate::auth::Authenticator;
use crate::auth::dev_issuer::DevIssuer;
use crate::auth::dev_issuer::DevIssuerError;
use crate::cache::Cache;
use crate::catalog::refresh::Catalogs;
use crate::config::Settings;
use crate::config::report::Report;
use crate::edge::accept;
use crate::edge::accept::Drain;
use crate::edge::mcp;
use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::egress::rules::Allow;
use crate::egress::rules::Rules;
use crate::legacy::lasting::Orphanage;
use crate::legacy::registry::Sessions;
use crate::listen::hub::Hub;
use crate::listen::task;
use crate::model::clock::Clock;
use crate::model::name::TenantName;
use crate::seal::KeyRing;
use crate::seal::SealError;
use crate::store::Store;
use crate::store::error::OpenError;
use crate::stream::budget::Budget;
use crate::telemetry::metrics::Metrics;
use crate::tenant::source::Sources;
use crate::tenant::source::Tenants;

/// How often it is looked for what nobody will ask for any more.
const UPKEEP: Duration = Duration::from_secs(60);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tenants, all problems at once.
    #[error("{0}")]
    Tenants(Report),
    /// A listener.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The outbound client.
    #[error("cannot set up outbound connections")]
    Egress(#[from] EgressError),
    /// A CA bundle.
    #[error("cannot read the CA bundle {0}: {1}")]
    Ca(PathBuf, std::io::Error),
    /// The key ring.
    #[error(transparent)]
    Keys(#[from] SealError),
    /// There is none, and every process would make another one.
    #[error("`keys.ring` is empty: processes that share a database need the same keys")]
    NoRing,
    /// The database.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// The development issuer.
    #[error(transparent)]
    Issuer(#[from] DevIssuerError),
}

/// The sockets of a gateway, bound before anything else so that their ports are known.
pub struct Listeners {
    /// For clients.
    pub public: TcpListener,
    /// For operators.
    pub admin: TcpListener,
}

impl Listeners {
    /// Binds both.
    pub async fn bind(public: SocketAddr, admin: SocketAddr) -> Result<Self, StartError> {
        let bind =
            |at| async move { TcpListener::bind(at).await.map_err(|error| StartError::Listen(at, error)) };
        Ok(Self { public: bind(public).await?, admin: bind(admin).await? })
    }
}

/// What only `fondaco dev` has.
pub struct Development {
    /// The demo tenants, as a tenants file.
    pub tenants: String,
    /// Its issuer.
    pub issuer: DevIssuer,
}

/// A gateway that is ready to run.
pub struct Server {
    app: Arc<App>,
    listeners: Listeners,
    admin: Admin,
    background: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// Builds everything that `settings` ask for.
    pub async fn build(
        settings: Settings,
        listeners: Listeners,
        development: Option<Development>,
    ) -> Result<Self, StartError> {
        let clock = Clock::default();
        let metrics = Arc::new(Metrics::new());
        let (built_in, dev_issuer) = development.map(|d| (d.tenants, d.issuer)).unzip();
        let sources = Sources { built_in, ..Sources::of(&settings) };
        let declared = sources.built_in.is_some() || sources.file.is_some();
        let tenants = match declared {
            true => Tenants::open(sources.clone()).map_err(StartError::Tenants)?,
            false => Tenants::none(sources.clone()),
        };
        let rules = rules(&settings);
        let egress = egress(&settings, rules.clone())?;
        let (keys, store) = match declared {
            true => (Arc::new(key_ring(&settings)?), None),
            false => {
                let (keys, store) = open_store(&settings, &clock).await?;
                (keys, Some(store))
            }
        };
        let limits = Arc::new(accept::fitted(settings.limits.clone()));
        let cache = Cache::new(&limits, metrics.clone());
        let tasks = TaskTracker::new();
        let hub = Hub::new(limits.clone(), metrics.clone(), tasks.clone(), cache.clone());
        let app = Arc::new(App {
            auth: Authenticator::new(egress.clone(), clock.clone(), &limits, metrics.clone()),
            bodies: Budget::new(limits.bodies_bytes),
            catalogs: Catalogs::open(
                &settings.data_dir,
                cache.clone(),
                hub.clone(),
                egress,
                limits.clone(),
                metrics.clone(),
            ),
            cache,
            checks: Arc::default(),
            sessions: Sessions::new(&limits),
            hub,
            orphanage: Orphanage::new(&limits, tasks.clone()),
            limits,
            baggage: settings.telemetry.baggage.clone(),
            clock,
            tenants: Arc::new(tenants),
            store,
            keys,
            metrics: metrics.clone(),
            dev_issuer,
            tasks,
            leaving: CancellationToken::new(),
        });
        let authority = settings.admin.listen.to_string().into();
        let api = Api {
            store: app.store.clone(),
            sources,
            rules,
            keys: app.keys.clone(),
            limits: app.limits.clone(),
        };
        let api = Arc::new(api);
        let admin = Admin { metrics, ready: Arc::default(), authority: Some(authority), api };
        let (background, stop) = (TaskTracker::new(), CancellationToken::new());
        Ok(Self { app, listeners, admin, background, stop })
    }

    /// The shared parts.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `stop` resolves, then drains: not ready, keeps accepting for a while, lets
    /// calls finish, and says what is to be said to backends. Returns at the latest after
    /// `limits.drain_total` and `limits.notice_time`, whatever has not ended by then.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listeners, admin, background, stop: background_stop } = self;
        let drain = Drain::new();
        match app.store.clone() {
            None => drop(
                background.spawn(app.tenants.clone().watch(app.metrics.clone(), background_stop.clone())),
            ),
            Some(store) => {
                let feed = store.clone();
                let stop = background_stop.clone();
                background.spawn(async move { feed.follow(stop).await });
                background.spawn(app.tenants.clone().follow(
                    store,
                    app.metrics.clone(),
                    background_stop.clone(),
                ));
            }
        }
        background.spawn(follow(app.clone(), background_stop.clone()));
        background.spawn(background_stop.clone().run_until_cancelled_owned(tend(app.clone())));
        let admin_service = crate::admin::router(admin.clone());
        let admin_drain = Drain::new();
        let admin_loop = accept::serve(
            listeners.admin,
            app.limits.clone(),
            admin_service,
            admin_drain.clone(),
            Gauge::default(),
        );
        background.spawn(admin_loop);
        let public = mcp::service(app.clone());
        let public_loop = accept::serve(
            listeners.public,
            app.limits.clone(),
            public,
            drain.clone(),
            app.metrics.connections(),
        );
        let draining = async {
            // Until then nobody would be served here who is served by others.
            let stop = pin!(stop);
            if let Either::Left((_, stop)) = select(pin!(app.tenants.loaded()), stop).await {
                admin.ready.store(true, Ordering::Release);
                stop.await;
            }
            let begun = Instant::now();
            tracing::info!("draining");
            admin.ready.store(false, Ordering::Release);
            drain.begin();
            drain.stopped().await;
            app.leaving.cancel();
            begun
        };
        let ((), begun) = tokio::join!(public_loop, draining);
        admin_drain.cut();
        background_stop.cancel();
        let ending = async {
            // What goes on now has no client any more. It ends first: the rest waits for it.
            app.sessions.stop();
            app.hub.shutdown();
            app.tasks.close();
            app.tasks.wait().await;
            app.catalogs.shutdown().await;
            app.auth.shutdown().await;
            background.close();
            background.wait().await;
            if let Some(store) = &app.store {
                store.close().await;
            }
        };
        let last = begun + app.limits.drain_total + app.limits.notice_time;
        if timeout_at(last, ending).await.is_err() {
            tracing::warn!("not everything has ended in its time: it is left as it is");
        }
        tracing::info!("stopped");
    }
}

/// Forgets what belonged to tenants that are gone, after every change of the tenants.
async fn follow(app: Arc<App>, stop: CancellationToken) {
    let mut changes = app.tenants.changes();
    // Those of the start, too: who is gone later has to be known before.
    changes.mark_changed();
    while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
        let directory = app.tenants.current();
        app.catalogs.retain(&directory.tenants().cloned().collect::<Vec<_>>());
        let live = directory.endpoints().flat_map(|e| e.trust.iter()).map(|trust| trust.issuer.clone());
        app.auth.forget_unused(&live.collect());
    }
}

/// Keeps what listeners subscribe to where it is, whatever becomes of the tenants, and forgets what
/// nobody will ask for any more.
async fn tend(app: Arc<App>) {
    let mut changes = app.tenants.changes();
    loop {
        tokio::select! {
            Ok(()) = changes.changed() => app.hub.reconsider(),
            () = sleep(UPKEEP) => {}
            stale = app.hub.stale() => {
                join_all(stale.iter().map(|tenant| relink(&app, tenant))).await;
                continue;
            }
        }
        let directory = app.tenants.current();
        let is_served = |name: &TenantName| directory.tenant(name).is_some_and(|tenant| tenant.handshake);
        app.sessions.forget(app.clock.now(), is_served);
    }
}

/// Finds the resources anew that are subscribed to in a tenant.
async fn relink(app: &App, name: &TenantName) {
    let Some(tenant) = app.tenants.current().tenant(name) else {
        return app.hub.relink(name, |_| None).await;
    };
    let snapshot = app.catalogs.shared(&tenant).await;
    let find = |topic: &str| match task::read(topic) {
        Some((backend, own)) => Some(Arc::new(task::entry(snapshot.backend(backend)?, own))),
        None => snapshot.resource(topic),
    };
    app.hub.relink(name, find).await;
}

/// The keys that are configured, or those of the data directory.
fn key_ring(settings: &Settings) -> Result<KeyRing, SealError> {
    match &settings.keys.ring[..] {
        [] => KeyRing::open_or_create(&settings.data_dir),
        ring => KeyRing::new(ring.iter().map(|key| *key.bytes()).collect()),
    }
}

/// The database that `settings` name, and the keys that its secrets are sealed with. One that is a
/// server is not connected to yet, but if it is there it has to have the right schema.
pub async fn open_store(settings: &Settings, clock: &Clock) -> Result<(Arc<KeyRing>, Store), StartError> {
    let limits = Arc::new(settings.limits.clone());
    match &settings.database.server {
        None => {
            let keys = Arc::new(key_ring(settings)?);
            let store = Store::embedded(&settings.data_dir, keys.clone(), clock.clone(), limits).await?;
            Ok((keys, store))
        }
        Some(_) if settings.keys.ring.is_empty() => Err(StartError::NoRing),
        Some(url) => {
            let keys = Arc::new(key_ring(settings)?);
            let store = Store::server(url, keys.clone(), clock.clone(), limits)?;
            match store.check().await {
                Ok(()) => {}
                Err(error @ OpenError::Away(_)) => {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::warn!(%error, cause, "not ready until it is");
                }
                Err(other) => return Err(other.into()),
            }
            Ok((keys, store))
        }
    }
}

/// What may be dialled.
fn rules(settings: &Settings) -> Rules {
    let allow = settings.egress.allow.iter().map(|entry| entry.parse::<Allow>());
    Rules { allow: allow.filter_map(Result::ok).collect() }
}

fn egress(settings: &Settings, rules: Rules) -> Result<Egress, StartError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| StartError::Ca(path.clone(), error));
    let ca = settings.egress.ca.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(Egress::new(rules, settings.limits.connect_time, &ca)?)
}
