//! What backends ask of clients, as far as it is counted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFeature {
    feature: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// The instruments for what backends ask of clients.
#[derive(Default)]
pub struct Asks {
    deprecated: Family<ByFeature, Counter>,
    refused: Family<ByReason, Counter>,
}

impl Asks {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Told from the start, not from the first time on.
        ["sampling", "roots", "include_context"]
            .into_iter()
            .for_each(|feature| drop(self.deprecated.get_or_create(&ByFeature { feature })));
        ["forms", "urls", "sampling", "roots", "secret", "url", "capability", "rounds"]
            .into_iter()
            .for_each(|reason| drop(self.refused.get_or_create(&ByReason { reason })));
        let help = "Uses of features that the protocol has deprecated";
        registry.register("deprecated_uses", help, self.deprecated.clone());
        let help = "What backends asked of clients and may not, by what refused it";
        registry.register("asks_refused", help, self.refused.clone());
    }

    /// A feature was used that the protocol has deprecated.
    pub fn deprecated(&self, feature: &'static str) {
        self.deprecated.get_or_create(&ByFeature { feature }).inc();
    }

    /// A backend asked for what it may not have.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ByReason { reason }).inc();
    }
}
