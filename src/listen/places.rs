//! How many listeners a caller and a tenant have.

use std::sync::Arc;

use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Counted;
use crate::model::tally::Tally;

/// The places that there are for each caller and each tenant.
pub struct Places {
    callers: Arc<Tally<String>>,
    tenants: Arc<Tally<TenantName>>,
    most_of_caller: usize,
    most_of_tenant: usize,
}

/// One place, until it is dropped.
pub struct Place(#[expect(dead_code, reason = "held")] (Counted<String>, Counted<TenantName>));

impl Places {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            callers: Arc::default(),
            tenants: Arc::default(),
            most_of_caller: limits.caller_streams,
            most_of_tenant: limits.tenant_streams,
        }
    }

    pub(super) fn take(&self, caller: &Caller) -> Option<Place> {
        let own = self.callers.take(caller.principal(), self.most_of_caller, usize::MAX)?;
        let tenants = self.tenants.take(caller.tenant.clone(), self.most_of_tenant, usize::MAX)?;
        Some(Place((own, tenants)))
    }
}
