//! The catalogs of single callers that are kept, tenant by tenant.
//!
//! A tenant that has more than its share loses those that were not asked for longest; where all have more
//! than there may be, the tenant that has most does: nobody's callers push out those of somebody who has less.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::refresh::callers::Key;
use crate::catalog::refresh::callers::own::Own;
use crate::model::limits::Limits;
use crate::telemetry::metrics::Metrics;

/// A tenant may have one of so many parts of all, by number and by weight; one caller, of its tenant's by weight.
const PARTS: usize = 4;

/// How often it is looked, in the time that a catalog is kept, for those that nobody asks for.
const LOOKS: u32 = 4;

/// All that are kept in this process.
pub(in crate::catalog::refresh) struct Rooms {
    most: usize,
    most_bytes: usize,
    idle: Duration,
    all: Mutex<All>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct All {
    rooms: HashMap<u64, Kept>,
    count: usize,
    bytes: usize,
    /// Counts what is asked for, which makes it an order, and rooms.
    tick: u64,
}

/// Those of one tenant.
#[derive(Default)]
struct Kept {
    callers: HashMap<Key, Held>,
    /// The keys by when they were last asked for.
    order: BTreeMap<u64, Key>,
    bytes: usize,
}

struct Held {
    own: Arc<Own>,
    bytes: usize,
    tick: u64,
    used: Instant,
}

/// The place of one tenant's. It ends with this.
pub(super) struct Room {
    rooms: Arc<Rooms>,
    number: u64,
}

impl Rooms {
    /// Nothing is kept yet.
    pub(in crate::catalog::refresh) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            most: limits.caller_catalogs,
            most_bytes: limits.caller_catalog_bytes,
            idle: limits.caller_catalog_idle,
            all: Mutex::default(),
            metrics,
        })
    }

    /// A room for one more tenant.
    pub(super) fn open(self: &Arc<Self>) -> Room {
        let mut all = self.all();
        all.tick += 1;
        let number = all.tick;
        all.rooms.insert(number, Kept::default());
        Room { rooms: self.clone(), number }
    }

    /// Forgets, until `stop` is cancelled, what nobody asks for any more.
    pub(in crate::catalog::refresh) async fn tend(self: Arc<Self>, stop: CancellationToken) {
        let pause = (self.idle / LOOKS).max(Duration::from_millis(10));
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let mut all = self.all();
            let before = Instant::now().checked_sub(self.idle);
            let numbers: Vec<u64> = all.rooms.keys().copied().collect();
            for number in numbers {
                while all.oldest(number).is_some_and(|used| before.is_some_and(|before| used <= before)) {
                    all.evict(number);
                }
            }
            self.count(&all);
        }
    }

    fn count(&self, all: &All) {
        self.metrics.callers.kept(all.count, all.bytes);
    }

    /// Makes room. Says how many had to go.
    fn fit(&self, all: &mut All, number: u64) -> u64 {
        let (each, each_bytes) = (self.most / PARTS, self.most_bytes / PARTS);
        let mut gone = 0;
        while all.rooms.get(&number).is_some_and(|one| one.callers.len() > each || one.bytes > each_bytes)
            && all.evict(number)
        {
            gone += 1;
        }
        while all.count > self.most || all.bytes > self.most_bytes {
            let by_bytes = all.bytes > self.most_bytes;
            let size = |one: &Kept| if by_bytes { one.bytes } else { one.callers.len() };
            let largest = all.rooms.iter().max_by_key(|(_, one)| size(one)).map(|(number, _)| *number);
            if !largest.is_some_and(|largest| all.evict(largest)) {
                break;
            }
            gone += 1;
        }
        gone
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    /// When the one was asked for that was not asked for longest.
    fn oldest(&self, number: u64) -> Option<Instant> {
        let room = self.rooms.get(&number)?;
        let (_, key) = room.order.first_key_value()?;
        room.callers.get(key).map(|held| held.used)
    }

    /// Forgets that one. `false` if there is none.
    fn evict(&mut self, number: u64) -> bool {
        let Some(room) = self.rooms.get_mut(&number) else { return false };
        let Some((_, key)) = room.order.pop_first() else { return false };
        let held = room.callers.remove(&key);
        held.iter().for_each(|held| held.own.leave());
        let bytes = held.map_or(0, |held| held.bytes);
        room.bytes -= bytes;
        self.bytes -= bytes;
        self.count -= 1;
        true
    }
}

impl Room {
    /// What one caller's catalog may weigh.
    pub(super) fn share(&self) -> usize {
        self.rooms.most_bytes / PARTS / PARTS
    }

    /// The catalog of this caller, made if there is none. `None` once the room is closed.
    pub(super) fn enter(&self, key: &Key, new: impl FnOnce(&Key) -> Own) -> Option<Arc<Own>> {
        let mut all = self.rooms.all();
        all.tick += 1;
        let tick = all.tick;
        let room = all.rooms.get_mut(&self.number)?;
        if let Some(held) = room.callers.get_mut(key) {
            room.order.remove(&held.tick);
            room.order.insert(tick, key.clone());
            (held.tick, held.used) = (tick, Instant::now());
            return Some(held.own.clone());
        }
        let own = Arc::new(new(key));
        let held = Held { own: own.clone(), bytes: 0, tick, used: Instant::now() };
        room.callers.insert(key.clone(), held);
        room.order.insert(tick, key.clone());
        all.count += 1;
        let gone = self.rooms.fit(&mut all, self.number);
        self.rooms.metrics.callers.evicted(gone);
        self.rooms.count(&all);
        Some(own)
    }

    /// The catalog of this caller weighs so much now, if it is still kept.
    pub(super) fn weigh(&self, key: &Key, own: &Arc<Own>, bytes: usize) {
        let mut all = self.rooms.all();
        let Some(room) = all.rooms.get_mut(&self.number) else { return };
        let Some(held) = room.callers.get_mut(key).filter(|held| Arc::ptr_eq(&held.own, own)) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        room.bytes = room.bytes - before + bytes;
        all.bytes = all.bytes - before + bytes;
        let gone = self.rooms.fit(&mut all, self.number);
        self.rooms.metrics.callers.evicted(gone);
        self.rooms.count(&all);
    }

    /// Does this with each of them.
    pub(super) fn each(&self, does: impl Fn(&Own)) {
        let all = self.rooms.all();
        let owns: Vec<_> =
            all.rooms.get(&self.number).into_iter().flat_map(|room| room.callers.values()).collect();
        owns.into_iter().for_each(|held| does(&held.own));
    }

    /// Forgets all of them, and keeps no other one.
    pub(super) fn close(&self) {
        let mut all = self.rooms.all();
        if let Some(room) = all.rooms.remove(&self.number) {
            room.callers.values().for_each(|held| held.own.leave());
            all.count -= room.callers.len();
            all.bytes -= room.bytes;
            self.rooms.count(&all);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::Room;
    use super::Rooms;
    use crate::catalog::refresh::callers::Key;
    use crate::catalog::refresh::callers::own::Own;
    use crate::model::caller::Caller;
    use crate::model::limits::Limits;
    use crate::model::name::TenantName;
    use crate::model::scope::Scopes;
    use crate::protocol::able::Able;

    fn key(name: &str) -> Key {
        Key { principal: name.to_owned(), extensions: BTreeSet::new(), able: Able::default() }
    }

    fn new(_: &Key) -> Own {
        let alice = Caller {
            tenant: TenantName::new("acme").unwrap(),
            issuer: "https://issuer.example".into(),
            subject: "alice".into(),
            client: None,
            scopes: Scopes::default(),
            expires_at: u64::MAX,
        };
        Own::new(&Arc::new(alice), &[], |_| (BTreeSet::new(), Able::default()))
    }

    /// Those that are kept, and their weight.
    fn kept(room: &Room) -> (Vec<String>, usize) {
        let all = room.rooms.all();
        let room = all.rooms.get(&room.number).unwrap();
        let mut names: Vec<_> = room.callers.keys().map(|key| key.principal.clone()).collect();
        names.sort();
        (names, room.bytes)
    }

    #[test]
    fn where_all_have_too_much_the_one_that_has_most_loses_its_oldest() {
        let limits = Limits { caller_catalogs: 8, caller_catalog_bytes: 400, ..Limits::default() };
        let rooms = Rooms::new(&limits, Arc::default());
        let tenants: Vec<Room> = (0..5).map(|_| rooms.open()).collect();
        for room in &tenants[..4] {
            for name in ["a", "b", "a", "c", "a"] {
                room.enter(&key(name), new).unwrap();
            }
            assert_eq!(kept(room).0, ["a", "c"], "a tenant's share is two, and the oldest leaves");
        }
        // All are as many as may be: one of those who have two gives one.
        let small = tenants[4].enter(&key("z"), new).unwrap();
        assert_eq!(kept(&tenants[4]).0, ["z"]);
        assert_eq!(tenants.iter().map(|room| kept(room).0.len()).sum::<usize>(), 8);
        tenants[4].weigh(&key("z"), &small, 60);
        for room in &tenants[..4] {
            if let Some(own) = room.enter(&key("a"), new) {
                room.weigh(&key("a"), &own, 90);
            }
        }
        assert_eq!(kept(&tenants[4]), (vec!["z".to_owned()], 60), "who has less loses nothing");
        assert!(rooms.all().bytes <= 400);
        tenants[4].weigh(&key("z"), &small, 101);
        assert_eq!(kept(&tenants[4]), (Vec::new(), 0), "more than a share is not kept");
        // What is not kept any more weighs nothing, whatever it comes to.
        tenants[4].weigh(&key("z"), &small, 10);
        assert_eq!(kept(&tenants[4]).1, 0);
        tenants[0].close();
        assert!(tenants[0].enter(&key("a"), new).is_none());
        drop(tenants);
        let all = rooms.all();
        assert_eq!((all.rooms.len(), all.count, all.bytes), (0, 0, 0));
    }
}
