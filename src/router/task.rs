//! `tasks/get`, `tasks/update`, `tasks/cancel`: which task, of which backend.
//!
//! Nothing about a task is stored. Its id here is a handle that has its backend's id in it, for the caller
//! whose call made it; any replica with the keys opens it.

use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::caller::Caller;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Tenant;
use crate::policy;
use crate::policy::Decision;
use crate::policy::Operation;
use crate::policy::Target;
use crate::policy::scope;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::methods::Method;
use crate::protocol::tasks;
use crate::router::RouteError;
use crate::seal::Binding;
use crate::seal::KeyRing;
use crate::seal::Purpose;

/// The task that a request names, if this caller may use it.
///
/// spec: SEP-2663, Capability Negotiation, Security Implications; rows EX-01, EX-02
pub(super) fn task(
    snapshot: &Snapshot,
    exchange: &Exchange,
    keys: &KeyRing,
    now: u64,
) -> Result<Arc<Entry>, RouteError> {
    let call = &exchange.call;
    if tasks::declared(&call.meta.capabilities).is_none() {
        return Err(RouteError::NeedsTasks);
    }
    let id = call.name.as_deref().ok_or(RouteError::InvalidParams("`params.taskId` must be a string"))?;
    let responses = call.params.member("inputResponses");
    if call.method == Method::TasksUpdate && !responses.is_some_and(|responses| responses.is_object()) {
        return Err(RouteError::InvalidParams("`params.inputResponses` must be an object"));
    }
    let found = find(snapshot, &exchange.tenant, &exchange.caller, id, keys, now);
    found.map(Arc::new).ok_or(RouteError::UnknownTask)
}

/// The task that `id` names, under its backend's own id, if `caller` may use it. It may as long as it may
/// call the tool that made it, by that tool's name alone: what was begun does not end with its listing.
pub fn find(
    snapshot: &Snapshot,
    tenant: &Tenant,
    caller: &Caller,
    id: &str,
    keys: &KeyRing,
    now: u64,
) -> Option<Entry> {
    let principal = caller.principal();
    let payload = keys.open(&binding(caller, &principal), id, now).ok()?;
    let Sealed { backend, tool, own } = Sealed::read(payload)?;
    let home = snapshot.backend(&backend)?;
    let needs = scope::needed(&home.config, ObjectKind::Tool, &tool);
    let target =
        Target { backend: &home.config.name, kind: ObjectKind::Tool, own_name: &tool, needs: &needs };
    match policy::decide(caller, tenant, Operation::Task, &target) {
        Decision::Allow => Some(Entry::task(home, id, &own, needs)),
        Decision::NeedsScopes(_) | Decision::Hidden => None,
    }
}

/// The id under which `caller` knows a task that a call of `tool` made, until `expires_at`.
pub fn seal(keys: &KeyRing, caller: &Caller, tool: &Entry, own: &str, expires_at: u64) -> String {
    let payload = Array::new().push_str(tool.backend().as_str()).push_str(&tool.own).push_str(own).finish();
    keys.seal(&binding(caller, &caller.principal()), expires_at, payload.bytes())
}

fn binding<'a>(caller: &'a Caller, principal: &'a str) -> Binding<'a> {
    Binding { purpose: Purpose::Task, tenant: &caller.tenant, principal, digest: b"" }
}

/// What lies in the id of a task.
struct Sealed {
    backend: String,
    /// Its backend's own name of the tool that made it.
    tool: String,
    /// Its backend's own id.
    own: String,
}

impl Sealed {
    fn read(payload: Vec<u8>) -> Option<Self> {
        let parts = Json::parse(Bytes::from(payload), 1).ok()?;
        let mut parts = parts.elements().map(|part| part.string());
        Some(Self { backend: parts.next()??, tool: parts.next()??, own: parts.next()?? })
    }
}
