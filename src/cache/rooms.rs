//! What is kept, tenant by tenant. A tenant that is over its bound loses its own oldest; where all are
//! over theirs together, the one that has most does: nobody's results push out those of somebody who
//! has less.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::Kept;
use crate::cache::Told;
use crate::model::name::BackendName;
use crate::model::name::TenantName;

/// What an entry weighs beside its text.
const OVERHEAD: usize = 512;

/// What a result is kept under. The order puts those of one URI side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) backend: BackendName,
    pub(super) uri: Arc<str>,
    pub(super) variant: [u8; 32],
    /// `None` where everybody may have it.
    pub(super) principal: Option<[u8; 32]>,
}

/// What is kept and what is being asked, of all tenants.
#[derive(Default)]
pub(super) struct Rooms {
    tenants: HashMap<TenantName, Room>,
    bytes: usize,
    /// Counts everything: lookups, which makes them an order, and flights.
    tick: u64,
}

#[derive(Default)]
struct Room {
    bytes: usize,
    rows: BTreeMap<Key, Row>,
    /// The keys by when they were last asked for.
    order: BTreeMap<u64, Key>,
    /// Who is asking now and may keep the answer.
    flights: HashMap<u64, Key>,
    /// Those of them that others may wait for.
    shared: HashMap<Key, (u64, watch::Receiver<Told>)>,
}

struct Row {
    kept: Arc<Kept>,
    until: Instant,
    bytes: usize,
    used: u64,
}

impl Rooms {
    /// What all of it weighs.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is kept under this key, if it is still good.
    pub(super) fn get(&mut self, tenant: &TenantName, key: &Key, now: Instant) -> Option<Arc<Kept>> {
        let room = self.tenants.get_mut(tenant)?;
        let row = room.rows.get_mut(key)?;
        if row.until <= now {
            self.bytes -= room.remove(key);
            self.leave(tenant);
            return None;
        }
        self.tick += 1;
        room.order.remove(&row.used);
        row.used = self.tick;
        room.order.insert(self.tick, key.clone());
        Some(row.kept.clone())
    }

    /// What somebody says who is asking for this key, if anybody is.
    pub(super) fn waiting(&self, tenant: &TenantName, key: &Key) -> Option<watch::Receiver<Told>> {
        let (_, waiting) = self.tenants.get(tenant)?.shared.get(key)?;
        Some(waiting.clone())
    }

    /// Somebody begins to ask, for a principal; others may wait for it where it is `shared`.
    pub(super) fn begin(
        &mut self,
        tenant: &TenantName,
        key: Key,
        shared: Option<(Key, watch::Receiver<Told>)>,
    ) -> u64 {
        self.tick += 1;
        let room = self.tenants.entry(tenant.clone()).or_default();
        room.flights.insert(self.tick, key);
        if let Some((key, waiting)) = shared {
            room.shared.insert(key, (self.tick, waiting));
        }
        self.tick
    }

    /// Somebody has ended asking. Says whether the answer may be kept: not if it was purged meanwhile.
    pub(super) fn end(&mut self, tenant: &TenantName, number: u64) -> bool {
        let Some(room) = self.tenants.get_mut(tenant) else { return false };
        let Some(key) = room.flights.remove(&number) else { return false };
        for key in [Key { principal: None, ..key.clone() }, key] {
            if room.shared.get(&key).is_some_and(|(other, _)| *other == number) {
                room.shared.remove(&key);
            }
        }
        self.leave(tenant);
        true
    }

    /// Keeps a result until then, within `most` bytes of all and of the tenant. Says how many others had
    /// to go.
    pub(super) fn insert(
        &mut self,
        tenant: &TenantName,
        key: Key,
        kept: &Arc<Kept>,
        until: Instant,
        (most, most_each): (usize, usize),
    ) -> u64 {
        let bytes = kept.result.bytes().len() + key.uri.len() + OVERHEAD;
        if bytes > most_each {
            return 0;
        }
        self.tick += 1;
        let room = self.tenants.entry(tenant.clone()).or_default();
        self.bytes -= room.remove(&key);
        room.order.insert(self.tick, key.clone());
        room.rows.insert(key, Row { kept: kept.clone(), until, bytes, used: self.tick });
        room.bytes += bytes;
        self.bytes += bytes;
        let mut evicted = 0;
        while room.bytes > most_each
            && let Some(freed) = room.evict()
        {
            self.bytes -= freed;
            evicted += 1;
        }
        while self.bytes > most {
            let largest = self.tenants.iter_mut().max_by_key(|(_, room)| room.bytes);
            let Some((name, room)) = largest else { break };
            let Some(freed) = room.evict() else { break };
            let name = name.clone();
            self.bytes -= freed;
            evicted += 1;
            self.leave(&name);
        }
        evicted
    }

    /// Forgets what is kept, and who may keep what it is asking for: of a URI, and of all below it, or of
    /// all.
    pub(super) fn purge(&mut self, tenant: &TenantName, backend: &BackendName, uri: Option<&str>) {
        let Some(room) = self.tenants.get_mut(tenant) else { return };
        let below = uri.map(|uri| if uri.ends_with('/') { uri.to_owned() } else { format!("{uri}/") });
        let is_below = |key: &Key| below.as_ref().is_none_or(|below| key.uri.starts_with(&**below));
        let meant =
            |key: &Key| key.backend == *backend && (is_below(key) || uri.is_some_and(|uri| *key.uri == *uri));
        // What is below it does not follow it: other URIs may stand between them.
        let mut keys = Vec::new();
        for first in [Some(uri.unwrap_or_default()), below.as_deref()].into_iter().flatten() {
            let first =
                Key { backend: backend.clone(), uri: first.into(), variant: [0; 32], principal: None };
            let rows = room.rows.range(first..).map(|(key, _)| key);
            keys.extend(rows.take_while(|key| meant(key)).cloned());
        }
        for key in keys {
            self.bytes -= room.remove(&key);
        }
        room.flights.retain(|_, key| !meant(key));
        room.shared.retain(|key, _| !meant(key));
        self.leave(tenant);
    }

    /// Forgets a tenant of which there is nothing.
    fn leave(&mut self, tenant: &TenantName) {
        if self.tenants.get(tenant).is_some_and(|room| room.rows.is_empty() && room.flights.is_empty()) {
            self.tenants.remove(tenant);
        }
    }
}

impl Room {
    /// Says what it weighed.
    fn remove(&mut self, key: &Key) -> usize {
        let Some(row) = self.rows.remove(key) else { return 0 };
        self.order.remove(&row.used);
        self.bytes -= row.bytes;
        row.bytes
    }

    /// Removes what was not asked for for the longest time.
    fn evict(&mut self) -> Option<usize> {
        let (_, key) = self.order.pop_first()?;
        Some(self.remove(&key))
    }
}
