//! Resources and their templates through the front door: lists, reads, and the URIs in results.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::eventually;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

/// A server with these resources and templates.
async fn server(resources: &[&str], templates: &[&str]) -> Upstream {
    let upstream = Upstream::start().await;
    for uri in resources {
        upstream.resource(uri, &format!(r#"{{"uri":"{uri}","name":"n"}}"#));
    }
    for template in templates {
        upstream.template(template, &format!(r#"{{"uriTemplate":"{template}","name":"n"}}"#));
    }
    upstream
}

/// The URIs that the server was asked to read.
fn reads(upstream: &Upstream) -> Vec<String> {
    let of = |request: &Received| match request.header("mcp-method")[..] {
        ["resources/read"] => Some(request.json()["params"]["uri"].as_str().unwrap().to_owned()),
        _ => None,
    };
    upstream.requests().iter().filter_map(of).collect()
}

/// The refusal of a resource that is not there: its status, code and `data`.
fn refusal(answer: &Answer) -> (u16, i64, Value) {
    let (status, code) = answer.refusal();
    (status, code, answer.message()["error"]["data"].clone())
}

// LT-13: two backends list the same URIs; each is reached by its own.
#[tokio::test]
async fn resources_are_listed_and_read_under_public_uris() {
    let crm = server(&["x://1", "same://a"], &["x://{n}/all"]).await;
    let wiki = server(&["page://1", "same://a"], &["page://{id}", "page://{id}/raw"]).await;
    let docs = server(&["doc://1", "page://1"], &[]).await;
    let backends = [
        crm.backend("crm", ""),
        wiki.backend("wiki", ", prefix: \"\""),
        docs.backend("docs", ", uris: keep"),
    ];
    let gw = Gateway::start_with(&acme_and_other(&backends), |s| s.limits.page_size = 2).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.resources().await, ["crm+same://a", "crm+x://1", "doc://1", "page://1", "same://a"]);
    assert_eq!(alice.templates().await, ["crm+x://{n}/all", "page://{id}", "page://{id}/raw"]);
    for (uri, upstream, own) in [
        ("crm+x://1", &crm, "x://1"),
        ("crm+same://a", &crm, "same://a"),
        ("crm+x://unlisted", &crm, "x://unlisted"),
        ("same://a", &wiki, "same://a"),
        ("page://1", &wiki, "page://1"),
        ("page://2/raw", &wiki, "page://2/raw"),
        ("doc://1", &docs, "doc://1"),
    ] {
        let before = [reads(&crm), reads(&wiki), reads(&docs)].concat().len();
        let read = alice.read(uri).await.result();
        // The server says its own URI in the text, and where the protocol has it.
        assert_eq!(read["contents"], json!([{"uri": uri, "text": own}]), "{uri}");
        assert_eq!(reads(upstream).last().map(String::as_str), Some(own), "{uri}");
        assert_eq!([reads(&crm), reads(&wiki), reads(&docs)].concat().len(), before + 1, "{uri}");
    }
    for uri in ["x://1", "doc://2", "wiki+page://1", "docs+doc://1", "nobody+x://1", "CRM+x://1"] {
        assert_eq!(refusal(&alice.read(uri).await), (200, -32602, json!({"uri": uri})), "{uri}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn the_only_backend_that_keeps_its_uris_is_asked_for_unknown_ones() {
    let (crm, wiki) = (server(&["x://1"], &[]).await, server(&["page://1"], &[]).await);
    let plain = Upstream::start().await;
    let backends = [
        crm.backend("crm", ""),
        wiki.backend("wiki", ", uris: keep"),
        // Keeps its URIs, and has none.
        plain.backend("plain", ", prefix: \"\""),
    ];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.read("new://7").await.result()["contents"][0]["uri"], "new://7");
    assert_eq!(reads(&wiki), ["new://7"]);
    assert!(reads(&crm).is_empty() && reads(&plain).is_empty());
    gw.stop().await;
}

// LT-13: URIs are validated before anybody is asked.
#[tokio::test]
async fn uris_that_lead_elsewhere_reach_no_backend() {
    let files = server(&["file:///var/log/a"], &["file:///{+path}"]).await;
    let crm = server(&["x://1"], &["x://{+path}"]).await;
    let backends = [files.backend("files", ", uris: keep"), crm.backend("crm", "")];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    let long = format!("file:///{}", "a".repeat(2048));
    for uri in [
        "file:///var/log/../../etc/passwd",
        "file:///var/log/%2e%2e/%2e%2e/etc/passwd",
        "file:///var/log/..%2f..%2fetc/passwd",
        "file:///var/log/%252e%252e/etc/passwd",
        "file:///var/./log",
        "file:///c:\\windows",
        "file:///a%5c..%5cb",
        "file:///a%00b",
        "crm+x://a/../b",
        "crm+../etc/passwd",
        "crm+relative",
        "relative/path",
        "/etc/passwd",
        &long,
    ] {
        let answer = alice.read(uri).await;
        assert_eq!(refusal(&answer), (200, -32602, json!({"uri": uri})), "{uri:.100}");
    }
    assert!(reads(&files).is_empty() && reads(&crm).is_empty());
    alice.read("file:///var/log/b.c/d..e").await.result();
    gw.stop().await;
}

// LT-04, LT-13: lists and reads agree, whoever asks; what is not there is like what is another tenant's.
#[tokio::test]
async fn scopes_guard_lists_and_reads_alike() {
    let crm =
        server(&["note://1", "note://secret/1", "free://1"], &["note://{id}", "note://secret/{id}"]).await;
    let rules = r#", prefix: "", scopes: {"resource:note://*": [crm.read], "note://secret/*": [crm.secret], "tool:*": [never]}"#;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", rules)])).await;
    for (scopes, listed, templates) in [
        ("", &["free://1"][..], &[][..]),
        ("crm.read", &["free://1", "note://1"], &["note://{id}"]),
        ("crm.secret", &["free://1"], &[]),
        ("crm.admin", &["free://1", "note://1", "note://secret/1"], &["note://secret/{id}", "note://{id}"]),
    ] {
        let alice = gw.caller("acme", "alice", scopes);
        assert_eq!(alice.resources().await, listed, "{scopes:?}");
        assert_eq!(alice.templates().await, templates, "{scopes:?}");
        for uri in ["free://1", "note://1", "note://secret/1"] {
            let answer = alice.read(uri).await;
            match listed.contains(&uri) {
                true => assert_eq!(answer.result()["contents"][0]["uri"], uri, "{scopes:?}"),
                false => assert_eq!(answer.refusal(), (403, 0), "{scopes:?} {uri}: {}", answer.text()),
            }
        }
    }
    // A rule holds however a URI is written, and of what is in no list.
    let alice = gw.caller("acme", "alice", "crm.read");
    for uri in ["note://secret/2", "note://%73ecret/2", "NOTE://secret/2", "note://SECRET/2"] {
        let answer = alice.read(uri).await;
        assert_eq!(answer.refusal(), (403, 0), "{uri}: {}", answer.text());
        assert!(answer.header("www-authenticate").unwrap().contains("crm.secret"), "{uri}");
    }
    assert!(!reads(&crm).iter().any(|uri| uri.to_lowercase().contains("ecret/2")));
    // Another tenant's caller cannot tell that any of it is there.
    let bob = gw.caller("other", "bob", "crm.admin crm.read crm.secret");
    let answers = ["note://1", "note://7", "absent://1", "crm+note://1"]
        .map(async |uri| bob.read(uri).await.text().replace(uri, "URI"));
    let answers = futures_util::future::join_all(answers).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert_eq!(bob.resources().await, Vec::<String>::new());
    gw.stop().await;
}

// A backend has the last word on which resource a URI means, so that what needs scopes has one spelling.
#[tokio::test]
async fn no_other_spelling_passes_a_scope_rule() {
    let listed = ["file:///secret/a", "file:///Open/%61//b/", "db://users/rows"];
    let sdk = server(&listed, &["db://{table}/rows", "file:///{+path}"]).await;
    let rules = r#", scopes: {"resource:file:///secret/*": [admin.read], "resource:db://{table}/rows": [db.read], "resource:file:///key.pem": [key.read], "resource:note://Work/*": [notes.read], "resource:https://host.example/x": [web.read]}"#;
    let kept = format!(", uris: keep{rules}");
    let gw = Gateway::start(&acme_and_other(&[sdk.backend("sdk", rules), sdk.backend("kept", &kept)])).await;
    let alice = gw.caller("acme", "alice", "");
    for prefix in ["sdk+", ""] {
        // One that is plain, whatever its case, its escapes, its query and its port, is told from others.
        for uri in [
            "file:///secret/a",
            "FILE:///SECRET/%61",
            "file:///%73ecret%2Fa",
            "file:///key.pem?x",
            "file:///key.pem%23x",
            "file:///key.pem%3fx",
            "DB://users/rows",
            "db://users/%72ows",
            "db://users/rows?x",
            "db://a%2Fb/ro%77s",
            "db://users:1/rows",
            "note://work/a",
            "NOTE://WORK/a",
            "note://work:1/a",
            "https://host.example:8443/x?y",
        ] {
            let answer = alice.read(&format!("{prefix}{uri}")).await;
            assert_eq!(answer.refusal(), (403, 0), "{prefix}{uri}: {}", answer.text());
        }
        for uri in [
            "file://LOCALHOST/secret/a",
            "file:secret/a",
            "file:/secret/a",
            "file:////secret//a",
            "file://elsewhere/secret/a",
            "file:///%2Fsecret/a",
            "file:///%2573ecret/a",
            "file:///secret%0a/a",
            "file:///key.pem#x",
            "file:///key.pem/",
            "file:///key.pem/?x",
            "file:///key.pem;x",
            "db://users//rows",
            "db://users/rows/",
            "db://me@users/rows",
            "db://users./rows",
            "db:/users/rows",
            "https:host.example/x",
            "https://host.example:443/x",
            "https://me@host.example/x",
            "https://host.example./x",
            "https://host.example",
            "note://work/100%",
            "note://work/%c0%af",
        ] {
            let uri = format!("{prefix}{uri}");
            assert_eq!(refusal(&alice.read(&uri).await), (200, -32602, json!({"uri": uri})), "{uri}");
        }
    }
    assert_eq!(reads(&sdk), Vec::<String>::new());
    // What is listed goes on byte for byte, and so does what is plain and needs nothing.
    for own in ["file:///Open/%61//b/", "note://mail/caf%C3%A9?q=http://x//y", "urn:ISBN:1", "x:///a%2Fb"] {
        alice.read(&format!("sdk+{own}")).await.result();
        assert_eq!(reads(&sdk).last().map(String::as_str), Some(own));
    }
    let bob = gw.caller("acme", "bob", "db.read");
    bob.read("sdk+DB://Users/%72ows").await.result();
    assert_eq!(reads(&sdk).last().unwrap(), "DB://Users/%72ows");
    gw.stop().await;
}

#[tokio::test]
async fn params_are_checked_before_the_target() {
    let crm = server(&["x://1"], &[]).await;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", ", uris: keep")])).await;
    let alice = gw.caller("acme", "alice", "");
    for uri in ["x://1", "file:///a/../b"] {
        for (more, expected) in [
            (r#","inputResponses":[]"#, (400, -32602)),
            (r#","requestState":7"#, (400, -32602)),
            (r#","requestState":"forged""#, (200, -32602)),
        ] {
            let body = text("1", "resources/read", &format!(r#","uri":"{uri}"{more}"#), "");
            let answer = alice.post(&alice.headers("resources/read", Some(uri)), &body).await;
            assert_eq!(answer.refusal(), expected, "{uri} {more}");
        }
    }
    for (params, expected) in
        [("", (400, -32602)), (r#","uri":7"#, (400, -32602)), (r#","URI":"x://1""#, (400, -32600))]
    {
        let body = text("1", "resources/read", params, "");
        let answer = alice.post(&alice.headers("resources/read", None), &body).await;
        assert_eq!(answer.refusal(), expected, "{params}");
    }
    assert!(reads(&crm).is_empty());
    gw.stop().await;
}

// LT-13
#[tokio::test]
async fn a_backends_not_found_says_which_uri_was_asked_for() {
    let crm = server(&["x://1"], &[]).await;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    let unknown = json!({"uri": "crm+x://1", "upstreamCode": -32002});
    for (status, error, expected) in [
        (
            200,
            r#"{"code":-32602,"message":"m","data":{"uri":"x://1","a":1e0}}"#,
            (200, -32602, json!({"uri": "crm+x://1", "a": 1e0})),
        ),
        (200, r#"{"code":-32602,"message":"m"}"#, (200, -32602, json!({"uri": "crm+x://1"}))),
        (200, r#"{"code":-32602,"message":"m","data":"x"}"#, (200, -32602, json!({"uri": "crm+x://1"}))),
        (200, r#"{"code":-32002,"message":"m","data":{"uri":"x://1"}}"#, (200, -32602, unknown.clone())),
        (404, r#"{"code":-32002,"message":"m"}"#, (200, -32602, unknown)),
        (
            500,
            r#"{"code":-32603,"message":"m","data":{"uri":"x://1"}}"#,
            (200, -32603, json!({"uri": "x://1"})),
        ),
        (404, r#"{"code":-32601,"message":"m"}"#, (404, -32601, Value::Null)),
    ] {
        crm.behave("x://1", Behaviour::Error(status, error.to_owned()));
        assert_eq!(refusal(&alice.read("crm+x://1").await), expected, "{error}");
    }
    gw.stop().await;
}

// LT-05
#[tokio::test]
async fn a_read_may_be_kept_as_long_as_its_backend_says_and_by_one_caller() {
    let crm = server(&["x://1"], &[]).await;
    let tenants = acme_and_other(&[crm.backend("crm", ", uris: keep")])
        .replace("scope_implies", "public_catalog: true\n    scope_implies");
    let gw = Gateway::start(&tenants).await;
    let callers = [
        (gw.caller("acme", "alice", ""), "private"),
        (gw.caller_at("/t/acme/mcp", "acme", "alice", ""), "public"),
    ];
    for (hints, ttl, public) in [
        ("", 0, false),
        (r#","ttlMs":5000,"cacheScope":"public""#, 5000, true),
        (r#","ttlMs":5000,"cacheScope":"private""#, 5000, false),
        (r#","ttlMs":1.5,"cacheScope":"shared""#, 1, false),
        (r#","ttlMs":-1"#, 0, false),
        (r#","ttlMs":"7""#, 0, false),
        (r#","ttlMs":1e400"#, 3_600_000, false),
    ] {
        crm.behave("x://1", Behaviour::Result(format!(r#"{{"contents":[]{hints}}}"#)));
        for (caller, scope) in &callers {
            let read = caller.read("x://1").await.result();
            let expected = if public { *scope } else { "private" };
            assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(ttl), &json!(expected)), "{hints}");
        }
    }
    for (caller, scope) in &callers {
        for method in ["resources/list", "resources/templates/list", "prompts/list"] {
            let list = caller.rpc(method, json!({})).await.result();
            assert_eq!((&list["ttlMs"], &list["cacheScope"]), (&json!(60_000), &json!(scope)), "{method}");
        }
    }
    gw.stop().await;
}

/// An object without its last brace.
fn open(mut object: String) -> String {
    assert_eq!(object.pop(), Some('}'));
    object
}

/// A result as the client gets it, from its first member to `_meta`, which is ours.
fn relayed(answer: &Answer) -> String {
    let text = answer.text();
    let (_, result) = text.split_once(r#""result":"#).unwrap_or_else(|| panic!("{text}"));
    let (result, _) = result.split_once(r#","_meta":{"io.modelcontextprotocol/serverInfo""#).unwrap();
    result.to_owned()
}

// LT-12, LT-13: URIs change where the protocol has them, and nothing else does.
#[tokio::test]
async fn uris_in_results_become_public_and_everything_else_stays() {
    let crm = server(&["x://1", "https://listed.example/a"], &[]).await;
    crm.prompt("p", r#"{"name":"p"}"#);
    let backends = [crm.backend("crm", ""), crm.backend("kept", ", uris: keep")];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    let blocks = |prefix: &str| {
        [
            r#"{"type":"text","text":"x://1","uri":"x://1"}"#.to_owned(),
            format!(r#"{{"type":"resource_link","uri":"{prefix}x://1","name":"n","size":9007199254740993,"new":null}}"#),
            r#"{"type":"resource_link","uri":"https://web.example/a","name":"n"}"#.to_owned(),
            r#"{"type":"resource_link","uri":"HTTP://web.example/a","name":"n"}"#.to_owned(),
            format!(r#"{{"type":"resource_link","uri":"{prefix}https://listed.example/a","name":"n"}}"#),
            format!(r#"{{"type":"resource","resource":{{"uri":"{prefix}ui://view","blob":"AA==","_meta":{{"x":1e400}}}}}}"#),
            format!(r#"{{"type":"resource","resource":{{"uri":"{prefix}https://web.example/b","text":"😀"}}}}"#),
            r#"{"type":"resource_link","uri":7}"#.to_owned(),
            r#"{"type":"new","uri":"x://1"}"#.to_owned(),
            r#"{"uri":"x://1"}"#.to_owned(),
            "7".to_owned(),
        ]
        .join(",")
    };
    let outside = r#""structuredContent":{"uri":"x://1","n":9007199254740993,"e":1e400},"vendor":["x://1"]"#;
    let result =
        |prefix: &str| format!(r#"{{"resultType":"complete","content":[{}],{outside}}}"#, blocks(prefix));
    crm.behave("echo", Behaviour::Result(result("")));
    let call = async |name: &str| relayed(&alice.call_tool(name, json!({})).await);
    assert_eq!(call("crm_echo").await, open(result("crm+")));
    assert_eq!(call("kept_echo").await, open(result("")));

    let messages = |prefix: &str| {
        let single = format!(
            r#"{{"role":"user","content":{{"type":"resource_link","uri":"{prefix}x://1","name":"n"}}}}"#
        );
        format!(
            r#"{{"resultType":"complete","messages":[{single},{{"role":"user","content":[{}]}}],"uri":"x://1"}}"#,
            blocks(prefix)
        )
    };
    crm.behave("p", Behaviour::Result(messages("")));
    let got = |name: &'static str| async { relayed(&alice.prompt(name, json!({})).await) };
    assert_eq!(got("crm_p").await, open(messages("crm+")));
    assert_eq!(got("kept_p").await, open(messages("")));

    let contents = |prefix: &str| {
        format!(
            r#"{{"resultType":"complete","contents":[{{"uri":"{prefix}x://1","text":"x://1","n":9007199254740993}},{{"uri":"{prefix}https://web.example/b","blob":"AA==","x":1e400}},7],"vendor":{{"uri":"x://1"}}}}"#
        )
    };
    crm.behave("x://1", Behaviour::Result(contents("")));
    let read = |uri: &'static str| async { relayed(&alice.read(uri).await) };
    assert_eq!(read("crm+x://1").await, open(contents("crm+")));
    assert_eq!(read("x://1").await, open(contents("")));
    gw.stop().await;
}

// LT-12: a link is a name, not a leave to read.
#[tokio::test]
async fn a_link_is_authorised_again_when_it_is_read() {
    let crm = server(&["x://1"], &[]).await;
    let gw =
        Gateway::start(&acme_and_other(&[crm.backend("crm", r#", scopes: {"resource:*": [crm.read]}"#)]))
            .await;
    crm.behave(
        "echo",
        Behaviour::Result(
            r#"{"content":[{"type":"resource_link","uri":"x://hidden","name":"n"}]}"#.to_owned(),
        ),
    );
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("acme", "bob", "crm.read"));
    let link = alice.call_tool("crm_echo", json!({})).await.result()["content"][0]["uri"].clone();
    assert_eq!(link, "crm+x://hidden");
    assert_eq!(alice.read(link.as_str().unwrap()).await.refusal(), (403, 0));
    bob.read(link.as_str().unwrap()).await.result();
    assert_eq!(reads(&crm), ["x://hidden"]);
    gw.stop().await;
}

#[tokio::test]
async fn a_read_takes_the_road_of_a_call() {
    let crm = server(&["x://1"], &[]).await;
    let gw = Gateway::start_with(&acme_and_other(&[crm.backend("crm", ", idle_timeout: 1s")]), |s| {
        s.limits.late_stream = Duration::from_millis(300)
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    let read = async |meta: &str| {
        let body = text("7", "resources/read", r#","uri":"crm+x://1""#, meta);
        alice.post(&alice.headers("resources/read", Some("crm+x://1")), &body).await
    };
    // Progress under the client's token.
    crm.behave("x://1", Behaviour::Progress(2));
    let answer = read(r#","progressToken":"mine""#).await;
    let events = answer.events();
    assert_eq!(events.len(), 3, "{}", answer.text());
    assert_eq!(events[0]["params"], json!({"progressToken": "mine", "progress": 1}));
    assert_eq!(events[2]["result"]["contents"][0]["uri"], "crm+x://1");
    // A late answer is a stream's, and a clock ends one that never comes.
    crm.behave("x://1", Behaviour::Late(Duration::from_millis(600)));
    let answer = read("").await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.message()["result"]["contents"][0]["uri"], "crm+x://1");
    crm.behave("x://1", Behaviour::Hang);
    let answer = read("").await;
    let error = &answer.message()["error"];
    assert_eq!((&error["code"], &error["data"]["outcome"]), (&json!(-32603), &json!("unknown")), "{error}");
    // A client that leaves cancels.
    let (before, asked) = (crm.cancellations(), reads(&crm).len());
    let mut open = Connection::open(alice.addr).await;
    let body = text("8", "resources/read", r#","uri":"crm+x://1""#, "");
    open.post(&alice.path, &alice.headers("resources/read", Some("crm+x://1")), &body).await;
    eventually(|| reads(&crm).len() > asked).await;
    drop(open);
    eventually(|| crm.cancellations() > before).await;
    gw.stop().await;
}

// LT-01, LT-02
#[tokio::test]
async fn a_cursor_opens_for_its_own_list_alone() {
    let crm = server(&["a:1", "b:2"], &["a:{x}", "b:{x}"]).await;
    for name in ["a", "b"] {
        crm.tool(name, &format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#));
        crm.prompt(name, &format!(r#"{{"name":"{name}"}}"#));
    }
    let gw = Gateway::start_with(&acme_and_other(&[crm.backend("crm", ", prefix: \"\"")]), |s| {
        s.limits.page_size = 1
    })
    .await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("acme", "bob", ""));
    let methods = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    let mut cursors = Vec::new();
    for method in methods {
        let page = alice.rpc(method, json!({})).await.result();
        cursors.push(page["nextCursor"].as_str().unwrap_or_else(|| panic!("{method}: {page}")).to_owned());
    }
    let invalid = alice.rpc("resources/list", json!({"cursor": "zz"})).await;
    assert_eq!(invalid.refusal(), (200, -32602));
    for (method, own) in methods.iter().zip(&cursors) {
        for cursor in &cursors {
            let answer = alice.rpc(method, json!({"cursor": cursor})).await;
            match cursor == own {
                true => drop(answer.result()),
                false => assert_eq!(answer.text(), invalid.text(), "{method}"),
            }
            assert_eq!(bob.rpc(method, json!({"cursor": cursor})).await.text(), invalid.text(), "{method}");
        }
        assert_eq!(alice.rpc(method, json!({"cursor": 7})).await.refusal(), (400, -32602), "{method}");
        alice.rpc(method, json!({"cursor": null})).await.result();
    }
    gw.stop().await;
}

// DV-02
#[tokio::test]
async fn a_tenant_without_backends_has_empty_lists() {
    let crm = Upstream::start().await;
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", "")])).await;
    for tenant in ["acme", "other"] {
        let caller = gw.caller(tenant, "alice", "");
        for (method, member) in [
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            let list = caller.rpc(method, json!({})).await;
            assert_eq!((list.status, &list.result()[member]), (200, &json!([])), "{tenant} {method}");
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn entries_that_cannot_be_used_are_left_out_and_counted() {
    let crm = server(&["x://1", "file:///a/../b", "relative"], &["x://{", "x://{n}"]).await;
    crm.resource("x://2", r#"{"uri":"x://2"}"#).prompt("p", r#"{"name":"p","arguments":7}"#);
    let gw = Gateway::start(&acme_and_other(&[crm.backend("crm", ", uris: keep")])).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.resources().await, ["x://1"]);
    assert_eq!(alice.templates().await, ["x://{n}"]);
    assert_eq!(alice.prompts().await, Vec::<String>::new());
    let metrics = crate::harness::wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    assert!(metrics.contains("fondaco_entries_left_out_total 5"), "{metrics}");
    gw.stop().await;
}
