//! Why a request is refused: the union of what the rooms refuse.

use crate::auth::error::AuthError;
use crate::backend::BackendError;
use crate::legacy::LegacyError;
use crate::listen::ListenError;
use crate::methods::CallError;
use crate::protocol::ProtocolError;
use crate::protocol::json::Json;
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
    /// The session that the message is of.
    #[error(transparent)]
    Legacy(#[from] LegacyError),
    /// The stream, or what is listened to.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The scope, the params or the target.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// No answer from the backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl Refusal {
    /// What kind of refusal it is, as a metric label and for the log; bounded by this match.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Auth(AuthError::MissingToken) => "missing_token",
            Self::Auth(AuthError::InvalidToken(_)) => "invalid_token",
            Self::Auth(AuthError::KeysUnavailable { .. }) => "keys_unavailable",
            Self::Auth(AuthError::IntrospectionUnavailable { .. }) => "introspection_unavailable",
            Self::Tenant(_) => "tenant",
            Self::Body(_) => "body",
            Self::Protocol(error) => protocol(error),
            Self::Legacy(error) => legacy(error),
            Self::Listen(error) => listen(error),
            Self::Route(error) => route(error),
            Self::Backend(error) => backend(error),
        }
    }

    /// The bytes of JSON that an answer says of it, but for what all refusals have.
    pub fn size(&self) -> usize {
        let repeated = match self {
            Self::Route(RouteError::UnknownResource { uri })
            | Self::Legacy(LegacyError::NoSuchResource(uri)) => uri,
            Self::Protocol(
                ProtocolError::UnsupportedVersion { requested } | ProtocolError::HandshakeEra { requested },
            ) => requested,
            _ => "",
        };
        [&self.to_string(), repeated].iter().map(|text| Json::from_str_value(text).bytes().len()).sum()
    }
}

fn protocol(error: &ProtocolError) -> &'static str {
    match error {
        ProtocolError::UnsupportedMedia(_) | ProtocolError::NotAcceptable(_) => "media",
        ProtocolError::Json(_) => "json",
        ProtocolError::InvalidRequest(_) => "invalid_request",
        ProtocolError::HeaderMismatch { .. } => "header_mismatch",
        ProtocolError::UnsupportedVersion { .. } => "version",
        ProtocolError::HandshakeEra { .. } => "handshake_era",
        ProtocolError::InvalidParams(_) => "params",
        ProtocolError::MethodNotFound => "method",
    }
}

fn legacy(error: &LegacyError) -> &'static str {
    match error {
        LegacyError::NotServed => "http_method",
        LegacyError::Version => "version",
        LegacyError::NoSession | LegacyError::RepeatedSession | LegacyError::NoSuchSession => "session",
        LegacyError::NoSuchResource(_) => "unknown_target",
        LegacyError::Batch(_) => "batch",
        LegacyError::TooManySubscriptions(error) => listen(error),
        LegacyError::TooManyEnded { .. } => "ended_sessions",
        LegacyError::TooManyCalls => "session_calls",
        LegacyError::Withdrawn => "withdrawn",
    }
}

fn listen(error: &ListenError) -> &'static str {
    match error {
        ListenError::TooManyStreams => "streams",
        ListenError::TooManyResources | ListenError::BackendFull => "subscriptions",
    }
}

fn route(error: &RouteError) -> &'static str {
    match error {
        RouteError::NeedsScopes(_) => "scope",
        RouteError::NeedsStream => "media",
        RouteError::InvalidParams(_) | RouteError::MissingArgument(_) => "params",
        RouteError::InvalidCursor | RouteError::InvalidState => "handle",
        RouteError::NeedsTasks => "capability",
        RouteError::UnknownTool(_)
        | RouteError::UnknownPrompt(_)
        | RouteError::UnknownResource { .. }
        | RouteError::UnknownTask => "unknown_target",
        RouteError::ParamMismatch { .. } => "header_mismatch",
    }
}

fn backend(error: &BackendError) -> &'static str {
    match error {
        BackendError::Unreachable(_) => "backend_unreachable",
        BackendError::TimedOut { .. } => "backend_timed_out",
        BackendError::Unauthorized | BackendError::CredentialMissing => "backend_credential",
        BackendError::Broken(_) => "backend_broken",
        BackendError::NotOpened(_) => "backend_not_opened",
        BackendError::Invalid(_) | BackendError::Stale => "backend_invalid",
        BackendError::Busy => "backend_busy",
        BackendError::Interrupted(_) => "backend_interrupted",
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
