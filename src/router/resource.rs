//! `resources/read`: which resource.

use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::policy::Operation;
use crate::router::RouteError;
use crate::router::check_retry;
use crate::router::may;

/// The resource that a request names, listed or not, if this caller may read it.
pub(super) fn resource(snapshot: &Snapshot, exchange: &Exchange) -> Result<Arc<Entry>, RouteError> {
    let call = &exchange.call;
    let found = call.name.as_deref().and_then(|uri| snapshot.resource(uri));
    let allowed = may(exchange, Operation::Read, found.as_ref())?;
    let Some(uri) = &call.name else {
        return Err(RouteError::InvalidParams("`params.uri` must be a string"));
    };
    check_retry(&call.params)?;
    found.filter(|_| allowed).ok_or_else(|| RouteError::UnknownResource { uri: uri.to_string() })
}
