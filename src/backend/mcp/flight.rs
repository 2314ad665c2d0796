//! A request of the modern era in flight: one POST, and the frames of its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::StatusCode;
use http_body_util::Full;

use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::clock::Clocks;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::answer::Judge;
use crate::backend::mcp::call::Astray;
use crate::backend::mcp::call::Question;
use crate::backend::mcp::call::Step;
use crate::backend::mcp::probe;
use crate::backend::mcp::progress::Logs;
use crate::backend::mcp::request;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::response::UNEXPLAINED;
use crate::backend::mcp::upstream::Upstream;
use crate::exchange::Frame;
use crate::protocol::json::Json;

/// A request from its sending to its end. Dropping it closes the connection.
///
/// spec: streamable-http, Cancellation
pub(super) struct Flight {
    upstream: Arc<Upstream>,
    id: u64,
    /// Whether it is a caller's, who has a say in it.
    is_callers: bool,
    judge: Judge,
    /// How deep its answer may be nested.
    depth: usize,
    stage: Stage,
}

enum Stage {
    Send(Request<Full<Bytes>>),
    Read(Reader),
    Over,
}

impl Flight {
    /// Makes the request. Nothing is sent before the first [`Flight::next`].
    pub(super) fn new(upstream: &Arc<Upstream>, question: &Question) -> Result<Self, BackendError> {
        let id = upstream.mint_id();
        let (request, judge) = match question {
            Question::Caller(call) => {
                let logs = Logs::of(call.meta.log_level, &upstream.limits);
                let judge = Judge::new(id, call.meta.progress_token.clone()).with_logs(logs).of_call(call);
                (request::call(upstream, id, call)?, judge)
            }
            Question::Own(account, method, params) => {
                (request::own(upstream, id, account, *method, params)?, Judge::new(id, None))
            }
        };
        let depth = question.depth(&upstream.limits);
        let is_callers = matches!(question, Question::Caller(_));
        Ok(Self { upstream: upstream.clone(), id, is_callers, judge, depth, stage: Stage::Send(request) })
    }

    /// What comes next.
    pub(super) async fn next(&mut self, clocks: &mut Clocks) -> Step {
        loop {
            let heard = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Send(request) => self.send(request, clocks).await,
                Stage::Read(reader) => self.read(reader, clocks).await,
                Stage::Over => Err(BackendError::Invalid("its answer is over").into()),
            };
            match heard {
                // Much that means nothing may have come at once.
                Ok(Heard::Nothing) => tokio::task::consume_budget().await,
                Ok(Heard::Progress(message)) => {
                    clocks.progressed();
                    return Step::Frame(Frame::Notice(message));
                }
                Ok(Heard::Log(message)) => return Step::Frame(Frame::Notice(message)),
                Ok(Heard::Final(outcome)) => return Step::Frame(Frame::End(Ok(outcome))),
                Err(step) => return step,
            }
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>, clocks: &Clocks) -> Result<Heard, Step> {
        let response = clocks.race(self.upstream.send(request)).await.map_err(late)??;
        let status = response.status();
        match Reader::open(response, self.upstream.limits.upstream_bytes, self.depth) {
            Ok(reader) => {
                self.stage = Stage::Read(reader);
                Ok(Heard::Nothing)
            }
            Err(error) => Err(match self.contradicts(status, None) {
                Some(untouched) => astray(untouched, Err(error)),
                None => error.into(),
            }),
        }
    }

    async fn read(&mut self, mut reader: Reader, clocks: &Clocks) -> Result<Heard, Step> {
        if reader.status() != StatusCode::OK {
            return self.refused(reader, clocks).await;
        }
        let message = clocks.race(reader.message()).await.map_err(late)??;
        let heard = self.judge.hear(&message);
        match &heard {
            Ok(Heard::Final(_)) => reader.finish(),
            Ok(Heard::Nothing | Heard::Progress(_) | Heard::Log(_)) => self.stage = Stage::Read(reader),
            Err(_) => {}
        }
        Ok(heard?)
    }

    /// What [`probe::contradicts`] says, but for a caller's request that cannot be processed: that is how
    /// some servers of the handshake era refuse what opens no session, and how a modern one may find
    /// arguments wrong.
    fn contradicts(&self, status: StatusCode, message: Option<&Json>) -> Option<bool> {
        match self.is_callers && status == StatusCode::UNPROCESSABLE_ENTITY {
            true => None,
            false => probe::contradicts(status, message, self.id),
        }
    }

    /// An answer whose status says that the request was refused.
    async fn refused(&mut self, mut reader: Reader, clocks: &Clocks) -> Result<Heard, Step> {
        let status = reader.status();
        let message = match clocks.race(reader.refusal()).await.map_err(late)? {
            Ok(message) => message,
            // It may be the answer to what was done.
            Err(error) if self.contradicts(status, None).is_some() => {
                return Err(astray(false, Err(error)));
            }
            Err(error) => return Err(error.into()),
        };
        let heard = match &message {
            Some(message) if message.member("error").is_some() => self.judge.hear(message),
            _ => Err(BackendError::Invalid(UNEXPLAINED)),
        };
        if let Some(untouched) = self.contradicts(status, message.as_ref()) {
            return Err(astray(untouched, heard));
        }
        if let Ok(Heard::Final(_)) = &heard {
            reader.finish();
        }
        Ok(heard?)
    }
}

/// What ends in either way: as it came, or with an error of ours.
fn astray(untouched: bool, heard: Result<Heard, BackendError>) -> Step {
    let end = match heard {
        Ok(Heard::Final(outcome)) => Ok(outcome),
        Ok(Heard::Nothing | Heard::Progress(_) | Heard::Log(_)) => {
            Err(BackendError::Invalid("its answer has no response in it"))
        }
        Err(error) => Err(error),
    };
    Step::Astray(Astray { untouched, end })
}

/// A clock that ran out while connecting counts as sent, too: nobody can tell any more.
fn late(clock: Clock) -> BackendError {
    BackendError::TimedOut { clock, sent: true }
}
