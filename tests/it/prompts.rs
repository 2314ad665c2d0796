//! Prompts and completion through the front door.

use serde_json::json;

use crate::harness::gateway::Gateway;
use crate::harness::upstream::Upstream;

/// A tenant over one server, whose names are prefixed.
fn one(upstream: &Upstream) -> String {
    format!(
        "issuers: [{{issuer: \"{{issuer}}\", tenant_claim: tenant}}]\ntenants:\n  acme:\n    backends: {{crm: {{kind: mcp, url: \"{}\"}}}}\n",
        upstream.url()
    )
}

#[tokio::test]
async fn prompts_are_listed_and_got_under_public_names() {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet","arguments":[{"name":"whom","required":true}]}"#);
    upstream.prompt("plain", r#"{"name":"plain"}"#);
    let gw = Gateway::start(&one(&upstream)).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.prompts().await, ["crm_greet", "crm_plain"]);
    let got = alice.prompt("crm_greet", json!({"whom": "Bob"})).await.result();
    assert_eq!(got["messages"][0]["content"]["text"], r#"{"whom":"Bob"}"#);
    gw.stop().await;
}

/// DV-02
#[tokio::test]
async fn a_list_that_a_backend_does_not_advertise_is_empty() {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet"}"#).capabilities(r#"{"tools":{}}"#);
    let gw = Gateway::start(&one(&upstream)).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["crm_echo"]);
    assert_eq!(alice.prompts().await, Vec::<String>::new());
    let discovered = alice.rpc("server/discover", json!({})).await.result();
    let expected = json!({"tools": {}, "prompts": {}, "resources": {}, "completions": {}});
    assert_eq!(discovered["capabilities"], expected);
    assert!(upstream.requests().iter().all(|request| request.header("mcp-method") != ["prompts/list"]));
    gw.stop().await;
}
