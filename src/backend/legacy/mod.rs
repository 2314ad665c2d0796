//! The handshake era's side of an MCP backend: sessions, and requests in them.
//!
//! `session` is one session from `initialize` to its end; `pool` opens and ends them, `sessions` is what
//! it keeps; `request` builds what is sent in one, `flight` is a request in flight, `ear` hears what a
//! server says beside its answers, and tells the `watchers` of a `watch` what changes.

mod ear;
pub(super) mod flight;
pub(super) mod pool;
mod request;
pub(super) mod session;
pub(super) mod sessions;
pub(super) mod watch;
mod watchers;
