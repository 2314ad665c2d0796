//! How long a result may be kept, as its sender says it.

use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// The longest `ttlMs` that is believed: an hour.
pub const MOST_TTL_MS: u64 = 3_600_000;

/// The `ttlMs` of a result, if it has one, within bounds.
///
/// spec: server/utilities/caching, Time-to-Live (TTL) Field
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
pub fn ttl_ms(result: &Json) -> Option<u64> {
    let ttl = result.member("ttlMs").filter(|ttl| ttl.kind() == Kind::Number)?;
    let ttl: f64 = ttl.text().parse().ok()?;
    Some(ttl.clamp(0.0, MOST_TTL_MS as f64) as u64)
}

/// Whether a result says that anybody may be shown it.
///
/// spec: server/utilities/caching, Cache Scope Field
pub fn is_public(result: &Json) -> bool {
    result.member("cacheScope").is_some_and(|scope| scope.string_ref().is_some_and(|scope| scope == "public"))
}
