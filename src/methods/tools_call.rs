//! `tools/call`: steps 19 to 22.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::backend::BackendError;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::given;
use crate::catalog::mirror::mint;
use crate::catalog::refresh::Catalogs;
use crate::catalog::schema::Validator;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::links::Links;
use crate::methods::rounds::Rounds;
use crate::methods::rounds::Sealing;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::router;
use crate::router::RouteError;
use crate::telemetry::metrics::Metrics;

/// How many checks that may take long are made at a time: arguments of 4 MiB can weigh tens of them
/// while they are checked.
static SLOW_CHECKS: Semaphore = Semaphore::const_new(2);

/// Whose turn it is among the checks of one tenant, for each that has some: a tenant waits for
/// its own first, so that it takes one of [`SLOW_CHECKS`] at a time and others get the next.
static TURNS: LazyLock<Mutex<HashMap<TenantName, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// Calls `tool`, once more if the backend says that our headers are stale.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the call upstream.
pub async fn answer(
    exchange: &Exchange,
    tool: &Arc<Tool>,
    snapshot: &Arc<Snapshot>,
    catalogs: &Catalogs,
    sealing: &Sealing,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    match attempt(exchange, tool, snapshot, sealing, limits, metrics).await {
        // The backend refused before it acted, so a second try repeats nothing: the same answers and the
        // same state go with it.
        // spec: streamable-http, Client Behavior
        Err(CallError::Backend(BackendError::Stale)) => {
            catalogs.refreshed(&exchange.tenant.name, tool.entry.backend()).await;
            let snapshot = catalogs.snapshot(&exchange.tenant).await;
            let tool = router::tool(&snapshot, exchange)?;
            attempt(exchange, &tool, &snapshot, sealing, limits, metrics).await
        }
        other => other,
    }
}

async fn attempt(
    exchange: &Exchange,
    tool: &Tool,
    snapshot: &Arc<Snapshot>,
    sealing: &Sealing,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let call = &exchange.call;
    let (rounds, retry) = Rounds::begin(exchange, &tool.entry, sealing, limits, metrics)?;
    let arguments = call.params.member("arguments");
    if let Some(mirrored) = &call.mirrored {
        check_mirrored(&tool.header_params, arguments.as_ref(), mirrored)
            .map_err(|(header, problem)| RouteError::ParamMismatch { header, problem })?;
    }
    if let Err(problem) = check_given(&exchange.tenant.name, tool, arguments.as_ref()).await {
        return Ok(Reply::Once(Outcome::Result(failed(&problem))));
    }
    let headers = mint(&tool.header_params, arguments.as_ref());
    let links = Links::of(&tool.entry, snapshot);
    let finish = move |outcome| rounds.settle(links.change(outcome, Links::content), &links);
    let sent = Sent { params: call.params.clone(), param_headers: headers, retry };
    forward(exchange, &tool.entry, sent, finish, limits, metrics).await
}

/// Step 21. What would be mirrored in a header may be `null`, as if it were not there.
///
/// # Cancel safety
/// Like [`check`].
async fn check_given(tenant: &TenantName, tool: &Tool, arguments: Option<&Json>) -> Result<(), String> {
    let verdict = check(tenant, &tool.validator, arguments).await;
    match arguments.filter(|_| verdict.is_err()).and_then(|arguments| given(&tool.header_params, arguments)) {
        Some(given) if check(tenant, &tool.validator, Some(&given)).await.is_ok() => Ok(()),
        _ => verdict,
    }
}

/// Step 21. What may take long is done on a thread that may be held up, a few at a time, and of
/// each tenant one.
///
/// # Cancel safety
/// Dropping the future leaves a check that has begun to its end, which is bounded.
async fn check(
    tenant: &TenantName,
    validator: &Arc<Validator>,
    arguments: Option<&Json>,
) -> Result<(), String> {
    let Some(slow) = arguments.filter(|arguments| validator.is_slow(arguments)) else {
        return validator.check(arguments);
    };
    let turn = turn(tenant).acquire_owned().await;
    let slot = SLOW_CHECKS.acquire().await;
    let (validator, arguments) = (validator.clone(), slow.clone());
    let checking = tokio::task::spawn_blocking(move || {
        let _until_done = (turn, slot);
        validator.check(Some(&arguments))
    });
    match checking.await.map_err(JoinError::try_into_panic) {
        Ok(verdict) => verdict,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Err("the gateway ended before the arguments were checked".to_owned()),
    }
}

/// The one turn of a tenant's checks. It is there for as long as somebody has it or waits for it.
fn turn(tenant: &TenantName) -> Arc<Semaphore> {
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(turn) = turns.get(tenant).and_then(Weak::upgrade) {
        return turn;
    }
    turns.retain(|_, turn| turn.strong_count() > 0);
    let turn = Arc::new(Semaphore::new(1));
    turns.insert(tenant.clone(), Arc::downgrade(&turn));
    turn
}

/// A tool result that says why the call cannot be made, or cannot go on, so that a model can mend that.
///
/// spec: server/tools, Error Handling
pub(super) fn failed(problem: &str) -> Json {
    let text = Object::new().put_str("type", "text").put_str("text", problem).finish();
    Object::new()
        .put_str("resultType", "complete")
        .put("content", &Array::new().push(&text).finish())
        .put_bool("isError", true)
        .put("_meta", &super::own_meta())
        .finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use serde_json::json;

    use super::check;
    use crate::catalog::schema::Judged;
    use crate::catalog::schema::Patterns;
    use crate::model::limits::Limits;
    use crate::model::name::TenantName;
    use crate::protocol::json::Json;

    fn json(text: String) -> Json {
        Json::parse(Bytes::from(text), 64).unwrap()
    }

    #[tokio::test]
    async fn a_tenants_large_arguments_wait_for_each_other_and_not_for_others() {
        let schema = json!({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}});
        let judged = Judged::new(&Json::from_value(&schema), &Limits::default()).unwrap();
        let validator = Arc::new(judged.compile(&mut Patterns::default()).unwrap());
        let large = json(format!(r#"{{"a":[{}0]}}"#, "0,".repeat(100_000)));
        let tenants =
            ["acme", "acme", "acme", "acme", "acme", "globex"].map(|name| TenantName::new(name).unwrap());
        let checks = tenants.iter().map(async |tenant| {
            check(tenant, &validator, Some(&large)).await.unwrap();
            tenant.as_str()
        });
        let ended: Vec<_> = checks.collect::<FuturesUnordered<_>>().collect().await;
        // In the order of arrival it would be the last.
        assert!(ended[..4].contains(&"globex"), "{ended:?}");
    }
}
