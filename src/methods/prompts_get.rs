//! `prompts/get`: a prompt with its arguments filled in.

use std::sync::Arc;

use crate::catalog::entry::Prompt;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::Means;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::media;
use crate::methods::media::Blocks;
use crate::methods::rounds::Rounds;

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
    means: &Means<'_>,
) -> Result<Reply<CallError>, CallError> {
    let (rounds, retry) = Rounds::begin(exchange, &prompt.entry, means)?;
    let links = Links::of(&prompt.entry, snapshot);
    let most = means.limits.media_bytes;
    let finish = move |outcome| {
        rounds.settle(links.change(media::within(outcome, Blocks::Messages, most), Links::messages), &links)
    };
    let sent = Sent { retry, ..Sent::plain(exchange.call.params.clone()) };
    forward(exchange, &prompt.entry, sent, finish, means.limits, means.metrics).await
}
