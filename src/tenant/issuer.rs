//! `issuers`: whose tokens are accepted, shared by tenants or a tenant's own.

use std::sync::Arc;

use crate::config::public;
use crate::config::reader::At;
use crate::config::reader::Fields;
use crate::model::endpoint::Introspection;
use crate::model::endpoint::Issuer;
use crate::model::link::shown;
use crate::model::name::TenantName;
use crate::model::tenant::SecretCell;
use crate::tenant::entry::Declared;
use crate::tenant::file::Accepted;
use crate::tenant::file::SharedIssuer;
use crate::tenant::secret;
use crate::tenant::secret::Places;
use crate::tenant::secret::Secret;

/// The signature algorithms that can be asked for. Symmetric ones would make the keys that an
/// issuer publishes able to sign, and `none` is no signature.
const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// What is to be done where two issuers of one endpoint have `introspection`.
pub(super) const ONE: &str =
    "an opaque token does not say whose it is: only one issuer can be asked about it";

/// Reads one of the shared issuers, and the secret that it is asked with. One that is stored, and so has no
/// `places` for secrets, is asked nothing: whoever may store it may not read this machine's files.
pub(super) fn shared(at: &At<'_>, places: Option<Places<'_>>) -> Option<(SharedIssuer, Option<Secret>)> {
    let fields =
        at.map(&["issuer", "audiences", "tenant_claim", "jwks_uri", "algorithms", "introspection"])?;
    let tenant_claim = fields.need("tenant_claim").and_then(|at| at.filled()).map(Arc::from);
    let mut secret = None;
    let (issuer, audiences) = issuer(&fields, None, |url, at| {
        let Some(places) = places else {
            let hint = "give each tenant an issuer of its own, whose secret is the tenant's";
            return at.refuse_hint("a shared issuer that is stored has no secret", hint);
        };
        secret = secret::referred(None, url, at, places);
        secret.as_ref().map(|secret: &Secret| secret.cell.clone())
    })?;
    Some((SharedIssuer { issuer, audiences, tenant_claim: tenant_claim? }, secret))
}

/// Reads one of a tenant's issuers.
pub(super) fn accepted(
    at: &At<'_>,
    tenant: &TenantName,
    known: &[SharedIssuer],
    secrets: &Declared,
) -> Option<Accepted> {
    let fields = at.map(&["shared", "issuer", "audiences", "jwks_uri", "algorithms", "introspection"])?;
    let Some(shared) = fields.get("shared") else {
        let cell = |_: &str, at: &At<'_>| secrets.named(at).map(|secret| secret.cell.clone());
        let (issuer, audiences) = issuer(&fields, Some(tenant), cell)?;
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

/// What both kinds have: the issuer, and the audiences that replace the default ones. `secret` finds the
/// secret of the issuer of this URL.
fn issuer(
    fields: &Fields<'_>,
    owner: Option<&TenantName>,
    secret: impl FnOnce(&str, &At<'_>) -> Option<SecretCell>,
) -> Option<(Arc<Issuer>, Vec<Arc<str>>)> {
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
    let url = url?;
    let introspection = match fields.get("introspection") {
        Some(at) => {
            for key in ["jwks_uri", "algorithms"] {
                if let Some(at) = fields.get(key) {
                    at.refuse::<()>("an issuer with `introspection` has none: its tokens are not read here");
                }
            }
            Some(introspection(&at, |at| secret(url, at))?)
        }
        None => None,
    };
    let issuer = Issuer { owner: owner.cloned(), url: url.into(), jwks_uri, algorithms, introspection };
    Some((Arc::new(issuer), audiences))
}

/// spec: RFC 7662, section 2.1
fn introspection(at: &At<'_>, secret: impl FnOnce(&At<'_>) -> Option<SecretCell>) -> Option<Introspection> {
    let fields = at.map(&["endpoint", "client_id", "secret"])?;
    let endpoint =
        fields.need("endpoint").and_then(|at| public::secure_link(&at).map(|(text, _)| text.into()));
    let client_id = fields.need("client_id").and_then(|at| at.filled()).map(Arc::from);
    let secret = fields.need("secret").and_then(|at| secret(&at));
    Some(Introspection { endpoint: endpoint?, client_id: client_id?, secret: secret? })
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
