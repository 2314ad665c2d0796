//! What an operator sees: health, metrics and the request log.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco::model::clock::Clock;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::issuer::Behaviour as Away;
use crate::harness::issuer::Issuer;
use crate::harness::issuer::Signer;
use crate::harness::process;
use crate::harness::serving::Serving;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

const DEMO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

async fn admin(gw: &Gateway, method: &str, path: &str) -> Answer {
    wire::request(gw.admin, method, path, &[], b"").await
}

#[tokio::test]
async fn health_says_live_and_ready_until_the_drain() {
    let gw = Gateway::start_with(DEMO, |s| s.limits.drain_accept = Duration::from_secs(1)).await;
    for (path, text) in [("/livez", "live\n"), ("/readyz", "ready\n")] {
        let answer = admin(&gw, "GET", path).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, text));
        assert_eq!(admin(&gw, "HEAD", path).await.status, 200);
        assert_eq!(admin(&gw, "POST", path).await.status, 405);
        // They are the operators' alone.
        assert_eq!(gw.get(&gw.addr.to_string(), path).await.status, 404);
    }
    for path in ["/", "/metrics/", "/debug", "/mcp"] {
        assert_eq!(admin(&gw, "GET", path).await.status, 404, "{path}");
    }
    let alice = gw.caller("demo", "alice", "demo.use");
    let address = gw.admin;
    let stopping = tokio::spawn(gw.stop());
    let ask = async |path: &str| wire::request(address, "GET", path, &[], b"").await;
    eventually("it is not ready", async || ask("/readyz").await.status == 503).await;
    assert_eq!(ask("/readyz").await.text(), "unready\n");
    assert_eq!(ask("/livez").await.status, 200, "draining is no reason to be killed");
    assert_eq!(alice.tools().await.len(), 8, "who comes all the same is served");
    stopping.await.unwrap();
}

#[tokio::test]
async fn the_admin_listener_answers_to_local_names_alone() {
    let gw = Gateway::start(DEMO).await;
    let port = gw.admin.port();
    let ask = async |host: &str| {
        let host = [("Host".to_owned(), host.to_owned())];
        wire::request(gw.admin, "GET", "/metrics", &host, b"").await.status
    };
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        assert_eq!(ask(&host).await, 200, "{host}");
    }
    // As a probe or a port forward may send it.
    assert_eq!(ask("localhost").await, 200);
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.1", "", "localhost:x"]
    {
        assert_eq!(ask(host).await, 403, "{host}");
    }
    let bytes = format!(
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(wire::raw(gw.admin, bytes.as_bytes()).await.status, 403);
    gw.stop().await;
}

/// The value of a series now; 0 where it is not there.
async fn metric(gw: &Gateway, series: &str) -> f64 {
    let text = admin(gw, "GET", "/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// Waits until the series is at least this.
async fn reaches(gw: &Gateway, series: &str, value: f64) {
    eventually(&format!("{series} reaches {value}"), async || metric(gw, series).await >= value).await;
}

#[tokio::test]
async fn metrics_move_with_requests() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    alice.call_tool("add", json!({"a": 1, "b": 2})).await.result();
    alice.call_tool("add", json!({"a": "x"})).await.result();
    alice.call_tool("nope", json!({})).await;
    alice.rpc("no/such", json!({})).await;
    let slow =
        alice.rpc("tools/call", json!({"name": "slow", "arguments": {"steps": 1, "delay_ms": 1}})).await;
    assert_eq!(slow.status, 200);
    Caller { token: "x".into(), ..alice.clone() }.rpc("tools/list", json!({})).await;
    gw.get("evil.example", "/mcp").await;
    for (name, value) in [
        (r#"fondaco_requests_total{method="tools/call",outcome="ok"}"#, 2.0),
        (r#"fondaco_requests_total{method="tools/call",outcome="error"}"#, 1.0),
        (r#"fondaco_requests_total{method="tools/call",outcome="refused"}"#, 1.0),
        (r#"fondaco_request_duration_seconds_count{method="tools/call"}"#, 4.0),
        (r#"fondaco_refusals_total{kind="unknown_target"}"#, 1.0),
        (r#"fondaco_refusals_total{kind="method"}"#, 1.0),
        (r#"fondaco_refusals_total{kind="invalid_token"}"#, 1.0),
        (r#"fondaco_refusals_total{kind="host"}"#, 1.0),
        (r#"fondaco_token_cache_total{result="miss"}"#, 2.0),
        (r#"fondaco_token_cache_total{result="hit"}"#, 4.0),
        (r#"fondaco_panics_total"#, 0.0),
        (r#"fondaco_streams_open"#, 0.0),
    ] {
        assert_eq!(metric(&gw, name).await, value, "{name}");
    }
    let kept = Connection::open(gw.addr).await;
    reaches(&gw, "fondaco_connections_open", 1.0).await;
    drop(kept);
    gw.stop().await;
}

#[tokio::test]
async fn metrics_move_with_issuers_backends_and_reloads() {
    let (upstream, own) = (Upstream::start().await, Issuer::start("").await);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    let acme = format!(
        "tenants: {{acme: {{issuers: [{{issuer: '{}'}}], backends: {{b: {{kind: mcp, url: '{}'}}}}}}}}",
        own.url(),
        upstream.url()
    );
    std::fs::write(&file, &acme).unwrap();
    upstream.tool("odd", r#"{"name":"odd","inputSchema":{"type":"array"}}"#);
    let gw = Gateway::start_with(DEMO, |settings| {
        settings.tenants = Some(file.clone());
        settings.limits.refresh_time = Duration::from_millis(200);
        settings.limits.keys_refresh = Duration::from_millis(200);
    })
    .await;
    let bob = Caller {
        addr: gw.addr,
        path: "/t/acme/mcp".to_owned(),
        token: own.token(&format!("http://{}/t/acme/mcp", gw.addr), gw.app.clock.now()),
    };
    let fetched = |outcome: &str| format!("fondaco_key_fetches_total{{outcome=\"{outcome}\"}}");
    let refreshed = |outcome: &str| format!("fondaco_catalog_refreshes_total{{outcome=\"{outcome}\"}}");
    upstream.behave("tools/list", Behaviour::Error(500, r#"{"code":-32603,"message":"x"}"#.to_owned()));
    assert_eq!(bob.tools().await, Vec::<String>::new());
    reaches(&gw, &refreshed("failed"), 1.0).await;
    let before = metric(&gw, &refreshed("ok")).await;
    upstream.behave("tools/list", Behaviour::Echo);
    eventually("the backend is listed", async || bob.tools().await == ["b_echo"]).await;
    reaches(&gw, &refreshed("ok"), before + 1.0).await;
    assert_eq!(metric(&gw, "fondaco_entries_left_out_total").await, 1.0);
    reaches(&gw, &fetched("ok"), 2.0).await;
    own.behave(Away::Status(500));
    eventually("its keys are asked for in vain", async || {
        bob.rpc("tools/list", json!({})).await;
        metric(&gw, &fetched("failed")).await >= 1.0
    })
    .await;

    upstream.behave("echo", Behaviour::Hang);
    let mut leaving = Connection::open(gw.addr).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "b_echo", "arguments": {}, "_meta": meta()}});
    leaving.send(request(&bob, &bob.headers("tools/call", Some("b_echo")), &body.to_string())).await;
    reaches(&gw, "fondaco_requests_in_flight", 1.0).await;
    drop(leaving);
    reaches(&gw, r#"fondaco_requests_total{method="tools/call",outcome="cancelled"}"#, 1.0).await;
    assert_eq!(metric(&gw, "fondaco_requests_in_flight").await, 0.0);

    upstream.handshake(Handshake::default()).behave("echo", Behaviour::Echo);
    bob.call_tool("b_echo", json!({})).await.result();
    reaches(&gw, r#"fondaco_upstream_sessions_total{event="opened"}"#, 1.0).await;
    assert_eq!(metric(&gw, r#"fondaco_upstream_probes_total{result="modern"}"#).await, 1.0);
    assert_eq!(metric(&gw, r#"fondaco_upstream_probes_total{result="handshake"}"#).await, 1.0);

    let reloads = |outcome: &str| format!("fondaco_config_reloads_total{{outcome=\"{outcome}\"}}");
    std::fs::write(&file, "tenants: [").unwrap();
    reaches(&gw, &reloads("refused"), 1.0).await;
    std::fs::write(&file, "tenants: {}").unwrap();
    reaches(&gw, &reloads("ok"), 1.0).await;

    gw.get("evil.example", "/mcp").await;
    let page = std::fs::read_to_string(process::root().join("docs/reference/metrics.md")).unwrap();
    let text = admin(&gw, "GET", "/metrics").await.text();
    for name in
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name)
    {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is documented and not there");
    }
    assert!(text.ends_with("# EOF\n"));
    gw.stop().await;
}

/// The bytes of a POST on a connection that is kept.
fn request(caller: &Caller, headers: &[(String, String)], body: &str) -> String {
    let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let host = if headers.iter().any(|(name, _)| name == "Host") {
        String::new()
    } else {
        format!("Host: {}\r\n", caller.addr)
    };
    format!("POST {} HTTP/1.1\r\n{host}{fields}Content-Length: {}\r\n\r\n{body}", caller.path, body.len())
}

/// A process with a request log, and who asks it.
struct Watched {
    serving: Serving,
    alice: Caller,
    upstream: Upstream,
    seen: usize,
    faults: Vec<String>,
    _issuer: Issuer,
}

impl Watched {
    async fn start() -> Self {
        let (issuer, upstream) = (Issuer::start("").await, Upstream::start().await);
        let tenants = format!(
            r#"
issuers: [{{issuer: "{issuer}", tenant_claim: tenant}}]
tenants:
  acme:
    issuers: [{{shared: "{issuer}"}}]
    secrets: {{t: {{env: CRM_TOKEN}}}}
    backends:
      demo: {{kind: demo, prefix: "", scopes: {{"*": [demo.use], "tool:subtract": [demo.more]}}}}
      crm: {{kind: mcp, url: "{url}", credential: {{kind: bearer, secret: t}}}}
"#,
            issuer = issuer.url(),
            url = upstream.url()
        );
        let serving = Serving::start(&tenants, &[("CRM_TOKEN", "canary-credential")]).await;
        let path = "/t/acme/mcp";
        let claims = issuer.claims(&format!("http://{}{path}", serving.addr), Clock::default().now());
        let token = issuer.mint(&issuer.header(Signer::Ec), &claims, Signer::Ec);
        let alice = Caller { addr: serving.addr, path: path.to_owned(), token };
        Self { serving, alice, upstream, seen: 0, faults: Vec::new(), _issuer: issuer }
    }

    /// The one line that was said since the last look has these fields, and those `absent` not.
    async fn says(&mut self, what: &str, expected: Value, absent: &[&str]) {
        let lines = || -> Vec<Value> {
            self.serving.events().into_iter().filter(|event| event["target"] == "request").collect()
        };
        eventually(&format!("a line for {what}"), async || lines().len() > self.seen).await;
        let lines = lines();
        let line = &lines[self.seen];
        let wrong = expected.as_object().unwrap().iter().filter(|(name, value)| line[*name] != **value);
        let mut faults: Vec<String> =
            wrong.map(|(name, value)| format!("{name}: {} is not {value}", line[name])).collect();
        faults.extend(
            absent.iter().filter(|name| line.get(**name).is_some()).map(|name| format!("has {name}")),
        );
        if lines.len() != self.seen + 1 {
            faults.push(format!("{} lines", lines.len() - self.seen));
        }
        let level = if line.get("error").is_some() { "ERROR" } else { "INFO" };
        if !line["duration_ms"].is_u64() || line["level"] != level || !line["outcome"].is_string() {
            faults.push("no duration, or another level".to_owned());
        }
        self.seen = lines.len();
        if !faults.is_empty() {
            self.faults.push(format!("{what}: {faults:?} in {line}"));
        }
    }

    /// What is true of every line, and of the log as a whole; then the end.
    async fn end(self) {
        assert!(self.faults.is_empty(), "{:#?}", self.faults);

        let events = self.serving.events();
        let lines: Vec<_> = events.iter().filter(|event| event["target"] == "request").collect();
        let subjects: BTreeSet<_> = lines.iter().filter_map(|line| line["subject"].as_str()).collect();
        assert_eq!(subjects.len(), 1, "one caller has one pseudonym: {subjects:?}");
        let page = std::fs::read_to_string(process::root().join("docs/reference/request-log.md")).unwrap();
        let documented: BTreeSet<&str> =
            page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
        for name in lines.iter().flat_map(|line| line.as_object().unwrap().keys()) {
            let own = ["timestamp", "level", "target", "message"].contains(&name.as_str());
            assert!(own || documented.contains(name.as_str()), "{name} is not documented");
        }
        let log = self.serving.log();
        for secret in ["canary", "alice", self.alice.token.as_str(), "Bearer"] {
            assert!(!log.contains(secret), "{secret:?} in the log");
        }
        assert!(self.serving.process.terminate().await.success());
    }
}

#[tokio::test]
async fn a_refused_request_is_one_line() {
    let mut watched = Watched::start().await;
    let alice = watched.alice.clone();
    let early = ["rpc_method", "tenant", "backend", "name", "subject", "trace_id"];
    let post = |headers: Vec<(String, String)>, body: &str| {
        let (alice, body) = (alice.clone(), body.to_owned());
        async move { alice.post(&headers, &body).await }
    };
    let right = alice.headers("tools/list", None);
    let without = |name: &str| right.iter().filter(|(n, _)| n != name).cloned().collect::<Vec<_>>();
    let with = |name: &str, value: &str| {
        let mut headers = without(name);
        headers.push((name.to_owned(), value.to_owned()));
        headers
    };

    post(without("Authorization"), "{}").await;
    let line = json!({"http_method": "POST", "path": "tenant_mcp", "status": 401, "refusal": "missing_token", "bytes_in": 0, "bytes_out": 0});
    watched.says("no token", line, &early).await;
    post(with("Authorization", "Bearer canary-token"), "{}").await;
    watched.says("a wrong token", json!({"status": 401, "refusal": "invalid_token"}), &early).await;
    let answer = post(with("Host", "canary.example"), "{}").await;
    let line =
        json!({"status": 403, "refusal": "host", "path": "tenant_mcp", "bytes_out": answer.body.len()});
    watched.says("a wrong host", line, &early).await;
    post(with("Origin", "https://canary.example"), "{}").await;
    watched.says("a wrong origin", json!({"status": 403, "refusal": "origin"}), &early).await;
    wire::request(alice.addr, "GET", "/mcp?canary=query", &[], b"").await;
    let line = json!({"http_method": "GET", "path": "mcp", "status": 405, "refusal": "http_method"});
    watched.says("another method", line, &early).await;
    wire::request(alice.addr, "GET", "/canary-path", &[], b"").await;
    watched.says("another path", json!({"path": "other", "status": 404, "refusal": "path"}), &early).await;
    let document =
        wire::request(alice.addr, "GET", "/.well-known/oauth-protected-resource/mcp", &[], b"").await;
    let line = json!({"path": "metadata", "status": 200, "bytes_out": document.body.len()});
    watched.says("metadata", line, &["refusal", "tenant"]).await;
    post(with("Content-Type", "text/plain"), "{}").await;
    let line = json!({"status": 415, "refusal": "media", "tenant": "acme", "bytes_in": 0});
    watched.says("another type", line, &["rpc_method", "backend"]).await;
    post(right.clone(), "canary: no JSON").await;
    let line = json!({"status": 400, "refusal": "json", "tenant": "acme", "bytes_in": 15});
    watched.says("no JSON", line, &["rpc_method", "backend"]).await;
    post(right.clone(), &" ".repeat((4 << 20) + 1)).await;
    watched
        .says("too long", json!({"status": 413, "refusal": "body", "tenant": "acme"}), &["rpc_method"])
        .await;
    watched.end().await;
}

#[tokio::test]
async fn an_answered_request_is_one_line() {
    let mut watched = Watched::start().await;
    let alice = watched.alice.clone();
    let answer = alice.rpc("tools/list", json!({})).await;
    let line =
        json!({"status": 200, "rpc_method": "tools/list", "tenant": "acme", "bytes_out": answer.body.len()});
    watched.says("a list", line, &["refusal", "backend", "name"]).await;
    let mut traced = meta();
    traced["traceparent"] = json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    traced["tracestate"] = json!("canary=1");
    traced["baggage"] = json!("canary=1");
    let params = json!({"name": "add", "arguments": {"a": 1, "b": 2, "canary": "argument"}, "_meta": traced});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let answer = alice.post(&alice.headers("tools/call", Some("add")), &body).await;
    let line = json!({"status": 200, "rpc_method": "tools/call", "tenant": "acme", "backend": "demo", "name": "add",
        "bytes_in": body.len(), "bytes_out": answer.body.len(), "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"});
    watched.says("a call", line, &["refusal", "resource"]).await;
    traced["traceparent"] = json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-canary");
    let params = json!({"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": traced});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    alice.post(&alice.headers("tools/call", Some("add")), &body).await.result();
    watched.says("a malformed trace", json!({"status": 200, "name": "add"}), &["trace_id"]).await;
    alice.call_tool("subtract", json!({"a": 1, "b": 2})).await;
    let line = json!({"status": 403, "refusal": "scope", "rpc_method": "tools/call", "tenant": "acme"});
    watched.says("a missing scope", line, &[]).await;
    alice.call_tool("canary-tool", json!({})).await;
    let line = json!({"status": 200, "refusal": "unknown_target", "rpc_method": "tools/call"});
    watched.says("an unknown tool", line, &["name", "backend"]).await;
    alice.rpc("canary/method", json!({})).await;
    watched.says("an unknown method", json!({"status": 404, "refusal": "method"}), &["rpc_method"]).await;
    watched.upstream.behave("tools/list", Behaviour::Echo).behave("echo", Behaviour::Reset);
    alice.call_tool("crm_echo", json!({})).await;
    let line = json!({"status": 200, "refusal": "backend_broken", "backend": "crm", "name": "crm_echo"});
    watched.says("a backend that fails", line, &[]).await;

    let params = json!({"name": "slow", "arguments": {"steps": 3, "delay_ms": 20}});
    let mut progress = meta();
    progress["progressToken"] = json!("canary-progress");
    let params = json!({"name": params["name"], "arguments": params["arguments"], "_meta": progress});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let answer = alice.post(&alice.headers("tools/call", Some("slow")), &body).await;
    assert!(answer.events().len() > 1, "{}", answer.text());
    let line = json!({"status": 200, "name": "slow", "bytes_in": body.len(), "bytes_out": answer.body.len()});
    watched.says("a stream", line, &["refusal"]).await;
    watched.end().await;
}

#[tokio::test]
async fn a_request_whose_client_leaves_is_one_line() {
    let mut watched = Watched::start().await;
    let alice = watched.alice.clone();
    watched.upstream.behave("echo", Behaviour::Hang);
    let call = |name: &str, arguments: Value| {
        let mut meta = meta();
        meta["progressToken"] = json!(1);
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        (request(&alice, &alice.headers("tools/call", Some(name)), &body), body.len())
    };
    let (bytes, length) = call("crm_echo", json!({}));
    let mut leaving = Connection::open(alice.addr).await;
    leaving.send(bytes).await;
    let asked =
        async || watched.upstream.requests().iter().filter(|r| r.header("mcp-name") == ["echo"]).count() == 1;
    eventually("the backend is asked", asked).await;
    drop(leaving);
    let line = json!({"status": 0, "rpc_method": "tools/call", "tenant": "acme", "backend": "crm", "name": "crm_echo",
        "bytes_in": length, "bytes_out": 0});
    watched.says("a client that leaves", line, &["refusal"]).await;
    let (bytes, _) = call("slow", json!({"steps": 100, "delay_ms": 100}));
    let mut leaving = Connection::open(alice.addr).await;
    leaving.send(bytes).await;
    assert_eq!(leaving.head().await.status, 200);
    drop(leaving);
    watched.says("a client that leaves a stream", json!({"status": 200, "name": "slow"}), &["refusal"]).await;
    watched.end().await;
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_nobody() {
    let state = tempfile::tempdir().unwrap();
    let mut command = process::fondaco();
    command.args(["dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir"]);
    // Its standard error is a pipe whose other end is held and never read.
    command.arg(state.path()).stderr(std::process::Stdio::piped());
    let mut process = process::Process::start(&mut command);
    let endpoint = process.line("endpoint: ").await;
    let authority = endpoint.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let addr = authority.parse().unwrap();
    let mut connection = Connection::open(addr).await;
    // Each is a line of the log, and 64 KiB of them fill the pipe.
    for _ in 0..2_000 {
        assert!(connection.send(format!("GET /nothing HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await);
        assert_eq!(connection.answer().await.status, 404);
    }
    assert!(process.terminate().await.success());
}
