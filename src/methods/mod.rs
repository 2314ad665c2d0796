//! The methods that are served, one file each.

pub mod complete;
mod declare;
pub mod discover;
mod forward;
mod links;
pub mod lists;
pub mod prompts_get;
pub mod resources_read;
pub mod rounds;
pub mod tools_call;

use std::time::Duration;

use crate::backend::BackendError;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::endpoint::Owner;
use crate::model::limits::Limits;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;
use crate::router::RouteError;

/// Why a method has no answer. `Display` is what the caller reads.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The target, or what the request says about it.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// No answer from the backend.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// The `_meta` of a result that is ours alone.
fn own_meta() -> Json {
    Object::new().put(SERVER_INFO, &our_info()).finish()
}

/// How long a list may be kept while a backend has never been listed: it will be there any moment.
const INCOMPLETE_TTL: Duration = Duration::from_secs(1);

/// Adds what makes a result cacheable.
///
/// spec: server/utilities/caching, Cacheable Model
fn cacheable(object: Object, exchange: &Exchange, snapshot: &Snapshot, limits: &Limits) -> Object {
    let ttl = if snapshot.complete { limits.list_ttl } else { INCOMPLETE_TTL };
    hinted(object, u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), may_be_public(exchange))
}

/// Whether anything may be shown to everybody who reaches this endpoint.
fn may_be_public(exchange: &Exchange) -> bool {
    // Never public where the tenant is told by the token: a shared cache keys by URL alone.
    exchange.endpoint.owner != Owner::Shared && exchange.tenant.is_public()
}

fn hinted(object: Object, ttl_ms: u64, public: bool) -> Object {
    object.put_u64("ttlMs", ttl_ms).put_str("cacheScope", if public { "public" } else { "private" })
}
