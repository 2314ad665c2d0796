//! Kept results of `resources/read` through the front door: who gets them, for how long, and who asks.

use std::time::Duration;

use fondaco::model::name::BackendName;
use fondaco::model::name::TenantName;
use futures_util::future::join_all;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

/// A server with the resources `x://1` and `x://2`.
async fn server() -> Upstream {
    let upstream = Upstream::start().await;
    for uri in ["x://1", "x://2"] {
        upstream.resource(uri, &format!(r#"{{"uri":"{uri}","name":"n"}}"#));
    }
    upstream
}

/// Has a resource say this, with these hints.
fn says(upstream: &Upstream, uri: &str, text: &str, hints: &str) {
    let result =
        format!(r#"{{"resultType":"complete","contents":[{{"uri":"{uri}","text":"{text}"}}]{hints}}}"#);
    upstream.behave(uri, Behaviour::Result(result));
}

const PUBLIC: &str = r#","ttlMs":600000,"cacheScope":"public""#;
const PRIVATE: &str = r#","ttlMs":600000,"cacheScope":"private""#;

/// The hints of a right answer, as the server has them.
const KEPT: &str = r#""ttlMs":600000,"cacheScope":"private""#;

/// How often the server was asked to read.
fn reads(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.header("mcp-method") == ["resources/read"]).count()
}

/// What a read says.
fn said(result: &Value) -> &str {
    result["contents"][0]["text"].as_str().unwrap()
}

/// A gateway whose tenant `acme` has the server as `crm`, and `other` has it, too.
async fn before(upstream: &Upstream, more: &str) -> Gateway {
    let acme = [upstream.backend("crm", more)];
    let url = upstream.url();
    let tenants = acme_and_other(&acme)
        .replace("scope_implies", "public_catalog: true\n    scope_implies")
        .replace("  other:\n", &format!("  other:\n    backends: {{crm: {{kind: mcp, url: \"{url}\"}}}}\n"));
    Gateway::start(&tenants).await
}

// spec: row LT-06
#[tokio::test]
async fn private_results_stay_with_their_caller_over_ten_thousand_reads() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    let callers = ["alice", "bob"].map(|name| (name, gw.caller("acme", name, "")));
    for (name, caller) in &callers {
        says(&upstream, "x://1", name, PRIVATE);
        assert_eq!(said(&caller.read("crm+x://1").await.result()), *name);
    }
    says(&upstream, "x://1", "nobody's", PRIVATE);
    let params = r#","uri":"crm+x://1""#;
    let readers = callers.iter().map(|(name, caller)| async move {
        let mut connection = Connection::open(caller.addr).await;
        let headers = caller.headers("resources/read", Some("crm+x://1"));
        for n in 0..5_000 {
            let id = n.to_string();
            connection.post(&caller.path, &headers, &text(&id, "resources/read", params, "")).await;
            let answer = connection.answer().await;
            assert_eq!(answer.message()["id"], n);
            assert_eq!(said(&answer.result()), *name);
        }
    });
    join_all(readers).await;
    assert_eq!(reads(&upstream), 2, "everything else was kept");
    // The same caller with other rights is another one.
    let more = gw.caller("acme", "alice", "crm.read");
    assert_eq!(said(&more.read("crm+x://1").await.result()), "nobody's");
    let metrics = gw.app.metrics.encode();
    assert!(metrics.contains(r#"fondaco_cache_total{result="hit"} 10000"#), "{metrics}");
    assert!(metrics.contains(r#"fondaco_cache_total{result="miss"} 3"#), "{metrics}");
    gw.stop().await;
}

// spec: row LT-06
#[tokio::test]
async fn public_results_are_shared_in_their_tenant_and_policy_is_asked_each_time() {
    let upstream = server().await;
    let gw = before(&upstream, r#", scopes: {"resource:x://1": [crm.read]}"#).await;
    says(&upstream, "x://1", "first", PUBLIC);
    let alice = gw.caller("acme", "alice", "crm.read");
    let first = alice.read("crm+x://1").await.result();
    assert_eq!(
        (said(&first), &first["ttlMs"], &first["cacheScope"]),
        ("first", &json!(600_000), &json!("private"))
    );
    says(&upstream, "x://1", "second", PUBLIC);
    let bob = gw.caller("acme", "bob", "crm.admin");
    let kept = bob.read("crm+x://1").await.result();
    assert_eq!((said(&kept), &kept["cacheScope"]), ("first", &json!("private")));
    let left = kept["ttlMs"].as_u64().unwrap();
    assert!(left < 600_000 && left > 500_000, "{left}");
    assert_eq!(kept["contents"], first["contents"]);
    // Who may not read it gets nothing, kept or not.
    assert_eq!(gw.caller("acme", "eve", "").read("crm+x://1").await.refusal().0, 403);
    assert_eq!(reads(&upstream), 1);
    // Another tenant has the same server, and nothing of this one.
    let other = gw.caller("other", "alice", "crm.read");
    assert_eq!(said(&other.read("crm+x://1").await.result()), "second");
    gw.stop().await;
}

#[tokio::test]
async fn what_may_be_kept_by_anybody_is_said_to_be_so_where_the_tenant_allows_it() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    says(&upstream, "x://1", "first", PUBLIC);
    for (path, scope) in [("/t/acme/mcp", "public"), ("/mcp", "private"), ("/t/acme/mcp", "public")] {
        let caller = gw.caller_at(path, "acme", "alice", "");
        assert_eq!(caller.read("crm+x://1").await.result()["cacheScope"], scope, "{path}");
    }
    assert_eq!(reads(&upstream), 1);
    gw.stop().await;
}

// What is not simply a result that may be kept is asked for each time.
#[tokio::test]
async fn errors_retries_and_reads_with_progress_are_never_kept() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    let alice = gw.caller("acme", "alice", "");
    let headers = alice.headers("resources/read", Some("crm+x://1"));
    let error = Behaviour::Error(200, r#"{"code":-32603,"message":"m","ttlMs":60000}"#.to_owned());
    let asks = r#"{"resultType":"input_required","requestState":"s","ttlMs":600000,"cacheScope":"public"}"#;
    let mut expected = 0;
    for (what, behaviour) in [("an error", error), ("a question", Behaviour::Result(asks.to_owned()))] {
        upstream.behave("x://1", behaviour);
        for _ in 0..2 {
            alice.read("crm+x://1").await.refusal();
            expected += 1;
            assert_eq!(reads(&upstream), expected, "{what}");
        }
    }
    says(&upstream, "x://1", "fresh", PUBLIC);
    for (params, meta) in [(r#","inputResponses":{}"#, ""), ("", r#","progressToken":7"#)] {
        let params = format!(r#","uri":"crm+x://1"{params}"#);
        for _ in 0..2 {
            alice.post(&headers, &text("1", "resources/read", &params, meta)).await;
            expected += 1;
            assert_eq!(reads(&upstream), expected, "{params}{meta}");
        }
    }
    // Now it is kept, and whoever retries is still not answered with it; who wants progress is.
    alice.read("crm+x://1").await.result();
    expected += 1;
    for (params, meta, asked) in [
        (r#","inputResponses":{}"#, "", 1),
        // No state of ours, and no reason to answer with what is kept either.
        (r#","requestState":"s""#, "", 0),
        ("", r#","progressToken":7"#, 0),
        (r#","future":1"#, "", 1),
        ("", r#","example.com/user":"alice""#, 1),
        ("", "", 0),
    ] {
        let params = format!(r#","uri":"crm+x://1"{params}"#);
        let answer = alice.post(&headers, &text("1", "resources/read", &params, meta)).await;
        assert_eq!(answer.text().contains("fresh"), !params.contains("requestState"), "{}", answer.text());
        expected += asked;
        assert_eq!(reads(&upstream), expected, "{params}{meta}");
    }
    gw.stop().await;
}

// spec: row LT-07
#[tokio::test]
async fn what_has_changed_is_read_anew() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    let alice = gw.caller("acme", "alice", "");
    let (acme, crm) = (TenantName::new("acme").unwrap(), BackendName::new("crm").unwrap());
    let read = async |uri: &str| said(&alice.read(uri).await.result()).to_owned();
    let change = |text: &str| ["x://1", "x://2"].map(|uri| says(&upstream, uri, text, PUBLIC));
    change("first");
    assert_eq!((read("crm+x://1").await, read("crm+x://2").await), ("first".into(), "first".into()));
    change("second");
    gw.app.cache.purge(&acme, &crm, Some("x://1"));
    assert_eq!((read("crm+x://1").await, read("crm+x://2").await), ("second".into(), "first".into()));
    change("third");
    // The list of resources is another one.
    upstream.resource("x://3", r#"{"uri":"x://3","name":"n"}"#);
    assert!(gw.app.catalogs.refreshed(&acme, &crm).await);
    assert_eq!((read("crm+x://1").await, read("crm+x://2").await), ("third".into(), "third".into()));
    gw.stop().await;
}

#[tokio::test]
async fn a_hundred_who_read_together_ask_once() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    let alice = gw.caller("acme", "alice", "");
    alice.resources().await;
    upstream.hints(KEPT).behave("x://1", Behaviour::Late(Duration::from_millis(500)));
    let answers = join_all((0..100).map(|_| alice.read("crm+x://1"))).await;
    assert!(answers.iter().all(|answer| said(&answer.result()) == "x://1"));
    assert_eq!(reads(&upstream), 1);
    gw.stop().await;
}

#[tokio::test]
async fn who_leaves_hands_over_and_who_fails_fails_alone() {
    let upstream = server().await;
    upstream.hints(KEPT);
    let gw = before(&upstream, "").await;
    let alice = gw.caller("acme", "alice", "");
    alice.resources().await;
    for (first, leaves) in [
        (Behaviour::Hang, true),
        (Behaviour::Error(500, r#"{"code":-32603,"message":"m"}"#.to_owned()), false),
        (Behaviour::Reset, false),
    ] {
        gw.app.cache.purge(&TenantName::new("acme").unwrap(), &BackendName::new("crm").unwrap(), None);
        upstream.behave("x://1", Behaviour::Once(Box::new(first)));
        let asked = reads(&upstream);
        let mut leader = Connection::open(gw.addr).await;
        let headers = alice.headers("resources/read", Some("crm+x://1"));
        leader.post("/mcp", &headers, &text("1", "resources/read", r#","uri":"crm+x://1""#, "")).await;
        eventually("the first one asks", async || reads(&upstream) > asked).await;
        let leaving = async {
            if leaves {
                drop(leader);
            }
        };
        let (others, ()) = tokio::join!(join_all((0..10).map(|_| alice.read("crm+x://1"))), leaving);
        assert!(others.iter().all(|answer| said(&answer.result()) == "x://1"));
    }
    gw.stop().await;
}

#[tokio::test]
async fn sessions_of_the_handshake_era_read_from_the_same_cache() {
    let upstream = server().await;
    let gw = before(&upstream, "").await;
    says(&upstream, "x://1", "first", PUBLIC);
    let alice = gw.caller("acme", "alice", "");
    alice.read("crm+x://1").await.result();
    let session = Session::open(&alice, "2025-11-25").await;
    let read = session.rpc("resources/read", json!({"uri": "crm+x://1"})).await.result();
    assert_eq!(said(&read), "first");
    assert!(read.get("ttlMs").is_none(), "{read}");
    assert_eq!(reads(&upstream), 1);
    gw.stop().await;
}

#[tokio::test]
async fn what_travels_with_a_request_to_its_backend_is_part_of_the_question() {
    let upstream = server().await;
    says(&upstream, "x://1", "a", PUBLIC);
    let gw = Gateway::start_with(&acme_and_other(&[upstream.backend("crm", "")]), |settings| {
        settings.telemetry.baggage = vec!["tier".to_owned()];
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    let trace =
        |id: u8| format!(r#","traceparent":"00-0af7651916cd43dd8448eb211c8031{id:02x}-b7ad6b7169203331-01""#);
    let traced = |id| trace(id) + r#","tracestate":"a=b""#;
    for (meta, asked) in [
        (String::new(), 1),
        // The trace is not what is asked, and what does not go on is not either.
        (trace(1), 1),
        (traced(2), 1),
        (r#","baggage":"secret=1""#.to_owned(), 1),
        (r#","baggage":"tier=gold""#.to_owned(), 2),
        (r#","baggage":"tier=gold,secret=1""#.to_owned(), 2),
        (r#","baggage":"tier=lead""#.to_owned(), 3),
        (r#","a/b":"tier=lead""#.to_owned(), 4),
        (r#","a/b":"tier=lead","baggage":"tier=lead""#.to_owned(), 5),
        (r#","baggage":"tier=gold""#.to_owned(), 5),
    ] {
        let headers = alice.headers("resources/read", Some("crm+x://1"));
        let params = r#","uri":"crm+x://1""#;
        alice.post(&headers, &text("1", "resources/read", params, &meta)).await.result();
        assert_eq!(reads(&upstream), asked, "{meta}");
    }
    gw.stop().await;
}
