//! What this process knows of sessions: which were ended, and what goes on in the others.

use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use futures_util::StreamExt;
use futures_util::stream;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::asking::Questions;
use crate::legacy::ended::Ended;
use crate::legacy::flights::Flights;
use crate::legacy::flights::Seat;
use crate::legacy::session::Session;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Counted;
use crate::model::tally::Tally;
use crate::protocol::headers;
use crate::protocol::headers::Single;
use crate::protocol::json::Json;
use crate::protocol::message::RequestId;
use crate::protocol::version::Handshake;
use crate::seal::KeyRing;

/// The sessions, as far as this process has to know of them.
pub struct Sessions {
    /// Behind one lock: nothing begins in a session that is being ended.
    state: Mutex<State>,
    /// What clients were asked.
    pub questions: Arc<Questions>,
    callers: Arc<Tally<String>>,
    tenants: Arc<Tally<TenantName>>,
    caller_streams: usize,
    tenant_streams: usize,
    session_calls: usize,
}

struct State {
    ended: Ended,
    flights: Flights,
}

/// Something that goes on in a session, until this is dropped.
pub struct Flight {
    sessions: Arc<Sessions>,
    seat: Seat,
    stop: CancellationToken,
}

/// A stream of a session, until this is dropped.
pub struct Listening {
    flight: Flight,
    _counted: (Counted<String>, Counted<TenantName>),
}

impl Sessions {
    /// None.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let ended = Ended::new(limits.ended_sessions);
        Arc::new(Self {
            state: Mutex::new(State { ended, flights: Flights::default() }),
            questions: Arc::default(),
            callers: Arc::default(),
            tenants: Arc::default(),
            caller_streams: limits.caller_streams,
            tenant_streams: limits.tenant_streams,
            session_calls: limits.session_calls,
        })
    }

    /// The session that `caller` names. The version is judged first: another one than was agreed on is
    /// let pass if it is of the era, and the session's rules.
    ///
    /// spec: 2025-11-25 basic/transports, Session Management, Protocol Version Header
    pub fn enter(
        &self,
        ring: &KeyRing,
        caller: &Caller,
        headers: &HeaderMap,
        now: u64,
    ) -> Result<Session, LegacyError> {
        match headers::single(headers, headers::VERSION) {
            Single::Zero => {}
            Single::One(version) if headers::visible(version).is_ok_and(is_served) => {}
            Single::One(_) | Single::Many => return Err(LegacyError::Version),
        }
        let id = match headers::single(headers, headers::SESSION) {
            Single::Zero => return Err(LegacyError::NoSession),
            Single::One(id) => headers::visible(id).map_err(|_| LegacyError::NoSuchSession)?,
            Single::Many => return Err(LegacyError::RepeatedSession),
        };
        let session = Session::open(ring, caller, id, now)?;
        match self.state().ended.contains(&caller.tenant, session.key) {
            true => Err(LegacyError::NoSuchSession),
            false => Ok(session),
        }
    }

    /// Begins a call.
    pub fn begin(
        self: &Arc<Self>,
        tenant: &TenantName,
        session: &Session,
        id: &RequestId,
    ) -> Result<Flight, LegacyError> {
        self.add(tenant, session, Some(id))
    }

    /// Begins a stream.
    pub fn listen(self: &Arc<Self>, caller: &Caller, session: &Session) -> Result<Listening, LegacyError> {
        let own = self.callers.take(caller.principal(), self.caller_streams, usize::MAX);
        let own = own.ok_or(LegacyError::TooManyStreams)?;
        let tenants = self.tenants.take(caller.tenant.clone(), self.tenant_streams, usize::MAX);
        let tenants = tenants.ok_or(LegacyError::TooManyStreams)?;
        Ok(Listening { flight: self.add(&caller.tenant, session, None)?, _counted: (own, tenants) })
    }

    /// Cancels the call under `id`, if there is one and it is the only one.
    pub fn cancel(&self, session: &Session, id: &Json) {
        self.state().flights.cancel(session.key, id);
    }

    /// Ends a session: nothing in it goes on, and its id opens no more.
    pub fn end(&self, caller: &Caller, session: &Session, now: u64) -> Result<(), LegacyError> {
        let mut state = self.state();
        state.ended.insert(caller, session, now)?;
        state.flights.stop(session.key);
        Ok(())
    }

    /// Stops what goes on in any session, for the end of the process.
    pub fn stop(&self) {
        self.state().flights.stop_all();
    }

    fn add(
        self: &Arc<Self>,
        tenant: &TenantName,
        session: &Session,
        id: Option<&RequestId>,
    ) -> Result<Flight, LegacyError> {
        let mut state = self.state();
        // Again: it may have been ended since it was entered.
        if state.ended.contains(tenant, session.key) {
            return Err(LegacyError::NoSuchSession);
        }
        let seat = state.flights.add(session.key, id, self.session_calls);
        let (seat, stop) = seat.ok_or(LegacyError::TooManyCalls)?;
        Ok(Flight { sessions: self.clone(), seat, stop })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_served(version: &str) -> bool {
    Handshake::named(version).is_some()
}

impl Flight {
    /// What `step` comes to, unless the call is cancelled before.
    ///
    /// # Cancel safety
    /// As that of `step`.
    pub async fn unless_cancelled<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(step).await
    }

    /// `work`, until it is cancelled. It is in flight for as long as its answer goes on.
    ///
    /// # Cancel safety
    /// Dropping the future, or the stream in the reply, drops `work`.
    pub async fn carry<E: From<LegacyError> + Send + 'static>(
        self,
        work: impl Future<Output = Result<Reply<E>, E>>,
    ) -> Result<Reply<E>, E> {
        match self.stop.run_until_cancelled(work).await {
            None => Err(LegacyError::Withdrawn.into()),
            Some(Ok(Reply::Stream(frames))) => Ok(Reply::Stream(self.follow(frames))),
            Some(end) => end,
        }
    }

    fn follow<E: From<LegacyError> + Send + 'static>(self, frames: Frames<E>) -> Frames<E> {
        let stopped = self.stop.clone().cancelled_owned();
        let withdrawn = stream::once(async { Frame::End(Err(LegacyError::Withdrawn.into())) });
        let frames = frames.take_until(stopped).chain(withdrawn);
        frames
            .inspect(move |_| {
                let _in_flight_until_dropped = &self;
            })
            .boxed()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.sessions.state().flights.remove(&self.seat);
    }
}

impl Listening {
    /// Waits until the session is ended, or the process.
    pub async fn stopped(&self) {
        self.flight.stop.cancelled().await;
    }
}
