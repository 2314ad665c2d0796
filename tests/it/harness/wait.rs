//! Waiting for what happens soon, without saying when.

use std::time::Duration;

/// Waits until `holds`; panics with `what` after 20 s.
pub async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waited.unwrap_or_else(|_| panic!("not within 20 s: {what}"));
}
