//! `x-mcp-header`: which arguments of a tool are mirrored in headers.
//!
//! spec: server/tools, x-mcp-header

use std::collections::HashSet;

use http::HeaderName;
use serde_json::Map;
use serde_json::Value;

const KEYWORD: &str = "x-mcp-header";
const PREFIX: &str = "Mcp-Param-";

/// Longest name of a mirror.
const NAME_BYTES: usize = 128;

/// Most arguments of one tool that are mirrored.
const MOST: usize = 64;

/// Longest path to one of them, in keys: each is a walk over what lies there.
const PATH_KEYS: usize = 16;

/// Longest path to one of them, its keys together.
const PATH_BYTES: usize = 1024;

/// Largest integer that every JSON number type holds.
const SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Headers that carry credentials or route, and words for secrets, without `-` and `_`. A mirror
/// is shown to every hop, and some of them act on such names whatever stands before them.
const SENSITIVE: [&str; 16] = [
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "host",
    "password",
    "passwd",
    "secret",
    "clientsecret",
    "token",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "apikey",
    "xapikey",
    "privatekey",
];

/// Keywords whose value maps names, not keywords, to schemas.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Keywords whose value is data.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// An argument that is mirrored in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// The header, as the specification spells it: `Mcp-Param-Region`.
    pub header: String,
    /// The same as a field name.
    pub field: HeaderName,
    /// The keys that lead to it from the arguments.
    pub path: Vec<String>,
    /// What it is.
    pub kind: ParamKind,
}

/// The types that can be mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `boolean`
    Boolean,
}

/// Why an `x-mcp-header` makes its tool invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamProblem {
    /// Not text.
    #[error("an `x-mcp-header` is not a string")]
    NotText,
    /// Not an HTTP token.
    #[error("the `x-mcp-header` {0:?} is not an HTTP token of 1 to {NAME_BYTES} characters")]
    NotToken(String),
    /// Twice, whatever the case.
    #[error("the `x-mcp-header` {0:?} is there twice")]
    Twice(String),
    /// On something else than a string, an integer or a boolean.
    #[error("the `x-mcp-header` {0:?} is not on a string, an integer or a boolean")]
    WrongType(String),
    /// Not reached through `properties` alone.
    #[error("an `x-mcp-header` is not reached through `properties` alone")]
    Unreachable,
    /// A name that must not be mirrored.
    #[error("the `x-mcp-header` {0:?} names something that must not be mirrored")]
    Sensitive(String),
    /// Over `MOST`.
    #[error("it has more than {MOST} `x-mcp-header`")]
    Many,
    /// Over `PATH_KEYS` or `PATH_BYTES`.
    #[error("more than {PATH_KEYS} keys, or {PATH_BYTES} bytes of them, lead to the `x-mcp-header` {0:?}")]
    Far(String),
    /// An integer beyond 2^53 - 1.
    #[error("the `x-mcp-header` {0:?} is on an integer beyond 2^53 - 1")]
    Unsafe(String),
}

/// The mirrored arguments of an input schema, in its order.
pub fn extract(schema: &Value) -> Result<Vec<HeaderParam>, ParamProblem> {
    let mut params = Vec::new();
    reach(schema, &mut Vec::new(), &mut params)?;
    let mut seen = HashSet::new();
    for param in &params {
        if !seen.insert(&param.field) {
            return Err(ParamProblem::Twice(param.header[PREFIX.len()..].to_owned()));
        }
    }
    Ok(params)
}

/// Refuses any `x-mcp-header`: for schemas that describe no arguments.
pub fn refuse_any(schema: &Value) -> Result<(), ParamProblem> {
    match annotated(schema) {
        true => Err(ParamProblem::Unreachable),
        false => elsewhere(schema, false),
    }
}

/// Follows `properties` alone; whatever lies elsewhere must have no annotation.
fn reach(schema: &Value, path: &mut Vec<String>, params: &mut Vec<HeaderParam>) -> Result<(), ParamProblem> {
    let Value::Object(members) = schema else { return Ok(()) };
    if let Some(name) = members.get(KEYWORD) {
        if params.len() >= MOST {
            return Err(ParamProblem::Many);
        }
        params.push(param(name, members, path)?);
    }
    elsewhere(schema, true)?;
    if let Some(Value::Object(properties)) = members.get("properties") {
        for (key, property) in properties {
            path.push(key.clone());
            reach(property, path, params)?;
            path.pop();
        }
    }
    Ok(())
}

/// Refuses an annotation anywhere below `schema`, except in its `properties` if it is on the way.
fn elsewhere(schema: &Value, on_the_way: bool) -> Result<(), ParamProblem> {
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members {
                let skipped = on_the_way && keyword == "properties" && value.is_object();
                match value {
                    _ if skipped || DATA.contains(&&**keyword) => {}
                    Value::Object(named) if NAMED.contains(&&**keyword) => {
                        named.values().try_for_each(refuse_any)?;
                    }
                    _ => refuse_any(value)?,
                }
            }
            Ok(())
        }
        Value::Array(elements) => elements.iter().try_for_each(refuse_any),
        _ => Ok(()),
    }
}

fn annotated(schema: &Value) -> bool {
    schema.as_object().is_some_and(|members| members.contains_key(KEYWORD))
}

fn param(name: &Value, members: &Map<String, Value>, path: &[String]) -> Result<HeaderParam, ParamProblem> {
    let name = name.as_str().ok_or(ParamProblem::NotText)?;
    let shown = || name.chars().take(NAME_BYTES).collect::<String>();
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(is_token) {
        return Err(ParamProblem::NotToken(shown()));
    }
    if path.is_empty() {
        return Err(ParamProblem::Unreachable);
    }
    if path.len() > PATH_KEYS || path.iter().map(String::len).sum::<usize>() > PATH_BYTES {
        return Err(ParamProblem::Far(shown()));
    }
    let folded: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    if SENSITIVE.contains(&&*folded.to_ascii_lowercase()) {
        return Err(ParamProblem::Sensitive(shown()));
    }
    let kind = kind(members).ok_or_else(|| ParamProblem::WrongType(shown()))?;
    if kind == ParamKind::Integer && is_unsafe(members) {
        return Err(ParamProblem::Unsafe(shown()));
    }
    let header = format!("{PREFIX}{name}");
    let field = header.parse().map_err(|_| ParamProblem::NotToken(shown()))?;
    Ok(HeaderParam { header, field, path: path.to_vec(), kind })
}

/// The one type that the property has beside `null`, for which no header is sent.
fn kind(members: &Map<String, Value>) -> Option<ParamKind> {
    let name = match members.get("type")? {
        Value::String(name) => name,
        Value::Array(names) => match &names.iter().filter(|name| *name != "null").collect::<Vec<_>>()[..] {
            [Value::String(name)] => name,
            _ => return None,
        },
        _ => return None,
    };
    match &**name {
        "string" => Some(ParamKind::String),
        "integer" => Some(ParamKind::Integer),
        "boolean" => Some(ParamKind::Boolean),
        _ => None,
    }
}

/// Whether the property asks for an integer that not every client can hold.
fn is_unsafe(members: &Map<String, Value>) -> bool {
    let beyond = |value: &Value| value.as_f64().is_some_and(|number| number.abs() > SAFE_INTEGER);
    ["const", "default"].iter().filter_map(|keyword| members.get(*keyword)).any(beyond)
        || members.get("enum").and_then(Value::as_array).is_some_and(|all| all.iter().any(beyond))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
