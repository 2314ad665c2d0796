//! `resources/read`: what a resource has in it.

use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::hinted;
use crate::methods::links::Links;
use crate::methods::may_be_public;
use crate::methods::rounds::Rounds;
use crate::methods::rounds::Sealing;
use crate::model::limits::Limits;
use crate::protocol::caching;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::telemetry::metrics::Metrics;

/// Reads `resource` from its backend.
///
/// spec: server/resources, Reading Resources
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream.
pub async fn answer(
    exchange: &Exchange,
    resource: &Entry,
    snapshot: &Arc<Snapshot>,
    sealing: &Sealing,
    limits: &Limits,
    metrics: &Arc<Metrics>,
) -> Result<Reply<CallError>, CallError> {
    let (rounds, retry) = Rounds::begin(exchange, resource, sealing, limits, metrics)?;
    let links = Links::of(resource, snapshot);
    let (public, uri) = (may_be_public(exchange), resource.public.clone());
    let finish = move |outcome| {
        Ok(match rounds.settle(links.change(outcome, Links::contents), &links)? {
            Outcome::Result(result) => Outcome::Result(cacheable(&result, public)),
            Outcome::Error(error) => Outcome::Error(not_found(error, &uri)),
            other @ (Outcome::Asks(_) | Outcome::Task(_)) => other,
        })
    };
    let sent = Sent { retry, ..Sent::plain(exchange.call.params.clone()) };
    forward(exchange, resource, sent, finish, limits, metrics).await
}

/// A result with what its backend says of keeping it, within bounds; shared only where both say so.
///
/// spec: server/utilities/caching, Cacheable Results
fn cacheable(result: &Json, public: bool) -> Json {
    let mut whole = Object::with_capacity(result.bytes().len() + 64);
    for (key, value) in result.members().filter(|(key, _)| !matches!(&**key, "ttlMs" | "cacheScope")) {
        whole = whole.put(&key, &value);
    }
    let ttl_ms = caching::ttl_ms(result).unwrap_or(0);
    hinted(whole, ttl_ms, public && caching::is_public(result)).finish()
}

/// An error about what was asked for says which that was, as the client knows it.
///
/// spec: server/resources, Error Handling
fn not_found(error: RpcError, uri: &str) -> RpcError {
    let told = error.data.as_ref().and_then(|data| data.member(code::UPSTREAM_CODE)?.integer());
    let older = error.code == code::INTERNAL_ERROR && told == Some(code::RESOURCE_NOT_FOUND);
    if error.code != code::INVALID_PARAMS && !older {
        return error;
    }
    let data = error.data.filter(Json::is_object).unwrap_or_else(|| Object::new().finish());
    let others = data.members().filter(|(key, _)| key != "uri");
    let data = others.fold(Object::new().put_str("uri", uri), |all, (key, value)| all.put(&key, &value));
    RpcError { code: code::INVALID_PARAMS, message: error.message, data: Some(data.finish()) }
}
