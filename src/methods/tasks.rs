//! Tasks: the ids that calls get for them, and `tasks/get`, `tasks/update`, `tasks/cancel`.
//!
//! Whatever a task is at is its backend's to say: nothing is stored here, and nothing is inferred.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::mcp::answer::mend;
use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::exchange::Frame;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::Means;
use crate::methods::declare;
use crate::methods::failed;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::rounds::Asks;
use crate::methods::rounds::Sealing;
use crate::methods::rounds::asking;
use crate::methods::tools_call::Shown;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::change;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::Meta;
use crate::protocol::methods::Method;
use crate::protocol::tasks::TASK_ID;
use crate::protocol::tasks::Task;
use crate::router::task::seal;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome as Ended;

/// Names the tasks that a call may be answered with, for who made the call.
///
/// spec: row EX-02
pub(super) struct Ids {
    sealing: Sealing,
    caller: Arc<Caller>,
    tool: Arc<Entry>,
    /// Longest id of a backend.
    own_bytes: usize,
    /// How long an id opens at least and at most, in seconds.
    time: (u64, u64),
}

impl Ids {
    /// For the call `exchange` of `tool`.
    pub(super) fn new(exchange: &Exchange, tool: &Arc<Entry>, means: &Means<'_>) -> Self {
        let (sealing, limits) = (&means.sealing, means.limits);
        Self {
            sealing: sealing.clone(),
            caller: exchange.caller.clone(),
            tool: tool.clone(),
            own_bytes: limits.task_id_bytes,
            time: (limits.task_time.as_secs(), limits.task_time_most.as_secs()),
        }
    }

    /// `outcome`, with our id in the place of its backend's if it is a task.
    pub(super) fn name(&self, outcome: Outcome) -> Result<Outcome, BackendError> {
        match outcome {
            Outcome::Task(result) => self.named(&result).map(Outcome::Task).map_err(BackendError::Invalid),
            other => Ok(other),
        }
    }

    /// spec: SEP-2663, Task Creation
    fn named(&self, result: &Json) -> Result<Json, &'static str> {
        let task = Task::read(result)?;
        if task.id.len() > self.own_bytes {
            return Err("the id of its task is longer than is taken");
        }
        let (least, most) = self.time;
        let time = task.ttl_ms.map_or(most, |ttl| ttl.div_ceil(1_000)).clamp(least, most);
        let until = self.sealing.clock.now().saturating_add(time);
        let id = seal(&self.sealing.keys, &self.caller, &self.tool, &task.id, until);
        Ok(with_id(result, &id))
    }
}

/// Asks the backend of `task` about it, or tells it something.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream, and never the task.
pub async fn answer(
    exchange: &Exchange,
    task: &Arc<Entry>,
    snapshot: &Arc<Snapshot>,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let asks = exchange.call.method == Method::TasksGet;
    let telling = Telling {
        asks: Asks::of(exchange, task, limits, metrics),
        shown: Shown::of(task, snapshot, &exchange.call.meta, limits),
    };
    if exchange.call.method == Method::TasksUpdate {
        telling.asks.bounded(exchange.call.params.member(INPUT_RESPONSES))?;
    }
    let of = task.clone();
    let finish = move |outcome| match outcome {
        Outcome::Result(result) if asks => telling.told(&result, &of),
        // spec: SEP-2663, Ack-only Cancellation: it says nothing of the task, and asks for nothing.
        Outcome::Result(ack) => Ok(Outcome::Result(with_id(&asking(&ack, None), &of.public))),
        Outcome::Error(error) => Ok(Outcome::Error(error)),
        Outcome::Asks(_) | Outcome::Task(_) => {
            Err(BackendError::Invalid("it answers something else than a task is asked for"))
        }
    };
    forward(exchange, task, Sent::plain(exchange.call.params.clone()), finish, limits, metrics).await
}

/// On whose behalf a task is asked for that somebody listens to.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// Who listens.
    pub caller: &'a Arc<Caller>,
    /// What its client declared that it can do.
    pub capabilities: &'a Json,
    /// Whether it reaches this process in clear text, as in development.
    pub clear_text: bool,
    /// The limits of this process.
    pub limits: &'a Limits,
}

/// What `task` is at now: what `tasks/get` would say. `None` where its backend says nothing that may be
/// told; an error where it could not be asked.
///
/// spec: SEP-2663, Task Status Notifications; row EX-06
///
/// # Cancel safety
/// Dropping the future cancels the request upstream, and never the task.
pub async fn current(
    asking: Asking<'_>,
    task: &Entry,
    snapshot: &Arc<Snapshot>,
    metrics: &Arc<Metrics>,
) -> Result<Option<Json>, BackendError> {
    let Asking { caller, capabilities, clear_text, limits } = asking;
    let began = Instant::now();
    let meta = Meta::bare(capabilities.clone());
    let call = BackendCall {
        caller: caller.clone(),
        method: Method::TasksGet,
        name: task.own.clone(),
        params: Object::new().finish(),
        meta: meta.clone(),
        capabilities: declare::carried(capabilities, &task.home.config, true),
        responses: None,
        state: None,
        param_headers: Vec::new(),
        deadline: began + limits.list_time,
    };
    let end = async {
        let mut frames = task.home.live.call(call).await?;
        loop {
            match frames.next().await {
                Some(Frame::End(end)) => return end,
                Some(Frame::Notice(_)) => {}
                None => return Err(BackendError::Invalid("its answer has no end")),
            }
        }
    };
    let end = end.await;
    metrics.upstream(if end.is_ok() { Ended::Ok } else { Ended::Failed }, began.elapsed());
    let telling = Telling {
        asks: Asks::declared(capabilities, clear_text, task, limits, metrics),
        shown: Shown::of(task, snapshot, &meta, limits),
    };
    let told = match end {
        Ok(Outcome::Result(result)) => telling.told(&result, task).ok(),
        Ok(_) | Err(BackendError::Invalid(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(told.and_then(|told| match told {
        Outcome::Result(task) => Some(task),
        Outcome::Error(_) | Outcome::Asks(_) | Outcome::Task(_) => None,
    }))
}

/// What has to be known of who hears what a task is at.
struct Telling {
    /// What it may be asked.
    asks: Asks,
    /// How its result is shown.
    shown: Shown,
}

impl Telling {
    /// What its backend says of the task that `of` is. What it asks is judged like what a call asks, and
    /// its result becomes what the call's would.
    ///
    /// spec: SEP-2663, Task Polling; rows EX-04, MR-02
    fn told(&self, result: &Json, of: &Entry) -> Result<Outcome, BackendError> {
        let task = Task::read_detailed(result).map_err(BackendError::Invalid)?;
        if task.id != *of.own {
            return Err(BackendError::Invalid("it tells of another task than the one that was asked for"));
        }
        Ok(match self.asks.task(result, &self.shown.links)? {
            Ok(task) => {
                let task = with_id(&task, &of.public);
                let ended = change::member(&task, "result", |result| Some(self.ended(result)));
                let task = ended.unwrap_or(task);
                let failed = change::member(&task, "error", |error| Some(mended(error)));
                Outcome::Result(failed.unwrap_or(task))
            }
            Err(refused) => refused,
        })
    }

    /// The result of a task as that of a call: it asks for nothing.
    fn ended(&self, result: &Json) -> Json {
        match self.shown.outcome(Outcome::Result(asking(result, None))) {
            Outcome::Result(result) | Outcome::Asks(result) | Outcome::Task(result) => result,
            Outcome::Error(error) => failed(&error.message),
        }
    }
}

/// The error of a task as that of a call: what no backend may say to a client is not said here, either.
fn mended(error: &Json) -> Json {
    let RpcError { code, message, data } = mend(error).unwrap_or_else(|_| RpcError {
        code: code::INTERNAL_ERROR,
        message: "the task failed, and its backend does not say how".to_owned(),
        data: None,
    });
    Object::new().put_i64("code", code).put_str("message", &message).put_some("data", data.as_ref()).finish()
}

/// `json` with our id in the place of its backend's, where it has one.
fn with_id(json: &Json, id: &str) -> Json {
    change::member(json, TASK_ID, |_| Some(Json::from_str_value(id))).unwrap_or_else(|| json.clone())
}
