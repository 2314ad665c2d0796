//! The tenants file, read: every tenant in it is sound, or every problem is told with its line.

use std::collections::HashMap;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::config::public;
use crate::config::public::PublicUrls;
use crate::config::reader::At;
use crate::config::reader::Problems;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::model::endpoint::Issuer;
use crate::model::name::TenantName;
use crate::model::tenant::Tenant;
use crate::store::serving::Value;
use crate::tenant::entry;
use crate::tenant::issuer;
use crate::tenant::secret::Places;
use crate::tenant::secret::Secrets;
use crate::tenant::source::Environment;
use crate::tenant::yaml;

/// What tenants files say, checked.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The shared issuers, in the file's order.
    pub shared: Vec<SharedIssuer>,
    /// The tenants, in the file's order.
    pub tenants: Vec<Entry>,
    /// Every secret that a tenant declares.
    pub secrets: Secrets,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Problem>,
}

/// An issuer that vouches for callers of several tenants.
#[derive(Clone, Debug)]
pub struct SharedIssuer {
    /// The issuer.
    pub issuer: Arc<Issuer>,
    /// The audiences that replace the default ones; none where the default holds.
    pub audiences: Vec<Arc<str>>,
    /// The claim that names the tenant.
    pub tenant_claim: Arc<str>,
}

/// A tenant and how it is reached.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The tenant.
    pub tenant: Arc<Tenant>,
    /// Its own authorities, lower-case.
    pub hosts: Vec<String>,
    /// Browser origins that may call its endpoints.
    pub allowed_origins: Vec<String>,
    /// The issuers that its endpoints accept, in the file's order.
    pub issuers: Vec<Accepted>,
}

/// An issuer that a tenant's endpoints accept.
#[derive(Clone, Debug)]
pub enum Accepted {
    /// Its own, with the audiences that replace the default ones.
    Own(Arc<Issuer>, Vec<Arc<str>>),
    /// The shared issuer of this URL.
    Shared(Arc<str>),
}

impl Accepted {
    /// Whether its tokens are opaque.
    pub(super) fn introspection(&self, shared: &[SharedIssuer]) -> bool {
        match self {
            Self::Own(issuer, _) => issuer.introspection.is_some(),
            Self::Shared(url) => {
                let known = shared.iter().find(|shared| shared.issuer.url == *url);
                known.is_some_and(|shared| shared.issuer.introspection.is_some())
            }
        }
    }
}

/// Reads one or more files as one: later ones may name the shared issuers of earlier ones, and
/// nothing may be claimed twice.
pub struct Loader<'l> {
    pub(super) public: &'l PublicUrls,
    pub(super) env: &'l Environment,
    /// The secrets that are in use.
    pub(super) known: &'l Secrets,
    /// Where the gateway's own keys are.
    pub(super) own_dir: Option<&'l Path>,
    /// The secrets of the tenant that is being read, where they are stored and not referred to.
    pub(super) values: Option<Vec<Value>>,
    pub(super) loaded: Loaded,
    /// Who has an authority.
    pub(super) hosts: HashMap<String, String>,
    /// Which tenant has an issuer with an audience.
    pub(super) pairs: HashMap<(Arc<str>, Arc<str>), String>,
    /// The tenants of earlier files.
    pub(super) earlier: HashSet<TenantName>,
    report: Report,
}

impl<'l> Loader<'l> {
    /// A loader for a deployment that is reached under `public`. Secrets that are `known` are used
    /// on as they are, also where they cannot be read now.
    pub fn new(
        public: &'l PublicUrls,
        env: &'l Environment,
        known: &'l Secrets,
        own_dir: Option<&'l Path>,
    ) -> Self {
        let authorities =
            public.all().flat_map(|url| public::authorities(&url.origin().ascii_serialization()));
        let hosts = authorities.map(|authority| (authority, "the deployment".to_owned())).collect();
        let loaded = Loaded::default();
        let (pairs, earlier, report) = (HashMap::new(), HashSet::new(), Report::default());
        Self { public, env, known, own_dir, values: None, loaded, hosts, pairs, earlier, report }
    }

    /// Reads one file's text; `source` is its name in messages.
    pub fn layer(&mut self, text: &str, source: &str) {
        let node = match yaml::parse(text, source) {
            Ok(node) => node,
            Err(problem) => return self.report.0.push(problem),
        };
        let (problems, warnings) = (Problems::default(), Problems::default());
        self.read(&At::root(&node, &problems), &warnings);
        self.report.0.extend(in_order(problems));
        self.loaded.warnings.extend(in_order(warnings));
    }

    /// Takes note of a file that there is no text of.
    pub fn unreadable(&mut self, source: &str, error: &std::io::Error) {
        self.report.0.push(Problem::new(source, "", format!("cannot be read: {error}")));
    }

    /// What was read, if all of it is sound.
    pub fn finish(self) -> Result<Loaded, Report> {
        self.report.into_result().map(|()| self.loaded)
    }

    fn read(&mut self, root: &At<'_>, warnings: &Problems) {
        let Some(fields) = root.map(&["issuers", "tenants"]) else { return };
        for at in fields.get("issuers").map_or_else(Vec::new, |at| at.list()) {
            let places = Places { env: self.env, known: self.known, own_dir: self.own_dir };
            let Some((shared, secret)) = issuer::shared(&at, Some(places)) else { continue };
            self.loaded.secrets.add(None, secret.into_iter().collect());
            let asks = |shared: &SharedIssuer| shared.issuer.introspection.is_some();
            if asks(&shared) && self.loaded.shared.iter().any(asks) {
                at.refuse_hint::<()>("another shared issuer has `introspection`", issuer::ONE);
            }
            if self.loaded.shared.iter().any(|other| other.issuer.url == shared.issuer.url) {
                at.refuse::<()>(format!("`{}` is declared twice", shared.issuer.url));
            }
            self.loaded.shared.push(shared);
        }
        // Never optional: a file that was cut off would otherwise mean "nobody".
        let Some(tenants) = fields.need("tenants") else { return };
        self.earlier.extend(self.loaded.tenants.iter().map(|entry| entry.tenant.name.clone()));
        for (name, at) in tenants.entries() {
            if let Some(entry) = entry::read(self, name, &at, warnings) {
                self.loaded.tenants.push(entry);
            }
        }
    }
}

/// The problems of one file in its order.
fn in_order(problems: Problems) -> Vec<Problem> {
    let mut problems = problems.into_inner();
    problems.sort_by_key(|problem| problem.line);
    problems
}
