//! Documents, read as `serve` will read them: what is stored loads.
//!
//! A tenant's own document depends on the shared issuers alone, a backend's on its tenant's secrets.
//! Only problems of what is written count: one that another document has already is no reason to
//! refuse what may mend it.

use std::collections::BTreeSet;

use url::Url;

use crate::admin::api::Api;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::protocol::json::Json;
use crate::store::Revision;
use crate::store::Store;
use crate::store::Stored;
use crate::store::claims::Claim;
use crate::store::error::StoreError;
use crate::store::serving::Deployment;
use crate::store::serving::Whole;
use crate::tenant::document;
use crate::tenant::file::Accepted;
use crate::tenant::file::Entry;
use crate::tenant::file::Loader;
use crate::tenant::file::SharedIssuer;
use crate::tenant::secret::Secrets;

/// How many shared issuers are read at a time.
const PAGE: usize = 500;

/// The member of a body that holds a document.
pub(super) const DOCUMENT: &str = "document";

/// The shared issuers, as far as they load.
pub(super) async fn shared(store: &Store) -> Result<Vec<SharedIssuer>, StoreError> {
    let mut shared = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.issuers().list(after.as_deref(), PAGE).await?;
        shared.extend(page.iter().filter_map(|stored| Loader::shared_issuer(stored).ok()));
        match page.into_iter().next_back() {
            Some(last) => after = Some(last.name),
            None => return Ok(shared),
        }
    }
}

/// Reads a shared issuer's document, to be kept under the URL that it says or, if given, `url`.
pub(super) fn issuer(api: &Api, url: Option<&str>, text: &Json) -> Result<SharedIssuer, Vec<Problem>> {
    let named = text.member("issuer").and_then(|issuer| issuer.string());
    let name = url.map(str::to_owned).or(named).unwrap_or_default();
    let issuer = Loader::shared_issuer(&unwritten(name, text)).map_err(|report| placed(report, ""))?;
    let jwks = issuer.issuer.jwks_uri.as_deref();
    let targets = [("issuer", Some(&*issuer.issuer.url)), ("jwks_uri", jwks)];
    let refused: Vec<_> = targets.iter().filter_map(|(key, url)| target(api, key, url.as_deref()?)).collect();
    if refused.is_empty() { Ok(issuer) } else { Err(refused) }
}

/// Reads a tenant's own document; what it would claim for itself.
pub(super) fn tenant(
    api: &Api,
    shared: Vec<SharedIssuer>,
    name: &TenantName,
    text: &Json,
) -> Result<BTreeSet<Claim>, Vec<Problem>> {
    if text.member("backends").is_some() {
        let problem = Problem::new("", "document.backends", "backends are no part of this document");
        return Err(vec![problem.hint("each is written by itself")]);
    }
    let whole = Whole { tenant: unwritten(name.clone(), text), backends: Vec::new(), secrets: Vec::new() };
    let entry = load(api, shared, &whole).map_err(|report| placed(report, ""))?;
    let mut refused = Vec::new();
    for (at, accepted) in entry.issuers.iter().enumerate() {
        let Accepted::Own(issuer, _) = accepted else { continue };
        refused.extend(target(api, &format!("issuers[{at}].issuer"), &issuer.url));
        let jwks = issuer.jwks_uri.as_deref();
        refused.extend(jwks.and_then(|url| target(api, &format!("issuers[{at}].jwks_uri"), url)));
    }
    if refused.is_empty() { Ok(document::claims(&api.sources.public, &entry)) } else { Err(refused) }
}

/// What is wrong with a backend in its tenant as that would be.
pub(super) fn backend(api: &Api, whole: &Whole, name: &BackendName) -> Vec<Problem> {
    let within = format!("backends.{name}");
    let mut problems = match load(api, Vec::new(), whole) {
        Ok(_) => Vec::new(),
        Err(report) => placed(report, &within),
    };
    let text = whole.backends.iter().find(|(other, _)| other == name.as_str());
    let url = text.and_then(|(_, text)| member(api, text, "url")).and_then(|url| url.string());
    let target = url.and_then(|url| target(api, "url", &url));
    problems.extend(target.filter(|target| problems.iter().all(|problem| problem.key != target.key)));
    problems
}

/// The backends of a tenant that use a secret, as problems.
pub(super) fn users(api: &Api, whole: &Whole, secret: &str) -> Vec<Problem> {
    let uses = |text: &str| {
        let credential = member(api, text, "credential")?;
        credential.member("secret")?.string().filter(|name| name == secret)
    };
    let users = whole.backends.iter().filter(|(_, text)| uses(text).is_some());
    users.map(|(name, _)| Problem::new("", &format!("backends/{name}"), "uses the secret")).collect()
}

/// The tenants that load with the shared issuers `before` and would not `after`, as problems.
pub(super) fn hurt(
    api: &Api,
    deployment: &Deployment,
    before: &[SharedIssuer],
    after: &[SharedIssuer],
) -> Vec<Problem> {
    let hurt = deployment.tenants.iter().filter_map(|whole| {
        load(api, before.to_vec(), whole).ok()?;
        let report = load(api, after.to_vec(), whole).err()?;
        let why = report.0.first().map(|problem| problem.message.clone()).unwrap_or_default();
        Some(Problem::new("", &format!("tenants/{}", whole.tenant.name), why))
    });
    hurt.collect()
}

fn load(api: &Api, shared: Vec<SharedIssuer>, whole: &Whole) -> Result<Entry, Report> {
    let known = Secrets::default();
    let mut loader = api.sources.loader(&known);
    loader.share(shared);
    loader.stored(whole)
}

/// A document that is not written yet.
fn unwritten<N>(name: N, text: &Json) -> Stored<N> {
    Stored { name, document: text.text().to_owned(), revision: Revision(0), created: 0, changed: 0 }
}

fn member(api: &Api, text: &str, key: &str) -> Option<Json> {
    Json::parse(text.to_owned().into(), api.limits.json_depth).ok()?.member(key)
}

/// Why an address is never dialled, as a problem of this key.
fn target(api: &Api, key: &str, url: &str) -> Option<Problem> {
    let refused = api.rules.refuses(&Url::parse(url).ok()?)?;
    Some(Problem::new("", &format!("{DOCUMENT}.{key}"), refused.to_string()))
}

/// The problems of what stands at `within`, by their place in a body that has it as its document.
fn placed(report: Report, within: &str) -> Vec<Problem> {
    let place = |problem: Problem| {
        let inside = problem.key.strip_prefix(within)?;
        let is_within = within.is_empty() || inside.is_empty() || inside.starts_with(['.', '[']);
        let inside = inside.trim_start_matches('.');
        let dot = if inside.is_empty() || inside.starts_with('[') { "" } else { "." };
        is_within.then(|| Problem { key: format!("{DOCUMENT}{dot}{inside}"), ..problem })
    };
    report.0.into_iter().filter_map(place).collect()
}
