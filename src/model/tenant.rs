//! Tenants and their backends, as configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use secrecy::SecretString;

use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;

/// A customer: everything that belongs to it and to nobody else.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its slug.
    pub name: TenantName,
    /// Text for `server/discover`, before its backends' own.
    pub instructions: Option<Arc<str>>,
    /// What a 401 and `scopes_supported` name; where not given, the union of the `"*"` rules.
    pub scopes_offered: Scopes,
    /// Scope hierarchies, closed: a scope to everything it implies.
    pub scope_implies: BTreeMap<Arc<str>, Scopes>,
    /// Whether clients of the handshake era are served.
    pub handshake: bool,
    /// Whether lists may be cached by shared caches. Only the file says so.
    pub public_catalog: bool,
    /// Its backends, in the file's order, which decides who owns a name.
    pub backends: Vec<Arc<Backend>>,
    /// Differs whenever anything in this value differs (secret values excluded).
    pub digest: u64,
}

impl Tenant {
    /// Whether everybody who reaches its own endpoint sees the same lists, and it says that shared
    /// caches may keep them.
    pub fn is_public(&self) -> bool {
        let is_same = |backend: &Backend| backend.scopes.is_empty() && backend.catalog == Catalog::Shared;
        self.public_catalog && self.backends.iter().all(|backend| is_same(backend))
    }
}

/// Where a tenant's tools live, as configured.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its name.
    pub name: BackendName,
    /// What it is.
    pub kind: BackendKind,
    /// What its tools' and prompts' public names begin with. May be empty.
    pub prefix: Arc<str>,
    /// How its resources' URIs are shown.
    pub uris: Uris,
    /// Total time of one call; never reset.
    pub timeout: Duration,
    /// Longest silence in one call; reset by increasing progress.
    pub idle_timeout: Duration,
    /// Scope rules, in the file's order.
    pub scopes: Vec<ScopeRule>,
    /// The extensions of the protocol that its clients may have with it, by their names, beside those that
    /// this gateway knows.
    pub extensions: Vec<Arc<str>>,
    /// What we authenticate with upstream.
    pub credential: Option<Credential>,
    /// What it may not ask of clients.
    pub refused: Vec<Ask>,
    /// What of its tools' calls is checked against their schemas.
    pub validate: Validate,
    /// For whom it is listed.
    pub catalog: Catalog,
}

#[cfg(test)]
impl Backend {
    /// The built-in backend under this name, without a prefix and with nothing else set.
    pub fn demo(name: &str) -> Self {
        Self {
            name: BackendName::new(name).unwrap(),
            kind: BackendKind::Demo,
            prefix: "".into(),
            uris: Uris::Keep,
            timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
            scopes: Vec::new(),
            extensions: Vec::new(),
            credential: None,
            refused: Vec::new(),
            validate: Validate::default(),
            catalog: Catalog::default(),
        }
    }
}

/// For whom a backend is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Catalog {
    /// For all callers of the tenant, on the gateway's own account.
    #[default]
    Shared,
    /// For each caller, whose lists are nobody else's.
    PerCaller,
}

/// What of the calls of a backend's tools is checked against the tools' schemas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validate {
    /// Nothing.
    Off,
    /// The arguments.
    #[default]
    Arguments,
    /// The arguments, and the structured content of results.
    Both,
}

/// The kinds of backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// An MCP server over Streamable HTTP.
    Mcp {
        /// Its endpoint.
        url: url::Url,
        /// Which eras of the protocol it is spoken to in.
        era: BackendEra,
    },
    /// The built-in demonstration backend.
    Demo,
}

/// Which eras of the protocol a backend is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendEra {
    /// Whichever it turns out to speak.
    #[default]
    Auto,
    /// The modern one alone.
    Modern,
    /// The handshake era alone.
    Handshake,
}

/// What a backend may ask of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// That its user fills in a form.
    Form,
    /// That its user opens a URL.
    Url,
    /// What its model says to some messages.
    Sampling,
    /// Which directories it works in.
    Roots,
}

impl Ask {
    /// Everything that may be asked.
    pub const ALL: [Ask; 4] = [Ask::Form, Ask::Url, Ask::Sampling, Ask::Roots];

    /// The word for it in configuration, texts and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Ask::Form => "forms",
            Ask::Url => "urls",
            Ask::Sampling => "sampling",
            Ask::Roots => "roots",
        }
    }
}

/// How the URIs of a backend's resources are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uris {
    /// As the backend has them.
    Keep,
    /// Behind the backend's name: `{backend}+{uri}`.
    Prefixed,
}

/// One line of a backend's `scopes`: objects whose own name matches need these scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeRule {
    /// Which kind of object the rule speaks of; `None` is every kind.
    pub kind: Option<ObjectKind>,
    /// A glob over the backend's own names: `*` any run, `?` one character.
    pub glob: Arc<str>,
    /// What is needed.
    pub needs: Scopes,
}

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource or a resource template.
    Resource,
}

/// A credential for a backend. The value is reread when its source changes.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Where it goes.
    pub place: CredentialPlace,
    /// The secret's name in the tenant, for messages; the value is never shown.
    pub secret: Arc<str>,
    /// The value's live cell.
    pub value: SecretCell,
}

/// Where a credential goes in an upstream request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialPlace {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header of this (lower-case) name.
    Header(Arc<str>),
}

/// A secret whose value may change while it is in use; clones share it.
#[derive(Clone, Default)]
pub struct SecretCell(Arc<arc_swap::ArcSwapOption<SecretValue>>);

/// The value of a secret, and how many other values it had before.
pub struct SecretValue {
    /// The value.
    pub value: SecretString,
    /// Grows with every value that differs from the one before it.
    pub version: u64,
}

impl SecretCell {
    /// The value now; `None` while its source cannot be read.
    pub fn get(&self) -> Option<Arc<SecretValue>> {
        self.0.load_full()
    }

    /// Takes the value away: there is none until one is put in place.
    pub fn clear(&self) {
        self.0.store(None);
    }

    /// Puts a value in place. The same value again changes nothing.
    pub fn set(&self, value: SecretString) {
        self.0.rcu(|now| match now {
            Some(now) if now.value.expose_secret() == value.expose_secret() => now.clone(),
            now => {
                let version = now.as_ref().map_or(0, |now| now.version) + 1;
                Arc::new(SecretValue { value: value.clone(), version })
            }
        });
    }
}

impl std::fmt::Debug for SecretCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretCell(…)")
    }
}
