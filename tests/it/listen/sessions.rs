//! The same in sessions: the GET stream, `resources/subscribe` and `resources/unsubscribe`.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use super::ALL;
use super::LISTEN;
use super::NOTE;
use super::TENANTS;
use super::change;
use super::message;
use super::metric;
use super::start;
use super::update;
use crate::harness::gateway::Gateway;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

async fn stream(session: &Session) -> Connection {
    let mut open = session.listen().await;
    assert_eq!(open.head().await.status, 200);
    open
}

async fn subscribe(session: &Session, uri: &str) -> (u16, i64) {
    session.rpc("resources/subscribe", json!({"uri": uri})).await.refusal()
}

/// The next messages, in the order of the alphabet.
async fn told(open: &mut Connection, count: usize) -> Vec<Value> {
    let mut told = Vec::new();
    for _ in 0..count {
        told.push(message(open).await.unwrap());
    }
    told.sort_by_key(Value::to_string);
    told
}

fn listed(kind: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed")})
}

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

// spec: rows RU-3, LG-10, LG-11, Y-08
#[tokio::test]
async fn a_session_hears_what_changes_and_what_it_subscribes_to() {
    let (gw, alice) = start().await;
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        let mut open = stream(&session).await;
        update(&gw, NOTE).await;
        let answer = session.rpc("resources/subscribe", json!({"uri": NOTE})).await;
        assert_eq!(answer.result(), json!({}));
        assert_eq!(subscribe(&session, NOTE).await, (200, 0), "once more is as once");
        change(&gw, ALL);
        update(&gw, NOTE).await;
        let expected = [listed("prompts"), listed("resources"), listed("tools"), updated(NOTE)];
        let mut told = told(&mut open, 4).await;
        told.sort_by_key(|message| message["method"] == "notifications/resources/updated");
        assert_eq!(told, expected);
        let answer = session.rpc("resources/unsubscribe", json!({"uri": NOTE})).await;
        assert_eq!(answer.result(), json!({}));
        update(&gw, NOTE).await;
        change(&gw, ALL);
        for _ in 0..3 {
            assert_ne!(message(&mut open).await.unwrap(), updated(NOTE));
        }
        assert_eq!(
            session.rpc("resources/unsubscribe", json!({"uri": "never://was"})).await.result(),
            json!({})
        );
    }
    gw.stop().await;
}

// spec: row Y-07
#[tokio::test]
async fn what_changes_while_no_stream_is_open_is_told_on_the_next_one_once() {
    let (gw, alice) = start().await;
    let session = Session::open(&alice, "2025-11-25").await;
    assert_eq!(subscribe(&session, NOTE).await, (200, 0));
    for _ in 0..100 {
        update(&gw, NOTE).await;
        change(&gw, ALL);
    }
    let (mut one, mut two) = (stream(&session).await, stream(&session).await);
    let mut streams = [Vec::new(), Vec::new()];
    // Whoever is first has it.
    for _ in 0..4 {
        tokio::select! {
            message = message(&mut one) => streams[0].push(message),
            message = message(&mut two) => streams[1].push(message),
        }
    }
    assert!(streams.iter().any(Vec::is_empty) && streams.iter().any(|told| told.len() == 4), "{streams:?}");
    drop((one, two));
    // What it subscribes to ends with it.
    assert_eq!(session.end().await.status, 204);
    assert_eq!(subscribe(&session, NOTE).await, (404, -32600));
    gw.stop().await;
}

// spec: row LG-10
#[tokio::test]
async fn a_session_subscribes_to_what_its_caller_may_read_and_to_so_much_of_it() {
    let gw = Gateway::start_with(TENANTS, |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        (s.limits.subscription_uris, s.limits.caller_streams) = (2, 2);
    })
    .await;
    let alice = gw.caller("demo", "alice", "demo.use");
    let session = Session::open(&alice, "2025-11-25").await;
    for (uri, refusal) in [("demo://a/../b", (200, -32002)), ("x", (200, -32002)), (NOTE, (200, 0))] {
        let read = session.rpc("resources/read", json!({"uri": uri})).await;
        assert_eq!(read.refusal(), refusal, "as it is read");
        assert_eq!(subscribe(&session, uri).await, refusal, "{uri}");
    }
    assert_eq!(subscribe(&session, "demo://note/3").await.0, 403, "a scope is missing");
    let other = Session::open(&gw.caller("other", "alice", "demo.use"), "2025-11-25").await;
    assert_eq!(subscribe(&other, NOTE).await, (200, -32002));
    for params in [json!({}), json!({"uri": 1}), json!({"uri": null})] {
        assert_eq!(session.rpc("resources/subscribe", params.clone()).await.refusal(), (200, -32602));
        assert_eq!(session.rpc("resources/unsubscribe", params).await.refusal(), (200, -32602));
    }
    assert_eq!(subscribe(&session, "demo://note/2").await, (200, 0));
    assert_eq!(subscribe(&session, "demo://note/4").await, (200, 1002));
    let second = Session::open(&alice, "2025-06-18").await;
    assert_eq!(subscribe(&second, NOTE).await, (200, 0));
    let third = Session::open(&alice, "2025-06-18").await;
    assert_eq!(subscribe(&third, NOTE).await, (200, 1002));
    assert_eq!(second.end().await.status, 204);
    assert_eq!(subscribe(&third, NOTE).await, (200, 0));
    assert_eq!(metric(&gw, r#"fondaco_refusals_total{kind="subscriptions"}"#).await, 2);
    // What is modern is not of this era, and the other way round.
    let filter = json!({"notifications": {"toolsListChanged": true}});
    assert_eq!(session.rpc(LISTEN, filter).await.refusal(), (200, -32601));
    assert_eq!(alice.rpc("resources/subscribe", json!({"uri": NOTE})).await.refusal(), (404, -32601));
    gw.stop().await;
}

// spec: row Y-07
#[tokio::test]
async fn a_session_is_told_that_a_backend_has_no_room_and_not_that_it_never_tells() {
    let gw = Gateway::start_with(TENANTS, |s| {
        (s.limits.upstream_watches, s.limits.caller_subscriptions) = (2, 257);
    })
    .await;
    let [alice, bob] = ["alice", "bob"].map(|name| gw.caller("demo", name, "demo.use"));
    let uris = |from: usize, count: usize| {
        (from..from + count).map(|n| format!("demo://note/{n}")).collect::<Vec<_>>()
    };
    let filter = |uris: &[String]| json!({"resourceSubscriptions": uris}).to_string();
    let all = uris(1_000, 256);
    let (open, told) = super::listen(&alice, "1", &filter(&all)).await;
    assert_eq!(told["notifications"]["resourceSubscriptions"].as_array().map(Vec::len), Some(256));
    let session = Session::open(&bob, "2025-11-25").await;
    assert_eq!(subscribe(&session, "demo://note/2000").await, (200, 1002));
    assert_eq!(subscribe(&session, &all[0]).await, (200, 0), "it is subscribed to already");
    drop(open);
    eventually("there is room", async || subscribe(&session, "demo://note/2000").await == (200, 0)).await;
    // A caller has no more with all that it listens with.
    assert_eq!(super::refused(&bob, &filter(&uris(3_000, 256))).await.refusal(), (429, 1002));
    let (_open, _) = super::listen(&bob, "2", &filter(&uris(3_000, 255))).await;
    assert_eq!(subscribe(&session, "demo://note/2001").await, (200, 1002));
    gw.stop().await;
}
