//! The end of the process: nobody waits for calls whose clients have left, and what it knew of ended
//! sessions ends with it.

use std::future::pending;
use std::time::Duration;

use fondaco::config::keys::RingKey;
use fondaco::model::clock::Clock;
use serde_json::json;
use tokio::time::Instant;

use super::DEMO;
use super::Served;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::issuer::Issuer;
use crate::harness::session::Session;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::harness::wire;

/// What everything may take beside the time of its clocks.
const SLACK: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_process_ends_in_its_time_whatever_goes_on_for_nobody() {
    for (reloaded, has_handshake) in [(false, false), (true, false), (false, true), (true, true)] {
        let upstream = Upstream::start().await;
        if has_handshake {
            upstream.handshake(Handshake::default());
        }
        let mut process = Served::before(&upstream, &[("FONDACO_LIMITS__DRAIN_TOTAL", "1s")]).await;
        let session = Session::open(&process.alice, "2025-11-25").await;
        upstream.behave("echo", Behaviour::Hang);
        let call = request(&json!(1), "tools/call", &json!({"name": "echo"}));
        let calls = || upstream.requests().iter().filter(|r| r.body.contains("tools/call")).count();
        let metrics = async || wire::request(process.serving.admin, "GET", "/metrics", &[], b"").await.text();
        let open = session.begin(&session.headers(), &call).await;
        eventually("the call has arrived", async || calls() == 1).await;
        drop(open);
        eventually("its client is gone", async || metrics().await.contains("fondaco_requests_in_flight 0\n"))
            .await;
        if reloaded {
            process.change(&upstream, "instructions: 'Other.'");
            eventually("the tenants are read again", async || {
                let later = Session::open(&process.alice, "2025-11-25").await;
                later.opened["instructions"].as_str().is_some_and(|said| said.contains("Other."))
            })
            .await;
        }
        assert_eq!(upstream.cancellations(), 0, "it goes on");
        let started = Instant::now();
        process.serving.process.signal("TERM");
        assert!(process.serving.process.end().await.success());
        assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
        // A modern server sees it by the closed connection, as it would of a process that dies.
        let told = upstream.requests().iter().any(|r| r.body.contains("notifications/cancelled"));
        assert_eq!(told, has_handshake, "a handshake server is told");
        let log = process.serving.log();
        assert!(log.contains("stopped") && !log.contains("has ended in its time"), "{log}");
    }
}

#[tokio::test]
async fn what_does_not_end_is_left() {
    let (total, notice) = (Duration::from_millis(300), Duration::from_millis(200));
    let gw = Gateway::start_with(DEMO, |settings| {
        (settings.limits.drain_total, settings.limits.notice_time) = (total, notice);
    })
    .await;
    gw.app.tasks.spawn(pending::<()>());
    let started = Instant::now();
    gw.leave().await;
    let took = started.elapsed();
    assert!(took >= total + notice && took < total + notice + SLACK, "{took:?}");
}

// docs/compatibility.md, Sessions of clients: what an operator has to know of a DELETE.
#[tokio::test]
async fn a_session_that_was_ended_opens_at_another_replica() {
    let issuer = Issuer::start("").await;
    let shared = format!("{{issuer: \"{}\"", issuer.url());
    let tenants = format!(
        "issuers: [{shared}, tenant_claim: tenant}}]\ntenants: {{acme: {{issuers: [{}}}]}}}}",
        shared.replace("issuer", "shared")
    );
    // "a key of a test and not a secret"
    let key = RingKey::parse("YSBrZXkgb2YgYSB0ZXN0IGFuZCBub3QgYSBzZWNyZXQ").unwrap();
    let replica = async || {
        let gw = Gateway::start_with(&tenants, |settings| settings.keys.ring = vec![key.clone()]).await;
        let token = issuer.token(&format!("http://{}/t/acme/mcp", gw.addr), Clock::default().now());
        let alice = Caller { addr: gw.addr, path: "/t/acme/mcp".to_owned(), token };
        (gw, alice)
    };
    let ((one, alice), (other, there)) = (replica().await, replica().await);
    let session = Session::open(&alice, "2025-11-25").await;
    assert_eq!(session.end().await.status, 204);
    assert_eq!(session.rpc("ping", json!({})).await.status, 404);
    let elsewhere = Session { caller: there, ..session };
    assert_eq!(elsewhere.rpc("ping", json!({})).await.result(), json!({}));
    assert_eq!(elsewhere.end().await.status, 204);
    assert_eq!(elsewhere.rpc("ping", json!({})).await.status, 404);
    one.stop().await;
    other.stop().await;
}
