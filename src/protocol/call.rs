//! A proven request, and what answers to requests are made of.

use std::sync::Arc;

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;

use crate::protocol::ProtocolError;
use crate::protocol::headers;
use crate::protocol::headers::Duty;
use crate::protocol::json::Json;
use crate::protocol::media::Accept;
use crate::protocol::message::Request;
use crate::protocol::message::RequestId;
use crate::protocol::meta;
use crate::protocol::meta::Meta;
use crate::protocol::methods;
use crate::protocol::methods::Method;
use crate::protocol::version;

#[cfg(test)]
mod tests;

/// The member of `params` with a client's answers to what a backend asked.
pub const INPUT_RESPONSES: &str = "inputResponses";

/// The member of results, and of the `params` after them, with what a backend wants back.
pub const REQUEST_STATE: &str = "requestState";

/// One JSON-RPC request that passed the ladder up to step 15.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client's id, only ever echoed.
    pub id: RequestId,
    /// The method.
    pub method: Method,
    /// The string that `Mcp-Name` mirrors, where the method has one.
    pub name: Option<Arc<str>>,
    /// `params`, an object.
    pub params: Json,
    /// The checked `_meta`.
    pub meta: Meta,
    /// What the client takes.
    pub accept: Accept,
    /// The `Mcp-Param-*` headers, unjudged: only the tool's schema says what they must be. `None` where
    /// the client's revision has no such mirrors.
    pub mirrored: Option<Vec<(HeaderName, HeaderValue)>>,
}

impl Call {
    /// Whether it goes on with what a backend asked back: its answer is for nobody else, and for no later
    /// call.
    ///
    /// spec: patterns/mrtr
    pub fn is_retry(&self) -> bool {
        self.params.members().any(|(key, _)| matches!(&*key, INPUT_RESPONSES | REQUEST_STATE))
    }
}

/// How a request ended, as JSON-RPC says it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// `result`, an object: what was asked for (`resultType` is `complete`).
    Result(Json),
    /// `result`, an object that asks the client back (`input_required`).
    ///
    /// spec: patterns/mrtr
    Asks(Json),
    /// `result`, an object that names the task which goes on in its place (`task`).
    ///
    /// spec: SEP-2663
    Task(Json),
    /// `error`.
    Error(RpcError),
}

impl Outcome {
    /// The same without what its texts were cut from, for whoever counts what is kept.
    pub fn alone(self) -> Self {
        match self {
            Self::Result(result) => Self::Result(result.alone()),
            Self::Asks(result) => Self::Asks(result.alone()),
            Self::Task(result) => Self::Task(result.alone()),
            Self::Error(error) => {
                Self::Error(RpcError { data: error.data.map(|data| data.alone()), ..error })
            }
        }
    }
}

/// A JSON-RPC error object.
#[derive(Clone, Debug)]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// Its data, verbatim.
    pub data: Option<Json>,
}

/// Steps 10 to 15, in this order: mirrors before what they mirror, the version before its meaning.
///
/// spec: streamable-http, Server Validation
pub fn validate(request: Request, headers: &HeaderMap, accept: Accept) -> Result<Call, ProtocolError> {
    let Request { id, method, params, meta } = request;
    // A version of another type is step 14's to refuse.
    let claimed = meta.as_ref().and_then(meta::version).and_then(|version| version.string());
    let served = headers::version(headers, claimed.as_deref(), Duty::Required)?.unwrap_or_default();
    if !version::is_served(served) {
        return Err(ProtocolError::UnsupportedVersion { requested: served.to_owned() });
    }
    headers::method(headers, &method, Duty::Required)?;
    let name = match methods::mirrored_member(&method) {
        Some(member) => {
            let name = params.as_ref().and_then(|params| params.member(member)?.string());
            headers::name(headers, name.as_deref(), Duty::Required)?;
            name.map(Arc::from)
        }
        None => None,
    };
    let meta = Meta::read(params.as_ref(), meta.as_ref())?;
    let params = params.ok_or(ProtocolError::InvalidParams("`params` has to be an object with `_meta`"))?;
    let method = Method::named(&method).ok_or(ProtocolError::MethodNotFound)?;
    let mirrored = Some(headers::mirrored(headers));
    Ok(Call { id, method, name, params, meta, accept, mirrored })
}
