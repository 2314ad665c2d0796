//! Clients of the handshake era, at the same endpoints as modern ones.

use serde_json::json;

use crate::harness::gateway::Gateway;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;

const DEMO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    instructions: "Try it."
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

// spec: rows RU-2, LG-01, LG-02, LG-06
#[tokio::test]
async fn a_session_is_opened_worked_in_and_closed() {
    let gw = Gateway::start(DEMO).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    for revision in REVISIONS {
        let session = Session::open(&alice, revision).await;
        assert_eq!(session.opened["protocolVersion"], revision);
        assert_eq!(session.opened["capabilities"], json!({"tools": {}}));
        assert_eq!(session.opened["serverInfo"]["name"], "fondaco");
        assert!(session.opened["instructions"].as_str().unwrap().starts_with("Try it."));
        assert_eq!(session.rpc("ping", json!({})).await.result(), json!({}));
        let list = session.rpc("tools/list", json!({})).await.result();
        assert_eq!(list.as_object().unwrap().keys().collect::<Vec<_>>(), ["tools"], "{list}");
        let sum = session.call_tool("add", json!({"a": 2, "b": 3})).await.result();
        assert_eq!(sum["content"][0]["text"], r#"{"result":5}"#);
        let ended = session.end().await;
        assert_eq!((ended.status, ended.body.len()), (204, 0));
        assert_eq!(session.rpc("ping", json!({})).await.refusal(), (404, -32600));
        assert_eq!(session.end().await.refusal(), (404, -32600));
    }
    gw.stop().await;
}
