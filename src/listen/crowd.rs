//! Those who listen in one tenant, and the resources that they subscribe to.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::listen::hub::Hub;
use crate::listen::listener::Listener;
use crate::listen::task;
use crate::listen::upstream::Lines;
use crate::listen::upstream::strand::Strand;
use crate::model::name::BackendName;
use crate::model::name::TenantName;

/// The listeners of one tenant.
pub(super) struct Crowd {
    tenant: TenantName,
    listeners: HashMap<u64, Arc<Listener>>,
    /// By public URI.
    topics: HashMap<Arc<str>, Topic>,
    lines: Lines,
    /// The topics whose resources are nowhere.
    nowhere: HashSet<Arc<str>>,
    /// The topics that there was no room for at their backends.
    waiting: HashSet<Arc<str>>,
    /// Nobody was left: who comes now belongs to another crowd.
    has_ended: bool,
}

/// A resource that somebody subscribes to.
#[derive(Default)]
struct Topic {
    listeners: HashMap<u64, Arc<Listener>>,
    /// Where its changes come from, if its backend has room for it.
    source: Option<Source>,
}

struct Source {
    home: Arc<Home>,
    own: Arc<str>,
    strand: Arc<Strand>,
}

/// A resource by its public URI, and who subscribes to it.
pub(super) type Concerned = (Arc<str>, Vec<Arc<Listener>>);

impl Crowd {
    pub(super) fn new(tenant: TenantName) -> Self {
        Self {
            tenant,
            listeners: HashMap::new(),
            topics: HashMap::new(),
            lines: Lines::default(),
            nowhere: HashSet::new(),
            waiting: HashSet::new(),
            has_ended: false,
        }
    }

    /// One listener more. `false` if the crowd has ended.
    pub(super) fn join(&mut self, id: u64, listener: &Arc<Listener>) -> bool {
        if !self.has_ended {
            self.listeners.insert(id, listener.clone());
        }
        !self.has_ended
    }

    /// One listener less, who subscribed to `uris`. `true` if there is room now for what waits for some.
    pub(super) fn leave(&mut self, id: u64, uris: &[Arc<str>]) -> bool {
        self.listeners.remove(&id);
        uris.iter().filter(|uri| self.forget(id, uri)).count() > 0
    }

    /// Ends it if nobody is left. Whether it has ended.
    pub(super) fn end(&mut self) -> bool {
        self.has_ended = self.listeners.is_empty() && self.topics.is_empty() && self.lines.is_empty();
        self.has_ended
    }

    pub(super) fn everybody(&self) -> Vec<Arc<Listener>> {
        self.listeners.values().cloned().collect()
    }

    /// Who subscribes to what a backend of this name knows as `own`.
    pub(super) fn concerned(&self, backend: &BackendName, own: &str) -> Vec<Concerned> {
        self.lines.topics(backend, own).map(|topic| self.subscribers(topic)).collect()
    }

    /// The same of one home.
    pub(super) fn concerned_at(&self, home: &Arc<Home>, own: &str) -> Option<Concerned> {
        self.lines.topic(home, own).map(|topic| self.subscribers(topic))
    }

    fn subscribers(&self, topic: &Arc<str>) -> Concerned {
        let listeners = self.topics.get(topic).into_iter().flat_map(|topic| topic.listeners.values());
        (topic.clone(), listeners.cloned().collect())
    }

    /// The public URIs that are subscribed to.
    pub(super) fn topics(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    pub(super) fn has_topics(&self) -> bool {
        !self.topics.is_empty()
    }

    /// Whether there is something that nothing is heard of.
    pub(super) fn is_deaf(&self) -> bool {
        !self.nowhere.is_empty() || !self.waiting.is_empty()
    }

    /// Whether there was no room for a resource at its backend.
    pub(super) fn waits(&self, uri: &str) -> bool {
        self.waiting.contains(uri)
    }

    /// This listener subscribes to a resource, which is `entry`.
    pub(super) fn want(
        &mut self,
        hub: &Arc<Hub>,
        (id, listener): (u64, &Arc<Listener>),
        uri: &Arc<str>,
        entry: &Entry,
    ) {
        let topic = self.topics.entry(uri.clone()).or_default();
        topic.listeners.insert(id, listener.clone());
        // What a task is at by now is news for who comes to listen to it.
        let is_task = task::read(uri).is_some();
        if topic.source.is_none() {
            self.link(hub, uri, Some(entry), is_task);
        } else if is_task {
            listener.mark_resource(uri);
        }
    }

    /// One listener less for a resource, and the resource with the last one. `true` if there is room now
    /// for what waits for some.
    pub(super) fn forget(&mut self, id: u64, uri: &str) -> bool {
        let Some(topic) = self.topics.get_mut(uri) else { return false };
        topic.listeners.remove(&id);
        if !topic.listeners.is_empty() {
            return false;
        }
        let source = self.topics.remove(uri).and_then(|topic| topic.source);
        self.nowhere.remove(uri);
        self.waiting.remove(uri);
        self.unlink(source)
    }

    /// A resource is where `entry` says, and what it said before is not known: it counts as changed once
    /// it is subscribed to there. `true` if there is room now for what waits for some.
    pub(super) fn move_topic(&mut self, hub: &Arc<Hub>, uri: &Arc<str>, entry: Option<&Entry>) -> bool {
        let Some(topic) = self.topics.get_mut(uri) else { return false };
        let stays = match (&topic.source, entry) {
            (Some(source), Some(entry)) => Arc::ptr_eq(&source.home, &entry.home) && source.own == entry.own,
            (None, _) | (Some(_), None) => false,
        };
        if stays {
            return false;
        }
        let source = topic.source.take();
        let has_room = self.unlink(source);
        self.link(hub, uri, entry, true);
        has_room
    }

    fn link(&mut self, hub: &Arc<Hub>, uri: &Arc<str>, entry: Option<&Entry>, late: bool) {
        let source = entry.and_then(|entry| {
            let strand = self.lines.add(hub, &self.tenant, uri, entry, late)?;
            Some(Source { home: entry.home.clone(), own: entry.own.clone(), strand })
        });
        self.nowhere.remove(uri);
        self.waiting.remove(uri);
        match (&source, entry) {
            (Some(_), _) => {}
            (None, Some(_)) => drop(self.waiting.insert(uri.clone())),
            (None, None) => drop(self.nowhere.insert(uri.clone())),
        }
        if let Some(topic) = self.topics.get_mut(uri) {
            topic.source = source;
        }
    }

    fn unlink(&mut self, source: Option<Source>) -> bool {
        let Some(source) = source else { return false };
        self.lines.remove(&source.home, &source.own);
        !self.waiting.is_empty()
    }

    /// Where the changes of a resource come from.
    pub(super) fn source(&self, uri: &str) -> Option<(Arc<Strand>, Arc<str>)> {
        let source = self.topics.get(uri)?.source.as_ref()?;
        Some((source.strand.clone(), source.own.clone()))
    }

    /// Forgets a strand that nobody wants any more. `false` if somebody does.
    pub(super) fn dismiss(&mut self, strand: &Arc<Strand>) -> bool {
        self.lines.dismiss(strand)
    }
}
