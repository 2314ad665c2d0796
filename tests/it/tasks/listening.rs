//! `taskIds` of `subscriptions/listen`: whose tasks are acknowledged, and what is told of them.

use serde_json::Value;
use serde_json::json;

use super::CLIENT;
use super::about;
use super::ask;
use super::before;
use super::body;
use super::made;
use super::tenants;
use super::working;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

const LISTEN: &str = "subscriptions/listen";

/// Clients that know tasks and can be asked.
const ASKED: &str = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// Listens: the stream, and what is acknowledged.
async fn listen(caller: &Caller, ids: &[&str], capabilities: &str) -> (Connection, Value) {
    let mut open = Connection::open(caller.addr).await;
    let filter = json!({"toolsListChanged": true, "taskIds": ids});
    let text = body(LISTEN, &format!(r#","notifications":{filter}"#), capabilities);
    open.post(&caller.path, &caller.headers(LISTEN, None), &text).await;
    assert_eq!(open.head().await.status, 200);
    let first = message(&mut open).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    (open, first["params"]["notifications"]["taskIds"].clone())
}

/// The next message of a stream, whatever comments there are before it.
async fn message(open: &mut Connection) -> Value {
    loop {
        let event = open.event().await.expect("a message");
        if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

/// Reads until a task is told to be at `status`; the `params` that say so.
async fn until(open: &mut Connection, status: &str) -> Value {
    loop {
        let message = message(open).await;
        assert_eq!(message["method"], "notifications/tasks", "{message}");
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{message}");
        assert_eq!(message["params"].get("resultType"), None, "{message}");
        if message["params"]["status"] == status {
            return message["params"].clone();
        }
    }
}

// spec: rows EX-06, SB-02, SB-03
#[tokio::test]
async fn who_listens_to_a_task_hears_what_it_is_at_until_it_has_ended() {
    let mut server = Process::start(&mut Peers::find().node("tests/fixtures/tasks.mjs"));
    let url = server.line("listening ").await;
    let backends = format!(r#"up: {{kind: mcp, url: "{url}", prefix: ""}}"#);
    let gw = Gateway::start(&tenants(&backends, "{issuer}")).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("acme", "bob", ""));
    let id = made(&alice, "confirm_delete").await;

    // Somebody else's is left out like one that never was.
    let (_open, told) = listen(&bob, &[&id, "786512e2-9e0d"], ASKED).await;
    assert_eq!(told, json!(null));
    let (mut one, told) = listen(&alice, &["x", &id, &id], ASKED).await;
    assert_eq!(told, json!([id]));
    // Who comes later is told what it is at, too, and who cannot be asked is not asked.
    let (mut two, _) = listen(&alice, &[&id], ASKED).await;
    let (mut deaf, told) = listen(&alice, &[&id], CLIENT).await;
    assert_eq!(told, json!([id]));
    for open in [&mut one, &mut two] {
        let params = until(open, "input_required").await;
        assert_eq!(params["taskId"], id.as_str());
        assert_eq!(params["inputRequests"]["confirm"]["method"], "elicitation/create");
    }
    let answer = r#"{"confirm":{"action":"accept","content":{"confirm":true}}}"#;
    let params = format!(r#","taskId":"{id}","inputResponses":{answer}"#);
    ask(&alice, "tasks/update", Some(&id), &params, ASKED).await.result();
    for open in [&mut one, &mut two, &mut deaf] {
        let params = until(open, "completed").await;
        assert_eq!(params["taskId"], id.as_str());
        assert!(params["result"]["content"][0]["text"].as_str().unwrap().starts_with("deleted"), "{params}");
    }
    // What it is at is told when it is asked for late, also when nothing happens any more.
    let (mut late, _) = listen(&alice, &[&id], CLIENT).await;
    until(&mut late, "completed").await;
    assert_eq!(about(&alice, "tasks/get", &id).await.result()["status"], "completed");
    gw.stop().await;
}

// spec: rows EX-06, MR-07, GW-04
#[tokio::test]
async fn who_listens_to_a_task_is_not_asked_what_its_tenant_refuses() {
    let mut server = Process::start(&mut Peers::find().node("tests/fixtures/tasks.mjs"));
    let url = server.line("listening ").await;
    let backends = format!(r#"up: {{kind: mcp, url: "{url}", prefix: "", refuse: [forms]}}"#);
    let gw = Gateway::start(&tenants(&backends, "{issuer}")).await;
    let alice = gw.caller("acme", "alice", "");
    let id = made(&alice, "confirm_delete").await;
    let (mut open, _) = listen(&alice, &[&id], ASKED).await;
    let params = format!(r#","taskId":"{id}""#);
    eventually("it is refused", async || {
        ask(&alice, "tasks/get", Some(&id), &params, ASKED)
            .await
            .text()
            .contains("the backend asks for a form")
    })
    .await;
    let answer = r#"{"confirm":{"action":"accept","content":{"confirm":true}}}"#;
    let params = format!(r#","taskId":"{id}","inputResponses":{answer}"#);
    ask(&alice, "tasks/update", Some(&id), &params, ASKED).await.result();
    loop {
        let told = message(&mut open).await;
        assert_eq!(told["params"].get("inputRequests"), None, "{told}");
        if told["params"]["status"] == "completed" {
            break;
        }
    }
    gw.stop().await;
}

// spec: rows EX-06, SB-02
#[tokio::test]
async fn tasks_are_listened_to_by_who_knows_them_where_their_backend_tells() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let id = made(&alice, "up_echo").await;
    for capabilities in ["{}", r#"{"tasks":{}}"#] {
        let params = format!(r#","notifications":{{"taskIds":["{id}"]}}"#);
        let answer = ask(&alice, LISTEN, None, &params, capabilities).await;
        assert_eq!(answer.refusal(), (400, -32021), "{}", answer.text());
        let required: Value = serde_json::from_str(CLIENT).unwrap();
        assert_eq!(answer.message()["error"]["data"], json!({"requiredCapabilities": required}));
    }
    for ids in ["7", r#""x""#, "[7]", "{}"] {
        let params = format!(r#","notifications":{{"taskIds":{ids}}}"#);
        assert_eq!(ask(&alice, LISTEN, None, &params, CLIENT).await.refusal(), (400, -32602), "{ids}");
    }
    let many: Vec<String> = (0..257).map(|n| n.to_string()).collect();
    let params = format!(r#","notifications":{{"taskIds":{}}}"#, json!(many));
    assert_eq!(ask(&alice, LISTEN, None, &params, CLIENT).await.refusal(), (400, -32602));
    // This one says nothing of tasks on its own: nobody waits for it in vain.
    let (_open, told) = listen(&alice, &[&id], CLIENT).await;
    assert_eq!((told, upstream.count("tasks/get")), (json!(null), 0));
    assert!(upstream.count(LISTEN) > 0, "it was asked");
    gw.stop().await;
}
