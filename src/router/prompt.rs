//! `prompts/get`: which prompt, and whether its arguments are there.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::entry::Prompt;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::policy::Operation;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::router::RouteError;
use crate::router::check_retry;
use crate::router::may;
use crate::router::shown;

/// The prompt that a request names, if this caller may get it.
///
/// spec: server/prompts, Error Handling
pub(super) fn prompt(snapshot: &Snapshot, exchange: &Exchange) -> Result<Arc<Prompt>, RouteError> {
    let call = &exchange.call;
    let found = call.name.as_deref().and_then(|name| snapshot.prompts.find(name));
    let allowed = may(exchange, Operation::Get, found.map(|prompt| &prompt.entry))?;
    let Some(name) = &call.name else {
        return Err(RouteError::InvalidParams("`params.name` must be a string"));
    };
    let arguments = call.params.member("arguments");
    if !arguments.as_ref().is_none_or(are_strings) {
        return Err(RouteError::InvalidParams("`params.arguments` must be an object of strings"));
    }
    check_retry(&call.params)?;
    let prompt = found.filter(|_| allowed).ok_or_else(|| RouteError::UnknownPrompt(shown(name)))?;
    // Read once: there may be much of it, and much that is required.
    let given: HashSet<_> = arguments.iter().flat_map(|all| all.members()).map(|(name, _)| name).collect();
    match prompt.required.iter().find(|name| !given.contains(&***name)) {
        Some(missing) => Err(RouteError::MissingArgument(missing.clone())),
        None => Ok(prompt.clone()),
    }
}

/// Whether `value` is an object of strings.
pub(super) fn are_strings(value: &Json) -> bool {
    value.is_object() && value.members().all(|(_, member)| member.kind() == Kind::String)
}
