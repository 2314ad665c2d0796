//! What reading tenants from the database counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::telemetry::metrics::ByOutcome;
use crate::telemetry::metrics::Outcome;

/// The instruments of serving from the database.
#[derive(Default)]
pub struct StoreMetrics {
    reads: Family<ByOutcome, Counter>,
    refused: Gauge,
}

impl StoreMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Told from the start, not from the first reading on.
        for outcome in [Outcome::Ok, Outcome::Failed] {
            drop(self.reads.get_or_create(&ByOutcome { outcome: outcome.as_str() }));
        }
        registry.register("tenant_reads", "Readings of tenants from the database", self.reads.clone());
        let help = "Tenants that stay what they were, since their rows do not load";
        registry.register("tenants_refused", help, self.refused.clone());
    }

    /// Tenants were read, or could not be.
    pub fn read(&self, outcome: Outcome) {
        self.reads.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    /// So many tenants do not load.
    pub fn refused(&self, tenants: usize) {
        self.refused.set(i64::try_from(tenants).unwrap_or(i64::MAX));
    }
}
