//! Step 19: `Mcp-Param-*` headers, checked against the arguments downstream and minted upstream.
//!
//! spec: streamable-http, Server Behavior for Custom Headers

use std::collections::HashMap;
use std::collections::HashSet;

use http::HeaderName;
use http::HeaderValue;

use crate::catalog::header_params::HeaderParam;
use crate::catalog::header_params::ParamKind;
use crate::protocol::headers::Mismatch;
use crate::protocol::headers::decode_value;
use crate::protocol::headers::encode_value;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// Most trailing zeros that are written out: as many as the largest double has.
const MOST_ZEROS: usize = 308;

/// Checks that each mirrored argument is in its header, once and equal, and that an argument that
/// is `null` or missing is in none. Headers of no parameter are not looked at. An argument of the
/// wrong type that was not mirrored is left to the schema. A key that differs from one on the way
/// to a mirrored argument in case only is refused: some backends read either for the other.
pub fn check_mirrored(
    params: &[HeaderParam],
    arguments: Option<&Json>,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<(), (String, Mismatch)> {
    let found = Found::of(params, arguments);
    if let Some(param) = found.twin.and_then(|place| params.get(place)) {
        return Err((param.header.clone(), Mismatch::Twin));
    }
    for (param, value) in params.iter().zip(found.values) {
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
    let minted = params.iter().zip(Found::of(params, arguments).values).filter_map(|(param, value)| {
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

/// The arguments without those that would be mirrored and are `null`, if there are any: for whom a
/// header is concerned, `null` is as good as not given, whatever the schema says of it.
///
/// spec: streamable-http, Custom Headers (parameter value is `null`)
pub fn given(params: &[HeaderParam], arguments: &Json) -> Option<Json> {
    let paths = params.iter().map(|param| &param.path[..]).collect::<Vec<_>>();
    without_nulls(&paths, arguments)
}

fn without_nulls(paths: &[&[String]], object: &Json) -> Option<Json> {
    let mut below: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for (key, rest) in paths.iter().filter_map(|path| path.split_first()) {
        below.entry(key).or_default().push(rest);
    }
    if below.is_empty() {
        return None;
    }
    let (mut kept, mut changed) = (Object::new(), false);
    for (key, value) in object.members() {
        let paths = below.get(&*key).map_or(&[][..], Vec::as_slice);
        if value.kind() == Kind::Null && paths.iter().any(|path| path.is_empty()) {
            changed = true;
            continue;
        }
        let less = without_nulls(paths, &value);
        changed |= less.is_some();
        kept = kept.put(&key, less.as_ref().unwrap_or(&value));
    }
    changed.then(|| kept.finish())
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

/// What the arguments have for each parameter.
struct Found {
    /// The value at exactly its path, if it is there and not `null`.
    values: Vec<Option<Json>>,
    /// A parameter with a key beside its path that differs from it in case only.
    twin: Option<usize>,
}

/// A parameter's place and the rest of its path.
type Sought<'p> = (usize, &'p [String]);

impl Found {
    fn of(params: &[HeaderParam], arguments: Option<&Json>) -> Self {
        let mut found = Self { values: vec![None; params.len()], twin: None };
        if let Some(arguments) = arguments {
            found.find(arguments, params.iter().map(|param| &param.path[..]).enumerate().collect());
        }
        found
    }

    /// Finds what lies at these paths. Every object is walked once, however many paths lead
    /// through it. Paths are short: `header_params` bounds them.
    fn find(&mut self, value: &Json, sought: Vec<Sought<'_>>) {
        let mut below: HashMap<&str, Vec<Sought<'_>>> = HashMap::new();
        let mut folded = HashMap::new();
        for (place, path) in sought {
            match path.split_first() {
                Some((key, rest)) => {
                    folded.entry(fold(key)).or_insert(place);
                    below.entry(key).or_default().push((place, rest));
                }
                None => self.values[place] = Some(value.clone()).filter(|value| value.kind() != Kind::Null),
            }
        }
        if below.is_empty() {
            return;
        }
        let lengths: HashSet<usize> = folded.keys().map(String::len).collect();
        for (key, member) in value.members() {
            if let Some(sought) = below.remove(&*key) {
                self.find(&member, sought);
            } else if !key.is_ascii() || lengths.contains(&key.len()) {
                self.twin = self.twin.or_else(|| folded.get(&fold(&key)).copied());
            }
        }
    }
}

/// `key` without its case, in which readers that ignore case compare: `ſ` is an `s` to them, too.
fn fold(key: &str) -> String {
    key.to_uppercase().to_lowercase()
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
