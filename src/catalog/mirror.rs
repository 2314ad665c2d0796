//! Step 19: `Mcp-Param-*` headers, checked against the arguments downstream and minted upstream.
//!
//! spec: streamable-http, Server Behavior for Custom Headers

use std::collections::HashMap;

use http::HeaderName;
use http::HeaderValue;

use crate::catalog::header_params::HeaderParam;
use crate::catalog::header_params::ParamKind;
use crate::protocol::headers::Mismatch;
use crate::protocol::headers::decode_value;
use crate::protocol::headers::encode_value;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// Most trailing zeros that are written out: as many as the largest double has.
const MOST_ZEROS: usize = 308;

/// Checks that each mirrored argument is in its header, once and equal, and that an argument that
/// is `null` or missing is in none. Headers of no parameter are not looked at. An argument of the
/// wrong type that was not mirrored is left to the schema.
pub fn check_mirrored(
    params: &[HeaderParam],
    arguments: Option<&Json>,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<(), (String, Mismatch)> {
    for (param, value) in params.iter().zip(values_of(params, arguments)) {
        let mut sent = headers.iter().filter(|(name, _)| *name == param.field).map(|(_, value)| value);
        let (header, repeated) = (sent.next(), sent.next().is_some());
        let verdict = match repeated {
            true => Err(Mismatch::Repeated),
            false => check(param.kind, value.as_ref(), header),
        };
        verdict.map_err(|problem| (param.header.clone(), problem))?;
    }
    Ok(())
}

/// The headers that mirror these arguments. Arguments of the wrong type have none.
///
/// spec: streamable-http, Value Encoding
pub fn mint(params: &[HeaderParam], arguments: Option<&Json>) -> Vec<(HeaderName, HeaderValue)> {
    let minted = params.iter().zip(values_of(params, arguments)).filter_map(|(param, value)| {
        let value = value?;
        let text = match param.kind {
            ParamKind::String => value.string()?,
            ParamKind::Boolean => value.boolean()?.to_string(),
            ParamKind::Integer => integer_of(&value)?.decimal()?,
        };
        Some((param.field.clone(), encode_value(&text)))
    });
    minted.collect()
}

fn check(kind: ParamKind, value: Option<&Json>, header: Option<&HeaderValue>) -> Result<(), Mismatch> {
    let (value, header) = match (value, header) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(Mismatch::Unbacked),
        (Some(value), None) if fits(kind, value) => return Err(Mismatch::Missing),
        (Some(_), None) => return Ok(()),
        (Some(value), Some(header)) => (value, header),
    };
    let sent = decode_value(header)?;
    let equal = match kind {
        ParamKind::String => value.string_ref().is_some_and(|text| text == sent),
        ParamKind::Boolean => {
            value.boolean().is_some_and(|truth| sent == if truth { "true" } else { "false" })
        }
        // spec: streamable-http, Server Validation (`42.0` and `42` are considered equal)
        ParamKind::Integer => {
            integer_of(value).is_some_and(|number| Integer::decimal_text(&sent) == Some(number))
        }
    };
    if equal { Ok(()) } else { Err(Mismatch::Different) }
}

fn fits(kind: ParamKind, value: &Json) -> bool {
    match kind {
        ParamKind::String => value.kind() == Kind::String,
        ParamKind::Boolean => value.kind() == Kind::Boolean,
        ParamKind::Integer => integer_of(value).is_some(),
    }
}

/// The value at exactly each parameter's path, if it is there and not `null`.
fn values_of(params: &[HeaderParam], arguments: Option<&Json>) -> Vec<Option<Json>> {
    let mut found = vec![None; params.len()];
    if let Some(arguments) = arguments {
        let sought = params.iter().map(|param| &param.path[..]).enumerate().collect();
        find(arguments, sought, &mut found);
    }
    found
}

/// Finds what lies at these paths, each with its place in `found`. Every object is walked once,
/// however many paths lead through it. Paths are as deep as a schema may be.
fn find(value: &Json, sought: Vec<(usize, &[String])>, found: &mut [Option<Json>]) {
    let mut below: HashMap<&str, Vec<(usize, &[String])>> = HashMap::new();
    for (place, path) in sought {
        match path.split_first() {
            Some((key, rest)) => below.entry(key).or_default().push((place, rest)),
            None => found[place] = Some(value.clone()).filter(|value| value.kind() != Kind::Null),
        }
    }
    let mut members = value.members();
    while !below.is_empty() {
        let Some((key, member)) = members.next() else { return };
        if let Some(sought) = below.remove(&*key) {
            find(&member, sought, found);
        }
    }
}

fn integer_of(value: &Json) -> Option<Integer> {
    match value.kind() {
        Kind::Number => Integer::lexeme(value.text()),
        _ => None,
    }
}

/// An integer as text: `digits` without zeros at either end, times ten to `zeros`. It is never
/// expanded to be compared, so that `1e999999999` costs nothing.
#[derive(Debug, PartialEq, Eq)]
struct Integer {
    negative: bool,
    digits: String,
    zeros: u64,
}

impl Integer {
    /// Reads a JSON number, if it is whole.
    fn lexeme(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (negative, unsigned) = match mantissa.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, mantissa),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self { negative: false, digits: String::new(), zeros: 0 });
        }
        let stripped = digits.trim_end_matches('0');
        let zeros = i64::try_from(digits.len() - stripped.len()).ok()?;
        let zeros = exponent.checked_add(zeros)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        Some(Self { negative, digits: stripped.to_owned(), zeros: u64::try_from(zeros).ok()? })
    }

    /// Reads a header: `-?(0|[1-9][0-9]*)(\.[0-9]+)?` and nothing else.
    fn decimal_text(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(w, f)| (w, Some(f)));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let strict =
            digits(whole) && fraction.is_none_or(digits) && (whole == "0" || !whole.starts_with('0'));
        if strict { Self::lexeme(text) } else { None }
    }

    /// The integer in decimal, unless that is absurdly long.
    fn decimal(&self) -> Option<String> {
        let zeros = usize::try_from(self.zeros).ok().filter(|zeros| *zeros <= MOST_ZEROS)?;
        let sign = if self.negative { "-" } else { "" };
        let digits = if self.digits.is_empty() { "0" } else { &self.digits };
        Some(format!("{sign}{digits}{}", "0".repeat(zeros)))
    }
}
