//! A request of the handshake era in flight: one POST in a session, the frames of its answer, and what
//! its server asks meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Response;
use http::StatusCode;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::clock::Clocks;
use crate::backend::legacy::ear::Came;
use crate::backend::legacy::ear::Hearing;
use crate::backend::legacy::ear::either;
use crate::backend::legacy::pool::Lease;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::request;
use crate::backend::legacy::request::Prepared;
use crate::backend::legacy::session::Evidence;
use crate::backend::legacy::session::Session;
use crate::backend::legacy::session::Unopened;
use crate::backend::legacy::sessions::Holder;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::answer::Judge;
use crate::backend::mcp::call::Astray;
use crate::backend::mcp::call::Question;
use crate::backend::mcp::call::Step;
use crate::backend::mcp::probe;
use crate::backend::mcp::progress::Logs;
use crate::backend::mcp::request::continue_trace;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::response::UNEXPLAINED;
use crate::backend::mcp::response::may_answer;
use crate::exchange::Frame;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::methods::Method;

/// A request from its sending to its end. Dropped before that, it is cancelled.
///
/// spec: 2025-11-25 basic/utilities/cancellation: a closed connection alone cancels nothing
pub(in crate::backend) struct Flight {
    pool: Arc<Pool>,
    holder: Holder,
    prepared: Box<Prepared>,
    /// How deep its answer may be nested.
    depth: usize,
    slot: Option<OwnedSemaphorePermit>,
    stage: Stage,
    /// Whether its session was lost and it goes on in another.
    again: bool,
}

enum Stage {
    /// A session is looked for, or opened.
    Open(BoxFuture<'static, Result<Lease, Unopened>>),
    /// It was sent in a session, or is about to be.
    Sent(Sent, BoxFuture<'static, Result<Response<Incoming>, BackendError>>),
    /// Its answer is coming.
    Reading(Sent, Reader),
    Over,
}

/// What a request that was sent is known by.
struct Sent {
    lease: Lease,
    id: u64,
    judge: Judge,
    /// Messages that came together and were not judged yet.
    waiting: VecDeque<Json>,
    /// What is said of it beside its answer, where its caller wants progress.
    hearing: Option<Hearing>,
}

/// How a step failed.
enum Failure {
    /// It ends so.
    End(BackendError),
    /// It was not acted on: the server does not know its session.
    NoSession,
    /// The server speaks as a modern one does, and did nothing.
    Astray(Result<Outcome, BackendError>),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::End(error)
    }
}

impl Flight {
    /// A request in a session of whoever asks. Nothing is sent before the first [`Flight::next`].
    pub(in crate::backend) fn new(
        pool: &Arc<Pool>,
        question: &Question,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let holder = match question {
            Question::Caller(call) => Holder::of(&call.caller),
            Question::Own(account, ..) => Holder::of_account(account),
        };
        let prepared = Box::new(Prepared::new(question));
        Self {
            stage: Stage::Open(session(pool, &holder, false, &prepared)),
            pool: pool.clone(),
            holder,
            prepared,
            depth: question.depth(pool.limits()),
            slot,
            again: false,
        }
    }

    /// What it holds of the calls in flight, for whoever goes on in its place.
    pub(in crate::backend) fn take_slot(&mut self) -> Option<OwnedSemaphorePermit> {
        self.slot.take()
    }

    /// What comes next.
    pub(in crate::backend) async fn next(&mut self, clocks: &mut Clocks) -> Step {
        loop {
            let heard = match &mut self.stage {
                Stage::Open(_) => self.open(clocks).await,
                Stage::Sent(..) => self.wait(clocks).await,
                Stage::Reading(..) => self.read(clocks).await,
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
                Err(Failure::End(error)) => return error.into(),
                Err(Failure::Astray(end)) => return Step::Astray(Astray { untouched: true, end }),
                Err(Failure::NoSession) if self.again => {
                    let reason = "it does not know the session that it has just begun";
                    return BackendError::NotOpened(reason).into();
                }
                Err(Failure::NoSession) => {
                    self.again = true;
                    self.stage = Stage::Open(session(&self.pool, &self.holder, true, &self.prepared));
                }
            }
        }
    }

    async fn open(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        let Stage::Open(opening) = &mut self.stage else { return Ok(Heard::Nothing) };
        let lease = clocks.race(opening).await.map_err(|clock| late(clock, false))?;
        self.stage = Stage::Over;
        let lease = lease.map_err(|unopened| match unopened.evidence {
            Evidence::None => Failure::End(unopened.error),
            // Who refuses one session and keeps others is what it was.
            Evidence::Unlike if self.pool.has_sessions() => Failure::End(unopened.error),
            Evidence::Unlike | Evidence::Modern => Failure::Astray(Err(unopened.error)),
        })?;
        let upstream = lease.session().upstream();
        let id = upstream.mint_id();
        let message = self.prepared.message(lease.session().revision(), id);
        let mut request = lease.session().post(&message)?;
        continue_trace(request.headers_mut(), &self.prepared.trace);
        let (tenant, backend) = (&upstream.tenant, &upstream.config.name);
        tracing::debug!(%tenant, %backend, id, method = self.prepared.method.name(), "asks in a session");
        let hearing = self.prepared.token.as_ref().map(|_| lease.session().ear().hear(id));
        let sending = Box::pin(upstream.send(request));
        let logs = Logs::of(self.prepared.level, &upstream.limits);
        let judge = Judge::new(id, self.prepared.token.clone()).with_logs(logs);
        self.stage = Stage::Sent(Sent { lease, id, judge, waiting: VecDeque::new(), hearing }, sending);
        Ok(Heard::Nothing)
    }

    async fn wait(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        let Stage::Sent(sent, sending) = &mut self.stage else { return Ok(Heard::Nothing) };
        // Here and below: a clock that runs out leaves the stage as it is, to be cancelled.
        let came = clocks.race(either(sent.hearing.as_mut(), sending)).await;
        let response = match came.map_err(|clock| late(clock, true))? {
            Came::Expected(response) => response,
            Came::Beside(message) => return Ok(sent.judge.hear(&message)?),
        };
        let Stage::Sent(sent, _) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(Heard::Nothing);
        };
        let response = response.inspect_err(|_| self.pool.backoff().doubt())?;
        let status = response.status();
        let may_answer = self.prepared.method == Method::ToolsCall && may_answer(response.headers());
        match Reader::open(response, self.pool.limits().upstream_bytes, self.depth) {
            Ok(reader) => {
                // Who answers so has taken it, and it is not sent again.
                if status == StatusCode::OK {
                    self.prepared.sent();
                }
                self.stage = Stage::Reading(sent, reader);
                Ok(Heard::Nothing)
            }
            // spec: 2025-11-25 basic/transports, Session Management
            Err(_) if status == StatusCode::NOT_FOUND && sent.lease.session().has_id() && !may_answer => {
                Err(self.lost(&sent))
            }
            Err(error) => Err(self.spoilt(&sent, status, error)),
        }
    }

    async fn read(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        let Stage::Reading(sent, reader) = &mut self.stage else { return Ok(Heard::Nothing) };
        let status = reader.status();
        if status != StatusCode::OK {
            return self.refused(clocks).await;
        }
        let batched = sent.waiting.pop_front();
        let may_batch = batched.is_none() && sent.lease.session().revision().has_batches();
        let message = match batched {
            Some(message) => Ok(message),
            None => {
                let came = clocks.race(either(sent.hearing.as_mut(), reader.message())).await;
                match came.map_err(|clock| late(clock, true))? {
                    Came::Expected(message) => message,
                    Came::Beside(message) => return Ok(sent.judge.hear(&message)?),
                }
            }
        };
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                let Stage::Reading(sent, _) = std::mem::replace(&mut self.stage, Stage::Over) else {
                    return Err(error.into());
                };
                return Err(self.spoilt(&sent, status, error));
            }
        };
        // spec: 2025-03-26 basic/index, Batching
        if message.kind() == Kind::Array && may_batch {
            let most = self.pool.limits().upstream_batch;
            sent.waiting.extend(message.elements().take(most + 1));
            if sent.waiting.len() > most {
                return Err(BackendError::Invalid("it sent too many messages at once").into());
            }
            return Ok(Heard::Nothing);
        }
        if let (Some(method), Some(id)) = (message.member("method"), message.member("id")) {
            return self.answer(&id, &method);
        }
        self.judge(&message)
    }

    /// Judges one message. One that is wrong leaves the stage as it is: the request may go on at the
    /// server, and is cancelled.
    fn judge(&mut self, message: &Json) -> Result<Heard, Failure> {
        let Stage::Reading(sent, _) = &mut self.stage else { return Ok(Heard::Nothing) };
        if request::is_cancellation(message, sent.id) {
            self.stage = Stage::Over;
            return Err(BackendError::Invalid("it cancelled the request").into());
        }
        let heard = sent.judge.hear(message)?;
        if matches!(heard, Heard::Final(_))
            && let Stage::Reading(_, reader) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            reader.finish();
        }
        Ok(heard)
    }

    /// An answer whose status says that the request was refused.
    async fn refused(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        let Stage::Reading(_, reader) = &mut self.stage else { return Ok(Heard::Nothing) };
        let status = reader.status();
        let message = clocks.race(reader.refusal()).await.map_err(|clock| late(clock, true))?;
        let Stage::Reading(mut sent, reader) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(Heard::Nothing);
        };
        let message = message.map_err(|error| self.spoilt(&sent, status, error))?;
        let code = message.as_ref().and_then(probe::error_code);
        let answers = message.as_ref().is_some_and(|message| probe::answers(message, sent.id));
        let no_session = match status {
            // spec: 2025-11-25 basic/transports, Session Management
            StatusCode::NOT_FOUND if answers && code == Some(code::METHOD_NOT_FOUND) => false,
            StatusCode::NOT_FOUND => sent.lease.session().has_id(),
            // How some servers say it.
            StatusCode::BAD_REQUEST => code == Some(code::NO_SESSION),
            _ => false,
        };
        // Under our id it is what the request came to, and the server may have acted on it.
        let may_repeat = !answers || (self.prepared.method != Method::ToolsCall && !self.again);
        if no_session && may_repeat {
            return Err(self.lost(&sent));
        }
        if no_session {
            // It may have meant the session all the same: the next request goes in another.
            sent.lease.discard();
        }
        let end = match message.filter(|message| message.member("error").is_some()) {
            Some(message) => sent.judge.hear(&message),
            None => Err(BackendError::Invalid(UNEXPLAINED)),
        };
        let end = end.and_then(|heard| match heard {
            Heard::Final(outcome) => Ok(outcome),
            Heard::Nothing | Heard::Progress(_) | Heard::Log(_) => Err(BackendError::Invalid(UNEXPLAINED)),
        });
        match (code, end) {
            (Some(code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION), end) => {
                sent.lease.lost();
                Err(Failure::Astray(end))
            }
            (_, Ok(outcome)) => {
                reader.finish();
                Ok(Heard::Final(outcome))
            }
            (_, Err(error)) => Err(self.spoilt(&sent, status, error)),
        }
    }

    /// The server does not know the session. Others go one by one until one is open again.
    fn lost(&self, sent: &Sent) -> Failure {
        sent.lease.lost();
        self.pool.backoff().doubt();
        // It may have been restarted as something else; lists that show it are on their way to that.
        if self.holder != Holder::Gateway {
            sent.lease.session().upstream().suspect();
        }
        Failure::NoSession
    }

    /// There is no right answer. A session in which requests are refused without one is not used again.
    fn spoilt(&self, sent: &Sent, status: StatusCode, error: BackendError) -> Failure {
        if status.is_client_error() && probe::is_evidence(status) {
            sent.lease.discard();
        }
        if status.is_server_error() || matches!(error, BackendError::Broken(_)) {
            self.pool.backoff().doubt();
        }
        error.into()
    }

    /// Answers a request of the server's own.
    fn answer(&mut self, id: &Json, method: &Json) -> Result<Heard, Failure> {
        let Stage::Reading(sent, _) = &mut self.stage else { return Ok(Heard::Nothing) };
        let is_id = id.kind() == Kind::String || id.is_integer();
        let method = method.string_ref().filter(|_| is_id && id.bytes().len() <= self.pool.limits().id_bytes);
        let method = method.ok_or(BackendError::Invalid("it sent a request that is none"))?;
        match sent.lease.session().reply(id, &method) {
            true => Ok(Heard::Nothing),
            false => {
                Err(BackendError::Invalid("it sends requests of its own faster than it takes answers").into())
            }
        }
    }
}

impl Drop for Flight {
    /// Says that nobody waits any more, then closes the connection.
    fn drop(&mut self) {
        let (sent, answer): (_, Box<dyn Send>) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sent(sent, sending) => (sent, Box::new(sending)),
            Stage::Reading(sent, reader) => (sent, Box::new(reader)),
            Stage::Open(_) | Stage::Over => return,
        };
        let session: Arc<Session> = sent.lease.session().clone();
        // The slot, too: what goes on in the background is as bounded as what is in flight.
        let kept = (answer, sent.lease, self.slot.take());
        session.tell_beside(request::cancelled(sent.id), kept);
    }
}

/// A session to send a request in; one that listens, where the caller wants to hear of progress, and that
/// says what is logged, where the caller wants that.
fn session(
    pool: &Arc<Pool>,
    holder: &Holder,
    again: bool,
    prepared: &Prepared,
) -> BoxFuture<'static, Result<Lease, Unopened>> {
    let lease = pool.clone().lease(holder.clone(), prepared.capabilities.clone(), again);
    let (listens, level) = (prepared.token.is_some(), prepared.level);
    Box::pin(async move {
        let lease = lease.await?;
        if let Some(level) = level {
            lease.session().lower(level).await;
        }
        if listens {
            lease.session().listen().await;
        }
        Ok(lease)
    })
}

fn late(clock: Clock, sent: bool) -> BackendError {
    BackendError::TimedOut { clock, sent }
}
