//! What is said and counted of a request, once, when its answer has ended or was given up.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

use http::request::Parts;
use tokio::time::Instant;
use tracing::Span;

use crate::app::App;
use crate::pipeline::Trail;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::Open;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::request::PathKind;
use crate::telemetry::request::RequestLine;
use crate::telemetry::request::Target;
use crate::telemetry::request::subject;

/// The log of one request; clones are the same one, and the last one that is dropped speaks.
#[derive(Clone)]
pub struct RequestLog(Arc<Entry>);

struct Entry {
    metrics: Arc<Metrics>,
    started: Instant,
    line: Mutex<(RequestLine, Outcome)>,
    span: OnceLock<Span>,
    _in_flight: Open,
}

impl RequestLog {
    /// Begins with the head of a request.
    pub fn begin(app: &App, parts: &Parts, path: PathKind) -> Self {
        let line = RequestLine { http_method: parts.method.to_string(), path, ..RequestLine::default() };
        Self::new(&app.metrics, line)
    }

    fn new(metrics: &Arc<Metrics>, line: RequestLine) -> Self {
        Self(Arc::new(Entry {
            metrics: metrics.clone(),
            started: Instant::now(),
            // Until somebody says otherwise, the client has left.
            line: Mutex::new((line, Outcome::Cancelled)),
            span: OnceLock::new(),
            _in_flight: metrics.request_in_flight(),
        }))
    }

    fn with(&self, change: impl FnOnce(&mut RequestLine, &mut Outcome)) {
        let mut entry = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        let (line, outcome) = &mut *entry;
        change(line, outcome);
    }

    /// Where the road leaves what it learns, also if it is left before its end.
    pub fn trail(&self) -> Learning {
        Learning { trail: Trail::default(), log: self.clone() }
    }

    /// What the road learnt; the request's span lasts as long as its log.
    fn learn(&self, trail: &Trail) {
        let facts = &trail.facts;
        let _ = self.0.span.set(trail.span.clone());
        self.with(|line, _| {
            line.tenant.clone_from(&facts.tenant);
            line.bytes_in = facts.bytes_in as u64;
            line.rpc_method = facts.method.map(str::to_owned);
            line.backend.clone_from(&facts.backend);
            line.target = facts.target.as_deref().map(|name| Target::Name(name.to_owned()));
            line.subject = facts.caller.as_ref().map(|caller| subject(&caller.issuer, &caller.subject));
            line.trace_id.clone_from(&facts.trace_id);
        });
    }

    /// The status, once the head of the answer is decided.
    pub fn status(&self, status: http::StatusCode) {
        self.with(|line, _| line.status = status.as_u16());
    }

    /// Bytes of the answer's body that were handed on.
    pub fn sent(&self, bytes: usize) {
        self.with(|line, _| line.bytes_out += bytes as u64);
    }

    /// How it ended.
    pub fn ended(&self, outcome: Outcome) {
        self.with(|_, ended| *ended = outcome);
    }

    /// It ended in a refusal of this kind.
    pub fn refused(&self, kind: &'static str, outcome: Outcome) {
        self.0.metrics.refusal(kind);
        self.with(|line, ended| {
            line.refusal = Some(kind);
            *ended = outcome;
        });
    }

    /// It failed on our side or the backend's, for this reason.
    pub fn failed(&self, error: String) {
        self.with(|line, _| line.error = Some(error));
    }

    /// Counts an open stream for as long as the guard lives.
    pub fn stream_open(&self) -> Open {
        self.0.metrics.stream_open()
    }
}

/// What the road learns of a request. When it is dropped, the request's log knows it.
pub struct Learning {
    /// What was learnt so far.
    pub trail: Trail,
    log: RequestLog,
}

impl Drop for Learning {
    fn drop(&mut self) {
        self.log.learn(&self.trail);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (line, outcome) = self.line.get_mut().unwrap_or_else(PoisonError::into_inner);
        line.duration = self.started.elapsed();
        // What dies by a fault of ours has not been left by its client.
        if std::thread::panicking() {
            (line.status, *outcome) = (500, Outcome::Failed);
        }
        line.outcome = Some(outcome.as_str());
        line.emit();
        self.metrics.request(line.rpc_method.as_deref(), *outcome, line.duration);
    }
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;

    use super::RequestLog;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::metrics::Outcome;
    use crate::telemetry::request::RequestLine;

    #[test]
    fn a_request_that_panics_has_failed_and_one_that_is_dropped_was_left() {
        let metrics = Arc::new(Metrics::new());
        let log = || RequestLog::new(&metrics, RequestLine::default());
        drop(log());
        log().ended(Outcome::Ok);
        let died = panic::catch_unwind(AssertUnwindSafe(|| {
            let _log = log();
            panic!("as a fault of ours would");
        }));
        assert!(died.is_err());
        for outcome in ["cancelled", "ok", "failed"] {
            let series = format!("fondaco_requests_total{{method=\"none\",outcome=\"{outcome}\"}} 1");
            assert!(metrics.encode().contains(&series), "{outcome}");
        }
        assert!(metrics.encode().contains("fondaco_requests_in_flight 0"));
    }
}
