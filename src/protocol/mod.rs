//! MCP on paper: what a message, its headers and its metadata may look like. No IO, no tenant.
//!
//! Steps 6 and 8 to 15 of the ladder live here: [`media`] is 6, [`json`] is 8, [`era`] and [`message`] are 9,
//! [`headers`] is 10 to 13, [`meta`] is 14 and [`methods`] is 15; [`call::validate`] runs 10 to 15.

pub mod able;
pub mod caching;
pub mod call;
pub mod code;
pub mod era;
pub mod extensions;
pub mod headers;
pub mod json;
pub mod level;
pub mod media;
pub mod message;
pub mod meta;
pub mod methods;
pub mod subscription;
pub mod tasks;
pub mod trace;
pub mod version;

/// Why a request is no valid MCP request. `Display` is what the caller reads.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// Step 6: the body is declared as something else than plain JSON.
    #[error("{0}")]
    UnsupportedMedia(&'static str),
    /// Step 6: the client takes neither JSON nor SSE, or not the one that is needed.
    #[error("{0}")]
    NotAcceptable(&'static str),
    /// Step 8: not JSON as we read it.
    #[error("the body is not valid JSON: {0}")]
    Json(json::JsonError),
    /// Steps 8 and 9: JSON, but no request that we take.
    #[error("{0}")]
    InvalidRequest(&'static str),
    /// Steps 10, 12, 13 and 19: a mirror header that is missing, repeated or different.
    #[error("{header}: {problem}")]
    HeaderMismatch {
        /// The header, as the specification spells it.
        header: String,
        /// What is wrong with it.
        problem: headers::Mismatch,
    },
    /// Step 11: a version that is not served.
    #[error("protocol version {requested:?} is not served here; `data.supported` lists what is")]
    UnsupportedVersion {
        /// What was asked for.
        requested: String,
    },
    /// Step 9: a client of the handshake era, which is not served.
    #[error(
        "the handshake revisions ({requested}) are not served here: send each request with \
         `MCP-Protocol-Version` and `_meta`, as revision 2026-07-28 says"
    )]
    HandshakeEra {
        /// The revision asked for, or the method that shows the era.
        requested: String,
    },
    /// Steps 14 and 17: params or `_meta` of the wrong shape.
    #[error("{0}")]
    InvalidParams(&'static str),
    /// Step 15: no such method.
    #[error("method not found")]
    MethodNotFound,
}

impl From<json::JsonError> for ProtocolError {
    fn from(error: json::JsonError) -> Self {
        match error {
            json::JsonError::DuplicateKey => Self::InvalidRequest("a JSON object has the same key twice"),
            other => Self::Json(other),
        }
    }
}
