//! The resident index: which authority and path is whose endpoint, and which origin may call it.
//! It is built from configuration alone; a request only ever selects from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::config::public;
use crate::config::public::PublicUrls;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::endpoint::TenantRule;
use crate::model::endpoint::Trust;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Tenant;
use crate::tenant::file::Accepted;
use crate::tenant::file::Entry;
use crate::tenant::file::Loaded;
use crate::tenant::file::SharedIssuer;

/// The path that protected resource metadata is found under, before the resource's own.
pub const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The path of the endpoint where the token names the tenant, and of every endpoint's last part.
const MCP: &str = "/mcp";

/// Every endpoint of the deployment, as one immutable value.
#[derive(Debug)]
pub struct Directory {
    revision: u64,
    tenants: BTreeMap<TenantName, Arc<Tenant>>,
    shared: Vec<SharedIssuer>,
    public: PublicUrls,
    /// By authority, lower-case; a scheme's default port with and without.
    sites: HashMap<String, Arc<Site>>,
    origins: HashSet<String>,
    tenant_origins: HashMap<TenantName, HashSet<String>>,
}

/// Whose an authority is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// The deployment's own.
    Public,
    /// A tenant's: only its endpoint is there.
    Tenant(TenantName),
}

/// What one authority serves.
#[derive(Debug)]
struct Site {
    kind: HostKind,
    /// Scheme and authority.
    base: String,
    /// The endpoint at `/mcp`.
    root: Option<Arc<Endpoint>>,
    /// The endpoints at `/t/{tenant}/mcp`.
    tenants: HashMap<String, Arc<Endpoint>>,
}

impl Directory {
    /// The index of what was loaded, reached under `public`.
    pub fn build(public: &PublicUrls, loaded: Loaded, revision: u64) -> Self {
        let mut directory = Self {
            revision,
            tenants: loaded.tenants.iter().map(|e| (e.tenant.name.clone(), Arc::clone(&e.tenant))).collect(),
            shared: loaded.shared,
            public: public.clone(),
            sites: HashMap::new(),
            origins: public.origins.iter().cloned().collect(),
            tenant_origins: HashMap::new(),
        };
        let trusts: Vec<Arc<[Trust]>> =
            loaded.tenants.iter().map(|entry| directory.tenant_trust(entry)).collect();
        for url in public.all() {
            let base = url.origin().ascii_serialization();
            let root = (!directory.shared.is_empty()).then(|| directory.shared_endpoint(&base));
            let tenants = loaded.tenants.iter().zip(&trusts).map(|(entry, trust)| {
                let path = tenant_path(entry.tenant.name.as_str());
                let endpoint = tenant_endpoint(&entry.tenant, trust, &base, &path, revision);
                (entry.tenant.name.as_str().to_owned(), endpoint)
            });
            let site = Site { kind: HostKind::Public, tenants: tenants.collect(), root, base };
            directory.add(site);
        }
        for (entry, trust) in loaded.tenants.iter().zip(&trusts) {
            for host in &entry.hosts {
                let base = format!("{}://{host}", public.primary.scheme());
                let endpoint = tenant_endpoint(&entry.tenant, trust, &base, MCP, revision);
                let kind = HostKind::Tenant(entry.tenant.name.clone());
                directory.add(Site { kind, base, root: Some(endpoint), tenants: HashMap::new() });
            }
            let origins = entry.allowed_origins.iter().cloned().collect();
            directory.tenant_origins.insert(entry.tenant.name.clone(), origins);
        }
        directory
    }

    /// Whose `authority` is; `None` for any that is not configured, in another form included.
    pub fn host(&self, authority: &str) -> Option<HostKind> {
        self.site(authority).map(|site| site.kind.clone())
    }

    /// The endpoint that `path` is under `authority`. Both are compared as they were sent: nothing
    /// is decoded, and only one trailing slash is forgiven.
    pub fn endpoint(&self, authority: &str, path: &str) -> Option<Arc<Endpoint>> {
        let site = self.site(authority)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path == MCP {
            return site.root.clone();
        }
        if site.kind != HostKind::Public {
            return None;
        }
        let name = path.strip_prefix("/t/")?.strip_suffix(MCP)?;
        if let Some(endpoint) = site.tenants.get(name) {
            return Some(Arc::clone(endpoint));
        }
        TenantName::new(name).ok().map(|name| self.nobody(&site.base, &name))
    }

    /// The endpoint whose protected resource metadata `path` is under `authority`.
    // spec: authorization, Protected Resource Metadata Discovery
    pub fn metadata(&self, authority: &str, path: &str) -> Option<Arc<Endpoint>> {
        self.endpoint(authority, path.strip_prefix(METADATA)?)
            .filter(|endpoint| endpoint.owner != Owner::Nobody)
    }

    /// Whether `issuer` is accepted at this endpoint, which may be one of an earlier directory, and the
    /// endpoint still has the same owner.
    pub fn trusts(&self, endpoint: &Endpoint, issuer: &str) -> bool {
        let place = endpoint.resource.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let now = place.and_then(|(authority, path)| self.endpoint(authority, &format!("/{path}")));
        now.is_some_and(|now| {
            now.owner == endpoint.owner && now.trust.iter().any(|trust| *trust.issuer.url == *issuer)
        })
    }

    /// Whether a page of `origin` may call `endpoint`, or anything where it is `None`.
    // spec: streamable-http, Security Warning
    pub fn origin_allowed(&self, endpoint: Option<&Endpoint>, origin: &str) -> bool {
        let own = match endpoint.map(|endpoint| &endpoint.owner) {
            Some(Owner::Tenant(name)) => self.tenant_origins.get(name),
            _ => None,
        };
        self.origins.contains(origin) || own.is_some_and(|origins| origins.contains(origin))
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &TenantName) -> Option<Arc<Tenant>> {
        self.tenants.get(name).cloned()
    }

    /// Every tenant, by name.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.tenants.values()
    }

    /// Every endpoint, under every authority.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let named =
            |authority: &str, site: &Site| *authority == site.base[site.base.len() - authority.len()..];
        let sites = self.sites.iter().filter(move |(authority, site)| named(authority, site));
        sites.flat_map(|(_, site)| site.root.iter().chain(site.tenants.values()))
    }

    /// Differs from that of every other directory of this process.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn site(&self, authority: &str) -> Option<&Site> {
        let lower = match authority.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(authority.to_ascii_lowercase()),
            false => Cow::Borrowed(authority),
        };
        self.sites.get(&*lower).map(|site| &**site)
    }

    fn add(&mut self, site: Site) {
        let site = Arc::new(site);
        for authority in public::authorities(&site.base) {
            self.sites.insert(authority, Arc::clone(&site));
        }
    }

    /// The shared issuers as they are accepted where a token of theirs is for `path`.
    fn shared_trust(&self, path: &str) -> Arc<[Trust]> {
        let default = everywhere(&self.public, path);
        let trust = self.shared.iter().map(|shared| Trust {
            issuer: Arc::clone(&shared.issuer),
            audiences: or_default(&shared.audiences, &default),
            tenant: TenantRule::Claim(Arc::clone(&shared.tenant_claim)),
        });
        trust.collect()
    }

    fn tenant_trust(&self, entry: &Entry) -> Arc<[Trust]> {
        let name = &entry.tenant.name;
        let default = audiences(&self.public, name, &entry.hosts);
        let trust = entry.issuers.iter().filter_map(|accepted| match accepted {
            Accepted::Own(issuer, audiences) => Some(Trust {
                issuer: Arc::clone(issuer),
                audiences: or_default(audiences, &default),
                tenant: TenantRule::Owned(name.clone()),
            }),
            Accepted::Shared(url) => {
                let shared = self.shared.iter().find(|shared| shared.issuer.url == *url)?;
                Some(Trust {
                    issuer: Arc::clone(&shared.issuer),
                    audiences: or_default(&shared.audiences, &default),
                    tenant: TenantRule::ClaimIs(Arc::clone(&shared.tenant_claim), name.clone()),
                })
            }
        });
        trust.collect()
    }

    fn shared_endpoint(&self, base: &str) -> Arc<Endpoint> {
        let handshake = self.tenants.values().any(|tenant| tenant.handshake);
        let trust = self.shared_trust(MCP);
        endpoint(Owner::Shared, base, MCP, trust, Scopes::default(), (handshake, self.revision))
    }

    /// The endpoint of no tenant: to a stranger it looks like one.
    fn nobody(&self, base: &str, name: &TenantName) -> Arc<Endpoint> {
        let path = tenant_path(name.as_str());
        let trust = self.shared_trust(&path);
        // As a tenant's, unless it says otherwise.
        endpoint(Owner::Nobody, base, &path, trust, Scopes::default(), (true, self.revision))
    }
}

/// The audiences of a tenant's tokens where its issuer's entry gives none: its endpoint's URLs.
pub(super) fn audiences(public: &PublicUrls, name: &TenantName, hosts: &[String]) -> Vec<Arc<str>> {
    let mut audiences = everywhere(public, &tenant_path(name.as_str()));
    let scheme = public.primary.scheme();
    audiences.extend(hosts.iter().map(|host| Arc::from(format!("{scheme}://{host}{MCP}"))));
    audiences
}

/// `path` under every URL of the deployment.
fn everywhere(public: &PublicUrls, path: &str) -> Vec<Arc<str>> {
    public.all().map(|url| format!("{}{path}", url.origin().ascii_serialization()).into()).collect()
}

fn tenant_path(name: &str) -> String {
    format!("/t/{name}{MCP}")
}

fn or_default(given: &[Arc<str>], default: &[Arc<str>]) -> Arc<[Arc<str>]> {
    if given.is_empty() { default.into() } else { given.into() }
}

fn tenant_endpoint(
    tenant: &Tenant,
    trust: &Arc<[Trust]>,
    base: &str,
    path: &str,
    revision: u64,
) -> Arc<Endpoint> {
    let owner = Owner::Tenant(tenant.name.clone());
    let scopes = tenant.scopes_offered.clone();
    endpoint(owner, base, path, Arc::clone(trust), scopes, (tenant.handshake, revision))
}

fn endpoint(
    owner: Owner,
    base: &str,
    path: &str,
    trust: Arc<[Trust]>,
    scopes_offered: Scopes,
    (handshake, revision): (bool, u64),
) -> Arc<Endpoint> {
    let resource = format!("{base}{path}").into();
    let metadata = format!("{base}{METADATA}{path}").into();
    Arc::new(Endpoint { owner, resource, metadata, trust, scopes_offered, handshake, revision })
}
