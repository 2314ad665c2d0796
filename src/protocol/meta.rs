//! Step 14: the `_meta` of a request.

use crate::protocol::ProtocolError;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::level::Level;
use crate::protocol::message::misspells;
use crate::protocol::trace;

#[cfg(test)]
mod tests;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The key of a request's `_meta` for the log messages that its client wants.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const PROGRESS_TOKEN: &str = "progressToken";
/// The key of `_meta`, and the header, for the trace that a request is part of.
pub const TRACEPARENT: &str = "traceparent";
/// The same for what tracing systems say of that trace.
pub const TRACESTATE: &str = "tracestate";
/// The same for what travels with a request.
pub const BAGGAGE: &str = "baggage";

/// The extension of clients that show the views of tools: MCP Apps.
pub const UI: &str = "io.modelcontextprotocol/ui";

/// Longest `progressToken`, as JSON text: it comes back with every notification.
const TOKEN_BYTES: usize = 256;

/// Every key that means something to us.
const KNOWN: [&str; 8] =
    [VERSION, CAPABILITIES, CLIENT, LOG_LEVEL, PROGRESS_TOKEN, TRACEPARENT, TRACESTATE, BAGGAGE];

/// The key of a result's `_meta` under which a server says what it is.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// What this gateway calls itself, as a server and as a client.
pub fn our_info() -> Json {
    Object::new().put_str("name", "fondaco").put_str("version", env!("CARGO_PKG_VERSION")).finish()
}

/// The checked `_meta` of a modern request.
///
/// spec: basic/index, _meta
#[derive(Clone, Debug)]
pub struct Meta {
    /// `io.modelcontextprotocol/clientCapabilities`, an object.
    pub capabilities: Json,
    /// `progressToken`, a string or an integer, as its JSON text.
    pub progress_token: Option<Json>,
    /// `traceparent`, well-formed or absent.
    pub traceparent: Option<String>,
    /// `tracestate`, well-formed or absent; never without a `traceparent`.
    pub tracestate: Option<String>,
    /// `baggage`, unjudged until [`Meta::admit_baggage`]; then what of it goes on.
    pub baggage: Option<String>,
    /// `io.modelcontextprotocol/logLevel`: the least serious log messages that its client wants to hear;
    /// none without it.
    pub log_level: Option<Level>,
    /// Members that mean nothing to us, relayed byte for byte: key text (unescaped) and value.
    pub unknown: Vec<(String, Json)>,
}

impl Meta {
    /// The trace id in `traceparent`.
    pub fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref().and_then(|parent| parent.split('-').nth(1))
    }

    /// Keeps of the baggage the members with one of these keys, if it is well-formed.
    pub fn admit_baggage(&mut self, keys: &[String]) {
        self.baggage = self.baggage.take().and_then(|baggage| trace::allowed_baggage(&baggage, keys));
    }

    /// Whether the client declares that it can do this, and says how: a member of
    /// `capabilities.extensions`, an object.
    ///
    /// spec: basic/versioning, Extension Negotiation
    pub fn extension(&self, name: &str) -> Option<Json> {
        self.capabilities.member("extensions")?.member(name).filter(Json::is_object)
    }

    /// Step 14: `params` and its `_meta` are objects, and what is required of `_meta` is there.
    pub fn read(params: Option<&Json>, meta: Option<&Json>) -> Result<Self, ProtocolError> {
        if !params.is_some_and(Json::is_object) {
            return Err(refuse("`params` has to be an object with `_meta`"));
        }
        let meta = meta.filter(|meta| meta.is_object());
        let members = Members::read(meta.ok_or(refuse("`params._meta` has to be an object"))?)?;
        if members.version.as_ref().is_none_or(|version| version.kind() != Kind::String) {
            return Err(refuse("`_meta` needs `io.modelcontextprotocol/protocolVersion`, a string"));
        }
        let capabilities = members.capabilities.clone().filter(Json::is_object);
        let capabilities = capabilities
            .ok_or(refuse("`_meta` needs `io.modelcontextprotocol/clientCapabilities`, an object"))?;
        Ok(members.with(capabilities))
    }

    /// What there is of it where a client with these capabilities asks for nothing itself.
    pub fn bare(capabilities: Json) -> Self {
        Members::default().with(capabilities)
    }

    /// The `_meta` of a request in a session, whose client declared its `capabilities` at the start.
    /// It may be missing, and nothing is required of it.
    pub fn in_session(meta: Option<&Json>, capabilities: Json) -> Result<Self, ProtocolError> {
        let members = match meta {
            None => Members::default(),
            Some(meta) if meta.is_object() => Members::read(meta)?,
            Some(_) => return Err(refuse("`params._meta` has to be an object")),
        };
        Ok(members.with(capabilities))
    }
}

fn refuse(reason: &'static str) -> ProtocolError {
    ProtocolError::InvalidParams(reason)
}

/// The members of a `_meta`, each of its right type, required ones or not.
#[derive(Default)]
struct Members {
    version: Option<Json>,
    capabilities: Option<Json>,
    progress_token: Option<Json>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    baggage: Option<String>,
    log_level: Option<Level>,
    unknown: Vec<(String, Json)>,
}

impl Members {
    fn read(meta: &Json) -> Result<Self, ProtocolError> {
        let mut members = Self::default();
        for (key, value) in meta.members() {
            match &*key {
                VERSION => members.version = Some(value),
                CAPABILITIES => members.capabilities = Some(value),
                PROGRESS_TOKEN if value.bytes().len() > TOKEN_BYTES => {
                    return Err(refuse("`progressToken` is too long"));
                }
                PROGRESS_TOKEN if value.kind() == Kind::String || value.is_integer() => {
                    members.progress_token = Some(value);
                }
                PROGRESS_TOKEN => return Err(refuse("`progressToken` has to be a string or an integer")),
                LOG_LEVEL => match value.string_ref().and_then(|level| Level::named(&level)) {
                    Some(level) => members.log_level = Some(level),
                    None => return Err(refuse("`io.modelcontextprotocol/logLevel` is no log level")),
                },
                TRACEPARENT => {
                    members.traceparent = value.string().filter(|text| trace::is_traceparent(text));
                }
                TRACESTATE => members.tracestate = value.string().filter(|text| trace::is_tracestate(text)),
                BAGGAGE => members.baggage = value.string(),
                CLIENT => {}
                other if misspells(other, &KNOWN) => {
                    return Err(refuse("a member of `_meta` is spelt in another case than the protocol's"));
                }
                _ => members.unknown.push((key.into_owned(), value)),
            }
        }
        Ok(members)
    }

    fn with(self, capabilities: Json) -> Meta {
        let Self { progress_token, traceparent, tracestate, baggage, log_level, unknown, .. } = self;
        // Without its trace it means nothing.
        // spec: W3C Trace Context, 3.3
        let tracestate = tracestate.filter(|_| traceparent.is_some());
        Meta { capabilities, progress_token, traceparent, tracestate, baggage, log_level, unknown }
    }
}

/// The version that a `_meta` names, of any type.
pub(super) fn version(meta: &Json) -> Option<Json> {
    meta.member(VERSION)
}
