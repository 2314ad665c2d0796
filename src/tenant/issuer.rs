//! `issuers`: whose tokens are accepted, shared by tenants or a tenant's own.

use std::sync::Arc;

use crate::config::public;
use crate::config::reader::At;
use crate::config::reader::Fields;
use crate::model::endpoint::Issuer;
use crate::model::link::shown;
use crate::model::name::TenantName;
use crate::tenant::file::Accepted;
use crate::tenant::file::SharedIssuer;

/// The signature algorithms that can be asked for. Symmetric ones would make the keys that an
/// issuer publishes able to sign, and `none` is no signature.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// Reads one of the shared issuers.
pub(super) fn shared(at: &At<'_>) -> Option<SharedIssuer> {
    let fields = at.map(&["issuer", "audiences", "tenant_claim", "jwks_uri", "algorithms"])?;
    let tenant_claim = fields.need("tenant_claim").and_then(|at| at.filled()).map(Arc::from);
    let (issuer, audiences) = issuer(&fields, None)?;
    Some(SharedIssuer { issuer, audiences, tenant_claim: tenant_claim? })
}

/// Reads one of a tenant's issuers.
pub(super) fn accepted(at: &At<'_>, tenant: &TenantName, known: &[SharedIssuer]) -> Option<Accepted> {
    let fields = at.map(&["shared", "issuer", "audiences", "jwks_uri", "algorithms", "introspection"])?;
    let Some(shared) = fields.get("shared") else {
        if let Some(at) = fields.get("introspection") {
            at.refuse::<()>("introspection is not supported yet");
        }
        let (issuer, audiences) = issuer(&fields, Some(tenant))?;
        if known.iter().any(|shared| shared.issuer.url == issuer.url) {
            let hint =
                format!("write `{{shared: {}}}`, which checks the tenant that a token names", issuer.url);
            return fields.at().refuse_hint(format!("`{}` is a shared issuer", issuer.url), hint);
        }
        return Some(Accepted::Own(issuer, audiences));
    };
    for other in ["issuer", "audiences", "jwks_uri", "algorithms", "introspection"] {
        if let Some(at) = fields.get(other) {
            at.refuse_hint::<()>("cannot be given beside `shared`", "set it where the issuer is declared");
        }
    }
    let url = shared.filled()?;
    if known.iter().all(|known| *known.issuer.url != *url) {
        let hint = match known {
            [] => "declare it under `issuers` at the top of the file".to_owned(),
            known => {
                let known: Vec<_> = known.iter().map(|known| &*known.issuer.url).collect();
                format!("shared issuers are: {}", known.join(", "))
            }
        };
        return shared.refuse_hint(format!("`{}` is no shared issuer", shown(url)), hint);
    }
    Some(Accepted::Shared(url.into()))
}

/// What both kinds have: the issuer, and the audiences that replace the default ones.
fn issuer(fields: &Fields<'_>, owner: Option<&TenantName>) -> Option<(Arc<Issuer>, Vec<Arc<str>>)> {
    let url = fields.need("issuer").and_then(|at| identifier(&at));
    let audiences = fields.get("audiences").map_or_else(Vec::new, |at| at.list());
    let audiences = audiences.iter().filter_map(|at| at.filled()).map(Arc::from).collect();
    let jwks_uri = fields.get("jwks_uri").map(|at| public::secure_link(&at).map(|(text, _)| Arc::from(text)));
    let algorithms: Vec<Arc<str>> = match fields.get("algorithms") {
        Some(at) => at.list().iter().filter_map(algorithm).collect(),
        None => ALGORITHMS.map(Arc::from).into(),
    };
    if let (Some(at), true) = (fields.get("algorithms"), algorithms.is_empty()) {
        at.refuse_hint::<()>("no algorithm is left", "leave the key out for the default");
    }
    let jwks_uri = match jwks_uri {
        Some(uri) => Some(uri?),
        None => None,
    };
    let issuer = Issuer { owner: owner.cloned(), url: url?.into(), jwks_uri, algorithms };
    Some((Arc::new(issuer), audiences))
}

/// An issuer identifier, kept as it is written: tokens must say the same bytes.
// spec: RFC 8414, section 2
fn identifier<'a>(at: &At<'a>) -> Option<&'a str> {
    let (text, url) = public::secure_link(at)?;
    if url.query().is_some() {
        return at.refuse("the URL has a query");
    }
    Some(text)
}

fn algorithm(at: &At<'_>) -> Option<Arc<str>> {
    let name = at.filled()?;
    if !ALGORITHMS.contains(&name) {
        let hint = format!("one of {}", ALGORITHMS.join(", "));
        return at.refuse_hint(format!("found `{name}`, which is not accepted"), hint);
    }
    Some(name.into())
}
