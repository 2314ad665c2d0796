//! Takes JSON-RPC messages out of an HTTP answer, and judges everything about it that is HTTP.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use bytes::BytesMut;
use futures_util::FutureExt;
use http::HeaderMap;
use http::Response;
use http::StatusCode;
use http::header::AsHeaderName;
use http::header::CONTENT_ENCODING;
use http::header::CONTENT_TYPE;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::backend::BackendError;
use crate::backend::meter::Meter;
use crate::egress::Connection;
use crate::egress::error::EgressError;
use crate::protocol::headers;
use crate::protocol::headers::Single;
use crate::protocol::json::Json;
use crate::protocol::json::JsonError;
use crate::stream::sse::Decoder;

/// The messages of one answer.
///
/// Dropped before [`Reader::finish`], its connection is not used again: whoever answers wrongly once
/// may be out of step with what is asked.
pub(in crate::backend) struct Reader {
    connection: Option<Connection>,
    body: Incoming,
    form: Form,
    /// What has arrived of a message that is the body.
    text: BytesMut,
    max_bytes: usize,
    max_depth: usize,
    status: StatusCode,
    /// What bounds all of its body, where that has no end.
    meter: Option<Arc<Meter>>,
}

enum Form {
    /// One message is the body.
    Json,
    /// One message an event; those that have arrived and were not read yet.
    /// Without a decoder the stream cannot be read any further.
    Events(Option<Decoder>, VecDeque<Bytes>),
    /// Nothing is left.
    Spent,
}

#[derive(Clone, Copy, PartialEq)]
enum Media {
    Json,
    Events,
    Other,
}

impl Reader {
    /// Reads the head of an answer, of which `max_bytes` are taken, or as much of each event, and whose
    /// messages may be nested `max_depth` deep. Nothing of its headers goes any further.
    ///
    /// spec: streamable-http, Sending Messages
    pub(in crate::backend) fn open(
        response: Response<Incoming>,
        max_bytes: usize,
        max_depth: usize,
    ) -> Result<Self, BackendError> {
        let (mut head, body) = response.into_parts();
        let status = head.status;
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(BackendError::Unauthorized);
        }
        if status.is_redirection() {
            return Err(BackendError::Invalid("it redirects, which is never followed"));
        }
        // Nothing is ever decompressed: what is small here could be large there.
        if !matches!(value(&head.headers, CONTENT_ENCODING)?, None | Some("identity")) {
            return Err(BackendError::Invalid("its answer is compressed, which was not asked for"));
        }
        let form = match (media(&head.headers)?, status) {
            (Media::Json, StatusCode::OK) => Form::Json,
            (Media::Events, StatusCode::OK) => Form::Events(Some(Decoder::new(max_bytes)), VecDeque::new()),
            (Media::Other, StatusCode::OK) => {
                return Err(BackendError::Invalid("its answer is neither JSON nor an event stream"));
            }
            (Media::Json, _) if status.is_client_error() || status.is_server_error() => Form::Json,
            _ => return Err(BackendError::Invalid(without_body(status))),
        };
        Ok(Self {
            connection: head.extensions.remove(),
            body,
            form,
            text: BytesMut::new(),
            max_bytes,
            max_depth,
            status,
            meter: None,
        })
    }

    /// Takes no more than `meter` allows, and lets others go on before each piece.
    pub(in crate::backend) fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    /// The HTTP status of the answer.
    pub(in crate::backend) fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether it is a stream of messages.
    pub(in crate::backend) fn is_stream(&self) -> bool {
        matches!(self.form, Form::Events(..))
    }

    /// The next message. Its end without one is an error: the response was still to come.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing of what has arrived.
    pub(in crate::backend) async fn message(&mut self) -> Result<Json, BackendError> {
        let text = match self.form {
            Form::Json => self.whole().await?,
            Form::Events(..) => self.event().await?,
            Form::Spent => return Err(BackendError::Invalid("its answer has no response in it")),
        };
        let message = self.parse(text)?;
        if self.status != StatusCode::OK && message.member("error").is_none() {
            return Err(BackendError::Invalid(UNEXPLAINED));
        }
        Ok(message)
    }

    /// What an answer with another status than 200 says, whatever that is; `None` if nothing.
    ///
    /// # Cancel safety
    /// As [`Reader::message`].
    pub(in crate::backend) async fn refusal(&mut self) -> Result<Option<Json>, BackendError> {
        let text = self.whole().await?;
        if text.is_empty() { Ok(None) } else { self.parse(text).map(Some) }
    }

    fn parse(&self, text: Bytes) -> Result<Json, BackendError> {
        Json::parse(text, self.max_depth).map_err(|error| {
            BackendError::Invalid(match error {
                JsonError::Depth(_) => "its answer is nested too deep",
                JsonError::DuplicateKey => "its answer has an object with the same key twice",
                JsonError::Encoding(_) | JsonError::Grammar(_) | JsonError::Surrogate(_) => {
                    "its answer is not JSON"
                }
            })
        })
    }

    /// Takes the end of the body if it is there already: only a connection whose answer was read to
    /// its end is used again. Any other is closed with this.
    pub(in crate::backend) fn finish(mut self) {
        self.connection = None;
        let _ = self.body.frame().now_or_never();
    }

    async fn whole(&mut self) -> Result<Bytes, BackendError> {
        let promised = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if promised > self.max_bytes {
            return Err(BackendError::Invalid(TOO_LARGE));
        }
        self.text.reserve(promised);
        while let Some(data) = self.data().await? {
            if self.text.len() + data.len() > self.max_bytes {
                return Err(BackendError::Invalid(TOO_LARGE));
            }
            self.text.extend_from_slice(&data);
        }
        self.form = Form::Spent;
        Ok(std::mem::take(&mut self.text).freeze())
    }

    async fn event(&mut self) -> Result<Bytes, BackendError> {
        loop {
            let Form::Events(decoder, arrived) = &mut self.form else {
                return Err(BackendError::Invalid("its answer is no stream"));
            };
            if let Some(event) = arrived.pop_front() {
                return Ok(event);
            }
            if decoder.is_none() {
                return Err(BackendError::Invalid(TOO_LARGE));
            }
            let chunk = self.data().await?;
            let chunk = chunk.ok_or(BackendError::Invalid("its stream ended without a response"))?;
            let Form::Events(decoder, arrived) = &mut self.form else { continue };
            let mut events = Vec::new();
            // What came whole before an event that is too long still counts.
            let intact = decoder.as_mut().is_some_and(|decoder| decoder.push(&chunk, &mut events).is_ok());
            arrived.extend(events);
            if !intact {
                *decoder = None;
            }
        }
    }

    async fn data(&mut self) -> Result<Option<Bytes>, BackendError> {
        loop {
            if self.meter.is_some() {
                tokio::task::yield_now().await;
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame =
                frame.map_err(|error| BackendError::Broken(EgressError::Exchange(Arc::new(error))))?;
            if let Ok(data) = frame.into_data() {
                if self.meter.as_ref().is_some_and(|meter| !meter.piece(data.len())) {
                    return Err(BackendError::Invalid("it says more than is heard"));
                }
                return Ok(Some(data));
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.distrust();
        }
    }
}

/// What is wrong with a status that says less than a message should.
pub(in crate::backend) const UNEXPLAINED: &str = "its HTTP status is an error without a JSON-RPC error";

/// Whether a body that cannot be read may still be somebody's answer: it is declared as JSON of some
/// kind or as a stream, or hides what it is.
pub(in crate::backend) fn may_answer(headers: &HeaderMap) -> bool {
    let declared = match value(headers, CONTENT_TYPE) {
        Ok(declared) => declared.unwrap_or_default().to_ascii_lowercase(),
        Err(_) => return true,
    };
    let encoded = headers::single(headers, CONTENT_ENCODING) != Single::Zero;
    encoded || declared.contains("json") || declared.starts_with("text/event-stream")
}

/// That there is nothing to read under this status.
fn without_body(status: StatusCode) -> &'static str {
    match status.as_u16() {
        202 | 204 => "it accepted a request as if it were a notification",
        400 => "its HTTP status is 400 without a JSON-RPC error",
        404 => "its HTTP status is 404 without a JSON-RPC error",
        405 => "its HTTP status is 405 without a JSON-RPC error",
        406 => "its HTTP status is 406 without a JSON-RPC error",
        415 => "its HTTP status is 415 without a JSON-RPC error",
        429 => "its HTTP status is 429 without a JSON-RPC error",
        500 => "its HTTP status is 500 without a JSON-RPC error",
        502 => "its HTTP status is 502 without a JSON-RPC error",
        503 => "its HTTP status is 503 without a JSON-RPC error",
        504 => "its HTTP status is 504 without a JSON-RPC error",
        _ => "its HTTP status is an error without a JSON-RPC error",
    }
}

const TOO_LARGE: &str = "its answer is larger than is taken";

fn value(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&str>, BackendError> {
    match headers::single(headers, name) {
        Single::Zero => Ok(None),
        Single::One(value) => match value.to_str() {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err(BackendError::Invalid("a header of its answer is not ASCII")),
        },
        Single::Many => Err(BackendError::Invalid("its answer repeats a header that may stand once")),
    }
}

fn media(headers: &HeaderMap) -> Result<Media, BackendError> {
    let essence = value(headers, CONTENT_TYPE)?.and_then(|text| text.split(';').next()).map(str::trim_end);
    Ok(match essence {
        Some(essence) if essence.eq_ignore_ascii_case("application/json") => Media::Json,
        Some(essence) if essence.eq_ignore_ascii_case("text/event-stream") => Media::Events,
        _ => Media::Other,
    })
}
