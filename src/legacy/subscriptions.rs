//! What sessions hear of: all lists, and the resources that they have subscribed to.
//!
//! A session that neither listens nor subscribes leaves nothing here. One that subscribes is a listener
//! whether a stream of it is open or not: what changes meanwhile is told on the next one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::legacy::session::Key;
use crate::legacy::session::Session;
use crate::listen::hub::Hub;
use crate::listen::hub::Member;
use crate::listen::places::Place;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::protocol::subscription::Kinds;

/// The sessions that hear something.
#[derive(Default)]
pub(super) struct Ears(HashMap<Key, Ear>);

/// One of them.
pub(super) struct Ear {
    tenant: TenantName,
    /// Its place among all listeners. All its streams have the same, so that each message goes to one.
    pub(super) member: Arc<Member>,
    /// Held while it subscribes to anything.
    pub(super) place: Option<Place>,
    streams: usize,
    expires_at: u64,
}

impl Ears {
    /// The ear of a session, which is there from now on.
    pub(super) fn of(&mut self, hub: &Arc<Hub>, caller: &Caller, session: &Session) -> &mut Ear {
        self.0.entry(session.key).or_insert_with(|| Ear {
            tenant: caller.tenant.clone(),
            member: Arc::new(hub.join(caller, Kinds::all())),
            place: None,
            streams: 0,
            expires_at: session.expires_at,
        })
    }

    /// One stream of the session is open.
    pub(super) fn opened(&mut self, hub: &Arc<Hub>, caller: &Caller, session: &Session) -> Arc<Member> {
        let ear = self.of(hub, caller, session);
        ear.streams += 1;
        ear.member.clone()
    }

    /// One stream of the session is closed.
    pub(super) fn closed(&mut self, key: Key) {
        if let Some(ear) = self.0.get_mut(&key) {
            ear.streams = ear.streams.saturating_sub(1);
        }
        self.tidy(key);
    }

    /// The session does not subscribe to this resource any more.
    pub(super) fn unsubscribe(&mut self, key: Key, uri: &str) {
        if let Some(ear) = self.0.get(&key) {
            ear.member.forget(uri);
        }
        self.tidy(key);
    }

    /// Forgets what nothing is left of.
    pub(super) fn tidy(&mut self, key: Key) {
        let Some(ear) = self.0.get_mut(&key) else { return };
        if !ear.member.has_resources() {
            ear.place = None;
            if ear.streams == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// The session has ended.
    pub(super) fn remove(&mut self, key: Key) {
        self.0.remove(&key);
    }

    /// Forgets the sessions that are over, and those of tenants that have none any more.
    pub(super) fn forget(&mut self, now: u64, is_served: impl Fn(&TenantName) -> bool) {
        self.0.retain(|_, ear| ear.streams > 0 || (ear.expires_at > now && is_served(&ear.tenant)));
    }
}
