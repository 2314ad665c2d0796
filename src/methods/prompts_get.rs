//! `prompts/get`: a prompt with its arguments filled in.

use std::sync::Arc;

use crate::catalog::entry::Prompt;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::media;
use crate::methods::media::Blocks;
use crate::model::limits::Limits;
use crate::telemetry::metrics::Metrics;

/// Gets `prompt` from its backend.
///
/// spec: server/prompts, Getting a Prompt
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream.
pub async fn answer(
    exchange: &Exchange,
    prompt: &Prompt,
    snapshot: &Arc<Snapshot>,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let links = Links::of(&prompt.entry, snapshot);
    let most = limits.media_bytes;
    let finish =
        move |outcome| Ok(links.change(media::within(outcome, Blocks::Messages, most), Links::messages));
    let params = exchange.call.params.clone();
    forward(exchange, &prompt.entry, params, Vec::new(), finish, limits, metrics).await
}
