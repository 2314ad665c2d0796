//! `server/discover`: what is served here, for this caller.

use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::version;

/// The discover result. It costs no backend a request.
///
/// spec: server/discover, Response
pub fn answer(exchange: &Exchange, snapshot: &Snapshot, limits: &Limits) -> Outcome {
    let versions = version::SERVED.iter().fold(Array::new(), |array, v| array.push_str(v)).finish();
    let mut result = Object::new()
        .put_str("resultType", "complete")
        .put("supportedVersions", &versions)
        .put("capabilities", &capabilities(snapshot));
    if let Some(instructions) = &snapshot.instructions {
        result = result.put_str("instructions", instructions);
    }
    let result = super::cacheable(result, exchange, snapshot, limits);
    Outcome::Result(result.put("_meta", &super::own_meta()).finish())
}

/// What this gateway has for every client, in every era, whatever its tenant's backends have: a list
/// without entries is a list. Extensions are there where a backend has them.
///
/// spec: server/discover, Response
pub fn capabilities(snapshot: &Snapshot) -> Json {
    let names = ["tools", "prompts", "resources", "completions", "logging"];
    let all = names.iter().fold(Object::new(), |all, name| all.put(name, &Object::new().finish()));
    all.put_some("extensions", snapshot.extensions.as_ref()).finish()
}
