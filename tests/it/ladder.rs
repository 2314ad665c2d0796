//! The order of checks: requests that are wrong twice get the answer of the earlier step.

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::session;
use crate::harness::wire;
use crate::harness::wire::Answer;

const DEMO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

/// A request that starts right and is made wrong step by step.
struct Wrong {
    method: &'static str,
    path: &'static str,
    headers: Vec<(String, String)>,
    message: Value,
    body: Option<String>,
}

impl Wrong {
    fn set(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.add(name, value)
    }

    fn add(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn drop(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    fn put(mut self, pointer: &str, value: Value) -> Self {
        match self.message.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                self.message.pointer_mut(parent).unwrap()[key] = value;
            }
        }
        self
    }

    fn cut(mut self, parent: &str, key: &str) -> Self {
        self.message.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        self
    }

    fn body(mut self, body: String) -> Self {
        self.body = Some(body);
        self
    }

    async fn send(self, caller: &Caller) -> Answer {
        let body = self.body.unwrap_or_else(|| self.message.to_string());
        wire::request(caller.addr, self.method, self.path, &self.headers, body.as_bytes()).await
    }
}

fn right(caller: &Caller) -> Wrong {
    let params = json!({"name": "region_lookup", "arguments": {"region": "eu"}, "_meta": meta()});
    let mut headers = caller.headers("tools/call", Some("region_lookup"));
    headers.push(("Mcp-Param-Region".to_owned(), "eu".to_owned()));
    Wrong {
        method: "POST",
        path: "/mcp",
        headers,
        message: json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}),
        body: None,
    }
}

/// What both faults are, how they are made, and the status, code and word of the one right answer.
type Row = (&'static str, fn(Wrong) -> Wrong, u16, i64, &'static str);

const ROWS: &[Row] = &[
    ("1 framing, 2 host", |w| w.set("Transfer-Encoding", "gzip").set("Host", "evil.example"), 400, 0, ""),
    (
        "2 host, 4 path",
        |mut w| {
            w.path = "/nowhere";
            w.set("Host", "evil.example")
        },
        403,
        0,
        "host",
    ),
    (
        "2 host, 3 origin",
        |w| w.set("Host", "evil.example").set("Origin", "https://evil.example"),
        403,
        0,
        "host",
    ),
    (
        "3 origin, 4 method",
        |mut w| {
            w.method = "GET";
            w.set("Origin", "https://evil.example")
        },
        403,
        0,
        "rigin",
    ),
    ("3 origin, 5 token", |w| w.set("Origin", "null").drop("Authorization"), 403, 0, "rigin"),
    (
        "4 path, 5 token",
        |mut w| {
            w.path = "/nowhere";
            w.drop("Authorization")
        },
        404,
        0,
        "",
    ),
    (
        "4 method, 5 token",
        |mut w| {
            w.method = "DELETE";
            w.drop("Authorization")
        },
        405,
        0,
        "",
    ),
    ("5 token, 6 content type", |w| w.drop("Authorization").set("Content-Type", "text/plain"), 401, 0, ""),
    ("5 token, 7 size", |w| w.set("Authorization", "Bearer x").body(" ".repeat(5 << 20)), 401, 0, ""),
    (
        "6 content type, 7 size",
        |w| w.set("Content-Type", "text/plain").body(" ".repeat(5 << 20)),
        415,
        -32600,
        "",
    ),
    ("6 accept, 8 json", |w| w.set("Accept", "text/html").body("{".into()), 406, -32600, ""),
    ("7 size, 8 json", |w| w.body("{".repeat(5 << 20)), 413, -32600, ""),
    ("8 json, 10 version", |w| w.drop("MCP-Protocol-Version").body("{\"id\":7,".into()), 400, -32700, ""),
    (
        "8 duplicate key, 12 method",
        |w| w.set("Mcp-Method", "x").body("{\"id\":7,\"id\":7}".into()),
        400,
        -32600,
        "",
    ),
    (
        "9 era, 9 envelope",
        |w| {
            w.drop("MCP-Protocol-Version")
                .drop("Mcp-Method")
                .body("{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"x\"}".into())
        },
        400,
        -32020,
        "",
    ),
    (
        "9 envelope, 10 version",
        |w| w.drop("MCP-Protocol-Version").put("/jsonrpc", json!("1.0")),
        400,
        -32600,
        "",
    ),
    (
        "10 version differs, 11 version unserved",
        |w| w.set("MCP-Protocol-Version", "1900-01-01"),
        400,
        -32020,
        "MCP-Protocol-Version",
    ),
    (
        "11 version unserved, 12 method",
        |w| {
            w.set("MCP-Protocol-Version", "1900-01-01")
                .set("Mcp-Method", "x")
                .put("/params/_meta/io.modelcontextprotocol~1protocolVersion", json!("1900-01-01"))
        },
        400,
        -32022,
        "1900-01-01",
    ),
    ("12 method, 13 name", |w| w.set("Mcp-Method", "x").set("Mcp-Name", "x"), 400, -32020, "Mcp-Method"),
    (
        "13 name, 14 meta",
        |w| w.set("Mcp-Name", "x").cut("/params/_meta", "io.modelcontextprotocol/clientCapabilities"),
        400,
        -32020,
        "Mcp-Name",
    ),
    (
        "13 name, 15 method",
        |w| w.set("Mcp-Method", "prompts/get").put("/method", json!("prompts/get")).drop("Mcp-Name"),
        400,
        -32020,
        "Mcp-Name",
    ),
    (
        "14 meta, 15 method",
        |w| {
            w.set("Mcp-Method", "x/y")
                .put("/method", json!("x/y"))
                .cut("/params/_meta", "io.modelcontextprotocol/clientCapabilities")
        },
        400,
        -32602,
        "",
    ),
    (
        "15 method, 17 params",
        |w| w.set("Mcp-Method", "x/y").put("/method", json!("x/y")).put("/params/arguments", json!([])),
        404,
        -32601,
        "",
    ),
    (
        "17 params, 18 target",
        |w| w.set("Mcp-Name", "nope").put("/params/name", json!("nope")).put("/params/arguments", json!([])),
        400,
        -32602,
        "",
    ),
    (
        "18 target, 19 parameter",
        |w| w.set("Mcp-Name", "nope").put("/params/name", json!("nope")).set("Mcp-Param-Region", "us"),
        200,
        -32602,
        "unknown tool",
    ),
    (
        "19 parameter, 21 schema",
        |w| w.set("Mcp-Param-Region", "us").put("/params/arguments/region", json!(5)),
        400,
        -32020,
        "Mcp-Param-Region",
    ),
];

#[tokio::test]
async fn a_request_that_is_wrong_twice_gets_the_answer_of_the_earlier_step() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let answer = right(&alice).send(&alice).await;
    assert!(answer.status == 200 && answer.message()["id"] == 7, "the right request: {}", answer.text());
    let mut failures = Vec::new();
    for &(faults, spoil, status, code, word) in ROWS {
        let answer = spoil(right(&alice)).send(&alice).await;
        if answer.refusal() != (status, code) || !answer.text().contains(word) {
            failures.push(format!("{faults}: {:?} {}", answer.refusal(), answer.text()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    gw.stop().await;
}

#[tokio::test]
async fn a_missing_scope_is_said_before_the_params_are_judged() {
    let gw = Gateway::start(DEMO).await;
    let bob = gw.caller("demo", "bob", "");
    let answer = right(&bob).put("/params/arguments", json!([])).send(&bob).await;
    assert_eq!(answer.refusal(), (403, 0));
    assert!(answer.body.is_empty(), "401 and 403 have no JSON-RPC body");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge.contains(r#"error="insufficient_scope""#), "{challenge}");
    assert!(challenge.contains(r#"scope="demo.use""#), "{challenge}");
    gw.stop().await;
}

#[tokio::test]
async fn the_id_comes_back_digit_for_digit_with_its_type() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    for id in
        ["0", "-0", "9007199254740993", "123456789012345678901234567890", "\"1\"", "\"\"", "\"a\\u0041\""]
    {
        let body =
            json!({"jsonrpc": "2.0", "id": "ID", "method": "server/discover", "params": {"_meta": meta()}});
        let body = body.to_string().replace("\"ID\"", id);
        let answer = alice.post(&alice.headers("server/discover", None), &body).await;
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        assert!(answer.text().contains(&format!("\"id\":{id},")), "{id}: {}", answer.text());
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_handshake_client_is_told_why_where_it_is_not_served() {
    let gw = Gateway::start(&DEMO.replace("  demo:\n", "  demo:\n    legacy: off\n")).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let headers = session::bare(&alice);
    let answer = alice.post(&headers, &session::initialize("2025-11-25", &json!({}))).await;
    assert_eq!(answer.refusal(), (400, -32022), "{}", answer.text());
    let error = &answer.message()["error"];
    assert_eq!(error["data"], json!({"supported": ["2026-07-28"], "requested": "2025-11-25"}));
    assert!(error["message"].as_str().unwrap().contains("handshake"), "{error}");
    let with = |name: &str, value: &str| [&headers[..], &[(name.to_owned(), value.to_owned())]].concat();
    let ping = session::request(&json!(1), "ping", &json!({}));
    for (headers, requested) in [
        (with("Mcp-Session-Id", "x"), "Mcp-Session-Id"),
        (with("MCP-Protocol-Version", "2025-06-18"), "2025-06-18"),
        (with("MCP-Protocol-Version", "2024-11-05"), "2024-11-05"),
    ] {
        let answer = alice.post(&headers, &ping).await;
        assert_eq!(answer.refusal(), (400, -32022), "{}", answer.text());
        assert_eq!(answer.message()["error"]["data"]["requested"], requested);
    }
    gw.stop().await;
}

#[tokio::test]
async fn notifications_are_taken_without_an_answer() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    for method in ["notifications/cancelled", "notifications/anything"] {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}).to_string();
        for headers in [alice.headers(method, None), alice.headers(method, None)[..3].to_vec()] {
            let answer = alice.post(&headers, &body).await;
            assert_eq!((answer.status, answer.body.len()), (202, 0), "{method}: {}", answer.text());
        }
        let answer = alice.post(&alice.headers("something/else", None), &body).await;
        assert_eq!(answer.refusal(), (400, -32020), "a mirror that is sent must agree");
    }
    gw.stop().await;
}
