//! `tools/list`: a page of what this caller may call, in public-name order.

use crate::catalog::cursor::seal_cursor;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::limits::Limits;
use crate::model::tenant::ObjectKind;
use crate::protocol::call::Outcome;
use crate::protocol::json::compose::Object;
use crate::seal::KeyRing;

/// The page after the public name `after`.
///
/// spec: server/tools, Listing Tools; server/utilities/pagination
pub fn answer(
    exchange: &Exchange,
    snapshot: &Snapshot,
    after: Option<String>,
    keys: &KeyRing,
    now: u64,
    limits: &Limits,
) -> Outcome {
    let page = snapshot.view(&exchange.tenant, &exchange.caller).page(after.as_deref());
    let mut result = Object::new().put_str("resultType", "complete").put("tools", &page.tools);
    if let Some(last) = page.next {
        let principal = exchange.caller.principal();
        let cursor = seal_cursor(keys, &exchange.tenant.name, &principal, ObjectKind::Tool, &last, now);
        result = result.put_str("nextCursor", &cursor);
    }
    let result = super::cacheable(result, exchange, snapshot, limits);
    Outcome::Result(result.put("_meta", &super::own_meta()).finish())
}
