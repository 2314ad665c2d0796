//! The one table from refusals to the wire.
//!
//! What a caller sees of a refusal is decided here and nowhere else: HTTP status, JSON-RPC code,
//! `data` and headers. No match has a `_` arm, so a new refusal does not compile before somebody
//! decides. What answers are made of is in [`body`].

pub mod body;
mod streams;

use axum::body::Body;
use http::HeaderMap;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;

use crate::app::App;
use crate::auth::challenge;
use crate::auth::error::AuthError;
use crate::backend::BackendError;
use crate::edge::EdgeError;
use crate::edge::log::RequestLog;
use crate::edge::respond::body::bare;
use crate::edge::respond::body::close;
use crate::edge::respond::body::event_stream;
use crate::edge::respond::body::json;
use crate::edge::respond::body::message;
use crate::edge::respond::body::whole;
use crate::error::Refusal;
use crate::exchange::Answered;
use crate::exchange::Reply;
use crate::legacy::LegacyError;
use crate::listen::ListenError;
use crate::model::endpoint::Endpoint;
use crate::pipeline::Trail;
use crate::protocol::ProtocolError;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::headers::SESSION;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::media::Accept;
use crate::protocol::message::RequestId;
use crate::protocol::tasks;
use crate::protocol::version;
use crate::router::RouteError;
use crate::stream::body::BodyError;
use crate::telemetry::metrics::Outcome as Ended;
use crate::tenant::TenantError;

/// The status and JSON-RPC code of a refusal; without a code there is no JSON-RPC body.
fn wire(refusal: &Refusal) -> (StatusCode, Option<i64>) {
    match refusal {
        Refusal::Auth(error) => match error {
            AuthError::MissingToken | AuthError::InvalidToken(_) => (StatusCode::UNAUTHORIZED, None),
            AuthError::KeysUnavailable { .. } | AuthError::IntrospectionUnavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, None)
            }
        },
        Refusal::Tenant(error) => match error {
            // The credential names a tenant that this endpoint is not for, or that is gone.
            TenantError::NoSuchTenant => (StatusCode::UNAUTHORIZED, None),
            // A shared issuer vouches for the caller: it may know that there is nothing here.
            TenantError::NotFound => (StatusCode::NOT_FOUND, None),
        },
        Refusal::Body(error) => match error {
            BodyError::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, Some(code::INVALID_REQUEST)),
            BodyError::Timeout => (StatusCode::REQUEST_TIMEOUT, Some(code::INVALID_REQUEST)),
            BodyError::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, Some(code::OVERLOADED)),
            BodyError::Broken => (StatusCode::BAD_REQUEST, Some(code::PARSE_ERROR)),
        },
        Refusal::Protocol(error) => protocol(error),
        Refusal::Legacy(error) => legacy(error),
        Refusal::Listen(error) => listen(*error),
        Refusal::Route(error) => match error {
            RouteError::NeedsScopes(_) => (StatusCode::FORBIDDEN, None),
            RouteError::NeedsStream => (StatusCode::NOT_ACCEPTABLE, Some(code::INVALID_REQUEST)),
            RouteError::InvalidParams(_) | RouteError::MissingArgument(_) => {
                (StatusCode::BAD_REQUEST, Some(code::INVALID_PARAMS))
            }
            // 200, not 400: a client of both eras may read an unknown 400 as "handshake server".
            RouteError::InvalidCursor
            | RouteError::InvalidState
            | RouteError::UnknownTool(_)
            | RouteError::UnknownPrompt(_)
            | RouteError::UnknownResource { .. }
            | RouteError::UnknownTask => (StatusCode::OK, Some(code::INVALID_PARAMS)),
            RouteError::NeedsTasks => (StatusCode::BAD_REQUEST, Some(code::MISSING_CAPABILITY)),
            RouteError::ParamMismatch { .. } => (StatusCode::BAD_REQUEST, Some(code::HEADER_MISMATCH)),
        },
        Refusal::Backend(error) => backend(error),
    }
}

fn protocol(error: &ProtocolError) -> (StatusCode, Option<i64>) {
    use ProtocolError as E;
    match error {
        E::UnsupportedMedia(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Some(code::INVALID_REQUEST)),
        E::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, Some(code::INVALID_REQUEST)),
        E::Json(_) => (StatusCode::BAD_REQUEST, Some(code::PARSE_ERROR)),
        E::InvalidRequest(_) => (StatusCode::BAD_REQUEST, Some(code::INVALID_REQUEST)),
        E::HeaderMismatch { .. } => (StatusCode::BAD_REQUEST, Some(code::HEADER_MISMATCH)),
        E::UnsupportedVersion { .. } | E::HandshakeEra { .. } => {
            (StatusCode::BAD_REQUEST, Some(code::UNSUPPORTED_VERSION))
        }
        E::InvalidParams(_) => (StatusCode::BAD_REQUEST, Some(code::INVALID_PARAMS)),
        E::MethodNotFound => (StatusCode::NOT_FOUND, Some(code::METHOD_NOT_FOUND)),
    }
}

/// spec: 2025-11-25 basic/transports, Session Management, Protocol Version Header
fn legacy(error: &LegacyError) -> (StatusCode, Option<i64>) {
    use LegacyError as E;
    match error {
        E::NotServed => (StatusCode::METHOD_NOT_ALLOWED, None),
        E::Version | E::NoSession | E::RepeatedSession | E::Batch(_) => {
            (StatusCode::BAD_REQUEST, Some(code::INVALID_REQUEST))
        }
        E::NoSuchSession => (StatusCode::NOT_FOUND, Some(code::INVALID_REQUEST)),
        E::NoSuchResource(_) => (StatusCode::OK, Some(code::RESOURCE_NOT_FOUND)),
        E::TooManySubscriptions(error) => listen(*error),
        E::TooManyEnded { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(code::OVERLOADED)),
        // In a session that opens, the answer to a request is 200 whatever it says.
        E::TooManyCalls => (StatusCode::OK, Some(code::OVERLOADED)),
        E::Withdrawn => (StatusCode::ACCEPTED, None),
    }
}

fn listen(error: ListenError) -> (StatusCode, Option<i64>) {
    match error {
        ListenError::TooManyStreams | ListenError::TooManyResources | ListenError::BackendFull => {
            (StatusCode::TOO_MANY_REQUESTS, Some(code::LISTEN_LIMIT))
        }
    }
}

/// 502, 503 and 504 only where the backend cannot have acted: a proxy that retries on them would
/// run the tool again.
fn backend(error: &BackendError) -> (StatusCode, Option<i64>) {
    if error.sent() {
        return (StatusCode::OK, Some(code::INTERNAL_ERROR));
    }
    match error {
        BackendError::Unauthorized => (StatusCode::BAD_GATEWAY, Some(code::UPSTREAM_AUTH)),
        BackendError::Busy => (StatusCode::SERVICE_UNAVAILABLE, Some(code::OVERLOADED)),
        BackendError::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, Some(code::INTERNAL_ERROR)),
        BackendError::Unreachable(_) | BackendError::NotOpened(_) | BackendError::CredentialMissing => {
            (StatusCode::BAD_GATEWAY, Some(code::INTERNAL_ERROR))
        }
        BackendError::Stale
        | BackendError::Broken(_)
        | BackendError::Invalid(_)
        | BackendError::Interrupted(_) => (StatusCode::OK, Some(code::INTERNAL_ERROR)),
    }
}

/// The status of what is refused before the road begins. These answers have a line of text and no
/// JSON-RPC body: no id was read.
fn edge(error: &EdgeError) -> StatusCode {
    match error {
        EdgeError::BadFraming(_) | EdgeError::BadHost(_) => StatusCode::BAD_REQUEST,
        EdgeError::HttpVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        EdgeError::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        EdgeError::TargetTooLong => StatusCode::URI_TOO_LONG,
        EdgeError::UnknownHost | EdgeError::ForbiddenOrigin => StatusCode::FORBIDDEN,
        EdgeError::NotFound => StatusCode::NOT_FOUND,
        EdgeError::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
    }
}

/// What is refused before the road begins.
pub fn refuse_early(error: &EdgeError, log: &RequestLog) -> Response<Body> {
    log.refused(error.kind(), Ended::Refused);
    let text = format!("{error}\n");
    log.sent(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = edge(error);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let EdgeError::MethodNotAllowed { allow } = error {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if error.closes() {
        close(headers);
    }
    response
}

/// The response of a request that took the road.
pub fn answer(
    app: &App,
    trail: &Trail,
    outcome: Result<Reply<Refusal>, Refusal>,
    endpoint: &Endpoint,
    log: &RequestLog,
) -> Response<Body> {
    match outcome {
        Ok(Reply::Accepted) => {
            log.ended(Ended::Ok);
            bare(StatusCode::ACCEPTED)
        }
        Ok(Reply::Once(outcome)) => {
            let status = if trail.in_band { StatusCode::OK } else { status_of(&outcome) };
            once(trail, status, &outcome, log)
        }
        Ok(Reply::Opened { outcome, session }) => {
            let mut response = once(trail, StatusCode::OK, &outcome, log);
            let session = HeaderValue::from_str(&session).expect("a sealed handle is base64");
            response.headers_mut().insert(SESSION, session);
            response
        }
        Ok(Reply::Stream(frames)) => {
            streams::answer(app, trail.id.as_ref().map(RequestId::alone), frames, log)
        }
        Ok(Reply::Batch(answers)) => batch(trail, answers, log),
        Ok(Reply::Notices(notices)) => {
            streams::listen(app, trail.id.as_ref().map(RequestId::alone), notices, log)
        }
        Ok(Reply::Ended) => {
            log.ended(Ended::Ok);
            bare(StatusCode::NO_CONTENT)
        }
        // Nobody is refused anything, and nothing is said: that its client has left is how it ended.
        Err(Refusal::Legacy(LegacyError::Withdrawn)) => match trail.accept {
            Some(Accept { sse: true, .. }) => event_stream(Body::empty()),
            _ => bare(StatusCode::ACCEPTED),
        },
        Err(refusal) => refuse(trail, &refusal, endpoint, log),
    }
}

/// The answers to a batch, which its client tells apart by their ids.
fn batch(trail: &Trail, answers: Vec<Answered<Refusal>>, log: &RequestLog) -> Response<Body> {
    log.ended(Ended::Ok);
    let answer = |all: Array, Answered { id, end }: Answered<Refusal>| {
        let outcome = end.unwrap_or_else(|refusal| {
            let (status, code) = wire(&refusal);
            note(status, code, &refusal, log);
            Outcome::Error(rpc_error(code.unwrap_or(code::INVALID_REQUEST), &refusal))
        });
        let id = id.as_ref().map_or_else(Json::null, |id| id.as_json().clone());
        all.push(&message(Some(&id), &outcome))
    };
    let all = answers.into_iter().fold(Array::new(), answer).finish();
    whole(StatusCode::OK, &all, trail.accept, log)
}

/// The one answer to a request.
fn once(trail: &Trail, status: StatusCode, outcome: &Outcome, log: &RequestLog) -> Response<Body> {
    log.ended(ended(outcome));
    whole(status, &message(trail.id.as_ref().map(RequestId::as_json), outcome), trail.accept, log)
}

fn ended(outcome: &Outcome) -> Ended {
    match outcome {
        Outcome::Result(result) if result.member("isError").and_then(|e| e.boolean()) == Some(true) => {
            Ended::Error
        }
        Outcome::Result(_) | Outcome::Asks(_) | Outcome::Task(_) => Ended::Ok,
        Outcome::Error(_) => Ended::Error,
    }
}

/// The response of a refusal.
fn refuse(trail: &Trail, refusal: &Refusal, endpoint: &Endpoint, log: &RequestLog) -> Response<Body> {
    let (status, code) = wire(refusal);
    note(status, code, refusal, log);
    let mut response = match code {
        Some(code) => {
            let status = if trail.in_band { StatusCode::OK } else { status };
            let outcome = Outcome::Error(rpc_error(code, refusal));
            whole(status, &message(trail.id.as_ref().map(RequestId::as_json), &outcome), trail.accept, log)
        }
        None => bare(status),
    };
    decorate(response.headers_mut(), refusal, endpoint);
    response
}

/// The headers that a refusal brings.
fn decorate(headers: &mut HeaderMap, refusal: &Refusal, endpoint: &Endpoint) {
    let challenge = |headers: &mut HeaderMap, value| {
        headers.insert(header::WWW_AUTHENTICATE, value);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    };
    match refusal {
        Refusal::Auth(
            AuthError::KeysUnavailable { retry_after, .. }
            | AuthError::IntrospectionUnavailable { retry_after, .. },
        ) => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after.as_secs().max(1)));
        }
        Refusal::Auth(error) => challenge(headers, challenge::challenge(error, endpoint)),
        Refusal::Tenant(TenantError::NoSuchTenant) => {
            challenge(headers, challenge::wrong_tenant(endpoint));
        }
        Refusal::Route(RouteError::NeedsScopes(needed)) => {
            challenge(headers, challenge::insufficient_scope(needed, endpoint));
        }
        Refusal::Legacy(LegacyError::NotServed) => {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        Refusal::Listen(_) | Refusal::Legacy(LegacyError::TooManySubscriptions(_)) => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
        }
        Refusal::Legacy(LegacyError::TooManyEnded { retry_after }) => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*retry_after));
        }
        Refusal::Backend(BackendError::Busy) | Refusal::Legacy(LegacyError::TooManyCalls) => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // The rest of the body is not read: the connection cannot carry another request.
        Refusal::Body(error) => {
            if *error == BodyError::Overloaded {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            close(headers);
        }
        Refusal::Tenant(_)
        | Refusal::Protocol(_)
        | Refusal::Legacy(_)
        | Refusal::Route(_)
        | Refusal::Backend(_) => {}
    }
}

/// A backend's error decides the status as ours would.
///
/// spec: streamable-http, Protocol Version Header
fn status_of(outcome: &Outcome) -> StatusCode {
    match outcome {
        Outcome::Result(_) | Outcome::Asks(_) | Outcome::Task(_) => StatusCode::OK,
        Outcome::Error(error) => match error.code {
            code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            code::MISSING_CAPABILITY => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
    }
}

fn rpc_error(code: i64, refusal: &Refusal) -> RpcError {
    RpcError { code, message: refusal.to_string(), data: data(refusal) }
}

/// What a program needs to act on a refusal.
fn data(refusal: &Refusal) -> Option<Json> {
    match refusal {
        Refusal::Protocol(
            ProtocolError::UnsupportedVersion { requested } | ProtocolError::HandshakeEra { requested },
        ) => {
            let supported = version::SERVED.iter().fold(Array::new(), |array, v| array.push_str(v)).finish();
            Some(Object::new().put("supported", &supported).put_str("requested", requested).finish())
        }
        // spec: server/resources, Error Handling
        Refusal::Route(RouteError::UnknownResource { uri })
        | Refusal::Legacy(LegacyError::NoSuchResource(uri)) => {
            Some(Object::new().put_str("uri", uri).finish())
        }
        Refusal::Route(RouteError::NeedsTasks) => {
            Some(Object::new().put("requiredCapabilities", &tasks::required()).finish())
        }
        Refusal::Backend(error) if error.sent() => Some(Object::new().put_str("outcome", "unknown").finish()),
        _ => None,
    }
}

/// Notes a refusal in the request's line, with the reason where it is not the caller's fault.
fn note(status: StatusCode, code: Option<i64>, refusal: &Refusal, log: &RequestLog) {
    let ours = status.is_server_error() || code == Some(code::INTERNAL_ERROR);
    let late = matches!(refusal, Refusal::Backend(BackendError::TimedOut { .. }));
    log.refused(
        refusal.kind(),
        if late {
            Ended::TimedOut
        } else if ours {
            Ended::Failed
        } else {
            Ended::Refused
        },
    );
    if ours {
        let cause = std::error::Error::source(refusal).map(|cause| format!(": {cause}"));
        log.failed(format!("{refusal}{}", cause.unwrap_or_default()));
    }
}

/// A request that died by a fault of ours; the connection and the process live on.
pub fn panicked() -> Response<Body> {
    let text = "the gateway failed at this request".to_owned();
    let error = RpcError { code: code::INTERNAL_ERROR, message: text, data: None };
    json(StatusCode::INTERNAL_SERVER_ERROR, &message(None, &Outcome::Error(error)))
}
