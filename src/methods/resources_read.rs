//! `resources/read`: what a resource has in it, from its backend or from what was kept of its last answer.

use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::digest::Context;

use crate::cache::Found;
use crate::cache::Lead;
use crate::cache::Question;
use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::ui::Host;
use crate::catalog::ui::Ui;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::methods::CallError;
use crate::methods::Means;
use crate::methods::declare;
use crate::methods::forward::Sent;
use crate::methods::forward::forward;
use crate::methods::hinted;
use crate::methods::links::Links;
use crate::methods::may_be_public;
use crate::methods::media;
use crate::methods::media::Blocks;
use crate::methods::rounds::Rounds;
use crate::model::tenant::Catalog;
use crate::protocol::caching;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::UI;

/// Reads `resource` from the cache, or from its backend.
///
/// spec: server/resources, Reading Resources
///
/// # Cancel safety
/// Dropping the future, or the stream in the reply, cancels the request upstream.
pub async fn answer(
    exchange: &Exchange,
    resource: &Entry,
    snapshot: &Arc<Snapshot>,
    means: &Means<'_>,
) -> Result<Reply<CallError>, CallError> {
    if resource.ui == Ui::View && Host::of(&exchange.call.meta) == Host::Plain {
        return Ok(Reply::Once(Outcome::Error(no_host())));
    }
    let (rounds, retry) = Rounds::begin(exchange, resource, means)?;
    let public = may_be_public(exchange) && resource.home.config.catalog == Catalog::Shared;
    let lead = match question(exchange, resource) {
        None => None,
        Some(question) => match means.cache.look(question).await {
            Found::Kept(kept) => {
                let told = told(&kept.result, kept.left_ms(), public && kept.public);
                return Ok(Reply::Once(Outcome::Result(told)));
            }
            Found::Ask(lead) => Some(lead),
        },
    };
    let links = Links::of(resource, snapshot);
    let uri = resource.public.clone();
    let most = means.limits.media_bytes;
    let finish = move |outcome| {
        let outcome = media::within(outcome, Blocks::Contents, most);
        Ok(match rounds.settle(links.change(outcome, Links::contents), &links)? {
            Outcome::Error(error) => Outcome::Error(not_found(error, &uri)),
            other @ (Outcome::Result(_) | Outcome::Asks(_) | Outcome::Task(_)) => other,
        })
    };
    let sent = Sent { retry, ..Sent::plain(exchange.call.params.clone()) };
    let mut lead = lead;
    let mut ended = move |end| ended(end, lead.take(), public);
    match forward(exchange, resource, sent, finish, means.limits, means.metrics).await {
        Ok(reply) => reply.map_end(ended),
        Err(error) => ended(Err(error)).map(Reply::Once),
    }
}

/// Step 20: what shows no views has nothing to do with one.
///
/// spec: row EX-07; basic/index, _meta: MissingRequiredClientCapability
fn no_host() -> RpcError {
    let extensions = Object::new().put(UI, &Object::new().finish()).finish();
    let required = Object::new().put("extensions", &extensions).finish();
    RpcError {
        code: code::MISSING_CAPABILITY,
        message: format!("this resource is for clients that declare the extension `{UI}`"),
        data: Some(Object::new().put("requiredCapabilities", &required).finish()),
    }
}

/// What the cache is asked. `None` where the answer hangs on what only this client has said.
///
/// spec: server/utilities/caching, Cache Key (results of retries MUST NOT be cached)
fn question(exchange: &Exchange, resource: &Entry) -> Option<Question> {
    let (call, config) = (&exchange.call, &resource.home.config);
    let mut variant = Context::new(&digest::SHA256);
    let mut add = |part: &[u8]| {
        variant.update(&(part.len() as u64).to_be_bytes());
        variant.update(part);
    };
    if call.is_retry() {
        return None;
    }
    // Its own URI stands for the first, and of the second, what the backend is told follows.
    let others = call.params.members().filter(|(key, _)| !matches!(&**key, "uri" | "_meta"));
    let mut params: Vec<_> = others.collect();
    params.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    // How many there are of a kind is said first, so that nothing can be taken for another kind.
    add(&(params.len() as u64).to_be_bytes());
    for (key, value) in &params {
        add(key.as_bytes());
        add(value.bytes());
    }
    add(declare::carried(&call.meta.capabilities, config, resource.home.tasks).bytes());
    // The trace is another one each time, and says nothing of what is asked.
    let baggage = call.meta.baggage.as_deref();
    add(&u64::from(baggage.is_some()).to_be_bytes());
    add(baggage.unwrap_or_default().as_bytes());
    add(&(call.meta.unknown.len() as u64).to_be_bytes());
    for (key, value) in &call.meta.unknown {
        add(key.as_bytes());
        add(value.bytes());
    }
    // Whatever is configured otherwise is asked anew, and so is it with another credential.
    add(&exchange.tenant.digest.to_be_bytes());
    let credential = config.credential.as_ref().and_then(|credential| credential.value.get());
    add(&credential.map_or(0, |value| value.version).to_be_bytes());
    let mut principal = Context::new(&digest::SHA256);
    principal.update(exchange.caller.principal().as_bytes());
    principal.update(b" ");
    principal.update(exchange.caller.scopes.joined().as_bytes());
    Some(Question {
        tenant: exchange.tenant.name.clone(),
        backend: resource.backend().clone(),
        uri: resource.own.clone(),
        variant: whole(variant),
        principal: whole(principal),
        plain: call.meta.progress_token.is_none() && call.meta.log_level.is_none(),
        private: config.catalog == Catalog::PerCaller,
    })
}

fn whole(context: Context) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

/// How it ended, as the client is told it, with the result kept where it may be.
fn ended(end: Result<Outcome, CallError>, lead: Option<Lead>, public: bool) -> Result<Outcome, CallError> {
    let result = match &end {
        Ok(Outcome::Result(result)) => Some(result),
        Ok(Outcome::Error(_) | Outcome::Asks(_) | Outcome::Task(_)) | Err(_) => None,
    };
    if let Some(lead) = lead {
        lead.end(result);
    }
    end.map(|outcome| match outcome {
        Outcome::Result(result) => {
            let ttl_ms = caching::ttl_ms(&result).unwrap_or(0);
            Outcome::Result(told(&result, ttl_ms, public && caching::is_public(&result)))
        }
        other @ (Outcome::Error(_) | Outcome::Asks(_) | Outcome::Task(_)) => other,
    })
}

/// A result with what its backend says of keeping it, within bounds; shared only where both say so.
///
/// spec: server/utilities/caching, Cacheable Results
fn told(result: &Json, ttl_ms: u64, public: bool) -> Json {
    let mut whole = Object::with_capacity(result.bytes().len() + 64);
    for (key, value) in result.members().filter(|(key, _)| !matches!(&**key, "ttlMs" | "cacheScope")) {
        whole = whole.put(&key, &value);
    }
    hinted(whole, ttl_ms, public).finish()
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
