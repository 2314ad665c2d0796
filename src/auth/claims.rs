//! What the claims of a verified token must say, and who its caller is then.

use serde_json::Value;

use crate::auth::error::Reason;
use crate::auth::jwt::Object;
use crate::model::caller::Caller;
use crate::model::caller::LEEWAY;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::endpoint::TenantRule;
use crate::model::endpoint::Trust;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;

/// The caller that `claims`, whose signature is proven, make at `endpoint` under `trust`.
pub(super) fn caller(
    claims: &Object,
    trust: &Trust,
    endpoint: &Endpoint,
    now: u64,
) -> Result<Caller, Reason> {
    let expires_at = claims.time("exp")?.ok_or(Reason::Missing("exp"))?;
    if now >= expires_at.saturating_add(LEEWAY) {
        return Err(Reason::Expired);
    }
    for name in ["nbf", "iat"] {
        if claims.time(name)?.is_some_and(|from| from > now + LEEWAY) {
            return Err(Reason::TooEarly);
        }
    }
    // The choice of `trust` compared it already; here it is proven.
    if claims.text("iss")? != Some(&trust.issuer.url) {
        return Err(Reason::Issuer);
    }
    // spec: authorization security, Token Audience Binding and Validation
    let audiences = audiences(claims)?;
    if !trust.audiences.iter().any(|accepted| audiences.contains(&&**accepted)) {
        return Err(Reason::Audience);
    }
    let subject = claims.text("sub")?.filter(|s| !s.is_empty()).ok_or(Reason::Missing("sub"))?;
    let client = claims.text("client_id")?.or(claims.text("azp")?);
    let scopes = claims.text("scope")?.map(Scopes::parse).unwrap_or_default();
    Ok(Caller {
        tenant: tenant(claims, &trust.tenant, &endpoint.owner)?,
        issuer: trust.issuer.url.clone(),
        subject: subject.into(),
        client: client.map(Into::into),
        scopes,
        expires_at,
    })
}

fn audiences(claims: &Object) -> Result<Vec<&str>, Reason> {
    let wrong = Reason::Mistyped("aud");
    match claims.get("aud").ok_or(Reason::Missing("aud"))? {
        Value::String(one) => Ok(vec![one]),
        Value::Array(many) => many.iter().map(|a| a.as_str().ok_or(wrong)).collect(),
        _ => Err(wrong),
    }
}

fn tenant(claims: &Object, rule: &TenantRule, owner: &Owner) -> Result<TenantName, Reason> {
    let named = |claim: &str| {
        let name = claims.get(claim).and_then(Value::as_str).ok_or(Reason::Tenant)?;
        TenantName::new(name).map_err(|_| Reason::Tenant)
    };
    let tenant = match rule {
        TenantRule::Owned(tenant) => tenant.clone(),
        TenantRule::Claim(claim) => named(claim)?,
        TenantRule::ClaimIs(claim, tenant) if named(claim)? == *tenant => tenant.clone(),
        TenantRule::ClaimIs(..) => return Err(Reason::Tenant),
    };
    // The rules say so already; a tenant's endpoint never lets another's caller in, whatever they say.
    match owner {
        Owner::Tenant(owner) if *owner != tenant => Err(Reason::Tenant),
        Owner::Tenant(_) | Owner::Shared | Owner::Nobody => Ok(tenant),
    }
}
