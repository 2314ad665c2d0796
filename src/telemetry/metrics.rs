//! Every metric, by name, unit and labels. docs/reference/metrics.md is the same list.
//!
//! A label's value is program text (`&'static str`), never input: no label is unbounded.

pub mod asks;
pub mod auth;
mod callers;
mod kept;
mod register;
mod store;

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::telemetry::metrics::asks::Asks;
use crate::telemetry::metrics::auth::AuthMetrics;

pub use crate::telemetry::metrics::callers::CallerMetrics;
pub use crate::telemetry::metrics::kept::CacheMetrics;
pub use crate::telemetry::metrics::store::StoreMetrics;

/// The media type of [`Metrics::encode`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

// spec: server/*, client/*, basic/utilities: the methods that get a label of their own.
const METHODS: [&str; 17] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
];

/// How a request or an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered with a result.
    Ok,
    /// Answered with a JSON-RPC error or an `isError` result that we only carried.
    Error,
    /// Refused by us: the caller's fault.
    Refused,
    /// Failed by us or by a backend.
    Failed,
    /// Not in time.
    TimedOut,
    /// The other side left first.
    Cancelled,
}

impl Outcome {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What a probe of a backend's era found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probed {
    /// The modern era.
    Modern,
    /// The handshake era.
    Handshake,
    /// Nothing.
    Failed,
}

impl Probed {
    fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Handshake => "handshake",
            Self::Failed => "failed",
        }
    }
}

/// What happened to a session with a backend of the handshake era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEvent {
    /// It was opened.
    Opened,
    /// It was opened in place of one that the backend did not know any more.
    Reopened,
    /// It could not be opened.
    Failed,
    /// It is over.
    Ended,
}

impl SessionEvent {
    fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Reopened => "reopened",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEvent {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMethod {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMethodAndOutcome {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

type Seconds = Family<ByMethod, Histogram, fn() -> Histogram>;

/// The instruments of one process.
pub struct Metrics {
    registry: Registry,
    requests: Family<ByMethodAndOutcome, Counter>,
    request_seconds: Seconds,
    requests_in_flight: Gauge,
    connections_open: Gauge,
    streams_open: Gauge,
    session_streams_open: Gauge,
    listens_open: Gauge,
    notifications_sent: Family<ByKind, Counter>,
    sessions_opened: Counter,
    sessions_ended: Counter,
    refusals: Family<ByKind, Counter>,
    /// What authentication counts.
    pub auth: AuthMetrics,
    upstream_requests: Family<ByOutcome, Counter>,
    upstream_seconds: Histogram,
    upstream_probes: Family<ByResult, Counter>,
    upstream_sessions: Family<ByEvent, Counter>,
    parked_calls: Gauge,
    /// Subscriptions to backends' changes that are open, or being opened.
    pub upstream_watches_open: Gauge,
    catalog_refreshes: Family<ByOutcome, Counter>,
    /// Backends whose last refresh failed.
    pub catalogs_stale: Gauge,
    entries_left_out: Counter,
    tool_aliases: Counter,
    /// What the cache counts.
    pub cache: CacheMetrics,
    /// What the catalogs of single callers count.
    pub callers: CallerMetrics,
    config_reloads: Family<ByOutcome, Counter>,
    /// What reading tenants from the database counts.
    pub store: StoreMetrics,
    panics: Counter,
    /// What backends ask of clients.
    pub asks: Asks,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All instruments, at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("fondaco"),
            requests: Family::default(),
            request_seconds: Seconds::new_with_constructor(seconds),
            requests_in_flight: Gauge::default(),
            connections_open: Gauge::default(),
            streams_open: Gauge::default(),
            session_streams_open: Gauge::default(),
            listens_open: Gauge::default(),
            notifications_sent: Family::default(),
            sessions_opened: Counter::default(),
            sessions_ended: Counter::default(),
            refusals: Family::default(),
            auth: AuthMetrics::default(),
            upstream_requests: Family::default(),
            upstream_seconds: seconds(),
            upstream_probes: Family::default(),
            upstream_sessions: Family::default(),
            parked_calls: Gauge::default(),
            upstream_watches_open: Gauge::default(),
            catalog_refreshes: Family::default(),
            catalogs_stale: Gauge::default(),
            entries_left_out: Counter::default(),
            tool_aliases: Counter::default(),
            cache: CacheMetrics::default(),
            callers: CallerMetrics::default(),
            config_reloads: Family::default(),
            store: StoreMetrics::default(),
            panics: Counter::default(),
            asks: Asks::default(),
        };
        metrics.register_road();
        metrics.register_sessions();
        metrics.register_rooms();
        metrics.asks.register(&mut metrics.registry);
        metrics.cache.register(&mut metrics.registry);
        metrics.callers.register(&mut metrics.registry);
        metrics.store.register(&mut metrics.registry);
        metrics
    }

    /// A tool was called by its backend's own name.
    pub fn tool_alias(&self) {
        self.tool_aliases.inc();
    }

    /// A request was answered. A method that MCP does not know counts as `other`.
    pub fn request(&self, method: Option<&str>, outcome: Outcome, time: Duration) {
        let method = method_label(method);
        self.requests.get_or_create(&ByMethodAndOutcome { method, outcome: outcome.as_str() }).inc();
        self.request_seconds.get_or_create(&ByMethod { method }).observe(time.as_secs_f64());
    }

    /// A request is being answered until the guard is dropped.
    pub fn request_in_flight(&self) -> Open {
        Open::new(&self.requests_in_flight)
    }

    /// An SSE answer is open until the guard is dropped.
    pub fn stream_open(&self) -> Open {
        Open::new(&self.streams_open)
    }

    /// A session was opened.
    pub fn session_opened(&self) {
        self.sessions_opened.inc();
    }

    /// A session was ended by its client.
    pub fn session_ended(&self) {
        self.sessions_ended.inc();
    }

    /// A session's GET stream is open until the guard is dropped.
    pub fn session_stream_open(&self) -> Open {
        Open::new(&self.session_streams_open)
    }

    /// An answer to `subscriptions/listen` is open until the guard is dropped.
    pub fn listen_open(&self) -> Open {
        Open::new(&self.listens_open)
    }

    /// A listener was told of a change of this kind.
    pub fn notification_sent(&self, kind: &'static str) {
        self.notifications_sent.get_or_create(&ByKind { kind }).inc();
    }

    /// The gauge of open client connections, for `edge::accept`.
    pub fn connections(&self) -> Gauge {
        self.connections_open.clone()
    }

    /// A request was refused. `kind` names the refusal's variant.
    pub fn refusal(&self, kind: &'static str) {
        self.refusals.get_or_create(&ByKind { kind }).inc();
    }

    /// A backend was asked.
    pub fn upstream(&self, outcome: Outcome, time: Duration) {
        self.upstream_requests.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
        self.upstream_seconds.observe(time.as_secs_f64());
    }

    /// A backend was probed for its era.
    pub fn probe(&self, found: Probed) {
        self.upstream_probes.get_or_create(&ByResult { result: found.as_str() }).inc();
    }

    /// A call waits for what was asked of its client until the guard is dropped.
    pub fn parked_call(&self) -> Open {
        Open::new(&self.parked_calls)
    }

    /// Something happened to a session with a backend.
    pub fn upstream_session(&self, event: SessionEvent) {
        self.upstream_sessions.get_or_create(&ByEvent { event: event.as_str() }).inc();
    }

    /// A backend was asked for its list of tools.
    pub fn catalog_refresh(&self, outcome: Outcome) {
        self.catalog_refreshes.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    /// So many entries of backends' lists were found that have to be left out.
    pub fn entries_left_out(&self, entries: u64) {
        self.entries_left_out.inc_by(entries);
    }

    /// The tenants file was read again.
    pub fn config_reload(&self, outcome: Outcome) {
        self.config_reloads.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    /// A request died by a fault of ours.
    pub fn panic(&self) {
        self.panics.inc();
    }

    /// Everything, in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("a String takes every write");
        out
    }
}

/// One more in a gauge, until it is dropped.
#[must_use = "dropping it counts down again"]
pub struct Open(Gauge);

impl Open {
    /// Counts one more in `gauge`.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn method_label(method: Option<&str>) -> &'static str {
    let Some(method) = method else { return "none" };
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::Metrics;
    use super::Outcome;
    use super::Probed;
    use super::SessionEvent;

    const PAGE: &str = include_str!("../../docs/reference/metrics.md");

    #[test]
    fn the_page_and_the_registry_name_the_same_metrics() {
        let metrics = Metrics::new();
        // A metric with labels is told from its first value on.
        metrics.request(None, Outcome::Ok, Duration::ZERO);
        metrics.refusal("x");
        metrics.notification_sent("x");
        metrics.auth.token_cache(true);
        metrics.auth.key_fetch(Outcome::Ok);
        metrics.auth.introspection(Outcome::Ok);
        metrics.upstream(Outcome::Ok, Duration::ZERO);
        metrics.probe(Probed::Modern);
        metrics.upstream_session(SessionEvent::Opened);
        metrics.catalog_refresh(Outcome::Ok);
        metrics.cache.looked(true);
        metrics.config_reload(Outcome::Ok);
        metrics.asks.deprecated("x");
        metrics.asks.refused("x");
        let encoded = metrics.encode();
        let typed = encoded.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let registered: BTreeSet<String> = typed
            .map(|line| match line.split_once(' ') {
                Some((name, "counter")) => format!("{name}_total"),
                Some((name, _)) => name.to_owned(),
                None => panic!("{line}"),
            })
            .collect();
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let documented: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
        assert_eq!(documented, registered);
    }

    #[test]
    fn a_client_cannot_invent_a_label() {
        let metrics = Metrics::new();
        for i in 0..100 {
            metrics.request(Some(&format!("x/{i}")), Outcome::Refused, Duration::from_millis(3));
        }
        metrics.request(Some("tools/call"), Outcome::Ok, Duration::from_millis(3));
        let encoded = metrics.encode();
        assert!(
            encoded.contains(r#"fondaco_requests_total{method="other",outcome="refused"} 100"#),
            "{encoded}"
        );
        assert!(
            encoded.contains(r#"fondaco_requests_total{method="tools/call",outcome="ok"} 1"#),
            "{encoded}"
        );
        assert!(!encoded.contains("x/1"));
    }

    #[test]
    fn gauges_come_back() {
        let metrics = Metrics::new();
        let open = (metrics.stream_open(), metrics.request_in_flight());
        assert!(metrics.encode().contains("fondaco_streams_open 1"));
        drop(open);
        assert!(metrics.encode().contains("fondaco_streams_open 0"));
    }
}
