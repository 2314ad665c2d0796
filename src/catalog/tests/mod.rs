//! Tests of the catalog, and what they are made of.

mod admission;
mod owners;
mod params;
mod refresh;
mod resources;
mod views;

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::backend::Surroundings;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::admission::Admission;
use crate::catalog::admission::admit;
use crate::catalog::entry::Home;
use crate::egress::Egress;
use crate::egress::rules::Rules;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::BackendKind;
use crate::model::tenant::ScopeRule;
use crate::model::tenant::Tenant;
use crate::protocol::json::Json;
use crate::telemetry::metrics::Metrics;

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 1000).unwrap()
}

fn limits() -> Limits {
    Limits::default()
}

fn egress() -> Egress {
    static EGRESS: LazyLock<Egress> = LazyLock::new(|| {
        let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()] };
        Egress::new(rules, Duration::from_secs(1), &[]).unwrap()
    });
    EGRESS.clone()
}

fn backend(name: &str, prefix: &str, rules: &[(&str, &str)]) -> Arc<tenant::Backend> {
    let rule = |(glob, needs): &(&str, &str)| ScopeRule {
        kind: None,
        glob: (*glob).into(),
        needs: Scopes::parse(needs),
    };
    Arc::new(tenant::Backend {
        name: BackendName::new(name).unwrap(),
        kind: BackendKind::Demo,
        prefix: prefix.into(),
        uris: if prefix.is_empty() { tenant::Uris::Keep } else { tenant::Uris::Prefixed },
        timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(30),
        scopes: rules.iter().map(rule).collect(),
        extensions: Vec::new(),
        credential: None,
        refused: Vec::new(),
        validate: tenant::Validate::default(),
        catalog: tenant::Catalog::default(),
    })
}

fn tenant(backends: Vec<Arc<tenant::Backend>>, digest: u64) -> Arc<Tenant> {
    Arc::new(Tenant {
        name: TenantName::new("acme").unwrap(),
        instructions: Some("Acme's tools.".into()),
        scopes_offered: Scopes::default(),
        scope_implies: [("admin".into(), Scopes::parse("read write"))].into(),
        handshake: true,
        public_catalog: false,
        backends,
        digest,
    })
}

fn caller(tenant: &str, scopes: &str) -> Caller {
    Caller {
        tenant: TenantName::new(tenant).unwrap(),
        issuer: "https://issuer.example".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::parse(scopes),
        expires_at: u64::MAX,
    }
}

fn home(config: &Arc<tenant::Backend>) -> Arc<Home> {
    let around = Surroundings {
        egress: egress(),
        limits: Arc::new(limits()),
        metrics: Arc::new(Metrics::new()),
        seats: Arc::default(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    };
    let live = Backend::new(config.clone(), TenantName::new("acme").unwrap(), around);
    Arc::new(Home { config: config.clone(), live: Arc::new(live), tasks: false })
}

/// The minimal tool of this name.
fn tool(name: &str) -> Json {
    json(&format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#))
}

fn admitted(config: &Arc<tenant::Backend>, listed: &[Json]) -> Admission {
    let listing = Listing { tools: Listed::whole(listed.to_vec()), ..Listing::default() };
    admit(&home(config), &limits(), &listing)
}

#[test]
fn a_closed_schema_of_the_harness_is_admitted() {
    let admission = admitted(&backend("crm", "", &[]), &[tool("find")]);
    assert_eq!(admission.tools.len(), 1, "{:?}", admission.left_out);
}
