//! The order of checks in a session: what is wrong twice gets the answer of the earlier step.

use serde_json::Value;
use serde_json::json;

use super::DEMO;
use super::ping;
use crate::harness::gateway::Gateway;
use crate::harness::session::Session;
use crate::harness::session::request;
use crate::harness::wire::Answer;

const CONTENT: &str = "Content-Type";
const VERSION: &str = "MCP-Protocol-Version";
const SESSION: &str = "Mcp-Session-Id";

/// What is wrong twice; the fields that are other than right, empty ones left out; the body; the status,
/// code and word of the one right answer.
type Row = (&'static str, &'static [(&'static str, &'static str)], String, u16, i64, &'static str);

async fn send(session: &Session, other: &[(&str, &str)], body: &str) -> Answer {
    let mut headers = session.headers();
    for (name, value) in other {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            headers.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
    session.caller.post(&headers, body).await
}

async fn check(session: &Session, rows: Vec<Row>) {
    let mut failures = Vec::new();
    for (faults, other, body, status, code, word) in rows {
        let answer = send(session, other, &body).await;
        if answer.refusal() != (status, code) || !answer.text().contains(word) {
            failures.push(format!("{faults}: {:?} {}", answer.refusal(), answer.text()));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

// spec: the ladder, steps 5 to 9
#[tokio::test]
async fn before_a_message_is_known_to_be_one_a_fault_has_its_status() {
    let gw = Gateway::start(DEMO).await;
    let session = Session::open(&gw.caller("demo", "alice", "demo.use"), "2025-06-18").await;
    let envelope = || r#"{"jsonrpc":"1.0","id":1,"method":"nope"}"#.to_owned();
    let rows: Vec<Row> = vec![
        ("token, content type", &[("Authorization", ""), (CONTENT, "text/plain")], ping(), 401, 0, ""),
        ("content type, json", &[(CONTENT, "text/plain")], "{".into(), 415, -32600, CONTENT),
        ("accept, session", &[("Accept", "text/html"), (SESSION, "zz")], ping(), 406, -32600, "Accept"),
        ("json, session", &[(SESSION, "zz")], "{".into(), 400, -32700, "JSON"),
        ("key, session", &[(SESSION, "zz")], r#"{"id":1,"id":1}"#.into(), 400, -32600, "same key"),
        ("version, session", &[(VERSION, "2024-11-05"), (SESSION, "zz")], ping(), 400, -32600, VERSION),
        ("version, no session", &[(VERSION, "2024-11-05"), (SESSION, "")], ping(), 400, -32600, VERSION),
        ("version, envelope", &[(VERSION, "2024-11-05")], envelope(), 400, -32600, VERSION),
        ("session, envelope", &[(SESSION, "zz")], envelope(), 404, -32600, "initialize"),
        ("no session, envelope", &[(SESSION, "")], envelope(), 400, -32600, SESSION),
        ("envelope, method", &[], envelope(), 400, -32600, "jsonrpc"),
        ("id", &[], ping().replace(":1,", ":1.5,"), 400, -32600, "`id`"),
        ("spelling", &[], ping().replace("method", "Method"), 400, -32600, "spelt"),
        ("answer and request", &[], ping().replace("params", "result"), 400, -32600, "result"),
    ];
    check(&session, rows).await;
    gw.stop().await;
}

// spec: the ladder, steps 14 to 21
#[tokio::test]
async fn from_then_on_whatever_is_said_comes_with_200() {
    let gw = Gateway::start(DEMO).await;
    let session = Session::open(&gw.caller("demo", "alice", "demo.use"), "2025-06-18").await;
    let ask = |method: &str, params: Value| request(&json!(1), method, &params);
    let call = |params: Value| ask("tools/call", params);
    let region = || call(json!({"name": "region_lookup", "arguments": {"region": "eu-west1"}}));
    let rows: Vec<Row> = vec![
        ("params, method", &[], ask("nope", json!([1])), 200, -32602, "object"),
        ("params of a ping", &[], ask("ping", json!(7)), 200, -32602, "object"),
        ("_meta, method", &[], ask("nope", json!({"_meta": []})), 200, -32602, "_meta"),
        ("token", &[], call(json!({"_meta": {"progressToken": {}}})), 200, -32602, "progressToken"),
        ("method", &[], ask("nope", json!({})), 200, -32601, ""),
        ("cursor", &[], ask("tools/list", json!({"cursor": "x"})), 200, -32602, "cursor"),
        ("params, target", &[], call(json!({"name": 7})), 200, -32602, "name"),
        ("target, schema", &[], call(json!({"name": "none"})), 200, -32602, "none"),
        ("schema", &[], call(json!({"name": "add", "arguments": {"a": "x"}})), 200, 0, "isError"),
        ("no mirrors", &[], region(), 200, 0, "Saint-Ghislain"),
        ("another mirror", &[("Mcp-Param-Region", "other")], region(), 200, 0, "Saint-Ghislain"),
    ];
    check(&session, rows).await;

    let poor = Session::open(&gw.caller("demo", "bob", ""), "2025-06-18").await;
    let answer = poor.rpc("tools/call", json!({"name": "add", "arguments": []})).await;
    assert_eq!((answer.refusal(), answer.body.len()), ((403, 0), 0), "a client has to step up");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge.contains(r#"error="insufficient_scope""#), "{challenge}");
    gw.stop().await;
}
