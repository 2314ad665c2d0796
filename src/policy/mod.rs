//! Who may do what: one decision, used by lists and calls alike.
//!
//! What an object needs is worked out once, when a catalog is built ([`scope::needed`]);
//! [`decide`] then only compares sets.

pub mod glob;
pub mod scope;
#[cfg(test)]
mod tests;

use crate::model::caller::Caller;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Tenant;

/// What a caller wants to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// See it in a list.
    List,
    /// Call it: a tool.
    Call,
    /// Read it: a resource.
    Read,
    /// Get it: a prompt.
    Get,
    /// Complete an argument of it: a prompt or a resource template.
    Complete,
    /// Ask after, answer or call off a task that it made: a tool, in the catalog still or not.
    Task,
}

/// The object that is decided about, under its backend's own name.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Whose object it is.
    pub backend: &'a BackendName,
    /// What it is.
    pub kind: ObjectKind,
    /// The backend's own name for it.
    pub own_name: &'a str,
    /// What it needs: [`scope::needed`] of the other three.
    pub needs: &'a Scopes,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allow,
    /// Only with all of these scopes, of which the caller may hold some.
    NeedsScopes(Scopes),
    /// For this caller it does not exist.
    Hidden,
}

/// Decides whether `caller` may do `operation` to `target` in `tenant`.
///
/// Lists show what is allowed, and nothing else. It reads of the caller the tenant and the
/// scopes: whoever caches by caller must have both in the key.
pub fn decide(caller: &Caller, tenant: &Tenant, operation: Operation, target: &Target<'_>) -> Decision {
    // The pipeline never asks across tenants; if it ever did, nothing would be there.
    if caller.tenant != tenant.name {
        return Decision::Hidden;
    }
    match operation {
        Operation::List
        | Operation::Call
        | Operation::Read
        | Operation::Get
        | Operation::Complete
        | Operation::Task => match scope::holds_all(caller, tenant, target.needs) {
            true => Decision::Allow,
            false => Decision::NeedsScopes(target.needs.clone()),
        },
    }
}
