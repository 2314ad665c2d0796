//! Traces: one span for each MCP request, in the trace that its client began.
//!
//! spec: basic/index, _meta: traceparent (W3C Trace Context)

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";

/// Whether spans go anywhere; without a collector none are made.
static EXPORTING: AtomicBool = AtomicBool::new(false);

/// Spans go to a collector from now on.
pub(super) fn exporting() {
    EXPORTING.store(true, Ordering::Relaxed);
}

/// The span of a request, named by the MCP and GenAI semantic conventions, as a child of the
/// client's `traceparent`. Disabled where nothing is exported.
pub fn request(method: &'static str, traceparent: Option<&str>) -> Span {
    if !EXPORTING.load(Ordering::Relaxed) {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: "fondaco",
        "request",
        otel.name = method,
        otel.kind = "server",
        mcp.method.name = method,
        gen_ai.tool.name = tracing::field::Empty,
    );
    if let Some(parent) = traceparent {
        let carrier = HashMap::from([(TRACEPARENT.to_owned(), parent.to_owned())]);
        // A span that was never entered takes a parent.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
    }
    span
}

/// Says which tool it is, once it is known to be one.
pub fn tool(span: &Span, name: &str) {
    span.record("gen_ai.tool.name", name);
}

/// What a backend gets as `traceparent`, so that its spans are children of `span`.
pub fn traceparent(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}
