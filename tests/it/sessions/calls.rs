//! Lists and calls in a session: their shape, their progress, and how they end early.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use super::before;
use crate::harness::gateway::Gateway;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::session::notification;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Connection;

const SSE: &str = "text/event-stream";
const SOON: Duration = Duration::from_millis(300);

/// The text of a call without arguments.
fn call(id: u64, name: &str, meta: Value) -> String {
    request(&json!(id), "tools/call", &json!({"name": name, "_meta": meta}))
}

fn cancel(id: u64) -> String {
    notification("notifications/cancelled", &json!({"requestId": id, "reason": "changed my mind"}))
}

/// Waits until the backend has been sent so many calls.
async fn called(upstream: &Upstream, calls: usize) {
    let count = || upstream.requests().iter().filter(|r| r.header("mcp-method") == ["tools/call"]).count();
    eventually(&format!("{calls} calls have arrived"), async || count() >= calls).await;
}

async fn cancelled(upstream: &Upstream, calls: usize) {
    eventually(&format!("{calls} calls are cancelled"), async || upstream.cancellations() >= calls).await;
    assert_eq!(upstream.cancellations(), calls);
}

/// Waits until the gateway has counted so many answers of backends that ended like this.
async fn counted(gw: &Gateway, outcome: &str, calls: usize) {
    let series = format!("fondaco_upstream_requests_total{{outcome=\"{outcome}\"}} {calls}\n");
    eventually(&series, async || {
        wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text().contains(&series)
    })
    .await;
}

async fn session(gw: &Gateway) -> Session {
    Session::open(&gw.caller("acme", "alice", ""), "2025-11-25").await
}

// spec: rows Y-02, Y-03
#[tokio::test]
async fn a_call_goes_the_modern_road_and_comes_back_in_the_sessions_form() {
    let upstream = Upstream::start().await;
    upstream.tool("mirrored", r#"{"name":"mirrored","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#);
    let result = r#"{"resultType":"complete","content":[{"type":"new","n":1.0}],"structuredContent":{"n":1e400},"x":null,"ttlMs":1,"cacheScope":"private","_meta":{"a/b":[ 1],"io.modelcontextprotocol/serverInfo":{"name":"theirs","version":"1"}}}"#;
    upstream.behave("mirrored", Behaviour::Result(result.to_owned()));
    let (gw, _) = before(&upstream, |_| {}).await;
    let session = session(&gw).await;
    let params =
        json!({"name": "mirrored", "arguments": {"region": "eu"}, "_meta": {"x/own": 1, "progressToken": 7}});
    let answer = session.rpc("tools/call", params).await;
    let shaped = r#"{"content":[{"type":"new","n":1.0}],"structuredContent":{"n":1e400},"x":null,"_meta":{"a/b":[ 1]}}"#;
    assert_eq!(answer.text(), format!(r#"{{"jsonrpc":"2.0","id":1,"result":{shaped}}}"#));
    assert_eq!(answer.header("mcp-session-id"), None);

    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.header("mcp-param-region"), ["eu"], "minted, though the client has no mirrors");
    assert_eq!(sent.header("mcp-protocol-version"), ["2026-07-28"]);
    assert!(sent.header("mcp-session-id").is_empty());
    let meta = &sent.json()["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["x/own"], 1);
    gw.stop().await;
}

// spec: row Y-04
#[tokio::test]
async fn what_a_tool_gives_is_what_its_schema_says_in_list_and_call_alike() {
    let upstream = Upstream::start().await;
    let output = r##"{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}"##;
    for (name, output) in [("numbers", output), ("object", r#"{"type":"object"}"#), ("any", "{}")] {
        upstream.tool(
            name,
            &format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"outputSchema":{output}}}"#),
        );
    }
    let given = |value: &str| Behaviour::Result(format!(r#"{{"content":[],"structuredContent":{value}}}"#));
    upstream.behave("numbers", given("[1,2]")).behave("object", given(r#"{"a":1}"#));
    upstream.behave("any", given(r#"{"a":1}"#)).behave("echo", given("null"));
    let (gw, alice) = before(&upstream, |_| {}).await;
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        let list = session.rpc("tools/list", json!({})).await.result();
        for tool in list["tools"].as_array().unwrap() {
            let result = session.call_tool(tool["name"].as_str().unwrap(), json!({})).await.result();
            let (schema, value) = (tool.get("outputSchema"), result.get("structuredContent"));
            if revision == "2025-03-26" {
                assert_eq!((schema, value), (None, None), "{tool} {result}");
                assert_eq!(result["content"].as_array().unwrap().len(), 1, "{result}");
                continue;
            }
            let value = value.unwrap();
            assert!(value.is_object(), "{result}");
            if let Some(schema) = schema {
                assert_eq!(schema["type"], "object");
                assert!(jsonschema::is_valid(schema, value), "{schema} {value}");
            }
            let expected = match tool["name"].as_str().unwrap() {
                "numbers" => json!({"result": [1, 2]}),
                "object" => json!({"a": 1}),
                "any" => json!({"result": {"a": 1}}),
                _ => json!({"result": null}),
            };
            assert_eq!(*value, expected, "{tool}");
        }
    }
    gw.stop().await;
}

// spec: rows Y-13, LG-13
#[tokio::test]
async fn a_backends_errors_come_with_200_and_codes_that_the_era_knows() {
    let upstream = Upstream::start().await;
    let (gw, _) = before(&upstream, |_| {}).await;
    let session = session(&gw).await;
    let needs =
        r#"{"code":-32021,"message":"needs elicitation","data":{"requiredCapabilities":{"elicitation":{}}}}"#;
    upstream.behave("echo", Behaviour::Error(400, needs.to_owned()));
    let result = session.call_tool("echo", json!({})).await;
    assert_eq!((result.status, &result.result()["isError"]), (200, &json!(true)));
    assert_eq!(result.result()["content"][0]["text"], "needs elicitation");
    for (status, sent, code) in [
        (404, -32601, -32601),
        (200, -32602, -32602),
        (400, -32020, -32603),
        (400, -32022, -32603),
        (200, -32000, -32603),
        (200, 42, 42),
    ] {
        upstream.behave("echo", Behaviour::Error(status, format!(r#"{{"code":{sent},"message":"m"}}"#)));
        let answer = session.call_tool("echo", json!({})).await;
        assert_eq!(answer.refusal(), (200, code), "{sent}: {}", answer.text());
    }
    // Where nobody can have acted, too: 5xx is for modern clients.
    upstream.stop();
    let answer = session.call_tool("echo", json!({})).await;
    assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
    gw.stop().await;
}

#[tokio::test]
async fn a_list_goes_on_behind_its_cursor() {
    let upstream = Upstream::start().await;
    for name in ["a", "b", "c", "d"] {
        upstream.tool(name, &format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
    }
    let (gw, alice) = before(&upstream, |limits| limits.page_size = 2).await;
    let session = session(&gw).await;
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = session.rpc("tools/list", params).await.result();
        names.extend(
            page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page.get("nextCursor") else { break };
        params = json!({"cursor": cursor});
    }
    assert_eq!(names, ["a", "b", "c", "d", "echo"]);
    assert_eq!(names, alice.tools().await);
    gw.stop().await;
}

#[tokio::test]
async fn progress_comes_on_the_posts_stream_to_clients_that_take_one() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Progress(2));
    let (gw, alice) = before(&upstream, |_| {}).await;
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        let body = call(5, "echo", json!({"progressToken": "t"}));
        let answer = session.post(&body).await;
        assert_eq!(answer.header("content-type"), Some(SSE));
        let events = answer.events();
        let tokens: Vec<_> =
            events[..events.len() - 1].iter().map(|e| &e["params"]["progressToken"]).collect();
        assert_eq!(tokens, ["t", "t"], "{events:?}");
        let last = events.last().unwrap();
        assert_eq!((&last["id"], last["result"].get("resultType")), (&json!(5), None));
        let json = alice.post(&session.headers_with("Accept", "application/json"), &body).await;
        assert_eq!(json.header("content-type"), Some("application/json"));
        assert_eq!(json.message()["id"], 5);
        let quiet = session.post(&call(6, "echo", json!({}))).await;
        assert_eq!(quiet.header("content-type"), Some("application/json"), "it asked for none");
        let event = alice.post(&session.headers_with("Accept", SSE), &call(7, "echo", json!({}))).await;
        assert_eq!(event.events().len(), 1);
    }
    gw.stop().await;
}

// spec: rows LG-16, Y-11
#[tokio::test]
async fn a_cancelled_call_ends_upstream_and_has_no_answer() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let (gw, alice) = before(&upstream, |limits| limits.late_stream = Duration::from_secs(60)).await;
    let session = session(&gw).await;
    let other = Session::open(&alice, "2025-11-25").await;
    for (round, accept, status, media) in [
        (1, "application/json, text/event-stream", 200, Some(SSE)),
        (2, SSE, 200, Some(SSE)),
        (3, "application/json", 202, None),
    ] {
        let body = call(7, "echo", json!({}));
        let mut open = session.begin(&session.headers_with("Accept", accept), &body).await;
        called(&upstream, round).await;
        // Neither another session's, nor of another id.
        assert_eq!(other.post(&cancel(7)).await.status, 202);
        assert_eq!(session.post(&cancel(8)).await.status, 202);
        assert_eq!(session.post(&cancel(7).replace(":7", ":\"7\"")).await.status, 202);
        assert_eq!(upstream.cancellations(), round - 1);
        assert_eq!(session.post(&cancel(7)).await.status, 202);
        let answer = open.answer().await;
        assert_eq!((answer.status, answer.header("content-type")), (status, media));
        assert!(answer.body.is_empty(), "{}", answer.text());
        cancelled(&upstream, round).await;
        // The connection goes on.
        open.post("/mcp", &session.headers(), &super::ping()).await;
        assert_eq!(open.answer().await.status, 200);
    }
    counted(&gw, "cancelled", 3).await;
    gw.stop().await;
}

#[tokio::test]
async fn a_stream_of_a_cancelled_call_ends_without_a_response() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::HangInStream);
    let (gw, _) = before(&upstream, |limits| limits.late_stream = Duration::from_millis(50)).await;
    let session = session(&gw).await;
    let mut open = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
    assert_eq!(open.head().await.header("content-type"), Some(SSE));
    assert_eq!(session.post(&cancel(1)).await.status, 202);
    while let Some(event) = open.event().await {
        assert!(event.starts_with(':'), "{event}");
    }
    cancelled(&upstream, 1).await;
    gw.stop().await;
}

// Some hosts count every request as 1.
#[tokio::test]
async fn of_two_calls_with_one_id_none_is_cancelled_and_each_has_its_answer() {
    let upstream = Upstream::start().await;
    let (gw, _) = before(&upstream, |_| {}).await;
    let session = session(&gw).await;
    upstream.behave("echo", Behaviour::Late(SOON));
    let body =
        |text: &str| request(&json!(1), "tools/call", &json!({"name": "echo", "arguments": {"t": text}}));
    let mut one = session.begin(&session.headers(), &body("one")).await;
    let mut two = session.begin(&session.headers(), &body("two")).await;
    called(&upstream, 2).await;
    assert_eq!(session.post(&cancel(1)).await.status, 202);
    for (open, text) in [(&mut one, "one"), (&mut two, "two")] {
        assert_eq!(open.answer().await.result()["structuredContent"]["t"], text);
    }
    assert_eq!(upstream.cancellations(), 0);
    // What has ended is not in the way of what goes on.
    upstream.behave("echo", Behaviour::Hang);
    let mut three = session.begin(&session.headers(), &body("three")).await;
    called(&upstream, 3).await;
    session.post(&cancel(1)).await;
    assert!(three.answer().await.body.is_empty());
    gw.stop().await;
}

// spec: rows LG-16, Y-12
#[tokio::test]
async fn a_client_that_leaves_has_not_cancelled() {
    let upstream = Upstream::start().await;
    let (gw, _) = before(&upstream, |limits| limits.late_stream = Duration::from_millis(50)).await;
    let session = session(&gw).await;
    let leave = async |mut open: Connection, in_stream: bool| {
        if in_stream {
            assert_eq!(open.head().await.status, 200);
        }
        drop(open);
    };
    // Before anything was said, and in the middle of a stream.
    for (round, in_stream) in [(1, false), (2, true)] {
        upstream.behave("echo", Behaviour::Late(SOON));
        let open = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
        called(&upstream, round).await;
        leave(open, in_stream).await;
        counted(&gw, "ok", round).await;
    }
    assert_eq!(upstream.cancellations(), 0, "both went on to their ends");
    // It can be cancelled all the same.
    for (round, in_stream) in [(3, false), (4, true)] {
        upstream.behave("echo", Behaviour::Hang);
        let open = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
        called(&upstream, round).await;
        leave(open, in_stream).await;
        gone(&gw).await;
        assert_eq!(upstream.cancellations(), round - 3);
        assert_eq!(session.post(&cancel(1)).await.status, 202);
        cancelled(&upstream, round - 2).await;
    }
    gw.stop().await;
}

/// Waits until no request is being answered but the one that asks.
async fn gone(gw: &Gateway) {
    eventually("the client is gone", async || {
        let metrics = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
        metrics.contains("fondaco_requests_in_flight 0\n")
    })
    .await;
}

#[tokio::test]
async fn a_call_without_its_client_has_its_time() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let (gw, _) = before(&upstream, |limits| limits.orphan_time = SOON).await;
    let session = session(&gw).await;
    let open = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
    called(&upstream, 1).await;
    let started = tokio::time::Instant::now();
    drop(open);
    cancelled(&upstream, 1).await;
    assert!(started.elapsed() >= SOON, "{:?}", started.elapsed());
    gw.stop().await;
}

#[tokio::test]
async fn so_many_calls_go_on_without_their_clients_and_no_more() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    // A tenant has one of the four.
    let (gw, _) = before(&upstream, |limits| limits.orphan_calls = 4).await;
    let session = session(&gw).await;
    for round in 1..=3 {
        let open = session.begin(&session.headers(), &call(round, "echo", json!({}))).await;
        called(&upstream, round as usize).await;
        drop(open);
        gone(&gw).await;
        cancelled(&upstream, round as usize - 1).await;
    }
    assert_eq!(session.post(&cancel(1)).await.status, 202);
    cancelled(&upstream, 3).await;
    gw.stop().await;
}

// Invariant 6: what a body holds has a limit, also when its client has left.
#[tokio::test]
async fn a_call_without_its_client_still_holds_its_body() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    // A tenant's quarter has room for one such body and not for two.
    let (gw, _) = before(&upstream, |limits| limits.bodies_bytes = 1 << 20).await;
    let session = session(&gw).await;
    let large = |id| call(id, "echo", json!({"text": "x".repeat(150 << 10)}));
    let open = session.begin(&session.headers(), &large(1)).await;
    called(&upstream, 1).await;
    drop(open);
    gone(&gw).await;
    let answer = session.post(&large(2)).await;
    assert_eq!((answer.status, answer.refusal().1), (503, 1003), "{}", answer.text());
    assert_eq!(session.post(&cancel(1)).await.status, 202);
    cancelled(&upstream, 1).await;
    upstream.behave("echo", Behaviour::Echo);
    eventually("there is room again", async || session.post(&large(3)).await.status == 200).await;
    gw.stop().await;
}

#[tokio::test]
async fn a_drain_lets_calls_finish_and_waits_for_nobody_who_has_left() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let (gw, _) = before(&upstream, |_| {}).await;
    let session = session(&gw).await;
    let left = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
    called(&upstream, 1).await;
    drop(left);
    gone(&gw).await;
    upstream.behave("echo", Behaviour::Late(SOON));
    let mut open = session.begin(&session.headers(), &call(2, "echo", json!({}))).await;
    called(&upstream, 2).await;
    let stopping = tokio::spawn(gw.stop());
    assert_eq!(open.answer().await.result()["structuredContent"], json!({}));
    stopping.await.unwrap();
    cancelled(&upstream, 1).await;
}

// spec: rows LG-06, Y-17
#[tokio::test]
async fn the_end_of_a_session_cancels_what_goes_on_in_it() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let (gw, alice) = before(&upstream, |_| {}).await;
    let (session, other) = (session(&gw).await, Session::open(&alice, "2025-11-25").await);
    let mut open = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
    called(&upstream, 1).await;
    let left = session.begin(&session.headers(), &call(2, "echo", json!({}))).await;
    called(&upstream, 2).await;
    drop(left);
    let mut kept = other.begin(&other.headers(), &call(1, "echo", json!({}))).await;
    called(&upstream, 3).await;
    assert_eq!(session.end().await.status, 204);
    let answer = open.answer().await;
    assert_eq!((answer.status, answer.body.len()), (200, 0), "{}", answer.text());
    cancelled(&upstream, 2).await;
    assert_eq!(session.call_tool("echo", json!({})).await.refusal(), (404, -32600));
    assert_eq!(other.post(&cancel(1)).await.status, 202);
    assert_eq!(kept.answer().await.status, 200);
    gw.stop().await;
}

#[tokio::test]
async fn ended_sessions_are_remembered_up_to_a_bound() {
    let upstream = Upstream::start().await;
    // A tenant has four of the sixteen, and a principal one of these.
    let (gw, alice) = before(&upstream, |limits| limits.ended_sessions = 16).await;
    let (one, two) = (session(&gw).await, Session::open(&alice, "2025-06-18").await);
    assert_eq!(one.end().await.status, 204);
    gw.app.clock.advance(23 * 60 * 60);
    let two = Session { caller: gw.caller("acme", "alice", ""), ..two };
    let full = two.end().await;
    assert_eq!(full.refusal(), (503, 1003));
    let wait: u64 = full.header("retry-after").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "the first is for an hour more: {wait}");
    assert_eq!(two.rpc("ping", json!({})).await.status, 200, "it goes on");
    assert_eq!(Session { caller: two.caller.clone(), ..one }.rpc("ping", json!({})).await.status, 404);
    // One who fills its share takes nothing of the others'.
    let bob = Session::open(&gw.caller("acme", "bob", ""), "2025-06-18").await;
    assert_eq!(bob.end().await.status, 204);
    gw.app.clock.advance(wait.cast_signed());
    let later = Session::open(&gw.caller("acme", "alice", ""), "2025-06-18").await;
    assert_eq!(later.end().await.status, 204, "the first would be over by now");
    gw.stop().await;
}

#[tokio::test]
async fn a_session_has_so_many_calls_in_flight_and_no_more() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let (gw, alice) = before(&upstream, |limits| limits.session_calls = 2).await;
    let (session, other) = (session(&gw).await, Session::open(&alice, "2025-03-26").await);
    let mut first = session.begin(&session.headers(), &call(1, "echo", json!({}))).await;
    let left = session.begin(&session.headers(), &call(2, "echo", json!({}))).await;
    called(&upstream, 2).await;
    drop(left);
    for body in [call(3, "echo", json!({})), super::ping()] {
        let answer = session.post(&body).await;
        assert_eq!((answer.refusal(), answer.header("retry-after")), ((200, 1003), Some("1")));
        assert_eq!(answer.message()["id"], if body.contains("ping") { 1 } else { 3 });
    }
    // Streams and notifications are no calls, and other sessions are not concerned.
    assert_eq!(session.listen().await.head().await.status, 200);
    let batch = [1, 2, 3].map(|id| call(id, "echo", json!({}))).join(",");
    let mut batched = other.begin(&other.headers(), &format!("[{batch}]")).await;
    called(&upstream, 4).await;
    assert_eq!(session.post(&cancel(1)).await.status, 202);
    assert!(first.answer().await.body.is_empty());
    assert_eq!(session.post(&super::ping()).await.result(), json!({}));
    assert_eq!(other.post(&cancel(1)).await.status, 202);
    assert_eq!(other.post(&cancel(2)).await.status, 202);
    let refused = batched.answer().await.message();
    assert_eq!((&refused[0]["id"], &refused[0]["error"]["code"]), (&json!(3), &json!(1003)), "{refused}");
    gw.stop().await;
}
