//! Step 6: what the client sends and what it takes.

/// What the client takes as an answer; at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// `application/json`.
    pub json: bool,
    /// `text/event-stream`.
    pub sse: bool,
}
