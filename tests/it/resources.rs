//! Resources and their templates through the front door.

use crate::harness::gateway::Gateway;
use crate::harness::upstream::Upstream;

#[tokio::test]
async fn resources_are_listed_and_read_under_public_uris() {
    let upstream = Upstream::start().await;
    upstream.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    upstream.template("x://{n}/all", r#"{"uriTemplate":"x://{n}/all","name":"all"}"#);
    let tenants = format!(
        "issuers: [{{issuer: \"{{issuer}}\", tenant_claim: tenant}}]\ntenants:\n  acme:\n    backends: {{crm: {{kind: mcp, url: \"{}\"}}}}\n",
        upstream.url()
    );
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.resources().await, ["crm+x://1"]);
    assert_eq!(alice.templates().await, ["crm+x://{n}/all"]);
    let read = alice.read("crm+x://1").await.result();
    assert_eq!(
        (&read["contents"][0]["uri"], &read["contents"][0]["text"]),
        (&"crm+x://1".into(), &"x://1".into())
    );
    gw.stop().await;
}
