//! `prompts/get`: a prompt with its arguments filled in.

use std::sync::Arc;

use crate::catalog::entry::Prompt;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::rounds::Rounds;
use crate::methods::rounds::Sealing;
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
    sealing: &Sealing,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let (rounds, retry) = Rounds::begin(exchange, &prompt.entry, sealing, limits, metrics)?;
    let links = Links::of(&prompt.entry, snapshot);
    let finish = move |outcome| rounds.settle(links.change(outcome, Links::messages), &links);
    let sent = Sent { retry, ..Sent::plain(exchange.call.params.clone()) };
    forward(exchange, &prompt.entry, sent, finish, limits, metrics).await
}
