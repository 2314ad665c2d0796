//! The methods that are served, one file each.

pub mod discover;
pub mod tools_call;
pub mod tools_list;

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
    // Never public where the tenant is told by the token: a shared cache keys by URL alone.
    let public = exchange.endpoint.owner != Owner::Shared && exchange.tenant.is_public();
    object
        .put_u64("ttlMs", u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
        .put_str("cacheScope", if public { "public" } else { "private" })
}
