//! Steps 16 to 18 of the ladder: may the caller do this, are the params right, is the target there?

use std::sync::Arc;

use crate::catalog::cursor::open_cursor;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::model::scope::Scopes;
use crate::model::tenant::ObjectKind;
use crate::policy;
use crate::policy::Decision;
use crate::policy::Operation;
use crate::protocol::headers::Mismatch;
use crate::protocol::json::Kind;
use crate::protocol::methods::Method;
use crate::seal::KeyRing;

/// Where a request goes.
pub enum Route {
    /// Answered here: `server/discover`.
    Discover,
    /// Answered here: a page of the tools after a public name.
    ToolsList {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// To the backend of this tool.
    Backend(Arc<Tool>),
}

/// Why a proven request goes nowhere. `Display` is what the caller reads.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// Step 16: the caller's scopes do not cover all of these.
    #[error("this needs the scopes {:?}", .0.joined())]
    NeedsScopes(Scopes),
    /// Step 17: params of the wrong shape.
    #[error("{0}")]
    InvalidParams(&'static str),
    /// Step 17: a cursor that we did not mint for this caller, or that ended.
    #[error("the cursor is not valid for this list: start again without one")]
    InvalidCursor,
    /// Step 17: a state that we did not mint for this caller and call, or that ended.
    #[error("the request state is not valid for this call: call again without it")]
    InvalidState,
    /// Step 18: absent, or hidden from this caller; nobody can tell which.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// Step 19: a parameter's mirror header disagrees.
    #[error("{header}: {problem}")]
    ParamMismatch {
        /// The header, as the tool's schema spells it.
        header: String,
        /// What is wrong with it.
        problem: Mismatch,
    },
}

/// The longest part of an unknown name that an error repeats, in characters.
const NAME_SHOWN: usize = 128;

/// Routes `exchange` by `snapshot`.
pub fn route(
    snapshot: &Snapshot,
    exchange: &Exchange,
    keys: &KeyRing,
    now: u64,
) -> Result<Route, RouteError> {
    match exchange.call.method {
        Method::Discover => Ok(Route::Discover),
        Method::ToolsList => Ok(Route::ToolsList { after: after(exchange, keys, now)? }),
        Method::ToolsCall => tool(snapshot, exchange).map(Route::Backend),
    }
}

/// The public name that a list's cursor stands on.
fn after(exchange: &Exchange, keys: &KeyRing, now: u64) -> Result<Option<String>, RouteError> {
    let Some(cursor) = exchange.call.params.member("cursor").filter(|c| c.kind() != Kind::Null) else {
        return Ok(None);
    };
    let handle = cursor.string().ok_or(RouteError::InvalidParams("`cursor` must be a string"))?;
    let principal = exchange.caller.principal();
    open_cursor(keys, &exchange.tenant.name, &principal, ObjectKind::Tool, &handle, now)
        .map(Some)
        .map_err(|_| RouteError::InvalidCursor)
}

/// The tool that a call names, if this caller may call it.
pub fn tool(snapshot: &Snapshot, exchange: &Exchange) -> Result<Arc<Tool>, RouteError> {
    let call = &exchange.call;
    let found = call.name.as_deref().and_then(|name| snapshot.find(name));
    let decision =
        found.map(|tool| policy::decide(&exchange.caller, &exchange.tenant, Operation::Call, &tool.target()));
    if let Some(Decision::NeedsScopes(needed)) = decision {
        return Err(RouteError::NeedsScopes(needed));
    }
    let Some(name) = &call.name else {
        return Err(RouteError::InvalidParams("`params.name` must be a string"));
    };
    if call.params.member("arguments").is_some_and(|a| !a.is_object()) {
        return Err(RouteError::InvalidParams("`params.arguments` must be an object"));
    }
    if call.params.member("inputResponses").is_some_and(|r| !r.is_object()) {
        return Err(RouteError::InvalidParams("`params.inputResponses` must be an object"));
    }
    match call.params.member("requestState").map(|state| state.kind()) {
        None => {}
        // None was ever minted.
        Some(Kind::String) => return Err(RouteError::InvalidState),
        Some(_) => return Err(RouteError::InvalidParams("`params.requestState` must be a string")),
    }
    match (found, decision) {
        (Some(tool), Some(Decision::Allow)) => Ok(tool.clone()),
        _ => Err(RouteError::UnknownTool(name.chars().take(NAME_SHOWN).collect())),
    }
}
