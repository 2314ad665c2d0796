//! `completion/complete`: suggestions for an argument of a prompt or a resource template.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::own_meta;
use crate::model::limits::Limits;
use crate::protocol::call::Outcome;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::change;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::router::Completion;
use crate::telemetry::metrics::Metrics;

/// Most suggestions in one answer.
///
/// spec: server/utilities/completion, Completion Results
const VALUES: usize = 100;

/// Asks the backend of what is completed.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream.
pub async fn answer(
    exchange: &Exchange,
    completion: Completion,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let Completion { of, params } = completion;
    forward(exchange, &of, Sent::plain(params), finish, limits, metrics).await
}

fn finish(outcome: Outcome) -> Result<Outcome, BackendError> {
    match outcome {
        Outcome::Result(result) => capped(&result).map(Outcome::Result),
        // Completion is served here; it is the backend that has no suggestions.
        Outcome::Error(error) if error.code == code::METHOD_NOT_FOUND => Ok(Outcome::Result(nothing())),
        error => Ok(error),
    }
}

/// A result with at most as many suggestions as may be.
fn capped(result: &Json) -> Result<Json, BackendError> {
    let completion = result.member("completion");
    let values = completion.as_ref().and_then(|completion| completion.member("values"));
    let (Some(completion), Some(values)) = (completion, values) else {
        return Err(BackendError::Invalid("its completion has no `values`"));
    };
    let mut count: usize = 0;
    let mut kept = Array::with_capacity(values.bytes().len().min(64 << 10));
    for value in values.elements() {
        if value.kind() != Kind::String {
            return Err(BackendError::Invalid("its completion has `values` that are no strings"));
        }
        if count < VALUES {
            kept = kept.push(&value);
        }
        count += 1;
    }
    if values.kind() != Kind::Array {
        return Err(BackendError::Invalid("its completion has no array of `values`"));
    }
    if count <= VALUES {
        return Ok(result.clone());
    }
    let more = completion.member("hasMore").and_then(|more| more.boolean()) == Some(true);
    let total = completion.member("total").and_then(|total| total.integer());
    let total = total.filter(|total| usize::try_from(*total).is_ok_and(|total| total >= count));
    // Without a total of its own, what it sent is all there is, unless it says that there is more.
    let total = total.or_else(|| i64::try_from(count).ok().filter(|_| !more));
    let mut whole = Object::new().put("values", &kept.finish());
    for (key, value) in completion.members() {
        if !matches!(&*key, "values" | "total" | "hasMore") {
            whole = whole.put(&key, &value);
        }
    }
    if let Some(total) = total {
        whole = whole.put_i64("total", total);
    }
    let whole = whole.put_bool("hasMore", true).finish();
    Ok(change::member(result, "completion", |_| Some(whole)).unwrap_or_else(|| result.clone()))
}

/// No suggestions.
fn nothing() -> Json {
    let none =
        Object::new().put("values", &Array::new().finish()).put_u64("total", 0).put_bool("hasMore", false);
    Object::new()
        .put_str("resultType", "complete")
        .put("completion", &none.finish())
        .put("_meta", &own_meta())
        .finish()
}
