//! The value that travels, and what comes back.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::model::caller::Caller;
use crate::model::endpoint::Endpoint;
use crate::model::tenant::Tenant;
use crate::protocol::call::Call;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::message::RequestId;

/// One request with everything about it proven. Read-only: rooms return what they learn.
pub struct Exchange {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// Where.
    pub endpoint: Arc<Endpoint>,
    /// Of which tenant.
    pub tenant: Arc<Tenant>,
    /// What.
    pub call: Call,
    /// Until when, at the latest, it is worth answering.
    pub deadline: Instant,
}

/// What a request is answered with. `E` is how an answer that has already begun may fail.
pub enum Reply<E> {
    /// A notification was taken: 202 and no body.
    Accepted,
    /// One answer.
    Once(Outcome),
    /// Notifications, then the answer.
    Stream(Frames<E>),
    /// One answer, and the handle of the session that it opens.
    Opened {
        /// The answer.
        outcome: Outcome,
        /// What the client names the session by.
        session: String,
    },
    /// The answers to a batch, in its order; at least one.
    Batch(Vec<Answered<E>>),
    /// What changes, until the stream ends.
    Notices(Notices),
    /// A session was ended: 204 and no body.
    Ended,
}

/// The answer to one message of a batch.
pub struct Answered<E> {
    /// The id to answer under, if one was read.
    pub id: Option<RequestId>,
    /// The answer.
    pub end: Result<Outcome, E>,
}

impl<E: 'static> Reply<E> {
    /// The same reply with another end: that of a call, at once or after its notifications. The other replies
    /// are no call's.
    pub fn map_end(
        self,
        mut end: impl FnMut(Result<Outcome, E>) -> Result<Outcome, E> + Send + 'static,
    ) -> Result<Self, E> {
        Ok(match self {
            Self::Once(outcome) => Self::Once(end(Ok(outcome))?),
            Self::Stream(frames) => Self::Stream(Box::pin(frames.map(move |frame| match frame {
                Frame::Notice(json) => Frame::Notice(json),
                Frame::End(ended) => Frame::End(end(ended)),
            }))),
            other @ (Self::Accepted
            | Self::Opened { .. }
            | Self::Batch(_)
            | Self::Notices(_)
            | Self::Ended) => other,
        })
    }

    /// The same reply for somebody who calls its failures otherwise.
    pub fn map_err<F>(self, rename: impl Fn(E) -> F + Send + 'static) -> Reply<F> {
        match self {
            Self::Accepted => Reply::Accepted,
            Self::Once(outcome) => Reply::Once(outcome),
            Self::Stream(frames) => Reply::Stream(Box::pin(frames.map(move |frame| match frame {
                Frame::Notice(json) => Frame::Notice(json),
                Frame::End(end) => Frame::End(end.map_err(&rename)),
            }))),
            Self::Opened { outcome, session } => Reply::Opened { outcome, session },
            Self::Batch(answers) => {
                let renamed = |Answered { id, end }| Answered { id, end: end.map_err(&rename) };
                Reply::Batch(answers.into_iter().map(renamed).collect())
            }
            Self::Notices(notices) => Reply::Notices(notices),
            Self::Ended => Reply::Ended,
        }
    }
}

/// What a client hears that listens. Dropping it ends the listening. It is polled as the client reads, so
/// that nothing waits here for a slow one.
pub type Notices = Pin<Box<dyn Stream<Item = Notice> + Send>>;

/// One step of listening.
pub enum Notice {
    /// A complete notification.
    Message(Json),
    /// The result of the request that asked for them: the last step, where a request did.
    End(Json),
}

/// Frames until, and with, the one [`Frame::End`]. Dropping it cancels the request.
pub type Frames<E> = Pin<Box<dyn Stream<Item = Frame<E>> + Send>>;

/// One step of an answer that may be a stream.
pub enum Frame<E> {
    /// A complete notification for the client about its request. Where it reads too slowly, newer ones
    /// take the place of older ones.
    Notice(Json),
    /// How it ended.
    End(Result<Outcome, E>),
}
