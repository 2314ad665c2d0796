//! Cursors of lists: the last public name that was shown, sealed.
//!
//! They name a place in the order of names, not in one catalog: when the catalog changes between
//! two pages, nothing that stays is shown twice or skipped.
//!
//! spec: server/utilities/pagination

use crate::model::name::TenantName;
use crate::protocol::methods::List;
use crate::seal::Binding;
use crate::seal::KeyRing;
use crate::seal::Purpose;
use crate::seal::SealError;

/// How long a cursor opens, in seconds.
const LIFETIME: u64 = 24 * 60 * 60;

/// A cursor behind `last` in `list`, for one principal of one tenant.
pub fn seal_cursor(
    ring: &KeyRing,
    tenant: &TenantName,
    principal: &str,
    list: List,
    last: &str,
    now: u64,
) -> String {
    ring.seal(&binding(tenant, principal, list), now.saturating_add(LIFETIME), last.as_bytes())
}

/// The name that `cursor` stands behind, if it was sealed for this list, principal and tenant.
pub fn open_cursor(
    ring: &KeyRing,
    tenant: &TenantName,
    principal: &str,
    list: List,
    cursor: &str,
    now: u64,
) -> Result<String, SealError> {
    let last = ring.open(&binding(tenant, principal, list), cursor, now)?;
    String::from_utf8(last).map_err(|_| SealError::Refused)
}

fn binding<'a>(tenant: &'a TenantName, principal: &'a str, list: List) -> Binding<'a> {
    Binding { purpose: Purpose::Cursor, tenant, principal, digest: list.member().as_bytes() }
}
