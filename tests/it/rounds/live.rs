//! Clients of the handshake era before a backend that asks back: they are asked on the stream of their
//! call, and answer with a POST.

use std::time::Duration;

use fondaco::config::Settings;
use serde_json::Value;
use serde_json::json;

use super::ABLE;
use super::CALLS;
use super::FORM;
use super::ROOTS;
use super::SAMPLING;
use super::URL;
use super::asks;
use super::before;
use super::last;
use super::upstream;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::session::Session;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Connection;

/// A gateway before such a backend, and a client in a session of this revision, which can be asked all.
async fn house(revision: &str, change: impl FnOnce(&mut Settings)) -> (Upstream, Gateway, Caller, Session) {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", change).await;
    let able: Value = serde_json::from_str(ABLE).unwrap();
    let session = Session::open_with(&alice, revision, &able).await;
    (crm, gw, alice, session)
}

/// Calls the tool under this id.
async fn call(session: &Session, id: u64) -> Connection {
    let body = request(&json!(id), "tools/call", &json!({"name": "crm_echo", "arguments": {"n": id}}));
    session.begin(&session.headers(), &body).await
}

/// The next message on a stream.
async fn next(open: &mut Connection) -> Value {
    loop {
        let event = open.event().await.expect("a stream that goes on");
        if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

/// Answers a question.
async fn answer(session: &Session, question: &Value, result: Value) {
    let body = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    let taken = session.post(&body.to_string()).await;
    assert_eq!((taken.status, taken.body.len()), (202, 0), "{}", taken.text());
}

fn two(first: &str, second: &str) -> Behaviour {
    asks(&format!(r#""inputRequests":{{"a":{first},"b":{second}}},"requestState":"s""#))
}

fn text(end: &Value) -> &str {
    assert_eq!(end["result"]["isError"], true, "{end}");
    end["result"]["content"][0]["text"].as_str().unwrap()
}

// spec: rows Y-05, GW-03
#[tokio::test]
async fn a_client_is_asked_on_the_stream_of_its_call() {
    let (crm, gw, alice, session) = house("2025-11-25", |_| {}).await;
    let other = Session::open(&alice, "2025-11-25").await;
    crm.behave("echo", Behaviour::Once(Box::new(two(FORM, URL))));
    let mut open = call(&session, 5).await;
    assert_eq!(open.head().await.header("content-type"), Some("text/event-stream"));
    let form = next(&mut open).await;
    let expected: Value = serde_json::from_str(FORM).unwrap();
    assert_eq!((&form["method"], &form["params"]), (&json!("elicitation/create"), &expected["params"]));
    let filled = json!({"action": "accept", "content": {"name": "Ada"}});
    // Nobody else answers it, and nothing else does.
    answer(&other, &form, json!({"action": "decline"})).await;
    answer(&session, &json!({"id": "ask-1"}), json!({"action": "decline"})).await;
    answer(&session, &json!({"id": 5}), json!({"action": "decline"})).await;
    answer(&session, &form, filled.clone()).await;
    let url = next(&mut open).await;
    assert_ne!(url["id"], form["id"]);
    assert_eq!(
        (&url["params"]["mode"], &url["params"]["url"]),
        (&json!("url"), &json!("https://x.example/"))
    );
    assert!(url["params"]["elicitationId"].is_string(), "{url}");
    answer(&session, &form, json!({"action": "decline"})).await;
    answer(&session, &url, json!({"action": "accept"})).await;
    let end = next(&mut open).await;
    assert_eq!((&end["id"], &end["result"]["structuredContent"]), (&json!(5), &json!({"n": 5})));
    assert_eq!(end["result"].get("resultType"), None);
    assert_eq!(open.event().await, None);
    let sent = last(&crm).json()["params"].clone();
    assert_eq!(sent["requestState"], "s");
    assert_eq!(sent["inputResponses"], json!({"a": filled, "b": {"action": "accept"}}));
    assert_eq!(crm.count("tools/call"), 2);
    gw.stop().await;
}

// spec: row Y-05
#[tokio::test]
async fn each_revision_is_asked_what_it_knows() {
    for (revision, wanted, method, told) in [
        ("2025-06-18", FORM, "elicitation/create", r#"{"elicitation":{},"sampling":{},"roots":{}}"#),
        ("2025-03-26", SAMPLING, "sampling/createMessage", r#"{"sampling":{},"roots":{}}"#),
        ("2025-03-26", ROOTS, "roots/list", r#"{"sampling":{},"roots":{}}"#),
    ] {
        let (crm, gw, _, session) = house(revision, |_| {}).await;
        let wanted = asks(&format!(r#""inputRequests":{{"k":{wanted}}}"#));
        crm.behave("echo", Behaviour::Once(Box::new(wanted)));
        let mut open = call(&session, 1).await;
        open.head().await;
        let question = next(&mut open).await;
        assert_eq!(question["method"], method);
        let declared = &last(&crm).json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(*declared, serde_json::from_str::<Value>(told).unwrap(), "{revision}");
        answer(&session, &question, json!({"roots": []})).await;
        let end = next(&mut open).await["result"].clone();
        let (structured, said) = (&end["structuredContent"], &end["content"][0]["text"]);
        assert!(*structured == json!({"n": 1}) || said == r#"{"n":1}"#, "{revision}: {end}");
        assert_eq!(last(&crm).json()["params"].get("requestState"), None);
        crm.behave("echo", asks(&format!(r#""inputRequests":{{"k":{URL}}}"#)));
        let refused = call(&session, 1).await.answer().await;
        assert!(text(&refused.message()).contains("does not declare"), "{revision}");
        gw.stop().await;
    }
}

// spec: row Y-06
#[tokio::test]
async fn a_backend_that_wants_nothing_but_its_state_is_called_again() {
    let (crm, gw, _, session) = house("2025-11-25", |limits| limits.limits.session_rounds = 3).await;
    crm.behave("echo", asks(r#""requestState":"of $ID""#));
    let mut open = call(&session, 1).await;
    open.head().await;
    assert!(text(&next(&mut open).await).contains("too often"));
    let calls: Vec<Value> =
        crm.requests().iter().map(|r| r.json()).filter(|r| r["method"] == "tools/call").collect();
    assert_eq!(calls.len(), 4);
    for pair in calls.windows(2) {
        assert_eq!(pair[1]["params"]["requestState"], format!("of {}", pair[0]["id"]));
    }
    gw.stop().await;
}

// spec: rows Y-05, GW-01
#[tokio::test]
async fn a_question_ends_without_an_answer() {
    let quick = |settings: &mut Settings| settings.limits.answer_time = Duration::from_millis(300);
    let (crm, gw, _, session) = house("2025-11-25", quick).await;
    crm.behave("echo", two(FORM, FORM));
    let mut open = call(&session, 1).await;
    open.head().await;
    next(&mut open).await;
    assert!(text(&next(&mut open).await).contains("in time"));
    gw.stop().await;

    let (crm, gw, _, session) = house("2025-11-25", |_| {}).await;
    crm.behave("echo", two(FORM, FORM));
    let asked = async |id: u64| {
        let mut open = call(&session, id).await;
        open.head().await;
        let question = next(&mut open).await;
        (open, question)
    };
    let (mut refuses, question) = asked(1).await;
    let error = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    assert_eq!(session.post(&error.to_string()).await.status, 202);
    assert!(text(&next(&mut refuses).await).contains("with an error"));
    let (mut cancels, _) = asked(2).await;
    assert_eq!(session.notify("notifications/cancelled", json!({"requestId": 2})).await.status, 202);
    assert_eq!(cancels.event().await, None);
    // Its token is over: nobody may go on with it.
    let (mut late, question) = asked(3).await;
    gw.app.clock.advance(3700);
    let again = Session { caller: gw.caller("acme", "alice", "crm.read"), ..session.clone() };
    for _ in 0..2 {
        answer(&again, &question, json!({"action": "cancel"})).await;
    }
    let second = next(&mut late).await;
    let calls = crm.count("tools/call");
    answer(&again, &second, json!({"action": "cancel"})).await;
    assert_eq!(next(&mut late).await["error"]["code"], -32600);
    assert_eq!(crm.count("tools/call"), calls);
    let mut ends = call(&again, 4).await;
    ends.head().await;
    next(&mut ends).await;
    assert_eq!(again.end().await.status, 204);
    assert_eq!(ends.event().await, None);
    gw.stop().await;
}

// spec: row Y-05
#[tokio::test]
async fn nobody_is_asked_in_a_batch() {
    let (crm, gw, _, session) = house("2025-03-26", |_| {}).await;
    crm.behave("echo", asks(&format!(r#""inputRequests":{{"k":{SAMPLING}}}"#)));
    let (method, _, _) = CALLS[0];
    let body = format!("[{}]", request(&json!(1), method, &json!({"name": "crm_echo"})));
    let answer = session.post(&body).await;
    let all: Value = serde_json::from_str(&answer.text()).unwrap();
    assert!(text(&all[0]).contains("does not declare"), "{all}");
    gw.stop().await;
}

// spec: row MR-05
#[tokio::test]
async fn answers_that_are_more_than_is_taken_end_the_call_at_once() {
    let (crm, gw, _, session) = house("2025-11-25", |settings| settings.limits.input_bytes = 1 << 10).await;
    crm.behave("echo", two(FORM, FORM));
    let mut open = call(&session, 5).await;
    open.head().await;
    let form = next(&mut open).await;
    answer(&session, &form, json!({"action": "accept", "content": {"a": "x".repeat(1 << 10)}})).await;
    let end = next(&mut open).await;
    assert!(text(&end).contains("more than is taken"), "{end}");
    assert_eq!(crm.asked().len(), 1);
    gw.stop().await;
}

// spec: row Y-05
#[tokio::test]
async fn a_caller_and_a_tenant_have_so_many_open_questions() {
    let few = |settings: &mut Settings| {
        (settings.limits.caller_questions, settings.limits.tenant_questions) = (2, 3);
    };
    let (crm, gw, alice, session) = house("2025-11-25", few).await;
    let form = || asks(&format!(r#""inputRequests":{{"k":{FORM}}}"#));
    crm.behave("echo", form()).behave("greet", form());
    let able: Value = serde_json::from_str(ABLE).unwrap();
    let second = Session::open_with(&alice, "2025-11-25", &able).await;
    let bob = Session::open_with(&gw.caller("acme", "bob", "crm.read"), "2025-11-25", &able).await;
    let asked = async |session: &Session| {
        let mut open = call(session, 1).await;
        open.head().await;
        let question = next(&mut open).await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        (open, question)
    };
    let refused = async |session: &Session| {
        let tool = session.call_tool("crm_echo", json!({})).await.message();
        assert!(text(&tool).contains("answer those first"), "{tool}");
        let prompt = session.rpc("prompts/get", json!({"name": "crm_greet"})).await.message();
        assert_eq!(prompt["error"]["code"], -32603, "{prompt}");
        assert!(prompt["error"]["message"].as_str().unwrap().contains("answer those first"), "{prompt}");
    };
    let (mut first, question) = asked(&session).await;
    let second_asked = asked(&second).await;
    refused(&second).await;
    let third_asked = asked(&bob).await;
    refused(&bob).await;
    // An answer makes room.
    crm.behave("echo", Behaviour::Echo);
    answer(&session, &question, json!({"action": "cancel"})).await;
    assert_eq!(next(&mut first).await["result"]["structuredContent"], json!({"n": 1}));
    crm.behave("echo", form());
    let fourth_asked = asked(&bob).await;
    refused(&bob).await;
    // Their clients leave: nobody is waited for.
    drop((first, second_asked, third_asked, fourth_asked));
    gw.stop().await;
}

// spec: row Y-05
#[tokio::test]
async fn nobody_waits_for_the_answer_of_a_client_that_has_left() {
    let one = |settings: &mut Settings| {
        (settings.limits.session_calls, settings.limits.session_rounds) = (1, 255);
    };
    let (crm, gw, _, session) = house("2025-11-25", one).await;
    let form = || asks(&format!(r#""inputRequests":{{"k":{FORM}}}"#));
    let over = async || session.rpc("ping", json!({})).await.message()["result"] == json!({});
    crm.behave("echo", form());
    let mut open = call(&session, 1).await;
    open.head().await;
    next(&mut open).await;
    assert!(!over().await, "it is the one call that there may be");
    drop(open);
    eventually("a call ends that was asking", over).await;

    crm.behave("echo", asks(r#""requestState":"s""#));
    let calls = crm.count("tools/call");
    let open = call(&session, 2).await;
    eventually("it goes on", async || crm.count("tools/call") > calls + 1).await;
    drop(open);
    let metrics = async || wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    eventually("its client is gone", async || metrics().await.contains("fondaco_requests_in_flight 0\n"))
        .await;
    assert!(!over().await, "it goes on");
    crm.behave("echo", form());
    eventually("a call ends that was about to ask", over).await;
    gw.stop().await;
}
