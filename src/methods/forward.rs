//! Step 22: the request to a backend, and what its answer becomes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use http::HeaderName;
use http::HeaderValue;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::waiting::Interruption;
use crate::backend::waiting::Unanswered;
use crate::catalog::entry::Entry;
use crate::exchange::Exchange;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::declare;
use crate::methods::rounds;
use crate::methods::rounds::Retry;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::protocol::call::Outcome;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::methods::Method;
use crate::protocol::tasks;
use crate::router::RouteError;
use crate::stream::relay;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Outcome as Ended;

/// Most capabilities that a backend's error may name as required.
const REQUIRED: usize = 64;

/// What is sent to a backend, beside what is sent with every call.
pub(super) struct Sent {
    /// The client's params. What it sends back of an earlier round is no part of them.
    pub(super) params: Json,
    /// `Mcp-Param-*`, minted.
    pub(super) param_headers: Vec<(HeaderName, HeaderValue)>,
    /// What goes back to a backend that asked before.
    pub(super) retry: Retry,
}

impl Sent {
    /// These params and nothing else.
    pub(super) fn plain(params: Json) -> Self {
        Self { params, param_headers: Vec::new(), retry: Retry::default() }
    }
}

/// Sends the exchange's method to the backend of `entry`, with what is `sent`. `finish` makes the client's
/// outcome of the backend's.
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream.
pub(super) async fn forward(
    exchange: &Exchange,
    entry: &Entry,
    sent: Sent,
    finish: impl Fn(Outcome) -> Result<Outcome, BackendError> + Send + 'static,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let (call, config) = (&exchange.call, entry.home.config.clone());
    // Whoever has made a task knows tasks.
    let tasks = entry.home.tasks || call.method.is_about_a_task();
    let upstream = BackendCall {
        caller: exchange.caller.clone(),
        method: call.method,
        name: entry.own.clone(),
        params: sent.params,
        meta: call.meta.clone(),
        capabilities: declare::carried(&call.meta.capabilities, &config, tasks),
        responses: sent.retry.responses,
        state: sent.retry.state,
        param_headers: sent.param_headers,
        deadline: exchange.deadline,
    };
    let backend = entry.home.live.clone();
    let opened = async move { backend.call(upstream).await };
    let frames = stream::once(opened).flat_map(|opened| match opened {
        Ok(frames) => frames,
        Err(error) => stream::iter([Frame::End(Err(error))]).boxed(),
    });
    let lack = Lack { method: call.method, declared: call.meta.capabilities.clone(), config };
    let counted = metrics.clone();
    let mut asked = Asked { metrics: metrics.clone(), began: Instant::now(), ended: Ended::Cancelled };
    let waiting = (entry.home.live.clone(), exchange.caller.clone());
    let frames = frames.map(move |frame| match asked.hear(frame) {
        Frame::Notice(json) => Frame::Notice(json),
        Frame::End(end) => {
            let state = end.as_ref().ok().and_then(state);
            let end = end.or_else(|error| stopped(lack.method, error));
            let end = end.and_then(|outcome| Ok(finish(lack.judge(outcome, &counted))?));
            // What it asks is not passed on, so nobody will answer.
            if let (Some(state), false) = (state, matches!(end, Ok(Outcome::Asks(_)))) {
                waiting.0.forsake(&waiting.1, &state, Unanswered::Refused);
            }
            Frame::End(end)
        }
    });
    let frames: Frames<CallError> = frames.boxed();
    relay::settle(frames, call.accept.sse, limits.late_stream).await
}

/// What a backend that asks back wants back.
fn state(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Asks(result) => result.member(REQUEST_STATE)?.string(),
        Outcome::Result(_) | Outcome::Task(_) | Outcome::Error(_) => None,
    }
}

/// What the end of a call is that its backend asked back, and that does not go on.
fn stopped(method: Method, error: BackendError) -> Result<Outcome, CallError> {
    Err(match error {
        BackendError::Interrupted(why @ (Interruption::Busy | Interruption::Lost)) => {
            return Ok(rounds::stopped(method, &why.to_string()));
        }
        BackendError::Interrupted(Interruption::Unknown) => RouteError::InvalidState.into(),
        BackendError::Interrupted(Interruption::Malformed(why)) => RouteError::InvalidParams(why).into(),
        other => other.into(),
    })
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
                Ok(Outcome::Result(_) | Outcome::Asks(_) | Outcome::Task(_)) => Ended::Ok,
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

/// Whose fault it is that a backend misses a capability.
struct Lack {
    method: Method,
    /// What the client declared.
    declared: Json,
    config: Arc<tenant::Backend>,
}

impl Lack {
    /// Keeps a backend's "missing capability" if it is the client that lacks it. If its tenant does not
    /// let it ask, that is said; else it is us who did not declare it, which the client cannot mend. So
    /// it is said of a list that is absurdly long.
    ///
    /// spec: basic/index, _meta: MissingRequiredClientCapability; row BW-09
    fn judge(&self, outcome: Outcome, metrics: &Metrics) -> Outcome {
        let error = match outcome {
            Outcome::Error(error) if error.code == code::MISSING_CAPABILITY => error,
            other => return other,
        };
        let required = error.data.as_ref().and_then(|data| data.member("requiredCapabilities"));
        let names: Vec<_> =
            required.iter().flat_map(named).map(|(name, _)| name).take(REQUIRED + 1).collect();
        if let Some(required) = required.as_ref().filter(|_| names.len() <= REQUIRED) {
            let has: HashSet<_> =
                named(&self.declared).filter(|(_, value)| value.is_object()).map(|(name, _)| name).collect();
            if names.iter().any(|name| !has.contains(name)) || !declare::covers(&self.declared, required) {
                return Outcome::Error(error);
            }
            if let Some(ask) = declare::refusal(required, &self.config.refused) {
                return rounds::withheld(self.method, ask, metrics);
            }
        }
        let message = "the backend needs a client capability that this gateway does not relay".to_owned();
        Outcome::Error(RpcError { code: code::INTERNAL_ERROR, message, data: error.data })
    }
}

/// Each of these capabilities, and each extension by itself.
fn named(capabilities: &Json) -> impl Iterator<Item = (Cow<'_, str>, Json)> {
    let extensions = capabilities.member(tasks::EXTENSIONS).filter(Json::is_object);
    let each = extensions.iter().flat_map(Json::members);
    let each: Vec<_> =
        each.map(|(name, value)| (format!("{}/{name}", tasks::EXTENSIONS).into(), value)).collect();
    let other = |name: &str, value: &Json| name != tasks::EXTENSIONS || !value.is_object();
    capabilities.members().filter(move |(name, value)| other(name, value)).chain(each)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::Lack;
    use crate::model::clock::cpu_time;
    use crate::model::tenant;
    use crate::protocol::call::Outcome;
    use crate::protocol::call::RpcError;
    use crate::protocol::code;
    use crate::protocol::json::Json;
    use crate::protocol::methods::Method;
    use crate::telemetry::metrics::Metrics;

    fn json(text: String) -> Json {
        Json::parse(Bytes::from(text), 64).unwrap()
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
        let declared = json(format!(
            r#"{{"roots":7,"elicitation":{{}},"extensions":{{"a/b":{{}},"a/d":1}},{}}}"#,
            many(0, 100_000)
        ));
        let config = tenant::Backend::demo("crm");
        let lack = Lack { method: Method::ToolsCall, declared, config: Arc::new(config) };
        let metrics = Metrics::new();
        let before = cpu_time();
        for (required, expected) in [
            (r#""elicitation":{}"#.to_owned(), code::INTERNAL_ERROR),
            (r#""elicitation":{},"sampling":{}"#.to_owned(), code::MISSING_CAPABILITY),
            (r#""roots":{}"#.to_owned(), code::MISSING_CAPABILITY),
            (r#""extensions":{"a/b":{}}"#.to_owned(), code::INTERNAL_ERROR),
            (r#""extensions":{"a/b":{},"a/c":{}}"#.to_owned(), code::MISSING_CAPABILITY),
            (r#""extensions":{"a/d":{}}"#.to_owned(), code::MISSING_CAPABILITY),
            (many(99_936, 64), code::INTERNAL_ERROR),
            (many(99_937, 64), code::MISSING_CAPABILITY),
            (many(50_000, 100_000), code::INTERNAL_ERROR),
        ] {
            let outcome = lack.judge(Outcome::Error(error(required.clone())), &metrics);
            let Outcome::Error(error) = outcome else { panic!("an error stays one") };
            assert_eq!(error.code, expected, "{required:.100}");
        }
        assert!(cpu_time() - before < Duration::from_secs(5), "{:?}", cpu_time() - before);
    }

    #[test]
    fn each_extension_is_a_capability_of_its_own() {
        let declared = json(r#"{"extensions":{"a":{},"c":1}}"#.to_owned());
        let config = Arc::new(tenant::Backend::demo("crm"));
        let lack = Lack { method: Method::ToolsCall, declared, config };
        let metrics = Metrics::new();
        for (required, expected) in [
            (r#"{"extensions":{"a":{}}}"#, code::INTERNAL_ERROR),
            (r#"{"extensions":{"a":{},"b":{}}}"#, code::MISSING_CAPABILITY),
            (r#"{"extensions":{"c":{}}}"#, code::MISSING_CAPABILITY),
            (r#"{"extensions":{}}"#, code::INTERNAL_ERROR),
            (r#"{"b":{}}"#, code::MISSING_CAPABILITY),
        ] {
            let data = Some(json(format!(r#"{{"requiredCapabilities":{required}}}"#)));
            let error = RpcError { code: code::MISSING_CAPABILITY, message: "theirs".into(), data };
            let Outcome::Error(error) = lack.judge(Outcome::Error(error), &metrics) else {
                panic!("{required}")
            };
            assert_eq!(error.code, expected, "{required}");
        }
    }
}
