//! Clients of the handshake era, at the same endpoints as modern ones: how sessions begin and end, who
//! is let into one, and the order in which a request is judged.

mod batches;
mod calls;
mod ladder;
mod leaving;
mod listening;
mod memory;
mod nouns;

use std::time::Duration;

use fondaco::catalog::cursor::seal_cursor;
use fondaco::legacy::session;
use fondaco::model::caller::Caller as Identity;
use fondaco::model::clock::Clock;
use fondaco::model::limits::Limits;
use fondaco::model::name::TenantName;
use fondaco::model::scope::Scopes;
use fondaco::protocol::json::Json;
use fondaco::protocol::methods::List;
use fondaco::protocol::version::Handshake;
use fondaco::seal::KeyRing;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::issuer::Issuer;
use crate::harness::issuer::Signer;
use crate::harness::serving::Serving;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::session::bare;
use crate::harness::session::initialize;
use crate::harness::session::notification;
use crate::harness::session::request;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;

const DEMO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    instructions: "Try it."
    allowed_origins: ["https://app.example"]
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
  other:
    issuers: [{shared: "{issuer}"}]
  past:
    legacy: off
    issuers: [{shared: "{issuer}"}]
"#;

/// No tenants yet, and the gateway's own issuer for those that come.
const SHARED: &str = "issuers: [{issuer: \"{issuer}\", tenant_claim: tenant}]\ntenants: {}";

/// That issuer, as a tenant of [`file_of_acme`] trusts it.
const OWN: &str = "{shared: \"ISSUER\"}";

/// A gateway before `upstream`, which is all that the tenant `acme` has.
async fn before(upstream: &Upstream, change: impl FnOnce(&mut Limits)) -> (Gateway, Caller) {
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants: {{acme: {{backends: {{up: {{kind: mcp, url: "{}", prefix: ""}}}}}}}}
"#,
        upstream.url()
    );
    let gw = Gateway::start_with(&tenants, |settings| {
        settings.limits.keep_alive = Duration::from_millis(100);
        change(&mut settings.limits);
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    assert!(alice.tools().await.contains(&"echo".to_owned()));
    (gw, alice)
}

/// A tenants file whose tenant `acme` has the backend at `url`, trusts `issuers` and has `more`; `ISSUER`
/// is the gateway's own.
fn file_of_acme(gw: &Gateway, url: &str, issuers: &str, more: &str) -> String {
    let up = format!("{{up: {{kind: mcp, url: \"{url}\", prefix: \"\"}}}}");
    let text = format!("tenants: {{acme: {{issuers: [{issuers}], backends: {up}{more}}}}}");
    text.replace("ISSUER", &format!("http://{}/dev-issuer", gw.addr))
}

fn ping() -> String {
    request(&json!(1), "ping", &json!({}))
}

/// The status, and everything that a client reads of an answer.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    (answer.status, headers, answer.text())
}

// spec: rows RU-2, LG-01, LG-02, LG-06
#[tokio::test]
async fn a_session_is_opened_worked_in_and_closed() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        assert_eq!(session.opened["protocolVersion"], revision);
        assert_eq!(session.opened["serverInfo"]["name"], "fondaco");
        assert!(session.opened["instructions"].as_str().unwrap().starts_with("Try it."));
        let discovered = alice.rpc("server/discover", json!({})).await.result();
        assert_eq!(session.opened["capabilities"], discovered["capabilities"]);
        assert_eq!(session.opened["instructions"], discovered["instructions"]);
        assert_eq!(session.opened.as_object().unwrap().len(), 4, "{}", session.opened);
        assert_eq!(session.rpc("ping", json!({})).await.result(), json!({}));
        let list = session.rpc("tools/list", json!({})).await.result();
        assert_eq!(list.as_object().unwrap().keys().collect::<Vec<_>>(), ["tools"], "{list}");
        let sum = session.call_tool("add", json!({"a": 2, "b": 3})).await.result();
        assert_eq!(sum["content"][0]["text"], r#"{"result":5}"#);
        let ended = session.end().await;
        assert_eq!((ended.status, ended.body.len()), (204, 0));
        assert_eq!(session.rpc("ping", json!({})).await.refusal(), (404, -32600));
        assert_eq!(session.end().await.refusal(), (404, -32600));
    }
    let metrics = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    assert!(metrics.contains("fondaco_sessions_opened_total 3"), "{metrics}");
    assert!(metrics.contains("fondaco_sessions_ended_total 3"), "{metrics}");
    assert!(metrics.contains(r#"fondaco_requests_total{method="initialize",outcome="ok"} 3"#), "{metrics}");
    assert!(metrics.contains(r#"fondaco_requests_total{method="ping",outcome="ok"} 3"#), "{metrics}");
    assert!(
        metrics.contains(r#"fondaco_requests_total{method="notifications/initialized",outcome="ok"} 3"#),
        "{metrics}"
    );
    gw.stop().await;
}

// spec: row LG-01
#[tokio::test]
async fn initialize_agrees_on_a_revision_or_says_what_is_wrong() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "");
    for (asked, agreed) in [
        ("1999-01-01", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        assert_eq!(Session::open(&alice, asked).await.revision, agreed);
    }
    let right: Value = serde_json::from_str(&initialize("2025-11-25", &json!({}))).unwrap();
    let wrong = |pointer: &str, value: Value| {
        let mut wrong = right.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        wrong.to_string()
    };
    for (body, refusal) in [
        (wrong("/params/protocolVersion", json!(1)), (400, -32602)),
        (wrong("/params/capabilities", json!([])), (400, -32602)),
        (wrong("/params/clientInfo", json!("me")), (400, -32602)),
        (wrong("/params/clientInfo/version", json!(null)), (400, -32602)),
        (wrong("/params", json!([1])), (400, -32602)),
        (wrong("/id", json!(null)), (400, -32600)),
        (wrong("/jsonrpc", json!("1.0")), (400, -32600)),
    ] {
        let answer = alice.post(&bare(&alice), &body).await;
        assert_eq!(answer.refusal(), refusal, "{body}");
        assert_eq!(answer.header("mcp-session-id"), None);
    }
    // A session that is named already is no matter, nor is one that does not open.
    for id in ["x", &Session::open(&alice, "2025-06-18").await.id] {
        let mut headers = bare(&alice);
        headers.push(("Mcp-Session-Id".to_owned(), id.to_owned()));
        let answer = alice.post(&headers, &right.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.header("mcp-session-id").unwrap(), id);
    }
    // With the metadata of a modern request it is a method that there is not.
    let mut modern = right.clone();
    modern["params"]["_meta"] = meta();
    let answer = alice.post(&alice.headers("initialize", None), &modern.to_string()).await;
    assert_eq!(answer.refusal(), (404, -32601));
    let mut stranger = bare(&alice);
    stranger.remove(0);
    assert_eq!(alice.post(&stranger, &right.to_string()).await.refusal(), (401, 0));
    let event = alice
        .post(
            &[&bare(&alice)[..2], &[("Accept".into(), "text/event-stream".into())]].concat(),
            &right.to_string(),
        )
        .await;
    assert_eq!(event.result()["protocolVersion"], "2025-11-25", "a client that takes events alone gets one");
    assert!(event.header("mcp-session-id").is_some());
    gw.stop().await;
}

/// Who `caller` of `tenant` is to the gateway.
fn identity(gw: &Gateway, tenant: &str, subject: &str) -> Identity {
    Identity {
        tenant: TenantName::new(tenant).unwrap(),
        issuer: format!("http://{}/dev-issuer", gw.addr).into(),
        subject: subject.into(),
        client: Some("test-client".into()),
        scopes: Scopes::default(),
        expires_at: 0,
    }
}

// spec: rows LG-04, LG-05, LG-06
#[tokio::test]
async fn an_id_that_does_not_open_is_answered_like_one_that_never_was() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let session = Session::open(&alice, "2025-11-25").await;
    let of = |caller: &Caller| {
        let caller = caller.clone();
        async move { Session::open(&caller, "2025-11-25").await.id }
    };
    let sealed = |ring: &KeyRing, from_now: i64| {
        let capabilities = Json::parse("{}".into(), 8).unwrap();
        let expires_at = gw.app.clock.now().saturating_add_signed(from_now);
        let session = session::Session::new(Handshake::November, capabilities, expires_at);
        session.seal(ring, &identity(&gw, "demo", "alice"))
    };
    // What is made like this opens where nothing is wrong with it.
    let control = Session { id: sealed(&gw.app.keys, 60), ..session.clone() };
    assert_eq!(control.rpc("ping", json!({})).await.status, 200);

    let ended = Session::open(&alice, "2025-11-25").await;
    assert_eq!(ended.end().await.status, 204);
    let mut forged = session.id.clone();
    forged.replace_range(30..31, if &forged[30..31] == "A" { "B" } else { "A" });
    let cursor = {
        let principal = identity(&gw, "demo", "alice").principal();
        let tenant = TenantName::new("demo").unwrap();
        let now = gw.app.clock.now();
        seal_cursor(&gw.app.keys, &tenant, &principal, List::Tools, "x", now)
    };
    let ids = [
        "zz".to_owned(),
        "0b0e1c9a-6a86-4f1a-9a54-1c2d3e4f5a6b".to_owned(),
        "x".repeat(20_000),
        session.id[..session.id.len() - 1].to_owned(),
        format!("{}A", session.id),
        forged,
        of(&gw.caller("demo", "bob", "demo.use")).await,
        of(&gw.caller("other", "alice", "demo.use")).await,
        sealed(&KeyRing::new(vec![[9; 32]]).unwrap(), 60),
        sealed(&gw.app.keys, 0),
        ended.id.clone(),
        cursor,
    ];
    for (method, body) in [
        ("POST", ping()),
        ("POST", notification("x", &json!({}))),
        ("GET", String::new()),
        ("DELETE", String::new()),
    ] {
        let mut first = None;
        for id in &ids {
            let headers = session.headers_with("Mcp-Session-Id", id);
            let answer = wire::request(gw.addr, method, "/mcp", &headers, body.as_bytes()).await;
            assert_eq!(answer.refusal(), (404, -32600), "{method} {id:.80}");
            assert!(answer.text().contains("initialize"), "{}", answer.text());
            let seen = seen(&answer);
            assert_eq!(&seen, first.get_or_insert_with(|| seen.clone()), "{method} {id:.80}");
        }
        // None at all, and more than one, are other faults.
        if method == "POST" {
            let none = session.headers_with("Mcp-Session-Id", "");
            assert_eq!(alice.post(&none, &body).await.refusal(), (400, -32600));
        }
        let twice = [session.headers(), vec![("Mcp-Session-Id".to_owned(), session.id.clone())]].concat();
        let answer = wire::request(gw.addr, method, "/mcp", &twice, body.as_bytes()).await;
        assert_eq!(answer.refusal(), (400, -32600), "{method}");
    }
    assert_eq!(session.rpc("ping", json!({})).await.status, 200, "nothing of it touched the session");
    gw.stop().await;
}

#[tokio::test]
async fn a_session_is_over_after_its_time_whatever_is_done_in_it() {
    let gw = Gateway::start(DEMO).await;
    let session = Session::open(&gw.caller("demo", "alice", ""), "2025-06-18").await;
    let day = 24 * 60 * 60;
    gw.app.clock.advance(day - 2);
    // A later token of the same principal.
    let later = || Session { caller: gw.caller("demo", "alice", ""), ..session.clone() };
    assert_eq!(later().rpc("ping", json!({})).await.status, 200);
    gw.app.clock.advance(2);
    assert_eq!(later().rpc("ping", json!({})).await.refusal(), (404, -32600));
    gw.stop().await;
}

// spec: row LG-15
#[tokio::test]
async fn the_version_header_is_of_the_era_or_absent_and_the_session_rules() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        let call = request(&json!(1), "tools/call", &json!({"name": "add", "arguments": {"a": 1, "b": 1}}));
        for sent in ["", "2025-11-25", "2025-06-18", "2025-03-26"] {
            let headers = session.headers_with("MCP-Protocol-Version", sent);
            let answer = alice.post(&headers, &call).await;
            let has_structure = answer.result().get("structuredContent").is_some();
            assert_eq!(has_structure, revision != "2025-03-26", "{revision} {sent}");
            let batch = alice.post(&headers, &format!("[{call}]")).await;
            assert_eq!(batch.status == 200, revision == "2025-03-26", "{revision} {sent}");
        }
        let mut rows = vec![("2024-11-05", (400, -32600), "2025-11-25, 2025-06-18, 2025-03-26")];
        // No revision of the era: a modern request, whatever else it brings.
        rows.extend(["1.0", "2026-07-28x", "x"].map(|version| (version, (400, -32022), "2026-07-28")));
        for (sent, refusal, says) in rows {
            let headers = session.headers_with("MCP-Protocol-Version", sent);
            let answer = alice.post(&headers, &ping()).await;
            assert_eq!(answer.refusal(), refusal, "{revision} {sent}: {}", answer.text());
            assert!(answer.text().contains(says), "{}", answer.text());
        }
        for sent in ["2024-11-05", "1.0", "2026-07-28"] {
            for method in ["GET", "DELETE"] {
                let answer = session.visit(method, &session.headers_with("MCP-Protocol-Version", sent)).await;
                assert_eq!(answer.refusal(), (400, -32600), "{method} {sent}");
            }
        }
        let twice = [
            session.headers_with("MCP-Protocol-Version", revision),
            vec![("mcp-protocol-version".into(), revision.into())],
        ];
        assert_eq!(session.visit("DELETE", &twice.concat()).await.refusal(), (400, -32600));
        assert_eq!(session.rpc("ping", json!({})).await.status, 200);
    }
    gw.stop().await;
}

// spec: rows Y-10, Y-14, Y-18, LG-03, LG-13
#[tokio::test]
async fn what_the_era_has_not_is_no_method_and_notifications_are_taken() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let opened = alice.post(&bare(&alice), &initialize("2025-11-25", &json!({}))).await;
    let id = opened.header("mcp-session-id").unwrap().to_owned();
    let session = Session { caller: alice, id, revision: "2025-11-25".to_owned(), opened: opened.result() };
    // Before `notifications/initialized`: nothing is stored that could tell.
    assert_eq!(session.call_tool("echo", json!({"text": "a"})).await.result()["content"][0]["text"], "a");
    for method in ["server/discover", "subscriptions/listen", "tasks/list", "nope", "notifications/x"] {
        assert_eq!(session.rpc(method, json!({})).await.refusal(), (200, -32601), "{method}");
    }
    for body in [
        notification("notifications/initialized", &json!({})),
        notification("notifications/cancelled", &json!({"requestId": 1, "reason": "x"})),
        notification("notifications/cancelled", &json!({})),
        notification("notifications/cancelled", &json!([])),
        notification("notifications/roots/list_changed", &json!({})),
        notification("notifications/progress", &json!({"progressToken": 1, "progress": 1})),
        notification("initialize", &json!({})),
        notification("nope", &json!({})),
        // We have asked nothing, so nothing is answered.
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no"}}"#.to_owned(),
    ] {
        let answer = session.post(&body).await;
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{body}: {}", answer.text());
    }
    for text in ["0", "9007199254740993", "\"a\\u0041\"", "-0"] {
        let body = ping().replace(r#""id":1"#, &format!(r#""id":{text}"#));
        let answer = session.post(&body).await;
        assert_eq!(answer.text(), format!(r#"{{"jsonrpc":"2.0","id":{text},"result":{{}}}}"#));
    }
    let task = json!({"name": "echo", "arguments": {"text": "a"}, "task": {"ttl": 1}});
    assert_eq!(session.rpc("tools/call", task).await.result()["content"][0]["text"], "a");
    gw.stop().await;
}

/// The fields of a right GET or DELETE of `caller` at its path, with a session that may not open.
async fn visit(caller: &Caller, method: &str, more: &[(&str, &str)]) -> Answer {
    let mut headers = vec![("Authorization".to_owned(), format!("Bearer {}", caller.token))];
    headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    wire::request(caller.addr, method, &caller.path, &headers, b"").await
}

// spec: step 4; row LG-07
#[tokio::test]
async fn other_methods_are_for_sessions_where_there_may_be_some() {
    let gw = Gateway::start(DEMO).await;
    let demo = gw.caller("demo", "alice", "demo.use");
    let own = gw.caller_at("/t/demo/mcp", "demo", "alice", "demo.use");
    let past = gw.caller("past", "alice", "");
    let past_own = gw.caller_at("/t/past/mcp", "past", "alice", "");
    let nobody = gw.caller_at("/t/nobody/mcp", "demo", "alice", "");
    let stranger = |caller: &Caller| Caller { token: "x".to_owned(), ..caller.clone() };
    const SESSION: (&str, &str) = ("Mcp-Session-Id", "zz");
    const TWO: [(&str, &str); 2] = [SESSION, SESSION];
    let every = Some("POST, GET, DELETE");
    for (caller, more, status, allow) in [
        (&demo, &TWO[..0], 405, every),
        (&own, &TWO[..0], 405, every),
        // Nobody has been asked who he is.
        (&stranger(&demo), &TWO[..0], 405, every),
        (&stranger(&demo), &TWO[..1], 401, None),
        (&demo, &TWO[..1], 404, None),
        (&own, &TWO[..1], 404, None),
        (&demo, &TWO[..], 400, None),
        // At the shared endpoint the token says that the tenant has none.
        (&past, &TWO[..0], 405, every),
        (&past, &TWO[..1], 405, Some("POST")),
        (&stranger(&past), &TWO[..1], 401, None),
        (&past_own, &TWO[..0], 405, Some("POST")),
        (&past_own, &TWO[..1], 405, Some("POST")),
        (&stranger(&past_own), &TWO[..1], 405, Some("POST")),
        // What is no tenant's looks like one.
        (&nobody, &TWO[..0], 405, every),
        (&stranger(&nobody), &TWO[..1], 401, None),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = visit(caller, method, more).await;
            assert_eq!(
                (answer.status, answer.header("allow")),
                (status, allow),
                "{method} {} {more:?}",
                caller.path
            );
        }
        for method in ["PUT", "HEAD", "PATCH"] {
            assert_eq!(visit(caller, method, more).await.status, 405, "{method}");
        }
    }
    let session = Session::open(&demo, "2025-11-25").await;
    for (accept, status) in [("application/json", 406), ("text/event-stream;q=0", 406), ("text/html", 406)] {
        let answer = session.visit("GET", &session.headers_with("Accept", accept)).await;
        assert_eq!(answer.refusal(), (status, -32600), "{accept}");
        let both = visit(&demo, "GET", &[("Accept", accept), SESSION]).await;
        assert_eq!(both.status, 406, "what it takes is asked before its session");
    }
    assert_eq!(session.visit("DELETE", &session.headers_with("Accept", "text/html")).await.status, 204);
    gw.stop().await;
}

#[tokio::test]
async fn a_tenant_may_switch_it_off_for_itself() {
    let gw = Gateway::start(DEMO).await;
    for path in ["/mcp", "/t/past/mcp"] {
        let past = gw.caller_at(path, "past", "alice", "");
        let answer = past.post(&bare(&past), &initialize("2025-11-25", &json!({}))).await;
        assert_eq!(answer.refusal(), (400, -32022), "{}", answer.text());
        assert_eq!(answer.message()["error"]["data"]["supported"], json!(["2026-07-28"]));
        assert_eq!(past.rpc("server/discover", json!({})).await.status, 200);
    }
    gw.stop().await;
}

// spec: rows RU-4, SH-03, SH-04, AU-01
#[tokio::test]
async fn origin_host_and_token_are_asked_for_in_a_session_too() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller_at("/t/demo/mcp", "demo", "alice", "demo.use");
    let session = Session::open(&alice, "2025-11-25").await;
    let path = "/t/demo/mcp";
    for (method, body) in [("POST", ping()), ("GET", String::new()), ("DELETE", String::new())] {
        let send = async |name: &str, value: &str| {
            wire::request(gw.addr, method, path, &session.headers_with(name, value), body.as_bytes()).await
        };
        for evil in ["https://evil.example", "null", "http://127.0.0.1.evil.example"] {
            let answer = send("Origin", evil).await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None), "{evil}");
        }
        for host in ["evil.example", "169.254.169.254"] {
            assert_eq!(send("Host", host).await.status, 403, "{host}");
        }
        for token in ["", "Bearer x", "Basic x"] {
            let answer = send("Authorization", token).await;
            assert_eq!(answer.refusal(), (401, 0));
            assert!(answer.header("www-authenticate").unwrap().contains("resource_metadata"));
        }
        assert_eq!(send("Authorization", "").await.header("mcp-session-id"), None);
    }
    // A page of an origin that may: it can read the session's id, and may send every method.
    let page = ("Origin".to_owned(), "https://app.example".to_owned());
    let headers = [bare(&alice), vec![page.clone()]].concat();
    let answer = alice.post(&headers, &initialize("2025-11-25", &json!({}))).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(answer.header("access-control-expose-headers").unwrap().contains("Mcp-Session-Id"));
    let asks = [page, ("Access-Control-Request-Method".to_owned(), "DELETE".to_owned())];
    let preflight = wire::request(gw.addr, "OPTIONS", path, &asks, b"").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-methods"), Some("POST, GET, DELETE"));
    gw.stop().await;
}

// spec: row FR-2b
#[tokio::test]
async fn a_modern_request_for_an_old_revision_is_refused_and_its_handshake_is_not() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let list = |version: &str| {
        let mut meta = meta();
        meta["io.modelcontextprotocol/protocolVersion"] = json!(version);
        let mut headers = alice.headers("tools/list", None);
        headers.retain(|(name, _)| name != "MCP-Protocol-Version");
        headers.push(("MCP-Protocol-Version".to_owned(), version.to_owned()));
        (headers, request(&json!(1), "tools/list", &json!({"_meta": meta})))
    };
    let (headers, body) = list("2025-11-25");
    let refused = alice.post(&headers, &body).await;
    assert_eq!(refused.refusal(), (400, -32022));
    let data = refused.message()["error"]["data"].clone();
    assert_eq!(data, json!({"supported": ["2026-07-28"], "requested": "2025-11-25"}));
    let (headers, body) = list(data["supported"][0].as_str().unwrap());
    assert_eq!(alice.post(&headers, &body).await.status, 200);
    let session = Session::open(&alice, "2025-11-25").await;
    assert_eq!(session.rpc("tools/list", json!({})).await.status, 200);
    gw.stop().await;
}

// spec: SECURITY.md, Secrets are never shown
#[tokio::test]
async fn no_log_line_and_no_metric_names_a_session() {
    let process = Served::start("trace").await;
    let session = Session::open(&process.alice, "2025-11-25").await;
    session.call_tool("add", json!({"a": 1, "b": 1})).await.result();
    let refused = session.headers_with("Mcp-Session-Id", &format!("{}x", session.id));
    assert_eq!(session.visit("GET", &refused).await.status, 404);
    assert_eq!(session.end().await.status, 204);
    let serving = &process.serving;
    eventually("a line for DELETE", async || serving.log().contains("\"DELETE\"")).await;
    let metrics = wire::request(serving.admin, "GET", "/metrics", &[], b"").await.text();
    for text in [serving.log(), metrics] {
        assert!(!text.contains(&session.id[8..40]), "{text}");
    }
    let methods: Vec<_> =
        serving.events().iter().filter_map(|line| Some(line["rpc_method"].as_str()?.to_owned())).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call"]);
    let line = |method: &str| {
        let of = |event: &Value| event["http_method"] == method;
        serving.events().into_iter().find(of).unwrap()
    };
    assert_eq!((&line("GET")["status"], &line("GET")["refusal"]), (&json!(404), &json!("session")));
    assert_eq!((&line("DELETE")["status"], &line("DELETE")["outcome"]), (&json!(204), &json!("ok")));
}

/// `fondaco serve` as a process, with the demo tools, and somebody who may call them.
struct Served {
    serving: Serving,
    alice: Caller,
    issuer: Issuer,
}

impl Served {
    /// Starts one that writes log lines from this level on.
    async fn start(level: &str) -> Self {
        Self::with("kind: demo", &[("FONDACO_TELEMETRY__LEVEL", level)]).await
    }

    /// Starts one with the tools of `upstream` instead, and with these variables.
    async fn before(upstream: &Upstream, variables: &[(&str, &str)]) -> Self {
        Self::with(&format!("kind: mcp, url: \"{}\"", upstream.url()), variables).await
    }

    /// The tenants file from now on: the same tools, and `more` of the tenant.
    fn change(&self, upstream: &Upstream, more: &str) {
        let tenants = Self::tenants(&self.issuer, &format!("kind: mcp, url: \"{}\"", upstream.url()));
        self.serving.write(&tenants.replace("acme: {", &format!("acme: {{{more}, ")));
    }

    async fn with(backend: &str, variables: &[(&str, &str)]) -> Self {
        let issuer = Issuer::start("").await;
        let serving = Serving::start(&Self::tenants(&issuer, backend), variables).await;
        let path = "/t/acme/mcp";
        let claims = issuer.claims(&format!("http://{}{path}", serving.addr), Clock::default().now());
        let token = issuer.mint(&issuer.header(Signer::Ec), &claims, Signer::Ec);
        let alice = Caller { addr: serving.addr, path: path.to_owned(), token };
        Self { serving, alice, issuer }
    }

    fn tenants(issuer: &Issuer, backend: &str) -> String {
        format!(
            r#"
issuers: [{{issuer: "{issuer}", tenant_claim: tenant}}]
tenants: {{acme: {{issuers: [{{shared: "{issuer}"}}], backends: {{up: {{{backend}, prefix: ""}}}}}}}}
"#,
            issuer = issuer.url()
        )
    }
}
