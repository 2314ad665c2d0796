//! Builds what is sent, from nothing: no header of a client's request ever gets here.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::Request;
use http_body_util::Full;

use crate::backend::Account;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::legacy::ticket;
use crate::backend::mcp::upstream::Upstream;
use crate::backend::watch::Interest;
use crate::protocol::able::Able;
use crate::protocol::call::INPUT_RESPONSES;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::headers::encode_value;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::BAGGAGE;
use crate::protocol::meta::LOG_LEVEL;
use crate::protocol::meta::Meta;
use crate::protocol::meta::TRACEPARENT;
use crate::protocol::meta::TRACESTATE;
use crate::protocol::meta::UI;
use crate::protocol::meta::our_info;
use crate::protocol::methods::Method;
use crate::protocol::methods::mirrored_member;
use crate::protocol::tasks::EXTENSIONS;
use crate::protocol::version::LATEST;

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
const LISTEN: &str = "subscriptions/listen";
/// The media type of views.
const VIEW_TYPE: &str = "text/html;profile=mcp-app";
/// The key of `_meta` for the token of progress.
pub(in crate::backend) const PROGRESS_TOKEN_KEY: &str = "progressToken";

/// The request that `call` becomes, under the id `id`.
pub(super) fn call(
    upstream: &Upstream,
    id: u64,
    call: &BackendCall,
) -> Result<Request<Full<Bytes>>, BackendError> {
    let named = mirrored_member(call.method.name());
    // What was asked in a session before the server changed is nothing to it any more.
    let is_ours = call.state.as_deref().is_some_and(ticket::is_ours);
    let mut params =
        params_of(call, &[]).put_some(INPUT_RESPONSES, call.responses.as_ref().filter(|_| !is_ours));
    if let Some(state) = call.state.as_ref().filter(|_| !is_ours) {
        params = params.put_str(REQUEST_STATE, state);
    }
    let params = params.put("_meta", &meta_of(id, call)).finish();
    let mut request = post(upstream, id, call.method.name(), &params)?;
    let headers = request.headers_mut();
    if named.is_some() {
        headers.insert(HeaderName::from_static("mcp-name"), encode_value(&call.name));
    }
    for (name, value) in &call.param_headers {
        headers.append(name.clone(), value.clone());
    }
    continue_trace(headers, &trace_of(&call.meta));
    Ok(request)
}

/// The trace context that a request goes on in, by its names in `_meta` and in headers.
pub(in crate::backend) fn trace_of(meta: &Meta) -> Vec<(&'static str, String)> {
    let context =
        [(TRACEPARENT, &meta.traceparent), (TRACESTATE, &meta.tracestate), (BAGGAGE, &meta.baggage)];
    context.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// Adds a trace context to headers.
///
/// spec: W3C Trace Context, 3.2, 3.3; W3C Baggage, 3
pub(in crate::backend) fn continue_trace(headers: &mut HeaderMap, context: &[(&'static str, String)]) {
    for (name, value) in context {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// The `params` of `call` without `_meta`, and without these members.
pub(in crate::backend) fn params_of(call: &BackendCall, without: &[&str]) -> Object {
    let named = mirrored_member(call.method.name());
    let mut params = Object::with_capacity(call.params.bytes().len() + 512);
    if let Some(named) = named {
        params = params.put_str(named, &call.name);
    }
    for (key, value) in call.params.members() {
        // What a client sends back to a backend's questions is ours to open first; to a task's it is not.
        let ours = named == Some(&*key)
            || matches!(&*key, "_meta" | REQUEST_STATE)
            || (key == INPUT_RESPONSES && call.method != Method::TasksUpdate);
        if !ours && !without.contains(&&*key) {
            params = params.put(&key, &value);
        }
    }
    params
}

/// A request for a list, or for what goes before it, on this account, under the id `id`, with these `params`.
pub(super) fn own(
    upstream: &Upstream,
    id: u64,
    account: &Account,
    method: Method,
    params: &Json,
) -> Result<Request<Full<Bytes>>, BackendError> {
    let mut whole = Object::with_capacity(params.bytes().len() + 256);
    for (key, value) in params.members() {
        whole = whole.put(&key, &value);
    }
    let meta = meta_with(&declared_by(account)).finish();
    post(upstream, id, method.name(), &whole.put("_meta", &meta).finish())
}

/// A subscription on our own account, under the id `id`, to what `filter` says.
pub(super) fn listen(
    upstream: &Upstream,
    id: u64,
    filter: &Json,
    interest: &Interest,
) -> Result<Request<Full<Bytes>>, BackendError> {
    let mut capabilities = Object::new();
    if !interest.tasks.is_empty() {
        // spec: SEP-2663: nobody else is told of tasks.
        let extensions = Object::new().put(TASKS_EXTENSION, &Object::new().finish());
        capabilities = capabilities.put("extensions", &extensions.finish());
    }
    let meta = meta_with(&capabilities.finish()).finish();
    let params = Object::new().put("_meta", &meta).put("notifications", filter);
    post(upstream, id, LISTEN, &params.finish())
}

/// The progress token of the request with this id, where its caller wants progress. A string: it
/// comes back unchanged from peers whose numbers are all floating point.
pub(in crate::backend) fn progress_token(id: u64) -> String {
    format!("p{id}")
}

/// The id of the request that has this progress token, if it is one of ours.
pub(in crate::backend) fn progress_id(token: &str) -> Option<u64> {
    token.strip_prefix('p')?.parse().ok()
}

// spec: streamable-http, Sending Messages, Request Metadata
fn post(
    upstream: &Upstream,
    id: u64,
    method: &'static str,
    params: &Json,
) -> Result<Request<Full<Bytes>>, BackendError> {
    let message = Object::with_capacity(params.bytes().len() + 96)
        .put_str("jsonrpc", "2.0")
        .put_u64("id", id)
        .put_str("method", method)
        .put("params", params)
        .finish();
    let (tenant, backend) = (&upstream.tenant, &upstream.config.name);
    tracing::debug!(%tenant, %backend, id, method, "asks");
    let mut request = upstream.post(&upstream.identity()?, &message)?;
    let headers = request.headers_mut();
    headers.insert(HeaderName::from_static("mcp-protocol-version"), HeaderValue::from_static(LATEST));
    headers.insert(HeaderName::from_static("mcp-method"), HeaderValue::from_static(method));
    Ok(request)
}

/// What this gateway can do on its own account: it lists tools with their views, for clients that show
/// them. Some servers have no views for others.
///
/// spec: ext-apps 2026-01-26, Capability Negotiation
pub(in crate::backend) fn own_capabilities() -> Json {
    let types = Array::new().push_str(VIEW_TYPE).finish();
    let ui = Object::new().put("mimeTypes", &types).finish();
    Object::new().put("extensions", &Object::new().put(UI, &ui).finish()).finish()
}

/// What is declared for who asks for lists.
pub(in crate::backend) fn declared_by(account: &Account) -> Json {
    match account {
        Account::Gateway => own_capabilities(),
        Account::Caller { extensions, able, .. } => declared(extensions, *able),
    }
}

/// What is declared for a client with these extensions, which can be asked this. Their names are the client's
/// word; what is said of them, and in which order, is ours: sessions are told apart by this
/// text, and no client writes it.
pub(in crate::backend) fn declared(extensions: &BTreeSet<String>, able: Able) -> Json {
    let (own, nothing) = (own_capabilities().member(EXTENSIONS), Object::new().finish());
    let all = extensions.iter().fold(Object::new(), |all, name| {
        let said = own.as_ref().and_then(|own| own.member(name));
        all.put(name, said.as_ref().unwrap_or(&nothing))
    });
    let all = (!extensions.is_empty()).then(|| all.finish());
    able.declare(Object::new()).put_some(EXTENSIONS, all.as_ref()).finish()
}

/// `_meta` of a call: ours, and what the caller put there that we do not understand.
///
/// spec: basic/index, _meta
fn meta_of(id: u64, call: &BackendCall) -> Json {
    let mut meta = meta_with(&call.capabilities);
    if call.meta.progress_token.is_some() {
        meta = meta.put_str(PROGRESS_TOKEN_KEY, &progress_token(id));
    }
    if let Some(level) = call.meta.log_level {
        meta = meta.put_str(LOG_LEVEL, level.name());
    }
    for (name, value) in trace_of(&call.meta) {
        meta = meta.put_str(name, &value);
    }
    for (key, value) in &call.meta.unknown {
        // Ours stand already: a second member of the same key would be somebody else's word.
        let ours = [VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, PROGRESS_TOKEN_KEY, TRACEPARENT];
        if !ours.contains(&key.as_str()) {
            meta = meta.put(key, value);
        }
    }
    meta.finish()
}

fn meta_with(capabilities: &Json) -> Object {
    Object::with_capacity(256)
        .put_str(VERSION_KEY, LATEST)
        .put(CAPABILITIES_KEY, capabilities)
        .put(CLIENT_INFO_KEY, &our_info())
}
