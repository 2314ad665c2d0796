//! Stored documents, read by the reader of the tenants file: one grammar, one set of messages.
//!
//! A tenant's document is what stands under its name in the file, without `backends` and
//! `secrets`; a backend's is what stands under its own; a shared issuer's is an item of `issuers`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::node::Field;
use crate::config::node::Node;
use crate::config::node::Place;
use crate::config::node::Value;
use crate::config::public;
use crate::config::public::PublicUrls;
use crate::config::reader::At;
use crate::config::reader::Problems;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::store::Stored;
use crate::store::claims::Claim;
use crate::store::serving::Whole;
use crate::tenant::entry;
use crate::tenant::file::Accepted;
use crate::tenant::file::Entry;
use crate::tenant::file::Loaded;
use crate::tenant::file::Loader;
use crate::tenant::file::SharedIssuer;
use crate::tenant::index;
use crate::tenant::issuer;
use crate::tenant::json;

impl Loader<'_> {
    /// Reads the document of a shared issuer.
    pub fn shared_issuer(stored: &Stored<String>) -> Result<SharedIssuer, Report> {
        let node =
            json::parse(&stored.document, "the shared issuer").map_err(|problem| Report(vec![problem]))?;
        let problems = Problems::default();
        let read = issuer::shared(&At::root(&node, &problems), None).map(|(shared, _)| shared);
        if let Some(other) = read.as_ref().filter(|read| *read.issuer.url != stored.name) {
            let message = format!("`{}` is stored as another issuer", other.issuer.url);
            problems.add(Problem::new("the shared issuer", "issuer", message));
        }
        sound(read, problems)
    }

    /// Lets tenants that are read from now on name these issuers.
    pub fn share(&mut self, issuers: Vec<SharedIssuer>) {
        self.loaded.shared = issuers;
    }

    /// Reads a stored tenant with all that is its own. Its claims and secrets are kept, unless it is
    /// not sound; so is what is allowed and probably not meant.
    pub fn stored(&mut self, whole: &Whole) -> Result<Entry, Report> {
        let name = &whole.tenant.name;
        let (problems, warnings) = (Problems::default(), Problems::default());
        let read = match tree(whole) {
            Ok(node) => {
                self.values = Some(whole.secrets.clone());
                let read = entry::read(self, name.as_str(), &At::root(&node, &problems), &warnings);
                self.values = None;
                read
            }
            Err(problem) => {
                problems.add(problem);
                None
            }
        };
        let read = sound(read, problems);
        match &read {
            Ok(_) => self.loaded.warnings.extend(warnings.into_inner()),
            Err(_) => self.forget(name.as_str()),
        }
        read
    }

    /// Takes a tenant as it was read earlier, unless another has what it claims.
    pub fn keep(&mut self, entry: &Entry) -> bool {
        let name = entry.tenant.name.as_str();
        for claim in claims(self.public, entry) {
            let other = match claim {
                Claim::Host(authority) => self.hosts.insert(authority.clone(), owner(name)).map(|old| {
                    self.hosts.insert(authority, old);
                }),
                Claim::Audience { issuer, audience } => {
                    let pair = (Arc::from(issuer), Arc::from(audience));
                    self.pairs.insert((Arc::clone(&pair.0), Arc::clone(&pair.1)), name.to_owned()).map(
                        |old| {
                            self.pairs.insert(pair, old);
                        },
                    )
                }
            };
            if other.is_some() {
                self.forget(name);
                return false;
            }
        }
        true
    }

    /// What was read, tenants aside.
    pub fn into_loaded(self) -> Loaded {
        self.loaded
    }

    fn forget(&mut self, name: &str) {
        let owner = owner(name);
        self.hosts.retain(|_, whose| *whose != owner);
        self.pairs.retain(|_, whose| whose != name);
    }
}

/// Whose an authority is, as messages name it.
pub(super) fn owner(tenant: &str) -> String {
    format!("tenant `{tenant}`")
}

/// What a tenant has for itself alone, and has to claim in the database when it is written.
pub fn claims(public: &PublicUrls, entry: &Entry) -> BTreeSet<Claim> {
    let scheme = public.primary.scheme();
    let authorities = entry.hosts.iter().flat_map(|host| public::authorities(&format!("{scheme}://{host}")));
    let mut claims: BTreeSet<Claim> = authorities.map(Claim::Host).collect();
    let default = index::audiences(public, &entry.tenant.name, &entry.hosts);
    for accepted in &entry.issuers {
        let Accepted::Own(issuer, audiences) = accepted else { continue };
        let audiences = if audiences.is_empty() { &default } else { audiences };
        claims.extend(audiences.iter().map(|audience| Claim::Audience {
            issuer: issuer.url.to_string(),
            audience: audience.to_string(),
        }));
    }
    claims
}

/// The tenant as it would stand in a file, without its secrets.
fn tree(whole: &Whole) -> Result<Node, Problem> {
    let source = format!("tenant `{}` in the database", whole.tenant.name);
    let place = Place { source: source.as_str().into(), line: None };
    let mut node = json::parse(&whole.tenant.document, &source)?;
    let mut backends = Vec::with_capacity(whole.backends.len());
    for (name, document) in &whole.backends {
        backends.push(Field {
            key: name.clone(),
            place: place.clone(),
            node: json::parse(document, &source)?,
        });
    }
    let Value::Map(fields) = &mut node.value else {
        return Err(Problem::new(&source, "", format!("found {}, expected a map", node.value.kind())));
    };
    let backends = Node { value: Value::Map(backends), place: place.clone() };
    fields.push(Field { key: "backends".to_owned(), place, node: backends });
    Ok(node)
}

fn sound<T>(read: Option<T>, problems: Problems) -> Result<T, Report> {
    let report = Report(problems.into_inner());
    match read {
        Some(read) => report.into_result().map(|()| read),
        None => Err(report),
    }
}
