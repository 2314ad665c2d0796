//! What answers are made of: messages, and the responses that carry them.

use axum::body::Body;
use http::HeaderMap;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;

use crate::edge::log::RequestLog;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::media::Accept;
use crate::stream::sse;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A message that is the whole answer: JSON, or one event for a client that takes nothing else.
pub(super) fn whole(
    status: StatusCode,
    message: &Json,
    accept: Option<Accept>,
    log: &RequestLog,
) -> Response<Body> {
    if status == StatusCode::OK && accept.is_some_and(|accept| !accept.json) {
        let event = sse::event(message);
        log.sent(event.len());
        return event_stream(Body::from(event));
    }
    log.sent(message.bytes().len());
    json(status, message)
}

/// A JSON-RPC response.
pub(super) fn message(id: Option<&Json>, outcome: &Outcome) -> Json {
    let mut message = Object::new().put_str("jsonrpc", "2.0");
    if let Some(id) = id {
        message = message.put("id", id);
    }
    match outcome {
        Outcome::Result(result) | Outcome::Asks(result) | Outcome::Task(result) => {
            message.put("result", result).finish()
        }
        Outcome::Error(error) => {
            let mut object = Object::new().put_i64("code", error.code).put_str("message", &error.message);
            if let Some(data) = &error.data {
                object = object.put("data", data);
            }
            message.put("error", &object.finish()).finish()
        }
    }
}

/// A response with this JSON.
pub fn json(status: StatusCode, json: &Json) -> Response<Body> {
    let mut response = Response::new(Body::from(json.bytes().clone()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A response without a body.
pub(super) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A response that is a stream of events.
///
/// spec: streamable-http, Receiving Messages
pub(super) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Nothing else may follow on the connection.
pub(super) fn close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}
