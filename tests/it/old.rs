//! What the exercises of two introductions to MCP ask for, as checks of the gateway.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::meta;
use crate::harness::gateway::text;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

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

/// The first event of this method that a listener of `caller` hears.
async fn hears(open: &mut Connection, method: &str) -> Value {
    loop {
        let event = open.event().await.expect("the stream goes on");
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        let message: Value = data.map_or(Value::Null, |data| serde_json::from_str(data).unwrap());
        if message["method"] == method {
            return message;
        }
    }
}

// spec: rows FR-1, old-E
#[tokio::test]
async fn a_tool_that_a_backend_adds_is_told_of_listed_in_order_and_called() {
    let mut server = Process::start(&mut Peers::find().node("tests/fixtures/everything.mjs"));
    let backend = format!(r#"all: {{kind: mcp, url: "{}", prefix: ""}}"#, server.line("listening ").await);
    let replicas = [
        Gateway::start(&acme_and_other(std::slice::from_ref(&backend))).await,
        Gateway::start(&acme_and_other(std::slice::from_ref(&backend))).await,
    ];
    let callers = [&replicas[0], &replicas[1]].map(|gw| gw.caller("acme", "alice", ""));
    let mut ears = Vec::new();
    for caller in &callers {
        assert!(!caller.tools().await.contains(&"subtract".to_owned()));
        let absent = caller.call_tool("subtract", json!({"a": 5, "b": 3})).await;
        assert_eq!(absent.refusal(), (200, -32602), "{}", absent.text());
        let mut open = Connection::open(caller.addr).await;
        let body = text("1", "subscriptions/listen", r#","notifications":{"toolsListChanged":true}"#, "");
        open.post(&caller.path, &caller.headers("subscriptions/listen", None), &body).await;
        assert_eq!(open.head().await.status, 200);
        hears(&mut open, "notifications/subscriptions/acknowledged").await;
        ears.push(open);
    }
    for (offered, listed) in [(true, true), (false, false)] {
        callers[0].call_tool("offer_subtract", json!({"offered": offered})).await.result();
        for ear in &mut ears {
            let told = hears(ear, "notifications/tools/list_changed");
            tokio::time::timeout(Duration::from_secs(5), told).await.expect("told within 5 s");
        }
        // What was told first may still be of the change before.
        let changed = async |caller: &Caller| caller.tools().await.contains(&"subtract".to_owned()) == listed;
        eventually("the list is of the change", async || {
            changed(&callers[0]).await && changed(&callers[1]).await
        })
        .await;
        let lists = [callers[0].tools().await, callers[1].tools().await];
        assert!(lists[0].is_sorted(), "{:?}", lists[0]);
        assert_eq!(lists[0], lists[1], "the same at both replicas");
    }
    drop(ears);
    for replica in replicas {
        replica.stop().await;
    }
}

// spec: row FR-4
#[tokio::test]
async fn a_call_that_asks_goes_on_with_the_answer_and_its_exact_state() {
    const ASKS: &str = r#"{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}},"requestState":"st\u0061te /+=é"}"#;
    let upstream = Upstream::start().await;
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", ", prefix: \"\"")])).await;
    let alice = gw.caller("acme", "alice", "");
    let ask = async |id: u64, params: Value| {
        let mut params = params;
        params["name"] = json!("echo");
        params["arguments"] = json!({"a": 1});
        params["_meta"] = meta();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        alice.post(&alice.headers("tools/call", Some("echo")), &body.to_string()).await
    };
    let begin = async |id: u64| {
        upstream.behave("echo", Behaviour::Once(Box::new(Behaviour::Result(ASKS.to_owned()))));
        let asked = ask(id, json!({})).await.result();
        assert_eq!(asked["inputRequests"]["q"]["method"], "elicitation/create", "{asked}");
        asked["requestState"].as_str().unwrap().to_owned()
    };
    let state = begin(1).await;
    let responses = json!({"q": {"action": "accept", "content": {}}});
    let sent =
        || upstream.requests().iter().rfind(|r| r.header("mcp-method") == ["tools/call"]).unwrap().json();
    let first = sent()["id"].clone();
    // A new id, and the very same one: two requests that know nothing of each other.
    for id in [2, 1] {
        let done = ask(id, json!({"inputResponses": responses, "requestState": state})).await.message();
        assert_eq!(
            (&done["id"], &done["result"]["structuredContent"]),
            (&json!(id), &json!({"a": 1})),
            "{done}"
        );
        let received = sent();
        assert_eq!(received["params"]["requestState"], "state /+=é");
        assert_eq!(received["params"]["inputResponses"], responses);
        assert_ne!(received["id"], first);
    }
    let calls = upstream.count("tools/call");
    for wrong in [format!("{state}-TAMPERED"), state[1..].to_owned(), "forged".to_owned()] {
        let refused = ask(3, json!({"inputResponses": responses, "requestState": wrong})).await;
        assert_eq!(refused.refusal(), (200, -32602), "{}", refused.text());
    }
    assert_eq!(upstream.count("tools/call"), calls, "nobody was asked");
    gw.stop().await;
}
