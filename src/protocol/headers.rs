//! Steps 10 to 13: headers that mirror the body, each counted before it is read.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::header::AsHeaderName;

use crate::protocol::ProtocolError;

/// The header of step 10, as the specification spells it.
pub const VERSION: &str = "MCP-Protocol-Version";
/// The header of step 12, as the specification spells it.
pub const METHOD: &str = "Mcp-Method";
/// The header of step 13, as the specification spells it.
pub const NAME: &str = "Mcp-Name";
/// The header that names a session of the handshake era.
pub const SESSION: &str = "Mcp-Session-Id";

#[cfg(test)]
mod tests;

const PARAM_PREFIX: &str = "mcp-param-";
const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// How a mirror header disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Not sent.
    #[error("the header is missing")]
    Missing,
    /// Sent more than once.
    #[error("the header is sent more than once")]
    Repeated,
    /// A value that cannot be decoded.
    #[error("the header's value cannot be decoded")]
    Undecodable,
    /// Another value than the body's.
    #[error("the header differs from the body")]
    Different,
    /// Sent although the body has no such value.
    #[error("the header is sent, but the body has no such value")]
    Unbacked,
    /// Another key that some readers take for the mirrored one.
    #[error("the body has a key that differs from the mirrored one in case only")]
    Twin,
}

/// A header that may be sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single<'a> {
    /// Not sent.
    Zero,
    /// Sent once.
    One(&'a HeaderValue),
    /// Sent more than once: no value is the right one.
    Many,
}

/// The header `name`, counted. Where it decides anything, a header is read by this alone.
pub fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Single<'_> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Single::Zero,
        (Some(value), None) => Single::One(value),
        (Some(_), Some(_)) => Single::Many,
    }
}

/// The text of a value without the optional white space around it, if it is visible ASCII, spaces and tabs.
pub fn visible(value: &HeaderValue) -> Result<&str, Mismatch> {
    let text = value.to_str().map_err(|_| Mismatch::Undecodable)?;
    Ok(text.trim_matches([' ', '\t']))
}

/// What the value of `Mcp-Name` or `Mcp-Param-*` stands for. Half a sentinel is literal text.
///
/// spec: streamable-http, Value Encoding
pub fn decode_value(value: &HeaderValue) -> Result<Cow<'_, str>, Mismatch> {
    let text = visible(value)?;
    let Some(payload) = text.strip_prefix(SENTINEL_START).and_then(|rest| rest.strip_suffix(SENTINEL_END))
    else {
        return Ok(Cow::Borrowed(text));
    };
    // The engine takes the standard alphabet with canonical padding and nothing else.
    let bytes = STANDARD.decode(payload).map_err(|_| Mismatch::Undecodable)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Mismatch::Undecodable)
}

/// The value of `Mcp-Name` or `Mcp-Param-*` that stands for `text`.
///
/// spec: streamable-http, Value Encoding
pub fn encode_value(text: &str) -> HeaderValue {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let padded = text.is_empty() || text.trim_matches([' ', '\t']) != text;
    let ambiguous = text.starts_with(SENTINEL_START) && text.ends_with(SENTINEL_END);
    let plain = printable && !padded && !ambiguous;
    let encoded = match plain {
        true => HeaderValue::from_str(text),
        false => HeaderValue::from_str(&format!("{SENTINEL_START}{}{SENTINEL_END}", STANDARD.encode(text))),
    };
    encoded.expect("visible ASCII, spaces and tabs make a header value")
}

/// The `Mcp-Param-*` headers, repeats included.
pub fn mirrored(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether a mirror has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// On a request.
    Required,
    /// On a notification.
    Optional,
}

/// Step 10: the version of the header, which `_meta`'s may not contradict.
///
/// spec: streamable-http, Protocol Version Header
pub(super) fn version<'h>(
    headers: &'h HeaderMap,
    body: Option<&str>,
    duty: Duty,
) -> Result<Option<&'h str>, ProtocolError> {
    let Some(value) = once(headers, VERSION, duty)? else { return Ok(None) };
    let text = visible(value).map_err(|problem| mismatch(VERSION, problem))?;
    match body {
        Some(body) if body != text => Err(mismatch(VERSION, Mismatch::Different)),
        _ => Ok(Some(text)),
    }
}

/// Step 12: the method.
///
/// spec: streamable-http, Standard Request Headers
pub(super) fn method(headers: &HeaderMap, body: &str, duty: Duty) -> Result<(), ProtocolError> {
    let Some(value) = once(headers, METHOD, duty)? else { return Ok(()) };
    match visible(value) {
        Ok(text) if text == body => Ok(()),
        Ok(_) => Err(mismatch(METHOD, Mismatch::Different)),
        Err(problem) => Err(mismatch(METHOD, problem)),
    }
}

/// Step 13: the name of a method that has one, given the body's string.
///
/// spec: streamable-http, Server Validation
pub(super) fn name(headers: &HeaderMap, body: Option<&str>, duty: Duty) -> Result<(), ProtocolError> {
    // Where neither side has a name, what is missing is a parameter: step 17 says so.
    let duty = if body.is_some() { duty } else { Duty::Optional };
    let Some(value) = once(headers, NAME, duty)? else { return Ok(()) };
    let Some(body) = body else { return Err(mismatch(NAME, Mismatch::Unbacked)) };
    match decode_value(value) {
        Ok(text) if text == body => Ok(()),
        Ok(_) => Err(mismatch(NAME, Mismatch::Different)),
        Err(problem) => Err(mismatch(NAME, problem)),
    }
}

pub(super) fn mismatch(header: &str, problem: Mismatch) -> ProtocolError {
    ProtocolError::HeaderMismatch { header: header.to_owned(), problem }
}

fn once<'h>(
    headers: &'h HeaderMap,
    name: &str,
    duty: Duty,
) -> Result<Option<&'h HeaderValue>, ProtocolError> {
    match single(headers, name) {
        Single::One(value) => Ok(Some(value)),
        Single::Many => Err(mismatch(name, Mismatch::Repeated)),
        Single::Zero if duty == Duty::Required => Err(mismatch(name, Mismatch::Missing)),
        Single::Zero => Ok(None),
    }
}
