//! Answers as JSON and as streams: when which, what a slow reader gets, who leaves, what ends.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::call_text;
use crate::harness::gateway::eventually;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Connection;

const SSE: &str = "text/event-stream";

/// A tenant with `upstream` for its backend, which has these clocks.
fn tenants(upstream: &Upstream, clocks: &str) -> String {
    format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants: {{acme: {{backends: {{up: {{kind: mcp, url: "{}", prefix: ""{clocks}}}}}}}}}
"#,
        upstream.url()
    )
}

/// A gateway before `upstream`, with these clocks of the backend; streams begin after `late`.
async fn before(upstream: &Upstream, clocks: &str, late: Duration) -> (Gateway, Caller) {
    let tenants = tenants(upstream, clocks);
    let gw = Gateway::start_with(&tenants, |settings| {
        settings.limits.late_stream = late;
        settings.limits.keep_alive = Duration::from_millis(100);
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["echo"]);
    (gw, alice)
}

const NEVER: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(200);

fn token(token: &str) -> String {
    format!(r#","progressToken":{token}"#)
}

/// The message of an event that is written as every event must be.
fn message(event: &str) -> Value {
    let data = event.strip_prefix("event: message\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let data = data.filter(|data| !data.contains(['\n', '\r'])).unwrap_or_else(|| panic!("{event:?}"));
    serde_json::from_str(data).unwrap()
}

/// Every event up to the end; comments are counted.
async fn events(open: &mut Connection) -> (Vec<Value>, usize) {
    let (mut events, mut comments) = (Vec::new(), 0);
    while let Some(event) = open.event().await {
        match event.starts_with(':') {
            true => comments += 1,
            false => events.push(message(&event)),
        }
    }
    (events, comments)
}

#[tokio::test]
async fn the_first_progress_makes_a_stream_under_the_clients_token() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "", NEVER).await;
    let progress = |value: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN,"progress":{value},"message":"a\nb"}}}}"#
        )
    };
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let sent = ["1", "1", "0.5", "2", "-1", "1e3", "1000", "1000.25"].map(progress);
    let paced: Vec<String> = sent.into_iter().flat_map(|event| [event, log.to_owned()]).collect();
    upstream.behave("echo", Behaviour::Events(paced));
    for theirs in [r#""tök\"en\n""#, "7", "-9007199254740993", r#""""#] {
        let mut open = alice.open("echo", &token(theirs)).await;
        let head = open.head().await;
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some(SSE));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        assert_eq!(head.header("cache-control"), Some("no-cache"));
        assert_eq!(head.header("connection"), None);
        let mut texts = Vec::new();
        while let Some(event) = open.event().await {
            texts.push(event);
        }
        let last = message(&texts.pop().unwrap());
        assert_eq!((&last["id"], last.get("result").is_some()), (&json!(1), true), "{last}");
        assert!(texts.len() >= 2, "{texts:?}");
        for text in &texts {
            assert!(text.contains(&format!(r#""progressToken":{theirs},"#)), "{text}");
            assert_eq!(message(text)["params"]["message"], "a\nb");
        }
        let values: Vec<f64> =
            texts.iter().map(|text| message(text)["params"]["progress"].as_f64().unwrap()).collect();
        assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    }
    let used: Vec<_> =
        upstream.requests().iter().map(|r| r.json()["params"]["_meta"]["progressToken"].clone()).collect();
    let mut used: Vec<_> = used.iter().filter_map(Value::as_str).collect();
    let count = used.len();
    used.sort_unstable();
    used.dedup();
    assert_eq!((count, used.len()), (4, 4), "tokens upstream are ours, each its own");
    gw.stop().await;
}

#[tokio::test]
async fn two_clients_with_the_same_token_get_their_own_progress() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Progress(30));
    let (gw, alice) = before(&upstream, "", NEVER).await;
    let bob = gw.caller("acme", "bob", "");
    let run = async |caller: &Caller, who: &str| {
        let mut open = Connection::open(caller.addr).await;
        let body = call_text("echo", &token("1"))
            .replace(r#""name":"echo""#, &format!(r#""name":"echo","arguments":{{"who":"{who}"}}"#));
        open.post(&caller.path, &caller.headers("tools/call", Some("echo")), &body).await;
        open.head().await;
        let (mut events, _) = events(&mut open).await;
        assert_eq!(events.pop().unwrap()["result"]["structuredContent"]["who"], who);
        assert!(events.iter().all(|event| event["params"]["progressToken"] == 1), "{events:?}");
        let values: Vec<_> = events.iter().map(|e| e["params"]["progress"].as_u64().unwrap()).collect();
        assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
        assert!(values.len() > 5 && values.last() == Some(&30), "{values:?}");
    };
    tokio::join!(run(&alice, "alice"), run(&bob, "bob"));
    gw.stop().await;
}

#[tokio::test]
async fn a_client_gets_what_it_accepts() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "", SOON).await;
    for behaviour in [Behaviour::Progress(3), Behaviour::Late(SOON * 2), Behaviour::EchoSse] {
        upstream.behave("echo", behaviour);
        let headers = alice.accepting("application/json", "echo");
        let answer = alice.post(&headers, &call_text("echo", &token("1"))).await;
        assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.text());
        answer.result();
    }
    upstream.behave("echo", Behaviour::Echo);
    let answer = alice.post(&alice.accepting(SSE, "echo"), &call_text("echo", "")).await;
    assert_eq!(answer.header("content-type"), Some(SSE));
    assert!(message(&answer.text()).get("result").is_some());
    upstream.behave("echo", Behaviour::Result("{\n\"content\":\r\n[],\r\"a\": \"\\n\"}".into()));
    let answer = alice.post(&alice.accepting(SSE, "echo"), &call_text("echo", "")).await;
    assert_eq!(message(&answer.text())["result"]["a"], "\n", "one line, whatever the backend's layout");
    let answer = alice.post(&alice.accepting("*/*", "echo"), &call_text("echo", "")).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    gw.stop().await;
}

#[tokio::test]
async fn a_late_answer_comes_in_a_stream_that_is_kept_alive() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, ", timeout: 2s, idle_timeout: 1s", SOON).await;
    let call = async |behaviour: Behaviour| {
        upstream.behave("echo", behaviour);
        let mut open = alice.open("echo", "").await;
        let began = Instant::now();
        let head = open.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some(SSE)));
        assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
        let (mut events, comments) = events(&mut open).await;
        assert!(comments >= 3, "{comments} comments");
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    };
    let right = call(Behaviour::Late(SOON * 4)).await;
    assert!(right["id"] == 1 && right.get("result").is_some(), "{right}");
    let wrong = call(Behaviour::Hang).await;
    assert_eq!((&wrong["id"], &wrong["error"]["code"]), (&json!(1), &json!(-32603)), "{wrong}");
    assert_eq!(wrong["error"]["data"], json!({"outcome": "unknown"}));
    assert!(wrong["error"]["message"].as_str().unwrap().contains("idle"), "{wrong}");
    gw.stop().await;
}

#[tokio::test]
async fn what_ends_a_stream_comes_in_the_stream() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "", NEVER).await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":1}}"#;
    let after = |last: &str| Behaviour::Events(vec![progress.to_owned(), last.to_owned()]);
    let error = |code: i64| {
        after(&format!(r#"{{"jsonrpc":"2.0","id":$ID,"error":{{"code":{code},"message":"m"}}}}"#))
    };
    let second = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":"first"}}"#;
    let unknown = json!({"outcome": "unknown"});
    for (behaviour, code, data) in [
        (Behaviour::ResetInStream, -32603, unknown.clone()),
        (after(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), -32603, unknown.clone()),
        (after("nonsense"), -32603, unknown.clone()),
        (after(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#), -32603, unknown),
        (error(-32601), -32601, Value::Null),
        (error(-32002), -32603, json!({"upstreamCode": -32002})),
        // Too late for a second try: the client has seen progress.
        (error(-32020), -32603, Value::Null),
        (after(second), 0, Value::Null),
    ] {
        let shown = format!("{behaviour:?}");
        upstream.behave("echo", behaviour);
        let mut open = alice.open("echo", &token("1")).await;
        let head = open.head().await;
        assert_eq!((head.status, head.header("content-type")), (200, Some(SSE)), "{shown}");
        let (events, _) = events(&mut open).await;
        assert_eq!(events.len(), 2, "{shown}: {events:?}");
        assert_eq!(events[0]["params"]["progress"], 1, "{shown}");
        assert_eq!(events[1]["id"], 1, "{shown}");
        assert_eq!(events[1]["error"]["code"].as_i64().unwrap_or(0), code, "{shown}: {}", events[1]);
        assert_eq!(events[1]["error"]["data"], data, "{shown}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_slow_reader_gets_the_newest_progress_and_always_the_result() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Burst(10_000));
    let (gw, alice) = before(&upstream, "", NEVER).await;
    let mut open = Connection::open_narrow(alice.addr).await;
    open.post(&alice.path, &alice.headers("tools/call", Some("echo")), &call_text("echo", &token("1"))).await;
    // It reads nothing until the gateway has taken everything.
    let everything = async {
        while upstream.flooded() < 10_000 << 10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(NEVER, everything).await.expect("a slow reader holds the backend up");
    tokio::time::sleep(Duration::from_secs(1)).await;
    open.head().await;
    let (mut events, _) = events(&mut open).await;
    assert!(events.pop().unwrap().get("result").is_some());
    // The system's socket buffers keep some megabytes of the first; the gateway keeps the newest
    // 256 KiB, in which about 250 of these events find room.
    let values: Vec<u64> = events.iter().map(|e| e["params"]["progress"].as_u64().unwrap()).collect();
    assert_eq!(values.last(), Some(&10_000), "the newest progress is not dropped");
    assert!(values.is_sorted(), "progress goes back");
    let kept = values.iter().rev().zip((0..=10_000).rev()).take_while(|(value, run)| **value == *run).count();
    assert!((1..300).contains(&kept), "{kept} events were kept");
    gw.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Burst(1_000_000));
    let gw =
        Gateway::start_with(&tenants(&upstream, ""), |s| s.limits.write_time = Duration::from_millis(500))
            .await;
    let alice = gw.caller("acme", "alice", "");
    let mut open = Connection::open_narrow(alice.addr).await;
    let headers = alice.headers("tools/call", Some("echo"));
    open.post(&alice.path, &headers, &call_text("echo", &token("1"))).await;
    let cut = async {
        while upstream.cancellations() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(NEVER, cut).await.expect("a blocked write has no end");
    assert!(upstream.flooded() < 100 << 20, "{} bytes later", upstream.flooded());
    drop(open);
    gw.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_call_upstream() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "", NEVER).await;
    let asked =
        |n: usize| upstream.requests().iter().filter(|r| r.header("mcp-name") == ["echo"]).count() == n;

    upstream.behave("echo", Behaviour::Hang);
    let open = alice.open("echo", "").await;
    eventually(|| asked(1)).await;
    drop(open);
    eventually(|| upstream.cancellations() == 1).await;

    upstream.behave("echo", Behaviour::Progress(100_000));
    let mut open = alice.open("echo", &token("1")).await;
    open.head().await;
    open.event().await.unwrap();
    drop(open);
    eventually(|| upstream.cancellations() == 2).await;

    upstream.behave("echo", Behaviour::Hang);
    let mut open = alice.open("echo", "").await;
    let behind = call_text("echo", "");
    open.post(&alice.path, &alice.headers("tools/call", Some("echo")), &behind).await;
    eventually(|| asked(3)).await;
    drop(open);
    eventually(|| upstream.cancellations() == 3).await;
    assert!(asked(3), "what was pipelined behind is never sent");
    gw.stop().await;
}

#[tokio::test]
async fn each_clock_ends_a_call_and_is_named() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, ", timeout: 1200ms, idle_timeout: 400ms", NEVER).await;
    let still = |value: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN,"progress":{value}}}}}"#
        )
    };
    // Five milliseconds each: a second and a half of progress that does not go up.
    let stuck = Behaviour::Events(vec![still("1"); 300]);
    for (what, behaviour, meta, clock, took) in [
        ("nothing ever", Behaviour::Hang, "", "idle", 400),
        ("drops that are no message", Behaviour::Drip, "", "idle", 400),
        ("progress that nobody asked for", Behaviour::Progress(1_000), "", "idle", 400),
        ("progress that goes on", Behaviour::Progress(1_000), r#","progressToken":1"#, "total", 1_200),
        ("progress that stands still", stuck, r#","progressToken":1"#, "idle", 400),
    ] {
        upstream.behave("echo", behaviour);
        let began = Instant::now();
        let answer = alice.post(&alice.headers("tools/call", Some("echo")), &call_text("echo", meta)).await;
        let error = &answer.message()["error"];
        assert_eq!((answer.status, &error["code"]), (200, &json!(-32603)), "{what}: {error}");
        assert_eq!(error["data"], json!({"outcome": "unknown"}), "{what}");
        let named = error["message"].as_str().unwrap();
        assert!(named.contains(&format!("{clock} timeout")), "{what}: {named}");
        let elapsed = began.elapsed().as_millis();
        assert!((took..took + 2_000).contains(&elapsed), "{what}: {elapsed} ms");
        let streamed = answer.header("content-type") == Some(SSE);
        assert_eq!(streamed, !meta.is_empty(), "{what}");
    }
    eventually(|| upstream.cancellations() == 5).await;
    gw.stop().await;
}

#[tokio::test]
async fn a_call_in_flight_finishes_after_the_drain_begins() {
    let upstream = Upstream::start().await;
    for (behaviour, meta) in
        [(Behaviour::Late(SOON * 2), ""), (Behaviour::Progress(80), r#","progressToken":1"#)]
    {
        upstream.behave("echo", behaviour);
        let (gw, alice) = before(&upstream, "", NEVER).await;
        let before = upstream.asked().len();
        let mut open = alice.open("echo", meta).await;
        eventually(|| upstream.asked().len() > before).await;
        let began = Instant::now();
        let (answer, ()) = tokio::join!(open.answer(), gw.stop());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // The head of a stream may have been sent before the drain began.
        if meta.is_empty() {
            assert_eq!(answer.header("connection"), Some("close"));
        }
        answer.result();
        assert!(tokio::net::TcpStream::connect(alice.addr).await.is_err(), "nobody listens any more");
    }
    assert_eq!(upstream.cancellations(), 0);
}

#[tokio::test]
async fn the_end_of_the_drain_cuts_what_is_left() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Hang);
    let gw =
        Gateway::start_with(&tenants(&upstream, ""), |s| s.limits.drain_total = Duration::from_millis(500))
            .await;
    let alice = gw.caller("acme", "alice", "");
    let call = tokio::spawn(async move { alice.call_tool("echo", json!({})).await.status });
    eventually(|| upstream.requests().iter().any(|r| r.header("mcp-name") == ["echo"])).await;
    gw.stop().await;
    assert_eq!(call.await.unwrap(), 0, "closed without an answer");
    eventually(|| upstream.cancellations() == 1).await;
}
