//! `tools/call`: steps 19 to 22, and what a backend's answer becomes.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::mint;
use crate::catalog::refresh::Catalogs;
use crate::catalog::schema::Validator;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::router;
use crate::router::RouteError;
use crate::stream::relay;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome as Ended;

/// How many checks that may take long are made at a time: arguments of 4 MiB can weigh tens of them
/// while they are checked.
static SLOW_CHECKS: Semaphore = Semaphore::const_new(2);

/// Whose turn it is among the checks of one tenant, for each that has some: a tenant waits for
/// its own first, so that it takes one of [`SLOW_CHECKS`] at a time and others get the next.
static TURNS: LazyLock<Mutex<HashMap<TenantName, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// Most capabilities that a backend's error may name as required.
const REQUIRED: usize = 64;

/// Calls `tool`, once more if the backend says that our headers are stale.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the call upstream.
pub async fn answer(
    exchange: &Exchange,
    tool: &Arc<Tool>,
    catalogs: &Catalogs,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    match attempt(exchange, tool, limits, metrics).await {
        // The backend refused before it acted, so a second try repeats nothing.
        // spec: streamable-http, Client Behavior
        Err(CallError::Backend(BackendError::Stale)) => {
            catalogs.refreshed(&exchange.tenant.name, &tool.backend).await;
            let snapshot = catalogs.snapshot(&exchange.tenant).await;
            let tool = router::tool(&snapshot, exchange)?;
            attempt(exchange, &tool, limits, metrics).await
        }
        other => other,
    }
}

async fn attempt(
    exchange: &Exchange,
    tool: &Tool,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let call = &exchange.call;
    let arguments = call.params.member("arguments");
    if let Some(mirrored) = &call.mirrored {
        check_mirrored(&tool.header_params, arguments.as_ref(), mirrored)
            .map_err(|(header, problem)| RouteError::ParamMismatch { header, problem })?;
    }
    if let Err(problem) = check(&exchange.tenant.name, &tool.validator, arguments.as_ref()).await {
        return Ok(Reply::Once(Outcome::Result(failed(&problem))));
    }
    let upstream = BackendCall {
        caller: exchange.caller.clone(),
        method: call.method,
        name: tool.own.clone(),
        params: call.params.clone(),
        meta: call.meta.clone(),
        param_headers: mint(&tool.header_params, arguments.as_ref()),
        deadline: exchange.deadline,
    };
    let backend = tool.live.clone();
    let opened = async move { backend.call(upstream).await };
    let frames = stream::once(opened).flat_map(|opened| match opened {
        Ok(frames) => frames,
        Err(error) => stream::iter([Frame::End(Err(error))]).boxed(),
    });
    let capabilities = call.meta.capabilities.clone();
    let mut asked = Asked { metrics: metrics.clone(), began: Instant::now(), ended: Ended::Cancelled };
    let frames: Frames<CallError> = frames.map(move |frame| finish(asked.hear(frame), &capabilities)).boxed();
    relay::settle(frames, call.accept.sse, limits.late_stream).await
}

/// One request to a backend, counted when it has ended or was given up.
struct Asked {
    metrics: Arc<Metrics>,
    began: Instant,
    ended: Ended,
}

impl Asked {
    fn hear(&mut self, frame: Frame<BackendError>) -> Frame<BackendError> {
        if let Frame::End(end) = &frame {
            self.ended = match end {
                Ok(Outcome::Result(_)) => Ended::Ok,
                Ok(Outcome::Error(_)) => Ended::Error,
                Err(BackendError::TimedOut { .. }) => Ended::TimedOut,
                Err(_) => Ended::Failed,
            };
        }
        frame
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.metrics.upstream(self.ended, self.began.elapsed());
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

/// A frame as the client gets it.
fn finish(frame: Frame<BackendError>, capabilities: &Json) -> Frame<CallError> {
    match frame {
        Frame::Progress(json) => Frame::Progress(json),
        Frame::End(Ok(Outcome::Error(error))) => Frame::End(Ok(Outcome::Error(lacking(error, capabilities)))),
        Frame::End(Ok(outcome)) => Frame::End(Ok(outcome)),
        Frame::End(Err(error)) => Frame::End(Err(CallError::Backend(error))),
    }
}

/// Keeps a backend's "missing capability" if it is the client that lacks it; else it is us who
/// did not declare it, which the client cannot mend. So it is said of a list that is absurdly long.
///
/// spec: basic/index, _meta: MissingRequiredClientCapability
fn lacking(error: RpcError, declared: &Json) -> RpcError {
    if error.code != code::MISSING_CAPABILITY {
        return error;
    }
    let required = error.data.as_ref().and_then(|data| data.member("requiredCapabilities"));
    let names: Vec<_> =
        required.iter().flat_map(Json::members).map(|(name, _)| name).take(REQUIRED + 1).collect();
    let has: HashSet<_> =
        declared.members().filter(|(_, value)| value.is_object()).map(|(name, _)| name).collect();
    if names.len() <= REQUIRED && names.iter().any(|name| !has.contains(name)) {
        return error;
    }
    let message = "the tool needs a client capability that this gateway does not relay yet".to_owned();
    RpcError { code: code::INTERNAL_ERROR, message, data: error.data }
}

/// A tool result that says why the arguments are refused, so that a model can mend them.
///
/// spec: server/tools, Error Handling
fn failed(problem: &str) -> Json {
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
    use std::fmt::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use serde_json::json;
    use tokio::time::Instant;

    use super::check;
    use super::lacking;
    use crate::catalog::schema::Judged;
    use crate::catalog::schema::Patterns;
    use crate::model::limits::Limits;
    use crate::model::name::TenantName;
    use crate::protocol::call::RpcError;
    use crate::protocol::code;
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

    #[test]
    fn required_capabilities_are_looked_up_in_one_pass() {
        let error = |required: String| RpcError {
            code: code::MISSING_CAPABILITY,
            message: "theirs".into(),
            data: Some(json(format!(r#"{{"requiredCapabilities":{{{required}}}}}"#))),
        };
        let many = |from: usize, count: usize| {
            let mut all = String::new();
            (from..from + count).for_each(|n| write!(all, r#""c{n}":{{}},"#).unwrap());
            all.trim_end_matches(',').to_owned()
        };
        let declared = json(format!(r#"{{"roots":7,"elicitation":{{}},{}}}"#, many(0, 100_000)));
        let started = Instant::now();
        for (required, expected) in [
            (r#""elicitation":{}"#.to_owned(), code::INTERNAL_ERROR),
            (r#""elicitation":{},"sampling":{}"#.to_owned(), code::MISSING_CAPABILITY),
            (r#""roots":{}"#.to_owned(), code::MISSING_CAPABILITY),
            (many(99_936, 64), code::INTERNAL_ERROR),
            (many(99_937, 64), code::MISSING_CAPABILITY),
            (many(50_000, 100_000), code::INTERNAL_ERROR),
        ] {
            assert_eq!(lacking(error(required.clone()), &declared).code, expected, "{required:.100}");
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}
