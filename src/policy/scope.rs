//! What an object needs, and what a caller holds.

use crate::model::caller::Caller;
use crate::model::scope::Scopes;
use crate::model::tenant::Backend;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Tenant;
use crate::policy::glob;

/// What `own_name` of `backend` needs: the union of all rules that match it. Nothing where no
/// rule matches: it is open to the tenant's callers.
pub fn needed(backend: &Backend, kind: ObjectKind, own_name: &str) -> Scopes {
    needed_where(backend, kind, |glob| glob::matches(glob, own_name))
}

/// The union of what the rules for this kind need whose globs `matches`.
pub fn needed_where(backend: &Backend, kind: ObjectKind, matches: impl Fn(&str) -> bool) -> Scopes {
    let mut needs = Scopes::default();
    for rule in &backend.scopes {
        if rule.kind.is_none_or(|of| of == kind) && matches(&rule.glob) {
            needs.extend(&rule.needs);
        }
    }
    needs
}

/// Whether the caller holds `scope`, by itself or by one that implies it.
pub fn holds(caller: &Caller, tenant: &Tenant, scope: &str) -> bool {
    let implies = |held| tenant.scope_implies.get(held).is_some_and(|implied| implied.contains(scope));
    caller.scopes.contains(scope) || caller.scopes.iter().any(implies)
}

/// Whether the caller holds every scope of `needs`.
pub fn holds_all(caller: &Caller, tenant: &Tenant, needs: &Scopes) -> bool {
    needs.iter().all(|scope| holds(caller, tenant, scope))
}
