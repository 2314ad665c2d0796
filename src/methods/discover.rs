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

/// That, and the extensions that some backend of the tenant has.
///
/// spec: SEP-2663, Capability Negotiation; row DV-05
fn offered(snapshot: &Snapshot) -> Json {
    let all = capabilities();
    if !snapshot.has_tasks() {
        return all;
    }
    let all = all.members().fold(Object::new(), |all, (name, value)| all.put(&name, &value));
    all.put(tasks::EXTENSIONS, &tasks::extensions()).finish()
}

/// What this gateway has for every client, in every era, whatever its tenant's backends have: a list
/// without entries is a list.
///
/// spec: server/discover, Response
pub fn capabilities() -> Json {
    let listed = Object::new().put_bool("listChanged", true).finish();
    let resources = Object::new().put_bool("subscribe", true).put_bool("listChanged", true).finish();
    Object::new()
        .put("tools", &listed)
        .put("prompts", &listed)
        .put("resources", &resources)
        .put("completions", &Object::new().finish())
        .finish()
}
