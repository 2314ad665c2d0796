//! Step 9: the JSON-RPC envelope.
//!
//! A message is taken apart by [`Envelope::read`] before [`era`](crate::protocol::era) tells how it is
//! to be judged, and judged by [`Message::of`].

use std::borrow::Cow;

use http::HeaderMap;

use crate::protocol::ProtocolError;
use crate::protocol::headers;
use crate::protocol::headers::Duty;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::meta;
use crate::protocol::methods;

#[cfg(test)]
mod tests;

/// The members of the envelope. No other spelling of theirs may stand beside or instead of them.
const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The members of `params` that are checked or rewritten, likewise.
const PARAMS: [&str; 10] = [
    "_meta",
    "name",
    "uri",
    "ref",
    "argument",
    "taskId",
    "arguments",
    "cursor",
    "requestState",
    "inputResponses",
];

/// A request id: a string or an integer of bounded length, kept as its JSON text so that it is
/// echoed digit for digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Json);

impl RequestId {
    /// The id, if it is a string or an integer of at most `id_bytes` bytes of JSON text.
    fn read(json: Json, id_bytes: usize) -> Option<Self> {
        let fits = json.bytes().len() <= id_bytes;
        (fits && (json.is_integer() || json.kind() == Kind::String)).then_some(Self(json))
    }

    /// The id as it was sent.
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// The same id in bytes of its own, for whoever keeps it longer than its request.
    pub fn alone(&self) -> Self {
        Self(self.0.alone())
    }

    /// Whether `other` is the same id; strings may be escaped in other ways.
    pub fn is(&self, other: &Json) -> bool {
        match (self.0.string_ref(), other.string_ref()) {
            (Some(own), Some(other)) => own == other,
            _ => self.0 == *other,
        }
    }
}

/// A well-formed message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
}

/// A request, its envelope proven; its mirrors and params are not.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client's id.
    pub id: RequestId,
    /// The method, served or not.
    pub method: String,
    /// `params` as sent, of any type.
    pub params: Option<Json>,
    /// `params._meta` as sent, of any type.
    pub meta: Option<Json>,
}

/// A notification, its envelope proven.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The method.
    pub method: String,
    /// `params` as sent, of any type.
    pub params: Option<Json>,
    /// `params._meta` as sent, of any type.
    pub meta: Option<Json>,
}

impl Message {
    /// The message, if its envelope keeps the rules of every era.
    ///
    /// spec: basic/index, Requests, Notifications
    pub fn of(envelope: Envelope) -> Result<Self, ProtocolError> {
        if !envelope.is_object {
            return Err(ProtocolError::InvalidRequest("a message is one JSON object; batches are not taken"));
        }
        let notification = envelope.is_notification();
        let method = envelope.check()?;
        let Envelope { id, params, meta, .. } = envelope;
        if notification {
            return Ok(Self::Notification(Notification { method, params, meta }));
        }
        let id = id.and_then(|(_, id)| id);
        let id = id.ok_or(ProtocolError::InvalidRequest(
            "`id` has to be a string or an integer of bounded length",
        ))?;
        Ok(Self::Request(Request { id, method, params, meta }))
    }
}

impl Notification {
    /// Mirrors are compared where they are sent, and none has to be.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ProtocolError> {
        let version = self.meta.as_ref().and_then(meta::version).and_then(|version| version.string());
        headers::version(headers, version.as_deref(), Duty::Optional)?;
        headers::method(headers, &self.method, Duty::Optional)?;
        if let Some(member) = methods::mirrored_member(&self.method) {
            let name = self.params.as_ref().and_then(|params| params.member(member)?.string());
            headers::name(headers, name.as_deref(), Duty::Optional)?;
        }
        Ok(())
    }
}

/// What a message and its params hold, each walked once. Nothing about it is proven.
#[derive(Default)]
pub struct Envelope {
    jsonrpc: Option<Json>,
    /// `id` as sent, and the id that it is, if it is one.
    id: Option<(Json, Option<RequestId>)>,
    /// `method`, and its text, if it is a string.
    method: Option<(Json, Option<String>)>,
    pub(super) params: Option<Json>,
    pub(super) meta: Option<Json>,
    is_object: bool,
    result: Option<Json>,
    error: Option<Json>,
    misspelt: bool,
}

/// What answers a request of ours. Nothing about it is proven.
#[derive(Debug)]
pub struct Response {
    /// The id of what it answers, of any type.
    pub id: Option<Json>,
    /// `result`, of any type, unless there is an `error` beside it.
    pub result: Option<Json>,
}

impl Envelope {
    /// Takes a message apart. An id of more than `id_bytes` bytes of JSON text is none.
    pub fn read(json: &Json, id_bytes: usize) -> Self {
        let mut envelope = Self { is_object: json.is_object(), ..Self::default() };
        for (key, value) in json.members() {
            match &*key {
                "jsonrpc" => envelope.jsonrpc = Some(value),
                "id" => envelope.id = Some((value.clone(), RequestId::read(value, id_bytes))),
                "method" => {
                    let text = value.string();
                    envelope.method = Some((value, text));
                }
                "params" => envelope.read_params(value),
                "result" => envelope.result = Some(value),
                "error" => envelope.error = Some(value),
                // A key beyond ASCII is another key, to us as to every peer that compares keys as it
                // should. For `params` that is its own answer: `_meta` is missing.
                "param\u{17f}" => {}
                other => envelope.misspelt |= misspells(other, &ENVELOPE),
            }
        }
        envelope
    }

    /// The one id that an answer may stand under.
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()?.1.as_ref()
    }

    /// The method, if it is a string.
    pub fn method(&self) -> Option<&str> {
        self.method.as_ref()?.1.as_deref()
    }

    /// Whether it is one JSON object; an array may be a batch.
    pub fn is_object(&self) -> bool {
        self.is_object
    }

    /// Whether it has a method and no id: nobody waits for an answer.
    pub fn is_notification(&self) -> bool {
        self.method().is_some() && self.id.is_none()
    }

    /// Whether it answers a request.
    pub fn is_response(&self) -> bool {
        self.has_outcome() && self.method.is_none()
    }

    /// It as the answer to a request, if it is one.
    pub fn response(&self) -> Option<Response> {
        let id = self.id.as_ref().map(|(id, _)| id.clone());
        let result = self.result.clone().filter(|_| self.error.is_none());
        self.is_response().then_some(Response { id, result })
    }

    fn has_outcome(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }

    fn read_params(&mut self, params: Json) {
        for (key, value) in params.members() {
            match &*key {
                "_meta" => self.meta = Some(value),
                other => self.misspelt |= misspells(other, &PARAMS),
            }
        }
        self.params = Some(params);
    }

    /// The envelope's rules; the method, if it keeps them.
    ///
    /// spec: basic/index, Requests
    fn check(&self) -> Result<String, ProtocolError> {
        let refuse = |reason| Err(ProtocolError::InvalidRequest(reason));
        if self.misspelt {
            return refuse(
                "a member of the message or its `params` is spelt in another case than the protocol's",
            );
        }
        if self.jsonrpc.as_ref().is_none_or(|version| version.bytes() != "\"2.0\"") {
            return refuse("`jsonrpc` has to be \"2.0\"");
        }
        if self.has_outcome() {
            return refuse("a request has neither `result` nor `error`, and responses are not taken");
        }
        self.method().map(str::to_owned).ok_or(ProtocolError::InvalidRequest("`method` has to be a string"))
    }
}

/// Whether `key` is one of `known` to a peer that ignores case, but not to us.
pub fn misspells(key: &str, known: &[&str]) -> bool {
    // Two characters beyond ASCII fold into it: the long s and the Kelvin sign.
    let folded = match key.is_ascii() {
        true => Cow::Borrowed(key),
        false => Cow::Owned(key.replace('\u{17f}', "s").replace('\u{212a}', "k")),
    };
    known.iter().any(|known| folded.eq_ignore_ascii_case(known) && key != *known)
}
