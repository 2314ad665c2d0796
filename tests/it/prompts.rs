//! Prompts and completion through the front door.

use tokio::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Answer;

const GREET: &str = r#"{"name":"greet","arguments":[{"name":"whom","required":true},{"name":"how"}]}"#;

/// A server with the prompt `greet`.
async fn server() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", GREET);
    upstream
}

/// The params of the last request of this method.
fn last(upstream: &Upstream, method: &str) -> Option<Value> {
    let of = |request: &&Received| request.header("mcp-method") == [method];
    upstream.requests().iter().rev().find(of).map(|request| request.json()["params"].clone())
}

// LT-08, LT-14: two backends with prompts of the same name.
#[tokio::test]
async fn prompts_are_listed_and_got_under_public_names() {
    let (crm, wiki, late) = (server().await, server().await, server().await);
    wiki.prompt("plain", r#"{"name":"plain"}"#);
    let none = ", prefix: \"\"";
    let backends = [crm.backend("crm", ""), wiki.backend("wiki", none), late.backend("late", none)];
    let gw = Gateway::start_with(&acme_and_other(&backends), |s| s.limits.page_size = 2).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.prompts().await, ["crm_greet", "greet", "plain"]);
    for (name, upstream, own) in
        [("crm_greet", &crm, "greet"), ("greet", &wiki, "greet"), ("plain", &wiki, "plain")]
    {
        let got = alice.prompt(name, json!({"whom": "Bob"})).await.result();
        assert_eq!(got["messages"][0]["content"]["text"], r#"{"whom":"Bob"}"#, "{name}");
        let params = last(upstream, "prompts/get").unwrap();
        assert_eq!((&params["name"], &params["arguments"]), (&json!(own), &json!({"whom": "Bob"})), "{name}");
    }
    assert_eq!(last(&late, "prompts/get"), None, "the first backend that claims a name owns it");
    // Byte for byte there and back.
    let arguments = r#"{"whom":"\ud83d\ude00 \u0041","y":"1e400"}"#;
    let body = text(
        "1",
        "prompts/get",
        &format!(r#","name":"crm_greet","arguments":{arguments},"n":9007199254740993"#),
        "",
    );
    let answer = alice.post(&alice.headers("prompts/get", Some("crm_greet")), &body).await;
    let sent = crm.requests().pop().unwrap().body;
    assert!(sent.contains(&format!(r#""arguments":{arguments},"n":9007199254740993"#)), "{sent}");
    assert_eq!(answer.result()["messages"][0]["content"]["text"], arguments);
    gw.stop().await;
}

// LT-14
#[tokio::test]
async fn unknown_prompts_and_wrong_arguments_are_refused() {
    let crm = server().await;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    for (params, expected) in [
        (json!({"name": "nope"}), (200, -32602)),
        (json!({"name": "greet", "arguments": {"whom": "x"}}), (200, -32602)),
        (json!({"name": "crm_echo"}), (200, -32602)),
        (json!({}), (400, -32602)),
        (json!({"name": "crm_greet"}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {}}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {"how": "x"}}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {"whom": 5}}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {"whom": null}}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {"whom": "x", "more": {}}}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": []}), (400, -32602)),
        (json!({"name": "crm_greet", "arguments": {"whom": "x"}, "requestState": "s"}), (200, -32602)),
        (json!({"name": "crm_greet", "arguments": {"whom": "x"}, "inputResponses": 1}), (400, -32602)),
    ] {
        let answer = alice.rpc("prompts/get", params.clone()).await;
        assert_eq!(answer.refusal(), expected, "{params}: {}", answer.text());
    }
    let missing = alice.prompt("crm_greet", json!({})).await.message();
    assert_eq!(missing["error"]["message"], "the prompt needs the argument \"whom\", a string");
    assert_eq!(last(&crm, "prompts/get"), None, "nobody was asked");
    gw.stop().await;
}

// LT-14
#[tokio::test]
async fn a_prompt_has_so_many_arguments_and_they_are_looked_for_once() {
    let crm = Upstream::start().await;
    let prompt = |name: &str, count: usize| {
        let arguments: Vec<_> =
            (0..count).map(|n| json!({"name": format!("a{n}"), "required": true})).collect();
        json!({"name": name, "arguments": arguments}).to_string()
    };
    crm.prompt("one", &prompt("one", 1));
    crm.prompt("many", &prompt("many", 256)).prompt("more", &prompt("more", 257));
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.prompts().await, ["crm_many", "crm_one"]);
    let filler = (0..50_000).map(|n| (format!("filler number {n}"), json!("a value of some length")));
    let mut arguments: serde_json::Map<String, Value> = filler.collect();
    let missing = async |name: &str, arguments: &serde_json::Map<String, Value>, lacks: &str| {
        let began = Instant::now();
        let answer = alice.prompt(name, json!(arguments)).await.message();
        let said = format!("the prompt needs the argument \"{lacks}\", a string");
        assert_eq!(answer["error"]["message"], said);
        began.elapsed()
    };
    let one = missing("crm_one", &arguments, "a0").await;
    arguments.extend((0..255).map(|n| (format!("a{n}"), json!("x"))));
    let many = missing("crm_many", &arguments, "a255").await;
    assert!(many < one * 5, "as long for many as for one: {many:?}, {one:?}");
    arguments.insert("a255".to_owned(), json!("x"));
    alice.prompt("crm_many", json!(arguments)).await.result();
    gw.stop().await;
}

/// An answer whole, but for its date and what was asked for.
fn normal(answer: &Answer, name: &str) -> (u16, String) {
    (answer.status, answer.text().replace(name, "NAME"))
}

// LT-04, LT-14, LT-15: lists, gets and completions agree about every caller.
#[tokio::test]
async fn scopes_guard_lists_gets_and_completions_alike() {
    let crm = server().await;
    crm.prompt("secret", r#"{"name":"secret"}"#).template("s:{x}", r#"{"uriTemplate":"s:{x}","name":"n"}"#);
    let rules = r#", prefix: "", scopes: {"prompt:secret": [crm.secret], "resource:s:*": [crm.secret]}"#;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", rules)])).await;
    for (scopes, listed) in [("", &["greet"][..]), ("crm.secret", &["greet", "secret"])] {
        let alice = gw.caller("acme", "alice", scopes);
        assert_eq!(alice.prompts().await, listed);
        let allowed = listed.len() == 2;
        let answers = [
            alice.prompt("secret", json!({})).await,
            complete(&alice, json!({"type": "ref/prompt", "name": "secret"})).await,
            complete(&alice, json!({"type": "ref/resource", "uri": "s:{x}"})).await,
        ];
        for answer in answers {
            match allowed {
                true => drop(answer.result()),
                false => assert_eq!(answer.refusal(), (403, 0), "{}", answer.text()),
            }
        }
    }
    // What is another tenant's is like what is nobody's, whatever else is wrong.
    let bob = gw.caller("other", "bob", "crm.secret");
    assert_eq!(bob.prompts().await, Vec::<String>::new());
    for arguments in [json!({}), json!({"whom": "x"})] {
        let theirs = normal(&bob.prompt("greet", arguments.clone()).await, "greet");
        assert_eq!(theirs, normal(&bob.prompt("absent", arguments).await, "absent"));
        assert_eq!(theirs.0, 200);
    }
    for (key, kind, names) in
        [("name", "ref/prompt", ["greet", "absent"]), ("uri", "ref/resource", ["s:{x}", "t:{x}"])]
    {
        let [theirs, nobodys] =
            names.map(async |name| normal(&complete(&bob, json!({"type": kind, key: name})).await, name));
        assert_eq!(theirs.await, nobodys.await);
    }
    assert!(last(&crm, "prompts/get").is_some_and(|params| params["name"] == "secret"));
    gw.stop().await;
}

/// A completion of this reference.
async fn complete(caller: &Caller, reference: Value) -> Answer {
    let params = json!({"ref": reference, "argument": {"name": "whom", "value": "A"}});
    caller.rpc("completion/complete", params).await
}

// LT-15
#[tokio::test]
async fn completions_reach_their_backend_under_its_own_names() {
    let crm = server().await;
    crm.template("x://{n}", r#"{"uriTemplate":"x://{n}","name":"n"}"#);
    crm.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    for (reference, own) in [
        (
            json!({"type": "ref/prompt", "name": "crm_greet", "title": "T"}),
            json!({"type": "ref/prompt", "name": "greet", "title": "T"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "crm+x://{n}"}),
            json!({"type": "ref/resource", "uri": "x://{n}"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "crm+x://1"}),
            json!({"type": "ref/resource", "uri": "x://1"}),
        ),
        // What was not proven is not told.
        (
            json!({"name": "secret", "uri": "crm+x://1", "title": "T", "uriTemplate": "s:{x}", "type": "ref/resource"}),
            json!({"type": "ref/resource", "uri": "x://1"}),
        ),
        (
            json!({"uri": "x://2", "name": "crm_greet", "title": 7, "id": "secret", "type": "ref/prompt"}),
            json!({"type": "ref/prompt", "name": "greet"}),
        ),
    ] {
        let mut params = json!({"ref": reference, "argument": {"name": "whom", "value": "A", "y": 1}});
        params["context"] = json!({"arguments": {"how": "well"}});
        let answer = alice.rpc("completion/complete", params.clone()).await;
        assert_eq!(answer.result()["completion"]["values"], json!(["\"A\""]), "{reference}");
        let sent = last(&crm, "completion/complete").unwrap();
        assert_eq!(sent["ref"], own);
        assert_eq!((&sent["argument"], &sent["context"]), (&params["argument"], &params["context"]));
        assert!(crm.requests().pop().unwrap().header("mcp-name").is_empty());
    }
    let asked = crm.asked().len();
    let argument = json!({"name": "whom", "value": ""});
    let greet = json!({"type": "ref/prompt", "name": "crm_greet"});
    for (params, expected) in [
        (json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": argument}), (200, -32602)),
        (json!({"ref": {"type": "ref/prompt", "name": "crm_echo"}, "argument": argument}), (200, -32602)),
        (json!({"ref": {"type": "ref/resource", "uri": "x://{n}"}, "argument": argument}), (200, -32602)),
        (json!({"ref": {"type": "ref/resource", "uri": "crm+x://7"}, "argument": argument}), (200, -32602)),
        (json!({"ref": {"type": "ref/tool", "name": "crm_echo"}, "argument": argument}), (400, -32602)),
        (json!({"ref": {"type": "ref/prompt"}, "argument": argument}), (400, -32602)),
        (json!({"ref": {"type": "ref/prompt", "uri": "crm+x://1"}, "argument": argument}), (400, -32602)),
        (
            json!({"ref": {"type": "ref/prompt", "name": "crm_greet", "Name": "x"}, "argument": argument}),
            (400, -32602),
        ),
        (json!({"ref": "greet", "argument": argument}), (400, -32602)),
        (json!({"argument": argument}), (400, -32602)),
        (json!({"ref": greet}), (400, -32602)),
        (json!({"ref": greet, "argument": {"name": "whom"}}), (400, -32602)),
        (json!({"ref": greet, "argument": {"name": "whom", "value": 7}}), (400, -32602)),
        (json!({"ref": greet, "argument": {"value": ""}}), (400, -32602)),
        (json!({"ref": greet, "argument": argument, "context": 7}), (400, -32602)),
        (json!({"ref": greet, "argument": argument, "context": {"arguments": {"a": 1}}}), (400, -32602)),
        (json!({"ref": greet, "Argument": argument}), (400, -32600)),
    ] {
        let answer = alice.rpc("completion/complete", params.clone()).await;
        assert_eq!(answer.refusal(), expected, "{params}: {}", answer.text());
    }
    assert_eq!(crm.asked().len(), asked, "nobody was asked");
    gw.stop().await;
}

// LT-15
#[tokio::test]
async fn suggestions_are_at_most_a_hundred_and_honest() {
    let crm = server().await;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    let greet = || json!({"type": "ref/prompt", "name": "crm_greet"});
    let many = |count: usize| json!((0..count).map(|n| format!("v{n}")).collect::<Vec<_>>());
    for (completion, kept, total, more) in [
        (json!({"values": many(100)}), 100, Value::Null, Value::Null),
        (json!({"values": many(3), "total": 7, "hasMore": true}), 3, json!(7), json!(true)),
        (json!({"values": many(101)}), 100, json!(101), json!(true)),
        (json!({"values": many(250), "hasMore": false}), 100, json!(250), json!(true)),
        (json!({"values": many(250), "hasMore": true}), 100, Value::Null, json!(true)),
        (json!({"values": many(250), "total": 9_000}), 100, json!(9_000), json!(true)),
        (json!({"values": many(250), "total": 7}), 100, json!(250), json!(true)),
    ] {
        let result = json!({"resultType": "complete", "completion": completion, "x": {"n": 1}}).to_string();
        crm.behave("completion/complete", Behaviour::Result(result));
        let result = complete(&alice, greet()).await.result();
        let got = &result["completion"];
        assert_eq!(got["values"], many(kept));
        assert_eq!((&got["total"], &got["hasMore"], &result["x"]), (&total, &more, &json!({"n": 1})));
    }
    for wrong in
        ["{}", r#"{"completion":[]}"#, r#"{"completion":{"values":{}}}"#, r#"{"completion":{"values":[7]}}"#]
    {
        crm.behave("completion/complete", Behaviour::Result(wrong.to_owned()));
        assert_eq!(complete(&alice, greet()).await.refusal(), (200, -32603), "{wrong}");
    }
    let error = |code: i64| Behaviour::Error(200, format!(r#"{{"code":{code},"message":"m"}}"#));
    crm.behave("completion/complete", error(-32601));
    let nothing = complete(&alice, greet()).await.result();
    assert_eq!(nothing["completion"], json!({"values": [], "total": 0, "hasMore": false}));
    crm.behave("completion/complete", error(-32602));
    assert_eq!(complete(&alice, greet()).await.refusal(), (200, -32602));
    gw.stop().await;
}

// DV-02
#[tokio::test]
async fn a_list_that_a_backend_does_not_advertise_is_empty() {
    let crm = server().await;
    crm.capabilities(r#"{"tools":{}}"#);
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["crm_echo"]);
    assert_eq!(alice.prompts().await, Vec::<String>::new());
    let discovered = alice.rpc("server/discover", json!({})).await.result();
    let listed = json!({"listChanged": true});
    let resources = json!({"subscribe": true, "listChanged": true});
    let expected =
        json!({"tools": listed, "prompts": listed, "resources": resources, "completions": {}, "logging": {}});
    assert_eq!(discovered["capabilities"], expected);
    assert_eq!(last(&crm, "prompts/list"), None);
    gw.stop().await;
}
