//! The handshake era towards clients: revisions that begin with `initialize` and go on in a session.
//!
//! A session is a sealed handle and nothing else ([`session`]): any replica opens it, and none stores it.
//! What this process keeps is what happens now, and which sessions were ended early ([`registry`]).
//! [`front`] says what a message in a session asks for; the modern road answers it, and [`shape`] gives
//! the answer the form that the era knows. A client that leaves has not cancelled ([`lasting`]).
//!
//! This room may use the modern ones; of them, none knows it.

mod asking;
mod ended;
mod flights;
pub mod front;
pub mod initialize;
pub mod lasting;
pub mod registry;
mod schema;
pub mod session;
pub mod shape;
mod subscriptions;

use crate::listen::ListenError;
use crate::protocol::version::Handshake;

/// Why a message is none of a session, or a session does not take it. `Display` is what the caller reads.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LegacyError {
    /// The tenant does not serve the era.
    #[error("sessions are not served here")]
    NotServed,
    /// A revision that is not of the era, or not served.
    #[error("`MCP-Protocol-Version` names none of the revisions that have sessions here: {}", served())]
    Version,
    /// No session where one is needed.
    #[error("`Mcp-Session-Id` is missing: send the one that came with the answer to `initialize`")]
    NoSession,
    /// Two sessions, or one twice.
    #[error("`Mcp-Session-Id` is sent more than once")]
    RepeatedSession,
    /// A session that does not open: forged, of somebody else, over, or ended. Nobody can tell which.
    #[error("there is no such session (any more): send `initialize` again")]
    NoSuchSession,
    /// Step 18: no resource of this URI, or none for this caller.
    #[error("resource not found")]
    NoSuchResource(String),
    /// A batch that is not taken, or a message in one.
    #[error("{0}")]
    Batch(&'static str),
    /// The session, or its caller, subscribes to as many resources as it may.
    #[error("{0}")]
    TooManySubscriptions(#[from] ListenError),
    /// As many ended sessions are remembered as may be.
    #[error("the session cannot be ended now: try again later, or leave it")]
    TooManyEnded {
        /// When it can be tried again, in seconds from now.
        retry_after: u64,
    },
    /// As much goes on in the session as may.
    #[error("too many calls of this session are in progress: wait for some of them")]
    TooManyCalls,
    /// Its client has taken the request back: nobody waits for an answer.
    #[error("the request was cancelled")]
    Withdrawn,
}

/// The revisions served, for people.
fn served() -> String {
    Handshake::ALL.map(Handshake::name).join(", ")
}
