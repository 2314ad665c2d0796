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
        .put("capabilities", &capabilities());
    if let Some(instructions) = &snapshot.instructions {
        result = result.put_str("instructions", instructions);
    }
    let result = super::cacheable(result, exchange, snapshot, limits);
    Outcome::Result(result.put("_meta", &super::own_meta()).finish())
}

/// What this gateway serves, in every era.
pub fn capabilities() -> Json {
    Object::new().put("tools", &Object::new().finish()).finish()
}
