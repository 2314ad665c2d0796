//! `tools/call`: steps 19 to 22.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::mint;
use crate::catalog::refresh::Catalogs;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::checks::Checks;
use crate::methods::failed;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::media;
use crate::methods::media::Blocks;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::router;
use crate::router::RouteError;
use crate::telemetry::metrics::Metrics;

/// Calls `tool`, once more if the backend says that our headers are stale.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the call upstream.
pub async fn answer(
    exchange: &Exchange,
    tool: &Arc<Tool>,
    snapshot: &Arc<Snapshot>,
    catalogs: &Catalogs,
    checks: &Arc<Checks>,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    match attempt(exchange, tool, snapshot, checks, limits, metrics).await {
        // The backend refused before it acted, so a second try repeats nothing.
        // spec: streamable-http, Client Behavior
        Err(CallError::Backend(BackendError::Stale)) => {
            catalogs.refreshed(&exchange.tenant.name, tool.entry.backend()).await;
            let snapshot = catalogs.snapshot(&exchange.tenant).await;
            let tool = router::tool(&snapshot, exchange)?;
            attempt(exchange, &tool, &snapshot, checks, limits, metrics).await
        }
        other => other,
    }
}

async fn attempt(
    exchange: &Exchange,
    tool: &Tool,
    snapshot: &Arc<Snapshot>,
    checks: &Arc<Checks>,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let call = &exchange.call;
    let arguments = call.params.member("arguments");
    if let Some(mirrored) = &call.mirrored {
        check_mirrored(&tool.header_params, arguments.as_ref(), mirrored)
            .map_err(|(header, problem)| RouteError::ParamMismatch { header, problem })?;
    }
    let tenant = &exchange.tenant.name;
    if let Some(input) = &tool.input
        && let Err(problem) = checks.arguments(tenant, input, arguments.as_ref()).await
    {
        return Ok(Reply::Once(Outcome::Result(failed(&problem))));
    }
    let headers = mint(&tool.header_params, arguments.as_ref());
    let links = Links::of(&tool.entry, snapshot);
    let most = limits.media_bytes;
    let finish = move |outcome| {
        if let Outcome::Result(result) = &outcome
            && let Some(problem) = media::too_large(result, Blocks::Content, most)
        {
            return Ok(Outcome::Result(failed(&problem)));
        }
        Ok(links.change(outcome, Links::content))
    };
    let reply = forward(exchange, &tool.entry, call.params.clone(), headers, finish, limits, metrics).await?;
    Ok(match &tool.output {
        Some(output) => checks.reply(tenant, output, reply).await,
        None => reply,
    })
}
