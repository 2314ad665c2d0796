//! Who sends a request: step 5 of the ladder, before a byte of its body is read.
//!
//! [`Authenticator::authenticate`] turns the one bearer token of a request into a [`Caller`], or
//! says why not ([`error`]). What the client is told then is in [`challenge`].

mod bearer;
pub mod challenge;
mod claims;
pub mod dev_issuer;
pub mod discovery;
pub mod error;
pub mod introspection;
mod jwks;
mod jwt;
mod keys;

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest;
use http::HeaderMap;
use moka::sync::Cache;

use crate::auth::error::AuthError;
use crate::auth::error::Reason;
use crate::auth::introspection::Introspector;
use crate::auth::jwks::Good;
use crate::auth::jwks::KeySet;
use crate::auth::jwt::Token;
use crate::auth::keys::KeyStore;
use crate::egress::Egress;
use crate::model::caller::Caller;
use crate::model::clock::Clock;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Introspection;
use crate::model::endpoint::Issuer;
use crate::model::endpoint::Owner;
use crate::model::endpoint::Trust;
use crate::model::limits::Limits;
use crate::telemetry::metrics::Metrics;

/// A caller whose token was verified, and whether the keys still stand by it.
type Verified = (Arc<Caller>, Good);

/// Authenticates requests, with the issuers' keys and the tokens that were verified at hand.
pub struct Authenticator {
    keys: KeyStore,
    introspector: Introspector,
    verified: Cache<[u8; 32], Verified>,
    clock: Clock,
    token_bytes: usize,
    metrics: Arc<Metrics>,
}

impl Authenticator {
    /// An authenticator that knows no keys yet: each issuer's are fetched when first needed.
    pub fn new(egress: Egress, clock: Clock, limits: &Limits, metrics: Arc<Metrics>) -> Self {
        let verified = Cache::builder()
            .weigher(|_, (caller, _): &Verified| weight(caller))
            .max_capacity(limits.token_cache as u64)
            // A withdrawn key's tokens end when that is seen; this ends them where nobody looks,
            // since tokens that are served from here do not count as use of the keys.
            .time_to_live(limits.keys_refresh)
            .build();
        let introspector = Introspector::new(egress.clone(), clock.clone(), limits, metrics.clone());
        let keys = KeyStore::new(egress, limits, metrics.clone());
        Self { keys, introspector, verified, clock, token_bytes: limits.token_bytes, metrics }
    }

    /// Who sends these headers to this endpoint. Waits for the network only where the token's
    /// issuer is accepted here and its keys, or the token's own, are not known yet, or where it is asked
    /// about its tokens.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind; a fetch that it waited for goes on.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        endpoint: &Endpoint,
    ) -> Result<Arc<Caller>, AuthError> {
        let token = bearer::token(headers, self.token_bytes)?;
        let digest = digest_of(token, endpoint);
        let fresh = |(caller, keys): &Verified| keys.is_good() && self.clock.now() < caller.expires_at;
        let known = self.verified.get(&digest).filter(fresh);
        // After the look: a token that was verified is not read again to see whose it is.
        if known.is_none()
            && let Some(opaque) = opaque(token, endpoint)
        {
            return self.introspector.caller(token, digest, opaque, endpoint).await;
        }
        self.metrics.auth.token_cache(known.is_some());
        if let Some((caller, _)) = known {
            return Ok(caller);
        }
        let verified = self.verify(token, endpoint).await?;
        if fresh(&verified) {
            self.verified.insert(digest, verified.clone());
        }
        Ok(verified.0)
    }

    /// Drops what is known about issuers that are not in `live`, after a reload.
    pub fn forget_unused(&self, live: &HashSet<Arc<Issuer>>) {
        self.keys.forget_unused(live);
        self.introspector.forget_unused(live);
    }

    /// Ends the tasks that refresh keys, and waits for them.
    pub async fn shutdown(&self) {
        self.keys.shutdown().await;
    }

    async fn verify(&self, token: &str, endpoint: &Endpoint) -> Result<Verified, AuthError> {
        let token = Token::parse(token)?;
        // Not believed yet: it only chooses among the issuers that are configured here.
        let issuer = token.claims.text("iss")?.ok_or(Reason::Missing("iss"))?;
        let mut refusal = AuthError::from(Reason::Issuer);
        for trust in endpoint.trust.iter().filter(|trust| *trust.issuer.url == *issuer) {
            match self.verify_under(trust, &token, endpoint).await {
                Ok(verified) => return Ok(verified),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    async fn verify_under(
        &self,
        trust: &Trust,
        token: &Token<'_>,
        endpoint: &Endpoint,
    ) -> Result<Verified, AuthError> {
        let algorithm = token.algorithm(&trust.issuer)?;
        let keys = self.keys_for(token, &trust.issuer).await?;
        token.verify(keys.find(token.key_id()?, algorithm)?, algorithm)?;
        let caller = claims::caller(&token.claims, trust, endpoint, self.clock.now())?;
        Ok((Arc::new(caller), keys.good()))
    }

    /// The issuer's keys; newer ones, if there are any, where these lack the token's.
    async fn keys_for(&self, token: &Token<'_>, issuer: &Arc<Issuer>) -> Result<Arc<KeySet>, AuthError> {
        let id = token.key_id()?;
        let keys = self.keys.current(issuer).await?;
        if id.is_none_or(|id| keys.knows(id)) {
            return Ok(keys);
        }
        self.keys.newer(issuer, &keys).await.ok_or(Reason::Key.into())
    }
}

/// Who is asked what this token is, if that is for somebody to say. A token that names an issuer whose keys
/// are known here is that issuer's, and shown to nobody else.
fn opaque<'e>(token: &str, endpoint: &'e Endpoint) -> Option<(&'e Trust, &'e Introspection)> {
    let asked = |trust: &'e Trust| Some((trust, trust.issuer.introspection.as_ref()?));
    let asked = endpoint.trust.iter().find_map(asked)?;
    let named = Token::issuer(token);
    let is_named =
        |trust: &Trust| trust.issuer.introspection.is_none() && named.as_deref() == Some(&*trust.issuer.url);
    (!endpoint.trust.iter().any(is_named)).then_some(asked)
}

/// How many ordinary callers' room this one takes: an issuer decides how long its names are.
fn weight(caller: &Caller) -> u32 {
    let names = caller.subject.len() + caller.client.as_ref().map_or(0, |client| client.len());
    let scopes: usize = caller.scopes.iter().map(|scope| scope.len() + 64).sum();
    u32::try_from((names + scopes) / 2048).unwrap_or(u32::MAX).saturating_add(1)
}

/// Names a token at an endpoint, without keeping it. The revision is in it, so that a change of
/// what is accepted leaves nothing accepted of before.
fn digest_of(token: &str, endpoint: &Endpoint) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&endpoint.revision.to_be_bytes());
    context.update(&(token.len() as u64).to_be_bytes());
    context.update(token.as_bytes());
    if let Owner::Tenant(owner) = &endpoint.owner {
        context.update(owner.as_str().as_bytes());
    }
    context.update(b" ");
    context.update(endpoint.resource.as_bytes());
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests;
