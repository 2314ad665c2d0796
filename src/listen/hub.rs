//! Who listens in each tenant, and who hears of a change.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::Notify;
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
use crate::listen::listener::Listener;
use crate::listen::places::Place;
use crate::listen::places::Places;
use crate::listen::task;
use crate::listen::upstream::Lines;
use crate::listen::upstream::strand;
use crate::listen::upstream::strand::Heard;
use crate::listen::upstream::strand::Strand;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;
use crate::telemetry::metrics::Metrics;

/// How many topics are moved before others have their turn.
const TURN: usize = 256;

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
    /// Behind one lock, which is held for as long as it takes to set bits.
    state: Mutex<State>,
    stale: Notify,
}

#[derive(Default)]
struct State {
    serial: u64,
    tenants: HashMap<TenantName, Crowd>,
    /// Tenants whose resources may have other homes now.
    stale: HashSet<TenantName>,
}

/// Those of one tenant. Forgotten when nobody is left.
#[derive(Default)]
struct Crowd {
    listeners: HashMap<u64, Arc<Listener>>,
    /// By public URI.
    topics: HashMap<Arc<str>, Topic>,
    lines: Lines,
}

/// A resource that somebody subscribes to.
#[derive(Default)]
struct Topic {
    listeners: HashSet<u64>,
    /// Where its changes come from, if its backend has room for it.
    source: Option<Source>,
}

struct Source {
    home: Arc<Home>,
    own: Arc<str>,
    strand: Arc<Strand>,
}

/// A place among the listeners, until it is dropped.
pub struct Member {
    hub: Arc<Hub>,
    tenant: TenantName,
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
        let (stop, state, stale) = (CancellationToken::new(), Mutex::default(), Notify::new());
        Arc::new(Self { limits, metrics, cache, tasks, stop, streams, sessions, state, stale })
    }

    /// A place for one more stream of `caller`.
    pub fn stream_place(&self, caller: &Caller) -> Result<Place, ListenError> {
        self.streams.take(caller).ok_or(ListenError::TooManyStreams)
    }

    /// A place for one more session of `caller` that subscribes to resources.
    pub fn session_place(&self, caller: &Caller) -> Result<Place, ListenError> {
        self.sessions.take(caller).ok_or(ListenError::TooManyResources)
    }

    /// One more listener, who misses nothing of `kinds` from now on.
    pub fn join(self: &Arc<Self>, tenant: &TenantName, kinds: Kinds) -> Member {
        let listener = Arc::new(Listener::new(kinds));
        let mut state = self.state();
        state.serial += 1;
        let id = state.serial;
        state.tenants.entry(tenant.clone()).or_default().listeners.insert(id, listener.clone());
        Member { hub: self.clone(), tenant: tenant.clone(), id, listener }
    }

    /// The contents of a resource of this backend have changed. Who subscribes to it hears of it, and who
    /// subscribes to what it lies below.
    ///
    /// spec: server/resources, schema ResourceUpdatedNotificationParams
    pub fn resource_changed(&self, tenant: &TenantName, backend: &BackendName, own: &str) {
        self.cache.purge(tenant, backend, Some(own));
        let state = self.state();
        let Some(crowd) = state.tenants.get(tenant) else { return };
        for own in upward(own, self.limits.uri_bytes) {
            crowd.lines.topics(backend, own).for_each(|topic| crowd.mark(topic));
        }
    }

    /// The same of one resource of one home, and of nothing above it.
    pub(super) fn missed(&self, tenant: &TenantName, home: &Arc<Home>, own: &str) {
        self.cache.purge(tenant, &home.config.name, Some(own));
        let state = self.state();
        let Some(crowd) = state.tenants.get(tenant) else { return };
        if let Some(topic) = crowd.lines.topic(home, own) {
            crowd.mark(topic);
        }
    }

    /// Waits until some tenants' resources may have other homes, and names those that are listened to.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn stale(&self) -> HashSet<TenantName> {
        loop {
            let told = self.stale.notified();
            let stale = std::mem::take(&mut self.state().stale);
            if !stale.is_empty() {
                return stale;
            }
            told.await;
        }
    }

    /// Every tenant may have another configuration now.
    pub fn reconsider(&self) {
        let mut state = self.state();
        let listened = state.tenants.iter().filter(|(_, crowd)| !crowd.topics.is_empty());
        let listened: Vec<_> = listened.map(|(tenant, _)| tenant.clone()).collect();
        state.stale.extend(listened);
        self.stale.notify_one();
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
        let uris: Vec<Arc<str>> = {
            let state = self.state();
            let topics = state.tenants.get(tenant).into_iter().flat_map(|crowd| crowd.topics.keys());
            topics.cloned().collect()
        };
        for some in uris.chunks(TURN) {
            let found: Vec<_> = some.iter().map(|uri| (uri, resolve(uri))).collect();
            if let Some(crowd) = self.state().tenants.get_mut(tenant) {
                for (uri, entry) in found {
                    crowd.move_topic(self, tenant, uri, entry.as_deref());
                }
            }
            tokio::task::yield_now().await;
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
        let mut state = self.state();
        let Some(crowd) = state.tenants.get_mut(strand.tenant()) else { return true };
        let gone = crowd.lines.dismiss(strand);
        if crowd.is_empty() {
            state.tenants.remove(strand.tenant());
        }
        gone
    }

    /// How many tenants are known.
    #[cfg(test)]
    pub(super) fn tenants(&self) -> usize {
        self.state().tenants.len()
    }

    /// How many subscriptions are followed.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Herald for Hub {
    fn changed(&self, tenant: &TenantName, what: Changed) {
        let flags =
            [(Kind::Tools, what.tools), (Kind::Prompts, what.prompts), (Kind::Resources, what.resources)];
        let kinds: Kinds = flags.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect();
        let mut state = self.state();
        let Some(crowd) = state.tenants.get(tenant) else { return };
        crowd.listeners.values().for_each(|listener| listener.mark(kinds));
        if what.resources && !crowd.topics.is_empty() {
            state.stale.insert(tenant.clone());
            self.stale.notify_one();
        }
    }
}

impl Crowd {
    fn mark(&self, uri: &str) {
        let topic = self.topics.get(uri);
        let listeners = topic.into_iter().flat_map(|topic| &topic.listeners);
        listeners.filter_map(|id| self.listeners.get(id)).for_each(|listener| listener.mark_resource(uri));
    }

    /// One listener less for a resource, and the resource with the last one.
    fn forget(&mut self, id: u64, uri: &str) {
        let Some(topic) = self.topics.get_mut(uri) else { return };
        topic.listeners.remove(&id);
        if topic.listeners.is_empty() {
            let source = self.topics.remove(uri).and_then(|topic| topic.source);
            source.into_iter().for_each(|source| self.lines.remove(&source.home, &source.own));
        }
    }

    /// A resource is where `entry` says, and what it said before is not known: it counts as changed once
    /// it is subscribed to there.
    fn move_topic(&mut self, hub: &Arc<Hub>, tenant: &TenantName, uri: &Arc<str>, entry: Option<&Entry>) {
        let Some(topic) = self.topics.get_mut(uri) else { return };
        let stays = match (&topic.source, entry) {
            (Some(source), Some(entry)) => Arc::ptr_eq(&source.home, &entry.home) && source.own == entry.own,
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if stays {
            return;
        }
        if let Some(source) = topic.source.take() {
            self.lines.remove(&source.home, &source.own);
        }
        topic.source = entry.and_then(|entry| self.lines.link(hub, tenant, uri, entry, true));
    }

    fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.topics.is_empty() && self.lines.is_empty()
    }
}

impl Lines {
    fn link(
        &mut self,
        hub: &Arc<Hub>,
        tenant: &TenantName,
        uri: &Arc<str>,
        entry: &Entry,
        late: bool,
    ) -> Option<Source> {
        let strand = self.add(hub, tenant, uri, entry, late)?;
        Some(Source { home: entry.home.clone(), own: entry.own.clone(), strand })
    }
}

impl Member {
    /// It subscribes to this resource, which is `entry`, from now on.
    pub fn want(&self, uri: &Arc<str>, entry: &Entry) -> Result<(), ListenError> {
        let mut state = self.hub.state();
        if !self.listener.want(uri, &self.hub.limits)? {
            return Ok(());
        }
        let Some(crowd) = state.tenants.get_mut(&self.tenant) else { return Ok(()) };
        let topic = crowd.topics.entry(uri.clone()).or_default();
        topic.listeners.insert(self.id);
        // What a task is at by now is news for who comes to listen to it.
        let is_task = task::read(uri).is_some();
        if topic.source.is_none() {
            topic.source = crowd.lines.link(&self.hub, &self.tenant, uri, entry, is_task);
        } else if is_task {
            self.listener.mark_resource(uri);
        }
        Ok(())
    }

    /// It does not subscribe to this resource any more.
    pub fn forget(&self, uri: &str) {
        let mut state = self.hub.state();
        if self.listener.forget(uri)
            && let Some(crowd) = state.tenants.get_mut(&self.tenant)
        {
            crowd.forget(self.id, uri);
        }
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
            let heard = match self.source(&uri) {
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

    /// Where the changes of a resource come from.
    fn source(&self, uri: &str) -> Option<(Arc<Strand>, Arc<str>)> {
        let state = self.hub.state();
        let source = state.tenants.get(&self.tenant)?.topics.get(uri)?.source.as_ref()?;
        Some((source.strand.clone(), source.own.clone()))
    }

    pub(super) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.hub.metrics
    }

    pub(super) fn pause(&self) -> std::time::Duration {
        self.hub.limits.notification_pause
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        let Some(crowd) = state.tenants.get_mut(&self.tenant) else { return };
        crowd.listeners.remove(&self.id);
        self.listener.resources().iter().for_each(|uri| crowd.forget(self.id, uri));
        if crowd.is_empty() {
            state.tenants.remove(&self.tenant);
        }
    }
}
