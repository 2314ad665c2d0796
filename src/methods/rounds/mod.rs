//! Calls that go on in rounds: a backend asks its caller back (`input_required`), and the call is made
//! once more with the answers.
//!
//! What the backend asks is judged by what this request's client declared and by what the tenant lets
//! the backend ask; what it wants back is sealed. Nothing of it is kept here: any process with the same
//! keys carries the next round, which is a request like every other, with its own authorisation. Only a call
//! of a handshake server waits where it began ([`Waiting`]).
//!
//! spec: patterns/mrtr

mod entry;
mod form;
mod secret;
mod waiting;

use std::sync::Arc;

use crate::backend::BackendError;
use crate::backend::waiting::waits;
use crate::catalog::entry::Entry;
use crate::exchange::Exchange;
use crate::methods::Means;
use crate::methods::failed;
use crate::methods::links::Links;
use crate::methods::rounds::entry::Judging;
use crate::methods::rounds::entry::Refusal;
use crate::methods::rounds::entry::Verdict;
pub use crate::methods::rounds::waiting::Waiting;
use crate::model::clock::Clock;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::Ask;
use crate::protocol::able::Able;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::Outcome;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::message::misspells;
use crate::protocol::methods::Method;
use crate::protocol::tasks::Status;
use crate::protocol::tasks::Task;
use crate::router::RouteError;
use crate::router::state::Occasion;
use crate::router::state::State;
use crate::seal::KeyRing;
use crate::telemetry::metrics::Metrics;

/// The member of a result with what is asked.
pub const INPUT_REQUESTS: &str = "inputRequests";

/// What seals the state of calls.
#[derive(Clone)]
pub struct Sealing {
    /// The keys.
    pub keys: Arc<KeyRing>,
    /// The wall clock, by which a state is too old.
    pub clock: Clock,
}

/// What a client sends back with a call that was asked back before. A call without any is the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Retry {
    /// Its answers.
    pub(super) responses: Option<Json>,
    /// What the backend wanted back, as it sent it.
    pub(super) state: Option<String>,
}

/// What has to be known of a call when its backend asks back.
pub(super) struct Rounds {
    occasion: Occasion,
    /// How often it has asked so far, as far as its state tells.
    round: u8,
    /// What it wanted back last time.
    given: Option<String>,
    asks: Asks,
    bounds: Bounds,
    sealing: Sealing,
}

#[derive(Clone, Copy)]
struct Bounds {
    rounds: usize,
    state_bytes: usize,
    state_seconds: u64,
}

/// What a client may be asked, in a call and by a task alike.
pub(super) struct Asks {
    /// What is answered if it may not.
    method: Method,
    declared: Json,
    config: Arc<tenant::Backend>,
    clear_text: bool,
    entries: usize,
    bytes: usize,
    metrics: Arc<Metrics>,
}

impl Rounds {
    /// Opens what the client sent back, if anything.
    ///
    /// spec: row MR-03
    pub(super) fn begin(
        exchange: &Exchange,
        entry: &Entry,
        means: &Means<'_>,
    ) -> Result<(Self, Retry), RouteError> {
        let Means { sealing, limits, metrics, .. } = means;
        let call = &exchange.call;
        let mut rounds = Self {
            occasion: Occasion::of(exchange, entry),
            round: 0,
            given: None,
            asks: Asks::of(exchange, entry, limits, metrics),
            bounds: Bounds {
                rounds: limits.rounds,
                state_bytes: limits.state_bytes,
                state_seconds: limits.state_time.as_secs(),
            },
            sealing: sealing.clone(),
        };
        let mut retry = Retry::default();
        if call.is_retry() {
            retry.responses = rounds.asks.bounded(call.params.member(INPUT_RESPONSES))?;
            let handle = call.params.member(REQUEST_STATE).and_then(|handle| handle.string());
            if let Some(handle) = handle {
                let state = rounds.occasion.open(&sealing.keys, &handle, sealing.clock.now())?;
                (rounds.round, rounds.given) = (state.round, Some(state.upstream.clone()));
                retry.state = Some(state.upstream);
            }
        }
        Ok((rounds, retry))
    }

    /// The backend's outcome as the client's: what it asks, or its task does, if it does, and may.
    pub(super) fn settle(&self, outcome: Outcome, links: &Links) -> Result<Outcome, BackendError> {
        match outcome {
            Outcome::Asks(result) => self.ask(&result, links),
            // What it asks is refused like what is asked of a task later.
            Outcome::Task(result) => self.asks.task(&result, links).map(|told| match told {
                Ok(task) => Outcome::Task(task),
                Err(refused) => refused,
            }),
            other => Ok(other),
        }
    }

    fn ask(&self, result: &Json, links: &Links) -> Result<Outcome, BackendError> {
        let state = result.member(REQUEST_STATE).and_then(|state| state.string());
        // A call that waits, and has not got all of its answers, has asked no further time.
        let is_same = state.is_some() && state == self.given && state.is_some_and(|state| waits(&state));
        let round = if is_same { self.round } else { self.round.saturating_add(1) };
        if usize::from(round) > self.bounds.rounds {
            return Ok(self.asks.refuse(self.asks.method, Refusal::Rounds));
        }
        let mut whole = Object::with_capacity(result.bytes().len() + 256);
        for (key, value) in result.members() {
            whole = match &*key {
                INPUT_REQUESTS => match self.asks.requests(self.asks.method, &value, links)? {
                    Ok(requests) => whole.put(INPUT_REQUESTS, &requests),
                    Err(refused) => return Ok(refused),
                },
                REQUEST_STATE => whole.put_str(REQUEST_STATE, &self.seal(&value, round)?),
                // It is for this round, and nobody may keep it.
                "ttlMs" | "cacheScope" => whole,
                other if misspells(other, &[INPUT_REQUESTS, REQUEST_STATE]) => whole,
                _ => whole.put(&key, &value),
            };
        }
        Ok(Outcome::Asks(whole.finish()))
    }

    fn seal(&self, state: &Json, round: u8) -> Result<String, BackendError> {
        let upstream = state.string().ok_or(BackendError::Invalid("its `requestState` is no string"))?;
        if upstream.len() > self.bounds.state_bytes {
            return Err(BackendError::Invalid("its `requestState` is longer than is taken"));
        }
        let until = self.sealing.clock.now().saturating_add(self.bounds.state_seconds);
        let state = State { round, upstream };
        Ok(self.occasion.seal(&self.sealing.keys, &state, until))
    }
}

impl Asks {
    /// What the client of this request may be asked by the backend of `entry`.
    pub(super) fn of(exchange: &Exchange, entry: &Entry, limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        let (call, clear_text) = (&exchange.call, exchange.endpoint.resource.starts_with("http:"));
        Self {
            method: call.method,
            ..Self::declared(&call.meta.capabilities, clear_text, entry, limits, metrics)
        }
    }

    /// What a client that declared this may be asked by a task, in answers and notifications.
    pub(super) fn declared(
        declared: &Json,
        clear_text: bool,
        entry: &Entry,
        limits: &Limits,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            method: Method::TasksGet,
            declared: declared.clone(),
            config: entry.home.config.clone(),
            clear_text,
            entries: limits.input_entries,
            bytes: limits.input_bytes,
            metrics: metrics.clone(),
        }
    }

    /// The answers of a client, if they are not too many and not too large.
    pub(super) fn bounded(&self, responses: Option<Json>) -> Result<Option<Json>, RouteError> {
        let too_much = |all: &Json| self.is_too_much(all);
        match responses.as_ref().is_some_and(too_much) {
            true => Err(RouteError::InvalidParams("`params.inputResponses` is more than is taken")),
            false => Ok(responses),
        }
    }

    fn is_too_much(&self, all: &Json) -> bool {
        all.bytes().len() > self.bytes || entry::has_more(all, self.entries)
    }

    /// A task with what it asks, if it waits for input and may ask; or the answer that says why not. A
    /// task that does not wait asks for nothing.
    ///
    /// spec: SEP-2663, Task Polling; row MR-02
    pub(super) fn task(&self, task: &Json, links: &Links) -> Result<Result<Json, Outcome>, BackendError> {
        let waits = Task::read(task).is_ok_and(|task| task.status == Status::InputRequired);
        let asked = task.member(INPUT_REQUESTS).filter(|_| waits);
        let requests = match &asked {
            Some(asked) if !asked.is_object() => {
                return Err(BackendError::Invalid("its task asks for something that is no object"));
            }
            Some(asked) => match self.requests(Method::TasksGet, asked, links)? {
                Ok(requests) => Some(requests),
                Err(refused) => return Ok(Err(refused)),
            },
            None => None,
        };
        Ok(Ok(asking(task, requests.as_ref())))
    }

    /// What is asked, under its keys; or the answer to a call whose backend asks what it may not.
    fn requests(
        &self,
        method: Method,
        requests: &Json,
        links: &Links,
    ) -> Result<Result<Json, Outcome>, BackendError> {
        if self.is_too_much(requests) {
            return Err(BackendError::Invalid("it asks for more input at once than is taken"));
        }
        let able = Able::of(&self.declared);
        let judging = Judging { able, refused: &self.config.refused, links, clear_text: self.clear_text };
        let (mut whole, mut lacking) = (Object::with_capacity(requests.bytes().len()), Vec::new());
        let mut deprecated = Vec::new();
        for (key, entry) in requests.members() {
            match judging.judge(&entry)? {
                Verdict::Goes { ask, changed, context } => {
                    deprecated.extend(matches!(ask, Ask::Sampling | Ask::Roots).then(|| ask.word()));
                    deprecated.extend(context.then_some("include_context"));
                    whole = whole.put(&key, changed.as_ref().unwrap_or(&entry));
                }
                Verdict::Lacks(name, part) => lacking.push((name, part)),
                Verdict::Refused(refusal) => return Ok(Err(self.refuse(method, refusal))),
            }
        }
        if !lacking.is_empty() {
            self.metrics.asks.refused("capability");
            return Ok(Err(missing(&entry::required(&lacking))));
        }
        // spec: row MR-08
        deprecated.into_iter().for_each(|feature| self.metrics.asks.deprecated(feature));
        Ok(Ok(whole.finish()))
    }

    fn refuse(&self, method: Method, refusal: Refusal) -> Outcome {
        self.metrics.asks.refused(refusal.reason());
        stopped(method, refusal.text())
    }
}

/// A task, or what is said of one, that asks for this, or for nothing. It is as it was where that is so.
pub(super) fn asking(task: &Json, requests: Option<&Json>) -> Json {
    let is_asked = |key: &str| key == INPUT_REQUESTS || misspells(key, &[INPUT_REQUESTS]);
    if !task.members().any(|(key, _)| is_asked(&key)) {
        return task.clone();
    }
    let mut whole = Object::with_capacity(task.bytes().len() + 256);
    for (key, value) in task.members() {
        whole = match &*key {
            INPUT_REQUESTS => whole.put_some(INPUT_REQUESTS, requests),
            other if is_asked(other) => whole,
            _ => whole.put(&key, &value),
        };
    }
    whole.finish()
}

/// The answer to a call whose backend needs what its tenant does not let it ask for.
pub(super) fn withheld(method: Method, ask: Ask, metrics: &Metrics) -> Outcome {
    let refusal = Refusal::Tenant(ask);
    metrics.asks.refused(refusal.reason());
    stopped(method, refusal.text())
}

/// A call that cannot go on: a model reads why where there is one, others hear that it failed.
pub fn stopped(method: Method, why: &str) -> Outcome {
    match method {
        Method::ToolsCall => Outcome::Result(failed(why)),
        _ => Outcome::Error(RpcError { code: code::INTERNAL_ERROR, message: why.to_owned(), data: None }),
    }
}

/// spec: basic/index, _meta: MissingRequiredClientCapability
fn missing(required: &Json) -> Outcome {
    let message = "the backend asks for what this request does not declare that its client can do".to_owned();
    let data = Object::new().put("requiredCapabilities", required).finish();
    Outcome::Error(RpcError { code: code::MISSING_CAPABILITY, message, data: Some(data) })
}
