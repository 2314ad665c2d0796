//! What a backend says before it answers, from its stream to the client's: progress under the client's
//! token, log messages from the client's level on; otherwise as it came.

use crate::backend::mcp::request;
use crate::model::limits::Limits;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;
use crate::protocol::level::Level;

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
        Some(notification("notifications/progress", &relayed.finish()))
    }
}

/// The log messages of one call whose client wants some. They say nothing of how far the call is: no
/// clock is reset by them.
pub(in crate::backend) struct Logs {
    least: Level,
    /// How many more there may be.
    left: usize,
    most_bytes: usize,
}

impl Logs {
    /// From the level `least` on, if there is one.
    pub(in crate::backend) fn of(least: Option<Level>, limits: &Limits) -> Option<Self> {
        Some(Self { least: least?, left: limits.log_messages, most_bytes: limits.log_bytes })
    }

    /// The notification for the client that `params` of the backend's become, unchanged. `None` where
    /// they are less serious than the client wants, not well-formed, too long or too many.
    ///
    /// spec: server/utilities/logging, Per-request log level, Log Message Notifications
    pub(in crate::backend) fn relay(&mut self, params: &Json) -> Option<Json> {
        if params.bytes().len() > self.most_bytes {
            return None;
        }
        let level = Level::named(&params.member("level")?.string_ref()?)?;
        let logger = params.member("logger");
        let is_whole =
            params.member("data").is_some() && logger.is_none_or(|logger| logger.kind() == Kind::String);
        if level < self.least || !is_whole {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(notification("notifications/message", params))
    }
}

fn notification(method: &str, params: &Json) -> Json {
    Object::with_capacity(params.bytes().len() + 64)
        .put_str("jsonrpc", "2.0")
        .put_str("method", method)
        .put("params", params)
        .finish()
}
