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

use crate::catalog::entry::Entry;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::legacy::asking::Questions;
use crate::legacy::ended::Ended;
use crate::legacy::flights::Flights;
use crate::legacy::flights::Seat;
use crate::legacy::levels::Levels;
use crate::legacy::session::Key;
use crate::legacy::session::Session;
use crate::legacy::subscriptions::Ears;
use crate::listen::hub::Hub;
use crate::listen::hub::Member;
use crate::listen::places::Place;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::protocol::headers;
use crate::protocol::headers::Single;
use crate::protocol::json::Json;
use crate::protocol::level::Level;
use crate::protocol::message::RequestId;
use crate::protocol::version::Handshake;
use crate::seal::KeyRing;

/// The sessions, as far as this process has to know of them.
pub struct Sessions {
    /// Behind one lock: nothing begins in a session that is being ended.
    state: Mutex<State>,
    levels: Levels,
    /// What clients were asked.
    pub questions: Arc<Questions>,
    session_calls: usize,
}

struct State {
    ended: Ended,
    flights: Flights,
    ears: Ears,
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
    member: Arc<Member>,
    key: Key,
    _place: Place,
}

impl Sessions {
    /// None.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let ended = Ended::new(limits.ended_sessions);
        Arc::new(Self {
            state: Mutex::new(State { ended, flights: Flights::default(), ears: Ears::default() }),
            levels: Levels::new(limits.session_levels),
            questions: Arc::new(Questions::new(limits)),
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

    /// Begins a stream in this place.
    pub fn listen(
        self: &Arc<Self>,
        hub: &Arc<Hub>,
        caller: &Caller,
        session: &Session,
        place: Place,
    ) -> Result<Listening, LegacyError> {
        let flight = self.add(&caller.tenant, session, None)?;
        let member = self.state().ears.opened(hub, caller, session);
        Ok(Listening { flight, member, key: session.key, _place: place })
    }

    /// The session subscribes to this resource, which is `entry`: whatever stream of it is open hears when
    /// it changes.
    pub fn subscribe(
        &self,
        hub: &Arc<Hub>,
        caller: &Caller,
        session: &Session,
        uri: &Arc<str>,
        entry: &Entry,
    ) -> Result<Arc<Member>, LegacyError> {
        let mut state = self.state();
        // Again: it may have been ended since it was entered.
        if state.ended.contains(&caller.tenant, session.key) {
            return Err(LegacyError::NoSuchSession);
        }
        let ear = state.ears.of(hub, caller, session);
        let place = match ear.place.take() {
            None => hub.session_place(caller),
            Some(place) => Ok(place),
        };
        let wanted = place.and_then(|place| {
            ear.place = Some(place);
            ear.member.want(uri, entry)
        });
        let member = ear.member.clone();
        state.ears.tidy(session.key);
        wanted?;
        Ok(member)
    }

    /// The session does not subscribe to this resource any more, if it did.
    pub fn unsubscribe(&self, session: &Session, uri: &str) {
        self.state().ears.unsubscribe(session.key, uri);
    }

    /// Forgets what sessions subscribed to that are over, or whose tenants do not serve them any more.
    pub fn forget(&self, now: u64, is_served: impl Fn(&TenantName) -> bool) {
        self.state().ears.forget(now, is_served);
    }

    /// Cancels the call under `id`, if there is one and it is the only one.
    pub fn cancel(&self, session: &Session, id: &Json) {
        self.state().flights.cancel(session.key, id);
    }

    /// From which level on the session wants to hear log messages, if it said so.
    pub fn level(&self, tenant: &TenantName, session: &Session) -> Option<Level> {
        self.levels.get(tenant, session.key)
    }

    /// Remembers that.
    pub fn set_level(&self, tenant: &TenantName, session: &Session, level: Level) {
        self.levels.set(tenant, session.key, level);
    }

    /// Ends a session: nothing in it goes on, and its id opens no more.
    pub fn end(&self, caller: &Caller, session: &Session, now: u64) -> Result<(), LegacyError> {
        let mut state = self.state();
        state.ended.insert(caller, session, now)?;
        state.flights.stop(session.key);
        state.ears.remove(session.key);
        self.levels.forget(&caller.tenant, session.key);
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
    /// Its place among all listeners.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Waits until the session is ended, or the process.
    pub async fn stopped(&self) {
        self.flight.stop.cancelled().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.flight.sessions.state().ears.closed(self.key);
    }
}
