//! Batches: several messages in one POST, in the one revision that has them.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use super::DEMO;
use super::OWN;
use super::SHARED;
use super::before;
use super::file_of_acme;
use super::ping;
use crate::harness::gateway::Gateway;
use crate::harness::session::Session;
use crate::harness::session::bare;
use crate::harness::session::initialize;
use crate::harness::session::notification;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire::Answer;

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// The ids of the answers, in their order, and the codes of those that are errors.
fn ends(answer: &Value) -> Vec<(Value, i64)> {
    let answers = answer.as_array().unwrap_or_else(|| panic!("{answer}"));
    answers.iter().map(|a| (a["id"].clone(), a["error"]["code"].as_i64().unwrap_or(0))).collect()
}

fn codes(answer: &Answer) -> Vec<i64> {
    ends(&answer.message()).into_iter().map(|(_, code)| code).collect()
}

// spec: rows LG-14, Y-15
#[tokio::test]
async fn each_message_of_a_batch_is_judged_by_itself() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let session = Session::open(&alice, "2025-03-26").await;
    let add =
        |id: u64| request(&json!(id), "tools/call", &json!({"name": "add", "arguments": {"a": id, "b": 1}}));
    let rows: [(Vec<String>, Value); 12] = [
        (vec![ping()], json!([[1, 0]])),
        (vec![add(3), add(1), add(2)], json!([[3, 0], [1, 0], [2, 0]])),
        (vec![add(1), add(1)], json!([[1, 0], [1, 0]])),
        (
            vec![add(1), notification("x", &json!({})), r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.into()],
            json!([[1, 0]]),
        ),
        (
            vec!["1".into(), "null".into(), "[]".into(), "{}".into()],
            json!([[null, -32600], [null, -32600], [null, -32600], [null, -32600]]),
        ),
        (vec![ping().replace("2.0", "1.0"), add(2)], json!([[1, -32600], [2, 0]])),
        (vec![ping().replace(":1,", ":1.5,")], json!([[null, -32600]])),
        (vec![initialize("2025-03-26", &json!({})), add(1)], json!([[0, -32600], [1, 0]])),
        (vec![request(&json!("a"), "nope", &json!({}))], json!([["a", -32601]])),
        (vec![request(&json!(1), "server/discover", &json!({}))], json!([[1, -32601]])),
        (vec![request(&json!(1), "tools/call", &json!({"name": "none"}))], json!([[1, -32602]])),
        (vec![request(&json!(1), "ping", &json!([]))], json!([[1, -32602]])),
    ];
    for (messages, expected) in rows {
        let answer = session.post(&batch(&messages)).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert_eq!(json!(ends(&answer.message())), expected, "{messages:?}");
    }
    let sums = session.post(&batch(&[add(1), add(2)])).await.message();
    assert_eq!(
        (&sums[0]["result"]["content"][0]["text"], &sums[1]["result"]["content"][0]["text"]),
        (&json!(r#"{"result":2}"#), &json!(r#"{"result":3}"#))
    );
    assert!(sums[0]["result"].get("structuredContent").is_none());
    // Nobody waits for an answer.
    let silent = [
        notification("notifications/initialized", &json!({})),
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#.to_owned(),
    ];
    let answer = session.post(&batch(&silent)).await;
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let events = alice
        .post(&session.headers_with("Accept", "text/event-stream"), &batch(&[add(1), add(2)]))
        .await
        .events();
    assert_eq!((events.len(), ends(&events[0]).len()), (1, 2), "one event holds them all");
    let poor = Session::open(&gw.caller("demo", "bob", ""), "2025-03-26").await;
    let answer = poor.post(&batch(&[add(1), ping().replace(":1,", ":2,")])).await;
    assert_eq!(
        json!(ends(&answer.message())),
        json!([[1, -32600], [2, 0]]),
        "a missing scope is one message's fault"
    );
    assert!(answer.text().contains("demo.use"), "{}", answer.text());
    gw.stop().await;
}

#[tokio::test]
async fn a_batch_is_for_a_session_that_has_them_and_not_empty_or_endless() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let session = Session::open(&alice, "2025-03-26").await;
    assert_eq!(session.post("[]").await.refusal(), (400, -32600));
    let many = |count: usize| batch(&vec![ping(); count]);
    assert_eq!(ends(&session.post(&many(100)).await.message()).len(), 100);
    assert_eq!(session.post(&many(101)).await.refusal(), (400, -32600));
    assert_eq!(session.post("[1,").await.refusal(), (400, -32700));
    for revision in ["2025-06-18", "2025-11-25"] {
        let later = Session::open(&alice, revision).await;
        let answer = later.post(&many(1)).await;
        assert_eq!(answer.refusal(), (400, -32600), "{revision}");
        assert!(answer.text().contains("batch"), "{}", answer.text());
    }
    // No session, a wrong one, and none where one would be opened.
    let body = batch(&[initialize("2025-03-26", &json!({}))]);
    assert_eq!(alice.post(&bare(&alice), &body).await.refusal(), (400, -32600));
    let wrong = session.headers_with("Mcp-Session-Id", "zz");
    assert_eq!(alice.post(&wrong, &many(1)).await.refusal(), (404, -32600));
    // A modern client has none, whatever session it names.
    let mut modern = alice.headers("tools/list", None);
    modern.push(("Mcp-Session-Id".to_owned(), session.id.clone()));
    assert_eq!(alice.post(&modern, &many(1)).await.refusal(), (400, -32600));
    gw.stop().await;
}

#[tokio::test]
async fn a_batch_is_bounded_in_what_goes_on_and_in_what_comes_back() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, |limits| {
        limits.batch_calls = 2;
        limits.batch_bytes = 5_000;
    })
    .await;
    let session = Session::open(&alice, "2025-03-26").await;
    let call =
        |id: u64| request(&json!(id), "tools/call", &json!({"name": "echo", "_meta": {"progressToken": id}}));
    let calls: Vec<String> = (1..=4).map(call).collect();
    upstream.behave("echo", Behaviour::Progress(2));
    let answer = session.post(&batch(&calls)).await;
    assert_eq!(json!(ends(&answer.message())), json!([[1, 0], [2, 0], [3, 0], [4, 0]]));
    assert!(!answer.text().contains("notifications/progress"));

    upstream.behave("echo", Behaviour::Huge(2_000));
    let answer = session.post(&batch(&calls)).await;
    assert_eq!(json!(ends(&answer.message())), json!([[1, 0], [2, 0], [3, -32603], [4, -32603]]));

    // Whatever an answer says counts: a backend's errors, and refusals of ours.
    let long = "x".repeat(2_000);
    for error in [json!({"code": 7, "message": "m", "data": long}), json!({"code": 7, "message": long})] {
        upstream.behave("echo", Behaviour::Error(200, error.to_string()));
        let answer = session.post(&batch(&calls)).await;
        assert_eq!(json!(codes(&answer)), json!([7, 7, -32603, -32603]), "{}", answer.text());
        assert!(answer.body.len() < 6_000, "{}", answer.body.len());
    }
    let read = |id: u64| request(&json!(id), "resources/read", &json!({"uri": format!("x://{long}")}));
    let answer = session.post(&batch(&(1..=4).map(read).collect::<Vec<_>>())).await;
    assert_eq!(json!(codes(&answer)), json!([-32002, -32002, -32603, -32603]), "{}", answer.text());

    upstream.behave("echo", Behaviour::Hang);
    let before = upstream.asked().len();
    let mut open = session.begin(&session.headers(), &batch(&calls)).await;
    eventually("two have arrived", async || upstream.asked().len() == before + 2).await;
    let cancel = |id: u64| notification("notifications/cancelled", &json!({"requestId": id}));
    session.post(&cancel(1)).await;
    eventually("the third has arrived", async || upstream.asked().len() == before + 3).await;
    assert_eq!(upstream.cancellations(), 1, "two at a time");
    upstream.behave("echo", Behaviour::Echo);
    session.post(&batch(&[cancel(2), cancel(3)])).await;
    let answer = open.answer().await;
    assert_eq!(json!(ends(&answer.message())), json!([[4, 0]]), "what was cancelled has no answer");
    gw.stop().await;
}

#[tokio::test]
async fn a_batch_goes_on_without_its_client_and_ends_with_its_session() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, |limits| limits.batch_calls = 1).await;
    let session = Session::open(&alice, "2025-03-26").await;
    let call = |id: u64| request(&json!(id), "tools/call", &json!({"name": "echo"}));
    let calls: Vec<String> = (1..=3).map(call).collect();
    upstream.behave("echo", Behaviour::Late(Duration::from_millis(100)));
    let before = upstream.asked().len();
    let open = session.begin(&session.headers(), &batch(&calls)).await;
    eventually("one has arrived", async || upstream.asked().len() == before + 1).await;
    drop(open);
    eventually("all have arrived", async || upstream.asked().len() == before + 3).await;
    assert_eq!(upstream.cancellations(), 0);

    upstream.behave("echo", Behaviour::Hang);
    let before = upstream.asked().len();
    let mut open = session.begin(&session.headers(), &batch(&calls)).await;
    eventually("one has arrived", async || upstream.asked().len() == before + 1).await;
    assert_eq!(session.end().await.status, 204);
    let answer = open.answer().await;
    assert_eq!(json!(ends(&answer.message())), json!([[2, -32600], [3, -32600]]), "nothing more begins");
    assert_eq!(upstream.asked().len(), before + 1);
    gw.stop().await;
}

#[tokio::test]
async fn a_drain_waits_for_no_batch_whose_client_has_left() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, |limits| limits.batch_calls = 1).await;
    let session = Session::open(&alice, "2025-03-26").await;
    let call = |id: u64| request(&json!(id), "tools/call", &json!({"name": "echo"}));
    upstream.behave("echo", Behaviour::Hang);
    let before = upstream.asked().len();
    let open = session.begin(&session.headers(), &batch(&[call(1), call(2)])).await;
    eventually("one has arrived", async || upstream.asked().len() == before + 1).await;
    drop(open);
    gw.stop().await;
    assert_eq!(upstream.asked().len(), before + 1, "and nothing more begins");
}

#[tokio::test]
async fn a_batch_has_one_time_for_all_that_it_asks() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, |limits| {
        limits.batch_calls = 1;
        limits.call_time = Duration::from_millis(900);
    })
    .await;
    let session = Session::open(&alice, "2025-03-26").await;
    let call = |id: u64| request(&json!(id), "tools/call", &json!({"name": "echo"}));
    upstream.behave("echo", Behaviour::Late(Duration::from_millis(600)));
    let before = upstream.asked().len();
    let notified = notification("notifications/initialized", &json!({}));
    let answer = session.post(&batch(&[call(1), call(2), notified, call(3), ping()])).await;
    assert_eq!(codes(&answer), [0, -32603, -32600, -32600], "{}", answer.text());
    assert!(answer.message()[2]["error"]["message"].as_str().unwrap().contains("time of the whole batch"));
    assert_eq!(upstream.asked().iter().skip(before).filter(|r| r.body.contains("tools/call")).count(), 2);
    gw.stop().await;
}

#[tokio::test]
async fn a_batch_ends_with_its_token_its_session_and_its_tenant() {
    let upstream = Upstream::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    std::fs::write(&file, "tenants: {}").unwrap();
    let gw = Gateway::start_with(SHARED, |settings| {
        settings.limits.batch_calls = 1;
        settings.tenants = Some(file.clone());
    })
    .await;
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        gw.app.tenants.reload();
    };
    let tenant = |issuers: &str, more: &str| file_of_acme(&gw, &upstream.url(), issuers, more);
    let call = |id: u64| request(&json!(id), "tools/call", &json!({"name": "echo"}));
    let alice = || gw.caller_at("/t/acme/mcp", "acme", "alice", "");
    let cases: [(&str, &str, &dyn Fn()); 5] = [
        // A token is for an hour and half a minute of leeway, and a session for a day.
        ("token", "token", &|| gw.app.clock.advance(60 * 60 + 30)),
        ("session", "session", &|| gw.app.clock.advance(60)),
        ("tenant", "not served", &|| write("tenants: {}")),
        ("era", "not served", &|| write(&tenant(OWN, ", legacy: off"))),
        ("issuer", "not served", &|| write(&tenant("{issuer: \"https://login.example\"}", ""))),
    ];
    for (name, says, end) in cases {
        write(&tenant(OWN, ""));
        upstream.behave("echo", Behaviour::Echo);
        let mut session = Session::open(&alice(), "2025-03-26").await;
        if name == "session" {
            gw.app.clock.advance(24 * 60 * 60 - 60);
            session.caller = alice();
        }
        assert_eq!(session.call_tool("echo", json!({})).await.status, 200);
        upstream.behave("echo", Behaviour::Late(Duration::from_millis(300)));
        let before = upstream.asked().len();
        let calls = || upstream.asked().iter().skip(before).filter(|r| r.body.contains("tools/call")).count();
        let mut open = session.begin(&session.headers(), &batch(&[call(1), call(2), ping()])).await;
        eventually("the first has arrived", async || calls() == 1).await;
        end();
        let answer = open.answer().await;
        assert_eq!(codes(&answer), [0, -32600, -32600], "{name}: {}", answer.text());
        assert!(
            answer.message()[1]["error"]["message"].as_str().unwrap().contains(says),
            "{}",
            answer.text()
        );
        assert_eq!(calls(), 1, "{name}");
    }
    gw.stop().await;
}
