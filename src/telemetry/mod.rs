//! What the process says about itself: logs, traces, [`metrics`] and one line per [`request`].

mod lines;
pub mod metrics;
pub mod request;
pub mod trace;

use std::io;
use std::thread;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use url::Url;

use crate::config::telemetry::LogFormat;
use crate::config::telemetry::Telemetry;
use crate::telemetry::lines::Lines;
use crate::telemetry::lines::LinesGuard;

const SERVICE: &str = env!("CARGO_PKG_NAME");
const SHUTDOWN_TIME: Duration = Duration::from_secs(3);

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Directives that cannot be read.
    #[error("the log filter is not valid")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// A collector that is not reached in clear text: the exporter speaks no TLS.
    #[error("the OTLP endpoint must be an `http://` URL: put a collector near the gateway")]
    OtlpScheme,
    /// An exporter that cannot be made.
    #[error("traces cannot be sent to the OTLP endpoint")]
    Otlp(#[source] opentelemetry_otlp::ExporterBuildError),
    /// The exporter's thread could not be started, or died.
    #[error("the trace exporter did not start")]
    Exporter,
    /// Telemetry was started before.
    #[error("telemetry is already running")]
    AlreadyRunning(#[source] tracing_subscriber::util::TryInitError),
}

/// Keeps telemetry running; dropping it sends what is not sent yet, for at most 3 s. Keep it
/// outside the async runtime: the drop blocks.
#[must_use = "dropping the guard ends telemetry"]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    /// Writes what is still queued when it is dropped, for at most about a second.
    _lines: LinesGuard,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(provider) = self.traces.take() else { return };
        // The exporter's client blocks, and must not be dropped on a runtime's thread.
        let ended = thread::spawn(move || provider.shutdown_with_timeout(SHUTDOWN_TIME)).join();
        if let Ok(Err(error)) = ended {
            tracing::warn!(error = &error as &dyn std::error::Error, "the last traces were not sent");
        }
    }
}

/// Starts logs, and traces where there is a collector, for the whole process, once.
pub fn init(settings: &Telemetry) -> Result<Guard, TelemetryError> {
    let filter = EnvFilter::try_new(&settings.level).map_err(TelemetryError::Filter)?;
    let provider = settings.otlp.as_ref().map(provider).transpose()?;
    let traces = provider.as_ref().map(|provider| {
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let own = Targets::new().with_target(SERVICE, LevelFilter::INFO);
        tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE)).with_filter(own)
    });
    let (writer, lines_guard) = Lines::start(io::stderr(), dropped_note(settings.log));
    tracing_subscriber::registry()
        .with(filter)
        .with(lines(settings.log, writer))
        .with(traces)
        .try_init()
        .map_err(TelemetryError::AlreadyRunning)?;
    if provider.is_some() {
        trace::exporting();
    }
    Ok(Guard { traces: provider, _lines: lines_guard })
}

/// The line that says that lines are missing.
fn dropped_note(format: LogFormat) -> fn(u64) -> String {
    match format {
        LogFormat::Text => |dropped| format!(" WARN {dropped} log lines were dropped"),
        LogFormat::Json => {
            |dropped| format!(r#"{{"level":"WARN","message":"log lines were dropped","dropped":{dropped}}}"#)
        }
    }
}

fn lines<S>(format: LogFormat, writer: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).boxed(),
    }
}

fn provider(collector: &Url) -> Result<SdkTracerProvider, TelemetryError> {
    let endpoint = traces_endpoint(collector)?;
    // The exporter's client blocks, and cannot be made on a runtime's thread.
    let built = thread::spawn(move || SpanExporter::builder().with_http().with_endpoint(endpoint).build());
    let exporter = built.join().map_err(|_| TelemetryError::Exporter)?.map_err(TelemetryError::Otlp)?;
    let resource = Resource::builder().with_service_name(SERVICE).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// A base URL gets the path that OTLP gives to traces; a full one is kept.
fn traces_endpoint(collector: &Url) -> Result<String, TelemetryError> {
    if collector.scheme() != "http" {
        return Err(TelemetryError::OtlpScheme);
    }
    let base = collector.as_str().trim_end_matches('/');
    Ok(if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") })
}

#[cfg(test)]
mod tests {
    use super::traces_endpoint;

    #[test]
    fn a_base_url_gets_the_traces_path() {
        for (given, used) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/otel/", "http://collector:4318/otel/v1/traces"),
            ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        ] {
            assert_eq!(traces_endpoint(&given.parse().unwrap()).unwrap(), used);
        }
        assert!(traces_endpoint(&"https://collector:4318".parse().unwrap()).is_err());
    }
}
