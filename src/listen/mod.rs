//! Who listens to changes, of either era, and what each of them is told.
//!
//! Listening is level-triggered. A `listener` is what it asked for and which of that is dirty; the [`hub`]
//! marks, the [`writer`] of its stream drains. There is no queue: nothing overflows, nothing is lost, and
//! who reads slowly costs what who is idle costs. `upstream` keeps the subscriptions with backends that
//! listeners' resources need, one for all who want the same.

mod above;
mod crowd;
pub mod hub;
mod listener;
mod notice;
pub mod places;
pub mod task;
mod upstream;
pub mod writer;

#[cfg(test)]
mod tests;

/// Why somebody may not listen. `Display` is what the caller reads.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenError {
    /// The caller, or its tenant, listens as often as it may.
    #[error("too many streams are open: close one, or try again later")]
    TooManyStreams,
    /// The listener or the caller has as many resources as it may, or the caller as many sessions that
    /// have some.
    #[error("too many resources are subscribed to: unsubscribe from some, or end a session")]
    TooManyResources,
    /// The resource's backend has as many subscriptions as it may.
    #[error("as many resources of this backend are subscribed to as may be: try again later")]
    BackendFull,
}
