//! GET in a session: a stream that is kept alive, and all that ends it.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::DEMO;
use super::OWN;
use super::SHARED;
use super::file_of_acme;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Connection;

const COMMENT: &str = ":\n\n";

async fn start(tenants: &str) -> (Gateway, Caller) {
    let gw = Gateway::start_with(tenants, |s| s.limits.keep_alive = Duration::from_millis(100)).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    (gw, alice)
}

/// A stream that has begun.
async fn listening(session: &Session) -> Connection {
    let mut open = session.listen().await;
    let head = open.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!(open.event().await.as_deref(), Some(COMMENT));
    open
}

/// Waits for the end of a stream on which nothing is said.
async fn ends(mut open: Connection) {
    while let Some(event) = open.event().await {
        assert_eq!(event, COMMENT);
    }
}

async fn open_streams(gw: &Gateway) -> usize {
    let metrics = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("fondaco_session_streams_open "));
    line.unwrap().parse().unwrap()
}

// spec: row LG-07
#[tokio::test]
async fn a_stream_is_kept_alive_until_its_session_ends() {
    let (gw, alice) = start(DEMO).await;
    for revision in REVISIONS {
        let (session, other) = (Session::open(&alice, revision).await, Session::open(&alice, revision).await);
        let streams = [listening(&session).await, listening(&session).await];
        let mut kept = listening(&other).await;
        assert_eq!(open_streams(&gw).await, 3);
        assert_eq!(session.end().await.status, 204);
        for stream in streams {
            ends(stream).await;
        }
        assert_eq!(session.visit("GET", &session.headers()).await.refusal(), (404, -32600));
        assert_eq!(kept.event().await.as_deref(), Some(COMMENT));
        drop(kept);
        eventually("all streams are closed", async || open_streams(&gw).await == 0).await;
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_its_session() {
    let (gw, alice) = start(DEMO).await;
    let session = Session::open(&alice, "2025-11-25").await;
    let stream = listening(&session).await;
    // The token is for an hour and half a minute of leeway, as for any request; the session for a day.
    gw.app.clock.advance(3_620);
    let mut stream = stream;
    assert_eq!(stream.event().await.as_deref(), Some(COMMENT));
    gw.app.clock.advance(10);
    ends(stream).await;
    gw.app.clock.advance(23 * 60 * 60 - 90);
    let later = Session { caller: gw.caller("demo", "alice", "demo.use"), ..session };
    let stream = listening(&later).await;
    gw.app.clock.advance(60);
    ends(stream).await;
    gw.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_caller_would_not_be_admitted_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    std::fs::write(&file, "tenants: {}").unwrap();
    let gw = Gateway::start_with(SHARED, |settings| {
        settings.limits.keep_alive = Duration::from_millis(100);
        settings.tenants = Some(file.clone());
    })
    .await;
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        gw.app.tenants.reload();
    };
    let tenant = |issuers: &str, more: &str| file_of_acme(&gw, "http://127.0.0.1:9/mcp", issuers, more);
    let other = "{issuer: \"https://login.example\"}";
    for (path, end) in [
        ("/mcp", "tenants: {}".to_owned()),
        ("/mcp", tenant(OWN, ", legacy: off")),
        ("/t/acme/mcp", "tenants: {}".to_owned()),
        ("/t/acme/mcp", tenant(OWN, ", legacy: off")),
        // Its token would be refused: the session is no longer good for anything, either.
        ("/t/acme/mcp", tenant(other, "")),
    ] {
        write(&tenant(OWN, ""));
        let session = Session::open(&gw.caller_at(path, "acme", "alice", ""), "2025-06-18").await;
        let mut stream = listening(&session).await;
        write(&tenant(&format!("{OWN}, {other}"), ", instructions: 'Other.'"));
        assert_eq!(stream.event().await.as_deref(), Some(COMMENT), "that it changes is no end");
        write(&end);
        ends(stream).await;
        assert_ne!(session.rpc("ping", json!({})).await.status, 200);
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_the_process_leaves() {
    let gw = Gateway::start_with(DEMO, |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        s.limits.drain_accept = Duration::from_secs(2);
    })
    .await;
    let session = Session::open(&gw.caller("demo", "alice", ""), "2025-11-25").await;
    let mut stream = listening(&session).await;
    let (addr, started) = (gw.admin, Instant::now());
    let stopping = tokio::spawn(gw.stop());
    eventually("it drains", async || wire::request(addr, "GET", "/readyz", &[], b"").await.status == 503)
        .await;
    // While this process takes newcomers, who comes back would find it again.
    assert_eq!(stream.event().await.as_deref(), Some(COMMENT));
    ends(stream).await;
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_caller_and_a_tenant_have_so_many_streams_and_no_more() {
    let gw = Gateway::start_with(DEMO, |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        (s.limits.caller_streams, s.limits.tenant_streams) = (2, 3);
    })
    .await;
    let open = async |tenant: &str, subject: &str| {
        Session::open(&gw.caller(tenant, subject, ""), "2025-11-25").await
    };
    let (alice, again) = (open("demo", "alice").await, open("demo", "alice").await);
    let (bob, other) = (open("demo", "bob").await, open("other", "alice").await);
    let refused = async |session: &Session| {
        let answer = session.visit("GET", &session.headers()).await;
        assert_eq!(answer.refusal(), (429, 1002), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    };
    let one = listening(&alice).await;
    let two = listening(&again).await;
    refused(&alice).await;
    refused(&again).await;
    let three = listening(&bob).await;
    refused(&bob).await;
    let _theirs = listening(&other).await;
    drop(one);
    eventually("a place is free", async || open_streams(&gw).await == 3).await;
    let four = listening(&bob).await;
    refused(&alice).await;
    assert_eq!(alice.rpc("ping", json!({})).await.status, 200, "calls are no streams");
    drop((two, three, four));
    gw.stop().await;
}
