//! `tools/call`: steps 19 to 22, and what a backend's answer becomes.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use crate::backend::BackendError;
use crate::backend::ToolCall;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::mint;
use crate::catalog::refresh::Catalogs;
use crate::catalog::tool::Tool;
use crate::exchange::Exchange;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::model::limits::Limits;
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
    check_mirrored(&tool.header_params, arguments.as_ref(), &call.mirrored)
        .map_err(|(header, problem)| RouteError::ParamMismatch { header, problem })?;
    if let Err(problem) = tool.validator.check(arguments.as_ref()) {
        return Ok(Reply::Once(Outcome::Result(failed(&problem))));
    }
    let upstream = ToolCall {
        name: tool.own.clone(),
        params: call.params.clone(),
        meta: call.meta.clone(),
        param_headers: mint(&tool.header_params, arguments.as_ref()),
        deadline: exchange.deadline,
    };
    let backend = tool.live.clone();
    let opened = async move { backend.call_tool(upstream).await };
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
/// did not declare it, which the client cannot mend.
///
/// spec: basic/index, _meta: MissingRequiredClientCapability
fn lacking(error: RpcError, declared: &Json) -> RpcError {
    if error.code != code::MISSING_CAPABILITY {
        return error;
    }
    let required = error.data.as_ref().and_then(|data| data.member("requiredCapabilities"));
    let client_lacks = required.is_some_and(|required| {
        required.members().any(|(name, _)| declared.member(&name).is_none_or(|value| !value.is_object()))
    });
    if client_lacks {
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
