//! Why a request is refused: the union of what the rooms refuse.

use crate::auth::error::AuthError;
use crate::backend::BackendError;
use crate::methods::CallError;
use crate::protocol::ProtocolError;
use crate::protocol::json::JsonError;
use crate::router::RouteError;
use crate::stream::body::BodyError;
use crate::tenant::TenantError;

/// Why a request is refused. What its caller sees stands in `edge::respond` alone.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The credential.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The tenant that the credential names.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The body's bytes.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The message and its headers.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The scope, the params or the target.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// No answer from the backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl Refusal {
    /// The kind, as a metric label and for the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Refusal::Auth(_) => "auth",
            Refusal::Tenant(_) => "tenant",
            Refusal::Body(_) => "body",
            Refusal::Protocol(_) => "protocol",
            Refusal::Route(_) => "route",
            Refusal::Backend(_) => "backend",
        }
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Route(error) => Self::Route(error),
            CallError::Backend(error) => Self::Backend(error),
        }
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Protocol(error.into())
    }
}
