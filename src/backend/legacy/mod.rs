//! The handshake era's side of an MCP backend: sessions, and requests in them.
//!
//! `session` is one session from `initialize` to its end; `pool` opens and ends them, `sessions` is what
//! it keeps; `request` builds what is sent in one, `flight` is a request in flight, or `refused`, `ear` hears what a
//! server says beside its answers, and tells the `watchers` of a `watch` what changes; `levels` is what it
//! logs.
//!
//! What a server asks in a call (`questions`) is gathered in its flight (`asking`), which then waits in
//! `parking` under a `ticket` that its client gets, and is `resumed` with the client's answers.

mod asking;
mod ear;
pub(super) mod flight;
mod levels;
mod parking;
pub(super) mod pool;
mod questions;
mod refused;
mod request;
pub(super) mod resumed;
pub(super) mod session;
pub(super) mod sessions;
pub(super) mod ticket;
pub(super) mod watch;
mod watchers;
