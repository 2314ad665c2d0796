//! What the exercises of two introductions to MCP ask for, as checks of the gateway.

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::session::Session;
use crate::harness::upstream::Upstream;

/// Two processes of the fixture server with one store between them.
async fn pods(store: &tempfile::TempDir) -> ([Process; 2], [String; 2]) {
    let start = || {
        let mut command = Peers::find().node("tests/fixtures/everything.mjs");
        Process::start(command.args(["--store", store.path().to_str().unwrap()]))
    };
    let mut processes = [start(), start()];
    let [one, two] = &mut processes;
    let urls = [one.line("listening ").await, two.line("listening ").await];
    (processes, urls)
}

/// A replica whose tenants `acme` and `other` come to this server, each with a credential of its own.
async fn replica(url: &str, store: &tempfile::TempDir) -> Gateway {
    let tenant = |name: &str| {
        let secret = store.path().join(name);
        std::fs::write(&secret, format!("key-of-{name}")).unwrap();
        format!(
            r#"
  {name}:
    issuers: [{{shared: "{{issuer}}"}}]
    secrets: {{key: {{file: "{}"}}}}
    backends:
      drafts: {{kind: mcp, url: "{url}", prefix: "", credential: {{kind: bearer, secret: key}}}}"#,
            secret.display()
        )
    };
    let shared = r#"issuers: [{issuer: "{issuer}", tenant_claim: tenant}]"#;
    Gateway::start(&format!("{shared}\ntenants:{}{}\n", tenant("acme"), tenant("other"))).await
}

async fn append(caller: &Caller, id: &Value, line: &str) -> Value {
    let answer = caller.call_tool("draft_append", json!({"draftId": id, "line": line})).await;
    assert_eq!(answer.header("mcp-session-id"), None);
    answer.result()
}

// spec: row FR-3
#[tokio::test]
async fn a_handle_that_a_server_minted_goes_on_at_any_replica_and_any_pod() {
    let store = tempfile::tempdir().unwrap();
    let (_pods, urls) = pods(&store).await;
    let replicas = [replica(&urls[0], &store).await, replica(&urls[1], &store).await];
    let [here, there] = &replicas;
    let alices = [here.caller("acme", "alice", ""), there.caller("acme", "alice", "")];
    let created = alices[0].call_tool("draft_create", json!({})).await;
    assert_eq!(created.header("mcp-session-id"), None);
    let id = created.result()["structuredContent"]["draftId"].clone();
    let mut lines = Vec::new();
    for round in 0..4 {
        let line = format!("line {round}");
        let draft = append(&alices[round % 2], &id, &line).await;
        lines.push(line);
        assert_eq!(draft["structuredContent"], json!({"draftId": id, "lines": lines, "session": null}));
    }
    // The id is no credential: whoever comes from elsewhere finds nothing under it.
    for replica in &replicas {
        let refused = append(&replica.caller("other", "bob", ""), &id, "mine").await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
    assert_eq!(
        append(&alices[1], &id, "end").await["structuredContent"]["lines"].as_array().unwrap().len(),
        5
    );
    for replica in replicas {
        replica.stop().await;
    }
}

// spec: row old-M
#[tokio::test]
async fn a_log_resource_does_not_lead_out_of_its_folder() {
    let logs = Upstream::start().await;
    logs.template("file:///var/log/{+path}", r#"{"uriTemplate":"file:///var/log/{+path}","name":"logs"}"#);
    let backend = logs.backend("logs", ", prefix: \"\"");
    let gw = Gateway::start(&acme_and_other(&[backend])).await;
    let alice = gw.caller("acme", "alice", "");
    alice.read("file:///var/log/app/today.log").await.result();
    let session = Session::open(&alice, "2025-11-25").await;
    let reads = logs.count("resources/read");
    for uri in [
        "file:///var/log/../../etc/passwd",
        "file:///var/log/%2e%2e/%2E%2E/etc/passwd",
        r"file:///var/log/..\..\etc\passwd",
        "file:///var/log/x/%2e./../../etc/passwd",
    ] {
        let answer = alice.read(uri).await;
        assert_eq!(answer.refusal(), (200, -32602), "{uri}");
        assert_eq!(answer.message()["error"]["data"]["uri"], uri);
        assert_eq!(
            session.rpc("resources/read", json!({"uri": uri})).await.refusal(),
            (200, -32002),
            "{uri}"
        );
    }
    assert_eq!(logs.count("resources/read"), reads, "nobody was asked");
    gw.stop().await;
}
