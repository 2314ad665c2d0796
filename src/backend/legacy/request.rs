//! Builds what is sent in a session: nothing of the modern era, and no header of a client's.

use std::collections::BTreeSet;

use crate::backend::BackendCall;
use crate::backend::mcp::call::Question;
use crate::backend::mcp::request;
use crate::backend::mcp::request::PROGRESS_TOKEN_KEY;
use crate::protocol::able::Able;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::level::Level;
use crate::protocol::meta::our_info;
use crate::protocol::methods::Method;
use crate::protocol::tasks::EXTENSIONS;
use crate::protocol::version::Handshake;

/// What a session declares of these capabilities: what its caller can be asked, and the extensions that this
/// gateway carries between the eras.
///
/// spec: row X-02
fn capabilities(carried: &Json) -> Json {
    let extensions = carried.member(EXTENSIONS);
    let names: BTreeSet<String> =
        extensions.iter().flat_map(Json::members).map(|(name, _)| name.into_owned()).collect();
    request::declared(&names, Able::of(carried))
}

/// What keys of `_meta` begin with that mean something in the modern era alone.
const MODERN_KEYS: &str = "io.modelcontextprotocol/";

/// Asks for a task in place of a result, which is never wanted here.
const TASK: &str = "task";

/// A request as it can be sent, under another id each time.
#[derive(Clone)]
pub(super) struct Prepared {
    /// Its method.
    pub(super) method: Method,
    /// Without `_meta`.
    params: Json,
    /// Of `_meta`, without the progress token.
    meta: Vec<(String, Json)>,
    /// The caller's progress token.
    pub(super) token: Option<Json>,
    /// The least serious log messages that the caller wants.
    pub(super) level: Option<Level>,
    /// What its session declares.
    pub(super) capabilities: Json,
    /// Whether the server may ask something in that session.
    pub(super) asks: bool,
    /// The trace context, for headers.
    pub(super) trace: Vec<(&'static str, String)>,
}

impl Prepared {
    /// The request that `question` becomes.
    pub(super) fn new(question: &Question) -> Self {
        match question {
            Question::Caller(call) => Self {
                method: call.method,
                params: request::params_of(call, &[TASK]).finish(),
                meta: kept(call),
                token: call.meta.progress_token.clone(),
                level: call.meta.log_level,
                capabilities: capabilities(&call.capabilities),
                asks: Able::of(&call.capabilities) != Able::default(),
                trace: request::trace_of(&call.meta),
            },
            Question::Own(account, method, params) => Self {
                method: *method,
                params: params.clone(),
                meta: Vec::new(),
                token: None,
                level: None,
                capabilities: request::declared_by(account),
                asks: false,
                trace: Vec::new(),
            },
        }
    }

    /// Whether something may be said of it beside its answer that has to be heard.
    pub(super) fn listens(&self) -> bool {
        self.token.is_some() || self.asks
    }

    /// It will not be sent again: what it holds of the caller's is given up.
    pub(super) fn sent(&mut self) {
        self.params = Object::new().finish();
        self.meta = Vec::new();
    }

    /// The message in a session of `revision`, under the id `id`.
    pub(super) fn message(&self, revision: Handshake, id: u64) -> Json {
        let token = self.token.as_ref().map(|_| Json::from_str_value(&request::progress_token(id)));
        let mut meta = Object::new().put_some(PROGRESS_TOKEN_KEY, token.as_ref());
        for (key, value) in &self.meta {
            meta = meta.put(key, value);
        }
        let mut params = Object::with_capacity(self.params.bytes().len() + 128);
        let knows_context = self.method != Method::Complete || revision.has_completion_context();
        for (key, value) in self.params.members().filter(|(key, _)| knows_context || key != "context") {
            params = params.put(&key, &value);
        }
        if token.is_some() || !self.meta.is_empty() {
            params = params.put("_meta", &meta.finish());
        }
        message(self.method.name(), &params.finish(), Some(id))
    }
}

/// What of a call's `_meta` means the same in a session, and what we do not understand.
fn kept(call: &BackendCall) -> Vec<(String, Json)> {
    let trace = request::trace_of(&call.meta).into_iter();
    let trace = trace.map(|(name, value)| (name.to_owned(), Json::from_str_value(&value)));
    let unknown = call.meta.unknown.iter().filter(|(key, _)| {
        // Ours stand already: a second member of the same key would be somebody else's word.
        !key.starts_with(MODERN_KEYS) && key != PROGRESS_TOKEN_KEY
    });
    trace.chain(unknown.cloned()).collect()
}

/// `initialize`, with the latest revision that has it, for a client that can do this.
///
/// spec: 2025-11-25 basic/lifecycle, Version Negotiation
pub(super) fn initialize(id: u64, capabilities: &Json) -> Json {
    let params = Object::new()
        .put_str("protocolVersion", Handshake::LATEST.name())
        .put("capabilities", capabilities)
        .put("clientInfo", &our_info())
        .finish();
    message("initialize", &params, Some(id))
}

/// What a session has to be told before anything is asked in it.
pub(super) fn initialized() -> Json {
    Object::new().put_str("jsonrpc", "2.0").put_str("method", "notifications/initialized").finish()
}

/// Nobody waits any more for the request `id`.
///
/// spec: 2025-11-25 basic/utilities/cancellation
pub(super) fn cancelled(id: u64) -> Json {
    let params = Object::new().put_u64("requestId", id).put_str("reason", "nobody waits for it any more");
    message("notifications/cancelled", &params.finish(), None)
}

/// Whether the server says that it has given the request up.
pub(super) fn is_cancellation(message: &Json, id: u64) -> bool {
    let method = message.member("method");
    let cancels =
        method.and_then(|method| method.string()).is_some_and(|name| name == "notifications/cancelled");
    let of = message.member("params").and_then(|params| params.member("requestId"));
    cancels && of.is_some_and(|of| of.text() == id.to_string())
}

/// What a server's own request is answered with that asks no client anything: a ping as it should be,
/// anything else with an error.
///
/// spec: 2025-11-25 basic/utilities/ping
pub(super) fn reply(id: &Json, method: &str) -> Json {
    match method {
        "ping" => answer(id, &Object::new().finish()),
        _ => refusal(id, code::METHOD_NOT_FOUND, "this client answers no such request"),
    }
}

/// The response to a server's own request that has this result.
pub(super) fn answer(id: &Json, result: &Json) -> Json {
    let message = Object::with_capacity(result.bytes().len() + 96).put_str("jsonrpc", "2.0");
    message.put("id", id).put("result", result).finish()
}

/// The response to a server's own request that is this error.
pub(super) fn refusal(id: &Json, code: i64, message: &str) -> Json {
    let error = Object::new().put_i64("code", code).put_str("message", message).finish();
    Object::new().put_str("jsonrpc", "2.0").put("id", id).put("error", &error).finish()
}

/// `logging/setLevel`
///
/// spec: 2025-11-25 server/utilities/logging, Setting Log Level
pub(super) fn set_level(id: u64, level: Level) -> Json {
    message("logging/setLevel", &Object::new().put_str("level", level.name()).finish(), Some(id))
}

/// A message of this method; a request, where it has an id.
pub(super) fn message(method: &str, params: &Json, id: Option<u64>) -> Json {
    let mut message = Object::with_capacity(params.bytes().len() + 96).put_str("jsonrpc", "2.0");
    if let Some(id) = id {
        message = message.put_u64("id", id);
    }
    message.put_str("method", method).put("params", params).finish()
}
