//! What authentication counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::telemetry::metrics::ByOutcome;
use crate::telemetry::metrics::ByResult;
use crate::telemetry::metrics::Outcome;

/// The instruments of authentication.
#[derive(Default)]
pub struct AuthMetrics {
    token_cache: Family<ByResult, Counter>,
    key_fetches: Family<ByOutcome, Counter>,
    introspections: Family<ByOutcome, Counter>,
}

impl AuthMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("token_cache", "Lookups of verified tokens", self.token_cache.clone());
        registry.register("key_fetches", "Fetches of issuers' metadata and keys", self.key_fetches.clone());
        // Told from the start, not from the first question on.
        for outcome in [Outcome::Ok, Outcome::Failed, Outcome::TimedOut] {
            drop(self.introspections.get_or_create(&ByOutcome { outcome: outcome.as_str() }));
        }
        registry.register(
            "introspections",
            "Tokens that issuers were asked about",
            self.introspections.clone(),
        );
    }

    /// A token was looked up among the verified ones.
    pub fn token_cache(&self, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.token_cache.get_or_create(&ByResult { result }).inc();
    }

    /// An issuer was asked for metadata or keys.
    pub fn key_fetch(&self, outcome: Outcome) {
        self.key_fetches.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    /// An issuer was asked about a token.
    pub fn introspection(&self, outcome: Outcome) {
        self.introspections.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }
}
