//! Subscriptions to what changes at servers of either era, and at those that have none.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;
use tokio::time::timeout;

use super::backend_of;
use super::call;
use super::config_of;
use super::eventually;
use super::result;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use super::upstream::sessions::Handshake;
use crate::backend::Account;
use crate::backend::Backend;
use crate::backend::BackendError;
use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::model::limits::Limits;
use crate::model::tenant::BackendEra;

const LISTEN: &str = "subscriptions/listen";

fn limits() -> Limits {
    Limits { watch_time: Duration::from_secs(2), ..Limits::default() }
}

fn modern(upstream: &Upstream, limits: Limits) -> Backend {
    backend_of(config_of(&upstream.url(), BackendEra::Modern), limits)
}

fn handshake(upstream: &Upstream, limits: Limits) -> Backend {
    backend_of(config_of(&upstream.url(), BackendEra::Handshake), limits)
}

fn wants(uris: &[&str]) -> Interest {
    Interest { uris: uris.iter().map(|uri| (*uri).into()).collect(), ..Interest::in_lists() }
}

fn notification(kind: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}"), "params": params}).to_string()
}

fn acknowledgement(notifications: Value) -> String {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": 1});
    notification("subscriptions/acknowledged", json!({"_meta": meta, "notifications": notifications}))
}

/// Says this to all who listen, as soon as there is somebody.
async fn say(upstream: &Upstream, message: &str) {
    eventually(|| upstream.say(message) > 0).await;
}

/// A subscription of a modern server that acknowledges this.
async fn opened(upstream: &Upstream, backend: &Backend, interest: Interest, honours: Value) -> Watching {
    upstream.behave(LISTEN, Behaviour::Listen);
    let acknowledging = async { say(upstream, &acknowledgement(honours)).await };
    tokio::join!(backend.watch(interest), acknowledging).0.unwrap()
}

async fn next(watching: &mut Watching) -> Option<Change> {
    timeout(Duration::from_secs(5), watching.changes.next()).await.expect("something within 5 s")
}

#[tokio::test]
async fn a_subscription_is_ours_and_says_what_was_asked_for_alone() {
    let upstream = Upstream::start().await;
    let backend = modern(&upstream, limits());
    let interest = Interest { prompts: false, tasks: vec!["t1".into()], ..wants(&["x://1", "x://2"]) };
    let honours = json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["x://2", "x://9"], "taskIds": ["t1"]});
    upstream.behave(LISTEN, Behaviour::Listen);
    let early = async {
        // Nothing may come before the acknowledgement: it is dropped.
        say(&upstream, &notification("tools/list_changed", json!({}))).await;
        say(&upstream, &acknowledgement(honours)).await;
    };
    let (watching, ()) = tokio::join!(backend.watch(interest), early);
    let mut watching = watching.unwrap();
    let tasks = vec!["t1".into()];
    let honoured = Interest { tools: true, uris: vec!["x://2".into()], tasks, ..Interest::default() };
    assert_eq!(watching.honoured, honoured);
    let request = upstream.requests().into_iter().find(|request| request.json()["method"] == LISTEN).unwrap();
    assert_eq!(request.header("mcp-method"), [LISTEN]);
    assert_eq!(request.header("mcp-protocol-version"), ["2026-07-28"]);
    assert_eq!(request.header("accept"), ["application/json, text/event-stream"]);
    let body = request.json();
    assert_eq!(
        body["params"]["notifications"],
        json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["x://1", "x://2"], "taskIds": ["t1"]})
    );
    assert!(body["id"].is_u64());
    let meta = &body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "fondaco");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    );
    let id = json!({"io.modelcontextprotocol/subscriptionId": body["id"]});
    for message in [
        notification("prompts/list_changed", json!({"_meta": id})),
        notification("resources/updated", json!({"uri": "x://3"})),
        notification("message", json!({"level": "info", "data": "x"})),
        notification("tasks", json!({"taskId": "t2"})),
        // Comments are no messages.
        "\n\n:".to_owned(),
        notification("tools/list_changed", json!({"_meta": id})),
        notification("resources/updated", json!({"_meta": id, "uri": "x://2/part"})),
        notification("tasks", json!({"taskId": "t1", "status": "working", "_meta": id})),
    ] {
        say(&upstream, &message).await;
    }
    assert_eq!(next(&mut watching).await, Some(Change::Tools));
    assert_eq!(next(&mut watching).await, Some(Change::Resource("x://2/part".into())));
    let Some(Change::Task(params)) = next(&mut watching).await else { panic!("a task") };
    assert_eq!(params.text(), r#"{"taskId":"t1","status":"working"}"#);
    assert!(watching.changes.next().now_or_never().is_none());
}

// spec: row SB-06
#[tokio::test]
async fn a_subscription_ends_with_its_result_or_its_connection_and_can_be_opened_anew() {
    let upstream = Upstream::start().await;
    let backend = modern(&upstream, limits());
    for how in ["result", "hang up", "drop"] {
        let honours = json!({"toolsListChanged": true});
        let mut watching = opened(&upstream, &backend, Interest::in_lists(), honours).await;
        say(&upstream, &notification("tools/list_changed", json!({}))).await;
        assert_eq!(next(&mut watching).await, Some(Change::Tools), "{how}");
        match how {
            "result" => {
                say(&upstream, r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#).await
            }
            "hang up" => upstream.hang_up(),
            _ => {
                drop(watching);
                eventually(|| upstream.say(":") == 0).await;
                continue;
            }
        }
        assert_eq!(next(&mut watching).await, None, "{how}");
        upstream.hang_up();
    }
}

#[tokio::test]
async fn a_server_without_subscriptions_is_not_asked_again_for_a_while() {
    let unknown = r#"{"code":-32601,"message":"Method not found"}"#;
    for behaviour in [
        Behaviour::Error(404, unknown.to_owned()),
        Behaviour::Error(200, unknown.to_owned()),
        Behaviour::Verbatim("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()),
        Behaviour::Verbatim("HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n".to_owned()),
        Behaviour::Verbatim("HTTP/1.1 501 No\r\nContent-Length: 0\r\n\r\n".to_owned()),
        Behaviour::Result("{}".to_owned()),
    ] {
        let upstream = Upstream::start().await;
        upstream.behave(LISTEN, behaviour.clone());
        let refresh_time = Duration::from_millis(300);
        let backend = modern(&upstream, Limits { refresh_time, ..limits() });
        let began = Instant::now();
        let mut watching = backend.watch(Interest::in_lists()).await.unwrap();
        assert!(watching.honoured.is_empty(), "{behaviour:?}");
        for _ in 0..3 {
            assert!(backend.watch(Interest::in_lists()).await.unwrap().honoured.is_empty());
        }
        assert_eq!(upstream.count(LISTEN), 1, "{behaviour:?}");
        assert_eq!(next(&mut watching).await, None);
        assert!(began.elapsed() >= refresh_time);
        backend.watch(Interest::in_lists()).await.unwrap();
        assert_eq!(upstream.count(LISTEN), 2, "{behaviour:?}");
    }
}

/// An answer that acknowledges this, and is over.
fn acknowledging(notifications: Value) -> Behaviour {
    let event = format!("data: {}\n\n", acknowledgement(notifications));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length:";
    Behaviour::Verbatim(format!("{head} {}\r\n\r\n{event}", event.len()))
}

#[tokio::test]
async fn a_subscription_of_which_nothing_is_honoured_says_nothing_of_another() {
    let upstream = Upstream::start().await;
    let refresh_time = Duration::from_millis(300);
    let backend = modern(&upstream, Limits { refresh_time, ..limits() });
    upstream.behave(LISTEN, acknowledging(json!({})));
    let began = Instant::now();
    let mut odd = backend.watch(wants(&["x://odd"])).await.unwrap();
    assert!(odd.honoured.is_empty());
    let honours = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]});
    let watching = opened(&upstream, &backend, wants(&["x://1"]), honours).await;
    assert_eq!((watching.honoured.tools, watching.honoured.uris.len()), (true, 1));
    assert_eq!(next(&mut odd).await, None);
    assert!(began.elapsed() >= refresh_time, "it is worth asking again");
}

#[tokio::test]
async fn lists_and_resources_are_unheard_apart_and_never_in_place_of_what_is_open() {
    let only = |uris: &[&str]| Interest { uris: wants(uris).uris, ..Interest::default() };
    let without = Behaviour::Error(404, r#"{"code":-32601,"message":"Method not found"}"#.to_owned());
    let upstream = Upstream::start().await;
    let backend = modern(&upstream, limits());
    upstream.behave(LISTEN, without.clone());
    assert!(backend.watch(only(&["x://1"])).await.unwrap().honoured.is_empty());
    assert!(backend.watch(only(&["x://2"])).await.unwrap().honoured.is_empty());
    assert_eq!(upstream.count(LISTEN), 1);
    let lists = opened(&upstream, &backend, Interest::in_lists(), json!({"toolsListChanged": true})).await;
    assert!(lists.honoured.tools);
    drop(lists);
    eventually(|| upstream.say(":") == 0).await;

    let backend = modern(&upstream, limits());
    let honours = json!({"resourceSubscriptions": ["x://1"]});
    let open = opened(&upstream, &backend, only(&["x://1"]), honours).await;
    upstream.behave(LISTEN, without);
    assert!(backend.watch(only(&["x://1", "x://2"])).await.is_err());
    drop(open);
    assert!(backend.watch(only(&["x://1", "x://2"])).await.unwrap().honoured.is_empty());
}

#[tokio::test]
async fn who_refuses_or_is_silent_fails_and_takes_no_calls_place() {
    let upstream = Upstream::start().await;
    let watch_time = Duration::from_secs(1);
    let backend =
        modern(&upstream, Limits { watch_time, upstream_watches: 1, upstream_calls: 1, ..Limits::default() });
    for (behaviour, is_late) in [
        (Behaviour::Hang, true),
        (Behaviour::HangInStream, true),
        (Behaviour::Error(200, r#"{"code":-32602,"message":"No"}"#.to_owned()), false),
        (Behaviour::Error(500, r#"{"code":-32603,"message":"No"}"#.to_owned()), false),
        (Behaviour::Reset, false),
    ] {
        upstream.behave(LISTEN, behaviour.clone());
        let error = backend.watch(Interest::in_lists()).await.err().expect("an error");
        assert_eq!(matches!(error, BackendError::TimedOut { .. }), is_late, "{behaviour:?}: {error:?}");
    }
    let watching = opened(&upstream, &backend, Interest::in_lists(), json!({"toolsListChanged": true})).await;
    // It has a place of its own, and there is one.
    result(&backend, call("echo")).await;
    let error = backend.watch(Interest::in_lists()).await.err();
    assert!(matches!(error, Some(BackendError::Busy)), "{error:?}");
    drop(watching);
    eventually(|| upstream.say(":") == 0).await;
    opened(&upstream, &backend, Interest::in_lists(), json!({"toolsListChanged": true})).await;
}

#[tokio::test]
async fn a_server_that_says_too_much_is_cut() {
    let many = Limits { listen_messages: 2, ..limits() };
    let large = Limits { listen_bytes: 1 << 10, ..limits() };
    let comment = format!("\n\n:{}", "x".repeat(1 << 10));
    for (limits, message) in [(many, notification("tools/list_changed", json!({}))), (large, comment)] {
        let upstream = Upstream::start().await;
        let backend = modern(&upstream, limits);
        let honours = json!({"toolsListChanged": true});
        let mut watching = opened(&upstream, &backend, Interest::in_lists(), honours.clone()).await;
        let saying = async {
            while upstream.say(&message) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let hearing = async {
            let mut heard = 0;
            while watching.changes.next().await.is_some() {
                heard += 1;
            }
            drop(watching);
            heard
        };
        let (heard, ()) =
            timeout(Duration::from_secs(10), async { tokio::join!(hearing, saying) }).await.unwrap();
        assert!(heard <= 60, "{heard}");
        // The next one begins anew.
        opened(&upstream, &backend, Interest::in_lists(), honours).await;
    }
}

/// A server of the handshake era with two resources, which tells what this says.
async fn server(capabilities: &str, listen: u16) -> Upstream {
    let upstream = Upstream::start().await;
    for uri in ["x://1", "x://2"] {
        upstream.resource(uri, &format!(r#"{{"uri":"{uri}","name":"n"}}"#));
    }
    upstream.capabilities(capabilities);
    upstream.handshake(Handshake { listen, ..Handshake::default() });
    upstream
}

/// What the sessions of a server were told of a method, in order: URIs.
fn told(upstream: &Upstream, method: &str) -> Vec<String> {
    let calls = upstream.sessions().into_iter().flat_map(|session| session.calls);
    let of = calls.filter(|call| call["method"] == method);
    of.map(|call| call["params"]["uri"].as_str().unwrap_or_default().to_owned()).collect()
}

fn listens(upstream: &Upstream) -> usize {
    upstream.sessions().iter().map(|session| session.listens).sum()
}

const ALL: &str =
    r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true,"listChanged":true}}"#;

// spec: rows X-11, X-12, LG-07
#[tokio::test]
async fn a_session_of_the_gateways_own_hears_what_its_server_says_that_it_tells() {
    let upstream = server(ALL, 200).await;
    upstream.behave("x://2", Behaviour::Error(200, r#"{"code":-32602,"message":"No"}"#.to_owned()));
    let idle = Duration::from_millis(50);
    let backend = handshake(&upstream, Limits { upstream_session_idle: idle, ..limits() });
    let mut watching = backend.watch(wants(&["x://1", "x://2"])).await.unwrap();
    assert_eq!(watching.honoured, Interest { prompts: false, ..wants(&["x://1"]) });
    let mut subscribed = told(&upstream, "resources/subscribe");
    subscribed.sort();
    assert_eq!(subscribed, ["x://1", "x://2"]);
    for (kind, params) in [
        ("prompts/list_changed", json!({})),
        ("resources/updated", json!({"uri": "x://2"})),
        ("resources/updated", json!({"uri": "x://1"})),
        ("tools/list_changed", json!({})),
        ("tools/list_changed", json!({})),
    ] {
        say(&upstream, &notification(kind, params)).await;
    }
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let change = next(&mut watching).await.unwrap();
        if !heard.contains(&change) {
            heard.push(change);
        }
    }
    heard.sort_by_key(|change| format!("{change:?}"));
    assert_eq!(heard, [Change::Resource("x://1".into()), Change::Tools]);
    // In use it is not idle, however long.
    tokio::time::sleep(4 * idle).await;
    say(&upstream, &notification("resources/list_changed", json!({}))).await;
    while next(&mut watching).await.unwrap() != Change::Resources {}
    assert_eq!((upstream.sessions().len(), upstream.sessions()[0].ended), (1, false));

    // Two that watch the same are one subscription, which ends with the second.
    let second = backend.watch(Interest { uris: vec!["x://1".into()], ..Interest::default() }).await.unwrap();
    assert_eq!(second.honoured.uris, ["x://1".into()]);
    drop(watching);
    assert_eq!(told(&upstream, "resources/unsubscribe"), [""; 0]);
    drop(second);
    eventually(|| told(&upstream, "resources/unsubscribe") == ["x://1"]).await;
    assert_eq!(told(&upstream, "resources/subscribe").len(), 2);
    eventually(|| upstream.sessions()[0].ended).await;
    assert_eq!(listens(&upstream), 1);
}

// spec: rows X-12, LG-05
#[tokio::test]
async fn a_watch_ends_with_its_session_and_the_next_one_subscribes_anew() {
    let upstream = server(ALL, 200).await;
    let backend = handshake(&upstream, limits());
    let mut watching = backend.watch(wants(&["x://1"])).await.unwrap();
    // A restart: the stream ends, and the session is not known any more.
    upstream.forget_sessions();
    upstream.hang_up();
    assert_eq!(next(&mut watching).await, None);
    let mut watching = backend.watch(wants(&["x://1"])).await.unwrap();
    assert_eq!(watching.honoured.uris, ["x://1".into()]);
    assert_eq!(told(&upstream, "resources/subscribe"), ["x://1", "x://1"]);
    assert_eq!(upstream.sessions().len(), 2);
    // Found out by a request, with the stream still open.
    upstream.forget_sessions();
    backend.list(&Account::Gateway).await.unwrap();
    assert_eq!(next(&mut watching).await, None);
    let mut watching = backend.watch(wants(&["x://1"])).await.unwrap();
    say(&upstream, &notification("resources/updated", json!({"uri": "x://1"}))).await;
    assert_eq!(next(&mut watching).await, Some(Change::Resource("x://1".into())));
    assert_eq!(upstream.sessions().len(), 3);
}

#[tokio::test]
async fn what_a_handshake_server_does_not_tell_is_not_honoured() {
    for (capabilities, listen, asked) in
        [(r#"{"tools":{},"resources":{}}"#, 200, 0), (ALL, 405, 1), (ALL, 404, 1)]
    {
        let upstream = server(capabilities, listen).await;
        let backend = handshake(&upstream, limits());
        for _ in 0..3 {
            let watching = backend.watch(wants(&["x://1"])).await.unwrap();
            assert!(watching.honoured.is_empty(), "{listen}: {:?}", watching.honoured);
        }
        assert_eq!(listens(&upstream), asked, "{listen}");
        result(&backend, call("echo")).await;
    }
    // Without `subscribe`, and without anything else to hear, no URI is.
    let upstream = server(r#"{"tools":{"listChanged":true},"resources":{}}"#, 200).await;
    let backend = handshake(&upstream, limits());
    let watching = backend.watch(wants(&["x://1"])).await.unwrap();
    assert_eq!(watching.honoured, Interest { tools: true, ..Interest::default() });
    assert_eq!(told(&upstream, "resources/subscribe"), [""; 0]);
}

#[tokio::test]
async fn a_handshake_server_that_refuses_one_resource_or_has_none_is_heard_of_the_rest() {
    let only = |uri: &str| Interest { uris: vec![uri.into()], ..Interest::default() };
    let upstream = server(ALL, 200).await;
    let backend = handshake(&upstream, limits());
    upstream.behave("x://1", Behaviour::Error(200, r#"{"code":-32602,"message":"No"}"#.to_owned()));
    let mut refused = backend.watch(only("x://1")).await.unwrap();
    assert!(refused.honoured.is_empty() && refused.changes.next().now_or_never().is_none());
    assert_eq!(backend.watch(only("x://2")).await.unwrap().honoured, only("x://2"));

    let upstream = server(r#"{"tools":{"listChanged":true},"resources":{}}"#, 200).await;
    let backend = handshake(&upstream, limits());
    assert!(backend.watch(only("x://1")).await.unwrap().honoured.is_empty());
    assert!(backend.watch(Interest::in_lists()).await.unwrap().honoured.tools);
}

#[tokio::test]
async fn a_resource_that_a_handshake_server_is_silent_about_takes_no_other_with_it() {
    let upstream = server(ALL, 200).await;
    upstream.behave("x://2", Behaviour::Hang);
    let watch_time = Duration::from_secs(1);
    let backend = handshake(&upstream, Limits { watch_time, ..Limits::default() });
    let only = |uris: &[&str]| Interest { uris: wants(uris).uris, ..Interest::default() };
    let watching = backend.watch(only(&["x://2", "x://1"])).await.unwrap();
    assert_eq!(watching.honoured, only(&["x://1"]));
    // Nobody knows whether it would be told of.
    assert!(matches!(backend.watch(only(&["x://2"])).await, Err(BackendError::TimedOut { .. })));
}

#[tokio::test]
async fn a_session_that_says_too_much_gives_way_to_another() {
    let upstream = server(ALL, 200).await;
    let backend = handshake(&upstream, Limits { listen_messages: 2, ..limits() });
    let mut watching = backend.watch(Interest::in_lists()).await.unwrap();
    while upstream.say(&notification("tools/list_changed", json!({}))) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while next(&mut watching).await.is_some() {}
    let mut watching = backend.watch(Interest::in_lists()).await.unwrap();
    say(&upstream, &notification("tools/list_changed", json!({}))).await;
    assert_eq!(next(&mut watching).await, Some(Change::Tools));
    assert_eq!(upstream.sessions().len(), 2);
}
