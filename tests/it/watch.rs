//! What changes at a backend, as a client of the gateway sees it: soon.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::harness::wire;

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The value of a metric now.
async fn metric(gw: &Gateway, name: &str) -> u64 {
    let host = [("Host".to_owned(), gw.admin.to_string())];
    let text = wire::request(gw.admin, "GET", "/metrics", &host, b"").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Waits until the backend is listened to, and what that leads to is over.
async fn settled(gw: &Gateway) -> u64 {
    let refreshes = r#"fondaco_catalog_refreshes_total{outcome="ok"}"#;
    eventually("somebody listens", async || metric(gw, "fondaco_upstream_watches_open").await == 1).await;
    eventually("what was before is known", async || metric(gw, refreshes).await >= 2).await;
    metric(gw, refreshes).await
}

// spec: rows LT-07, X-11
#[tokio::test]
async fn a_tool_that_a_backend_tells_of_is_listed_within_a_moment() {
    for era in ["modern", "handshake"] {
        let upstream = Upstream::start().await;
        upstream.capabilities(r#"{"tools":{"listChanged":true}}"#);
        match era {
            "modern" => upstream.behave("subscriptions/listen", Behaviour::Listen),
            _ => upstream.handshake(Handshake { listen: 200, ..Handshake::default() }),
        };
        let gw = Gateway::start(&acme_and_other(&[upstream.backend("crm", "")])).await;
        let alice = gw.caller("acme", "alice", "");
        assert_eq!(alice.tools().await, ["crm_echo"]);
        let acknowledgement = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": true}},
        });
        eventually("it listens", async || upstream.say(&acknowledgement.to_string()) == 1).await;
        settled(&gw).await;
        upstream.tool("find", r#"{"name":"find","inputSchema":{"type":"object"}}"#);
        let told = Instant::now();
        assert_eq!(upstream.say(CHANGED), 1);
        eventually(era, async || alice.tools().await == ["crm_echo", "crm_find"]).await;
        assert!(told.elapsed() < Duration::from_secs(5), "{era}: {:?}", told.elapsed());
        gw.stop().await;
    }
}

// spec: rows LT-07, X-11
#[tokio::test]
async fn the_official_sdk_is_heard_in_both_eras() {
    for era in ["modern", "legacy"] {
        let mut command = Peers::find().node("tests/fixtures/everything.mjs");
        let mut server = Process::start(command.args(["--era", era]));
        let backend = format!("tools: {{kind: mcp, url: \"{}\"}}", server.line("listening ").await);
        let gw = Gateway::start(&acme_and_other(&[backend])).await;
        let alice = gw.caller("acme", "alice", "");
        assert!(alice.tools().await.contains(&"tools_test_trigger_tool_change".to_owned()));
        for trigger in ["tools_test_trigger_tool_change", "tools_test_trigger_prompt_change"] {
            let before = settled(&gw).await;
            alice.call_tool(trigger, json!({})).await.result();
            let refreshes = r#"fondaco_catalog_refreshes_total{outcome="ok"}"#;
            eventually(era, async || metric(&gw, refreshes).await > before).await;
        }
        gw.stop().await;
        server.end().await;
    }
}
