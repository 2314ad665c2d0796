//! A request in a session that is refused: what that says of the session, and of its server.

use http::StatusCode;

use crate::backend::BackendError;
use crate::backend::clock::Clocks;
use crate::backend::legacy::flight::Failure;
use crate::backend::legacy::flight::Flight;
use crate::backend::legacy::flight::Sent;
use crate::backend::legacy::flight::Stage;
use crate::backend::legacy::flight::late;
use crate::backend::legacy::sessions::Holder;
use crate::backend::mcp::answer::Heard;
use crate::backend::mcp::probe;
use crate::backend::mcp::response::UNEXPLAINED;
use crate::protocol::code;
use crate::protocol::methods::Method;

impl Flight {
    /// An answer whose status says that the request was refused.
    pub(super) async fn refused(&mut self, clocks: &Clocks) -> Result<Heard, Failure> {
        let Stage::Reading(_, reader) = &mut self.stage else { return Ok(Heard::Nothing) };
        let status = reader.status();
        let message = clocks.race(reader.refusal()).await.map_err(|clock| late(clock, true))?;
        let Stage::Reading(mut sent, reader) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(Heard::Nothing);
        };
        let message = message.map_err(|error| self.spoilt(&sent, status, error))?;
        let code = message.as_ref().and_then(probe::error_code);
        let answers = message.as_ref().is_some_and(|message| probe::answers(message, sent.id));
        let no_session = match status {
            // spec: 2025-11-25 basic/transports, Session Management
            StatusCode::NOT_FOUND if answers && code == Some(code::METHOD_NOT_FOUND) => false,
            StatusCode::NOT_FOUND => sent.lease.session().has_id(),
            // How some servers say it.
            StatusCode::BAD_REQUEST => code == Some(code::NO_SESSION),
            _ => false,
        };
        // Under our id it is what the request came to, and the server may have acted on it.
        let may_repeat = !answers || (self.prepared.method != Method::ToolsCall && !self.again);
        if no_session && may_repeat {
            return Err(self.lost(&sent));
        }
        if no_session {
            // It may have meant the session all the same: the next request goes in another.
            sent.lease.discard();
        }
        let end = match message.filter(|message| message.member("error").is_some()) {
            Some(message) => sent.judge.hear(&message),
            None => Err(BackendError::Invalid(UNEXPLAINED)),
        };
        let end = end.and_then(|heard| match heard {
            Heard::Final(outcome) => Ok(outcome),
            Heard::Nothing | Heard::Progress(_) | Heard::Log(_) => Err(BackendError::Invalid(UNEXPLAINED)),
        });
        match (code, end) {
            (Some(code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION), end) => {
                sent.lease.lost();
                Err(Failure::Astray(end))
            }
            (_, Ok(outcome)) => {
                reader.finish();
                Ok(Heard::Final(outcome))
            }
            (_, Err(error)) => Err(self.spoilt(&sent, status, error)),
        }
    }

    /// The server does not know the session that it is in.
    pub(super) fn lose(&mut self) {
        if let Stage::Sent(sent, _) | Stage::Reading(sent, _) =
            std::mem::replace(&mut self.stage, Stage::Over)
        {
            sent.lease.lost();
        }
    }

    /// The server does not know the session. Others go one by one until one is open again.
    pub(super) fn lost(&self, sent: &Sent) -> Failure {
        sent.lease.lost();
        self.pool.backoff().doubt();
        // It may have been restarted as something else; lists that show it are on their way to that.
        if self.holder != Holder::Gateway {
            sent.lease.session().upstream().suspect();
        }
        Failure::NoSession
    }

    /// There is no right answer. A session in which requests are refused without one is not used again.
    pub(super) fn spoilt(&self, sent: &Sent, status: StatusCode, error: BackendError) -> Failure {
        if status.is_client_error() && probe::is_evidence(status) {
            sent.lease.discard();
        }
        if status.is_server_error() || matches!(error, BackendError::Broken(_)) {
            self.pool.backoff().doubt();
        }
        error.into()
    }
}
