//! What the cache of results counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use prometheus_client::registry::Unit;

use crate::telemetry::metrics::ByResult;

/// The instruments of the cache.
#[derive(Default)]
pub struct CacheMetrics {
    lookups: Family<ByResult, Counter>,
    evictions: Counter,
    bytes: Gauge,
}

impl CacheMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Told from the start, not from the first read on.
        ["hit", "miss"].into_iter().for_each(|result| drop(self.lookups.get_or_create(&ByResult { result })));
        registry.register("cache", "Lookups of kept results", self.lookups.clone());
        let help = "Kept results that had to make room for others";
        registry.register("cache_evictions", help, self.evictions.clone());
        registry.register_with_unit("cache", "What kept results weigh", Unit::Bytes, self.bytes.clone());
    }

    /// A result was looked up among those that are kept.
    pub fn looked(&self, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.lookups.get_or_create(&ByResult { result }).inc();
    }

    /// So many kept results had to make room for others.
    pub fn evicted(&self, results: u64) {
        self.evictions.inc_by(results);
    }

    /// So much do all kept results weigh now.
    pub fn weigh(&self, bytes: usize) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
