//! Endpoints: the URLs that serve MCP, each its own OAuth resource.

use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::SecretCell;

/// One URL that serves MCP, as one request reached it. `tenant::index` makes these from
/// configuration alone; nothing in it is copied from the request.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Whose endpoint it is.
    pub owner: Owner,
    /// The canonical resource URL, under the configured authority that was connected to.
    pub resource: Arc<str>,
    /// Where its RFC 9728 metadata lies, under the same authority.
    pub metadata: Arc<str>,
    /// The issuers that are accepted here.
    pub trust: Arc<[Trust]>,
    /// What a 401 and `scopes_supported` name.
    pub scopes_offered: Scopes,
    /// Whether a session of the handshake era may be named here: it may still be that of a tenant
    /// that serves none.
    pub handshake: bool,
    /// Changes whenever anything that decides about credentials may have changed.
    pub revision: u64,
}

/// Whose endpoint it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `/mcp`: the tenant that the verified credential names.
    Shared,
    /// A tenant's own endpoint.
    Tenant(TenantName),
    /// `/t/x/mcp` of no tenant we know: answered like a tenant's to strangers.
    Nobody,
}

/// An issuer as one endpoint accepts it.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The issuer.
    pub issuer: Arc<Issuer>,
    /// The `aud` values that are accepted, any of them.
    pub audiences: Arc<[Arc<str>]>,
    /// How a credential of this issuer tells its tenant here.
    pub tenant: TenantRule,
}

/// How a credential tells its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantRule {
    /// The issuer belongs to this tenant.
    Owned(TenantName),
    /// The claim of this name says it.
    Claim(Arc<str>),
    /// The claim of this name must say this tenant.
    ClaimIs(Arc<str>, TenantName),
}

/// An authorization server whose tokens are accepted somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Issuer {
    /// Who configured it: a tenant, or the deployment. Keys are never shared between owners.
    pub owner: Option<TenantName>,
    /// The issuer identifier, compared byte for byte with `iss` and with its metadata.
    pub url: Arc<str>,
    /// Where its keys are, if not told by its metadata.
    pub jwks_uri: Option<Arc<str>>,
    /// The signature algorithms accepted, as JWA names.
    pub algorithms: Vec<Arc<str>>,
    /// Where its tokens are asked about. Where it is set, they are opaque and no keys are needed.
    pub introspection: Option<Introspection>,
}

/// Where an issuer says what its opaque tokens are.
///
/// spec: RFC 7662
#[derive(Clone, Debug)]
pub struct Introspection {
    /// The introspection endpoint.
    pub endpoint: Arc<str>,
    /// What this gateway is called there.
    pub client_id: Arc<str>,
    /// What it proves that by.
    pub secret: SecretCell,
}

/// The value of the secret is left out: it changes while it is in use.
impl PartialEq for Introspection {
    fn eq(&self, other: &Self) -> bool {
        (&self.endpoint, &self.client_id) == (&other.endpoint, &other.client_id)
    }
}

impl Eq for Introspection {}

impl Hash for Introspection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.endpoint, &self.client_id).hash(state);
    }
}
