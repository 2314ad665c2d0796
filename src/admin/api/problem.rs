//! Why a request was refused, and the one table from that to the wire.
//!
//! spec: RFC 9457

use axum::body::Body;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;

use crate::config::report::Problem;
use crate::protocol::json::Json;
use crate::protocol::json::JsonError;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::store::error::StoreError;

/// Why a request was refused. `Display` is what the operator reads.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The request came by a name that is not this listener's.
    #[error("this host is not served here")]
    Host,
    /// A web page asks.
    #[error("requests from web pages are not accepted here")]
    Origin,
    /// No key, or none that is an operator's.
    #[error("the request needs `Authorization: Bearer` with an operator's key")]
    Key,
    /// The operator may not do this.
    #[error("{0}")]
    Forbidden(&'static str),
    /// There is no such thing, or none that the operator may know of.
    #[error("there is no such object")]
    NotFound,
    /// The path takes other methods.
    #[error("the path takes other methods: {0}")]
    Method(String),
    /// The tenants are a file's.
    #[error(
        "the tenants of this deployment are declared in a file, which owns them: change the file, or start \
         `fondaco serve` without one to keep tenants in the database"
    )]
    File,
    /// The body is not declared as JSON.
    #[error("the body has to be JSON: `Content-Type: application/json`, and no `Content-Encoding`")]
    MediaType,
    /// The body is too long.
    #[error("the body is longer than `limits.admin_body_bytes`")]
    TooLong,
    /// The body was not there in time.
    #[error("the body did not arrive in time")]
    Late,
    /// The body broke off.
    #[error("the body is broken")]
    Broken,
    /// The body is no JSON.
    #[error("the body is no JSON as it is taken here: {0}")]
    Json(JsonError),
    /// A precondition is missing.
    #[error("the request needs `If-Match` with the object's `ETag`, or `*` for whatever it is")]
    NoMatch,
    /// The object is not what the writer knows.
    #[error("the object was changed meanwhile: read it again")]
    Stale,
    /// Something in the request cannot be taken, all of it at once.
    #[error("the request cannot be taken as it is")]
    Invalid(Vec<Problem>),
    /// There is one of this name.
    #[error("an object of this name exists already")]
    Exists,
    /// Something can only be one tenant's.
    #[error("{0} is another tenant's already")]
    Claimed(&'static str),
    /// Others need it.
    #[error("the object is in use")]
    InUse(Vec<Problem>),
    /// Nobody would be left who may make operators.
    #[error("the last owner of the deployment cannot be removed")]
    LastOwner,
    /// The key of an earlier, other request.
    #[error("the `Idempotency-Key` belongs to another request")]
    KeyReused,
    /// The store is away.
    #[error("the database is busy or away, and nothing was written: try again")]
    Away,
    /// Nobody knows whether it happened.
    #[error(
        "the connection to the database was lost: the change may have been written. The same request with the \
         same `Idempotency-Key` finds out"
    )]
    Unknown,
    /// A fault of ours.
    #[error("the gateway failed at this request: its log says more")]
    Fault,
}

impl Refused {
    /// One problem with a member of the body, or a parameter.
    pub(super) fn invalid(path: &str, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Problem::new("", path, message)])
    }

    fn wire(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Host => (StatusCode::FORBIDDEN, "host"),
            Self::Origin => (StatusCode::FORBIDDEN, "origin"),
            Self::Key => (StatusCode::UNAUTHORIZED, "key"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method"),
            Self::File => (StatusCode::CONFLICT, "file"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type"),
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "too-long"),
            Self::Late => (StatusCode::REQUEST_TIMEOUT, "late"),
            Self::Broken => (StatusCode::BAD_REQUEST, "broken"),
            Self::Json(_) => (StatusCode::BAD_REQUEST, "json"),
            Self::NoMatch => (StatusCode::PRECONDITION_REQUIRED, "no-if-match"),
            Self::Stale => (StatusCode::PRECONDITION_FAILED, "stale"),
            Self::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            Self::Exists => (StatusCode::CONFLICT, "exists"),
            Self::Claimed(_) => (StatusCode::CONFLICT, "claimed"),
            Self::InUse(_) => (StatusCode::CONFLICT, "in-use"),
            Self::LastOwner => (StatusCode::CONFLICT, "last-owner"),
            Self::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key"),
            Self::Away => (StatusCode::SERVICE_UNAVAILABLE, "away"),
            Self::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "unknown"),
            Self::Fault => (StatusCode::INTERNAL_SERVER_ERROR, "fault"),
        }
    }

    /// The answer.
    pub fn into_response(self) -> Response<Body> {
        let (status, kind) = self.wire();
        let mut problem = Object::new()
            .put_str("type", &format!("urn:fondaco:problem:{kind}"))
            .put_str("title", status.canonical_reason().unwrap_or_default())
            .put_u64("status", status.as_u16().into())
            .put_str("detail", &self.to_string());
        if let Self::Invalid(problems) | Self::InUse(problems) = &self {
            let errors = problems.iter().map(error).fold(Array::new(), |all, one| all.push(&one));
            problem = problem.put("errors", &errors.finish());
        }
        let mut response = Response::new(Body::from(problem.finish().bytes().clone()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match &self {
            Self::Key => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Away | Self::Unknown => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Method(allow) => {
                if let Ok(allow) = HeaderValue::from_str(allow) {
                    headers.insert(header::ALLOW, allow);
                }
            }
            Self::TooLong | Self::Late | Self::Broken | Self::MediaType => {
                // The rest of the body is not read: the connection cannot carry another request.
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Self::Host
            | Self::Origin
            | Self::Forbidden(_)
            | Self::NotFound
            | Self::File
            | Self::Json(_)
            | Self::NoMatch
            | Self::Stale
            | Self::Invalid(_)
            | Self::Exists
            | Self::Claimed(_)
            | Self::InUse(_)
            | Self::LastOwner
            | Self::KeyReused
            | Self::Fault => {}
        }
        response
    }
}

fn error(problem: &Problem) -> Json {
    let error = Object::new().put_str("path", &problem.key).put_str("message", &problem.message);
    match &problem.hint {
        Some(hint) => error.put_str("hint", hint).finish(),
        None => error.finish(),
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::NotFound => Self::NotFound,
            StoreError::Exists => Self::Exists,
            StoreError::Conflict { .. } => Self::Stale,
            StoreError::Claimed(claim) => Self::Claimed(claim.noun()),
            StoreError::KeyReused => Self::KeyReused,
            StoreError::LastOwner => Self::LastOwner,
            StoreError::TooLong => Self::invalid("value", "longer than `limits.secret_bytes`"),
            StoreError::Busy(cause) => {
                tracing::warn!(%cause, "the admin API is without its database");
                Self::Away
            }
            StoreError::Unknown(cause) => {
                tracing::warn!(%cause, "the admin API does not know whether a change was written");
                Self::Unknown
            }
            // Who checks says what was wrong.
            StoreError::Refused | StoreError::Corrupt(_) | StoreError::Fault(_) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::error!(%error, cause, "a request to the admin API failed");
                Self::Fault
            }
        }
    }
}
