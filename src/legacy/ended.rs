//! Sessions that were ended before their time. Their ids would go on to open, so they are remembered
//! until they would not.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hash::RandomState;

use crate::legacy::LegacyError;
use crate::legacy::session::Key;
use crate::legacy::session::Session;
use crate::model::caller::Caller;
use crate::model::name::TenantName;

/// A tenant may have one of so many parts of the whole, and a principal one of so many of its tenant's.
const PARTS: usize = 4;

/// What a caller is told to wait at most, in seconds; a session usually lasts no longer.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// What it is told where room comes with other tenants' sessions, whose times are not its business.
const UNTOLD_WAIT: u64 = 60 * 60;

/// The ended sessions.
pub(super) struct Ended {
    most: usize,
    tenants: HashMap<TenantName, Own>,
    count: usize,
    /// Of a principal only a hash is kept. Nobody knows how to make two that have the same.
    hasher: RandomState,
}

/// Those of one tenant.
struct Own {
    sessions: HashMap<Key, Entry>,
    principals: HashMap<u64, Share>,
    /// None of them is over earlier than this: until then there is nothing to forget.
    earliest: u64,
}

struct Entry {
    /// When it would have ended by itself.
    expires_at: u64,
    principal: u64,
}

/// What one principal has of its tenant's.
struct Share {
    count: usize,
    /// None of them is over earlier than this.
    earliest: u64,
}

impl Ended {
    /// Remembers at most `most` sessions.
    pub(super) fn new(most: usize) -> Self {
        Self { most, tenants: HashMap::new(), count: 0, hasher: RandomState::new() }
    }

    pub(super) fn contains(&self, tenant: &TenantName, key: Key) -> bool {
        self.tenants.get(tenant).is_some_and(|own| own.sessions.contains_key(&key))
    }

    /// Remembers `session`, which is the caller's. Those that are over make room.
    pub(super) fn insert(&mut self, caller: &Caller, session: &Session, now: u64) -> Result<(), LegacyError> {
        if self.contains(&caller.tenant, session.key) {
            return Ok(());
        }
        let principal = self.hasher.hash_one(caller.principal());
        if self.full_until(&caller.tenant, principal, now).is_some() {
            self.forget(now);
        }
        if let Some(until) = self.full_until(&caller.tenant, principal, now) {
            let retry_after = until.saturating_sub(now).clamp(1, LONGEST_WAIT);
            return Err(LegacyError::TooManyEnded { retry_after });
        }
        let own = self.tenants.entry(caller.tenant.clone()).or_insert_with(Own::new);
        own.insert(session.key, Entry { expires_at: session.expires_at, principal });
        self.count += 1;
        Ok(())
    }

    /// If one more session of this principal is too many, until when that may be so.
    fn full_until(&self, tenant: &TenantName, principal: u64, now: u64) -> Option<u64> {
        let part = self.most / PARTS;
        let own = self.tenants.get(tenant);
        let share = own.and_then(|own| own.principals.get(&principal));
        if let Some(share) = share.filter(|share| share.count >= part / PARTS) {
            return Some(share.earliest);
        }
        if let Some(own) = own.filter(|own| own.sessions.len() >= part) {
            return Some(own.earliest);
        }
        (self.count >= self.most).then(|| own.map_or(now + UNTOLD_WAIT, |own| own.earliest))
    }

    fn forget(&mut self, now: u64) {
        self.tenants.retain(|_, own| {
            own.forget(now);
            !own.sessions.is_empty()
        });
        self.count = self.tenants.values().map(|own| own.sessions.len()).sum();
    }
}

impl Own {
    fn new() -> Self {
        Self { sessions: HashMap::new(), principals: HashMap::new(), earliest: u64::MAX }
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        self.count(&entry);
        self.sessions.insert(key, entry);
    }

    fn count(&mut self, entry: &Entry) {
        let none = Share { count: 0, earliest: u64::MAX };
        let share = self.principals.entry(entry.principal).or_insert(none);
        share.count += 1;
        share.earliest = share.earliest.min(entry.expires_at);
        self.earliest = self.earliest.min(entry.expires_at);
    }

    fn forget(&mut self, now: u64) {
        if now < self.earliest {
            return;
        }
        // What many ended sessions needed is not kept for few: all is built anew.
        let old = std::mem::replace(self, Self::new());
        for (key, entry) in old.sessions.into_iter().filter(|(_, entry)| now < entry.expires_at) {
            self.insert(key, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Ended;
    use super::LONGEST_WAIT;
    use super::UNTOLD_WAIT;
    use crate::legacy::LegacyError;
    use crate::legacy::session::Key;
    use crate::legacy::session::Session;
    use crate::model::caller::Caller;
    use crate::model::name::TenantName;
    use crate::model::scope::Scopes;
    use crate::protocol::json::Json;
    use crate::protocol::version::Handshake;

    fn caller(tenant: &str, subject: &str) -> Caller {
        Caller {
            tenant: TenantName::new(tenant).unwrap(),
            issuer: "https://issuer.example".into(),
            subject: subject.into(),
            client: None,
            scopes: Scopes::default(),
            expires_at: 0,
        }
    }

    fn session(number: u8, expires_at: u64) -> Session {
        let capabilities = Json::parse(Bytes::from("{}"), 8).unwrap();
        let session = Session::new(Handshake::June, capabilities, expires_at);
        Session { key: Key::new([number; 16]), ..session }
    }

    fn full(retry_after: u64) -> Result<(), LegacyError> {
        Err(LegacyError::TooManyEnded { retry_after })
    }

    #[test]
    fn a_principal_fills_its_share_and_time_makes_room() {
        let (alice, bob) = (caller("acme", "alice"), caller("acme", "bob"));
        let mut ended = Ended::new(32);
        ended.insert(&alice, &session(1, 100), 0).unwrap();
        ended.insert(&alice, &session(2, 200), 0).unwrap();
        assert_eq!(ended.insert(&alice, &session(3, 300), 40), full(60));
        assert_eq!(ended.insert(&alice, &session(1, 100), 40), Ok(()), "that it is over is known");
        ended.insert(&bob, &session(3, 50), 0).unwrap();
        assert_eq!(
            ended.insert(&alice, &session(4, 300), 99),
            full(1),
            "another's is forgotten, not its own"
        );
        assert!(!ended.contains(&bob.tenant, session(3, 0).key));
        ended.insert(&alice, &session(4, 300), 100).unwrap();
        let known = |number| ended.contains(&alice.tenant, session(number, 0).key);
        assert!(!known(1) && known(2) && known(4), "the first would have been over by itself");
        assert_eq!(ended.insert(&alice, &session(5, 10_000_000), 199), full(1));
        ended.insert(&alice, &session(5, 10_000_000), 300).unwrap();
        assert_eq!((ended.count, ended.tenants.len()), (1, 1), "nothing is left of those that are over");
        ended.insert(&alice, &session(6, 10_000_000), 300).unwrap();
        assert_eq!(ended.insert(&alice, &session(7, 10_000_000), 300), full(LONGEST_WAIT));
    }

    #[test]
    fn a_tenant_has_a_quarter_and_all_have_one_bound() {
        let mut ended = Ended::new(16);
        for tenant in 0..4 {
            for subject in 0..4 {
                let caller = caller(&format!("t{tenant}"), &format!("s{subject}"));
                ended.insert(&caller, &session(4 * tenant + subject, 100), 0).unwrap();
            }
            let more = caller(&format!("t{tenant}"), "more");
            assert_eq!(ended.insert(&more, &session(99, 100), 0), full(100));
        }
        let late = caller("late", "alice");
        assert_eq!(
            ended.insert(&late, &session(99, 100), 0),
            full(UNTOLD_WAIT),
            "others' times are not told"
        );
        ended.insert(&late, &session(99, 200), 100).unwrap();
        assert_eq!((ended.count, ended.tenants.len()), (1, 1));
    }
}
