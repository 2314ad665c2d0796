//! Several messages in one POST, in the one revision that has them: each is judged by itself, some at a
//! time, and the answers come in the batch's order.
//!
//! A batch is one request to everybody else: it has one deadline, which is not past the end of its
//! token or session, and one bound for all that it answers.
//!
//! spec: 2025-03-26 basic/transports, Sending Messages to the Server

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use crate::error::Refusal;
use crate::exchange::Answered;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::lasting::Work;
use crate::pipeline::Trail;
use crate::pipeline::session::Context;
use crate::pipeline::session::Found;
use crate::pipeline::session::read;
use crate::pipeline::session::take;
use crate::pipeline::standing::is_served;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::media::Accept;
use crate::protocol::message::Envelope;
use crate::protocol::message::RequestId;
use crate::protocol::methods::INITIALIZE;

/// A batch that is taken.
struct Batch {
    context: Context,
    /// When its token or its session ends, in seconds since the Unix epoch.
    ends_at: u64,
}

/// Work on the batch that `json` is.
pub(super) fn work(context: Context, json: &Json) -> Result<Work<Refusal>, LegacyError> {
    if !context.session.revision.has_batches() {
        return Err(LegacyError::Batch(
            "a message is one JSON object: the session's revision has no batches",
        ));
    }
    let limits = context.app.limits.clone();
    let messages: Vec<Json> = json.elements().take(limits.batch_messages + 1).collect();
    if messages.is_empty() {
        return Err(LegacyError::Batch("a batch has at least one message"));
    }
    if messages.len() > limits.batch_messages {
        return Err(LegacyError::Batch("the batch has too many messages"));
    }
    let batch = Batch::new(context);
    Ok(async move {
        let one = |message| batch.answer(message);
        // At most so many answers wait here for one before them; all others have been fitted.
        let mut ends = stream::iter(messages).map(one).buffered(limits.batch_calls);
        let (mut answers, mut room) = (Vec::new(), limits.batch_bytes);
        while let Some(answer) = ends.next().await {
            answers.extend(answer.map(|answer| fitted(answer, &mut room)));
        }
        match answers.is_empty() {
            true => Ok(Reply::Accepted),
            false => Ok(Reply::Batch(answers)),
        }
    }
    .boxed())
}

impl Batch {
    fn new(context: Context) -> Self {
        let ends_at = context.party.caller.good_until().min(context.session.expires_at);
        let left = Duration::from_secs(ends_at.saturating_sub(context.app.clock.now()));
        let end = Instant::now().checked_add(left).unwrap_or(context.deadline);
        // Progress of one would stand between the answers to others.
        let accept = Accept { json: true, sse: false };
        Self { context: Context { accept, deadline: context.deadline.min(end), ..context }, ends_at }
    }

    /// The answer to one message, if it has one.
    async fn answer(&self, message: Json) -> Option<Answered<Refusal>> {
        let context = &self.context;
        let envelope = Envelope::read(&message, context.app.limits.id_bytes);
        let id = envelope.id().cloned();
        if let Err(over) = self.goes_on() {
            // What wants no answer gets none.
            let is_silent = envelope.is_notification() || envelope.is_response();
            return (!is_silent).then(|| Answered { id, end: Err(over.into()) });
        }
        let end = async {
            if envelope.method() == Some(INITIALIZE) {
                return Err(LegacyError::Batch("`initialize` stands alone").into());
            }
            match take(context, read(context, envelope)?, &mut Trail::default()).await? {
                Found::Reply(reply) => Ok(reply),
                Found::Work(work) => work.await,
            }
        };
        match end.await {
            Ok(Reply::Once(outcome)) => Some(Answered { id, end: Ok(outcome.alone()) }),
            Ok(_) | Err(Refusal::Legacy(LegacyError::Withdrawn)) => None,
            Err(refusal) => Some(Answered { id, end: Err(refusal) }),
        }
    }

    /// Whether one more message may begin.
    fn goes_on(&self) -> Result<(), LegacyError> {
        let Context { app, party, deadline, .. } = &self.context;
        if self.ends_at <= app.clock.now() {
            return Err(LegacyError::Batch("not begun: the batch's token, or its session, has ended"));
        }
        if *deadline <= Instant::now() {
            return Err(LegacyError::Batch("not begun: the time of the whole batch is over"));
        }
        match is_served(app, party) {
            true => Ok(()),
            false => Err(LegacyError::Batch("not begun: sessions of this caller are not served any more")),
        }
    }
}

/// `answer`, if there is `room` for it, else an error that says so.
fn fitted(answer: Answered<Refusal>, room: &mut usize) -> Answered<Refusal> {
    if let Some(left) = room.checked_sub(size(&answer)) {
        *room = left;
        return answer;
    }
    let message = "the answers to this batch are too large together: this one is left out".to_owned();
    let error = RpcError { code: code::INTERNAL_ERROR, message, data: None };
    Answered { id: answer.id, end: Ok(Outcome::Error(error)) }
}

/// The bytes that an answer will be on the wire, but for what all answers have.
fn size(answer: &Answered<Refusal>) -> usize {
    let id = answer.id.as_ref().map(RequestId::as_json).map_or(0, |id| id.bytes().len());
    let end = match &answer.end {
        Ok(Outcome::Result(result) | Outcome::Asks(result) | Outcome::Task(result)) => result.bytes().len(),
        Ok(Outcome::Error(RpcError { message, data, .. })) => {
            let data = data.as_ref().map_or(0, |data| data.bytes().len());
            Json::from_str_value(message).bytes().len() + data
        }
        Err(refusal) => refusal.size(),
    };
    id + end
}
