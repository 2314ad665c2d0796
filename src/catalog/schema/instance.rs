//! Arguments as a value that a schema can look at. Only checked, never sent.

use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// A copy of `json`. Numbers beyond a double become the largest one.
pub(super) fn value_of(json: &Json) -> Value {
    // Its one possible complaint about proven text is such a number.
    serde_json::from_slice(json.bytes()).unwrap_or_else(|_| clamped(json))
}

fn clamped(json: &Json) -> Value {
    match json.kind() {
        Kind::Object => Value::Object(
            json.members().map(|(key, value)| (key.into_owned(), clamped(&value))).collect::<Map<_, _>>(),
        ),
        Kind::Array => Value::Array(json.elements().map(|element| clamped(&element)).collect()),
        Kind::Number => number(json.text()),
        Kind::String => Value::String(json.string().unwrap_or_default()),
        Kind::Boolean => Value::Bool(json.boolean() == Some(true)),
        Kind::Null => Value::Null,
    }
}

fn number(text: &str) -> Value {
    if let Ok(number) = serde_json::from_str(text) {
        return Value::Number(number);
    }
    let largest = if text.starts_with('-') { f64::MIN } else { f64::MAX };
    Number::from_f64(largest).map_or(Value::Null, Value::Number)
}
