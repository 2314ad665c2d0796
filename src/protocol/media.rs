//! Step 6: what the client sends and what it takes.

use http::HeaderMap;
use http::header::ACCEPT;
use http::header::CONTENT_ENCODING;
use http::header::CONTENT_TYPE;

use crate::protocol::ProtocolError;
use crate::protocol::headers::Single;
use crate::protocol::headers::single;
use crate::protocol::headers::visible;

#[cfg(test)]
mod tests;

const JSON: (&str, &str) = ("application", "json");
const SSE: (&str, &str) = ("text", "event-stream");

/// What the client takes as an answer; at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// `application/json`.
    pub json: bool,
    /// `text/event-stream`.
    pub sse: bool,
}

/// Step 6: the body is declared as plain JSON, and the client takes JSON or SSE.
///
/// spec: streamable-http, Sending Messages
pub fn check(headers: &HeaderMap) -> Result<Accept, ProtocolError> {
    content(headers)?;
    let accept = Accept { json: takes(headers, JSON), sse: takes(headers, SSE) };
    if !accept.json && !accept.sse {
        return Err(ProtocolError::NotAcceptable(
            "`Accept` admits neither `application/json` nor `text/event-stream`",
        ));
    }
    Ok(accept)
}

/// The client takes an event stream: there is nothing else to answer a GET with.
///
/// spec: 2025-11-25 basic/transports, Listening for Messages from the Server
pub fn check_stream(headers: &HeaderMap) -> Result<(), ProtocolError> {
    match takes(headers, SSE) {
        true => Ok(()),
        false => Err(ProtocolError::NotAcceptable("`Accept` does not admit `text/event-stream`")),
    }
}

/// The body is declared as plain JSON.
pub fn content(headers: &HeaderMap) -> Result<(), ProtocolError> {
    let Single::One(value) = single(headers, CONTENT_TYPE) else {
        return Err(ProtocolError::UnsupportedMedia("`Content-Type` has to be sent once"));
    };
    let essence = visible(value).unwrap_or_default().split(';').next().unwrap_or_default();
    if !essence.trim_matches([' ', '\t']).eq_ignore_ascii_case("application/json") {
        return Err(ProtocolError::UnsupportedMedia("`Content-Type` has to be `application/json`"));
    }
    // `identity` too: RFC 9110, 8.4.1 reserves it for Accept-Encoding, and one rule is easier to rely on.
    if single(headers, CONTENT_ENCODING) != Single::Zero {
        return Err(ProtocolError::UnsupportedMedia("`Content-Encoding` is not taken: send plain JSON"));
    }
    Ok(())
}

/// Whether `Accept`, all its fields together, admits this type. Its most specific range decides; without
/// any range everything is admitted.
///
/// spec: RFC 9110, 12.5.1
fn takes(headers: &HeaderMap, wanted: (&str, &str)) -> bool {
    let mut ranges = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| visible(value).ok())
        .flat_map(|list| list.split(','))
        .filter(|range| !range.trim_matches([' ', '\t']).is_empty())
        .peekable();
    if ranges.peek().is_none() {
        return headers.get_all(ACCEPT).iter().all(|value| visible(value).is_ok());
    }
    let mut best = None;
    for range in ranges {
        let found = specificity(range, wanted).map(|specificity| (specificity, !refused(range)));
        best = best.max(found);
    }
    best.is_some_and(|(_, admitted)| admitted)
}

/// How closely a media range matches, if it does.
fn specificity(range: &str, wanted: (&str, &str)) -> Option<u8> {
    let essence = range.split(';').next()?.trim_matches([' ', '\t']);
    let (kind, subtype) = essence.split_once('/')?;
    let same_kind = kind.eq_ignore_ascii_case(wanted.0);
    match (kind, subtype) {
        ("*", "*") => Some(0),
        (_, "*") if same_kind => Some(1),
        (_, subtype) if same_kind && subtype.eq_ignore_ascii_case(wanted.1) => Some(2),
        _ => None,
    }
}

/// Whether a range has the weight zero.
fn refused(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return false };
        let weight = value.trim_matches([' ', '\t']);
        let zero = weight.strip_prefix('0').is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix('.').is_some_and(|digits| digits.bytes().all(|digit| digit == b'0'))
        });
        name.trim_matches([' ', '\t']).eq_ignore_ascii_case("q") && zero
    })
}
