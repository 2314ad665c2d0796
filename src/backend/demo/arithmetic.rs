//! `add` and `subtract`: exact for whole numbers of up to 38 digits, floating point for the rest.

use bytes::Bytes;

use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// `a + b`.
pub(super) fn add(arguments: &Json) -> Result<Json, String> {
    result(arguments, i128::checked_add, |a, b| a + b)
}

/// `a - b`.
pub(super) fn subtract(arguments: &Json) -> Result<Json, String> {
    result(arguments, i128::checked_sub, |a, b| a - b)
}

fn result(
    arguments: &Json,
    exact: fn(i128, i128) -> Option<i128>,
    float: fn(f64, f64) -> f64,
) -> Result<Json, String> {
    let (a, b) = (number(arguments, "a")?, number(arguments, "b")?);
    let whole = |n: &Json| n.text().parse::<i128>().ok();
    let text = match whole(&a).zip(whole(&b)).and_then(|(a, b)| exact(a, b)) {
        Some(whole) => whole.to_string(),
        None => {
            let real = |n: &Json| n.text().parse().unwrap_or(f64::NAN);
            let value = float(real(&a), real(&b));
            if !value.is_finite() {
                return Err("the result is too large for a number".to_owned());
            }
            value.to_string()
        }
    };
    let value = Json::parse(Bytes::from(text), 1).map_err(|_| "the result is no number".to_owned())?;
    Ok(Object::new().put("result", &value).finish())
}

fn number(arguments: &Json, name: &str) -> Result<Json, String> {
    let value = arguments.member(name).filter(|value| value.kind() == Kind::Number);
    value.ok_or_else(|| format!("`{name}` is a number, and required"))
}
