//! `tools/call`: steps 19 to 22.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::catalog::entry::Entry;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::given;
use crate::catalog::mirror::mint;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::catalog::ui;
use crate::catalog::ui::Host;
use crate::catalog::viewer::Viewer;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::Means;
use crate::methods::checks::Checks;
use crate::methods::failed;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::media;
use crate::methods::media::Blocks;
use crate::methods::rounds::Rounds;
use crate::methods::tasks::Ids;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::meta::Meta;
use crate::router;
use crate::router::RouteError;

/// Calls `tool`, once more if the backend says that our headers are stale.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the call upstream.
pub async fn answer(
    exchange: &Exchange,
    tool: &Arc<Tool>,
    snapshot: &Arc<Snapshot>,
    means: &Means<'_>,
) -> Result<Reply<CallError>, CallError> {
    if exchange.call.name.as_ref() != Some(&tool.entry.public) {
        means.metrics.tool_alias();
    }
    match attempt(exchange, tool, snapshot, means).await {
        // The backend refused before it acted, so a second try repeats nothing: the same answers and the
        // same state go with it.
        // spec: streamable-http, Client Behavior
        Err(CallError::Backend(BackendError::Stale)) => {
            means.catalogs.refreshed(&exchange.tenant.name, tool.entry.backend()).await;
            let snapshot = means.catalogs.snapshot(&exchange.tenant, Viewer::of(exchange)).await;
            let tool = router::tool(&snapshot, exchange)?;
            attempt(exchange, &tool, &snapshot, means).await
        }
        other => other,
    }
}

async fn attempt(
    exchange: &Exchange,
    tool: &Tool,
    snapshot: &Arc<Snapshot>,
    means: &Means<'_>,
) -> Result<Reply<CallError>, CallError> {
    let call = &exchange.call;
    let (rounds, retry) = Rounds::begin(exchange, &tool.entry, means)?;
    let arguments = call.params.member("arguments");
    if let Some(mirrored) = &call.mirrored {
        check_mirrored(&tool.header_params, arguments.as_ref(), mirrored)
            .map_err(|(header, problem)| RouteError::ParamMismatch { header, problem })?;
    }
    if let Err(problem) = check(exchange, tool, arguments.as_ref(), means.checks).await {
        return Ok(Reply::Once(Outcome::Result(failed(&problem))));
    }
    let headers = mint(&tool.header_params, arguments.as_ref());
    let shown = Shown::of(&tool.entry, snapshot, &call.meta, means.limits);
    let ids = Ids::new(exchange, &tool.entry, means);
    let finish = move |outcome| ids.name(rounds.settle(shown.outcome(outcome), &shown.links)?);
    let sent = Sent { params: call.params.clone(), param_headers: headers, retry };
    let reply = forward(exchange, &tool.entry, sent, finish, means.limits, means.metrics).await?;
    Ok(match &tool.output {
        Some(output) => means.checks.reply(&exchange.tenant.name, output, reply).await,
        None => reply,
    })
}

/// How a tool's results are shown to one client.
pub(super) struct Shown {
    /// How the URIs in them are changed.
    pub(super) links: Links,
    /// What it does with views.
    host: Host,
    media_bytes: usize,
}

impl Shown {
    /// Of what `entry` leads to, to the client of this request.
    pub(super) fn of(entry: &Entry, snapshot: &Arc<Snapshot>, meta: &Meta, limits: &Limits) -> Self {
        Self { links: Links::of(entry, snapshot), host: Host::of(meta), media_bytes: limits.media_bytes }
    }

    /// The outcome as it is shown.
    pub(super) fn outcome(&self, outcome: Outcome) -> Outcome {
        if let Outcome::Result(result) = &outcome
            && let Some(problem) = media::too_large(result, Blocks::Content, self.media_bytes)
        {
            return Outcome::Result(failed(&problem));
        }
        ui::shown(self.links.change(outcome, Links::content), self.host)
    }
}

/// Step 21. What would be mirrored in a header may be `null`, as if it were not there.
///
/// # Cancel safety
/// Like [`Checks::arguments`].
async fn check(
    exchange: &Exchange,
    tool: &Tool,
    arguments: Option<&Json>,
    checks: &Checks,
) -> Result<(), String> {
    let (tenant, Some(input)) = (&exchange.tenant.name, &tool.input) else { return Ok(()) };
    let verdict = checks.arguments(tenant, input, arguments).await;
    match arguments.filter(|_| verdict.is_err()).and_then(|arguments| given(&tool.header_params, arguments)) {
        Some(given) if checks.arguments(tenant, input, Some(&given)).await.is_ok() => Ok(()),
        _ => verdict,
    }
}
