//! A request of the handshake era in flight: one POST in a session, the frames of its answer, and what
//! its server asks meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Response;
use http::StatusCode;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::clock::Clocks;
use crate::backend::legacy::asking::Asking;
use crate::backend::legacy::asking::Delivery;
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
use crate::backend::mcp::progress::Logs;
use crate::backend::mcp::request::continue_trace;
use crate::backend::mcp::response::Reader;
use crate::backend::mcp::response::may_answer;
use crate::backend::waiting::Interruption;
use crate::backend::waiting::Place;
use crate::exchange::Frame;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::methods::Method;

/// A request from its sending to its end. Dropped before that, it is cancelled.
///
/// spec: 2025-11-25 basic/utilities/cancellation: a closed connection alone cancels nothing
pub(in crate::backend) struct Flight {
    pub(super) pool: Arc<Pool>,
    pub(super) holder: Holder,
    pub(super) prepared: Box<Prepared>,
    /// How deep its answer may be nested.
    depth: usize,
    slot: Option<OwnedSemaphorePermit>,
    /// What it takes of all calls that may wait for their clients, from the first time on that it did.
    pub(super) place: Option<Place>,
    pub(super) stage: Stage,
    /// What its server asks in it.
    pub(super) asking: Asking,
    /// Answers to that, on their way.
    pub(super) delivery: Option<Delivery>,
    /// Whether its session was lost and it goes on in another.
    pub(super) again: bool,
}

pub(super) enum Stage {
    /// A session is looked for, or opened.
    Open(BoxFuture<'static, Result<Lease, Unopened>>),
    /// It was sent in a session, or is about to be.
    Sent(Sent, BoxFuture<'static, Result<Response<Incoming>, BackendError>>),
    /// Its answer is coming.
    Reading(Sent, Reader),
    Over,
}

/// What a request that was sent is known by.
pub(super) struct Sent {
    pub(super) lease: Lease,
    pub(super) id: u64,
    pub(super) judge: Judge,
    /// Messages that came together and were not judged yet.
    waiting: VecDeque<Json>,
    /// What is said of it beside its answer, where its caller wants progress.
    hearing: Option<Hearing>,
}

/// How a step failed.
pub(super) enum Failure {
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
            place: None,
            asking: Asking::of(question),
            delivery: None,
            again: false,
        }
    }

    /// What it holds of the calls in flight, for whoever goes on in its place.
    pub(in crate::backend) fn take_slot(&mut self) -> Option<OwnedSemaphorePermit> {
        self.slot.take()
    }

    /// Everything that it is, for whoever goes on with it; nothing is left to be cancelled here.
    pub(super) fn leave(&mut self) -> Self {
        Self {
            pool: self.pool.clone(),
            holder: self.holder.clone(),
            prepared: self.prepared.clone(),
            depth: self.depth,
            slot: self.slot.take(),
            place: self.place.take(),
            stage: std::mem::replace(&mut self.stage, Stage::Over),
            asking: std::mem::take(&mut self.asking),
            delivery: self.delivery.take(),
            again: self.again,
        }
    }

    /// Goes on for this request of its client.
    ///
    /// spec: row X-14
    pub(super) fn follow(&mut self, call: &BackendCall) {
        self.asking.follow(call);
        let logs = Logs::of(call.meta.log_level, self.pool.limits());
        // A server that was given no token at first has none to speak under.
        let token = call.meta.progress_token.clone().filter(|_| self.prepared.token.is_some());
        if let Stage::Sent(sent, _) | Stage::Reading(sent, _) = &mut self.stage {
            sent.judge.follow(token, logs);
        }
    }

    /// What comes next.
    pub(in crate::backend) async fn next(&mut self, clocks: &mut Clocks) -> Step {
        loop {
            let heard = match self.asking.until {
                None => self.step(clocks).await,
                Some(until) => match tokio::time::timeout_at(until, self.step(clocks)).await {
                    Ok(heard) => heard,
                    Err(_) => return self.park(),
                },
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
                // What it asked was asked in that session.
                Err(Failure::NoSession) if self.asking.has_begun() => {
                    return BackendError::Interrupted(Interruption::Lost).into();
                }
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

    /// # Cancel safety
    /// Dropping the future loses nothing.
    async fn step(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        if let Some(delivery) = &mut self.delivery {
            let delivered = clocks.race(delivery).await.map_err(|clock| late(clock, true))?;
            return self.delivered(delivered);
        }
        match &mut self.stage {
            Stage::Open(_) => self.open(clocks).await,
            Stage::Sent(..) => self.wait(clocks).await,
            Stage::Reading(..) => self.read(clocks).await,
            Stage::Over => Err(BackendError::Invalid("its answer is over").into()),
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
        let hearing = self.prepared.listens().then(|| lease.session().ear().hear(id));
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
            Came::Beside(message) => return self.beside(&message),
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
                    Came::Beside(message) => return self.beside(&message),
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
        if is_request(&message) {
            return self.take(&message);
        }
        self.judge(&message)
    }

    /// What came beside the answer.
    fn beside(&mut self, message: &Json) -> Result<Heard, Failure> {
        if is_request(message) {
            return self.take(message);
        }
        let (Stage::Sent(sent, _) | Stage::Reading(sent, _)) = &mut self.stage else {
            return Ok(Heard::Nothing);
        };
        Ok(sent.judge.hear(message)?)
    }

    /// Judges one message. One that is wrong leaves the stage as it is: the request may go on at the
    /// server, and is cancelled.
    fn judge(&mut self, message: &Json) -> Result<Heard, Failure> {
        let Stage::Reading(sent, _) = &mut self.stage else { return Ok(Heard::Nothing) };
        // Its own requests have ids, too: it may only have given up what it asked.
        if request::is_cancellation(message, sent.id) && !self.asking.has_asked(sent.id) {
            self.stage = Stage::Over;
            return Err(BackendError::Invalid("it cancelled the request").into());
        }
        let heard = match self.asking.wanted_urls(message, self.pool.limits()) {
            Some(result) => Heard::Final(Outcome::Asks(result)),
            None => sent.judge.hear(message)?,
        };
        if matches!(heard, Heard::Final(_))
            && let Stage::Reading(_, reader) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            reader.finish();
        }
        Ok(heard)
    }

    /// Its session, its id there and what it keeps, if it may go on at its server: whoever ends it says so.
    pub(super) fn end(&mut self) -> Option<(Arc<Session>, u64, Box<dyn Send>)> {
        let (sent, answer): (_, Box<dyn Send>) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sent(sent, sending) => (sent, Box::new(sending)),
            Stage::Reading(sent, reader) => (sent, Box::new(reader)),
            Stage::Open(_) | Stage::Over => return None,
        };
        let (session, id) = (sent.lease.session().clone(), sent.id);
        // The slot, too: what goes on in the background is as bounded as what is in flight.
        Some((session, id, Box::new((answer, sent.lease, self.slot.take()))))
    }
}

impl Drop for Flight {
    /// Says that nobody waits any more, then closes the connection.
    fn drop(&mut self) {
        if let Some((session, id, kept)) = self.end() {
            session.tell_beside(request::cancelled(id), kept);
        }
    }
}

/// Whether a message is a request of the server's own.
fn is_request(message: &Json) -> bool {
    message.member("method").is_some() && message.member("id").is_some()
}

/// A session to send a request in; one that listens, where the caller wants to hear of progress or can be
/// asked something, and that says what is logged, where the caller wants that.
fn session(
    pool: &Arc<Pool>,
    holder: &Holder,
    again: bool,
    prepared: &Prepared,
) -> BoxFuture<'static, Result<Lease, Unopened>> {
    let lease = pool.clone().lease(holder.clone(), prepared.capabilities.clone(), again);
    let (listens, level) = (prepared.listens(), prepared.level);
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

/// A clock ran out, after the request was sent or before.
pub(super) fn late(clock: Clock, sent: bool) -> BackendError {
    BackendError::TimedOut { clock, sent }
}
