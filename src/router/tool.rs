//! `tools/call`: which tool.

use std::sync::Arc;

use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::policy::Operation;
use crate::router::RouteError;
use crate::router::check_retry;
use crate::router::may;
use crate::router::shown;

/// The tool that a call names, by its public name or as a view of its backend does, if this caller may
/// call it.
pub fn tool(snapshot: &Snapshot, exchange: &Exchange) -> Result<Arc<Tool>, RouteError> {
    let call = &exchange.call;
    let found = call.name.as_deref();
    let found = found.and_then(|name| snapshot.tools.find(name).or_else(|| snapshot.alias(name)));
    let allowed = may(exchange, Operation::Call, found.map(|tool| &tool.entry))?;
    let Some(name) = &call.name else {
        return Err(RouteError::InvalidParams("`params.name` must be a string"));
    };
    if call.params.member("arguments").is_some_and(|a| !a.is_object()) {
        return Err(RouteError::InvalidParams("`params.arguments` must be an object"));
    }
    check_retry(&call.params)?;
    found.filter(|_| allowed).cloned().ok_or_else(|| RouteError::UnknownTool(shown(name)))
}
