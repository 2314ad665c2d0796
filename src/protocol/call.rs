//! A proven request, and what answers to requests are made of.

use std::sync::Arc;

use http::HeaderName;
use http::HeaderValue;

use crate::protocol::json::Json;
use crate::protocol::media::Accept;
use crate::protocol::message::RequestId;
use crate::protocol::meta::Meta;
use crate::protocol::methods::Method;

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
    /// The `Mcp-Param-*` headers, unjudged: only the tool's schema says what they must be.
    pub mirrored: Vec<(HeaderName, HeaderValue)>,
}

/// How a request ended, as JSON-RPC says it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// `result`, an object.
    Result(Json),
    /// `error`.
    Error(RpcError),
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
