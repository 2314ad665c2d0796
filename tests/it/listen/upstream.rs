//! What backends say, all the way to those who listen.

use std::time::Duration;

use serde_json::json;

use super::listen;
use super::message;
use super::metric;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;

const NOTE: &str = "note://a";
const UPDATED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"note://a"}}"#;
const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const FILTER: &str = r#"{"toolsListChanged":true,"resourceSubscriptions":["note://a"]}"#;

/// A server that tells its sessions what changes.
async fn telling() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.resource(NOTE, r#"{"uri":"note://a","name":"a"}"#);
    upstream
        .capabilities(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#);
    upstream.handshake(Handshake { listen: 200, ..Handshake::default() });
    upstream
}

async fn before(upstream: &Upstream) -> Gateway {
    let tenants = acme_and_other(&[upstream.backend("up", r#", prefix: """#)]);
    Gateway::start_with(&tenants, |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        s.limits.open_pause = Duration::from_millis(10);
        s.limits.watch_linger = Duration::from_millis(10);
    })
    .await
}

fn asked(upstream: &Upstream, method: &str) -> usize {
    let calls = upstream.sessions().into_iter().flat_map(|session| session.calls);
    calls.filter(|call| call["method"] == method).count()
}

// spec: rows RU-3, LG-10, LG-11
#[tokio::test]
async fn what_a_backend_says_reaches_listeners_of_either_era() {
    let upstream = telling().await;
    let gw = before(&upstream).await;
    let alice = gw.caller("acme", "alice", "");
    let (mut modern, params) = listen(&alice, "1", FILTER).await;
    assert_eq!(params["notifications"]["resourceSubscriptions"], json!([NOTE]));
    let session = Session::open(&alice, "2025-11-25").await;
    let mut old = session.listen().await;
    assert_eq!(old.head().await.status, 200);
    assert_eq!(session.rpc("resources/subscribe", json!({"uri": NOTE})).await.result(), json!({}));
    assert_eq!(asked(&upstream, "resources/subscribe"), 1, "one for all who want the same");
    assert!(upstream.say(UPDATED) > 0);
    for open in [&mut modern, &mut old] {
        let message = message(open).await.unwrap();
        assert_eq!(
            (&message["method"], &message["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!(NOTE))
        );
    }
    upstream.tool("fresh", r#"{"name":"fresh","inputSchema":{"type":"object"}}"#);
    upstream.say(TOOLS);
    for open in [&mut modern, &mut old] {
        assert_eq!(message(open).await.unwrap()["method"], "notifications/tools/list_changed");
        assert!(alice.tools().await.contains(&"fresh".to_owned()), "who lists now sees it");
    }
    assert_eq!(session.rpc("resources/unsubscribe", json!({"uri": NOTE})).await.result(), json!({}));
    upstream.say(UPDATED);
    assert_eq!(message(&mut modern).await.unwrap()["method"], "notifications/resources/updated");
    upstream.tool("fresher", r#"{"name":"fresher","inputSchema":{"type":"object"}}"#);
    upstream.say(TOOLS);
    assert_eq!(message(&mut old).await.unwrap()["method"], "notifications/tools/list_changed");
    drop(modern);
    eventually("nobody wants it any more", async || asked(&upstream, "resources/unsubscribe") == 1).await;
    gw.stop().await;
}

// spec: row SB-06
#[tokio::test]
async fn after_a_gap_everything_behind_it_counts_as_changed() {
    let upstream = telling().await;
    let gw = before(&upstream).await;
    let (mut open, _) = listen(&gw.caller("acme", "alice", ""), "1", FILTER).await;
    for round in 1..=3 {
        upstream.hang_up();
        let message = message(&mut open).await.unwrap();
        assert_eq!(message["method"], "notifications/resources/updated", "{round}: {message}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_backend_that_cannot_be_asked_fails_no_listen_and_counts_as_changed_when_it_comes() {
    let upstream = telling().await;
    let gw = before(&upstream).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.resources().await, [NOTE]);
    upstream.always(Some(Behaviour::Error(503, "{}".to_owned())));
    upstream.hang_up();
    let (mut open, params) = listen(&alice, "1", FILTER).await;
    assert_eq!(params["notifications"]["resourceSubscriptions"], json!([NOTE]));
    assert_eq!(metric(&gw, r#"fondaco_notifications_sent_total{kind="updated"}"#).await, 0);
    upstream.always(None);
    let message = message(&mut open).await.unwrap();
    assert_eq!(message["method"], "notifications/resources/updated", "{message}");
    gw.stop().await;
}

// spec: row SB-02
#[tokio::test]
async fn what_a_backend_does_not_tell_of_is_not_honoured() {
    let upstream = telling().await;
    upstream.capabilities(r#"{"tools":{"listChanged":true},"resources":{"listChanged":true}}"#);
    let gw = before(&upstream).await;
    let alice = gw.caller("acme", "alice", "");
    let (_open, params) = listen(&alice, "1", FILTER).await;
    assert_eq!(params["notifications"], json!({"toolsListChanged": true}));
    let session = Session::open(&alice, "2025-11-25").await;
    let answer = session.rpc("resources/subscribe", json!({"uri": NOTE})).await;
    assert_eq!(answer.refusal(), (200, -32602), "{}", answer.text());
    gw.stop().await;
}
