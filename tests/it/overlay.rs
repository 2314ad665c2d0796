//! Backends that list for each caller (`catalog: per_caller`): who sees what, who is asked, and what is kept.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fondaco::config::Settings;
use futures_util::future::join_all;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wait::eventually;
use crate::listen::listen;
use crate::listen::message;
use crate::listen::metric;

/// What makes a backend one that lists for each caller.
const EACH: &str = ", catalog: per_caller";

/// A server of the handshake era each of whose sessions has things of its own.
async fn personal() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.handshake(Handshake { personal: true, ..Handshake::default() });
    upstream.capabilities(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#);
    upstream
}

/// Lists these tools from now on, whoever asks.
fn lists(upstream: &Upstream, names: &[&str]) {
    let tool = |name: &&str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    let tools = names.iter().map(tool).collect::<Vec<_>>().join(",");
    let result = format!(r#"{{"resultType":"complete","tools":[{tools}]}}"#);
    upstream.behave("tools/list", Behaviour::Result(result));
}

/// How often the tools were asked for.
fn listings(upstream: &Upstream) -> usize {
    upstream.count("tools/list")
}

async fn start(backends: &[String], change: impl FnOnce(&mut Settings)) -> (Gateway, Caller, Caller) {
    let gw = Gateway::start_with(&acme_and_other(backends), change).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("acme", "bob", ""));
    (gw, alice, bob)
}

/// The session after which the one tool of a caller is named.
fn own(tools: &[String]) -> String {
    assert_eq!(tools.len(), 1, "{tools:?}");
    tools[0].strip_prefix("old_of_").unwrap().to_owned()
}

fn completion(reference: Value) -> Value {
    json!({"ref": reference, "argument": {"name": "n", "value": "x"}})
}

#[tokio::test]
async fn each_caller_has_what_its_own_session_has_and_nothing_of_another() {
    let old = personal().await;
    let (gw, alice, bob) = start(&[old.backend("old", EACH)], |_| {}).await;
    let (first, second) = (own(&alice.tools().await), own(&bob.tools().await));
    assert_ne!(first, second);
    for (caller, id) in [(&alice, &first), (&bob, &second), (&alice, &first)] {
        let name = format!("old_of_{id}");
        assert_eq!(caller.tools().await, [name.as_str()]);
        assert_eq!(caller.prompts().await, [name.as_str()]);
        assert_eq!(caller.resources().await, [format!("old+of://{id}/one")]);
        assert_eq!(caller.templates().await, [format!("old+of://{id}/any/{{n}}")]);
        let called = caller.call_tool(&name, json!({"who": id})).await.result();
        assert_eq!(called["structuredContent"]["who"], *id.as_str());
        caller.prompt(&name, json!({"a": "b"})).await.result();
        for uri in [format!("old+of://{id}/one"), format!("old+of://{id}/any/2")] {
            assert_eq!(caller.read(&uri).await.result()["contents"][0]["uri"], *uri);
        }
        for reference in [
            json!({"type": "ref/prompt", "name": name}),
            json!({"type": "ref/resource", "uri": format!("old+of://{id}/any/{{n}}")}),
        ] {
            let completed = caller.rpc("completion/complete", completion(reference)).await.result();
            assert_eq!(completed["completion"]["values"], json!([r#""x""#]));
        }
    }
    // Another's is not there, in the very words that are said of what nobody has.
    for (caller, id) in [(&alice, &second), (&bob, &first)] {
        let (theirs, nobodys) = (format!("old_of_{id}"), "old_of_none");
        let calls = [
            (caller.call_tool(&theirs, json!({})).await, caller.call_tool(nobodys, json!({})).await),
            (caller.prompt(&theirs, json!({})).await, caller.prompt(nobodys, json!({})).await),
        ];
        for (hidden, absent) in calls {
            assert_eq!(hidden.refusal(), (200, -32602));
            assert_eq!(hidden.text().replace(&theirs, nobodys), absent.text());
        }
        assert_eq!(caller.read(&format!("old+of://{id}/one")).await.refusal(), (200, -32602));
        let reference = json!({"type": "ref/prompt", "name": theirs});
        assert_eq!(caller.rpc("completion/complete", completion(reference)).await.refusal(), (200, -32602));
    }
    let asked = |id: &str| {
        let calls = old.sessions().into_iter().filter(|session| session.id == id).flat_map(|one| one.calls);
        calls.filter(|call| call["method"] == "tools/list").count()
    };
    let ids: Vec<String> = old.sessions().into_iter().map(|session| session.id).collect();
    for id in ids {
        let expected = usize::from(id == first || id == second);
        assert_eq!(asked(&id), expected, "{id}: nothing is listed on the gateway's own account");
    }
    gw.stop().await;
}

#[tokio::test]
async fn clients_of_the_handshake_era_have_the_same_as_their_callers_other_clients() {
    let old = personal().await;
    let (gw, alice, bob) = start(&[old.backend("old", EACH)], |_| {}).await;
    let names = |listed: Value| {
        let tools = listed["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut seen = BTreeSet::new();
    for caller in [&alice, &bob] {
        let session = Session::open(caller, "2025-06-18").await;
        let tools = names(session.rpc("tools/list", json!({})).await.result());
        assert_eq!(tools, caller.tools().await);
        session.call_tool(&tools[0], json!({})).await.result();
        seen.insert(tools[0].clone());
    }
    assert_eq!(seen.len(), 2);
    // Who declares something else has another session, and its lists.
    let views =
        json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}});
    let session = Session::open_with(&alice, "2025-11-25", &views).await;
    let tools = names(session.rpc("tools/list", json!({})).await.result());
    assert!(seen.insert(tools[0].clone()), "{tools:?}");
    session.call_tool(&tools[0], json!({})).await.result();
    for name in &seen {
        let expected = if tools.contains(name) { Value::Null } else { json!(-32602) };
        assert_eq!(session.call_tool(name, json!({})).await.message()["error"]["code"], expected, "{name}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_sessions_is_listed_anew() {
    let old = personal().await;
    let (gw, alice, bob) = start(&[old.backend("old", EACH)], |_| {}).await;
    let (first, other) = (own(&alice.tools().await), own(&bob.tools().await));
    old.forget_sessions();
    // It is called in another session, which has no such thing.
    assert_eq!(alice.call_tool(&format!("old_of_{first}"), json!({})).await.refusal(), (200, -32602));
    eventually("it is listed anew", async || {
        let (one, two) = (own(&alice.tools().await), own(&bob.tools().await));
        one != first && two != other && one != two
    })
    .await;
    for caller in [&alice, &bob] {
        let name = format!("old_of_{}", own(&caller.tools().await));
        caller.call_tool(&name, json!({})).await.result();
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_modern_server_is_asked_once_for_each_caller_however_many_requests_wait() {
    let up = Upstream::start().await;
    lists(&up, &["for_alice"]);
    up.instructions("For alice.");
    let (gw, alice, bob) = start(&[up.backend("up", EACH)], |_| {}).await;
    up.behave("server/discover", Behaviour::Late(Duration::from_millis(100)));
    let all = join_all((0..50).map(|_| alice.tools())).await;
    assert!(all.iter().all(|tools| *tools == ["up_for_alice"]), "{all:?}");
    assert_eq!(listings(&up), 1);
    lists(&up, &["for_bob"]);
    up.instructions("For bob.");
    for (caller, said) in [(&alice, "For alice."), (&bob, "For bob."), (&alice, "For alice.")] {
        let discovered = caller.rpc("server/discover", json!({})).await.result();
        assert_eq!(discovered["instructions"], said);
    }
    assert_eq!(bob.tools().await, ["up_for_bob"]);
    assert_eq!(alice.tools().await, ["up_for_alice"]);
    bob.call_tool("up_for_bob", json!({})).await.result();
    assert_eq!(bob.call_tool("up_for_alice", json!({})).await.refusal(), (200, -32602));
    assert_eq!(alice.call_tool("up_for_bob", json!({})).await.refusal(), (200, -32602));
    assert_eq!(listings(&up), 2);
    // The same person with other rights is the same caller.
    assert_eq!(gw.caller("acme", "alice", "crm.read").tools().await, ["up_for_alice"]);
    assert_eq!(listings(&up), 2);
    gw.stop().await;
}

#[tokio::test]
async fn two_tenants_with_the_same_server_and_the_same_person_share_nothing() {
    let old = personal().await;
    let backends = old.backend("old", EACH);
    let tenants = acme_and_other(std::slice::from_ref(&backends))
        .replace("  other:\n", &format!("  other:\n    backends: {{{backends}}}\n"));
    let gw = Gateway::start(&tenants).await;
    let (here, there) = (gw.caller("acme", "alice", ""), gw.caller("other", "alice", ""));
    let (first, second) = (own(&here.tools().await), own(&there.tools().await));
    assert_ne!(first, second);
    assert_eq!(there.call_tool(&format!("old_of_{first}"), json!({})).await.refusal(), (200, -32602));
    assert_eq!(own(&here.tools().await), first);
    gw.stop().await;
}

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A server that says what changes, and what it then lists to whom, as the test has it.
async fn telling() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.capabilities(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
    upstream.resource("note://a", r#"{"uri":"note://a","name":"a"}"#);
    upstream.handshake(Handshake { listen: 200, ..Handshake::default() });
    upstream
}

#[tokio::test]
async fn what_a_backend_says_is_told_and_whoever_lists_then_sees_it() {
    let up = telling().await;
    let (gw, alice, bob) = start(&[up.backend("up", EACH)], |s| {
        s.limits.keep_alive = Duration::from_millis(100);
        s.limits.open_pause = Duration::from_millis(10);
    })
    .await;
    assert_eq!(
        (alice.tools().await, bob.tools().await),
        (vec!["up_echo".to_owned()], vec!["up_echo".into()])
    );
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["up+note://a"]}"#;
    let (mut modern, params) = listen(&alice, "1", filter).await;
    // The gateway's own subscriptions know nothing of single callers.
    assert_eq!(params["notifications"], json!({"toolsListChanged": true}));
    let session = Session::open(&bob, "2025-11-25").await;
    let mut old = session.listen().await;
    assert_eq!(old.head().await.status, 200);
    let answer = session.rpc("resources/subscribe", json!({"uri": "up+note://a"})).await;
    assert_eq!(answer.refusal(), (200, -32602), "{}", answer.text());
    for round in ["one", "two", "three"] {
        up.tool(round, &format!(r#"{{"name":"{round}","inputSchema":{{"type":"object"}}}}"#));
        eventually("it hears it", async || up.say(TOOLS) > 0).await;
        for open in [&mut modern, &mut old] {
            assert_eq!(message(open).await.unwrap()["method"], "notifications/tools/list_changed");
        }
        for caller in [&alice, &bob] {
            let tools = caller.tools().await;
            assert!(tools.contains(&format!("up_{round}")), "{round}: {tools:?}");
        }
    }
    let before = listings(&up);
    alice.tools().await;
    assert_eq!(listings(&up), before, "it is asked again only where something was said");
    drop((modern, old));
    gw.stop().await;
}

#[tokio::test]
async fn a_backend_that_hangs_or_fails_costs_its_callers_its_own_entries_alone() {
    let (good, bad) = tokio::join!(Upstream::start(), telling());
    bad.behave("tools/list", Behaviour::Hang).behave("resources/list", Behaviour::Hang);
    bad.behave("resources/templates/list", Behaviour::Hang);
    let backends = [bad.backend("bad", EACH), good.backend("good", "")];
    let (gw, alice, bob) = start(&backends, |s| {
        s.limits.caller_catalog_time = Duration::from_millis(300);
        s.limits.list_time = Duration::from_secs(2);
        s.limits.catalog_grace = Duration::from_secs(3);
    })
    .await;
    let began = Instant::now();
    let listed = alice.rpc("tools/list", json!({})).await.result();
    assert!(began.elapsed() >= Duration::from_millis(300), "the first request waits");
    assert_eq!(
        (listed["tools"][0]["name"].as_str(), listed["ttlMs"].as_u64()),
        (Some("good_echo"), Some(1_000))
    );
    let again = Instant::now();
    alice.call_tool("good_echo", json!({})).await.result();
    assert_eq!(alice.tools().await, ["good_echo"]);
    assert!(again.elapsed() < Duration::from_millis(250), "no other one does: {:?}", again.elapsed());
    eventually("it is counted", async || {
        metric(&gw, r#"fondaco_caller_catalog_loads_total{outcome="failed"}"#).await > 0
    })
    .await;
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        bad.behave(method, Behaviour::Echo);
    }
    let both = ["bad_echo", "good_echo"];
    eventually("it is tried again", async || alice.tools().await == both).await;
    assert_eq!(alice.rpc("tools/list", json!({})).await.result()["ttlMs"], 60_000);
    // What it had stays while it fails, and leaves when it has failed for long.
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        bad.behave(method, Behaviour::Error(200, r#"{"code":-32603,"message":"no"}"#.to_owned()));
    }
    eventually("it hears it", async || bad.say(TOOLS) > 0).await;
    let fails = async || metric(&gw, r#"fondaco_caller_catalog_loads_total{outcome="failed"}"#).await;
    let before = fails().await;
    eventually("it fails", async || {
        assert_eq!(alice.tools().await, both);
        fails().await > before
    })
    .await;
    eventually("what it had leaves", async || alice.tools().await == ["good_echo"]).await;
    assert_eq!(bob.tools().await, ["good_echo"]);
    gw.stop().await;
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_the_one_that_was_not_asked_for_longest_leaves() {
    let up = Upstream::start().await;
    let backends = [up.backend("up", EACH)];
    // A tenant's is a quarter of that.
    let (gw, alice, bob) = start(&backends, |s| s.limits.caller_catalogs = 8).await;
    let carol = gw.caller("acme", "carol", "");
    for (caller, expected) in [(&alice, 1), (&bob, 2), (&alice, 2), (&carol, 3), (&alice, 3), (&bob, 4)] {
        assert_eq!(caller.tools().await, ["up_echo"]);
        assert_eq!(listings(&up), expected);
    }
    assert_eq!(metric(&gw, "fondaco_caller_catalog_evictions_total").await, 2);
    assert_eq!(metric(&gw, "fondaco_caller_catalogs").await, 2);
    gw.stop().await;

    // By what they weigh: a tenant's share is four of these, and not five.
    let long = "x".repeat(2_000);
    up.tool(
        "long",
        &format!(r#"{{"name":"long","description":"{long}","inputSchema":{{"type":"object"}}}}"#),
    );
    let (gw, alice, bob) = start(&backends, |s| s.limits.caller_catalog_bytes = 400 << 10).await;
    let before = listings(&up);
    let more: Vec<Caller> = ["c", "d", "e"].map(|name| gw.caller("acme", name, "")).into();
    let all = [(&alice, 1), (&alice, 1), (&bob, 2), (&more[0], 3), (&more[1], 4), (&alice, 4)];
    for (caller, expected) in all.into_iter().chain([(&more[2], 5), (&alice, 5), (&bob, 6)]) {
        assert_eq!(caller.tools().await.len(), 2);
        assert_eq!(listings(&up) - before, expected);
    }
    assert_eq!(metric(&gw, "fondaco_caller_catalogs").await, 4);
    let weight = metric(&gw, "fondaco_caller_catalog_bytes").await;
    assert!((80 << 10..=100 << 10).contains(&weight), "{weight}");
    gw.stop().await;

    // What is more than a caller's share is not kept at all, and costs what is in it.
    let (gw, alice, _) = start(&backends, |s| s.limits.caller_catalog_bytes = 64 << 10).await;
    assert!(alice.tools().await.is_empty());
    assert_eq!(metric(&gw, "fondaco_caller_catalog_bytes").await, 0);
    gw.stop().await;

    let (gw, alice, _) =
        start(&backends, |s| s.limits.caller_catalog_idle = Duration::from_millis(200)).await;
    assert_eq!(alice.tools().await.len(), 2);
    eventually("who does not ask any more is forgotten", async || {
        metric(&gw, "fondaco_caller_catalogs").await == 0
    })
    .await;
    assert_eq!(metric(&gw, "fondaco_caller_catalog_bytes").await, 0);
    gw.stop().await;
}

#[tokio::test]
async fn what_all_share_keeps_its_names_whatever_the_order() {
    let (each, all) = tokio::join!(Upstream::start(), Upstream::start());
    lists(&each, &["echo", "mine", "show"]);
    all.tool(
        "show",
        r#"{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://v"}}}"#,
    );
    each.resource("x://1", r#"{"uri":"x://1","name":"theirs"}"#);
    each.resource("x://2", r#"{"uri":"x://2","name":"theirs"}"#);
    all.resource("x://1", r#"{"uri":"x://1","name":"shared"}"#);
    let backends = [
        each.backend("each", r#", prefix: "", catalog: per_caller"#),
        all.backend("all", r#", prefix: """#),
        all.backend("apps", r#", prefix: "apps_", uris: prefixed, scopes: {"tool:echo": [x]}"#),
    ];
    let (gw, alice, _) = start(&backends, |_| {}).await;
    assert_eq!(alice.tools().await, ["apps_show", "echo", "mine", "show"]);
    assert_eq!(alice.resources().await, ["apps+x://1", "x://1", "x://2"]);
    let (before, theirs) = (all.asked().len(), each.asked().len());
    alice.call_tool("echo", json!({})).await.result();
    alice.call_tool("show", json!({})).await.result();
    alice.read("x://1").await.result();
    assert_eq!((all.asked().len(), each.asked().len()), (before + 3, theirs));
    alice.call_tool("mine", json!({})).await.result();
    alice.read("x://2").await.result();
    assert_eq!(each.asked().len(), theirs + 2);
    gw.stop().await;
}

// spec: server/utilities/pagination
#[tokio::test]
async fn pages_are_of_what_their_caller_sees_and_open_for_nobody_else() {
    let (each, all) = tokio::join!(Upstream::start(), telling());
    lists(&each, &["b", "d"]);
    all.tool("c", r#"{"name":"c","inputSchema":{"type":"object"}}"#);
    let backends =
        [each.backend("each", r#", prefix: "", catalog: per_caller"#), all.backend("all", r#", prefix: """#)];
    let (gw, alice, bob) = start(&backends, |s| s.limits.page_size = 2).await;
    let page = async |cursor: Value| {
        let page = alice.rpc("tools/list", json!({"cursor": cursor})).await.result();
        let names = page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
        (Value::Array(names.collect()), page["nextCursor"].clone())
    };
    let (names, cursor) = page(Value::Null).await;
    assert_eq!(names, json!(["b", "c"]));
    assert_eq!(bob.rpc("tools/list", json!({"cursor": cursor})).await.refusal(), (200, -32602));
    // A place in the order of names, whatever comes and goes.
    all.tool("a", r#"{"name":"a","inputSchema":{"type":"object"}}"#);
    eventually("it hears it", async || all.say(TOOLS) > 0).await;
    eventually("it is listed", async || page(Value::Null).await.0 == json!(["a", "b"])).await;
    assert_eq!(page(cursor).await, (json!(["d", "echo"]), Value::Null));
    gw.stop().await;
}

#[tokio::test]
async fn what_one_caller_has_makes_no_name_of_another_ambiguous() {
    let (each, all) = tokio::join!(Upstream::start(), Upstream::start());
    all.tool(
        "show",
        r#"{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://v"}}}"#,
    );
    lists(&each, &["show"]);
    let backends = [all.backend("all", ""), each.backend("each", EACH)];
    let (gw, alice, bob) = start(&backends, |_| {}).await;
    assert_eq!(alice.tools().await, ["all_echo", "all_show", "each_show"]);
    lists(&each, &["other"]);
    assert_eq!(bob.tools().await, ["all_echo", "all_show", "each_other"]);
    // The name that a view knows: bob's is one backend's alone.
    bob.call_tool("show", json!({})).await.result();
    assert_eq!(alice.call_tool("show", json!({})).await.refusal(), (200, -32602));
    gw.stop().await;
}

// spec: row T32; server/utilities/caching, cacheScope
#[tokio::test]
async fn nothing_of_it_is_for_shared_caches_or_for_other_callers() {
    let up = Upstream::start().await;
    up.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    let says = |text: &str| {
        let result = format!(
            r#"{{"resultType":"complete","contents":[{{"uri":"x://1","text":"{text}"}}],"ttlMs":600000,"cacheScope":"public"}}"#
        );
        up.behave("x://1", Behaviour::Result(result));
    };
    for (more, scope, second) in [("", "public", "alice's"), (EACH, "private", "bob's")] {
        let tenants = acme_and_other(&[up.backend("up", more)])
            .replace("scope_implies: {crm.admin: [crm.read, crm.secret]}", "public_catalog: true");
        let gw = Gateway::start(&tenants).await;
        let at = |subject: &str| gw.caller_at("/t/acme/mcp", "acme", subject, "");
        let (alice, bob) = (at("alice"), at("bob"));
        for method in ["tools/list", "resources/list", "server/discover"] {
            assert_eq!(alice.rpc(method, json!({})).await.result()["cacheScope"], scope, "{method}");
        }
        says("alice's");
        let read = alice.read("up+x://1").await.result();
        assert_eq!((&read["contents"][0]["text"], &read["cacheScope"]), (&json!("alice's"), &json!(scope)));
        says("bob's");
        assert_eq!(bob.read("up+x://1").await.result()["contents"][0]["text"], second);
        assert_eq!(alice.read("up+x://1").await.result()["contents"][0]["text"], "alice's", "hers is kept");
        gw.stop().await;
    }
}

/// What is stored of tenant `acme`.
fn stored(data: &Path) -> String {
    std::fs::read_to_string(data.join("catalogs/acme.json")).unwrap_or_default()
}

#[tokio::test]
async fn nothing_of_it_is_stored_and_a_reload_turns_it_on_and_off() {
    let (up, sibling) = tokio::join!(Upstream::start(), Upstream::start());
    up.tool("special", r#"{"name":"special","inputSchema":{"type":"object"}}"#);
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("tenants.yaml"), dir.path().join("data"));
    let with = |addr: &str, more: &str| {
        let backends = [up.backend("up", &format!(r#", prefix: ""{more}"#)), sibling.backend("sibling", "")];
        let text = acme_and_other(&backends).replace("{issuer}", &format!("http://{addr}/dev-issuer"));
        std::fs::write(&file, text.split_once("tenants:").map(|(_, all)| format!("tenants:{all}")).unwrap())
            .unwrap();
    };
    let shared = "issuers: [{issuer: '{issuer}', tenant_claim: tenant}]\ntenants: {}";
    let gw = Gateway::start_with(shared, |s| {
        with(&s.listen.to_string(), "");
        s.tenants = Some(file.clone());
        s.data_dir = data.clone();
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    let everything = ["echo", "sibling_echo", "special"];
    assert_eq!(alice.tools().await, everything);
    eventually("it is stored", async || stored(&data).contains("special")).await;
    let addr = gw.addr.to_string();
    // Whether one more caller costs the server one more listing.
    let is_each = async |name: String| {
        let before = listings(&up);
        assert_eq!(gw.caller("acme", &name, "").tools().await, everything);
        listings(&up) > before
    };
    assert!(!is_each("bob".to_owned()).await);
    with(&addr, EACH);
    let n = std::cell::Cell::new(0);
    let next = || {
        n.set(n.get() + 1);
        format!("carol{}", n.get())
    };
    eventually("it lists for each", async || is_each(next()).await && is_each(next()).await).await;
    eventually("nothing is stored of it", async || {
        !stored(&data).contains("special") && stored(&data).contains("sibling_echo")
    })
    .await;
    with(&addr, "");
    eventually("all share it", async || !is_each(next()).await && !is_each(next()).await).await;
    eventually("it is stored again", async || stored(&data).contains("special")).await;
    with(&addr, EACH);
    eventually("it lists for each", async || is_each(next()).await && is_each(next()).await).await;
    eventually("nothing is stored of it", async || !stored(&data).contains("special")).await;
    gw.stop().await;
    assert!(!stored(&data).contains("special"), "nor at the end");
}

#[tokio::test]
async fn a_change_that_a_call_shows_is_listed_for_its_caller_before_it_is_tried_again() {
    let up = Upstream::start().await;
    let tool = |schema: &str| format!(r#"{{"name":"region","inputSchema":{{"type":"object"{schema}}}}}"#);
    up.tool("region", &tool(""));
    up.behave("region", Behaviour::Mirrored("mcp-param-region"));
    let (gw, alice, _) = start(&[up.backend("up", EACH)], |_| {}).await;
    assert_eq!(alice.tools().await, ["up_echo", "up_region"]);
    up.tool("region", &tool(r#","properties":{"region":{"type":"string","x-mcp-header":"Region"}}"#));
    let headers = alice.headers("tools/call", Some("up_region"));
    let params = r#","name":"up_region","arguments":{"region":"eu"}"#;
    let answer = alice.post(&headers, &text("1", "tools/call", params, "")).await;
    // What it needs is known now, and the client has to send it, too.
    assert!(
        answer.message()["result"].is_object() || answer.message()["error"]["code"] == -32020,
        "{}",
        answer.text()
    );
    assert_eq!(listings(&up), 2);
    gw.stop().await;
}
