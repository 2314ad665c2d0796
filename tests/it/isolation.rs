//! Tenants and callers are kept apart: no answer, cursor, token or name of one reaches another.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Answer;

/// Clients of each tenant that call at the same time.
const CLIENTS: usize = 32;

/// How often each of them calls: 2,048 calls together.
const ROUNDS: usize = 32;

/// Two tenants of the same form; `scopes` are both their backends'.
fn tenants(acme: &Upstream, globex: &Upstream, scopes: &str) -> String {
    let tenant = |name: &str, upstream: &Upstream| {
        format!(
            r#"
  {name}:
    issuers: [{{shared: "{{issuer}}"}}]
    scope_implies: {{crm.admin: [crm.read, crm.write]}}
    backends: {{crm: {{kind: mcp, url: "{}", prefix: "", scopes: {{{scopes}}}}}}}"#,
            upstream.url()
        )
    };
    format!(
        "issuers: [{{issuer: \"{{issuer}}\", tenant_claim: tenant}}]\ntenants:{}{}\n",
        tenant("acme", acme),
        tenant("globex", globex)
    )
}

fn add(upstream: &Upstream, name: &str) {
    upstream.tool(name, &format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
}

/// Calls in step with the other clients of its tenant: all of a round wait for the last.
async fn client(caller: Caller, tenant: &'static str, n: usize) {
    for round in 0..ROUNDS {
        let marker = format!("{tenant}-{n}-{round}");
        let answer = caller.call_tool("echo", json!({"marker": marker})).await;
        let message = answer.message();
        assert_eq!(message["id"], 1);
        assert_eq!(message["result"]["structuredContent"]["marker"], marker, "{}", answer.text());
        assert_eq!(message["result"]["content"][0]["text"], tenant, "{}", answer.text());
    }
}

#[tokio::test]
async fn answers_in_reverse_order_reach_those_who_asked() {
    let (acme, globex) = tokio::join!(Upstream::start(), Upstream::start());
    acme.behave("echo", Behaviour::Reversed(CLIENTS, "acme".into()));
    globex.behave("echo", Behaviour::Reversed(CLIENTS, "globex".into()));
    let gw = Gateway::start(&tenants(&acme, &globex, "")).await;
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        // The same people, by both tenants' tokens, at both kinds of endpoint.
        let (subject, shared) = (format!("user-{}", n / 2), n % 2 == 0);
        for (tenant, path) in [("acme", "/t/acme/mcp"), ("globex", "/t/globex/mcp")] {
            let caller = gw.caller_at(if shared { "/mcp" } else { path }, tenant, &subject, "");
            clients.spawn(client(caller, tenant, n));
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    for upstream in [&acme, &globex] {
        let ids = upstream.requests().into_iter().filter(|request| request.header("mcp-name") == ["echo"]);
        let mut ids: Vec<_> = ids.map(|request| request.json()["id"].as_u64().unwrap()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!((ids.len(), count), (CLIENTS * ROUNDS, CLIENTS * ROUNDS), "upstream ids are ours");
    }
    gw.stop().await;
}

/// On which connections calls of this tool arrived.
fn connections(upstream: &Upstream, tool: &str) -> BTreeSet<usize> {
    let requests = upstream.requests();
    requests.iter().filter(|r| r.header("mcp-name") == [tool]).map(|r| r.connection).collect()
}

#[tokio::test]
async fn tenants_of_one_server_share_no_connection() {
    let upstream = Upstream::start().await;
    ["a", "b"].iter().for_each(|name| add(&upstream, name));
    let gw = Gateway::start(&tenants(&upstream, &upstream, "")).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    for _ in 0..10 {
        alice.call_tool("a", json!({})).await.result();
        bob.call_tool("b", json!({})).await.result();
    }
    let (a, b) = (connections(&upstream, "a"), connections(&upstream, "b"));
    assert!(a.is_disjoint(&b), "what is left of an answer must not meet another tenant: {a:?} {b:?}");
    assert!(a.len() + b.len() < 10, "connections are kept: {a:?} {b:?}");
    gw.stop().await;
}

#[tokio::test]
async fn a_connection_that_gave_a_wrong_answer_gives_no_other() {
    let upstream = Upstream::start().await;
    let gw = Gateway::start(&tenants(&upstream, &upstream, "")).await;
    let alice = gw.caller("acme", "alice", "");
    for wrong in [
        Behaviour::WrongId,
        Behaviour::StringId,
        Behaviour::HalfJson,
        Behaviour::Result("[]".into()),
        Behaviour::Error(500, "{}".into()),
    ] {
        upstream.behave("echo", Behaviour::Once(Box::new(wrong)));
        let answer = alice.call_tool("echo", json!({})).await;
        assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
        let last = || upstream.asked().pop().map(|request| request.connection);
        let distrusted = last();
        alice.call_tool("echo", json!({})).await.result();
        assert_ne!(last(), distrusted, "answers may be out of step");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_cursor_opens_for_nobody_else() {
    let (acme, globex) = tokio::join!(Upstream::start(), Upstream::start());
    for upstream in [&acme, &globex] {
        ["a", "b"].iter().for_each(|name| add(upstream, name));
    }
    let gw = Gateway::start_with(&tenants(&acme, &globex, ""), |s| s.limits.page_size = 1).await;
    let alice = gw.caller("acme", "alice", "");
    let page = alice.rpc("tools/list", json!({})).await.result();
    let cursor = page["nextCursor"].as_str().unwrap().to_owned();
    let next =
        async |caller: &Caller, cursor: &str| caller.rpc("tools/list", json!({"cursor": cursor})).await;

    let again = next(&alice, &cursor).await.result();
    assert_eq!(again["tools"][0]["name"], "b");
    let strangers = [gw.caller("acme", "bob", ""), gw.caller("globex", "alice", "")];
    let theirs = strangers[1].rpc("tools/list", json!({})).await.result();
    let theirs = theirs["nextCursor"].as_str().unwrap().to_owned();
    let invalid = next(&alice, "nonsense").await;
    assert_eq!(invalid.refusal(), (200, -32602), "{}", invalid.text());
    for (caller, cursor) in [(&strangers[0], &cursor), (&strangers[1], &cursor), (&alice, &theirs)] {
        let answer = next(caller, cursor).await;
        assert_eq!((answer.status, answer.text()), (200, invalid.text()), "a stranger's is like nonsense");
    }
    assert_eq!(alice.tools().await, ["a", "b", "echo"]);
    gw.stop().await;
}

#[tokio::test]
async fn a_token_is_good_for_its_tenant_and_endpoint_alone() {
    let (acme, globex) = tokio::join!(Upstream::start(), Upstream::start());
    let gw = Gateway::start(&tenants(&acme, &globex, "")).await;
    let at = |path: &str, token: Caller| Caller { path: path.to_owned(), ..token };
    for (what, wrong) in [
        ("a tenant's own token", at("/t/globex/mcp", gw.caller_at("/t/acme/mcp", "acme", "alice", ""))),
        ("a shared token", at("/t/globex/mcp", gw.caller("acme", "alice", ""))),
        ("the right resource, the wrong tenant", gw.caller_at("/t/globex/mcp", "acme", "alice", "")),
        ("a tenant's token at the shared endpoint", at("/mcp", gw.caller_at("/t/acme/mcp", "acme", "a", ""))),
        ("a tenant that is none", gw.caller("initech", "alice", "")),
    ] {
        let answer = wrong.call_tool("echo", json!({})).await;
        assert_eq!((answer.status, answer.body.len()), (401, 0), "{what}: {}", answer.text());
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains(r#"error="invalid_token""#), "{what}: {challenge}");
    }
    for right in [gw.caller_at("/t/acme/mcp", "acme", "alice", ""), gw.caller("acme", "alice", "")] {
        right.call_tool("echo", json!({})).await.result();
    }
    assert!(globex.requests().is_empty(), "nobody came near the other tenant's backend");
    gw.stop().await;
}

/// An answer whole, but for its date and the name that was asked for.
fn normal(answer: &Answer, name: &str) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter().filter(|(name, _)| name != "date" && name != "content-length");
    (answer.status, headers.cloned().collect(), answer.text().replace(name, "NAME"))
}

#[tokio::test]
async fn what_is_hidden_answers_as_what_is_not_there() {
    let (acme, globex) = tokio::join!(Upstream::start(), Upstream::start());
    add(&globex, "secret");
    let gw = Gateway::start(&tenants(&acme, &globex, r#""*": [crm.read]"#)).await;
    gw.caller("globex", "bob", "crm.read").call_tool("secret", json!({})).await.result();
    for (path, scopes) in [("/mcp", "crm.read"), ("/mcp", ""), ("/t/acme/mcp", "crm.read")] {
        let alice = gw.caller_at(path, "acme", "alice", scopes);
        let mut seen = Vec::new();
        for name in ["secret", "absent", "globex_secret", "crm_secret"] {
            for params in [json!({}), json!({"arguments": {"a": 1}}), json!({"arguments": []})] {
                let mut params = params;
                params["name"] = name.into();
                let sent = params["arguments"].is_array();
                seen.push((sent, normal(&alice.rpc("tools/call", params).await, name)));
            }
        }
        for wrong in [false, true] {
            let mut answers: Vec<_> = seen.iter().filter(|(w, _)| *w == wrong).map(|(_, a)| a).collect();
            answers.dedup();
            assert_eq!(answers.len(), 1, "{path} {scopes:?}: {answers:#?}");
            assert_eq!(answers[0].0, if wrong { 400 } else { 200 });
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn lists_and_calls_agree_about_every_caller_and_tool() {
    let (acme, globex) = tokio::join!(Upstream::start(), Upstream::start());
    for upstream in [&acme, &globex] {
        ["get_one", "delete_one", "delete_all", "free"].iter().for_each(|name| add(upstream, name));
    }
    add(&globex, "theirs");
    let rules =
        r#""*_*": [crm.read], "tool:delete_*": [crm.write], "*_all": [crm.admin], "prompt:*": [never]"#;
    let gw = Gateway::start(&tenants(&acme, &globex, rules)).await;
    let tools = ["delete_all", "delete_one", "echo", "free", "get_one", "theirs", "absent"];
    for (scopes, expected) in [
        ("", &["echo", "free"][..]),
        ("crm.write", &["echo", "free"]),
        ("crm.read", &["echo", "free", "get_one"]),
        ("crm.read crm.write", &["delete_one", "echo", "free", "get_one"]),
        ("crm.admin", &["delete_all", "delete_one", "echo", "free", "get_one"]),
        ("crm.reader CRM.READ crm.*", &["echo", "free"]),
    ] {
        for path in ["/mcp", "/t/acme/mcp"] {
            let caller = gw.caller_at(path, "acme", "alice", scopes);
            let listed = caller.tools().await;
            assert_eq!(listed, expected, "{scopes:?}");
            for tool in tools {
                let answer = caller.call_tool(tool, json!({})).await;
                let shown = format!("{scopes:?} {tool}: {} {}", answer.status, answer.text());
                match listed.iter().any(|name| name == tool) {
                    true => assert_eq!(answer.result()["structuredContent"], Value::Object(<_>::default())),
                    // Within one's own tenant existence is no secret; across tenants it is.
                    false if matches!(tool, "theirs" | "absent") => {
                        assert_eq!(answer.refusal(), (200, -32602), "{shown}");
                    }
                    false => assert_eq!(answer.refusal(), (403, 0), "{shown}"),
                }
            }
        }
    }
    let called = acme.requests().iter().filter(|r| r.header("mcp-name") == ["delete_all"]).count();
    assert_eq!((called, globex.requests().len()), (2, 0));
    gw.stop().await;
}
