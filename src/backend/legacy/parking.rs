//! Calls that wait for their clients' answers, in the memory of this process.
//!
//! A call that its server asks something in keeps its stream, its session and its place among the calls in
//! flight; what comes meanwhile stays in the socket. Its client's next request finds it by its [`Ticket`]
//! and takes the round, once: whoever sends the same answers again waits with it, or hears how it ended.
//! A call that nobody asks for again ends in time, and so do all with their backend.
//!
//! spec: row X-07; requirements N.3

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::legacy::asking::Given;
use crate::backend::legacy::flight::Flight;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::sessions::Holder;
use crate::backend::legacy::ticket;
use crate::backend::legacy::ticket::Ticket;
use crate::backend::waiting::Interruption;
use crate::backend::waiting::Unanswered;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::telemetry::metrics::Open;

/// The calls that wait before one server.
pub(super) struct Parking {
    /// Told from the rooms of other processes and configurations.
    room: String,
    calls: Mutex<Calls>,
    /// Held while all calls are given up: whoever wants the same waits for it.
    giving_up: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Calls {
    held: HashMap<String, Held>,
    /// The ends that are kept, in order, and until when.
    ended: VecDeque<(Instant, String)>,
    /// What they hold.
    bytes: usize,
    /// Whether somebody takes care that they go.
    swept: bool,
}

/// One round of one call.
struct Held {
    holder: Holder,
    stage: Stage,
}

enum Stage {
    /// The client is asked.
    Asked(Box<Waiting>),
    /// It has answered so, and the call goes on as long as somebody waits for it.
    Answered(String, Weak<Round>),
    /// It had answered so, and this came of it.
    Ended(String, End),
}

/// A call whose client is asked.
struct Waiting {
    flight: Flight,
    /// What the client was told.
    result: Json,
    /// Ends its clock.
    _clock: DropGuard,
    _counted: Open,
}

/// How a round ended: with a question of the next one, or with the call.
pub(super) type End = Result<Outcome, BackendError>;

/// A round that was answered. When nobody waits for it any more, its call is cancelled.
pub(super) struct Round {
    pool: Arc<Pool>,
    call: String,
    pub(super) going: Arc<tokio::sync::Mutex<Going>>,
}

pub(super) enum Going {
    /// The call, for one who waits at a time.
    On(Box<Flight>),
    /// How it ended.
    Over(End),
}

/// What a client's next request finds.
pub(super) enum Found {
    /// The round, whose call goes on.
    Goes(Arc<Round>),
    /// How it ended, or why there is nothing.
    Ended(End),
}

impl Parking {
    /// Nobody waits yet.
    pub(super) fn new() -> Self {
        Self { room: ticket::name(), calls: Mutex::default(), giving_up: tokio::sync::Mutex::default() }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call out whose client is asked.
    fn take(&self, call: &str) -> Option<Box<Waiting>> {
        let mut calls = self.calls();
        if !matches!(calls.held.get(call)?.stage, Stage::Asked(_)) {
            return None;
        }
        match calls.held.remove(call)?.stage {
            Stage::Asked(waiting) => Some(waiting),
            Stage::Answered(..) | Stage::Ended(..) => None,
        }
    }

    /// Tells the server of every call whose client is asked that nobody answers, within
    /// `limits.notice_time`.
    pub(super) async fn give_all_up(&self) {
        let _one_at_a_time = self.giving_up.lock().await;
        let all: Vec<_> = {
            let mut calls = self.calls();
            let asked = calls.held.extract_if(|_, held| matches!(held.stage, Stage::Asked(_)));
            asked.map(|(_, held)| held.stage).collect()
        };
        let all = all.into_iter().filter_map(|stage| match stage {
            Stage::Asked(waiting) => Some(waiting.flight.give_up(Unanswered::Nobody)),
            Stage::Answered(..) | Stage::Ended(..) => None,
        });
        join_all(all).await;
    }
}

impl Pool {
    /// Keeps a call whose client is asked, for `limits.parked_time`; what the client is told.
    pub(super) fn park(self: &Arc<Self>, mut flight: Flight) -> Result<Json, BackendError> {
        let upstream = self.upstream();
        let Holder::Caller(principal) = flight.holder.clone() else {
            return Err(BackendError::Invalid("it asks the gateway something"));
        };
        if flight.place.is_none() {
            let seats = &upstream.around.seats;
            flight.place = seats.place(&principal, &upstream.tenant, &upstream.limits);
        }
        // Dropping it cancels it.
        if flight.place.is_none() || self.retired().is_cancelled() {
            return Err(BackendError::Interrupted(Interruption::Busy));
        }
        let call = ticket::name();
        // Nothing is sent again of a call that has asked: what it was made with need not wait.
        flight.prepared.sent();
        let (ticket, result) = flight.asking.begin(&self.parking().room, call.clone());
        let (tenant, backend, round) = (&upstream.tenant, &upstream.config.name, ticket.round);
        tracing::debug!(%tenant, %backend, round, questions = ticket.asked.len(), "a call waits for its client");
        let clock = CancellationToken::new();
        let (_clock, _counted) = (clock.clone().drop_guard(), upstream.around.metrics.parked_call());
        let waiting = Waiting { flight, result: result.clone(), _clock, _counted };
        let held = Held { holder: Holder::Caller(principal), stage: Stage::Asked(Box::new(waiting)) };
        self.parking().calls().held.insert(call.clone(), held);
        let (pool, time) = (Arc::downgrade(self), upstream.limits.parked_time);
        let (stop, retired) = (upstream.around.stop.clone(), self.retired().clone());
        upstream.around.background(async move {
            let is_over = tokio::select! {
                biased;
                () = clock.cancelled() => false,
                // Then all are given up together, before their sessions are.
                () = stop.cancelled() => false,
                () = retired.cancelled() => true,
                () = tokio::time::sleep(time) => true,
            };
            let Some(pool) = pool.upgrade().filter(|_| is_over) else { return };
            if let Some(waiting) = pool.parking().take(&call) {
                waiting.flight.give_up(Unanswered::Nobody).await;
            }
        });
        Ok(result)
    }

    /// Gives up a call of `holder` that waits under this ticket, if it still does.
    pub(in crate::backend) fn forsake(&self, ticket: &Ticket, holder: &Holder, why: Unanswered) {
        let parking = self.parking();
        let is_theirs = parking.calls().held.get(&ticket.call).is_some_and(|held| held.holder == *holder);
        if ticket.room == parking.room
            && is_theirs
            && let Some(waiting) = parking.take(&ticket.call)
        {
            self.upstream().around.background(waiting.flight.give_up(why));
        }
    }

    /// Finds the round that `call` brings answers for, and takes it if nobody has.
    pub(super) fn find_round(self: &Arc<Self>, ticket: &Ticket, call: &BackendCall) -> Found {
        let interrupted = |why| Found::Ended(Err(BackendError::Interrupted(why)));
        if ticket.room != self.parking().room {
            return interrupted(Interruption::Lost);
        }
        let answers = answers(ticket, call.responses.as_ref());
        let mut calls = self.parking().calls();
        let held = calls.held.get_mut(&ticket.call).filter(|held| held.holder == Holder::of(&call.caller));
        let Some(held) = held else { return interrupted(Interruption::Unknown) };
        match &mut held.stage {
            Stage::Asked(waiting) => match waiting.flight.asking.give(call.responses.as_ref()) {
                // spec: row MR-05
                Given::Missing => Found::Ended(Ok(Outcome::Asks(waiting.result.clone()))),
                Given::Malformed(problem) => interrupted(Interruption::Malformed(problem)),
                Given::All(messages) => {
                    let stage =
                        std::mem::replace(&mut held.stage, Stage::Answered(answers.clone(), Weak::new()));
                    let Stage::Asked(waiting) = stage else { return interrupted(Interruption::Unknown) };
                    let mut flight = waiting.flight;
                    flight.resume(messages, call);
                    let going = Arc::new(tokio::sync::Mutex::new(Going::On(Box::new(flight))));
                    let round = Arc::new(Round { pool: self.clone(), call: ticket.call.clone(), going });
                    held.stage = Stage::Answered(answers, Arc::downgrade(&round));
                    Found::Goes(round)
                }
            },
            Stage::Answered(earlier, round) if *earlier == answers => match round.upgrade() {
                Some(round) => Found::Goes(round),
                None => interrupted(Interruption::Lost),
            },
            Stage::Ended(earlier, end) if *earlier == answers => Found::Ended(end.clone()),
            Stage::Answered(..) | Stage::Ended(..) => interrupted(Interruption::Unknown),
        }
    }

    /// Keeps how a round ended, for who sends the same answers again, within `limits.retry_time` and
    /// `limits.retry_bytes`.
    fn keep_end(self: &Arc<Self>, call: &str, end: End) {
        let (limits, end) = (self.limits(), end.map(Outcome::alone));
        let until = Instant::now() + limits.retry_time;
        let mut calls = self.parking().calls();
        let Some(held) = calls.held.get_mut(call) else { return };
        let Stage::Answered(answers, _) = &mut held.stage else { return };
        let added = weight(&end);
        held.stage = Stage::Ended(std::mem::take(answers), end);
        calls.bytes += added;
        calls.ended.push_back((until, call.to_owned()));
        while calls.bytes > limits.retry_bytes || calls.ended.len() > limits.parked_calls {
            calls.drop_oldest();
        }
        if !calls.ended.is_empty() && !std::mem::replace(&mut calls.swept, true) {
            drop(calls);
            let (pool, stop) = (Arc::downgrade(self), self.upstream().around.stop.clone());
            self.upstream().around.background(async move {
                stop.run_until_cancelled(sweep(pool)).await;
            });
        }
    }
}

/// Drops ends when their time is over, as long as there are any.
async fn sweep(pool: Weak<Pool>) {
    loop {
        let Some(next) = pool.upgrade().and_then(|pool| pool.parking().calls().next_end(Instant::now()))
        else {
            return;
        };
        tokio::time::sleep_until(next).await;
    }
}

impl Calls {
    /// Drops the ends whose time is over; when the next one's will be.
    fn next_end(&mut self, now: Instant) -> Option<Instant> {
        while self.ended.front().is_some_and(|(until, _)| *until <= now) {
            self.drop_oldest();
        }
        let next = self.ended.front().map(|(until, _)| *until);
        self.swept = next.is_some();
        next
    }

    fn drop_oldest(&mut self) {
        let Some((_, call)) = self.ended.pop_front() else { return };
        if let Some(Held { stage: Stage::Ended(_, end), .. }) = self.held.remove(&call) {
            self.bytes -= weight(&end);
        }
    }
}

impl Round {
    /// Keeps how it ended.
    pub(super) fn ended(&self, end: End) {
        self.pool.keep_end(&self.call, end);
    }
}

impl Drop for Round {
    /// Whoever comes now comes too late: the call is cancelled, if it had not ended.
    fn drop(&mut self) {
        self.pool.keep_end(&self.call, Err(BackendError::Interrupted(Interruption::Lost)));
    }
}

/// What one end may hold beside its text.
const END_BYTES: usize = 256;

fn weight(end: &End) -> usize {
    let text = match end {
        Ok(Outcome::Result(result) | Outcome::Asks(result) | Outcome::Task(result)) => result.bytes().len(),
        Ok(Outcome::Error(error)) => {
            error.message.len() + error.data.as_ref().map_or(0, |data| data.bytes().len())
        }
        Err(_) => 0,
    };
    text + END_BYTES
}

/// What tells these answers from others; what was not asked does not count.
fn answers(ticket: &Ticket, responses: Option<&Json>) -> String {
    let given = ticket.keys().fold(Object::new(), |all, key| {
        all.put_some(&key, responses.and_then(|responses| responses.member(&key)).as_ref())
    });
    ticket::digest(&given.finish())
}
