//! `[telemetry]`: logs and traces.

use url::Url;

use crate::config::public;
use crate::config::reader::At;

/// What is told about the process while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// How a log line looks.
    pub log: LogFormat,
    /// Which log lines are written, in `tracing`'s filter syntax.
    pub level: String,
    /// Where traces go, over OTLP and HTTP; nowhere where absent.
    pub otlp: Option<Url>,
    /// The keys of W3C baggage that go on to backends.
    pub baggage: Vec<String>,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { log: LogFormat::Text, level: "info".to_owned(), otlp: None, baggage: Vec::new() }
    }
}

impl Telemetry {
    /// The keys of this section.
    pub const NAMES: &[&str] = &["log", "level", "otlp", "baggage"];

    pub(crate) fn read(at: &At<'_>) -> Option<Self> {
        let fields = at.map(Self::NAMES)?;
        let log = fields.need("log")?.word(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
        let level = fields.need("level").and_then(|at| level(&at));
        let otlp = match fields.get("otlp") {
            Some(at) => Some(public::link(&at)?.1),
            None => None,
        };
        let baggage = fields.get("baggage").map_or_else(|| Some(Vec::new()), |at| baggage(&at));
        Some(Self { log: log?, level: level?, otlp, baggage: baggage? })
    }
}

/// spec: W3C Baggage, 3.3.1
fn baggage(at: &At<'_>) -> Option<Vec<String>> {
    let items = at.list();
    let is_key = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let key = |at: &At<'_>| {
        let text = at.filled()?;
        match is_key(text) {
            true => Some(text.to_owned()),
            false => at.refuse(format!("found `{text}`, which is no key of W3C baggage")),
        }
    };
    let keys: Vec<_> = items.iter().filter_map(key).collect();
    (keys.len() == items.len()).then_some(keys)
}

fn level(at: &At<'_>) -> Option<String> {
    let text = at.filled()?;
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Some(text.to_owned()),
        Err(_) => at.refuse_hint(
            format!("found `{text}`, which is no log filter"),
            "for example `info` or `info,fondaco=debug`",
        ),
    }
}
