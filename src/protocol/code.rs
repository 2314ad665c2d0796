//! JSON-RPC error codes: JSON-RPC's own, MCP's three, and ours, which are positive.
//!
//! spec: basic/index, Error Codes

/// JSON-RPC: the text is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the JSON is no request.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: wrong params, and MCP's unknown tool, prompt, resource, cursor and state.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: our fault, or the backend's.
pub const INTERNAL_ERROR: i64 = -32603;
/// Of servers of the handshake era, by custom: there is no such session.
pub const NO_SESSION: i64 = -32000;
/// MCP: a header does not mirror the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// MCP: the client did not declare a capability that is needed.
pub const MISSING_CAPABILITY: i64 = -32021;
/// MCP: the protocol version is not served.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// Older revisions': no such resource. Never said to a modern client.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Of 2025-11-25: URLs have to be opened before the request can be made. Never said to a client.
pub const URL_WANTED: i64 = -32042;
/// The member of an error's `data` that has a backend's own code, where ours is another.
pub const UPSTREAM_CODE: &str = "upstreamCode";
/// Ours: a rate limit.
pub const RATE_LIMITED: i64 = 1001;
/// Ours: too many listeners.
pub const LISTEN_LIMIT: i64 = 1002;
/// Ours: too much in flight.
pub const OVERLOADED: i64 = 1003;
/// Ours: the backend refuses our credential.
pub const UPSTREAM_AUTH: i64 = 1004;
/// Ours: a person has to approve first.
pub const APPROVAL_REQUIRED: i64 = 1005;
