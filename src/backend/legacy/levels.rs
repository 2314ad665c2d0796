//! What a server logs in a session: from the lowest level on that any call in it wanted.
//!
//! The server's level is one for the whole session; what a call hears of it is filtered by the call's own.

use tokio::sync::Mutex;

use crate::backend::BackendError;
use crate::backend::legacy::request;
use crate::backend::legacy::session::Session;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::answer::Judge;
use crate::backend::mcp::response::Reader;
use crate::protocol::json::Json;
use crate::protocol::level::Level;

/// The level of one session.
pub(super) struct Logs {
    /// Whether its server can be told one.
    offered: bool,
    /// The level that it was told last. Held while it is being told: of two that follow each other the
    /// lower one stays.
    level: Mutex<Option<Level>>,
}

impl Logs {
    /// Of a server that said this of itself.
    pub(super) fn of(about: &Json) -> Self {
        let offered = about.member("capabilities").and_then(|all| all.member("logging"));
        Self { offered: offered.is_some_and(|logging| logging.is_object()), level: Mutex::default() }
    }
}

impl Session {
    /// Sees to it that the server logs from `level` on, if it can log and does not do so already. Whatever
    /// comes of that, the call goes on, after at most `limits.listen_time`, and it is not tried again.
    ///
    /// spec: row X-13; 2025-11-25 server/utilities/logging, Setting Log Level
    ///
    /// # Cancel safety
    /// Dropping the future leaves the level to whoever wants it next.
    pub(super) async fn lower(&self, level: Level) {
        if !self.logs().offered {
            return;
        }
        let telling = async {
            let mut told = self.logs().level.lock().await;
            if told.is_none_or(|told| level < told) {
                let _ = self.tell_level(level).await;
                *told = Some(level);
            }
        };
        if tokio::time::timeout(self.upstream().limits.listen_time, telling).await.is_err()
            && let Ok(mut told) = self.logs().level.try_lock()
        {
            *told = Some(level);
        }
    }

    async fn tell_level(&self, level: Level) -> Result<(), BackendError> {
        let limits = &self.upstream().limits;
        let id = self.upstream().mint_id();
        let response = self.upstream().send(self.post(&request::set_level(id, level))?).await?;
        let mut reader = Reader::open(response, limits.listen_event_bytes, limits.json_depth)?;
        let mut judge = Judge::new(id, None);
        loop {
            if let Heard::Final(_) = judge.hear(&reader.message().await?)? {
                reader.finish();
                return Ok(());
            }
        }
    }
}
