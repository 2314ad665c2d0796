//! `server/discover`: what is served here, for this caller.

use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::tasks;
use crate::protocol::version;

/// The discover result. It costs no backend a request.
///
/// spec: server/discover, Response
pub fn answer(exchange: &Exchange, snapshot: &Snapshot, limits: &Limits) -> Outcome {
    let versions = version::SERVED.iter().fold(Array::new(), |array, v| array.push_str(v)).finish();
    let mut result = Object::new()
        .put_str("resultType", "complete")
        .put("supportedVersions", &versions)
        .put("capabilities", &offered(snapshot));
    if let Some(instructions) = &snapshot.instructions {
        result = result.put_str("instructions", instructions);
    }
    let result = super::cacheable(result, exchange, snapshot, limits);
    Outcome::Result(result.put("_meta", &super::own_meta()).finish())
}

/// That, and the extension for tasks where some backend of the tenant has it: the handshake era knows nothing
/// of it.
///
/// spec: SEP-2663, Capability Negotiation; row DV-05
fn offered(snapshot: &Snapshot) -> Json {
    let all = capabilities(snapshot);
    if !snapshot.has_tasks() {
        return all;
    }
    let others = all.member(tasks::EXTENSIONS);
    let extensions = others.iter().flat_map(Json::members);
    let extensions = extensions.fold(Object::new(), |all, (name, value)| all.put(&name, &value));
    let extensions = extensions.put(tasks::EXTENSION, &Object::new().finish()).finish();
    let rest = all.members().filter(|(name, _)| name != tasks::EXTENSIONS);
    let rest = rest.fold(Object::new(), |all, (name, value)| all.put(&name, &value));
    rest.put(tasks::EXTENSIONS, &extensions).finish()
}

/// What this gateway has for every client, in every era, whatever its tenant's backends have: a list
/// without entries is a list. Extensions are there where a backend has them.
///
/// spec: server/discover, Response
pub fn capabilities(snapshot: &Snapshot) -> Json {
    let (listed, nothing) = (Object::new().put_bool("listChanged", true).finish(), Object::new().finish());
    let resources = Object::new().put_bool("subscribe", true).put_bool("listChanged", true).finish();
    Object::new()
        .put("tools", &listed)
        .put("prompts", &listed)
        .put("resources", &resources)
        .put("completions", &nothing)
        .put("logging", &nothing)
        .put_some("extensions", snapshot.extensions.as_ref())
        .finish()
}
