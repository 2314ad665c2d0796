//! The edge: bytes in, one proven HTTP request out (steps 1 to 4 of the ladder), and the answer out.
//!
//! [`accept`] owns sockets, time and drain; [`framing`] is step 1, [`origin`] steps 2 and 3. What
//! they refuse is an [`EdgeError`]; its status is `respond`'s business, as every other's.

pub mod accept;
pub mod discovery;
pub mod framing;
mod io;
pub mod log;
pub mod mcp;
pub mod origin;
pub mod respond;

/// Why a request went no further than the edge. `Display` is what the caller reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeError {
    /// Step 1: framing that two readers could read differently.
    #[error("bad request: {0}")]
    BadFraming(&'static str),
    /// Step 1: not HTTP/1.1.
    #[error("HTTP/1.1 is needed")]
    HttpVersion,
    /// Step 1: a request head over the limit, in bytes or fields.
    #[error("the request head is too large")]
    HeadTooLarge,
    /// Step 1: a request target over the limit.
    #[error("the request target is too long")]
    TargetTooLong,
    /// Step 2: no Host, several, or one that is no `host[:port]` or not the target's.
    #[error("bad request: {0}")]
    BadHost(&'static str),
    /// Step 2: an authority that is not served here.
    #[error("this host is not served here")]
    UnknownHost,
    /// Step 3: an Origin that is repeated, malformed or not on the list.
    #[error("requests from this origin are not accepted")]
    ForbiddenOrigin,
    /// Step 4: nothing is served at the path.
    #[error("not found")]
    NotFound,
    /// Step 4: the path takes other methods.
    #[error("the method is not allowed here")]
    MethodNotAllowed {
        /// What it takes, as in `Allow`.
        allow: &'static str,
    },
}

impl EdgeError {
    /// The kind, as a metric label and for the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadFraming(_) | Self::HttpVersion => "framing",
            Self::HeadTooLarge | Self::TargetTooLong => "head",
            Self::BadHost(_) | Self::UnknownHost => "host",
            Self::ForbiddenOrigin => "origin",
            Self::NotFound => "path",
            Self::MethodNotAllowed { .. } => "http_method",
        }
    }

    /// Whether the answer has to close the connection (`Connection: close`): what follows on
    /// it is unread, or cannot be told apart from the request.
    pub fn closes(&self) -> bool {
        match self {
            Self::BadFraming(_)
            | Self::HttpVersion
            | Self::HeadTooLarge
            | Self::TargetTooLong
            | Self::BadHost(_) => true,
            Self::UnknownHost | Self::ForbiddenOrigin | Self::NotFound | Self::MethodNotAllowed { .. } => {
                false
            }
        }
    }
}
