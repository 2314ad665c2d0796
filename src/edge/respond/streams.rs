//! Answers that go on: streams of events.

use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use http::Response;

use crate::app::App;
use crate::backend::BackendError;
use crate::edge::log::RequestLog;
use crate::edge::respond::body::event_stream;
use crate::edge::respond::body::message;
use crate::edge::respond::ended;
use crate::edge::respond::note;
use crate::edge::respond::rpc_error;
use crate::edge::respond::wire;
use crate::error::Refusal;
use crate::exchange::Frames;
use crate::exchange::Notice;
use crate::exchange::Notices;
use crate::legacy::LegacyError;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::message::RequestId;
use crate::stream::relay;
use crate::stream::relay::Bounds;
use crate::telemetry::metrics::Open;
use crate::telemetry::metrics::Outcome as Ended;

/// An answer that has begun without its end being known.
pub(super) fn answer(
    app: &App,
    id: Option<RequestId>,
    frames: Frames<Refusal>,
    log: &RequestLog,
) -> Response<Body> {
    let (ending, sending) = (log.clone(), log.clone());
    let open = log.stream_open();
    let bounds = Bounds { keep_alive: app.limits.keep_alive, buffer: app.limits.stream_bytes };
    let render = move |end| last(id.as_ref(), end, &ending);
    let events = relay::write(frames, render, bounds, &app.tasks);
    counted(events, open, sending)
}

/// What changes, and the end of the request with this id, if one asked for it. Nothing is kept for a slow
/// reader: it is asked for as it reads, so that a stream costs no task and no mailbox.
pub(super) fn listen(app: &App, id: Option<RequestId>, notices: Notices, log: &RequestLog) -> Response<Body> {
    let open = match id {
        Some(_) => log.stream_open(),
        None => app.metrics.session_stream_open(),
    };
    let ending = log.clone();
    let messages = notices.map(move |notice| match notice {
        Notice::Message(json) => json,
        Notice::End(result) => message(id.as_ref().map(RequestId::as_json), &Outcome::Result(result)),
    });
    let messages =
        messages.chain(stream::once(async move { ending.ended(Ended::Ok) }).filter_map(async |()| None));
    let events = relay::write_messages(messages.boxed(), app.limits.keep_alive);
    counted(events, open, log.clone())
}

/// A stream that is counted as open until it is dropped.
fn counted(
    events: impl Stream<Item = Bytes> + Send + 'static,
    open: Open,
    log: RequestLog,
) -> Response<Body> {
    let counted = events.map(move |event| {
        let _counted_until_dropped = &open;
        log.sent(event.len());
        Ok::<Bytes, Infallible>(event)
    });
    event_stream(Body::from_stream(counted))
}

/// The final message of a stream, unless nobody waits for one.
fn last(id: Option<&RequestId>, end: Option<Result<Outcome, Refusal>>, log: &RequestLog) -> Option<Json> {
    let id = id.map(RequestId::as_json);
    let refusal = match end {
        Some(Ok(outcome)) => {
            log.ended(ended(&outcome));
            return Some(message(id, &outcome));
        }
        Some(Err(Refusal::Legacy(LegacyError::Withdrawn))) => return None,
        Some(Err(refusal)) => refusal,
        None => Refusal::Backend(BackendError::Invalid("its answer has no end")),
    };
    let (status, code) = wire(&refusal);
    note(status, code, &refusal, log);
    Some(message(id, &Outcome::Error(rpc_error(code.unwrap_or(code::INTERNAL_ERROR), &refusal))))
}
