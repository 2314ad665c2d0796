//! What the pool keeps: which session is whose, who uses it, and what becomes of it. No waiting in here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::future::Shared;
use tokio::time::Instant;

use crate::backend::Account;
use crate::backend::BackendError;
use crate::backend::legacy::session::Session;
use crate::backend::legacy::session::Unopened;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::model::tally::Counted;

/// How many sessions with one server a caller may have: its clients differ in the extensions that they
/// declare.
const HOLDER_SESSIONS: usize = 4;

/// Whose session it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend) enum Holder {
    /// The gateway's own, for lists that all callers share.
    Gateway,
    /// A caller's, by its principal.
    Caller(Arc<str>),
}

impl Holder {
    /// Whose session `caller`'s requests are sent in.
    pub(in crate::backend) fn of(caller: &Caller) -> Self {
        Self::Caller(caller.principal().into())
    }

    /// Whose session it is listed in.
    pub(in crate::backend) fn of_account(account: &Account) -> Self {
        match account {
            Account::Gateway => Self::Gateway,
            Account::Caller { caller, .. } => Self::of(caller),
        }
    }
}

/// What only requests that are the same in all of it may share a session for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) holder: Holder,
    /// Which value of the credential it was opened with.
    pub(super) credential: u64,
    /// The capabilities that it declares.
    pub(super) capabilities: Bytes,
}

/// The sessions with one server that are not over.
#[derive(Default)]
pub(super) struct Sessions {
    /// What a key finds.
    current: HashMap<Key, Place>,
    /// Every session that is not over.
    held: HashMap<u64, Held>,
    /// How many are being opened.
    openings: usize,
    next_serial: u64,
    /// The newest value of the credential that was seen.
    credential: u64,
    /// Whether somebody watches for those that nobody uses.
    pub(super) watched: bool,
}

enum Place {
    /// It is being opened; whoever needs it waits for the same.
    Opening(Opened),
    Open(u64),
}

/// The end of an opening, for all who wait for it.
pub(super) type Opened = Shared<BoxFuture<'static, Result<(), Unopened>>>;

/// A session, and who uses it.
pub(super) struct Held {
    pub(super) session: Arc<Session>,
    key: Key,
    /// What it takes of all the sessions that there may be; the gateway's own take nothing.
    seat: Option<Counted<TenantName>>,
    /// Requests that use it.
    leases: usize,
    /// When it was last taken or given back.
    pub(super) used: Instant,
    pub(super) fate: Fate,
}

/// Room for one more session.
pub(super) struct Room {
    pub(super) seat: Option<Counted<TenantName>>,
    /// The session that had to go for it.
    pub(super) oldest: Option<Held>,
}

/// What becomes of a session when nobody uses it any more.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fate {
    /// It waits for the next one.
    Stays,
    /// Its server is told that it is over.
    Ends,
    /// Its server does not know it any more.
    Gone,
}

/// What a key found.
pub(super) enum Found {
    /// A session, which is leased with this.
    Open(u64, Arc<Session>),
    /// One that is being opened.
    Opening(Opened),
}

impl Sessions {
    /// Whether there is one that can be found.
    pub(super) fn has_any(&self) -> bool {
        self.held.values().any(|held| held.fate == Fate::Stays)
    }

    /// Whether a newer value of the credential was seen.
    pub(super) fn is_outdated(&self, key: &Key) -> bool {
        key.credential < self.credential
    }

    /// What `key` finds.
    pub(super) fn find(&mut self, key: &Key) -> Option<Found> {
        match self.current.get(key)? {
            Place::Opening(opened) => Some(Found::Opening(opened.clone())),
            Place::Open(serial) => {
                let held = self.held.get_mut(serial).expect("what is found by a key is held");
                held.leases += 1;
                held.used = Instant::now();
                Some(Found::Open(*serial, held.session.clone()))
            }
        }
    }

    /// A session is being opened.
    pub(super) fn opening(&mut self, key: Key, opened: Opened) {
        self.openings += 1;
        self.current.insert(key, Place::Opening(opened));
    }

    /// The opening of this key is over.
    pub(super) fn opened(&mut self, key: &Key) {
        self.openings -= 1;
        self.current.remove(key);
    }

    /// Puts a session where it is found. One of an earlier value of the credential is returned.
    pub(super) fn put(
        &mut self,
        key: Key,
        session: Arc<Session>,
        seat: Option<Counted<TenantName>>,
    ) -> Option<Held> {
        let held = Held { session, key, seat, leases: 0, used: Instant::now(), fate: Fate::Stays };
        if self.is_outdated(&held.key) {
            return Some(held);
        }
        self.next_serial += 1;
        self.current.insert(held.key.clone(), Place::Open(self.next_serial));
        self.held.insert(self.next_serial, held);
        None
    }

    /// A request does not use this session any more. It is returned if it ends with that.
    pub(super) fn give_back(&mut self, serial: u64, retired: bool) -> Option<Held> {
        let held = self.held.get_mut(&serial)?;
        held.leases -= 1;
        held.used = Instant::now();
        let over = held.leases == 0 && (held.fate != Fate::Stays || retired);
        if over { self.take(serial) } else { None }
    }

    /// Takes care that this session is not found again.
    pub(super) fn let_go(&mut self, serial: u64, fate: Fate) {
        let Some(held) = self.held.get_mut(&serial) else { return };
        if held.fate == Fate::Stays {
            held.fate = fate;
            let key = held.key.clone();
            self.unplace(&key, serial);
        }
    }

    /// Everything there is. What is being opened stays until it is open.
    pub(super) fn take_all(&mut self) -> Vec<Held> {
        self.current.retain(|_, place| matches!(place, Place::Opening(_)));
        self.held.drain().map(|(_, held)| held).collect()
    }

    /// When the next session will have been unused for `idle`, if all go on as they are.
    pub(super) fn next_idle(&self, idle: Duration) -> Option<Instant> {
        let now = Instant::now();
        let used = |held: &Held| if held.leases > 0 { now } else { held.used };
        self.held.values().map(used).min().map(|used| used + idle)
    }

    /// Takes a session out.
    fn take(&mut self, serial: u64) -> Option<Held> {
        let held = self.held.remove(&serial)?;
        self.unplace(&held.key, serial);
        Some(held)
    }

    fn unplace(&mut self, key: &Key, serial: u64) {
        // Somebody may have opened another one in its place.
        if matches!(self.current.get(key), Some(Place::Open(now)) if *now == serial) {
            self.current.remove(key);
        }
    }

    /// Takes out those that nobody uses and that are `wanted`.
    pub(super) fn take_idle(&mut self, wanted: impl Fn(&Held) -> bool) -> Vec<Held> {
        let idle = self.held.iter().filter(|(_, held)| held.leases == 0 && wanted(held));
        let serials: Vec<u64> = idle.map(|(serial, _)| *serial).collect();
        serials.into_iter().filter_map(|serial| self.take(serial)).collect()
    }

    /// Sees a value of the credential. Sessions of earlier values are for nobody any more; those of them
    /// that are not in use are returned.
    pub(super) fn renew(&mut self, credential: u64) -> Vec<Held> {
        if credential <= self.credential {
            return Vec::new();
        }
        self.credential = credential;
        let Self { current, held, .. } = self;
        current.retain(|key, place| key.credential >= credential || matches!(place, Place::Opening(_)));
        held.values_mut()
            .filter(|held| held.key.credential < credential && held.fate == Fate::Stays)
            .for_each(|held| {
                held.fate = Fate::Ends;
                // The next watch belongs in a session of the newer one.
                held.session.ear().watchers.end();
            });
        self.take_idle(|held| held.fate != Fate::Stays)
    }

    /// Makes room for one more session of `holder`, at the cost of the one that was not used for longest:
    /// among `most` in here, and among all there are, where `seat` finds a free one. A caller that has as
    /// many as it may makes room among its own.
    pub(super) fn make_room(
        &mut self,
        holder: &Holder,
        most: usize,
        seat: impl FnOnce() -> Option<Counted<TenantName>>,
    ) -> Result<Room, BackendError> {
        let is_caller = *holder != Holder::Gateway;
        let mut room = Room { seat: is_caller.then(seat).flatten(), oldest: None };
        let needs_seat = is_caller && room.seat.is_none();
        let among_own = is_caller && self.number_of(holder) >= HOLDER_SESSIONS;
        if self.held.len() + self.openings < most && !needs_seat && !among_own {
            return Ok(room);
        }
        let gives = |held: &Held| {
            held.leases == 0
                && (held.seat.is_some() || !needs_seat)
                && (!among_own || held.key.holder == *holder)
        };
        let idle = self.held.iter().filter(|(_, held)| gives(held));
        let oldest = idle.min_by_key(|(_, held)| held.used).map(|(serial, _)| *serial);
        let mut oldest = oldest.and_then(|serial| self.take(serial)).ok_or(BackendError::Busy)?;
        if needs_seat {
            room.seat = oldest.seat.take();
        }
        room.oldest = Some(oldest);
        Ok(room)
    }
    /// How many sessions `holder` has, and openings.
    fn number_of(&self, holder: &Holder) -> usize {
        let held = self.held.values().filter(|held| held.key.holder == *holder).count();
        let is_opening =
            |(key, place): &(&Key, &Place)| key.holder == *holder && matches!(place, Place::Opening(_));
        held + self.current.iter().filter(is_opening).count()
    }
}
