//! One tenant of the file.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use url::Url;

use crate::config::node::Value;
use crate::config::public;
use crate::config::reader::At;
use crate::config::reader::Fields;
use crate::config::reader::Problems;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Backend;
use crate::model::tenant::Tenant;
use crate::tenant::backend;
use crate::tenant::document;
use crate::tenant::file::Accepted;
use crate::tenant::file::Entry;
use crate::tenant::file::Loader;
use crate::tenant::index;
use crate::tenant::issuer;
use crate::tenant::secret;
use crate::tenant::secret::Places;
use crate::tenant::secret::Secret;

const KEYS: [&str; 10] = [
    "hosts",
    "allowed_origins",
    "instructions",
    "legacy",
    "public_catalog",
    "scopes_offered",
    "scope_implies",
    "issuers",
    "secrets",
    "backends",
];

/// Reads the tenant `name`, and keeps its claims and secrets in `loader`.
pub(super) fn read(loader: &mut Loader<'_>, name: &str, at: &At<'_>, warnings: &Problems) -> Option<Entry> {
    let name = match TenantName::new(name) {
        Ok(name) => name,
        Err(error) => return at.refuse(error.to_string()),
    };
    if loader.earlier.contains(&name) {
        at.refuse::<()>("the tenant is declared in another file already");
    }
    let fields = at.map(&KEYS)?;
    let hosts = hosts(loader, &fields, &name);
    let origins = fields.get("allowed_origins").map_or_else(Vec::new, |at| at.list());
    let allowed_origins = origins.iter().filter_map(public::origin).collect();
    let secrets = secrets(loader, &fields, &name);
    let issuers = issuers(loader, &fields, &name, &hosts, &secrets);
    let backends = backends(&fields, &secrets);
    loader.loaded.secrets.add(Some(&name), secrets.read);
    let scope_implies = fields.get("scope_implies").map_or_else(BTreeMap::new, |at| implications(&at));
    let instructions = fields.get("instructions").map(|at| at.text().map(Arc::from));
    let handshake = fields.get("legacy").map_or(Some(true), |at| match at.node.value {
        // YAML 1.1 readers take the bare words for booleans.
        Value::Bool(on) => Some(on),
        _ => at.word(&[("on", true), ("off", false)]),
    });
    let public_catalog = fields.get("public_catalog").map_or(Some(false), |at| at.flag());
    let scopes_offered = match fields.get("scopes_offered") {
        Some(at) => backend::scopes(&at)?,
        None => offered(&backends),
    };
    warn(&fields, &scopes_offered, &backends, issuers.is_empty(), warnings);
    let instructions = match instructions {
        Some(text) => Some(text?),
        None => None,
    };
    let digest = digest(&name, at);
    let tenant = Tenant {
        name,
        instructions,
        scopes_offered,
        scope_implies,
        handshake: handshake?,
        public_catalog: public_catalog?,
        backends,
        digest,
    };
    Some(Entry { tenant: Arc::new(tenant), hosts, allowed_origins, issuers })
}

/// The same for the same content, in whatever layout.
fn digest(name: &TenantName, at: &At<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    at.node.value.hash(&mut hasher);
    hasher.finish()
}

/// The union of the rules that hold for everything.
fn offered(backends: &[Arc<Backend>]) -> Scopes {
    let rules = backends.iter().flat_map(|backend| &backend.scopes);
    let mut offered = Scopes::default();
    rules
        .filter(|rule| rule.kind.is_none() && &*rule.glob == "*")
        .for_each(|rule| offered.extend(&rule.needs));
    offered
}

fn hosts(loader: &mut Loader<'_>, fields: &Fields<'_>, name: &TenantName) -> Vec<String> {
    let mut hosts = Vec::new();
    for at in fields.get("hosts").map_or_else(Vec::new, |at| at.list()) {
        let Some(host) = host(&at, loader.public.primary.scheme()) else { continue };
        for authority in public::authorities(&format!("{}://{host}", loader.public.primary.scheme())) {
            if let Some(owner) = loader.hosts.insert(authority, document::owner(name.as_str())) {
                at.refuse::<()>(format!("`{host}` is claimed by {owner} already"));
                break;
            }
        }
        hosts.push(host);
    }
    hosts
}

/// A host name, with a port where it is not the scheme's own.
fn host(at: &At<'_>, scheme: &str) -> Option<String> {
    let text = at.filled()?;
    let base = Url::parse(&format!("{scheme}://{text}")).ok();
    let named = |url: &Url| url.path() == "/" && url.domain().is_none_or(public::is_host_name);
    let Some(base) = base.filter(named) else {
        return at
            .refuse_hint(format!("found `{text}`, expected a host name"), "for example `acme.example.com`");
    };
    let origin = base.origin().ascii_serialization();
    let own = origin.split_once("://").map_or("", |(_, authority)| authority);
    if own != text || base.port() == Some(0) {
        return at.refuse_hint(format!("`{text}` is not how this host is written"), format!("write `{own}`"));
    }
    Some(text.to_owned())
}

fn issuers(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    name: &TenantName,
    hosts: &[String],
    secrets: &Declared,
) -> Vec<Accepted> {
    let mut accepted = Vec::new();
    let mut asks = false;
    let mut urls = Vec::new();
    for at in fields.get("issuers").map_or_else(Vec::new, |at| at.list()) {
        let Some(issuer) = issuer::accepted(&at, name, &loader.loaded.shared, secrets) else { continue };
        let url = match &issuer {
            Accepted::Own(issuer, _) => Arc::clone(&issuer.url),
            Accepted::Shared(url) => Arc::clone(url),
        };
        if urls.contains(&url) {
            at.refuse::<()>(format!("`{url}` is listed twice"));
        }
        if issuer.introspection(&loader.loaded.shared) && std::mem::replace(&mut asks, true) {
            at.refuse_hint::<()>("another issuer of this tenant has `introspection`", issuer::ONE);
        }
        if let Accepted::Own(_, audiences) = &issuer {
            let default = index::audiences(loader.public, name, hosts);
            let audiences = if audiences.is_empty() { &default } else { audiences };
            claim(loader, &at, &url, audiences, name);
        }
        urls.push(url);
        accepted.push(issuer);
    }
    accepted
}

/// One (issuer, audience) pair is one tenant's: a token must not be good for two.
fn claim(loader: &mut Loader<'_>, at: &At<'_>, url: &Arc<str>, audiences: &[Arc<str>], name: &TenantName) {
    for audience in audiences {
        let pair = (Arc::clone(url), Arc::clone(audience));
        match loader.pairs.insert(pair, name.as_str().to_owned()) {
            Some(other) if other != name.as_str() => {
                let message =
                    format!("tenant `{other}` accepts `{url}` with the audience `{audience}` already");
                at.refuse_hint::<()>(message, "give each tenant an audience of its own, or share the issuer");
            }
            _ => {}
        }
    }
}

/// The secrets that a tenant declares.
pub(super) struct Declared {
    /// Those that could be read.
    pub(super) read: Vec<Secret>,
    /// The names of all of them.
    pub(super) names: Vec<String>,
}

impl Declared {
    /// The secret that `at` names, if it could be read.
    pub(super) fn named(&self, at: &At<'_>) -> Option<&Secret> {
        let name = at.filled()?;
        if !self.names.iter().any(|known| known == name) {
            return at
                .refuse_hint(format!("the tenant has no secret `{name}`"), "declare it under `secrets`");
        }
        self.read.iter().find(|secret| secret.name == name)
    }
}

fn secrets(loader: &mut Loader<'_>, fields: &Fields<'_>, tenant: &TenantName) -> Declared {
    let declared = fields.get("secrets").map_or_else(Vec::new, |at| at.entries());
    let places = Places { env: loader.env, known: loader.known, own_dir: loader.own_dir };
    match loader.values.take() {
        None => {
            let read = declared.iter().filter_map(|(name, at)| secret::read(tenant, name, at, places));
            Declared {
                read: read.collect(),
                names: declared.iter().map(|(name, _)| (*name).into()).collect(),
            }
        }
        Some(values) => {
            if let Some(at) = fields.get("secrets") {
                at.refuse_hint::<()>("secrets are no part of this document", "each is written by itself");
            }
            let names = values.iter().map(|value| value.name.clone()).collect();
            let read = values.iter().map(|value| secret::stored(tenant, value, loader.known)).collect();
            Declared { read, names }
        }
    }
}

fn backends(fields: &Fields<'_>, secrets: &Declared) -> Vec<Arc<Backend>> {
    let entries = fields.get("backends").map_or_else(Vec::new, |at| at.entries());
    let backends = entries.iter().filter_map(|(name, at)| backend::read(name, at, secrets)).map(Arc::new);
    backends.collect()
}

/// The hierarchies, closed: a scope to everything that it implies in any number of steps.
fn implications(at: &At<'_>) -> BTreeMap<Arc<str>, Scopes> {
    let mut implied: BTreeMap<Arc<str>, Scopes> = BTreeMap::new();
    for (scope, at) in at.entries() {
        if !backend::is_scope(scope) {
            at.refuse::<()>(format!("`{scope}` is no OAuth scope"));
        }
        if let Some(scopes) = backend::scopes(&at) {
            implied.insert(scope.into(), scopes);
        }
    }
    let direct = implied.clone();
    for (scope, closed) in &mut implied {
        let mut reached = BTreeSet::new();
        let mut pending = vec![&**scope];
        while let Some(scopes) = pending.pop().map(|scope| direct.get(scope)) {
            pending.extend(scopes.into_iter().flat_map(Scopes::iter).filter(|next| reached.insert(*next)));
        }
        *closed = reached.into_iter().collect();
    }
    implied
}

fn warn(fields: &Fields<'_>, offered: &Scopes, backends: &[Arc<Backend>], closed: bool, warnings: &Problems) {
    if let Some(at) = fields.get("scopes_offered").filter(|_| offered.contains("offline_access")) {
        // spec: authorization, Refresh Tokens
        let hint = "clients ask for refresh tokens by themselves; leave it out";
        warnings.add(at.problem("`offline_access` is no scope of a resource").hint(hint));
    }
    let guarded = backends.iter().any(|backend| !backend.scopes.is_empty());
    if let Some(at) =
        fields.get("public_catalog").filter(|at| matches!(at.node.value, Value::Bool(true)) && guarded)
    {
        let hint = "a catalog that depends on scopes is private";
        warnings.add(at.problem("has no effect beside scope rules").hint(hint));
    }
    if closed {
        let hint = "list a `{shared: …}` issuer or its own; until then only `/mcp`, if served, leads here";
        warnings.add(fields.at().problem("the tenant's endpoints accept no issuer").hint(hint));
    }
}
