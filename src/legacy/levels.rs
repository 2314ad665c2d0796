//! The log levels of sessions: what `logging/setLevel` said last, for later requests of the session.
//!
//! Kept in this process alone: a session that comes to another replica sets its level there, too, or hears
//! no log messages from it.
//!
//! spec: 2025-11-25 server/utilities/logging, Setting Log Level

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::legacy::session::Key;
use crate::model::name::TenantName;
use crate::protocol::level::Level;

/// A tenant may have one of so many parts of the whole.
const PARTS: usize = 4;

/// The levels of the sessions that set one.
pub(super) struct Levels {
    most: usize,
    tenants: Mutex<HashMap<TenantName, Own>>,
}

/// Those of one tenant.
#[derive(Default)]
struct Own {
    levels: HashMap<Key, Level>,
    /// The oldest first.
    order: VecDeque<Key>,
}

impl Levels {
    /// Remembers at most `most` levels.
    pub(super) fn new(most: usize) -> Self {
        Self { most, tenants: Mutex::default() }
    }

    /// What this session set last.
    pub(super) fn get(&self, tenant: &TenantName, session: Key) -> Option<Level> {
        self.tenants().get(tenant)?.levels.get(&session).copied()
    }

    /// Remembers a level. Where there is no room, the oldest of the same tenant is forgotten; where that
    /// has its part, but all have too many, the oldest of whoever has most.
    pub(super) fn set(&self, tenant: &TenantName, session: Key, level: Level) {
        let mut tenants = self.tenants();
        if let Some(known) = tenants.get_mut(tenant).and_then(|own| own.levels.get_mut(&session)) {
            *known = level;
            return;
        }
        let all: usize = tenants.values().map(|own| own.levels.len()).sum();
        let own = tenants.entry(tenant.clone()).or_default();
        if own.levels.len() >= self.most / PARTS {
            own.forget_oldest();
        } else if all >= self.most
            && let Some(largest) = tenants.values_mut().max_by_key(|own| own.levels.len())
        {
            largest.forget_oldest();
        }
        let own = tenants.entry(tenant.clone()).or_default();
        own.levels.insert(session, level);
        own.order.push_back(session);
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&self, tenant: &TenantName, session: Key) {
        let mut tenants = self.tenants();
        let Some(own) = tenants.get_mut(tenant) else { return };
        if own.levels.remove(&session).is_some() {
            own.order.retain(|key| *key != session);
        }
        if own.levels.is_empty() {
            tenants.remove(tenant);
        }
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantName, Own>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.levels.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;
    use crate::legacy::session::Key;
    use crate::model::name::TenantName;
    use crate::protocol::level::Level;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    #[test]
    fn the_last_level_counts_and_a_tenant_has_its_part() {
        let levels = Levels::new(8);
        let (acme, globex) = (tenant("acme"), tenant("globex"));
        let key = |n: u8| Key::new([n; 16]);
        levels.set(&acme, key(1), Level::Error);
        levels.set(&acme, key(1), Level::Debug);
        assert_eq!(levels.get(&acme, key(1)), Some(Level::Debug));
        assert_eq!(levels.get(&globex, key(1)), None);
        levels.set(&globex, key(9), Level::Alert);
        levels.set(&acme, key(2), Level::Info);
        levels.set(&acme, key(3), Level::Info);
        let known: Vec<_> = (1..=3).map(|n| levels.get(&acme, key(n)).is_some()).collect();
        assert_eq!(known, [false, true, true], "the oldest had to go");
        assert_eq!(levels.get(&globex, key(9)), Some(Level::Alert));
        levels.forget(&acme, key(2));
        levels.set(&acme, key(4), Level::Info);
        let known: Vec<_> = (2..=4).map(|n| levels.get(&acme, key(n)).is_some()).collect();
        assert_eq!(known, [false, true, true]);
        levels.forget(&acme, key(3));
        levels.forget(&acme, key(4));
        levels.forget(&globex, key(9));
        assert!(levels.tenants().is_empty());
    }

    #[test]
    fn all_of_them_are_bounded_too() {
        let levels = Levels::new(8);
        let key = |n: usize| Key::new([u8::try_from(n).unwrap(); 16]);
        for n in 0..40 {
            levels.set(&tenant(["a", "b", "c", "d", "e", "f"][n % 6]), key(n), Level::Info);
        }
        let all: usize = levels.tenants().values().map(|own| own.levels.len()).sum();
        assert_eq!(all, 8);
        assert_eq!(levels.get(&tenant("d"), key(39)), Some(Level::Info));
    }
}
