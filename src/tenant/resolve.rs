//! Whose request this is.

use std::sync::Arc;

use crate::model::caller::Caller;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::tenant::Tenant;
use crate::tenant::TenantError;
use crate::tenant::index::Directory;

/// The tenant that `caller` acts in at `endpoint`. On a tenant's own endpoint this repeats what
/// authentication has proven, so that a hole there is not one here.
pub fn resolve(
    directory: &Directory,
    caller: &Caller,
    endpoint: &Endpoint,
) -> Result<Arc<Tenant>, TenantError> {
    match &endpoint.owner {
        Owner::Nobody => return Err(TenantError::NotFound),
        Owner::Tenant(name) if *name != caller.tenant => return Err(TenantError::NoSuchTenant),
        Owner::Tenant(_) | Owner::Shared => {}
    }
    directory.tenant(&caller.tenant).ok_or(TenantError::NoSuchTenant)
}
