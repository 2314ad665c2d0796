//! Sessions that were ended before their time. Their ids would go on to open, so they are remembered
//! until they would not.

use std::collections::HashMap;

use crate::legacy::LegacyError;
use crate::legacy::session::Key;
use crate::model::name::TenantName;

/// A tenant may have one of so many parts of the whole remembered.
const PARTS: usize = 4;

/// The ended sessions, each with the time at which it would have ended by itself.
pub(super) struct Ended {
    most: usize,
    tenants: HashMap<TenantName, HashMap<Key, u64>>,
    count: usize,
    /// No session is over earlier than this: until then there is nothing to forget.
    earliest: u64,
}

impl Ended {
    /// Remembers at most `most` sessions.
    pub(super) fn new(most: usize) -> Self {
        Self { most, tenants: HashMap::new(), count: 0, earliest: u64::MAX }
    }

    pub(super) fn contains(&self, tenant: &TenantName, key: Key) -> bool {
        self.tenants.get(tenant).is_some_and(|sessions| sessions.contains_key(&key))
    }

    /// Remembers `key` until `expires_at`. Those that are over make room.
    pub(super) fn insert(
        &mut self,
        tenant: &TenantName,
        key: Key,
        expires_at: u64,
        now: u64,
    ) -> Result<(), LegacyError> {
        if self.is_full(tenant) {
            self.forget(now);
        }
        if self.is_full(tenant) {
            return Err(LegacyError::TooManyEnded);
        }
        let sessions = self.tenants.entry(tenant.clone()).or_default();
        if sessions.insert(key, expires_at).is_none() {
            self.count += 1;
        }
        self.earliest = self.earliest.min(expires_at);
        Ok(())
    }

    fn is_full(&self, tenant: &TenantName) -> bool {
        let own = self.tenants.get(tenant).map_or(0, HashMap::len);
        own >= self.most / PARTS || self.count >= self.most
    }

    fn forget(&mut self, now: u64) {
        if now < self.earliest {
            return;
        }
        (self.count, self.earliest) = (0, u64::MAX);
        self.tenants.retain(|_, sessions| {
            sessions.retain(|_, expires_at| now < *expires_at);
            // What many ended sessions needed is not kept for few.
            sessions.shrink_to_fit();
            self.count += sessions.len();
            self.earliest = sessions.values().copied().fold(self.earliest, u64::min);
            !sessions.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Ended;
    use crate::legacy::LegacyError;
    use crate::legacy::session::Key;
    use crate::model::name::TenantName;

    fn key(number: u8) -> Key {
        Key::new([number; 16])
    }

    #[test]
    fn a_tenant_fills_its_quarter_and_time_makes_room() {
        let [acme, globex] = ["acme", "globex"].map(|name| TenantName::new(name).unwrap());
        let mut ended = Ended::new(8);
        ended.insert(&acme, key(1), 100, 0).unwrap();
        ended.insert(&acme, key(2), 200, 0).unwrap();
        assert_eq!(ended.insert(&acme, key(3), 300, 99), Err(LegacyError::TooManyEnded));
        ended.insert(&globex, key(3), 300, 99).unwrap();
        assert!(ended.contains(&acme, key(1)) && !ended.contains(&globex, key(1)));
        ended.insert(&acme, key(4), 300, 100).unwrap();
        assert!(!ended.contains(&acme, key(1)), "it would have been over by itself");
        assert!(ended.contains(&acme, key(2)) && ended.contains(&acme, key(4)));
        assert_eq!(ended.insert(&acme, key(5), 300, 199), Err(LegacyError::TooManyEnded));
        ended.insert(&acme, key(5), 500, 300).unwrap();
        assert_eq!((ended.count, ended.tenants.len()), (1, 1), "nothing is left of those that are over");
    }

    #[test]
    fn all_tenants_together_have_one_bound() {
        let mut ended = Ended::new(4);
        for number in 0..4 {
            ended.insert(&TenantName::new(&format!("t{number}")).unwrap(), key(number), 100, 0).unwrap();
        }
        let late = TenantName::new("late").unwrap();
        assert_eq!(ended.insert(&late, key(9), 100, 0), Err(LegacyError::TooManyEnded));
        ended.insert(&late, key(9), 200, 100).unwrap();
    }
}
