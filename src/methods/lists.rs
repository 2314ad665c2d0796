//! `tools/list`, `prompts/list`, `resources/list`, `resources/templates/list`: a page of what this
//! caller may use, in public-name order.

use crate::catalog::cursor::seal_cursor;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::ui::Host;
use crate::exchange::Exchange;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::List;
use crate::seal::KeyRing;

/// The page of `list` after the public name `after`.
///
/// spec: server/tools, Listing Tools; server/prompts, Listing Prompts; server/resources, Listing Resources,
/// Resource Templates; server/utilities/pagination
pub fn answer(
    exchange: &Exchange,
    snapshot: &Snapshot,
    list: List,
    after: Option<String>,
    keys: &KeyRing,
    now: u64,
    limits: &Limits,
) -> Outcome {
    let page = snapshot.view(list, &exchange.tenant, &exchange.caller, Host::of(&exchange.call.meta));
    let page = page.page(after.as_deref());
    let mut result = Object::new().put_str("resultType", "complete").put(list.member(), &page.entries);
    if let Some(last) = page.next {
        let principal = exchange.caller.principal();
        let cursor = seal_cursor(keys, &exchange.tenant.name, &principal, list, &last, now);
        result = result.put_str("nextCursor", &cursor);
    }
    let result = super::cacheable(result, exchange, snapshot, limits);
    Outcome::Result(result.put("_meta", &super::own_meta()).finish())
}
