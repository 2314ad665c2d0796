//! Whose endpoint a URL is: documents, paths, origins, and the tenants file while it changes.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use fondaco::config::Settings;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::serving::Serving;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Two tenants; acme has a host, an origin and an issuer of its own.
const TWO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  acme:
    hosts: [acme.example.com]
    allowed_origins: ["https://app.acme.example"]
    issuers: [{shared: "{issuer}"}, {issuer: "https://login.acme.example/x"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use], "tool:add": [demo.math]}}}
  beta:
    scopes_offered: [beta.read, demo.use, offline_access]
    scope_implies: {demo.admin: [demo.use], root: [demo.admin]}
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, scopes: {"*": [demo.use]}}}
"#;

async fn two() -> Gateway {
    Gateway::start_with(TWO, |s| s.allowed_origins = vec!["https://console.example".to_owned()]).await
}

/// A right request at `path` of `host`, with more headers.
async fn ask(gw: &Gateway, host: &str, path: &str, caller: &Caller, more: &[(&str, &str)]) -> Answer {
    let mut headers = caller.headers("server/discover", None);
    headers.extend([("Host", host)].iter().chain(more).map(|&(n, v)| (n.to_owned(), v.to_owned())));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta()}});
    wire::request(gw.addr, "POST", path, &headers, body.to_string().as_bytes()).await
}

#[tokio::test]
async fn metadata_names_the_endpoint_under_the_authority_that_was_connected_to() {
    let gw = two().await;
    let port = gw.addr.port();
    let issuer = format!("http://{}/dev-issuer", gw.addr);
    let acme = [issuer.as_str(), "https://login.acme.example/x"];
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        for (path, servers, scopes) in [
            ("/mcp", &acme[..1], json!(null)),
            ("/t/acme/mcp", &acme[..], json!(["demo.use"])),
            ("/t/beta/mcp", &acme[..1], json!(["beta.read", "demo.use"])),
        ] {
            for slash in ["", "/"] {
                let answer = gw.get(&host, &format!("{WELL_KNOWN}{path}{slash}")).await;
                assert_eq!(answer.status, 200, "{host} {path}");
                assert_eq!(answer.header("content-type"), Some("application/json"));
                let document = answer.message();
                assert_eq!(document["resource"], format!("http://{host}{path}"));
                assert_eq!(document["authorization_servers"], json!(servers), "{host} {path}");
                assert_eq!(document["scopes_supported"], scopes, "{host} {path}");
                assert_eq!(document["bearer_methods_supported"], json!(["header"]));
            }
        }
        for path in ["", "/", "/t/acme", "/t/nobody/mcp", "/mcp/x", "/x/mcp", "/t//mcp"] {
            assert_eq!(gw.get(&host, &format!("{WELL_KNOWN}{path}")).await.status, 404, "{host} {path}");
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_tenants_host_serves_its_mcp_alone() {
    let gw = two().await;
    let alice = gw.caller_at("/t/acme/mcp", "acme", "alice", "demo.use");
    for host in ["acme.example.com", "ACME.example.com", "acme.example.com:80"] {
        let document = gw.get(host, &format!("{WELL_KNOWN}/mcp")).await.message();
        assert_eq!(document["resource"], "http://acme.example.com/mcp", "{host}");
        assert_eq!(document["authorization_servers"][1], "https://login.acme.example/x");
        assert_eq!(document["scopes_supported"], json!(["demo.use"]));
        for path in ["/mcp", "/mcp/"] {
            assert_eq!(ask(&gw, host, path, &alice, &[]).await.status, 200, "{host} {path}");
        }
        for path in ["/t/acme/mcp", "/t/beta/mcp", "/", "/dev-issuer/jwks"] {
            assert_eq!(ask(&gw, host, path, &alice, &[]).await.status, 404, "{host} {path}");
        }
        for path in ["/t/acme/mcp", "/t/beta/mcp"] {
            assert_eq!(gw.get(host, &format!("{WELL_KNOWN}{path}")).await.status, 404, "{host} {path}");
        }
        // The tenant is the host's, whatever a token says.
        let bob = gw.caller_at("/t/acme/mcp", "beta", "bob", "demo.use");
        assert_eq!(ask(&gw, host, "/mcp", &bob, &[]).await.status, 401);
    }
    let unauthorised = Caller { token: "x".to_owned(), ..alice };
    let answer = ask(&gw, "acme.example.com", "/mcp", &unauthorised, &[]).await;
    let metadata = "resource_metadata=\"http://acme.example.com/.well-known/oauth-protected-resource/mcp\"";
    assert!(answer.header("www-authenticate").unwrap().contains(metadata), "{answer:?}");
    for host in ["example.com", "x.acme.example.com", "acme.example.com.", "acme.example.com:443"] {
        assert_eq!(gw.get(host, &format!("{WELL_KNOWN}/mcp")).await.status, 403, "{host}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn nothing_in_a_document_or_challenge_comes_from_the_request() {
    let gw = two().await;
    let host = gw.addr.to_string();
    let evil = [
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Prefix", "/evil"),
        ("Forwarded", "host=evil.example;proto=https"),
        ("X-Original-URL", "/evil.example"),
    ];
    let mut headers: Vec<_> = evil.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
    headers.push(("Host".to_owned(), host.clone()));
    let path = format!("{WELL_KNOWN}/t/acme/mcp?resource=https://evil.example");
    let with = wire::request(gw.addr, "GET", &path, &headers, b"").await;
    let without = gw.get(&host, &format!("{WELL_KNOWN}/t/acme/mcp")).await;
    assert_eq!((with.status, with.text()), (200, without.text()));
    let nobody = Caller { addr: gw.addr, path: "/mcp".into(), token: "x".into() };
    let answer = ask(&gw, &host, "/mcp?evil.example", &nobody, &evil).await;
    assert_eq!(answer.status, 401);
    assert!(!format!("{answer:?}").contains("evil"), "{answer:?}");
    gw.stop().await;
}

#[tokio::test]
async fn paths_are_compared_as_they_were_sent() {
    let gw = two().await;
    let host = gw.addr.to_string();
    let alice = gw.caller_at("/t/acme/mcp", "acme", "alice", "demo.use");
    for path in ["/t/acme/mcp", "/t/acme/mcp/", "/t/acme/mcp?x=/t/beta/mcp"] {
        assert_eq!(ask(&gw, &host, path, &alice, &[]).await.status, 200, "{path}");
    }
    for path in [
        "/",
        "/mcp//",
        "//mcp",
        "/MCP",
        "/mcp%2F",
        "/%6dcp",
        "/mcp;x",
        "/./mcp",
        "/x/../mcp",
        "/mcp/.",
        "/mcp/x",
        "/t/acme",
        "/t/acme/",
        "/t//mcp",
        "/t/mcp",
        "/T/acme/mcp",
        "/t/ACME/mcp",
        "/t/Acme/mcp",
        "/t/acme%2Fmcp",
        "/t/%61cme/mcp",
        "/t/acme//mcp",
        "/t/acme/mcp//",
        "//t/acme/mcp",
        "/t/./acme/mcp",
        "/t/acme/../acme/mcp",
        "/t/beta/../acme/mcp",
        "/t/acme/x/mcp",
        "/t/acme.json/mcp",
        "/t/-acme/mcp",
        "/t/acme /mcp",
        "/t/acme\\mcp",
        "/sse",
        "/messages",
        "/dev-issuer",
        "/.well-known/openid-configuration",
    ] {
        let answer = ask(&gw, &host, path, &alice, &[]).await;
        // A space ends the target: that is not HTTP.
        let expected = if path.contains(' ') { 400 } else { 404 };
        assert_eq!(answer.status, expected, "{path}");
        assert_eq!(answer.header("location"), None, "{path}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn origins_are_the_deployments_and_on_a_tenants_endpoint_its_own() {
    let gw = two().await;
    let host = gw.addr.to_string();
    let alice = gw.caller("acme", "alice", "demo.use");
    let at_acme = gw.caller_at("/t/acme/mcp", "acme", "alice", "demo.use");
    let at_beta = gw.caller_at("/t/beta/mcp", "beta", "bob", "demo.use");
    let (console, app) = ("https://console.example", "https://app.acme.example");
    for (host, path, caller, origin, status) in [
        (host.as_str(), "/mcp", &alice, console, 200),
        (&host, "/t/acme/mcp", &at_acme, console, 200),
        ("acme.example.com", "/mcp", &at_acme, console, 200),
        (&host, "/t/acme/mcp", &at_acme, app, 200),
        (&host, "/t/acme/mcp/", &at_acme, app, 200),
        ("acme.example.com", "/mcp", &at_acme, app, 200),
        (&host, "/mcp", &alice, app, 403),
        (&host, "/t/beta/mcp", &at_beta, app, 403),
        (&host, "/t/nobody/mcp", &at_beta, app, 403),
    ] {
        let answer = ask(&gw, host, path, caller, &[("Origin", origin)]).await;
        assert_eq!(answer.status, status, "{host}{path} from {origin}: {}", answer.text());
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, (status == 200).then_some(origin), "{host}{path} from {origin}");
    }
    // A page reads its endpoint's metadata before it has a token.
    for (origin, path, status) in
        [(app, "/t/acme/mcp", 200), (app, "/t/beta/mcp", 403), (app, "/mcp", 403), (console, "/mcp", 200)]
    {
        let headers = [("Host".to_owned(), host.clone()), ("Origin".to_owned(), origin.to_owned())];
        let path = format!("{WELL_KNOWN}{path}");
        let answer = wire::request(gw.addr, "GET", &path, &headers, b"").await;
        assert_eq!(answer.status, status, "{path} from {origin}");
        assert_eq!(answer.header("access-control-allow-origin"), (status == 200).then_some(origin));
    }
    for wrong in [
        "null",
        "",
        "*",
        "https://console.example/",
        "https://console.example:443",
        "HTTPS://console.example",
        "https://Console.example",
        "http://console.example",
        "https://console.example.evil.example",
        "https://evil.example",
        "https://console.example https://evil.example",
        "console.example",
        "https://user@console.example",
        "https://console.example.",
        "https://console.example#x",
        "file://",
    ] {
        let answer = ask(&gw, &host, "/mcp", &alice, &[("Origin", wrong)]).await;
        assert_eq!(answer.status, 403, "{wrong:?}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{wrong:?}");
        assert_eq!(answer.header("www-authenticate"), None, "{wrong:?}");
    }
    let twice = [("Origin", console), ("Origin", console)];
    assert_eq!(ask(&gw, &host, "/mcp", &alice, &twice).await.status, 403);
    gw.stop().await;
}

#[tokio::test]
async fn a_page_can_read_answers_and_errors() {
    let gw = two().await;
    let host = gw.addr.to_string();
    let origin = ("Origin", "https://console.example");
    let alice = gw.caller("acme", "alice", "demo.use");
    let stranger = Caller { token: "x".into(), ..alice.clone() };
    let text = [origin, ("Content-Type", "text/plain")];
    let answers = [
        (200, ask(&gw, &host, "/mcp", &alice, &[origin]).await),
        (401, ask(&gw, &host, "/mcp", &stranger, &[origin]).await),
        (404, ask(&gw, &host, "/x", &alice, &[origin]).await),
        (415, ask(&gw, &host, "/mcp", &alice, &text).await),
        (403, {
            let mut headers = alice.headers("tools/call", Some("add"));
            headers.push(("Origin".into(), origin.1.into()));
            let params = json!({"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta()});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            alice.post(&headers, &body.to_string()).await
        }),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin.1), "{status}");
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("WWW-Authenticate") && exposed.contains("Retry-After"), "{exposed}");
        assert_eq!(answer.header("vary"), Some("Origin"), "{status}");
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_preflight_is_answered_without_a_token() {
    let gw = two().await;
    let preflight = async |path: &str, origin: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("Origin", origin)];
        headers.extend(more);
        let headers: Vec<_> = headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        wire::request(gw.addr, "OPTIONS", path, &headers, b"").await
    };
    let post = ("Access-Control-Request-Method", "POST");
    let asked = "authorization,content-type,mcp-method,mcp-param-region,Mcp-Param-City,x-evil";
    let asked = ("Access-Control-Request-Headers", asked);
    for (path, origin) in [
        ("/mcp", "https://console.example"),
        ("/t/acme/mcp", "https://app.acme.example"),
        ("/.well-known/oauth-protected-resource/t/acme/mcp", "https://app.acme.example"),
    ] {
        let answer = preflight(path, origin, &[post, asked]).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("access-control-allow-methods"), Some("POST, GET, DELETE"));
        let allowed = answer.header("access-control-allow-headers").unwrap();
        for name in
            ["authorization", "content-type", "mcp-method", "mcp-name", "mcp-param-region", "mcp-param-city"]
        {
            assert!(allowed.split(", ").any(|allowed| allowed == name), "{name} in {allowed}");
        }
        assert!(!allowed.contains("evil"), "{allowed}");
        assert!(answer.header("access-control-max-age").is_some());
        assert!(answer.header("vary").unwrap().contains("Origin"));
    }
    for origin in ["https://evil.example", "null", "https://app.acme.example"] {
        let answer = preflight("/mcp", origin, &[post, asked]).await;
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let plain = preflight("/mcp", "https://console.example", &[]).await;
    assert_eq!((plain.status, plain.header("allow")), (405, Some("POST, GET, DELETE")));
    gw.stop().await;
}

#[tokio::test]
async fn scopes_are_offered_implied_and_guard_lists_and_calls_alike() {
    let gw = two().await;
    let acme = |scopes| gw.caller("acme", "alice", scopes);
    assert_eq!(acme("").tools().await, Vec::<String>::new());
    let some = acme("demo.use").tools().await;
    assert!(some.contains(&"echo".to_owned()) && !some.contains(&"add".to_owned()), "{some:?}");
    assert!(acme("demo.math demo.use").tools().await.contains(&"add".to_owned()));
    assert_eq!(acme("demo.math").tools().await, Vec::<String>::new(), "both globs of `add` count");
    let answer = acme("").call_tool("add", json!({"a": 1, "b": 2})).await;
    let said = answer.header("www-authenticate").unwrap();
    assert!(answer.status == 403 && said.contains(r#"scope="demo.math demo.use""#), "{said}");
    for scopes in ["demo.use", "demo.admin", "root", "x root"] {
        let bob = gw.caller_at("/t/beta/mcp", "beta", "bob", scopes);
        assert_eq!(bob.tools().await.len(), 8, "{scopes}");
        let sum = bob.call_tool("demo_add", json!({"a": 2, "b": 3})).await.result();
        assert_eq!(sum["structuredContent"]["result"], 5);
    }
    let narrow = gw.caller_at("/t/beta/mcp", "beta", "bob", "demo.us demo.use2 *");
    assert_eq!(narrow.call_tool("demo_add", json!({"a": 2, "b": 3})).await.status, 403);
    // What another scope's name only begins with is not implied, and names are never split.
    let bob = gw.caller_at("/t/beta/mcp", "beta", "bob", "demo.use");
    assert_eq!(bob.call_tool("add", json!({"a": 2, "b": 3})).await.refusal(), (200, -32602));
    gw.stop().await;
}

#[tokio::test]
async fn without_a_shared_issuer_there_is_no_shared_endpoint() {
    let tenants = r#"
tenants:
  acme:
    issuers: [{issuer: "https://login.acme.example"}]
    backends: {demo: {kind: demo}}
"#;
    let gw = Gateway::start(tenants).await;
    let host = gw.addr.to_string();
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(ask(&gw, &host, "/mcp", &alice, &[]).await.status, 404);
    assert_eq!(gw.get(&host, &format!("{WELL_KNOWN}/mcp")).await.status, 404);
    assert_eq!(gw.get(&host, &format!("{WELL_KNOWN}/t/acme/mcp")).await.status, 200);
    assert_eq!(ask(&gw, &host, "/t/nobody/mcp", &alice, &[]).await.status, 401);
    gw.stop().await;
}

#[tokio::test]
async fn the_first_backend_of_the_file_owns_a_name() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.tool("own", r#"{"name":"own","inputSchema":{"type":"object"}}"#);
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  acme:
    backends:
      zeta: {{kind: mcp, url: "{first}", prefix: ""}}
      alpha: {{kind: mcp, url: "{second}", prefix: ""}}
      third: {{kind: mcp, url: "{second}"}}
      dots: {{kind: mcp, url: "{second}", prefix: "a.b-"}}
"#,
        first = first.url(),
        second = second.url(),
    );
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    let expected = ["a.b-echo", "a.b-own", "echo", "own", "third_echo", "third_own"];
    eventually("every backend is listed", async || alice.tools().await == expected).await;
    for (name, upstream) in
        [("echo", &first), ("own", &second), ("third_echo", &second), ("a.b-own", &second)]
    {
        let before = upstream.asked().len();
        alice.call_tool(name, json!({"x": 1})).await.result();
        let requests = upstream.asked();
        let own = name.rsplit(['_', '-']).next().unwrap();
        assert_eq!((requests.len(), requests[before].header("mcp-name")), (before + 1, vec![own]), "{name}");
    }
    gw.stop().await;
}

/// A gateway whose tenants are in a file, which is watched.
struct Filed {
    gw: Gateway,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

fn tenants(gw_or_settings: &str, tenants: &str) -> String {
    tenants.replace("{issuer}", &format!("http://{gw_or_settings}/dev-issuer"))
}

impl Filed {
    /// The file, made by `make` from its text, is `tenants.yaml` in the directory.
    async fn start(text: &str, make: impl FnOnce(&Path, &str)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tenants.yaml");
        let shared = "issuers: [{issuer: '{issuer}', tenant_claim: tenant}]\ntenants: {}";
        let change = |settings: &mut Settings| {
            make(dir.path(), &tenants(&settings.listen.to_string(), text));
            settings.tenants = Some(file.clone());
        };
        let gw = Gateway::start_with(shared, change).await;
        Self { gw, file, _dir: dir }
    }

    async fn plain(text: &str) -> Self {
        Self::start(text, |dir, text| std::fs::write(dir.join("tenants.yaml"), text).unwrap()).await
    }

    fn text(&self, text: &str) -> String {
        tenants(&self.gw.addr.to_string(), text)
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.file, self.text(text)).unwrap();
    }

    async fn status(&self, tenant: &str) -> u16 {
        let caller = self.gw.caller_at(&format!("/t/{tenant}/mcp"), tenant, "alice", "demo.use");
        caller.rpc("server/discover", json!({})).await.status
    }

    async fn becomes(&self, tenant: &str, status: u16) {
        let what = format!("{tenant} is answered {status}");
        eventually(&what, async || self.status(tenant).await == status).await;
    }

    async fn is_refused(&self, times: u64) {
        eventually("the file is refused", async || self.gw.app.tenants.failures() >= times).await;
        assert_eq!(self.gw.app.tenants.failures(), times);
        assert_eq!(self.status("acme").await, 200, "the last good tenants stay");
    }
}

const ONE: &str = r#"
tenants:
  acme:
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

const OTHER: &str = r#"
tenants:
  beta:
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

#[tokio::test]
async fn a_change_of_the_file_is_served() {
    let filed = Filed::plain(ONE).await;
    let shared = filed.gw.caller("acme", "alice", "demo.use");
    assert_eq!((filed.status("acme").await, filed.status("beta").await), (200, 404));
    assert!(!shared.tools().await.is_empty());

    filed.write(&ONE.replace("[demo.use]", "[demo.new]"));
    eventually("the new scope is needed", async || shared.tools().await.is_empty()).await;
    let at_acme = filed.gw.caller_at("/t/acme/mcp", "acme", "alice", "demo.use");
    let answer = at_acme.call_tool("echo", json!({"text": "x"})).await;
    assert!(answer.status == 403 && answer.header("www-authenticate").unwrap().contains("demo.new"));
    let answer = Caller { token: "x".into(), ..at_acme }.rpc("tools/list", json!({})).await;
    assert!(answer.header("www-authenticate").unwrap().contains(r#"scope="demo.new""#), "{answer:?}");

    filed.write(OTHER);
    filed.becomes("beta", 200).await;
    assert_eq!(filed.status("acme").await, 404, "by a token of the shared issuer for that URL");
    let nobody = Caller { token: "x".into(), ..filed.gw.caller_at("/t/acme/mcp", "acme", "alice", "") };
    assert_eq!(nobody.rpc("tools/list", json!({})).await.status, 401);
    assert_eq!(shared.rpc("tools/list", json!({})).await.status, 401, "at /mcp, with a token just used");
    let host = filed.gw.addr.to_string();
    assert_eq!(filed.gw.get(&host, &format!("{WELL_KNOWN}/t/acme/mcp")).await.status, 404);
    assert_eq!(filed.gw.app.tenants.failures(), 0);
    filed.gw.stop().await;
}

#[tokio::test]
async fn a_file_that_does_not_load_changes_nothing() {
    let filed = Filed::plain(ONE).await;
    let whole = filed.text(&format!("{ONE}{}", OTHER.trim_start_matches("\ntenants:")));
    // As an editor that writes in place may leave it for a while, or for good.
    std::fs::write(&filed.file, &whole[..whole.find("beta").unwrap() + 20]).unwrap();
    filed.is_refused(1).await;
    std::fs::write(&filed.file, "").unwrap();
    filed.is_refused(2).await;
    std::fs::remove_file(&filed.file).unwrap();
    filed.is_refused(3).await;
    std::fs::create_dir(&filed.file).unwrap();
    filed.is_refused(4).await;
    std::fs::remove_dir(&filed.file).unwrap();
    std::fs::write(&filed.file, [0xff, 0xfe, 0x00]).unwrap();
    eventually("it is refused", async || filed.gw.app.tenants.failures() >= 5).await;
    std::fs::write(&filed.file, whole).unwrap();
    filed.becomes("beta", 200).await;
    assert_eq!(filed.status("acme").await, 200);
    filed.gw.stop().await;
}

#[tokio::test]
async fn a_file_that_is_replaced_by_renames_and_links_is_followed() {
    // As Kubernetes mounts it: the file is a link into `..data`, which is a link that is swapped.
    let mount = |dir: &Path, version: &str, text: &str| {
        std::fs::create_dir(dir.join(version)).unwrap();
        std::fs::write(dir.join(version).join("tenants.yaml"), text).unwrap();
        std::os::unix::fs::symlink(version, dir.join("..new")).unwrap();
        std::fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
    };
    let filed = Filed::start(ONE, |dir, text| {
        mount(dir, "..1", text);
        std::os::unix::fs::symlink("..data/tenants.yaml", dir.join("tenants.yaml")).unwrap();
    })
    .await;
    let dir = filed.file.parent().unwrap();
    mount(dir, "..2", &filed.text(OTHER));
    std::fs::remove_dir_all(dir.join("..1")).unwrap();
    filed.becomes("beta", 200).await;
    mount(dir, "..3", &filed.text(ONE));
    std::fs::remove_dir_all(dir.join("..2")).unwrap();
    filed.becomes("acme", 200).await;
    // What the link leads to may change as well, once nothing else does.
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::fs::write(dir.join("..3/tenants.yaml"), filed.text(OTHER)).unwrap();
    filed.becomes("beta", 200).await;
    // And as careful editors do it.
    std::fs::write(dir.join("tenants.yaml.tmp"), filed.text(ONE)).unwrap();
    std::fs::rename(dir.join("tenants.yaml.tmp"), &filed.file).unwrap();
    filed.becomes("acme", 200).await;
    assert_eq!(filed.gw.app.tenants.failures(), 0);
    filed.gw.stop().await;
}

#[tokio::test]
async fn a_request_finishes_on_the_tenants_it_began_with() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Late(Duration::from_secs(3)));
    let acme = format!(
        "tenants: {{acme: {{issuers: [{{shared: '{{issuer}}'}}], backends: {{b: {{kind: mcp, url: '{}'}}}}}}}}",
        upstream.url()
    );
    let filed = Filed::plain(&acme).await;
    let alice = filed.gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["b_echo"]);
    let call = tokio::spawn(async move { alice.call_tool("b_echo", json!({"x": 1})).await });
    let asked = async || upstream.requests().iter().any(|r| r.header("mcp-name") == ["echo"]);
    eventually("the backend is asked", asked).await;
    filed.write(OTHER);
    filed.becomes("beta", 200).await;
    assert!(!call.is_finished(), "the change came after the end");
    assert_eq!(call.await.unwrap().result()["structuredContent"], json!({"x": 1}));
    filed.gw.stop().await;
}

#[tokio::test]
async fn a_credential_is_read_again_when_its_file_changes() {
    let upstream = Upstream::start().await;
    let secrets = tempfile::tempdir().unwrap();
    let secret = secrets.path().join("token");
    std::fs::write(&secret, "first-secret\n").unwrap();
    let acme = format!(
        r#"
tenants:
  acme:
    issuers: [{{shared: "{{issuer}}"}}]
    secrets: {{t: {{file: "{}"}}}}
    backends:
      bearer: {{kind: mcp, url: "{url}", credential: {{kind: bearer, secret: t}}}}
      header: {{kind: mcp, url: "{url}", credential: {{kind: header, name: X-Api-Key, secret: t}}}}
"#,
        secret.display(),
        url = upstream.url()
    );
    let filed = Filed::plain(&acme).await;
    let alice = filed.gw.caller("acme", "alice", "");
    let sent = async |tool: &str, header: &str| {
        alice.call_tool(tool, json!({})).await.result();
        let requests = upstream.requests();
        requests.last().unwrap().header(header).join(", ")
    };
    assert_eq!(sent("bearer_echo", "authorization").await, "Bearer first-secret");
    assert_eq!(sent("header_echo", "x-api-key").await, "first-secret");
    std::fs::write(&secret, "second-secret").unwrap();
    eventually("the new value is sent", async || {
        sent("bearer_echo", "authorization").await == "Bearer second-secret"
    })
    .await;
    assert_eq!(sent("header_echo", "x-api-key").await, "second-secret");
    // What cannot be read, or sent, stays what it was.
    std::fs::write(&secret, "two\nlines").unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    std::fs::remove_file(&secret).unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(sent("header_echo", "x-api-key").await, "second-secret");
    std::fs::write(&secret, "third-secret").unwrap();
    eventually("the third value is sent", async || sent("header_echo", "x-api-key").await == "third-secret")
        .await;
    filed.gw.stop().await;
}

#[tokio::test]
async fn the_log_says_where_a_file_is_broken() {
    let acme = "tenants:\n  acme:\n    backends: {demo: {kind: demo}}\n";
    let serving = Serving::start(acme, &[("FONDACO_TELEMETRY__LOG", "text")]).await;
    let refused = || serving.log().matches("the tenants stay what they were").count();
    serving.write("tenants:\n  acme:\n    backend: {}\n    issuers: [{issuer: http://plain.example}]\n");
    let said = async |text: &str| {
        let what = format!("the log says {text:?}: {}", serving.log());
        eventually(&what, async || serving.log().contains(text)).await;
    };
    said("tenants.yaml:3: tenants.acme.backend: unknown key\n  hint: did you mean `backends`?").await;
    said("tenants.yaml:4: tenants.acme.issuers[0].issuer: ").await;
    serving.write("tenants:\n  acme: {\n");
    eventually("the file is refused again", async || refused() == 2).await;
    serving.write(acme);
    said("the tenants were read again").await;
    serving.process.signal("HUP");
    said("SIGHUP").await;
    let log = serving.log();
    let (_, last) = log.rsplit_once("does not load:\n").unwrap();
    assert!(last.starts_with("tenants.yaml:3: not YAML: "), "{last}");
    assert!(serving.process.terminate().await.success());
}
