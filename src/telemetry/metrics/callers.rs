//! What the catalogs of single callers count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use prometheus_client::registry::Unit;

use crate::telemetry::metrics::ByOutcome;
use crate::telemetry::metrics::Outcome;

/// The instruments of what backends list for single callers.
#[derive(Default)]
pub struct CallerMetrics {
    loads: Family<ByOutcome, Counter>,
    evictions: Counter,
    catalogs: Gauge,
    bytes: Gauge,
}

impl CallerMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Told from the start, not from the first one on.
        let outcomes = [Outcome::Ok.as_str(), Outcome::Failed.as_str()];
        outcomes.into_iter().for_each(|outcome| drop(self.loads.get_or_create(&ByOutcome { outcome })));
        let help = "Times that a backend was asked what it lists for a caller";
        registry.register("caller_catalog_loads", help, self.loads.clone());
        let help = "Catalogs of callers that had to make room for others";
        registry.register("caller_catalog_evictions", help, self.evictions.clone());
        registry.register("caller_catalogs", "Catalogs of callers that are kept", self.catalogs.clone());
        let help = "What the catalogs of callers weigh, by an estimate";
        registry.register_with_unit("caller_catalog", help, Unit::Bytes, self.bytes.clone());
    }

    /// A backend was asked what it lists for a caller.
    pub fn loaded(&self, outcome: Outcome) {
        self.loads.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    /// So many had to make room for others.
    pub fn evicted(&self, catalogs: u64) {
        self.evictions.inc_by(catalogs);
    }

    /// So many are kept now, which weigh so much together.
    pub fn kept(&self, catalogs: usize, bytes: usize) {
        self.catalogs.set(i64::try_from(catalogs).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
