//! What a request says of itself: the trace that it is part of, and which log messages it wants.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::call_text;
use crate::harness::session;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::harness::wire::Answer;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A gateway with `upstream` as its one backend, which keeps its names, and `alice` before it.
async fn before(upstream: &Upstream, more: &str) -> (Gateway, Caller) {
    let backend = upstream.backend("up", &format!(", prefix: \"\"{more}"));
    let gw = Gateway::start_with(&acme_and_other(&[backend]), |settings| {
        settings.telemetry.baggage = vec!["tier".to_owned()];
        settings.limits.log_bytes = 1 << 10;
        settings.limits.log_messages = 4;
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["echo"]);
    (gw, alice)
}

/// Calls the tool with more members of `_meta`, each with a comma in front.
async fn call(alice: &Caller, meta: &str) -> Answer {
    alice.post(&alice.headers("tools/call", Some("echo")), &call_text("echo", meta)).await
}

/// The last call of a tool that the backend saw.
fn last(upstream: &Upstream) -> Received {
    upstream.requests().into_iter().rfind(|request| request.json()["method"] == "tools/call").unwrap()
}

fn level(level: &str) -> String {
    format!(r#","io.modelcontextprotocol/logLevel":"{level}""#)
}

/// A log message with this level and these members behind it, as text.
fn log(level: &str, more: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}"{more}}}}}"#)
}

/// The levels of the log messages in a stream.
fn levels(answer: &Answer) -> Vec<String> {
    let messages = answer.events().into_iter().filter(|event| event["method"] == "notifications/message");
    messages.map(|message| message["params"]["level"].as_str().unwrap().to_owned()).collect()
}

// spec: row BW-16
#[tokio::test]
async fn a_trace_goes_on_as_far_as_it_is_well_formed() {
    let (modern, older) = tokio::join!(Upstream::start(), Upstream::start());
    older.handshake(Handshake::default());
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let long = format!("tier={}", "v".repeat(9 << 10));
    for upstream in [modern, older] {
        let (gw, alice) = before(&upstream, "").await;
        for (given, expected) in [
            (
                [json!(parent), json!("a=1 ,b@c=2"), json!("user=u-1,tier=gold;p")],
                [Some(&*parent), Some("a=1 ,b@c=2"), Some("tier=gold;p")],
            ),
            ([json!(parent), json!("A=1"), json!("user=u-1")], [Some(&*parent), None, None]),
            (
                [json!(parent), json!("a=1\r\nX-Evil: 1"), json!("tier=gold\r\nX-Evil: 1")],
                [Some(&*parent), None, None],
            ),
            ([json!(parent), json!(["a=1"]), json!({"tier": 1})], [Some(&*parent), None, None]),
            ([json!(parent), Value::Null, json!(long)], [Some(&*parent), None, None]),
            ([json!(parent.to_uppercase()), json!("a=1"), json!("tier=1")], [None, None, Some("tier=1")]),
            ([json!(format!("{parent}\r\nX-Evil: 1")), json!("a=1"), Value::Null], [None, None, None]),
            ([json!(format!("cc{}-x\ty", &parent[2..])), json!("a=1"), Value::Null], [None, None, None]),
            ([json!(7), json!("a=1"), json!("tier")], [None, None, None]),
        ] {
            let names = ["traceparent", "tracestate", "baggage"];
            let meta: String =
                names.iter().zip(&given).map(|(name, value)| format!(r#","{name}":{value}"#)).collect();
            call(&alice, &meta).await.result();
            let received = last(&upstream);
            for (name, expected) in names.iter().zip(expected) {
                let in_meta = &received.json()["params"]["_meta"][name];
                assert_eq!(in_meta.as_str(), expected, "{name} of {meta:.200}");
                assert!(in_meta.is_string() || in_meta.is_null());
                assert_eq!(
                    received.header(name),
                    expected.into_iter().collect::<Vec<_>>(),
                    "{name} of {meta:.200}"
                );
            }
            assert!(received.header("x-evil").is_empty());
        }
        gw.stop().await;
    }
}

#[tokio::test]
async fn no_baggage_goes_on_where_no_key_is_allowed() {
    let upstream = Upstream::start().await;
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", ", prefix: \"\"")])).await;
    let alice = gw.caller("acme", "alice", "");
    call(&alice, r#","baggage":"tier=gold""#).await.result();
    let received = last(&upstream);
    assert!(received.header("baggage").is_empty() && !received.body.contains("baggage"), "{}", received.body);
    gw.stop().await;
}

// spec: row LT-17
#[tokio::test]
async fn log_messages_come_to_who_wants_them_from_its_level_on() {
    let upstream = Upstream::start().await;
    let exact = r#","logger":"db\u0041","data":{"n":9007199254740993,"x":1.10E+2 , "z":null},"new":[ 1.0 ]"#;
    upstream.behave(
        "echo",
        Behaviour::Events(vec![
            log("debug", r#","data":1"#),
            log("notice", exact),
            log("Error", r#","data":1"#),
            log("verbose", r#","data":1"#),
            log("error", ""),
            log("error", r#","data":1,"logger":7"#),
            log("error", &format!(r#","data":"{}""#, "x".repeat(1 << 10))),
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":["error"]}"#.to_owned(),
            r#"{"jsonrpc":"2.0","method":"notifications/message"}"#.to_owned(),
            log("emergency", r#","data":null"#),
        ]),
    );
    let (gw, alice) = before(&upstream, "").await;
    let plain = call(&alice, "").await;
    assert_eq!(plain.header("content-type"), Some("application/json"));
    assert_eq!(plain.result()["structuredContent"], json!({}));
    assert!(!last(&upstream).body.contains("logLevel"));
    for (wanted, heard) in [
        ("debug", vec!["debug", "notice", "emergency"]),
        ("info", vec!["notice", "emergency"]),
        ("notice", vec!["notice", "emergency"]),
        ("warning", vec!["emergency"]),
        ("emergency", vec!["emergency"]),
    ] {
        let answer = call(&alice, &level(wanted)).await;
        assert_eq!(levels(&answer), heard, "{wanted}");
        assert_eq!(answer.result()["structuredContent"], json!({}), "{wanted}");
        let sent = last(&upstream).json()["params"]["_meta"]["io.modelcontextprotocol/logLevel"].clone();
        assert_eq!(sent, wanted);
        let all = answer.text();
        assert_eq!(
            all.contains(&format!("data: {}\n", log("notice", exact))),
            heard.contains(&"notice"),
            "{all}"
        );
    }
    let json_only = alice.accepting("application/json", "echo");
    let answer = alice.post(&json_only, &call_text("echo", &level("debug"))).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!answer.text().contains("notifications/message"), "{}", answer.text());
    assert_eq!(call(&alice, &level("verbose")).await.refusal(), (400, -32602));
    gw.stop().await;
}

// spec: row LT-17
#[tokio::test]
async fn log_messages_are_so_many_and_keep_no_call_alive() {
    let upstream = Upstream::start().await;
    let many = (0..9).map(|n| log("error", &format!(r#","data":{n}"#))).collect();
    upstream.behave("echo", Behaviour::Events(many));
    let (gw, alice) = before(&upstream, ", idle_timeout: 300ms").await;
    let answer = call(&alice, &level("info")).await;
    assert_eq!(levels(&answer).len(), 4);
    answer.result();
    // Whoever only logs is silent to the idle clock.
    upstream.behave("echo", Behaviour::Listen);
    let silent = tokio::spawn(async move { call(&alice, &level("info")).await });
    eventually("the call has timed out", async || {
        upstream.say(&log("error", r#","data":1"#));
        silent.is_finished()
    })
    .await;
    let answer = silent.await.unwrap();
    assert!(answer.message()["error"]["message"].as_str().unwrap().contains("idle"), "{}", answer.text());
    gw.stop().await;
}

/// The levels that the server was told in its caller's session, in order.
fn told(upstream: &Upstream) -> Vec<String> {
    let calls = upstream.sessions().into_iter().flat_map(|session| session.calls);
    let told = calls.filter(|call| call["method"] == "logging/setLevel");
    told.map(|call| call["params"]["level"].as_str().unwrap().to_owned()).collect()
}

// spec: row X-13
#[tokio::test]
async fn a_session_logs_from_the_lowest_level_on_that_was_wanted() {
    let upstream = Upstream::start().await;
    upstream
        .capabilities(r#"{"tools":{},"logging":{}}"#)
        .handshake(Handshake { listen: 200, ..Handshake::default() });
    let all = ["debug", "info", "error"].map(|level| log(level, r#","data":1"#)).to_vec();
    upstream.behave("echo", Behaviour::Events(all));
    let (gw, alice) = before(&upstream, "").await;
    assert!(levels(&call(&alice, "").await).is_empty());
    assert_eq!(told(&upstream), Vec::<String>::new());
    for (wanted, heard, so_far) in [
        ("info", vec!["info", "error"], vec!["info"]),
        ("error", vec!["error"], vec!["info"]),
        ("debug", vec!["debug", "info", "error"], vec!["info", "debug"]),
        ("warning", vec!["error"], vec!["info", "debug"]),
    ] {
        assert_eq!(levels(&call(&alice, &level(wanted)).await), heard, "{wanted}");
        assert_eq!(told(&upstream), so_far, "{wanted}");
    }
    assert!(levels(&call(&alice, "").await).is_empty());
    assert!(!last(&upstream).body.contains("logLevel"));
    // Another caller has a session, and a level, of its own.
    let bob = gw.caller("acme", "bob", "");
    assert_eq!(levels(&call(&bob, &level("error")).await), ["error"]);
    assert_eq!(told(&upstream), ["info", "debug", "error"]);
    // What the server says beside its answers belongs to nobody.
    upstream.behave("echo", Behaviour::Hang);
    let calls = upstream.count("tools/call");
    let mut waiting = alice.open("echo", &format!(r#","progressToken":"p"{}"#, level("debug"))).await;
    eventually("the call is there", async || upstream.count("tools/call") > calls).await;
    eventually("the session listens", async || upstream.say(&log("error", r#","data":1"#)) > 0).await;
    let token = last(&upstream).json()["params"]["_meta"]["progressToken"].clone();
    upstream.say(&log("error", r#","data":2"#));
    upstream.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}).to_string());
    waiting.head().await;
    let first = waiting.event().await.unwrap();
    assert!(first.contains("notifications/progress"), "{first}");
    drop(waiting);
    gw.stop().await;
}

// spec: row X-13
#[tokio::test]
async fn a_server_that_takes_no_level_is_called_all_the_same() {
    let upstream = Upstream::start().await;
    upstream.handshake(Handshake::default());
    let (gw, alice) = before(&upstream, "").await;
    call(&alice, &level("debug")).await.result();
    assert_eq!(told(&upstream), Vec::<String>::new(), "it offers no logging");
    gw.stop().await;
    upstream.capabilities(r#"{"tools":{},"logging":{}}"#);
    for refusal in [
        Behaviour::Error(200, r#"{"code":-32601,"message":"no"}"#.to_owned()),
        Behaviour::Error(500, r#"{"code":-32603,"message":"no"}"#.to_owned()),
        Behaviour::HalfJson,
        Behaviour::Hang,
    ] {
        upstream.behave("logging/setLevel", refusal.clone());
        let (gw, alice) = before(&upstream, "").await;
        let before = told(&upstream).len();
        for _ in 0..2 {
            call(&alice, &level("debug")).await.result();
        }
        assert_eq!(told(&upstream).len(), before + 1, "{refusal:?}");
        gw.stop().await;
    }
    // A session that was lost in between is opened anew, and told anew.
    upstream.behave("logging/setLevel", Behaviour::Echo);
    let (gw, alice) = before(&upstream, "").await;
    call(&alice, &level("debug")).await.result();
    let before = told(&upstream).len();
    upstream.forget_sessions();
    call(&alice, &level("debug")).await.result();
    assert_eq!(told(&upstream).len(), before + 1);
    gw.stop().await;
}

// spec: rows Y-09, LG-13
#[tokio::test]
async fn a_session_hears_log_messages_from_the_level_on_that_it_set() {
    let upstream = Upstream::start().await;
    let all = ["debug", "info", "error"].map(|level| log(level, r#","data":1"#)).to_vec();
    upstream.behave("echo", Behaviour::Events(all));
    let (gw, alice) = before(&upstream, "").await;
    let (one, two) = (Session::open(&alice, "2025-11-25").await, Session::open(&alice, "2025-03-26").await);
    assert_eq!(one.opened["capabilities"]["logging"], json!({}));
    let discovered = alice.rpc("server/discover", json!({})).await.result();
    assert_eq!(discovered["capabilities"]["logging"], json!({}));
    let call = async |session: &Session| levels(&session.call_tool("echo", json!({})).await);
    assert!(call(&one).await.is_empty());
    assert!(!last(&upstream).body.contains("logLevel"));
    for (set, heard) in
        [("info", vec!["info", "error"]), ("emergency", vec![]), ("debug", vec!["debug", "info", "error"])]
    {
        assert_eq!(one.rpc("logging/setLevel", json!({"level": set})).await.result(), json!({}));
        assert_eq!(call(&one).await, heard, "{set}");
        assert!(call(&two).await.is_empty(), "another session of the same caller");
    }
    for wrong in [json!({"level": "verbose"}), json!({"level": 7}), json!({}), json!([])] {
        assert_eq!(one.rpc("logging/setLevel", wrong.clone()).await.refusal(), (200, -32602), "{wrong}");
    }
    let without =
        session::request(&json!(1), "logging/setLevel", &Value::Null).replace(r#","params":null"#, "");
    assert_eq!(one.post(&without).await.refusal(), (200, -32602));
    assert_eq!(call(&one).await, ["debug", "info", "error"], "what was refused changed nothing");
    one.end().await;
    two.end().await;
    gw.stop().await;
}

#[tokio::test]
async fn a_level_is_forgotten_where_there_are_too_many() {
    let upstream = Upstream::start().await;
    upstream.behave("echo", Behaviour::Events(vec![log("error", r#","data":1"#)]));
    let gw = Gateway::start_with(&acme_and_other(&[upstream.backend("up", ", prefix: \"\"")]), |settings| {
        settings.limits.session_levels = 4;
        settings.limits.late_stream = Duration::from_secs(60);
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    let (one, two) = (Session::open(&alice, "2025-11-25").await, Session::open(&alice, "2025-11-25").await);
    for session in [&one, &two] {
        session.rpc("logging/setLevel", json!({"level": "info"})).await.result();
    }
    assert!(levels(&one.call_tool("echo", json!({})).await).is_empty());
    assert_eq!(levels(&two.call_tool("echo", json!({})).await), ["error"]);
    gw.stop().await;
}
