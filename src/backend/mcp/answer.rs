//! Judges the messages that a backend answers with.
//!
//! A message is the one response to our one request, a notification, or a reason to hang up. What a
//! result or an error says is relayed as it came, except for what is ours to say on this leg.

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::legacy::ticket;
use crate::backend::mcp::progress::Logs;
use crate::backend::mcp::progress::Progress;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;
use crate::protocol::methods::Method;
use crate::protocol::tasks;

const UPSTREAM_INFO_KEY: &str = "dev.fondaco/upstreamServerInfo";

/// Longest `message` of an error that is relayed, in bytes.
const MESSAGE_BYTES: usize = 4 << 10;

/// Longest `data` of an error that is relayed, in bytes; none of a longer one.
const DATA_BYTES: usize = 64 << 10;

/// The member of an error's `data` that says so.
const DATA_OMITTED: &str = "upstreamDataOmitted";

/// What one message means for the call.
pub(in crate::backend) enum Heard {
    /// Nothing: it is dropped.
    Nothing,
    /// A progress notification, rewritten for the client.
    Progress(Json),
    /// A log message that the client wants, as it is for the client.
    Log(Json),
    /// The response.
    Final(Outcome),
}

/// Judges the messages that answer one request.
pub(in crate::backend) struct Judge {
    id: u64,
    progress: Option<Progress>,
    logs: Option<Logs>,
    tasks: Tasks,
    /// Whether the request may be answered with a wish for more input.
    may_ask: bool,
}

/// What `resultType: "task"` means in the answer to one request.
///
/// spec: SEP-2663, Polymorphic Results
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tasks {
    /// Nothing: the backend was not told that its client knows tasks, or is asked for something else.
    Unknown,
    /// The result of the call is a task.
    Made,
    /// A slip: the request is about a task, and examples of the specification have it so.
    Meant,
}

/// What may lie in one message.
#[derive(Default)]
struct Envelope {
    jsonrpc: Option<Json>,
    id: Option<Json>,
    method: Option<Json>,
    params: Option<Json>,
    result: Option<Json>,
    error: Option<Json>,
}

impl Judge {
    /// Of the request with the id `id`, whose client wants progress under `token`, if any.
    pub(in crate::backend) fn new(id: u64, token: Option<Json>) -> Self {
        let progress = token.map(|token| Progress::new(id, token));
        Self { id, progress, logs: None, tasks: Tasks::Unknown, may_ask: false }
    }

    /// The same of this call, in the era in which some calls are answered with a task, or with a wish for
    /// more input.
    ///
    /// spec: patterns/mrtr, Supported Requests
    pub(in crate::backend) fn of_call(self, call: &BackendCall) -> Self {
        let may_ask = matches!(call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        Self { may_ask, tasks: Tasks::of(call), ..self }
    }

    /// The same with the log messages that the client wants, if any.
    pub(in crate::backend) fn with_logs(mut self, logs: Option<Logs>) -> Self {
        self.logs = logs;
        self
    }

    /// Goes on for another request of the same client, which wants progress under this token, if any, and
    /// these log messages.
    pub(in crate::backend) fn follow(&mut self, token: Option<Json>, logs: Option<Logs>) {
        self.progress = token.map(|token| Progress::new(self.id, token));
        self.logs = logs;
    }

    /// Judges one message. After an `Err` or a [`Heard::Final`] nothing more may be read.
    ///
    /// spec: basic/index, Messages; streamable-http, Receiving Messages
    pub(in crate::backend) fn hear(&mut self, message: &Json) -> Result<Heard, BackendError> {
        let envelope = Envelope::of(message)?;
        if let Some(method) = &envelope.method {
            return self.notification(method, &envelope);
        }
        let outcome = match (&envelope.result, &envelope.error) {
            (Some(result), None) => {
                self.expect_id(&envelope)?;
                self.result(result)?
            }
            (None, Some(error)) => {
                // The one error without an id is that of a request whose id could not be read.
                if envelope.id.as_ref().is_some_and(|id| *id != Json::null()) {
                    self.expect_id(&envelope)?;
                }
                Outcome::Error(mend(error)?)
            }
            _ => return Err(BackendError::Invalid("a response has either `result` or `error`")),
        };
        Ok(Heard::Final(outcome))
    }

    /// A result, by its type.
    ///
    /// spec: basic/index, ResultType
    fn result(&self, result: &Json) -> Result<Outcome, BackendError> {
        if !result.is_object() {
            return Err(BackendError::Invalid("its `result` is no object"));
        }
        let said = result.member("resultType").map(|kind| kind.string());
        match said.as_ref().map(Option::as_deref) {
            None => finished(result, Some("complete")).map(Outcome::Result),
            Some(Some("complete")) => finished(result, None).map(Outcome::Result),
            Some(Some("input_required")) => {
                check_asks(result, self.may_ask)?;
                finished(result, None).map(Outcome::Asks)
            }
            Some(Some("task")) => match self.tasks {
                Tasks::Made => finished(result, None).map(Outcome::Task),
                Tasks::Meant => finished(result, Some("complete")).map(Outcome::Result),
                Tasks::Unknown => {
                    Err(BackendError::Invalid("it answered with a task that was not asked for"))
                }
            },
            Some(_) => Err(BackendError::Invalid("its `resultType` is not known")),
        }
    }

    fn notification(&mut self, method: &Json, envelope: &Envelope) -> Result<Heard, BackendError> {
        if envelope.id.is_some() || envelope.result.is_some() || envelope.error.is_some() {
            return Err(BackendError::Invalid("it sent a request of its own"));
        }
        let (Some(name), Some(params)) = (method.string_ref(), &envelope.params) else {
            return Ok(Heard::Nothing);
        };
        let relayed = match &*name {
            "notifications/progress" => {
                self.progress.as_mut().and_then(|progress| progress.relay(params)).map(Heard::Progress)
            }
            "notifications/message" => self.logs.as_mut().and_then(|logs| logs.relay(params)).map(Heard::Log),
            _ => None,
        };
        Ok(relayed.unwrap_or(Heard::Nothing))
    }

    fn expect_id(&self, envelope: &Envelope) -> Result<(), BackendError> {
        match &envelope.id {
            Some(id) if id.text() == self.id.to_string() => Ok(()),
            _ => Err(BackendError::Invalid("its response has another id than the request")),
        }
    }
}

impl Tasks {
    /// What it means in the answer to `call`.
    fn of(call: &BackendCall) -> Self {
        match call.method {
            Method::ToolsCall if tasks::declared(&call.capabilities).is_some() => Self::Made,
            method if method.is_about_a_task() => Self::Meant,
            _ => Self::Unknown,
        }
    }
}

impl Envelope {
    fn of(message: &Json) -> Result<Self, BackendError> {
        if !message.is_object() {
            return Err(BackendError::Invalid("a message is a JSON object"));
        }
        let mut envelope = Self::default();
        for (key, value) in message.members() {
            match &*key {
                "jsonrpc" => envelope.jsonrpc = Some(value),
                "id" => envelope.id = Some(value),
                "method" => envelope.method = Some(value),
                "params" => envelope.params = Some(value),
                "result" => envelope.result = Some(value),
                "error" => envelope.error = Some(value),
                _ => {}
            }
        }
        let version = envelope.jsonrpc.as_ref().and_then(|value| value.string_ref());
        match version.as_deref() {
            Some("2.0") => Ok(envelope),
            _ => Err(BackendError::Invalid("a message has `jsonrpc` \"2.0\"")),
        }
    }
}

/// Whether a wish for more input stands where it may, and says what it wishes. What that is, is judged
/// where the client is known.
///
/// spec: patterns/mrtr, Server Requirements
fn check_asks(result: &Json, may_ask: bool) -> Result<(), BackendError> {
    if !may_ask {
        return Err(BackendError::Invalid("it answers with `input_required` where nobody is asked"));
    }
    let (requests, state) = (result.member("inputRequests"), result.member("requestState"));
    if requests.is_none() && state.is_none() {
        return Err(BackendError::Invalid("it answers with `input_required` and asks for nothing"));
    }
    if requests.is_some_and(|requests| !requests.is_object()) {
        return Err(BackendError::Invalid("its `inputRequests` is no object"));
    }
    match state.map(|state| state.string()) {
        Some(None) => Err(BackendError::Invalid("its `requestState` is no string")),
        // It would be taken for one of a call that waits here.
        Some(Some(state)) if ticket::is_ours(&state) => {
            Err(BackendError::Invalid("its `requestState` is one of this gateway's own"))
        }
        Some(Some(_)) | None => Ok(()),
    }
}

/// A result, as it goes on: with this `resultType` in place of its own, if another is meant, and with our
/// `serverInfo` in place of the backend's, which moves aside.
///
/// spec: basic/index, ResultType, _meta
fn finished(result: &Json, meant: Option<&str>) -> Result<Json, BackendError> {
    let mut whole = Object::with_capacity(result.bytes().len() + 256);
    if let Some(kind) = meant {
        whole = whole.put_str("resultType", kind);
    }
    let mut meta = Object::new().finish();
    for (key, value) in result.members() {
        if key == "_meta" {
            meta = value;
        } else if meant.is_none() || key != "resultType" {
            whole = whole.put(&key, &value);
        }
    }
    if !meta.is_object() {
        return Err(BackendError::Invalid("its `_meta` is no object"));
    }
    Ok(whole.put("_meta", &stamp(&meta)).finish())
}

fn stamp(meta: &Json) -> Json {
    let mut stamped = Object::with_capacity(meta.bytes().len() + 128);
    for (key, value) in meta.members() {
        stamped = match &*key {
            SERVER_INFO => stamped.put(UPSTREAM_INFO_KEY, &value),
            // Ours to write, also where the backend is a gateway like us.
            UPSTREAM_INFO_KEY => stamped,
            _ => stamped.put(&key, &value),
        };
    }
    stamped.put(SERVER_INFO, &our_info()).finish()
}

/// An error, as it goes on: with a code that this gateway may say, and no more text than anybody reads.
///
/// spec: basic/index, Error Codes
pub fn mend(error: &Json) -> Result<RpcError, BackendError> {
    let code = error.member("code").and_then(|code| code.integer());
    let code = code.ok_or(BackendError::Invalid("its error has no integer `code`"))?;
    let message = error.member("message");
    let message = message.as_ref().and_then(|message| message.string_ref());
    let message = message.ok_or(BackendError::Invalid("its error has no `message`"))?;
    let message = message[..message.floor_char_boundary(MESSAGE_BYTES)].to_owned();
    let data = error.member("data").map(|data| match data.bytes().len() {
        0..=DATA_BYTES => data,
        _ => Object::new().put_bool(DATA_OMITTED, true).finish(),
    });
    match code {
        code::HEADER_MISMATCH => Err(BackendError::Stale),
        code::MISSING_CAPABILITY => Ok(RpcError { code, message, data }),
        // Of older revisions, of nobody, or of the specification alone: none is ours to repeat.
        -32_099..=-32_000 => {
            let data = Some(with_code(data.as_ref(), code));
            Ok(RpcError { code: code::INTERNAL_ERROR, message, data })
        }
        _ => Ok(RpcError { code, message, data }),
    }
}

/// `data` with the code that the backend sent.
fn with_code(data: Option<&Json>, code: i64) -> Json {
    let mut marked = Object::new();
    match data {
        Some(data) if data.is_object() => {
            for (key, value) in data.members().filter(|(key, _)| key != code::UPSTREAM_CODE) {
                marked = marked.put(&key, &value);
            }
        }
        Some(data) => marked = marked.put("upstreamData", data),
        None => {}
    }
    marked.put_i64(code::UPSTREAM_CODE, code).finish()
}
