//! The tenants file, the index made from it, and reloads.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::config::public::PublicUrls;
use crate::config::report::Report;
use crate::model::caller::Caller;
use crate::model::endpoint::Endpoint;
use crate::model::endpoint::Owner;
use crate::model::endpoint::TenantRule;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Ask;
use crate::model::tenant::BackendKind;
use crate::model::tenant::Catalog;
use crate::model::tenant::CredentialPlace;
use crate::model::tenant::ObjectKind;
use crate::tenant::TenantError;
use crate::tenant::file::Loaded;
use crate::tenant::file::Loader;
use crate::tenant::index::Directory;
use crate::tenant::index::HostKind;
use crate::tenant::resolve::resolve;
use crate::tenant::secret::Secrets;
use crate::tenant::source::Environment;
use crate::tenant::source::Reload;
use crate::tenant::source::Sources;
use crate::tenant::source::Tenants;

const EXAMPLE: &str = r#"
issuers:                                            # shared; serve /mcp
  - {issuer: https://login.example.com, audiences: [], tenant_claim: org}
tenants:
  acme:
    hosts: [acme.example.com]
    allowed_origins: ["https://app.acme.example"]
    instructions: "Acme's customer data."
    legacy: on                                      # the handshake era: on | off
    scopes_offered: [crm.read]
    scope_implies: {crm.admin: [crm.read, crm.write]}
    issuers:
      - {issuer: https://login.acme.example, audiences: [], algorithms: [RS256, ES256]}
      - {shared: https://login.example.com}
    secrets: {crm-token: {env: CRM_TOKEN}}
    backends:
      crm:
        kind: mcp
        url: https://crm.internal/mcp
        era: auto                                    # auto | modern | legacy
        prefix: ""                                   # default "crm_"
        uris: keep
        timeout: 60s
        scopes: {"*": [crm.read], "tool:delete_*": [crm.write]}
        credential: {kind: bearer, secret: crm-token}
"#;

fn public() -> PublicUrls {
    let url = |text| Url::parse(text).unwrap();
    PublicUrls {
        primary: url("https://mcp.example.com"),
        aliases: vec![url("https://gate.example.net:8443")],
        origins: vec!["https://console.example.com".to_owned()],
    }
}

fn env() -> Environment {
    let values = HashMap::from([("CRM_TOKEN", "s3cret"), ("TWO_LINES", "a\nb"), ("EMPTY", "")]);
    Arc::new(move |name| values.get(name).map(|value| (*value).to_owned()))
}

fn load(text: &str) -> Result<Loaded, Report> {
    let (public, env, known) = (public(), env(), Secrets::default());
    let mut loader = Loader::new(&public, &env, &known, None);
    loader.layer(text, "tenants.yaml");
    loader.finish()
}

fn directory(text: &str) -> Directory {
    Directory::build(&public(), load(text).unwrap(), 7)
}

fn name(text: &str) -> TenantName {
    TenantName::new(text).unwrap()
}

fn scopes(text: &str) -> Scopes {
    Scopes::parse(text)
}

#[test]
fn the_example_loads() {
    let loaded = load(EXAMPLE).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(&*loaded.shared[0].tenant_claim, "org");
    let entry = &loaded.tenants[0];
    assert_eq!(entry.hosts, ["acme.example.com"]);
    assert_eq!(entry.allowed_origins, ["https://app.acme.example"]);
    let tenant = &entry.tenant;
    assert_eq!(tenant.instructions.as_deref(), Some("Acme's customer data."));
    assert_eq!(tenant.scopes_offered, scopes("crm.read"));
    assert_eq!(tenant.scope_implies["crm.admin"], scopes("crm.read crm.write"));
    let backend = &tenant.backends[0];
    assert!(
        matches!(&backend.kind, BackendKind::Mcp { url, .. } if url.as_str() == "https://crm.internal/mcp")
    );
    assert_eq!((&*backend.prefix, backend.timeout), ("", Duration::from_secs(60)));
    assert_eq!(backend.idle_timeout, Duration::from_secs(30));
    assert_eq!((backend.scopes[0].kind, &*backend.scopes[0].glob), (None, "*"));
    assert_eq!((backend.scopes[1].kind, &*backend.scopes[1].glob), (Some(ObjectKind::Tool), "delete_*"));
    let credential = backend.credential.as_ref().unwrap();
    assert_eq!(credential.place, CredentialPlace::Bearer);
    assert_eq!(credential.value.get().unwrap().value.expose_secret(), "s3cret");
    assert!(!format!("{loaded:?}").contains("s3cret"));
}

#[test]
fn what_is_left_out_has_defaults() {
    let text = "tenants:\n  acme:\n    backends:\n      crm: {kind: demo, scopes: {'*': [b, a], 'tool:*': [c]}}\n      \
                wiki: {kind: demo, scopes: {'*': [d]}}\n  other: {}\n";
    let loaded = load(text).unwrap();
    let tenant = &loaded.tenants[0].tenant;
    assert_eq!(tenant.scopes_offered, scopes("a b d"));
    assert_eq!(&*tenant.backends[0].prefix, "crm_");
    assert_eq!(tenant.backends[0].catalog, Catalog::Shared);
    assert!(!tenant.public_catalog && loaded.tenants[1].tenant.backends.is_empty());
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
}

#[test]
fn a_backend_may_ask_what_is_not_refused() {
    let refused = |setting: &str| {
        let text = format!("tenants: {{acme: {{backends: {{crm: {{kind: demo{setting}}}}}}}}}\n");
        load(&text).unwrap().tenants[0].tenant.backends[0].refused.clone()
    };
    assert_eq!(refused(""), []);
    assert_eq!(refused(", refuse: []"), []);
    assert_eq!(refused(", refuse: [roots, urls]"), [Ask::Roots, Ask::Url]);
    assert_eq!(refused(", refuse: [forms, sampling]"), [Ask::Form, Ask::Sampling]);
}

#[test]
fn hierarchies_are_closed() {
    let implies = |text: &str| {
        let text = format!("tenants:\n  acme:\n    scope_implies: {text}\n");
        load(&text).unwrap().tenants[0].tenant.scope_implies.clone()
    };
    let chain = implies("{a: [b], b: [c, d], d: [e]}");
    assert_eq!(chain["a"], scopes("b c d e"));
    assert_eq!(chain["b"], scopes("c d e"));
    let circle = implies("{a: [b], b: [c], c: [a]}");
    assert_eq!(circle["a"], scopes("a b c"));
}

#[test]
fn the_digest_is_of_the_content() {
    let digest = |text: &str| load(text).unwrap().tenants[0].tenant.digest;
    let short = digest("tenants: {acme: {instructions: hello}}");
    assert_eq!(short, digest("# comment\ntenants:\n  acme:\n\n    \"instructions\": 'hello'\n"));
    assert_ne!(short, digest("tenants: {acme: {instructions: hullo}}"));
    assert_ne!(short, digest("tenants: {acma: {instructions: hello}}"));
}

/// Broken content of tenant `acme`, from its line 3 on, and the first line of the problem.
const BROKEN: &[(&str, &str)] = &[
    ("    host: [x]", "3: tenants.acme.host: unknown key"),
    ("    hosts: x", "3: tenants.acme.hosts: found text, expected a list"),
    (
        "    hosts: [a.example, 'b.example/x']",
        "3: tenants.acme.hosts[1]: found `b.example/x`, expected a host name",
    ),
    ("    hosts: [A.example]", "3: tenants.acme.hosts[0]: `A.example` is not how this host is written"),
    ("    hosts: ['*.a.example']", "3: tenants.acme.hosts[0]: found `*.a.example`, expected a host name"),
    ("    hosts: [a.example.]", "3: tenants.acme.hosts[0]: found `a.example.`, expected a host name"),
    (
        "    hosts: ['mcp.example.com:443']",
        "3: tenants.acme.hosts[0]: `mcp.example.com:443` is not how this host is written",
    ),
    (
        "    hosts:\n      - mcp.example.com",
        "4: tenants.acme.hosts[0]: `mcp.example.com` is claimed by the deployment already",
    ),
    (
        "    hosts: [a.example]\n  beta:\n    hosts:\n    - b.example\n    - a.example",
        "7: tenants.beta.hosts[1]: `a.example` is claimed by tenant `acme` already",
    ),
    ("    instructions: 5", "3: tenants.acme.instructions: found a number, expected text"),
    ("    instructions: a\n    instructions: b", "4: tenants.acme.instructions: the key is there twice"),
    ("    legacy: maybe", "3: tenants.acme.legacy: found `maybe`, expected one of `on`, `off`"),
    ("    public_catalog: yes", "3: tenants.acme.public_catalog: found text, expected true or false"),
    (
        "    scopes_offered: ['a b']",
        "3: tenants.acme.scopes_offered[0]: found `a b`, which is no OAuth scope",
    ),
    (
        "    allowed_origins: [https://a.example/]",
        "3: tenants.acme.allowed_origins[0]: `https://a.example/` is not how browsers write an origin",
    ),
    (
        "    issuers:\n    - issuer: http://login.acme.example",
        "4: tenants.acme.issuers[0].issuer: found an `http` URL, expected `https`",
    ),
    ("    issuers: [{audiences: [x]}]", "3: tenants.acme.issuers[0].issuer: missing"),
    (
        "    issuers: [{issuer: 'https://a.example#x'}]",
        "3: tenants.acme.issuers[0].issuer: the URL has a fragment",
    ),
    (
        "    issuers: [{shared: https://nobody.example}]",
        "3: tenants.acme.issuers[0].shared: `https://nobody.example` is no shared issuer",
    ),
    (
        "    issuers: [{issuer: https://a.example, algorithms: [RS256, HS256]}]",
        "3: tenants.acme.issuers[0].algorithms[1]: found `HS256`, which is not accepted",
    ),
    (
        "    issuers: [{issuer: https://a.example, audiences: [x]}]\n  beta:\n    issuers:\n      - issuer: https://a.example\n        audiences: [y, x]",
        "6: tenants.beta.issuers[0]: tenant `acme` accepts `https://a.example` with the audience `x` already",
    ),
    (
        "    issuers: [{issuer: https://a.example, introspection: {endpoint: https://a.example/i, client_id: a}}]",
        "3: tenants.acme.issuers[0].introspection.secret: missing",
    ),
    (
        "    issuers: [{issuer: https://a.example, introspection: {endpoint: http://a.example/i, client_id: a, secret: t}}]\n    secrets: {t: {env: CRM_TOKEN}}",
        "3: tenants.acme.issuers[0].introspection.endpoint: found an `http` URL, expected `https`",
    ),
    (
        "    issuers: [{issuer: https://a.example, introspection: {endpoint: https://a.example/i, client_id: a, secret: u}}]\n    secrets: {t: {env: CRM_TOKEN}}",
        "3: tenants.acme.issuers[0].introspection.secret: the tenant has no secret `u`",
    ),
    (
        "    issuers: [{issuer: https://a.example, jwks_uri: https://a.example/k, introspection: {endpoint: https://a.example/i, client_id: a, secret: t}}]\n    secrets: {t: {env: CRM_TOKEN}}",
        "3: tenants.acme.issuers[0].jwks_uri: an issuer with `introspection` has none: its tokens are not read here",
    ),
    (
        "    secrets: {t: {env: CRM_TOKEN}}\n    issuers:\n      - {issuer: https://a.example, introspection: {endpoint: https://a.example/i, client_id: a, secret: t}}\n      - {issuer: https://b.example, introspection: {endpoint: https://b.example/i, client_id: a, secret: t}}",
        "6: tenants.acme.issuers[1]: another issuer of this tenant has `introspection`",
    ),
    ("    secrets: {a: s3cret}", "3: tenants.acme.secrets.a: found text, expected a map"),
    ("    secrets:\n      a: {env: ABSENT}", "4: tenants.acme.secrets.a.env: the variable is not set"),
    (
        "    secrets: {a: {env: TWO_LINES}}",
        "3: tenants.acme.secrets.a.env: the value cannot be sent in a header",
    ),
    ("    secrets: {a: {env: EMPTY}}", "3: tenants.acme.secrets.a.env: the value cannot be sent in a header"),
    (
        "    secrets: {a: {file: /nonexistent/x}}",
        "3: tenants.acme.secrets.a.file: the file cannot be read: No such file or directory (os error 2)",
    ),
    ("    secrets: {a: {}}", "3: tenants.acme.secrets.a: expected either `file` or `env`"),
    (
        "    backends: {Crm: {kind: demo}}",
        "3: tenants.acme.backends.Crm: a name starts with a lower-case letter and goes on with at most 31 of `a-z`, `0-9` and `-`",
    ),
    ("    backends: {crm: {url: https://a.example}}", "3: tenants.acme.backends.crm.kind: missing"),
    ("    backends: {crm: {kind: mcp}}", "3: tenants.acme.backends.crm.url: missing"),
    (
        "    backends: {crm: {kind: stdio}}",
        "3: tenants.acme.backends.crm.kind: found `stdio`, expected one of `mcp`, `demo`",
    ),
    (
        "    backends: {crm: {kind: ftp}}",
        "3: tenants.acme.backends.crm.kind: found `ftp`, expected one of `mcp`, `demo`",
    ),
    (
        "    backends: {crm: {kind: demo, url: https://a.example}}",
        "3: tenants.acme.backends.crm.url: a backend of kind `demo` has none",
    ),
];

/// Broken fields of a backend of kind `mcp`, on line 5, and the first line of the problem.
const BROKEN_BACKEND: &[(&str, &str)] = &[
    ("refuse: forms", "refuse: found text, expected a list"),
    ("refuse: [urls, form]", "refuse[1]: found `form`, expected one of `forms`, `urls`, `sampling`, `roots`"),
    ("url: ftp://a.example", "url: found the scheme `ftp`, expected `https` or `http`"),
    ("url: https://u:p@a.example", "url: the URL has a user name or a password"),
    ("url: https://a.example/mcp#x", "url: the URL has a fragment"),
    ("url: http://0x7f000001/mcp", "url: `http://0x7f000001/mcp` is not how this URL is written"),
    ("url: http://127.1/mcp", "url: `http://127.1/mcp` is not how this URL is written"),
    ("url: 'https:\\\\a.example'", "url: `https:\\\\a.example` is not how this URL is written"),
    ("url: https://A.example/mcp?key=k", "url: `https://A.example/mcp?…` is not how this URL is written"),
    ("url: https://a.example:0/mcp", "url: the URL has port 0"),
    ("prefix: a/b", "prefix: found `a/b`, expected at most 32 of `A-Z`, `a-z`, `0-9`, `_`, `.` and `-`"),
    ("catalog: mine", "catalog: found `mine`, expected one of `shared`, `per_caller`"),
    ("era: old", "era: found `old`, expected one of `auto`, `modern`, `legacy`"),
    ("uris: all", "uris: found `all`, expected one of `keep`, `prefixed`"),
    ("timeout: 60", "timeout: found a number, expected a duration with its unit"),
    ("timeout: 0s", "timeout: found `0s`, expected 100ms to 24h"),
    ("extensions: com.example/a", "extensions: found text, expected a list"),
    ("extensions: [search]", "extensions[0]: found `search`, which is no name of an extension"),
    ("extensions: ['com.example/']", "extensions[0]: found `com.example/`, which is no name of an extension"),
    (
        "extensions: ['1com.example/a']",
        "extensions[0]: found `1com.example/a`, which is no name of an extension",
    ),
    (
        "extensions: ['com..example/a']",
        "extensions[0]: found `com..example/a`, which is no name of an extension",
    ),
    (
        "extensions: ['com.example-/a']",
        "extensions[0]: found `com.example-/a`, which is no name of an extension",
    ),
    (
        "extensions: [com.example/ok, io.modelcontextprotocol/ui]",
        "extensions[1]: `io.modelcontextprotocol/ui` is the protocol's own: the gateway carries what it knows",
    ),
    ("scopes: {'tools:x': [a]}", "scopes.tools:x: `tools` is no kind of object"),
    ("scopes: {'tool:': [a]}", "scopes.tool:: the pattern is empty"),
    (
        "scopes: {'resource:file://localhost/*': [a]}",
        "scopes.resource:file://localhost/*: `file://localhost/*` is not how a plain URI is written",
    ),
    ("scopes: {'x://a//*': [a]}", "scopes.x://a//*: `x://a//*` is not how a plain URI is written"),
    ("scopes: {'*': a}", "scopes.*: found text, expected a list"),
    ("credential: {kind: bearer, secret: b}", "credential.secret: the tenant has no secret `b`"),
    (
        "credential: {kind: basic, secret: a}",
        "credential.kind: found `basic`, expected one of `bearer`, `header`",
    ),
    ("credential: {kind: header, secret: a}", "credential.name: missing"),
    (
        "credential: {kind: header, name: Mcp-Method, secret: a}",
        "credential.name: `Mcp-Method` cannot carry a credential",
    ),
    (
        "credential: {kind: header, name: Host, secret: a}",
        "credential.name: `Host` cannot carry a credential",
    ),
    (
        "credential: {kind: header, name: content-type, secret: a}",
        "credential.name: `content-type` cannot carry a credential",
    ),
    ("credential: {kind: header, name: TE, secret: a}", "credential.name: `TE` cannot carry a credential"),
    ("credential: {kind: header, name: 'a b', secret: a}", "credential.name: `a b` is no header name"),
    (
        "credential: {kind: bearer, name: x, secret: a}",
        "credential.name: a credential of kind `bearer` has none",
    ),
];

fn first_lines(text: &str) -> Vec<String> {
    let report = load(text).map(|_| ()).expect_err(text);
    report.0.iter().map(|problem| problem.to_string().lines().next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn broken_tenants_are_told_with_their_line() {
    for (content, expected) in BROKEN {
        let text = format!("tenants:\n  acme:\n{content}\n");
        assert_eq!(first_lines(&text), [format!("tenants.yaml:{expected}")], "{text}");
    }
}

#[test]
fn broken_backends_are_told_with_their_line() {
    for (content, expected) in BROKEN_BACKEND {
        let url = if content.starts_with("url") { "" } else { "url: https://a.example, " };
        let head = "tenants:\n  acme:\n    secrets: {a: {env: CRM_TOKEN}}\n    backends:\n";
        let text = format!("{head}      crm: {{kind: mcp, {url}{content}}}\n");
        assert_eq!(
            first_lines(&text),
            [format!("tenants.yaml:5: tenants.acme.backends.crm.{expected}")],
            "{text}"
        );
    }
}

#[test]
fn broken_files_are_told() {
    for (text, expected) in [
        ("", "0"),
        ("tenants:\n\tacme: {}\n", "2"),
        ("tenants: [acme]\n", "1: tenants: found a list, expected a map"),
        (
            "tenants: {Acme: {}}\n",
            "1: tenants.Acme: a name starts with a lower-case letter and goes on with at most 62 of `a-z`, `0-9` and `-`",
        ),
        ("issuers: []\n", "1: tenants: missing"),
        ("\ntenants:\n  acme:\n", "3: tenants.acme: found nothing, expected a map"),
        ("tenants: {}\nissuers: [{issuer: https://a.example}]\n", "2: issuers[0].tenant_claim: missing"),
        ("tenants: {}\n---\ntenants: {}\n", "0"),
    ] {
        let found = first_lines(text);
        let matches = if expected.len() == 1 {
            found.len() == 1 && found[0].starts_with("tenants.yaml")
        } else {
            found == [format!("tenants.yaml:{expected}")]
        };
        assert!(matches, "{text:?}: {found:?}");
    }
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "tenants:\n  acme:\n    backends:\n      crm: {kind: mcp, prefix: '/'}\n    hosts: [-]\n    legacy: x\n";
    let lines: Vec<_> = load(text).map(|_| ()).unwrap_err().0.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(4), Some(4), Some(5), Some(6)]);
}

const DEPLOYMENT: &str = r#"
issuers:
  - {issuer: https://login.example.com, tenant_claim: org}
tenants:
  acme:
    hosts: [acme.example.com]
    allowed_origins: ["https://app.acme.example"]
    scopes_offered: [a]
    issuers:
      - {issuer: https://login.acme.example, audiences: [urn:acme]}
      - {issuer: https://login.acme.example:444}
      - {shared: https://login.example.com}
  beta: {issuers: [{shared: https://login.example.com}]}
"#;

#[test]
fn hosts_are_known_or_not() {
    let directory = directory(DEPLOYMENT);
    let acme = Some(HostKind::Tenant(name("acme")));
    for (authority, expected) in [
        ("mcp.example.com", Some(HostKind::Public)),
        ("MCP.Example.COM", Some(HostKind::Public)),
        ("mcp.example.com:443", Some(HostKind::Public)),
        ("gate.example.net:8443", Some(HostKind::Public)),
        ("acme.example.com", acme.clone()),
        ("acme.example.com:443", acme),
        ("mcp.example.com:80", None),
        ("mcp.example.com:0443", None),
        ("mcp.example.com:", None),
        ("mcp.example.com.", None),
        ("mcp.example.com/mcp", None),
        ("user@mcp.example.com", None),
        (" mcp.example.com", None),
        ("gate.example.net", None),
        ("beta.example.com", None),
        ("localhost", None),
        ("", None),
    ] {
        assert_eq!(directory.host(authority), expected, "{authority}");
    }
}

#[test]
fn endpoints_are_found_by_authority_and_path() {
    let directory = directory(DEPLOYMENT);
    let (acme, beta) = (Owner::Tenant(name("acme")), Owner::Tenant(name("beta")));
    let (public, alias, own) = ("mcp.example.com", "gate.example.net:8443", "acme.example.com");
    for (authority, path, expected) in [
        (public, "/mcp", Some((Owner::Shared, "https://mcp.example.com", "/mcp"))),
        (public, "/mcp/", Some((Owner::Shared, "https://mcp.example.com", "/mcp"))),
        (public, "/t/acme/mcp", Some((acme.clone(), "https://mcp.example.com", "/t/acme/mcp"))),
        (public, "/t/acme/mcp/", Some((acme.clone(), "https://mcp.example.com", "/t/acme/mcp"))),
        ("MCP.example.com:443", "/t/beta/mcp", Some((beta, "https://mcp.example.com", "/t/beta/mcp"))),
        (alias, "/mcp", Some((Owner::Shared, "https://gate.example.net:8443", "/mcp"))),
        (alias, "/t/acme/mcp", Some((acme.clone(), "https://gate.example.net:8443", "/t/acme/mcp"))),
        (public, "/t/nobody/mcp", Some((Owner::Nobody, "https://mcp.example.com", "/t/nobody/mcp"))),
        (own, "/mcp", Some((acme, "https://acme.example.com", "/mcp"))),
        (own, "/t/acme/mcp", None),
        (own, "/t/nobody/mcp", None),
        ("other.example.com", "/mcp", None),
        (public, "/", None),
        (public, "", None),
        (public, "/MCP", None),
        (public, "/mcp//", None),
        (public, "//mcp", None),
        (public, "/mcp%2f", None),
        (public, "/%6dcp", None),
        (public, "/t/acme", None),
        (public, "/t//mcp", None),
        (public, "/t/mcp", None),
        (public, "/t/Acme/mcp", None),
        (public, "/t/a%63me/mcp", None),
        (public, "/t/./acme/mcp", None),
        (public, "/t/acme/../acme/mcp", None),
        (public, "/t/acme/tools/mcp", None),
        (public, "/t/acme/mcp/x", None),
    ] {
        let found = directory.endpoint(authority, path);
        let shape =
            found.as_ref().map(|endpoint| (endpoint.owner.clone(), &*endpoint.resource, &*endpoint.metadata));
        let urls = expected.as_ref().map(|(_, base, path)| {
            (format!("{base}{path}"), format!("{base}/.well-known/oauth-protected-resource{path}"))
        });
        let wanted = expected.as_ref().zip(urls.as_ref());
        let wanted =
            wanted.map(|((owner, _, _), (url, metadata))| (owner.clone(), url.as_str(), metadata.as_str()));
        assert_eq!(shape, wanted, "{authority} {path}");
        let metadata = directory.metadata(authority, &format!("/.well-known/oauth-protected-resource{path}"));
        let shown = found.filter(|endpoint| endpoint.owner != Owner::Nobody);
        assert_eq!(
            metadata.map(|e| e.resource.clone()),
            shown.map(|e| e.resource.clone()),
            "{authority} {path}"
        );
    }
    assert!(directory.metadata(public, "/mcp").is_none());
    assert_eq!(directory.endpoints().count(), 7);
}

fn trust(endpoint: &Endpoint) -> Vec<(&str, Vec<&str>, TenantRule)> {
    endpoint
        .trust
        .iter()
        .map(|trust| {
            let audiences = trust.audiences.iter().map(|audience| &**audience).collect();
            (&*trust.issuer.url, audiences, trust.tenant.clone())
        })
        .collect()
}

#[test]
fn endpoints_trust_whom_they_should() {
    let directory = directory(DEPLOYMENT);
    let at = |authority, path| directory.endpoint(authority, path).unwrap();
    let claim: Arc<str> = "org".into();
    let shared = at("gate.example.net:8443", "/mcp");
    let everywhere = vec!["https://mcp.example.com/mcp", "https://gate.example.net:8443/mcp"];
    assert_eq!(trust(&shared), [("https://login.example.com", everywhere, TenantRule::Claim(claim.clone()))]);
    assert!(shared.scopes_offered.is_empty());

    let own = vec![
        "https://mcp.example.com/t/acme/mcp",
        "https://gate.example.net:8443/t/acme/mcp",
        "https://acme.example.com/mcp",
    ];
    let expected = [
        ("https://login.acme.example", vec!["urn:acme"], TenantRule::Owned(name("acme"))),
        ("https://login.acme.example:444", own.clone(), TenantRule::Owned(name("acme"))),
        ("https://login.example.com", own, TenantRule::ClaimIs(claim.clone(), name("acme"))),
    ];
    for (authority, path) in [("mcp.example.com", "/t/acme/mcp"), ("acme.example.com", "/mcp")] {
        let endpoint = at(authority, path);
        assert_eq!(trust(&endpoint), expected);
        assert_eq!(endpoint.scopes_offered, scopes("a"));
        assert_eq!(endpoint.revision, 7);
    }

    let nobody = at("mcp.example.com", "/t/nobody/mcp");
    let urls = vec!["https://mcp.example.com/t/nobody/mcp", "https://gate.example.net:8443/t/nobody/mcp"];
    assert_eq!(trust(&nobody), [("https://login.example.com", urls, TenantRule::Claim(claim))]);
    assert!(nobody.scopes_offered.is_empty());
}

#[test]
fn without_a_shared_issuer_there_is_no_shared_endpoint() {
    let directory = directory("tenants: {acme: {issuers: [{issuer: https://a.example}]}}");
    assert!(directory.endpoint("mcp.example.com", "/mcp").is_none());
    assert!(directory.metadata("mcp.example.com", "/.well-known/oauth-protected-resource/mcp").is_none());
    assert!(directory.endpoint("mcp.example.com", "/t/acme/mcp").is_some());
    assert!(directory.endpoint("mcp.example.com", "/t/nobody/mcp").unwrap().trust.is_empty());
}

#[test]
fn origins_are_the_deployments_and_the_tenants() {
    let directory = directory(DEPLOYMENT);
    let shared = directory.endpoint("mcp.example.com", "/mcp").unwrap();
    let acme = directory.endpoint("mcp.example.com", "/t/acme/mcp").unwrap();
    let beta = directory.endpoint("mcp.example.com", "/t/beta/mcp").unwrap();
    let (all, one) = ("https://console.example.com", "https://app.acme.example");
    for (endpoint, origin, expected) in [
        (None, all, true),
        (Some(&shared), all, true),
        (Some(&acme), all, true),
        (Some(&acme), one, true),
        (Some(&beta), one, false),
        (Some(&shared), one, false),
        (None, one, false),
        (Some(&acme), "null", false),
        (Some(&acme), "https://app.acme.example:443", false),
        (Some(&acme), "https://APP.acme.example", false),
        (Some(&acme), "https://app.acme.example.evil.example", false),
        (Some(&acme), "http://app.acme.example", false),
        (Some(&acme), "", false),
    ] {
        assert_eq!(directory.origin_allowed(endpoint.map(|e| &**e), origin), expected, "{origin}");
    }
}

#[test]
fn callers_reach_their_own_tenant_alone() {
    let directory = directory(DEPLOYMENT);
    let caller = |tenant: &str| Caller {
        tenant: name(tenant),
        issuer: "https://login.example.com".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::default(),
        expires_at: 0,
    };
    for (path, tenant, expected) in [
        ("/mcp", "acme", Ok("acme")),
        ("/mcp", "beta", Ok("beta")),
        ("/mcp", "nobody", Err(TenantError::NoSuchTenant)),
        ("/t/acme/mcp", "acme", Ok("acme")),
        ("/t/acme/mcp", "beta", Err(TenantError::NoSuchTenant)),
        ("/t/nobody/mcp", "acme", Err(TenantError::NotFound)),
        ("/t/nobody/mcp", "nobody", Err(TenantError::NotFound)),
    ] {
        let endpoint = directory.endpoint("mcp.example.com", path).unwrap();
        let found = resolve(&directory, &caller(tenant), &endpoint);
        assert_eq!(found.map(|tenant| tenant.name.clone()), expected.map(name), "{path} {tenant}");
    }
}

#[test]
fn files_lie_over_built_in_tenants() {
    let (public, env, known) = (public(), env(), Secrets::default());
    let both = |text: &str| {
        let mut loader = Loader::new(&public, &env, &known, None);
        loader.layer(
            "issuers: [{issuer: https://dev.example, tenant_claim: tenant}]\ntenants: {demo: {}}\n",
            "built-in",
        );
        loader.layer(text, "tenants.yaml");
        loader.finish()
    };
    assert_eq!(both("tenants: {acme: {issuers: [{shared: https://dev.example}]}}").unwrap().tenants.len(), 2);
    let report = both("tenants: {demo: {}}").map(|_| ()).unwrap_err();
    assert_eq!(
        report.to_string(),
        "tenants.yaml:1: tenants.demo: the tenant is declared in another file already"
    );
}

fn open(path: &Path) -> Tenants {
    let sources = Sources {
        public: public(),
        built_in: None,
        file: Some(path.to_owned()),
        env: env(),
        own_dir: path.parent().map(|dir| dir.join("data")),
    };
    Tenants::open(sources).unwrap_or_else(|report| panic!("{report}"))
}

#[test]
fn a_broken_file_leaves_the_last_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenants.yaml");
    std::fs::write(&path, "tenants: {acme: {}, beta: {}}").unwrap();
    let tenants = open(&path);
    let (first, changes) = (tenants.current(), tenants.changes());
    assert_eq!(tenants.reload(), Reload::Unchanged);

    std::fs::write(&path, "tenants: {acme: {hots: []}}").unwrap();
    assert_eq!((tenants.reload(), tenants.failures()), (Reload::Refused, 1));
    assert_eq!((tenants.reload(), tenants.failures()), (Reload::Unchanged, 1));
    std::fs::remove_file(&path).unwrap();
    assert_eq!((tenants.reload(), tenants.failures()), (Reload::Refused, 2));
    std::fs::write(&path, "").unwrap();
    assert_eq!((tenants.reload(), tenants.failures()), (Reload::Refused, 3));
    assert!(Arc::ptr_eq(&first, &tenants.current()) && tenants.is_refused());
    assert!(!changes.has_changed().unwrap());

    std::fs::write(&path, "tenants:\n  acme: {}\n  beta: {instructions: new}\n").unwrap();
    assert_eq!((tenants.reload(), tenants.is_refused()), (Reload::Swapped, false));
    let second = tenants.current();
    assert_ne!(first.revision(), second.revision());
    assert!(changes.has_changed().unwrap());
    let same =
        |tenant| Arc::ptr_eq(&first.tenant(&name(tenant)).unwrap(), &second.tenant(&name(tenant)).unwrap());
    assert!(same("acme") && !same("beta"));
}

#[test]
fn the_example_of_the_reference_page_loads() {
    let page = include_str!("../../docs/reference/tenants.md");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenants.yaml");
    std::fs::write(dir.path().join("crm-token"), "token\n").unwrap();
    std::fs::write(&path, example).unwrap();
    let acme = open(&path).current().tenant(&name("acme")).unwrap();
    assert_eq!(acme.backends.len(), 1);
}

#[test]
fn the_gateways_own_keys_and_settings_are_no_tenants_secrets() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/keyring"), "key\n").unwrap();
    std::os::unix::fs::symlink("data/keyring", dir.path().join("link")).unwrap();
    let path = dir.path().join("tenants.yaml");
    for (secret, said) in [
        ("{file: data/keyring}", "this file is the gateway's own"),
        ("{file: link}", "this file is the gateway's own"),
        ("{file: data/../data/keyring}", "this file is the gateway's own"),
        ("{env: FONDACO_KEYS__RING}", "this variable is the gateway's own"),
    ] {
        std::fs::write(&path, format!("tenants: {{acme: {{secrets: {{t: {secret}}}}}}}\n")).unwrap();
        let sources = Sources {
            public: public(),
            built_in: None,
            file: Some(path.clone()),
            env: Arc::new(|_| Some("value".to_owned())),
            own_dir: Some(dir.path().join("data")),
        };
        let report = sources.load(&Secrets::default()).map(|_| ()).unwrap_err().to_string();
        assert!(report.contains(said), "{secret}: {report}");
    }
}

#[test]
fn secrets_follow_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, secret) = (dir.path().join("tenants.yaml"), dir.path().join("token"));
    let text = "tenants:\n  acme:\n    secrets: {t: {file: token}}\n    backends:\n      \
                crm: {kind: mcp, url: https://a.example, credential: {kind: bearer, secret: t}}\n";
    std::fs::write(&secret, "one\n").unwrap();
    std::fs::write(&path, text).unwrap();
    let tenants = open(&path);
    let backend = Arc::clone(&tenants.current().tenant(&name("acme")).unwrap().backends[0]);
    let value = || backend.credential.as_ref().unwrap().value.get().unwrap().value.expose_secret().to_owned();
    assert_eq!(value(), "one");

    std::fs::write(&secret, "two\r\n").unwrap();
    assert_eq!((tenants.reload(), value()), (Reload::Unchanged, "two".to_owned()));
    for bad in ["", "\n", "a\nb", "a\u{7f}", " a"] {
        std::fs::write(&secret, bad).unwrap();
        assert_eq!((tenants.reload(), value()), (Reload::Unchanged, "two".to_owned()), "{bad:?}");
    }
    std::fs::remove_file(&secret).unwrap();
    assert_eq!((tenants.reload(), value()), (Reload::Unchanged, "two".to_owned()));
    // A change of something else does not need the secret's file either.
    std::fs::write(&path, format!("{text}  beta: {{}}\n")).unwrap();
    assert_eq!((tenants.reload(), value()), (Reload::Swapped, "two".to_owned()));
    std::fs::write(&secret, "three").unwrap();
    assert_eq!((tenants.reload(), value()), (Reload::Unchanged, "three".to_owned()));
    // A secret that moves is another one: whoever holds the old one does not get it.
    std::fs::write(dir.path().join("token2"), "four").unwrap();
    std::fs::write(&path, text.replace("file: token", "file: token2")).unwrap();
    assert_eq!((tenants.reload(), value()), (Reload::Swapped, "three".to_owned()));
    let moved = Arc::clone(&tenants.current().tenant(&name("acme")).unwrap().backends[0]);
    assert_eq!(moved.credential.as_ref().unwrap().value.get().unwrap().value.expose_secret(), "four");
}

/// The way an orchestrator replaces mounted files: a new directory, and a link that is renamed.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_mount_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let write = |version: &str, text: &str| {
        std::fs::create_dir(dir.path().join(version)).unwrap();
        std::fs::write(dir.path().join(version).join("tenants.yaml"), text).unwrap();
        std::os::unix::fs::symlink(version, dir.path().join("new")).unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("..data")).unwrap();
    };
    write("1", "tenants: {acme: {}}");
    let path = dir.path().join("tenants.yaml");
    std::os::unix::fs::symlink("..data/tenants.yaml", &path).unwrap();
    let (tenants, shutdown) = (Arc::new(open(&path)), CancellationToken::new());
    let watch = tokio::spawn(Arc::clone(&tenants).watch(Arc::default(), shutdown.clone()));
    write("2", "tenants: {beta: {}}");
    let seen = async {
        while tenants.current().tenant(&name("beta")).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the change is seen");
    shutdown.cancel();
    watch.await.unwrap();
}
