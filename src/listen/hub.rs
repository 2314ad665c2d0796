//! Who listens in each tenant, and who hears of a change.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Cache;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::catalog::herald::Changed;
use crate::catalog::herald::Herald;
use crate::listen::ListenError;
use crate::listen::above::upward;
use crate::listen::crowd::Concerned;
use crate::listen::crowd::Crowd;
use crate::listen::listener::Listener;
use crate::listen::places::Place;
use crate::listen::places::Places;
use crate::listen::upstream::strand;
use crate::listen::upstream::strand::Heard;
use crate::listen::upstream::strand::Strand;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tally::Tally;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;
use crate::telemetry::metrics::Metrics;

/// How many topics are moved before others have their turn.
const TURN: usize = 16;

/// Everybody who listens in this process.
pub struct Hub {
    pub(super) limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    /// What is kept of resources that may change.
    cache: Arc<Cache>,
    tasks: TaskTracker,
    stop: CancellationToken,
    streams: Places,
    sessions: Places,
    /// The resources that each principal subscribes to, with all its listeners.
    wishes: Arc<Tally<Arc<str>>>,
    serial: AtomicU64,
    /// Each behind a lock of its own, which is held for as long as it takes to look something up.
    crowds: Mutex<HashMap<TenantName, Arc<Mutex<Crowd>>>>,
    /// Tenants whose resources may have other homes now.
    stale: Mutex<HashSet<TenantName>>,
    has_stale: Notify,
}

/// A place among the listeners, until it is dropped.
pub struct Member {
    hub: Arc<Hub>,
    tenant: TenantName,
    /// Whose it is.
    principal: Arc<str>,
    crowd: Arc<Mutex<Crowd>>,
    id: u64,
    listener: Arc<Listener>,
}

impl Hub {
    /// Nobody listens yet. What is told by backends is read by `tasks`.
    pub fn new(
        limits: Arc<Limits>,
        metrics: Arc<Metrics>,
        tasks: TaskTracker,
        cache: Arc<Cache>,
    ) -> Arc<Self> {
        let (streams, sessions) = (Places::new(&limits), Places::new(&limits));
        Arc::new(Self {
            limits,
            metrics,
            cache,
            tasks,
            stop: CancellationToken::new(),
            streams,
            sessions,
            wishes: Arc::default(),
            serial: AtomicU64::new(0),
            crowds: Mutex::default(),
            stale: Mutex::default(),
            has_stale: Notify::new(),
        })
    }

    /// A place for one more stream of `caller`.
    pub fn stream_place(&self, caller: &Caller) -> Result<Place, ListenError> {
        self.streams.take(caller).ok_or(ListenError::TooManyStreams)
    }

    /// A place for one more session of `caller` that subscribes to resources.
    pub fn session_place(&self, caller: &Caller) -> Result<Place, ListenError> {
        self.sessions.take(caller).ok_or(ListenError::TooManyResources)
    }

    /// One more listener of `caller`, who misses nothing of `kinds` from now on.
    pub fn join(self: &Arc<Self>, caller: &Caller, kinds: Kinds) -> Member {
        let (tenant, principal) = (&caller.tenant, caller.principal().into());
        let listener = Arc::new(Listener::new(kinds));
        let id = self.serial.fetch_add(1, Ordering::Relaxed);
        loop {
            let new = || Arc::new(Mutex::new(Crowd::new(tenant.clone())));
            let crowd = lock(&self.crowds).entry(tenant.clone()).or_insert_with(new).clone();
            if lock(&crowd).join(id, &listener) {
                return Member { hub: self.clone(), tenant: tenant.clone(), principal, crowd, id, listener };
            }
            self.tidy(tenant, &crowd);
        }
    }

    /// The contents of a resource of this backend have changed. Who subscribes to it hears of it, and who
    /// subscribes to what it lies below. Others have their turn between many listeners.
    ///
    /// spec: server/resources, schema ResourceUpdatedNotificationParams
    ///
    /// # Cancel safety
    /// Dropping the future leaves those untold whose turn had not come.
    pub async fn resource_changed(&self, tenant: &TenantName, backend: &BackendName, own: &str) {
        self.cache.purge(tenant, backend, Some(own));
        let Some(crowd) = self.crowd(tenant) else { return };
        for own in upward(own, self.limits.uri_bytes) {
            let concerned = lock(&crowd).concerned(backend, own);
            for one in concerned {
                mark(one).await;
            }
        }
    }

    /// The same of one resource of one home, and of nothing above it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves those untold whose turn had not come.
    pub(super) async fn missed(&self, tenant: &TenantName, home: &Arc<Home>, own: &str) {
        self.cache.purge(tenant, &home.config.name, Some(own));
        let Some(crowd) = self.crowd(tenant) else { return };
        let concerned = lock(&crowd).concerned_at(home, own);
        if let Some(one) = concerned {
            mark(one).await;
        }
    }

    /// Waits until some tenants' resources may have other homes, and names those that are listened to.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn stale(&self) -> HashSet<TenantName> {
        loop {
            let told = self.has_stale.notified();
            let stale = std::mem::take(&mut *lock(&self.stale));
            if !stale.is_empty() {
                return stale;
            }
            told.await;
        }
    }

    /// Every tenant may have another configuration now.
    pub fn reconsider(&self) {
        let crowds: Vec<_> =
            lock(&self.crowds).iter().map(|(tenant, crowd)| (tenant.clone(), crowd.clone())).collect();
        for (tenant, crowd) in crowds {
            if lock(&crowd).has_topics() {
                self.outdate(&tenant);
            }
        }
    }

    /// What is subscribed to in this tenant may be found elsewhere now.
    fn outdate(&self, tenant: &TenantName) {
        lock(&self.stale).insert(tenant.clone());
        self.has_stale.notify_one();
    }

    /// Moves what is subscribed to in `tenant` to where `resolve` finds it now.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest where it was.
    pub async fn relink(
        self: &Arc<Self>,
        tenant: &TenantName,
        resolve: impl Fn(&str) -> Option<Arc<Entry>> + Send,
    ) {
        let Some(crowd) = self.crowd(tenant) else { return };
        let uris = lock(&crowd).topics();
        let mut has_room = false;
        for some in uris.chunks(TURN) {
            let found: Vec<_> = some.iter().map(|uri| (uri, resolve(uri))).collect();
            {
                let mut crowd = lock(&crowd);
                for (uri, entry) in found {
                    has_room |= crowd.move_topic(self, uri, entry.as_deref());
                }
            }
            tokio::task::yield_now().await;
        }
        if has_room {
            self.outdate(tenant);
        }
    }

    /// Ends all subscriptions with backends.
    pub fn shutdown(&self) {
        self.stop.cancel();
    }

    /// Follows a new strand, beside everything else.
    pub(super) fn follow(self: &Arc<Self>, strand: &Arc<Strand>) {
        let work = strand::follow(self.clone(), strand.clone());
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(work));
    }

    /// Forgets a strand that nobody wants any more. `false` if somebody does.
    pub(super) fn dismiss(&self, strand: &Arc<Strand>) -> bool {
        let Some(crowd) = self.crowd(strand.tenant()) else { return true };
        let gone = lock(&crowd).dismiss(strand);
        self.tidy(strand.tenant(), &crowd);
        gone
    }

    /// Those who listen in this tenant.
    pub(super) fn crowd(&self, tenant: &TenantName) -> Option<Arc<Mutex<Crowd>>> {
        lock(&self.crowds).get(tenant).cloned()
    }

    /// Forgets a crowd of which nobody is left.
    fn tidy(&self, tenant: &TenantName, crowd: &Arc<Mutex<Crowd>>) {
        if lock(crowd).end() {
            let mut crowds = lock(&self.crowds);
            if crowds.get(tenant).is_some_and(|known| Arc::ptr_eq(known, crowd)) {
                crowds.remove(tenant);
            }
        }
    }

    /// How many tenants are known.
    #[cfg(test)]
    pub(super) fn tenants(&self) -> usize {
        lock(&self.crowds).len()
    }

    /// How many subscriptions are followed.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

/// Marks a resource for those who subscribe to it.
async fn mark((topic, listeners): Concerned) {
    for listener in listeners {
        listener.mark_resource(&topic);
        consume_budget().await;
    }
}

pub(super) fn lock<T>(some: &Mutex<T>) -> MutexGuard<'_, T> {
    some.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Herald for Hub {
    fn changed(&self, tenant: &TenantName, what: Changed) {
        let flags =
            [(Kind::Tools, what.tools), (Kind::Prompts, what.prompts), (Kind::Resources, what.resources)];
        let kinds: Kinds = flags.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect();
        let Some(crowd) = self.crowd(tenant) else { return };
        let (everybody, is_stale) = {
            let crowd = lock(&crowd);
            (crowd.everybody(), crowd.is_deaf() || (what.resources && crowd.has_topics()))
        };
        everybody.iter().for_each(|listener| listener.mark(kinds));
        if is_stale {
            self.outdate(tenant);
        }
    }
}

impl Member {
    /// It subscribes to this resource, which is `entry`, from now on.
    pub fn want(&self, uri: &Arc<str>, entry: &Entry) -> Result<(), ListenError> {
        let mut crowd = lock(&self.crowd);
        let hub = &self.hub;
        let count = || hub.wishes.take(self.principal.clone(), hub.limits.caller_subscriptions, usize::MAX);
        if self.listener.want(uri, &hub.limits, count)? {
            crowd.want(hub, (self.id, &self.listener), uri, entry);
        }
        Ok(())
    }

    /// It does not subscribe to this resource any more.
    pub fn forget(&self, uri: &str) {
        let has_room = {
            let mut crowd = lock(&self.crowd);
            self.listener.forget(uri) && crowd.forget(self.id, uri)
        };
        if has_room {
            self.hub.outdate(&self.tenant);
        }
    }

    /// Whether there was no room for this resource at its backend.
    pub fn waits(&self, uri: &str) -> bool {
        lock(&self.crowd).waits(uri)
    }

    /// Whether it subscribes to any resource.
    pub fn has_resources(&self) -> bool {
        self.listener.has_resources()
    }

    /// Which of these resources that it subscribes to are honoured, as far as their backends have said by
    /// the end of `limits.subscription_time`. Those that are not it does not subscribe to any more. One that
    /// is late is honoured, and counts as changed when its backend comes.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn honoured(&self, uris: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let deadline = Instant::now() + self.hub.limits.subscription_time;
        let mut honoured = Vec::with_capacity(uris.len());
        for uri in uris {
            let source = lock(&self.crowd).source(&uri);
            let heard = match source {
                Some((strand, own)) => strand.settled(&own, deadline).await,
                None => Heard::Refused,
            };
            match heard {
                Heard::Refused => self.forget(&uri),
                Heard::Nothing | Heard::Failed | Heard::Honoured => honoured.push(uri),
            }
        }
        honoured
    }

    pub(super) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.hub.metrics
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.hub.limits
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let has_room = lock(&self.crowd).leave(self.id, &self.listener.resources());
        self.hub.tidy(&self.tenant, &self.crowd);
        if has_room {
            self.hub.outdate(&self.tenant);
        }
    }
}
