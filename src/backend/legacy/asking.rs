//! A call that its server asks something in: what waits for an answer, and how the call goes on with it.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::StatusCode;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::legacy::flight::Failure;
use crate::backend::legacy::flight::Flight;
use crate::backend::legacy::flight::Stage;
use crate::backend::legacy::questions::Question;
use crate::backend::legacy::questions::is_question;
use crate::backend::legacy::questions::wanted_urls;
use crate::backend::legacy::request;
use crate::backend::legacy::session::Session;
use crate::backend::legacy::ticket;
use crate::backend::legacy::ticket::AGAIN;
use crate::backend::legacy::ticket::Ticket;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::call::Question as Asked;
use crate::backend::mcp::call::Step;
use crate::backend::waiting::Interruption;
use crate::backend::waiting::Unanswered;
use crate::exchange::Frame;
use crate::model::limits::Limits;
use crate::protocol::able::Able;
use crate::protocol::call::Outcome;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;

/// How long siblings of a question are waited for.
///
/// spec: requirements N.3, Collect
const TOGETHER: Duration = Duration::from_millis(50);

/// What the server of one call asks.
#[derive(Default)]
pub(super) struct Asking {
    /// What the call's client can be asked; nothing in a request that nobody is asked in.
    able: Able,
    /// Whether it is a request in which anybody is asked.
    may_ask: bool,
    /// How often its client was asked.
    pub(super) rounds: usize,
    /// What nobody has answered yet.
    open: Vec<Question>,
    /// The server's ids of what was asked so far.
    ids: HashSet<String>,
    /// Until when siblings are waited for, where anything is open.
    pub(super) until: Option<Instant>,
    /// What the client has answered to the same questions in a process that is gone, each by its digest.
    supplied: HashMap<String, Json>,
}

/// What becomes of answers.
pub(super) enum Given {
    /// They are these messages.
    All(Vec<Json>),
    /// One is missing.
    Missing,
    /// One is none.
    Malformed(&'static str),
}

/// Answers on their way to the server: whether it took them.
pub(super) type Delivery = BoxFuture<'static, Result<(), Undelivered>>;

/// Why answers were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undelivered {
    /// The server does not know the session.
    NoSession,
    /// Whatever else.
    Refused,
}

impl Asking {
    /// Of this request.
    ///
    /// spec: row X-09
    pub(super) fn of(question: &Asked) -> Self {
        let Asked::Caller(call) = question else { return Self::default() };
        Self { able: able(call), may_ask: may_ask(call.method), supplied: supplied(call), ..Self::default() }
    }

    /// Goes on for this request of the same client.
    pub(super) fn follow(&mut self, call: &BackendCall) {
        self.able = able(call);
    }

    /// Whether the server has asked something under this id, which is its own, and may be one of ours, too.
    pub(super) fn has_asked(&self, id: u64) -> bool {
        self.ids.contains(&id.to_string())
    }

    /// Whether the client was asked, or is about to be.
    pub(super) fn has_begun(&self) -> bool {
        self.rounds > 0 || self.is_open()
    }

    /// Whether anything waits for an answer.
    fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The answers among these, each as it is sent.
    pub(super) fn give(&self, responses: Option<&Json>) -> Given {
        let mut all = Vec::with_capacity(self.open.len());
        for (key, question) in ticket::keys(self.rounds, self.open.len()).zip(&self.open) {
            let Some(response) = responses.and_then(|all| all.member(&key)) else { return Given::Missing };
            if let Err(problem) = question.check(&response) {
                return Given::Malformed(problem);
            }
            all.push(question.answer(&response));
        }
        Given::All(all)
    }

    /// The messages that say that there are no answers.
    pub(super) fn refusals(&self, why: Unanswered) -> Vec<Json> {
        self.open.iter().map(|question| question.refusal(why)).collect()
    }

    /// The result that asks a client to open what its server wants opened first, and then to send the call
    /// once more; if the message is the error that says so, in a call in which anybody is asked.
    ///
    /// spec: row X-10
    pub(super) fn wanted_urls(&self, message: &Json, limits: &Limits) -> Option<Json> {
        let urls = wanted_urls(message, limits.input_entries).filter(|_| self.may_ask)?;
        Some(asks(ticket::keys(1, urls.len()), urls.iter(), AGAIN))
    }

    /// Begins a round: where its call waits, and what its client is told.
    pub(super) fn begin(&mut self, room: &str, call: String) -> (Ticket, Json) {
        self.rounds += 1;
        self.until = None;
        let asked = self.open.iter().map(Question::digest).collect();
        let ticket = Ticket { room: room.to_owned(), call, round: self.rounds, asked };
        let result = asks(ticket.keys(), self.open.iter().map(|question| &question.entry), &ticket.text());
        (ticket, result)
    }
}

/// What the client of a call can be asked.
fn able(call: &BackendCall) -> Able {
    if may_ask(call.method) { Able::of(&call.capabilities) } else { Able::default() }
}

/// spec: row X-09; patterns/mrtr, Supported Requests
fn may_ask(method: Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
}

/// What the client has answered in a process that is gone.
fn supplied(call: &BackendCall) -> HashMap<String, Json> {
    let ticket = call.state.as_deref().and_then(Ticket::read);
    let all = ticket.iter().flat_map(|ticket| ticket.keys().zip(&ticket.asked));
    let responses = call.responses.as_ref();
    all.filter_map(|(key, digest)| Some((digest.clone(), responses?.member(&key)?))).collect()
}

/// A result that asks, as a server of the modern era would give it.
fn asks<'a>(
    keys: impl Iterator<Item = String>,
    entries: impl Iterator<Item = &'a Json>,
    state: &str,
) -> Json {
    let requests = keys.zip(entries).fold(Object::new(), |all, (key, entry)| all.put(&key, entry)).finish();
    Object::with_capacity(requests.bytes().len() + 256)
        .put_str("resultType", "input_required")
        .put("inputRequests", &requests)
        .put_str(REQUEST_STATE, state)
        .finish()
}

impl Flight {
    /// The session that it goes on in.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        match &self.stage {
            Stage::Sent(sent, _) | Stage::Reading(sent, _) => Some(sent.lease.session()),
            Stage::Open(_) | Stage::Over => None,
        }
    }

    /// Takes a request of the server's own: what a client can be asked waits, everything else is answered.
    pub(super) fn take(&mut self, message: &Json) -> Result<Heard, Failure> {
        let limits = self.pool.limits();
        let none = BackendError::Invalid("it sent a request that is none");
        let (Some(id), Some(method)) = (message.member("id"), message.member("method")) else {
            return Err(none.into());
        };
        let is_id = (id.kind() == Kind::String || id.is_integer()) && id.bytes().len() <= limits.id_bytes;
        let method = method.string().filter(|_| is_id).ok_or(none)?;
        let (most, most_bytes) = (limits.input_entries, limits.input_bytes);
        if !is_question(&method) {
            return self.reply(request::reply(&id, &method));
        }
        let question = match Question::read(&id, &method, message, self.asking.able) {
            Ok(question) => question,
            Err(refused) => {
                if let Some(ask) = refused.ask {
                    let upstream = self.pool.upstream();
                    let is_tenants = upstream.config.refused.contains(&ask);
                    upstream.around.metrics.asks.refused(if is_tenants { ask.word() } else { "capability" });
                }
                return self.reply(request::refusal(&id, refused.code, "this client cannot be asked that"));
            }
        };
        if let Some(known) = self.asking.supplied.remove(&question.digest())
            && question.check(&known).is_ok()
        {
            return self.reply(question.answer(&known));
        }
        let bytes: usize = self.asking.open.iter().map(|question| question.entry.bytes().len()).sum();
        if self.asking.open.len() >= most || bytes + question.entry.bytes().len() > most_bytes {
            return Err(BackendError::Invalid("it asks for more input at once than is taken").into());
        }
        self.asking.ids.insert(id.text().to_owned());
        self.asking.open.push(question);
        self.asking.until.get_or_insert_with(|| Instant::now() + TOGETHER);
        Ok(Heard::Nothing)
    }

    fn reply(&self, message: Json) -> Result<Heard, Failure> {
        match self.session().is_some_and(|session| session.respond(message)) {
            true => Ok(Heard::Nothing),
            false => {
                Err(BackendError::Invalid("it sends requests of its own faster than it takes answers").into())
            }
        }
    }

    /// Leaves the call where the answers of its client will find it, and says what is asked.
    pub(super) fn park(&mut self) -> Step {
        debug_assert!(self.asking.is_open());
        let pool = self.pool.clone();
        match pool.park(self.leave()) {
            Ok(result) => Step::Frame(Frame::End(Ok(Outcome::Asks(result)))),
            Err(error) => error.into(),
        }
    }

    /// Goes on with these answers, for this request of its client.
    ///
    /// spec: rows; requirements N.3, Deliver
    pub(super) fn resume(&mut self, answers: Vec<Json>, call: &BackendCall) {
        self.asking.open.clear();
        let Some(session) = self.session().cloned() else { return };
        let level = call.meta.log_level;
        self.delivery = Some(Box::pin(async move {
            if let Some(level) = level {
                session.lower(level).await;
            }
            deliver(&session, &answers).await
        }));
    }

    /// What becomes of answers on their way.
    pub(super) fn delivered(&mut self, delivered: Result<(), Undelivered>) -> Result<Heard, Failure> {
        self.delivery = None;
        if let Err(undelivered) = delivered {
            if undelivered == Undelivered::NoSession {
                self.lose();
            }
            return Err(BackendError::Interrupted(Interruption::Lost).into());
        }
        Ok(Heard::Nothing)
    }

    /// Tells the server that nobody answers what it asks, and that the call is over.
    ///
    /// spec: requirements N.3, End without retry
    pub(super) async fn give_up(mut self, why: Unanswered) {
        let (refusals, time) = (self.asking.refusals(why), self.pool.limits().notice_time);
        let Some((session, id, kept)) = self.end() else { return };
        let telling = async {
            for message in refusals.iter().chain([&request::cancelled(id)]) {
                // Best effort: whoever does not hear it finds out later.
                let _ = session.tell(message).await;
            }
        };
        let _ = tokio::time::timeout(time, telling).await;
        drop(kept);
    }
}

/// Sends answers, one after the other.
async fn deliver(session: &Arc<Session>, answers: &[Json]) -> Result<(), Undelivered> {
    for answer in answers {
        match session.tell(answer).await {
            Ok(status) if status.is_success() => {}
            // spec: 2025-11-25 basic/transports, Session Management
            Ok(StatusCode::NOT_FOUND) if session.has_id() => return Err(Undelivered::NoSession),
            Ok(_) | Err(_) => return Err(Undelivered::Refused),
        }
    }
    Ok(())
}
