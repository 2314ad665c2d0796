//! MCP Apps: views for clients that show them, and the extensions that a tenant lets a backend have.

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wire::Answer;

/// What a host of apps declares.
const APPS: &str =
    r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;

/// A server with an app: a tool with a view, its view, and a tool without.
async fn server() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.tool("chart", r#"{"name":"chart","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://v/chart","visibility":["app"]},"ui/resourceUri":"ui://v/chart","k":1.0}}"#);
    upstream.tool(
        "bare",
        r#"{"name":"bare","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://v/chart"}}}"#,
    );
    upstream.resource(
        "ui://v/chart",
        r#"{"uri":"ui://v/chart","name":"chart","mimeType":"text/html;profile=mcp-app"}"#,
    );
    upstream.resource("x://plain", r#"{"uri":"x://plain","name":"plain"}"#);
    upstream.template("ui://v/{name}", r#"{"uriTemplate":"ui://v/{name}","name":"views"}"#);
    upstream
}

/// Asks with these client capabilities.
async fn ask(caller: &Caller, method: &str, name: Option<&str>, params: &str, capabilities: &str) -> Answer {
    let body = text("1", method, params, "")
        .replace(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{capabilities}"#));
    caller.post(&caller.headers(method, name), &body).await
}

async fn list(caller: &Caller, method: &str, capabilities: &str) -> Value {
    ask(caller, method, None, "", capabilities).await.result()
}

async fn call(caller: &Caller, name: &str, capabilities: &str) -> Answer {
    ask(caller, "tools/call", Some(name), &format!(r#","name":"{name}""#), capabilities).await
}

async fn read(caller: &Caller, uri: &str, capabilities: &str) -> Answer {
    ask(caller, "resources/read", Some(uri), &format!(r#","uri":"{uri}""#), capabilities).await
}

/// The member of each entry of a list that has this key.
fn each<'v>(result: &'v Value, list: &str, key: &str) -> Vec<&'v Value> {
    result[list].as_array().unwrap().iter().map(|entry| &entry[key]).collect()
}

fn last(upstream: &Upstream, method: &str) -> Received {
    let found = upstream.requests().into_iter().rfind(|request| request.json()["method"] == method);
    found.unwrap_or_else(|| panic!("no {method}"))
}

// spec: row EX-07
#[tokio::test]
async fn views_are_for_clients_that_show_them() {
    let upstream = server().await;
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    let tools = list(&alice, "tools/list", APPS).await;
    let uri = "up+ui://v/chart";
    assert_eq!(
        each(&tools, "tools", "_meta"),
        [
            &json!({"ui": {"resourceUri": uri}}),
            &json!({"ui": {"resourceUri": uri, "visibility": ["app"]}, "ui/resourceUri": uri, "k": 1.0}),
            &Value::Null,
        ]
    );
    assert_eq!(each(&list(&alice, "resources/list", APPS).await, "resources", "uri"), [uri, "up+x://plain"]);
    let templates = list(&alice, "resources/templates/list", APPS).await;
    assert_eq!(each(&templates, "resourceTemplates", "uriTemplate"), ["up+ui://v/{name}"]);
    // What a tool names can be read, under the name that it has in the result.
    for uri in [uri, "up+ui://v/unlisted"] {
        assert_eq!(read(&alice, uri, APPS).await.result()["contents"][0]["uri"], uri);
    }

    for capabilities in
        ["{}", r#"{"extensions":{}}"#, r#"{"extensions":{"io.modelcontextprotocol/ui":true}}"#]
    {
        let tools = list(&alice, "tools/list", capabilities).await;
        assert_eq!(each(&tools, "tools", "name"), ["up_bare", "up_chart", "up_echo"]);
        assert_eq!(each(&tools, "tools", "_meta"), [&Value::Null, &json!({"k": 1.0}), &Value::Null]);
        let resources = list(&alice, "resources/list", capabilities).await;
        assert_eq!(each(&resources, "resources", "uri"), ["up+x://plain"]);
        let templates = list(&alice, "resources/templates/list", capabilities).await;
        assert_eq!(templates["resourceTemplates"], json!([]));
        let reads = upstream.count("resources/read");
        for uri in [uri, "up+ui://v/unlisted", "up+UI://v/chart"] {
            let refused = read(&alice, uri, capabilities).await;
            assert_eq!(refused.refusal(), (400, -32021), "{uri}");
            let required = json!({"extensions": {"io.modelcontextprotocol/ui": {}}});
            assert_eq!(refused.message()["error"]["data"]["requiredCapabilities"], required);
        }
        assert_eq!(upstream.count("resources/read"), reads, "nothing was asked");
        read(&alice, "up+x://plain", capabilities).await.result();
    }
    gw.stop().await;
}

// spec: row EX-07
#[tokio::test]
async fn results_say_of_views_what_their_clients_understand() {
    let upstream = server().await;
    upstream.behave(
        "chart",
        Behaviour::Result(
            r#"{"content":[],"_meta":{"ui":{"resourceUri":"ui://v/chart","x":[ 1 ]},"ui/resourceUri":"ui://v/chart","k":1.0}}"#.to_owned(),
        ),
    );
    let gw = Gateway::start(&acme_and_other(&[
        upstream.backend("up", ""),
        upstream.backend("kept", ", prefix: \"\""),
    ]))
    .await;
    let alice = gw.caller("acme", "alice", "");
    for (tool, uri) in [("up_chart", "up+ui://v/chart"), ("chart", "ui://v/chart")] {
        let shown = call(&alice, tool, APPS).await.text();
        let expected =
            format!(r#"{{"ui":{{"resourceUri":"{uri}","x":[ 1 ]}},"ui/resourceUri":"{uri}","k":1.0,"#);
        assert!(shown.contains(&expected), "{shown}");
        let plain = call(&alice, tool, "{}").await;
        assert!(!plain.text().contains("ui"), "{}", plain.text());
        assert_eq!(plain.result()["_meta"]["k"], 1.0);
    }
    gw.stop().await;
}

// spec: row Y-19
#[tokio::test]
async fn a_session_shows_views_if_its_client_said_so_at_the_start() {
    let upstream = server().await;
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    let capabilities: Value = serde_json::from_str(APPS).unwrap();
    let shows = Session::open_with(&alice, "2025-11-25", &capabilities).await;
    let plain = Session::open(&alice, "2025-11-25").await;
    for session in [&shows, &plain] {
        assert_eq!(session.opened["capabilities"]["extensions"], json!({"io.modelcontextprotocol/ui": {}}));
    }
    let tools = shows.rpc("tools/list", json!({})).await.result();
    assert_eq!(each(&tools, "tools", "_meta")[0]["ui"]["resourceUri"], "up+ui://v/chart");
    let tools = plain.rpc("tools/list", json!({})).await.result();
    assert_eq!(each(&tools, "tools", "_meta")[0], &Value::Null);
    let uri = json!({"uri": "up+ui://v/chart"});
    shows.rpc("resources/read", uri.clone()).await.result();
    assert_eq!(plain.rpc("resources/read", uri).await.refusal(), (200, -32603));
    shows.end().await;
    plain.end().await;
    gw.stop().await;
}

// spec: row EX-09
#[tokio::test]
async fn a_view_calls_its_tools_by_their_own_names_where_they_are_one_backends() {
    let (one, two) = (server().await, Upstream::start().await);
    one.tool("guarded", r#"{"name":"guarded","inputSchema":{"type":"object"},"_meta":{"ui":{}}}"#);
    one.tool("lonely", r#"{"name":"lonely","inputSchema":{"type":"object"}}"#);
    two.tool("bare", r#"{"name":"bare","inputSchema":{"type":"object"}}"#);
    two.tool("up_chart", r#"{"name":"up_chart","inputSchema":{"type":"object"},"_meta":{"ui":{}}}"#);
    let backends = [
        one.backend("up", r#", scopes: {"tool:guarded": [crm.admin]}"#),
        two.backend("two", r#", scopes: {"*": [crm.read]}"#),
    ];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    for name in ["up_chart", "chart"] {
        call(&alice, name, APPS).await.result();
        let sent = last(&one, "tools/call");
        assert_eq!(
            (sent.header("mcp-name"), &sent.json()["params"]["name"]),
            (vec!["chart"], &json!("chart"))
        );
    }
    // Its scopes are asked for as ever; a name without a view, or of two backends, is none.
    assert_eq!(call(&alice, "guarded", APPS).await.status, 403);
    assert_eq!(call(&gw.caller("acme", "bob", "crm.admin"), "guarded", APPS).await.status, 200);
    for name in ["lonely", "echo", "bare", "ch%61rt", "Chart"] {
        let refused = call(&alice, name, APPS).await;
        assert_eq!(refused.refusal(), (200, -32602), "{name}: {}", refused.text());
    }
    let other = gw.caller("other", "carol", "");
    assert_eq!(call(&other, "chart", APPS).await.refusal(), (200, -32602), "another tenant's");
    assert_eq!(
        gw.app.metrics.encode().lines().find(|line| line.starts_with("fondaco_tool_aliases_total")),
        Some("fondaco_tool_aliases_total 2")
    );
    gw.stop().await;
}

// spec: row DV-05
#[tokio::test]
async fn the_extension_is_offered_where_a_tool_has_a_view_and_told_where_the_client_has_it() {
    let (with, without) = (server().await, Upstream::start().await);
    let offered = async |upstream: &Upstream| {
        let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", "")])).await;
        let alice = gw.caller("acme", "alice", "");
        let extensions = list(&alice, "server/discover", "{}").await["capabilities"]["extensions"].clone();
        for (capabilities, told) in [
            (APPS, APPS.to_owned()),
            ("{}", "{}".to_owned()),
            (r#"{"extensions":{"io.modelcontextprotocol/ui":7}}"#, "{}".to_owned()),
            (r#"{"extensions":{"com.example/x":{"a":1}}}"#, "{}".to_owned()),
            (
                &format!(
                    r#"{{"extensions":{{"io.modelcontextprotocol/ui":{{"x":"{}"}}}}}}"#,
                    "x".repeat(4 << 10)
                ),
                "{}".to_owned(),
            ),
        ] {
            call(&alice, "up_echo", capabilities).await.result();
            let sent = last(upstream, "tools/call").body;
            assert!(
                sent.contains(&format!(r#"clientCapabilities":{told},"#)),
                "{capabilities:.200}: {sent:.400}"
            );
        }
        gw.stop().await;
        extensions
    };
    assert_eq!(offered(&with).await, json!({"io.modelcontextprotocol/ui": {}}));
    assert_eq!(offered(&without).await, Value::Null);
    // Some servers have views for those alone who show them: lists are asked for as such a client does.
    let listed = last(&with, "tools/list").json();
    let told = &listed["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(told, &serde_json::from_str::<Value>(APPS).unwrap());
}

// spec: row DV-05
#[tokio::test]
async fn a_session_with_a_backend_declares_what_its_client_does() {
    let upstream = server().await;
    upstream.handshake(Handshake::default());
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", "")])).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(each(&list(&alice, "tools/list", "{}").await, "tools", "name").len(), 3);
    let declared = || -> Vec<Value> {
        let all = upstream.requests().into_iter().filter(|request| request.json()["method"] == "initialize");
        all.map(|request| request.json()["params"]["capabilities"].clone()).collect()
    };
    let apps: Value = serde_json::from_str(APPS).unwrap();
    assert_eq!(declared(), std::slice::from_ref(&apps), "the gateway's own");
    for capabilities in ["{}", APPS, "{}", APPS] {
        call(&alice, "up_chart", capabilities).await.result();
    }
    assert_eq!(declared(), [apps.clone(), json!({}), apps]);
    gw.stop().await;
}

// spec: rows DV-05, EX-14
#[tokio::test]
async fn what_a_client_says_of_an_extension_opens_no_session_of_its_own() {
    let upstream = server().await;
    upstream.handshake(Handshake::default());
    let allowed = r#", extensions: ["com.example/a", "com.example/b"]"#;
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", allowed)])).await;
    let alice = gw.caller("acme", "alice", "");
    list(&alice, "tools/list", "{}").await;
    for capabilities in [
        APPS,
        r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["other"],"x":1}}}"#,
        r#"{"extensions":{"io.modelcontextprotocol/ui":{"x":2}}}"#,
        r#"{"extensions":{"com.example/b":{"x":1},"com.example/a":{}}}"#,
        r#"{"extensions":{"com.example/a":{"x":[ 2 ]},"com.example/b":{}}}"#,
    ] {
        call(&alice, "up_echo", capabilities).await.result();
    }
    let all = upstream.requests().into_iter().filter(|request| request.json()["method"] == "initialize");
    let declared: Vec<Value> = all.map(|request| request.json()["params"]["capabilities"].clone()).collect();
    let apps: Value = serde_json::from_str(APPS).unwrap();
    let others = json!({"extensions": {"com.example/a": {}, "com.example/b": {}}});
    assert_eq!(declared, [apps.clone(), apps, others]);
    gw.stop().await;
}

// spec: row EX-14
#[tokio::test]
async fn another_extension_goes_through_where_the_tenant_lets_a_backend_have_it() {
    let (one, two) = tokio::join!(Upstream::start(), Upstream::start());
    let offers =
        r#"{"tools":{},"extensions":{"com.example/a":{"v":1.50},"com.example/b":{},"com.example/c":7}}"#;
    one.capabilities(offers);
    two.capabilities(offers);
    let backends = [
        one.backend("one", r#", extensions: ["com.example/a", "com.example/c", "com.example/d"]"#),
        two.backend("two", ""),
    ];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    let discovered = ask(&alice, "server/discover", None, "", "{}").await.text();
    assert!(discovered.contains(r#""extensions":{"com.example/a":{"v":1.50}}"#), "{discovered}");
    let declares = r#"{"extensions":{"com.example/a":{"x":1e400},"com.example/b":{},"com.example/d":{},"io.modelcontextprotocol/tasks":{}}}"#;
    for (tool, upstream, told) in [
        ("one_echo", &one, r#"{"extensions":{"com.example/a":{"x":1e400},"com.example/d":{}}}"#),
        ("two_echo", &two, "{}"),
    ] {
        call(&alice, tool, declares).await.result();
        let all = upstream.requests();
        let sent = all.iter().rfind(|request| request.header("mcp-method") == ["tools/call"]).unwrap();
        assert!(sent.body.contains(&format!(r#"clientCapabilities":{told},"#)), "{}", sent.body);
    }
    gw.stop().await;
}
