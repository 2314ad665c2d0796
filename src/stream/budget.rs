//! What the bodies of all requests may hold together, so that many large or stalled ones cannot
//! take the process's memory, nor one tenant's take what others need.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::model::name::TenantName;

/// A tenant may hold one of so many parts of the whole.
const PARTS: usize = 4;

/// Bodies up to this size are not counted: as many as there are connections fit.
const SMALL: usize = 16 << 10;

/// The bytes that bodies may hold.
pub struct Budget {
    most: usize,
    held: Mutex<HashMap<TenantName, usize>>,
}

/// What one body holds, until it is dropped.
pub struct Held {
    budget: Arc<Budget>,
    tenant: TenantName,
    bytes: usize,
}

impl Budget {
    /// A budget of `most` bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// For a body of this tenant, of which nothing has arrived yet.
    pub fn open(self: &Arc<Self>, tenant: &TenantName) -> Held {
        Held { budget: self.clone(), tenant: tenant.clone(), bytes: 0 }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<TenantName, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Whether the body may hold this many bytes in all.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if bytes <= SMALL || more == 0 {
            return true;
        }
        let mut held = self.budget.held();
        let (whole, own) = (held.values().sum::<usize>(), held.get(&self.tenant).copied().unwrap_or(0));
        if whole + more > self.budget.most || own + more > self.budget.most / PARTS {
            return false;
        }
        held.insert(self.tenant.clone(), own + more);
        self.bytes = bytes;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.budget.held();
        if let Some(own) = held.get_mut(&self.tenant) {
            *own -= self.bytes;
            if *own == 0 {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use crate::model::name::TenantName;

    #[test]
    fn a_tenant_takes_its_part_and_leaves_the_rest() {
        let budget = Budget::new(400 << 10);
        let [acme, globex] = ["acme", "globex"].map(|name| TenantName::new(name).unwrap());
        let (mut one, mut two, mut small) = (budget.open(&acme), budget.open(&acme), budget.open(&acme));
        assert!(one.grow(60 << 10) && one.grow(90 << 10) && one.grow(50 << 10));
        assert!(!two.grow(20 << 10), "acme has a hundred KiB and holds ninety");
        assert!(small.grow(16 << 10), "small bodies are never refused");
        let mut other = budget.open(&globex);
        assert!(other.grow(100 << 10) && !other.grow(101 << 10));
        drop(one);
        assert!(two.grow(100 << 10));
        drop((two, other));
        assert!(budget.held().is_empty());
    }
}
