//! `subscriptions/listen`, and its like in sessions: what is acknowledged, what is told, and how it ends.

mod sessions;
mod upstream;

use std::time::Duration;

use fondaco::catalog::herald::Changed;
use fondaco::catalog::herald::Herald;
use fondaco::model::name::BackendName;
use fondaco::model::name::TenantName;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::text;
use crate::harness::session::Session;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

const LISTEN: &str = "subscriptions/listen";
const NOTE: &str = "demo://note/1";
const ID: &str = "io.modelcontextprotocol/subscriptionId";
const ALL: Changed = Changed { tools: true, prompts: true, resources: true };
const EVERYTHING: &str = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["demo://note/1"]}"#;

const TENANTS: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    issuers: [{shared: "{issuer}"}]
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use], "resource:demo://note/3": [demo.secret]}}}
  other:
    issuers: [{shared: "{issuer}"}]
"#;

async fn start() -> (Gateway, Caller) {
    let gw = Gateway::start_with(TENANTS, |s| s.limits.keep_alive = Duration::from_millis(100)).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    (gw, alice)
}

/// Begins to listen.
async fn begin(caller: &Caller, id: &str, filter: &str) -> Connection {
    let mut open = Connection::open(caller.addr).await;
    let body = text(id, LISTEN, &format!(r#","notifications":{filter}"#), "");
    open.post(&caller.path, &caller.headers(LISTEN, None), &body).await;
    open
}

/// Listens: the stream, and the `params` of its acknowledgement.
pub async fn listen(caller: &Caller, id: &str, filter: &str) -> (Connection, Value) {
    let mut open = begin(caller, id, filter).await;
    let head = open.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    let first = message(&mut open).await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    let params = first["params"].clone();
    (open, params)
}

/// The next message of a stream, whatever comments there are before it; `None` at its end.
pub async fn message(open: &mut Connection) -> Option<Value> {
    while let Some(event) = open.event().await {
        if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
    None
}

/// The methods of the next messages, in the order of the alphabet.
async fn methods(open: &mut Connection, count: usize) -> Vec<String> {
    let mut methods = Vec::new();
    for _ in 0..count {
        methods.push(message(open).await.unwrap()["method"].as_str().unwrap().to_owned());
    }
    methods.sort();
    methods
}

/// Tells of changes in tenant `demo`.
fn change(gw: &Gateway, what: Changed) {
    gw.app.hub.changed(&TenantName::new("demo").unwrap(), what);
}

/// Tells of a change of a resource there.
async fn update(gw: &Gateway, own: &str) {
    let (tenant, backend) = (TenantName::new("demo").unwrap(), BackendName::new("demo").unwrap());
    gw.app.hub.resource_changed(&tenant, &backend, own).await;
}

async fn refused(caller: &Caller, filter: &str) -> Answer {
    let body = text("1", LISTEN, &format!(r#","notifications":{filter}"#), "");
    caller.post(&caller.headers(LISTEN, None), &body).await
}

pub async fn metric(gw: &Gateway, name: &str) -> usize {
    let metrics = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Reads what is left of a stream, whose last message is the result of the request with this id.
async fn ends(mut open: Connection, id: &Value) {
    let mut last = None;
    while let Some(next) = message(&mut open).await {
        assert!(last.is_none(), "nothing comes after the result: {next}");
        last = next.get("result").is_some().then_some(next);
    }
    let last = last.expect("a stream that the server ends has a result");
    assert_eq!(last["id"], *id);
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(last["result"]["_meta"][ID], *id);
    assert_eq!(last["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "fondaco");
}

// spec: rows SB-01, SB-02
#[tokio::test]
async fn the_acknowledgement_is_what_the_caller_may_hear_of_of_what_it_asked_for() {
    let (gw, alice) = start().await;
    let (nobody, other) = (gw.caller("demo", "bob", ""), gw.caller("other", "alice", "demo.use"));
    let listed = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let mut all = listed.clone();
    all["resourceSubscriptions"] = json!([NOTE]);
    for (caller, filter, honoured) in [
        (&alice, EVERYTHING, all),
        // Hidden and unknown alike, and somebody else's.
        (&nobody, EVERYTHING, listed.clone()),
        (&other, EVERYTHING, listed),
        (&alice, "{}", json!({})),
        (
            &alice,
            r#"{"toolsListChanged":false,"x":[1],"promptsListChanged":true}"#,
            json!({"promptsListChanged": true}),
        ),
        (
            &alice,
            r#"{"resourceSubscriptions":["demo://note/2","x","demo://note/3","demo://a/../b","demo:\/\/note/1","demo://note/2"]}"#,
            json!({"resourceSubscriptions": ["demo://note/2", NOTE]}),
        ),
        (&alice, r#"{"resourceSubscriptions":[]}"#, json!({})),
    ] {
        let (_open, params) = listen(caller, "1", filter).await;
        assert_eq!(params, json!({"_meta": {ID: 1}, "notifications": honoured}), "{filter}");
    }
    eventually("all of them are closed", async || metric(&gw, "fondaco_listens_open").await == 0).await;
    gw.stop().await;
}

// spec: rows SB-03, SB-04
#[tokio::test]
async fn each_message_names_its_subscription_and_is_of_a_kind_that_was_asked_for() {
    let (gw, alice) = start().await;
    let (mut number, params) = listen(&alice, "1", EVERYTHING).await;
    assert_eq!(params["_meta"][ID], json!(1));
    let (mut string, params) = listen(&alice, "\"1\"", r#"{"promptsListChanged":true}"#).await;
    assert_eq!(params["_meta"][ID], json!("1"));
    assert_eq!(metric(&gw, "fondaco_listens_open").await, 2);
    assert_eq!(metric(&gw, "fondaco_streams_open").await, 2);
    change(&gw, ALL);
    update(&gw, NOTE).await;
    let mut told = Vec::new();
    for _ in 0..4 {
        let message = message(&mut number).await.unwrap();
        assert_eq!(message["params"]["_meta"][ID], json!(1), "{message}");
        told.push((message["method"].as_str().unwrap().to_owned(), message["params"]["uri"].clone()));
    }
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("notifications/prompts/list_changed", Value::Null),
        ("notifications/resources/list_changed", Value::Null),
        ("notifications/resources/updated", json!(NOTE)),
        ("notifications/tools/list_changed", Value::Null),
    ];
    assert_eq!(told, expected.map(|(method, uri)| (method.to_owned(), uri)));
    for _ in 0..2 {
        let message = message(&mut string).await.unwrap();
        assert_eq!(message["method"], "notifications/prompts/list_changed", "{message}");
        assert_eq!(message["params"], json!({"_meta": {ID: "1"}}));
        change(&gw, ALL);
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_filter_that_is_none_is_refused_and_there_is_no_answer_but_a_stream() {
    let (gw, alice) = start().await;
    let many =
        json!({"resourceSubscriptions": (0..257).map(|n| format!("demo://note/{n}")).collect::<Vec<_>>()});
    let long = json!({"resourceSubscriptions": [format!("demo://{}", "x".repeat(64 << 10))]});
    for filter in [
        "null",
        "[]",
        "\"tools\"",
        r#"{"toolsListChanged":"yes"}"#,
        r#"{"promptsListChanged":1}"#,
        r#"{"resourcesListChanged":null}"#,
        r#"{"resourceSubscriptions":"demo://note/1"}"#,
        r#"{"resourceSubscriptions":["demo://note/1",1]}"#,
        r#"{"resourceSubscriptions":{}}"#,
        &many.to_string(),
        &long.to_string(),
    ] {
        assert_eq!(refused(&alice, filter).await.refusal(), (400, -32602), "{filter:.80}");
    }
    let without = alice.post(&alice.headers(LISTEN, None), &text("1", LISTEN, "", "")).await;
    assert_eq!(without.refusal(), (400, -32602));
    let mut headers = alice.headers(LISTEN, None);
    headers.retain(|(name, _)| name != "Accept");
    headers.push(("Accept".to_owned(), "application/json".to_owned()));
    let answer = alice.post(&headers, &text("1", LISTEN, r#","notifications":{}"#, "")).await;
    assert_eq!(answer.refusal(), (406, -32600));
    assert_eq!(metric(&gw, "fondaco_listens_open").await, 0);
    gw.stop().await;
}

// spec: row SB-07
#[tokio::test]
async fn a_caller_and_a_tenant_listen_so_often_and_no_more() {
    let gw = Gateway::start_with(TENANTS, |s| {
        (s.limits.caller_streams, s.limits.tenant_streams) = (2, 3);
    })
    .await;
    let caller = |tenant: &str, subject: &str| gw.caller(tenant, subject, "");
    let (alice, bob, other) = (caller("demo", "alice"), caller("demo", "bob"), caller("other", "alice"));
    let is_full = async |caller: &Caller| {
        let answer = refused(caller, "{}").await;
        assert_eq!(answer.refusal(), (429, 1002), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    };
    let one = listen(&alice, "1", "{}").await;
    // A stream of a session is one, too.
    let session = Session::open(&alice, "2025-11-25").await;
    let mut two = session.listen().await;
    assert_eq!(two.head().await.status, 200);
    is_full(&alice).await;
    let three = listen(&bob, "1", "{}").await;
    is_full(&bob).await;
    let _theirs = listen(&other, "1", "{}").await;
    drop(one);
    eventually("a place is free", async || metric(&gw, "fondaco_listens_open").await == 2).await;
    let _four = listen(&bob, "2", "{}").await;
    assert_eq!(session.visit("GET", &session.headers()).await.refusal(), (429, 1002));
    assert!(alice.rpc("tools/list", json!({})).await.status == 200, "calls are no streams");
    let refusals = metric(&gw, r#"fondaco_refusals_total{kind="streams"}"#).await;
    assert_eq!(refusals, 3);
    drop((two, three));
    gw.stop().await;
}

#[tokio::test]
async fn what_a_caller_may_not_read_any_more_it_is_not_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    let gw_file = |gw: &Gateway, needs: &str| {
        let issuer = format!("http://{}/dev-issuer", gw.addr);
        let text = format!(
            "tenants: {{demo: {{issuers: [{{shared: \"{issuer}\"}}], backends: {{demo: {{kind: demo, prefix: \"\", \
             scopes: {{\"resource:*\": [{needs}]}}}}}}}}}}"
        );
        std::fs::write(&file, text).unwrap();
        gw.app.tenants.reload();
    };
    std::fs::write(&file, "tenants: {}").unwrap();
    let shared = "issuers: [{issuer: \"{issuer}\", tenant_claim: tenant}]\ntenants: {}";
    let gw = Gateway::start_with(shared, |s| s.tenants = Some(file.clone())).await;
    gw_file(&gw, "demo.use");
    let alice = gw.caller("demo", "alice", "demo.use");
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["demo://note/1"]}"#;
    let (mut open, params) = listen(&alice, "1", filter).await;
    assert_eq!(params["notifications"]["resourceSubscriptions"], json!([NOTE]));
    update(&gw, NOTE).await;
    assert_eq!(methods(&mut open, 1).await, ["notifications/resources/updated"]);
    gw_file(&gw, "demo.other");
    update(&gw, NOTE).await;
    change(&gw, ALL);
    assert_eq!(methods(&mut open, 1).await, ["notifications/tools/list_changed"]);
    change(&gw, ALL);
    assert_eq!(methods(&mut open, 1).await, ["notifications/tools/list_changed"]);
    // It has another home now, and may be read again: what was missed counts as changed.
    gw_file(&gw, "demo.use");
    eventually("what changes there arrives", async || {
        update(&gw, NOTE).await;
        metric(&gw, r#"fondaco_notifications_sent_total{kind="updated"}"#).await > 1
    })
    .await;
    while methods(&mut open, 1).await != ["notifications/resources/updated"] {}
    gw.stop().await;
}

// spec: row SB-05
#[tokio::test]
async fn a_subscription_ends_with_a_result_when_its_token_does() {
    let (gw, alice) = start().await;
    let (open, _) = listen(&alice, "\"a\\nb\"", EVERYTHING).await;
    // The token is for an hour and half a minute of leeway, as for any request.
    gw.app.clock.advance(3_600);
    let (again, _) = listen(&alice, "7", EVERYTHING).await;
    change(&gw, ALL);
    gw.app.clock.advance(30);
    // What has changed is nothing to who would not be admitted any more.
    ends(open, &json!("a\nb")).await;
    ends(again, &json!(7)).await;
    gw.stop().await;
}

// spec: row SB-05
#[tokio::test]
async fn a_subscription_ends_with_a_result_when_its_caller_would_not_be_admitted_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    std::fs::write(&file, "tenants: {}").unwrap();
    let shared = "issuers: [{issuer: \"{issuer}\", tenant_claim: tenant}]\ntenants: {}";
    let gw = Gateway::start_with(shared, |settings| {
        settings.limits.keep_alive = Duration::from_millis(100);
        settings.tenants = Some(file.clone());
    })
    .await;
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        gw.app.tenants.reload();
    };
    let own = format!("{{shared: \"http://{}/dev-issuer\"}}", gw.addr);
    let tenant = |issuers: &str, more: &str| format!("tenants: {{acme: {{issuers: [{issuers}]{more}}}}}");
    let other = "{issuer: \"https://login.example\"}";
    for (path, end) in [
        ("/mcp", "tenants: {}".to_owned()),
        ("/t/acme/mcp", "tenants: {}".to_owned()),
        // Its token would be refused.
        ("/t/acme/mcp", tenant(other, "")),
    ] {
        write(&tenant(&own, ""));
        let alice = gw.caller_at(path, "acme", "alice", "");
        let (mut open, _) = listen(&alice, "1", r#"{"toolsListChanged":true}"#).await;
        // That it does not serve sessions is nothing to it.
        write(&tenant(&format!("{own}, {other}"), ", legacy: off"));
        assert_eq!(open.event().await.as_deref(), Some(":\n\n"), "that it changes is no end");
        write(&end);
        ends(open, &json!(1)).await;
    }
    gw.stop().await;
}

// spec: row SB-05
#[tokio::test]
async fn a_subscription_ends_with_a_result_when_the_process_leaves() {
    let gw = Gateway::start_with(TENANTS, |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        s.limits.drain_accept = Duration::from_secs(1);
    })
    .await;
    let (open, _) = listen(&gw.caller("demo", "alice", "demo.use"), "1", EVERYTHING).await;
    let (addr, started) = (gw.admin, Instant::now());
    let stopping = tokio::spawn(gw.stop());
    eventually("it drains", async || wire::request(addr, "GET", "/readyz", &[], b"").await.status == 503)
        .await;
    ends(open, &json!(1)).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    stopping.await.unwrap();
}

// spec: row SB-07
#[tokio::test]
async fn a_reader_that_stalls_misses_nothing_and_is_told_once() {
    let (gw, alice) = start().await;
    let mut open = Connection::open_narrow(alice.addr).await;
    let body = text("1", LISTEN, &format!(r#","notifications":{EVERYTHING}"#), "");
    open.post(&alice.path, &alice.headers(LISTEN, None), &body).await;
    assert_eq!(open.head().await.status, 200);
    assert!(message(&mut open).await.is_some());
    let started = Instant::now();
    for _ in 0..10_000 {
        change(&gw, ALL);
        update(&gw, NOTE).await;
    }
    // One of each kind, and again for every pause that has passed.
    let rounds = 2 + usize::try_from(started.elapsed().as_millis() / 100).unwrap();
    gw.app.leaving.cancel();
    let mut events = 0;
    while let Some(message) = message(&mut open).await {
        events += usize::from(message.get("method").is_some());
    }
    assert!((4..=4 * rounds).contains(&events), "{events} in {rounds} rounds");
    gw.stop().await;
}
