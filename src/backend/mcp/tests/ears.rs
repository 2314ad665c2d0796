//! What a server of the handshake era says beside its answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use super::alice;
use super::backend_of;
use super::call;
use super::call_with_progress;
use super::config_of;
use super::eventually;
use super::result;
use super::run;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use super::upstream::sessions::Handshake;
use crate::backend::Backend;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::exchange::Frame;
use crate::exchange::Frames;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::tenant::BackendEra;

const SOON: Duration = Duration::from_millis(200);

async fn server(listen: u16) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.handshake(Handshake { listen, ..Handshake::default() });
    upstream
}

fn backend(upstream: &Upstream) -> Backend {
    let limits = Limits { listen_time: SOON, ..Limits::default() };
    backend_of(config_of(&upstream.url(), BackendEra::Handshake), limits)
}

/// One whose sessions may hear this much in a second.
fn patient(upstream: &Upstream, listen_messages: usize, listen_bytes: usize) -> Backend {
    let limits =
        Limits { listen_time: SOON, listen_messages, listen_bytes, upstream_batch: 4, ..Limits::default() };
    backend_of(config_of(&upstream.url(), BackendEra::Handshake), limits)
}

fn of(subject: &str, call: BackendCall) -> BackendCall {
    BackendCall { caller: Arc::new(Caller { subject: subject.into(), ..alice() }), ..call }
}

/// The progress tokens that the server has seen, in order.
fn tokens(upstream: &Upstream) -> Vec<String> {
    let token = |call: &Value| call["params"]["_meta"]["progressToken"].as_str().map(str::to_owned);
    upstream.sessions().iter().flat_map(|session| session.calls.iter().filter_map(token)).collect()
}

/// How many GETs it has seen.
fn listens(upstream: &Upstream) -> usize {
    upstream.sessions().iter().map(|session| session.listens).sum()
}

fn progress(token: &str, value: u32) -> String {
    let params = json!({"progressToken": token, "progress": value});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string()
}

/// The progress of a call, until its end.
async fn heard(mut frames: Frames<BackendError>) -> Vec<u64> {
    let mut heard = Vec::new();
    while let Some(frame) = frames.next().await {
        match frame {
            Frame::Notice(message) => {
                let message: Value = serde_json::from_str(message.text()).unwrap();
                assert_eq!(message["params"]["progressToken"], "theirs");
                heard.push(message["params"]["progress"].as_u64().unwrap());
            }
            Frame::End(end) => drop(end.unwrap()),
        }
    }
    heard
}

// spec: rows LG-07, X-14
#[tokio::test]
async fn progress_that_is_said_beside_an_answer_reaches_its_call_and_no_other() {
    let upstream = server(200).await;
    let backend = backend(&upstream);
    upstream.behave("echo", Behaviour::Late(Duration::from_millis(400)));
    upstream.behave("streamed", Behaviour::Late(Duration::from_millis(400)));
    let calls = ["alice", "bob"].map(|subject| of(subject, call_with_progress("echo")));
    let calls = calls.map(|call| async { heard(backend.call(call).await.unwrap()).await });
    let saying = async {
        eventually(|| tokens(&upstream).len() == 2).await;
        let tokens = tokens(&upstream);
        for (value, token) in [(1, 0), (10, 1), (2, 0), (1, 0)] {
            assert_eq!(upstream.say(&progress(&tokens[token], value)), 2, "both sessions listen");
        }
        for noise in ["p0", "p99999999999999999999", "theirs", "", "p", "x1"] {
            upstream.say(&progress(noise, 77));
        }
        upstream.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        upstream.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    };
    let [one, other] = calls;
    let (one, other, ()) = tokio::join!(one, other, saying);
    let mut both = [one, other];
    both.sort();
    assert_eq!(both, [vec![1, 2], vec![10]], "what falls is dropped, and each hears its own");
    assert_eq!(listens(&upstream), 2);
}

#[tokio::test]
async fn a_session_listens_once_and_only_where_progress_is_wanted() {
    let upstream = server(200).await;
    let backend = backend(&upstream);
    result(&backend, call("echo")).await;
    assert_eq!(listens(&upstream), 0);
    for _ in 0..3 {
        result(&backend, call_with_progress("echo")).await;
    }
    assert_eq!(listens(&upstream), 1);
    // Ended by the server, it is opened again for who needs it.
    upstream.hang_up();
    while listens(&upstream) < 2 {
        result(&backend, call_with_progress("echo")).await;
    }
    upstream.behave("echo", Behaviour::Late(SOON));
    let before = tokens(&upstream).len();
    let saying = async {
        eventually(|| tokens(&upstream).len() > before).await;
        assert_eq!(upstream.say(&progress(tokens(&upstream).last().unwrap(), 5)), 1);
    };
    let call = async { heard(backend.call(call_with_progress("echo")).await.unwrap()).await };
    let (heard, ()) = tokio::join!(call, saying);
    assert_eq!((heard, listens(&upstream)), (vec![5], 2));
    // It ends with its session.
    drop(backend);
    eventually(|| upstream.sessions().iter().all(|session| session.ended) && upstream.say("{}") == 0).await;
}

#[tokio::test]
async fn a_server_without_such_a_stream_is_asked_once_a_session() {
    for status in [405, 404, 400] {
        let upstream = server(status).await;
        let backend = backend(&upstream);
        for _ in 0..3 {
            result(&backend, call_with_progress("echo")).await;
        }
        assert_eq!(listens(&upstream), 1, "{status}");
    }
    // Nobody answers the GET: one call waits a little and goes on, and no other waits.
    let upstream = server(0).await;
    let backend = backend(&upstream);
    let began = Instant::now();
    result(&backend, call_with_progress("echo")).await;
    assert!(began.elapsed() >= SOON);
    let began = Instant::now();
    for _ in 0..3 {
        result(&backend, call_with_progress("echo")).await;
    }
    assert!(began.elapsed() < 3 * SOON, "{:?}", began.elapsed());
    assert_eq!(listens(&upstream), 1);
}

/// Says this until nobody listens any more, at most so many times.
async fn says_until_nobody_listens(upstream: &Upstream, message: &str, most: usize) {
    for _ in 0..most {
        if upstream.say(message) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("somebody still listens");
}

#[tokio::test]
async fn a_server_that_says_too_much_there_is_not_heard_any_more() {
    let noise = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let comments = format!("\n\n:{}", "x".repeat(1 << 10));
    let long = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{"x":"{}"}}}}"#, "x".repeat(1 << 10));
    for (message, listen_messages, listen_bytes) in
        [(noise, 2, 64 << 10), (&*comments, 1_000, 1 << 10), (&*long, 1_000, 1 << 10), ("\n", 1_000, 256)]
    {
        let upstream = server(200).await;
        let backend = patient(&upstream, listen_messages, listen_bytes);
        result(&backend, call_with_progress("echo")).await;
        // That its stream ends in between makes it no better.
        assert_eq!(upstream.say(message), 1);
        upstream.hang_up();
        while listens(&upstream) < 2 {
            result(&backend, call_with_progress("echo")).await;
        }
        says_until_nobody_listens(&upstream, message, 2_000).await;
        // The session is as good as before, and does not listen again.
        for _ in 0..3 {
            result(&backend, call_with_progress("echo")).await;
        }
        assert_eq!((listens(&upstream), upstream.sessions().len()), (2, 1));
    }
}

#[tokio::test]
async fn an_array_there_has_so_many_messages_and_an_event_so_many_bytes() {
    let upstream = Upstream::start().await;
    upstream.handshake(Handshake { listen: 200, revision: "2025-03-26", ..Handshake::default() });
    let backend = patient(&upstream, 100, 64 << 10);
    upstream.behave("echo", Behaviour::Late(SOON));
    let saying = async {
        eventually(|| !tokens(&upstream).is_empty()).await;
        let steps: Vec<_> = (1..5).map(|step| progress(&tokens(&upstream)[0], step)).collect();
        assert_eq!(upstream.say(&format!("[{}]", steps.join(","))), 1);
    };
    let call = async { heard(backend.call(call_with_progress("echo")).await.unwrap()).await };
    assert_eq!(tokio::join!(call, saying).0, [1, 2, 3, 4]);
    upstream.behave("echo", Behaviour::Echo);
    upstream.say("[1,1,1,1,1]");
    eventually(|| upstream.say("{}") == 0).await;
    result(&backend, call_with_progress("echo")).await;
    assert_eq!(listens(&upstream), 1, "deaf");
    // What is too long cannot be read on, but the next call listens again.
    let bob = || of("bob", call_with_progress("echo"));
    result(&backend, bob()).await;
    upstream.say(&format!(r#"{{"x":"{}"}}"#, "x".repeat(64 << 10)));
    eventually(|| upstream.say("{}") == 0).await;
    while listens(&upstream) < 3 {
        result(&backend, bob()).await;
    }
}

#[tokio::test]
async fn what_a_server_asks_there_is_answered_for_as_long_as_it_asks() {
    let upstream = server(200).await;
    let limits = Limits { listen_messages: 1_000, ..Limits::default() };
    let backend = backend_of(config_of(&upstream.url(), BackendEra::Handshake), limits);
    result(&backend, call_with_progress("echo")).await;
    let answers = || -> Vec<Value> {
        let calls = upstream.sessions()[0].calls.clone();
        calls.into_iter().filter(|message| message["method"].is_null()).collect()
    };
    for id in 0..150 {
        assert_eq!(upstream.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)), 1);
        eventually(|| answers().len() > id).await;
        assert_eq!(answers()[id], json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }
    upstream.say(r#"{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{}}"#);
    eventually(|| answers().len() > 150).await;
    assert_eq!(answers()[150]["error"]["code"], -32601);
    upstream.say("[]");
    upstream.say(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#);
    // The session is as good as before.
    run(&backend, call_with_progress("echo")).await.1.unwrap();
}
