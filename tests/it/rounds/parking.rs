//! Handshake servers that ask something in a call: the call waits for its client, and is never made twice.

use std::time::Duration;

use fondaco::config::Settings;
use fondaco::config::keys::RingKey;
use fondaco::model::clock::Clock;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use super::ABLE;
use super::CALLS;
use super::FORM;
use super::ROOTS;
use super::SAMPLING;
use super::URL;
use super::again;
use super::before;
use super::failure;
use super::form_and;
use super::handle;
use super::metric;
use super::send;
use super::upstream;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::issuer::Issuer;
use crate::harness::session::Session;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

/// What one of the questions asks: its method and its params.
fn question(entry: &str) -> (&'static str, String) {
    let entry: Value = serde_json::from_str(entry).unwrap();
    let method = entry["method"].as_str().unwrap();
    let all = ["elicitation/create", "sampling/createMessage", "roots/list"];
    let method = all.into_iter().find(|known| *known == method).unwrap();
    (method, entry.get("params").unwrap_or(&json!({})).to_string())
}

/// Asks this, round by round.
fn talks(rounds: &[&[&str]]) -> Behaviour {
    Behaviour::Talks(rounds.iter().map(|round| round.iter().map(|entry| question(entry)).collect()).collect())
}

/// A server of the handshake era that asks in all that may be called.
async fn asking(rounds: &[&[&str]]) -> Upstream {
    let crm = upstream().await;
    crm.handshake(Handshake::default());
    for (_, _, own) in CALLS {
        crm.behave(own, talks(rounds));
    }
    crm
}

async fn house(rounds: &[&[&str]], change: impl FnOnce(&mut Settings)) -> (Upstream, Gateway, Caller) {
    let crm = asking(rounds).await;
    let (gw, alice) = before(&crm, "", change).await;
    (crm, gw, alice)
}

/// The bodies of what answered the server's own requests, in order.
fn replies(crm: &Upstream) -> Vec<Value> {
    let all = crm.requests().into_iter().map(|request| request.json());
    all.filter(|body| body.get("method").is_none() && body.get("id").is_some()).collect()
}

/// How many calls the server was told that nobody waits for.
fn cancelled(crm: &Upstream) -> usize {
    crm.count("notifications/cancelled")
}

/// Waits until the server is told so of one.
async fn cancels(crm: &Upstream, what: &str) {
    eventually(what, async || cancelled(crm) == 1).await;
}

const ACCEPTS: &str = r#"{"action":"accept","content":{"name":"Ada","n":1.50}}"#;
const SAYS: &str = r#"{"role":"assistant","model":"m","content":{"type":"text","text":"hi"}}"#;
const LISTS: &str = r#"{"roots":[{"uri": "file:///x"}]}"#;

/// The answers of one round with one question.
fn one(answer: &str) -> String {
    format!(r#"{{"r1.1":{answer}}}"#)
}

/// FR-4's client: calls, answers what is asked with what fits, whatever its key, and calls again.
async fn script(alice: &Caller, method: &str, params: &str) -> Value {
    let mut answer = send(alice, ABLE, method, params).await.result();
    while answer["resultType"] == "input_required" {
        let fits = |entry: &Value| match entry["method"].as_str().unwrap() {
            "elicitation/create" => ACCEPTS,
            "sampling/createMessage" => SAYS,
            _ => LISTS,
        };
        let asked = answer["inputRequests"].as_object().unwrap();
        let all: Vec<_> = asked.iter().map(|(key, entry)| format!(r#""{key}":{}"#, fits(entry))).collect();
        let state = answer["requestState"].as_str().unwrap();
        let next = again(params, &format!("{{{}}}", all.join(",")), state);
        answer = send(alice, ABLE, method, &next).await.result();
    }
    answer
}

// spec: rows FR-4, X-07
#[tokio::test]
async fn one_client_script_serves_before_both_eras() {
    for (method, params, own) in CALLS {
        let (crm, gw, alice) = house(&[&[FORM]], |_| {}).await;
        let result = script(&alice, method, params).await;
        assert_eq!((&result["resultType"], crm.count(method)), (&json!("complete"), 1), "{result}");
        let told = replies(&crm);
        assert_eq!((told.len(), &told[0]["result"]), (1, &serde_json::from_str(ACCEPTS).unwrap()));
        assert!(crm.requests().iter().any(|request| request.body.contains(r#""n":1.50"#)), "digit for digit");
        assert_eq!(cancelled(&crm), 0);
        gw.stop().await;

        let crm = upstream().await;
        let (gw, alice) = before(&crm, "", |_| {}).await;
        crm.behave(own, Behaviour::Once(Box::new(form_and("s"))));
        assert_eq!(script(&alice, method, params).await["resultType"], "complete");
        assert_eq!(crm.count(method), 2, "a server of that era is called in each round");
        gw.stop().await;
    }
}

// spec: rows X-02, X-07, X-14, MR-05
#[tokio::test]
async fn a_call_is_asked_in_rounds_of_several_questions() {
    let (crm, gw, alice) = house(&[&[FORM, ROOTS], &[SAMPLING]], |_| {}).await;
    let (method, params, _) = CALLS[0];
    // It stands last in `_meta`: more members follow.
    let with = |token: &str| {
        let able = r#"{"elicitation":{"form":{}},"sampling":{},"roots":{"listChanged":true}}"#;
        format!(r#"{able},"progressToken":"{token}","io.modelcontextprotocol/logLevel":"info""#)
    };
    let began = send_meta(&alice, &with("one"), method, params).await;
    let asked = began.0.clone();
    assert_eq!(began.1, ["one"], "progress under the first token");
    let keys: Vec<_> = asked["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["r1.1", "r1.2"]);
    let declared =
        crm.requests().into_iter().map(|r| r.json()).rfind(|r| r["method"] == "initialize").unwrap();
    let told = &declared["params"]["capabilities"];
    assert_eq!(*told, json!({"elicitation": {}, "sampling": {}, "roots": {}}), "what this client declared");

    let state = asked["requestState"].as_str().unwrap();
    for _ in 0..12 {
        // It is asked the same once more, and the round is not over.
        let some = again(params, &format!(r#"{{"r1.1":{ACCEPTS},"x":{{}}}}"#), state);
        let same = send(&alice, ABLE, method, &some).await.result();
        assert_eq!(same["inputRequests"], asked["inputRequests"]);
    }
    let wrong = again(params, &format!(r#"{{"r1.1":{{"action":"yes"}},"r1.2":{LISTS}}}"#), state);
    assert_eq!(send(&alice, ABLE, method, &wrong).await.refusal(), (400, -32602));
    assert_eq!(replies(&crm).len(), 0, "nothing was answered");

    let second = again(params, &format!(r#"{{"r1.2":{LISTS},"r1.1":{ACCEPTS},"x":{{}}}}"#), state);
    let (asked, tokens, _) = send_meta(&alice, &with("two"), method, &second).await;
    assert_eq!(tokens, ["two"], "progress under the token of the retry");
    assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["r2.1"]);
    assert_eq!(asked["inputRequests"]["r2.1"]["method"], "sampling/createMessage");
    let state = asked["requestState"].as_str().unwrap();
    let third = again(params, &format!(r#"{{"r2.1":{SAYS}}}"#), state);
    let (end, tokens, logs) = send_meta(&alice, &with("three"), method, &third).await;
    assert_eq!((tokens.len(), logs), (0, 1));
    let heard = &end["structuredContent"]["heard"];
    assert_eq!(heard[0][0]["result"]["content"]["name"], "Ada");
    assert_eq!(heard[0][1]["result"], serde_json::from_str::<Value>(LISTS).unwrap());
    assert_eq!(heard[1][0]["result"], serde_json::from_str::<Value>(SAYS).unwrap());
    assert_eq!((crm.count(method), cancelled(&crm)), (1, 0));
    gw.stop().await;
}

/// Sends a request with more in `_meta`: the result, the tokens of progress and the number of log messages.
async fn send_meta(caller: &Caller, able: &str, method: &str, params: &str) -> (Value, Vec<String>, usize) {
    let answer = send(caller, able, method, params).await;
    let is_stream = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let events = if is_stream { answer.events() } else { Vec::new() };
    let of =
        |method: &str| events.iter().filter(|event| event["method"] == method).cloned().collect::<Vec<_>>();
    let tokens = of("notifications/progress");
    let tokens = tokens.iter().map(|e| e["params"]["progressToken"].as_str().unwrap().to_owned()).collect();
    (answer.result(), tokens, of("notifications/message").len())
}

// spec: rows X-07, MR-04; requirements N.3
#[tokio::test]
async fn answers_are_given_once_however_often_they_are_sent() {
    let (crm, gw, alice) = house(&[&[FORM], &[ROOTS]], |_| {}).await;
    let (method, params, _) = CALLS[0];
    let state = handle(&send(&alice, ABLE, method, params).await);
    let next = again(params, &one(ACCEPTS), &state);
    let bob = gw.caller("acme", "bob", "crm.read");
    assert_eq!(send(&bob, ABLE, method, &next).await.refusal(), (200, -32602), "another's state");
    let other = next.replace("1.0", "1.00");
    assert_eq!(send(&alice, ABLE, method, &other).await.refusal(), (200, -32602), "another call");

    let (one_of, two_of) = tokio::join!(send(&alice, ABLE, method, &next), send(&alice, ABLE, method, &next));
    let (first, second) = (one_of.result(), two_of.result());
    assert_eq!(first["inputRequests"], second["inputRequests"]);
    assert_eq!(first["inputRequests"]["r2.1"]["method"], "roots/list");
    assert_eq!(replies(&crm).len(), 1);
    // Each got the call, and one of them goes on with it.
    let last = |state: &Value| again(params, &format!(r#"{{"r2.1":{LISTS}}}"#), state.as_str().unwrap());
    let end = send(&alice, ABLE, method, &last(&first["requestState"])).await.result();
    for state in [&first, &second] {
        assert_eq!(send(&alice, ABLE, method, &last(&state["requestState"])).await.result(), end);
    }
    assert_eq!(send(&alice, ABLE, method, &next).await.result()["inputRequests"], first["inputRequests"]);
    let changed = again(params, &one(r#"{"action":"decline"}"#), &state);
    assert_eq!(send(&alice, ABLE, method, &changed).await.refusal(), (200, -32602), "other answers");
    assert_eq!((replies(&crm).len(), crm.count(method), cancelled(&crm)), (2, 1, 0));
    gw.stop().await;

    let forgets = |settings: &mut Settings| settings.limits.retry_time = Duration::from_millis(50);
    let (crm, gw, alice) = house(&[&[FORM]], forgets).await;
    let next = again(params, &one(ACCEPTS), &handle(&send(&alice, ABLE, method, params).await));
    send(&alice, ABLE, method, &next).await.result();
    eventually("what came of it is not kept for ever", async || {
        send(&alice, ABLE, method, &next).await.refusal() == (200, -32602)
    })
    .await;
    assert_eq!((replies(&crm).len(), crm.count(method)), (1, 1));
    gw.stop().await;
}

// spec: row X-15; requirements N.3, End without retry
#[tokio::test]
async fn a_call_whose_client_does_not_come_back_ends_in_time() {
    let quick = |settings: &mut Settings| {
        settings.limits.parked_time = Duration::from_millis(300);
        settings.limits.upstream_calls = 1;
    };
    let (crm, gw, alice) = house(&[&[FORM, URL, SAMPLING, ROOTS]], quick).await;
    let (method, params, _) = CALLS[0];
    let began = Instant::now();
    let state = handle(&send(&alice, ABLE, method, params).await);
    assert_eq!(send(&alice, ABLE, method, params).await.refusal(), (503, 1003), "it keeps its place");
    assert_eq!((replies(&crm).len(), metric(&gw, "fondaco_parked_calls").await), (0, 1));
    cancels(&crm, "the server is told").await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    let told = replies(&crm);
    assert_eq!((told.len(), metric(&gw, "fondaco_parked_calls").await), (4, 0), "{told:?}");
    for asked in &told[..2] {
        assert_eq!(asked["result"], json!({"action": "cancel"}), "{asked}");
    }
    assert_eq!((&told[2]["error"]["code"], &told[3]["error"]["code"]), (&json!(-1), &json!(-32603)));
    let methods = crm.methods();
    assert_eq!(methods.last().unwrap(), "notifications/cancelled", "{methods:?}");
    let all = format!(r#"{{"r1.1":{ACCEPTS},"r1.2":{ACCEPTS},"r1.3":{SAYS},"r1.4":{LISTS}}}"#);
    assert_eq!(send(&alice, ABLE, method, &again(params, &all, &state)).await.refusal(), (200, -32602));
    crm.behave("echo", Behaviour::Echo);
    eventually("its place is free", async || send(&alice, ABLE, method, params).await.status == 200).await;
    assert_eq!(crm.count(method), 2);
    gw.stop().await;
}

// spec: row MR-06
#[tokio::test]
async fn what_a_user_declines_is_declined() {
    for action in ["decline", "cancel"] {
        let (crm, gw, alice) = house(&[&[FORM]], |_| {}).await;
        let (method, params, _) = CALLS[0];
        let state = handle(&send(&alice, ABLE, method, params).await);
        let answer = format!(r#"{{"action":"{action}"}}"#);
        let end = send(&alice, ABLE, method, &again(params, &one(&answer), &state)).await.result();
        assert_eq!(end["structuredContent"]["heard"][0][0]["result"], json!({"action": action}));
        assert_eq!((crm.count(method), cancelled(&crm)), (1, 0));
        gw.stop().await;
    }
}

// spec: requirements N.3, owner gone
#[tokio::test]
async fn a_process_that_does_not_have_the_call_runs_no_tool() {
    let (issuer, crm) = (Issuer::start("").await, asking(&[&[FORM]]).await);
    let shared = format!("{{issuer: \"{}\"", issuer.url());
    let tenants = format!(
        "issuers: [{shared}, tenant_claim: tenant}}]\ntenants: {{acme: {{issuers: [{}}}], backends: {{{}}}}}}}",
        shared.replace("issuer", "shared"),
        crm.backend("crm", "")
    );
    // "a key of a test and not a secret"
    let ring = vec![RingKey::parse("YSBrZXkgb2YgYSB0ZXN0IGFuZCBub3QgYSBzZWNyZXQ").unwrap()];
    let replica = async || {
        let gw = Gateway::start_with(&tenants, |settings| settings.keys.ring = ring.clone()).await;
        let token = issuer.token(&format!("http://{}/t/acme/mcp", gw.addr), Clock::default().now());
        let alice = Caller { addr: gw.addr, path: "/t/acme/mcp".to_owned(), token };
        (gw, alice)
    };
    let ((one_gw, here), (other_gw, there)) = (replica().await, replica().await);
    let (method, params, _) = CALLS[0];
    let next = again(params, &one(ACCEPTS), &handle(&send(&here, ABLE, method, params).await));
    for _ in 0..2 {
        assert!(failure(&send(&there, ABLE, method, &next).await).contains("outcome is unknown"));
    }
    assert_eq!((crm.count(method), replies(&crm).len()), (1, 0));
    // It waits where it began.
    send(&here, ABLE, method, &next).await.result();
    assert_eq!((crm.count(method), replies(&crm).len()), (1, 1));

    for (method, params, own) in [CALLS[1], CALLS[2]] {
        let next = again(params, &one(ACCEPTS), &handle(&send(&here, ABLE, method, params).await));
        let answered = replies(&crm).len();
        let end = send(&there, ABLE, method, &next).await.result();
        assert_eq!(end["resultType"], "complete", "the same question is answered");
        assert_eq!((crm.count(method), replies(&crm).len()), (2, answered + 1));
        crm.behave(own, talks(&[&[&FORM.replace("Who?", "Whom?")]]));
        let end = send(&there, ABLE, method, &next).await.result();
        assert_eq!(end["resultType"], "input_required", "another one is not");
        assert_eq!((crm.count(method), replies(&crm).len()), (3, answered + 1));
    }
    // The server has forgotten the session: what was done in it nobody knows.
    let state = handle(&send(&here, ABLE, method, params).await);
    crm.forget_sessions();
    let lost = send(&here, ABLE, method, &again(params, &one(ACCEPTS), &state)).await;
    assert!(failure(&lost).contains("outcome is unknown"));
    assert_eq!(crm.count(method), 2);
    for gw in [one_gw, other_gw] {
        gw.stop().await;
    }
}

// spec: rows X-07, X-09, GW-04
#[tokio::test]
async fn who_cannot_be_asked_is_not_and_the_call_goes_on() {
    let crm = asking(&[&[FORM, URL, SAMPLING, ROOTS]]).await;
    crm.capabilities(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#);
    let (method, params, _) = CALLS[0];
    for (refuse, able, codes, reasons) in [
        ("", "{}", [-32601, -32601, -32601, -32601], [("capability", 4), ("forms", 0)]),
        ("forms, urls, sampling, roots", ABLE, [-32601; 4], [("capability", 0), ("urls", 1)]),
    ] {
        let (gw, alice) = before(&crm, &format!(", refuse: [{refuse}]"), |_| {}).await;
        let end = send(&alice, able, method, params).await.result();
        let heard = &end["structuredContent"]["heard"][0];
        let told: Vec<_> = (0..4).map(|n| heard[n]["error"]["code"].as_i64().unwrap()).collect();
        assert_eq!(told, codes, "{end}");
        for (reason, count) in reasons {
            let line = format!(r#"fondaco_asks_refused_total{{reason="{reason}"}}"#);
            assert_eq!(metric(&gw, &line).await, count, "{reason}");
        }
        gw.stop().await;
    }
    let (gw, alice) = before(&crm, "", |_| {}).await;
    crm.behave("echo", talks(&[&[URL], &[FORM]]));
    let end = send(&alice, r#"{"elicitation":{}}"#, method, params).await.result();
    assert_eq!(end["resultType"], "input_required", "what it can be asked, it is");
    assert_eq!(replies(&crm).pop().unwrap()["error"]["code"], -32602, "a mode that it does not have");
    // In no other request is anybody asked.
    crm.behave("completion/complete", talks(&[&[FORM]]));
    let complete = r#""ref":{"type":"ref/prompt","name":"crm_greet"},"argument":{"name":"whom","value":"x"}"#;
    let before = replies(&crm).len();
    send(&alice, ABLE, "completion/complete", complete).await;
    assert_eq!(replies(&crm)[before]["error"]["code"], -32601);
    gw.stop().await;
}

// spec: rows MR-07, MR-08
#[tokio::test]
async fn what_may_not_be_asked_is_declined_and_the_call_is_over() {
    let secret = FORM.replace("\"name\"", "\"apiKey\"");
    let (plain, tools) =
        (URL.replace("https:", "http:"), SAMPLING.replace("\"maxTokens\"", "\"tools\":[],\"maxTokens\""));
    for (wanted, told) in [
        (&secret, json!({"action": "decline"})),
        (&plain, json!({"action": "decline"})),
        (&FORM.replace("\"message\"", "\"note\""), json!({"action": "decline"})),
        (&tools, Value::Null),
    ] {
        let crm = asking(&[&[wanted, ROOTS]]).await;
        let (gw, alice) = before(&crm, "", |_| {}).await;
        for (n, (method, params, _)) in CALLS.into_iter().enumerate() {
            let answer = send(&alice, ABLE, method, params).await;
            match (told.is_null(), method) {
                (true, _) => assert_eq!(answer.refusal(), (400, -32021), "{}", answer.text()),
                _ if answer.text().contains("no valid answer") => assert_eq!(answer.refusal(), (200, -32603)),
                (_, "tools/call") => assert!(failure(&answer).starts_with("the backend asks"), "{wanted}"),
                _ => assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text()),
            }
            eventually("the server is told", async || cancelled(&crm) == n + 1).await;
            let all = replies(&crm);
            assert_eq!(all.len(), 2 * (n + 1));
            match told.is_null() {
                true => assert_eq!(all[2 * n]["error"]["code"], -1),
                false => assert_eq!(all[2 * n]["result"], told),
            }
            assert_eq!((&all[2 * n + 1]["error"]["code"], crm.count(method)), (&json!(-32601), 1));
        }
        gw.stop().await;
    }
    let few = |settings: &mut Settings| settings.limits.rounds = 1;
    let (crm, gw, alice) = house(&[&[FORM], &[FORM]], few).await;
    let (method, params, _) = CALLS[0];
    let state = handle(&send(&alice, ABLE, method, params).await);
    let end = send(&alice, ABLE, method, &again(params, &one(ACCEPTS), &state)).await;
    assert!(failure(&end).contains("too often"));
    cancels(&crm, "a call that asks too often is over").await;
    assert_eq!(replies(&crm)[1]["result"], json!({"action": "decline"}));
    gw.stop().await;
}

// spec: row X-10
#[tokio::test]
async fn a_url_that_comes_first_is_asked_for_and_the_call_sent_once_more() {
    let crm = upstream().await;
    crm.handshake(Handshake::default());
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let first = r#"{"mode":"url","message":"Log in","url":"https://x.example/","elicitationId":"e"}"#;
    let error =
        |data: &str| Behaviour::Error(200, format!(r#"{{"code":-32042,"message":"m","data":{data}}}"#));
    for (method, params, own) in CALLS {
        let wants =
            || crm.behave(own, Behaviour::Once(Box::new(error(&format!(r#"{{"elicitations":[{first}]}}"#)))));
        wants();
        let answer = send(&alice, r#"{"elicitation":{}}"#, method, params).await;
        assert_eq!(answer.refusal(), (400, -32021));
        assert_eq!(
            answer.message()["error"]["data"]["requiredCapabilities"],
            json!({"elicitation": {"url": {}}})
        );
        wants();
        let asked = send(&alice, ABLE, method, params).await.result();
        let expected = json!({"mode": "url", "message": "Log in", "url": "https://x.example/"});
        assert_eq!(
            asked["inputRequests"]["r1.1"],
            json!({"method": "elicitation/create", "params": expected})
        );
        let next = again(params, &one(r#"{"action":"accept"}"#), asked["requestState"].as_str().unwrap());
        assert_eq!(send(&alice, ABLE, method, &next).await.result()["resultType"], "complete");
        let sent = crm.asked().pop().unwrap().json();
        assert_eq!(sent["method"], method);
        assert_eq!((sent["params"].get("inputResponses"), sent["params"].get("requestState")), (None, None));
        assert_eq!(crm.count(method), 3);
        crm.behave(own, Behaviour::Once(Box::new(error("{}"))));
        let answer = send(&alice, ABLE, method, params).await;
        assert_eq!(answer.message()["error"]["data"]["upstreamCode"], -32042, "nobody knows which URL");
    }
    gw.stop().await;
}

// spec: row X-08
#[tokio::test]
async fn what_is_asked_beside_belongs_to_the_only_call() {
    let crm = upstream().await;
    crm.handshake(Handshake { listen: 200, ..Handshake::default() });
    crm.behave("echo", Behaviour::TalksBeside(vec![vec![question(FORM)]]));
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let (method, params, _) = CALLS[0];
    let ask = r#"{"jsonrpc":"2.0","id":"beside","method":"roots/list"}"#;
    let result = script(&alice, method, params).await;
    assert_eq!(result["structuredContent"]["heard"][0][0]["result"]["action"], "accept");
    assert_eq!((crm.count(method), replies(&crm).len()), (1, 1));
    // Nobody is in flight: nobody is asked.
    let refused = async |count: usize| {
        crm.say(ask);
        eventually("it is told no", async || replies(&crm).len() == count).await;
        assert_eq!(replies(&crm)[count - 1]["error"]["code"], -32601);
    };
    refused(2).await;
    // Nor is it where two are.
    crm.behave("echo", Behaviour::Hang);
    let mut open = Vec::new();
    for n in 2..4 {
        let alice = alice.clone();
        open.push(tokio::spawn(async move { send(&alice, ABLE, method, params).await }));
        eventually("it is in flight", async || crm.count(method) == n).await;
    }
    refused(3).await;
    open.pop().unwrap().abort();
    cancels(&crm, "one leaves").await;
    crm.say(ask);
    let asked = open.pop().unwrap().await.unwrap().result();
    assert_eq!(asked["inputRequests"], json!({"r1.1": {"method": "roots/list"}}));
    gw.stop().await;
}

// spec: requirements N.3, Limits
#[tokio::test]
async fn so_many_calls_wait_and_no_more() {
    for (callers, tenant, all) in [(1, 9, 9), (9, 1, 9), (9, 9, 1)] {
        let few = |settings: &mut Settings| {
            settings.limits.caller_parked_calls = callers;
            settings.limits.tenant_parked_calls = tenant;
            settings.limits.parked_calls = all;
        };
        let (crm, gw, alice) = house(&[&[FORM], &[ROOTS]], few).await;
        let bob = gw.caller("acme", "bob", "crm.read");
        let (method, params, _) = CALLS[0];
        let state = handle(&send(&alice, ABLE, method, params).await);
        let other = if callers == 1 { &alice } else { &bob };
        assert!(failure(&send(other, ABLE, method, params).await).contains("busy"));
        cancels(&crm, "the one too many is cancelled").await;
        let prompt = send(other, ABLE, CALLS[1].0, CALLS[1].1).await;
        assert_eq!(prompt.refusal(), (200, -32603));
        // A call that waits keeps its place in the next round.
        let asked = send(&alice, ABLE, method, &again(params, &one(ACCEPTS), &state)).await.result();
        let next = again(params, &format!(r#"{{"r2.1":{LISTS}}}"#), asked["requestState"].as_str().unwrap());
        send(&alice, ABLE, method, &next).await.result();
        handle(&send(other, ABLE, method, params).await);
        gw.stop().await;
    }
}

// spec: row X-15
#[tokio::test]
async fn a_client_that_leaves_after_its_answers_ends_the_call() {
    let (crm, gw, alice) = house(&[&[FORM], &[ROOTS]], |_| {}).await;
    let (method, params, _) = CALLS[0];
    // Its server takes the answer, and says nothing more.
    crm.behave("echo", silent());
    let state = handle(&send(&alice, ABLE, method, params).await);
    let next = again(params, &one(ACCEPTS), &state);
    let leave =
        |alice: Caller, next: String| tokio::spawn(async move { send(&alice, ABLE, method, &next).await });
    let (first, second) = (leave(alice.clone(), next.clone()), leave(alice.clone(), next.clone()));
    eventually("it has its answer", async || replies(&crm).len() == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    first.abort();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(cancelled(&crm), 0, "somebody waits for it");
    second.abort();
    cancels(&crm, "nobody does").await;
    let late = send(&alice, ABLE, method, &next).await;
    assert!(failure(&late).contains("outcome is unknown"));
    assert_eq!((crm.count(method), replies(&crm).len()), (1, 1));
    gw.stop().await;
}

/// Asks once, and never says anything more.
fn silent() -> Behaviour {
    let (method, params) = question(FORM);
    let ask =
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"{method}\",\"params\":{params}}}\n\n");
    Behaviour::Verbatim(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{ask}\r\n",
        ask.len()
    ))
}

// spec: requirements N.3, End without retry
#[tokio::test]
async fn calls_that_wait_end_with_their_backend_and_with_the_gateway() {
    let crm = asking(&[&[FORM]]).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenants.yaml");
    let acme = |more: &str| format!("tenants: {{acme: {{{more}backends: {{{}}}}}}}", crm.backend("crm", ""));
    std::fs::write(&file, acme("")).unwrap();
    let tenants = "issuers: [{issuer: \"{issuer}\", tenant_claim: tenant}]\ntenants: {other: {}}\n";
    let gw = Gateway::start_with(tenants, |settings| settings.tenants = Some(file.clone())).await;
    let alice = gw.caller("acme", "alice", "");
    let (method, params, _) = CALLS[0];
    let state = handle(&send(&alice, ABLE, method, params).await);
    std::fs::write(&file, acme("instructions: Changed., ")).unwrap();
    gw.app.tenants.reload();
    cancels(&crm, "the backend is spoken to otherwise").await;
    assert_eq!(replies(&crm)[0]["result"], json!({"action": "cancel"}));
    let lost = send(&alice, ABLE, method, &again(params, &one(ACCEPTS), &state)).await;
    assert!(failure(&lost).contains("outcome is unknown"));

    handle(&send(&alice, ABLE, method, params).await);
    gw.stop().await;
    assert_eq!((cancelled(&crm), replies(&crm).len(), crm.count(method)), (2, 2, 2));
    let ends: Vec<_> =
        crm.requests().iter().rev().take(3).map(|r| (r.line.clone(), r.body.clone())).collect();
    assert!(ends.iter().any(|(line, _)| line.starts_with("DELETE ")), "{ends:?}");
    let last_delete = crm.requests().iter().rposition(|r| r.line.starts_with("DELETE ")).unwrap();
    let cancel = crm.requests().iter().rposition(|r| r.body.contains("notifications/cancelled")).unwrap();
    assert!(cancel < last_delete, "its session ends after it");
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

// spec: rows X-07, Y-05
#[tokio::test]
async fn a_client_of_the_handshake_era_is_asked_on_its_stream() {
    let (crm, gw, alice) = house(&[&[FORM], &[SAMPLING]], |_| {}).await;
    let able: Value = serde_json::from_str(ABLE).unwrap();
    let session = Session::open_with(&alice, "2025-11-25", &able).await;
    let begin = async |id: u64| {
        let body = request(&json!(id), "tools/call", &json!({"name": "crm_echo", "arguments": {}}));
        let mut open = session.begin(&session.headers(), &body).await;
        open.head().await;
        open
    };
    let mut open = begin(5).await;
    for answer in [ACCEPTS, SAYS] {
        let question = next(&mut open).await;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#, question["id"]);
        assert_eq!(session.post(&answer).await.status, 202);
    }
    let end = next(&mut open).await;
    let heard = &end["result"]["structuredContent"]["heard"];
    assert_eq!(heard[0][0]["result"]["content"]["name"], "Ada", "{end}");
    assert_eq!(heard[1][0]["result"]["model"], "m", "{end}");
    assert_eq!((crm.count("tools/call"), cancelled(&crm)), (1, 0));

    // It answers with an error, or leaves: nobody else will answer.
    let mut refuses = begin(6).await;
    let question = next(&mut refuses).await;
    let error = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    assert_eq!(session.post(&error.to_string()).await.status, 202);
    assert_eq!(next(&mut refuses).await["result"]["isError"], true);
    cancels(&crm, "the server is told at once").await;
    assert_eq!(replies(&crm).pop().unwrap()["result"], json!({"action": "cancel"}));
    let mut leaves = begin(7).await;
    next(&mut leaves).await;
    drop(leaves);
    eventually("the server is told at once", async || cancelled(&crm) == 2).await;
    assert_eq!(crm.count("tools/call"), 3);
    gw.stop().await;
}

// spec: row GW-01
#[tokio::test]
async fn each_round_of_a_call_that_waits_is_authorised_anew() {
    let crm = asking(&[&[FORM]]).await;
    let rules = r#", scopes: {"tool:echo": [crm.read]}"#;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", rules)])).await;
    let (method, params, _) = CALLS[0];
    let state = handle(&send(&gw.caller("acme", "alice", "crm.read"), ABLE, method, params).await);
    let next = again(params, &one(ACCEPTS), &state);
    let fewer = gw.caller("acme", "alice", "crm.other");
    assert_eq!(send(&fewer, ABLE, method, &next).await.status, 403);
    assert_eq!(replies(&crm).len(), 0);
    send(&gw.caller("acme", "alice", "crm.read"), ABLE, method, &next).await.result();
    gw.stop().await;
}

// spec: row X-16; 2025-11-25 basic/utilities/cancellation, Behavior Requirements
#[tokio::test]
async fn a_server_may_give_up_what_it_asked_and_its_ids_are_its_own() {
    let crm = upstream().await;
    crm.handshake(Handshake::default());
    let (asks, params) = question(FORM);
    crm.behave(
        "echo",
        Behaviour::Events(vec![
            format!(r#"{{"jsonrpc":"2.0","id":$ID,"method":"{asks}","params":{params}}}"#),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$ID}}"#.to_owned(),
        ]),
    );
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let (method, params, _) = CALLS[0];
    let end = send(&alice, ABLE, method, params).await.result();
    assert_eq!(end["resultType"], "complete", "it has answered before anybody was asked: {end}");
    gw.stop().await;
}
