//! Step 14: the `_meta` of a request.

use crate::protocol::json::Json;

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
    /// Members that mean nothing to us, relayed byte for byte: key text (unescaped) and value.
    pub unknown: Vec<(String, Json)>,
}
