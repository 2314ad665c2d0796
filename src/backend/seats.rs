//! How many sessions there may be with backends, of all tenants together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::model::name::TenantName;

/// A tenant may hold one of so many parts of the whole.
const PARTS: usize = 4;

/// The seats for sessions of callers.
pub struct Seats {
    most: usize,
    taken: Mutex<HashMap<TenantName, usize>>,
}

/// The seat of one session, until it is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    tenant: TenantName,
}

impl Seats {
    /// So many, all free; a tenant's, a quarter of them.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// One for a session of this tenant, if there is any.
    pub(super) fn take(self: &Arc<Self>, tenant: &TenantName) -> Option<Seat> {
        let mut taken = self.taken();
        let (whole, own) = (taken.values().sum::<usize>(), taken.get(tenant).copied().unwrap_or(0));
        if whole >= self.most || own >= self.most / PARTS {
            return None;
        }
        taken.insert(tenant.clone(), own + 1);
        Some(Seat { seats: self.clone(), tenant: tenant.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<TenantName, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Seats;
    use crate::model::name::TenantName;

    #[test]
    fn a_tenant_has_a_quarter_and_all_have_the_whole() {
        let seats = Seats::new(8);
        let tenant = |n: usize| TenantName::new(&format!("t{n}")).unwrap();
        let mut taken: Vec<_> = (0..8).map(|n| seats.take(&tenant(n / 2)).unwrap()).collect();
        assert!(seats.take(&tenant(0)).is_none() && seats.take(&tenant(9)).is_none());
        drop(taken.pop());
        assert!(seats.take(&tenant(0)).is_none(), "it has its quarter");
        taken.push(seats.take(&tenant(9)).unwrap());
        taken.clear();
        assert!(seats.taken().is_empty());
    }
}
