//! Progress, from the backend's stream to the client's: under the client's token, otherwise as it came.

use crate::backend::mcp::request;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// The progress of one call whose client asked for it.
pub(super) struct Progress {
    ours: String,
    theirs: Json,
    last: f64,
}

impl Progress {
    /// Of the request with the id `id`, for the client's token `theirs`.
    pub(super) fn new(id: u64, theirs: Json) -> Self {
        Self { ours: request::progress_token(id), theirs, last: f64::NEG_INFINITY }
    }

    /// The notification for the client that `params` of the backend's become. `None` where they are
    /// for another token, are not well-formed, or do not go up.
    ///
    /// spec: patterns/progress, Progress Flow, Behavior Requirements
    pub(super) fn relay(&mut self, params: &Json) -> Option<Json> {
        if params.member("progressToken")?.string_ref()? != self.ours {
            return None;
        }
        let progress = params.member("progress").filter(|value| value.kind() == Kind::Number)?;
        // Compared as floating point, relayed digit for digit.
        let value: f64 = progress.text().parse().ok()?;
        if value <= self.last {
            return None;
        }
        self.last = value;
        let mut relayed = Object::with_capacity(params.bytes().len() + self.theirs.bytes().len());
        for (key, value) in params.members() {
            relayed = relayed.put(&key, if key == "progressToken" { &self.theirs } else { &value });
        }
        let message = Object::new()
            .put_str("jsonrpc", "2.0")
            .put_str("method", "notifications/progress")
            .put("params", &relayed.finish());
        Some(message.finish())
    }
}
