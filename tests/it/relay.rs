//! What goes through goes through byte for byte; everything else on the upstream leg is ours.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Answer;

/// Text that no parser into numbers, strings and maps gives back as it was.
const EXACT: &str = r#"{"n":9007199254740993,"big":123456789012345678901234567890,"x":1e400,"y":-0.0,"w":1.10E+2,"z":null,"f":false,"o":{"b":1,"a":{"d":[1.0, 2 ],"c":"\u00e9\n\/\ud83d\ude00"}},"k\u0065y":"\u0041","ünï":"日本😀","":{}}"#;

/// A browser's origin that may call.
const ORIGIN: &str = "http://localhost:6274";

/// A gateway whose tenant `acme` has `upstream` as its backend `up`, with more settings of it.
async fn before(upstream: &Upstream, more: &str) -> (Gateway, Caller) {
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants: {{acme: {{backends: {{up: {{kind: mcp, url: "{}"{more}}}}}}}}}
"#,
        upstream.url()
    );
    let gw = Gateway::start_with(&tenants, |s| s.allowed_origins = vec![ORIGIN.to_owned()]).await;
    let alice = gw.caller("acme", "alice", "");
    (gw, alice)
}

/// Calls with these members of `params` and `_meta`, and more headers.
async fn call(caller: &Caller, name: &str, params: &str, meta: &str, more: &[(&str, &str)]) -> Answer {
    let mut headers = caller.headers("tools/call", Some(name));
    headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    caller.post(&headers, &text("7", "tools/call", &format!(r#","name":"{name}"{params}"#), meta)).await
}

/// The calls that the backend received.
fn calls(upstream: &Upstream) -> Vec<Received> {
    let mut requests = upstream.requests();
    requests.retain(|request| request.header("mcp-method") == ["tools/call"]);
    requests
}

#[tokio::test]
async fn arguments_and_results_travel_byte_for_byte() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "").await;
    let params = format!(r#","arguments": {EXACT} ,"future":[ 1.50,{EXACT}],"explicit":null"#);
    let meta = format!(r#","example.com/a":{EXACT},"\u0062":null"#);
    let answer = call(&alice, "up_echo", &params, &meta, &[]).await;
    assert!(answer.text().contains(&format!(r#""structuredContent":{EXACT}"#)), "{}", answer.text());
    assert!(answer.text().starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"#), "{}", answer.text());
    let sent = calls(&upstream).remove(0).body;
    for part in [
        format!(r#""arguments":{EXACT}"#),
        format!(r#""future":[ 1.50,{EXACT}]"#),
        r#""explicit":null"#.to_owned(),
        format!(r#""example.com/a":{EXACT}"#),
        r#""b":null"#.to_owned(),
    ] {
        assert!(sent.contains(&part), "{part} in {sent}");
    }

    let members = format!(
        r#""content":[{{"type":"text","text":"a"}},{{"type":"hologram","data":{EXACT}}}, 7],"structuredContent":[{EXACT},1e400],"isError":false,"future":{EXACT}"#
    );
    let meta = format!(r#""example.com/b":{EXACT},"progressToken":null"#);
    upstream.behave("echo", Behaviour::Result(format!(r#"{{{members},"_meta":{{{meta}}}}}"#)));
    let answer = call(&alice, "up_echo", "", "", &[]).await.text();
    for part in [&members, &meta] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let data = format!(r#""data":{EXACT}"#);
    upstream.behave("echo", Behaviour::Error(200, format!(r#"{{"code":-32602,"message":"m",{data}}}"#)));
    let answer = call(&alice, "up_echo", "", "", &[]).await;
    assert!(answer.text().contains(&data), "{}", answer.text());
    assert!(upstream.requests().iter().all(|request| request.line == "POST /mcp HTTP/1.1"));
    gw.stop().await;
}

/// What a client may send that must not go any further.
const NOISE: [(&str, &str); 16] = [
    ("Cookie", "session=s3same"),
    ("Referer", "http://localhost:6274/"),
    ("User-Agent", "s3same"),
    ("X-Forwarded-For", "10.1.2.3"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Proto", "https"),
    ("X-Real-IP", "10.1.2.3"),
    ("Forwarded", "for=10.1.2.3"),
    ("Via", "1.1 s3same"),
    ("X-Api-Key", "s3same"),
    ("Proxy-Authorization", "Basic s3same"),
    ("Accept-Language", "de"),
    ("Last-Event-ID", "s3same"),
    ("Mcp-Session-Id", "s3same"),
    ("Mcp-Param-Other", "s3same"),
    ("tracestate", "s3same=1"),
];

#[tokio::test]
async fn the_upstream_request_is_built_from_nothing() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "").await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let meta = format!(
        r#","io.modelcontextprotocol/clientInfo":{{"name":"theirs","version":"1"}},"progressToken":"theirs","traceparent":"{parent}","example.com/a":1"#
    );
    let capabilities =
        r#"{"elicitation":{"form":{}},"sampling":{},"roots":{"listChanged":true},"new":{"x":1.50}}"#;
    let params = r#","arguments":{"a":1},"inputResponses":{"q":{"action":"accept"}}"#;
    let body = text("\"theirs\"", "tools/call", &format!(r#","name":"up_echo"{params}"#), &meta)
        .replace(r#"clientCapabilities":{}"#, &format!(r#"clientCapabilities":{capabilities}"#));
    let mut headers = alice.headers("tools/call", Some("up_echo"));
    headers.push(("Origin".to_owned(), ORIGIN.to_owned()));
    headers.extend(NOISE.map(|(name, value)| (name.to_owned(), value.to_owned())));
    alice.post(&headers, &body).await.result();

    let received = calls(&upstream).remove(0);
    let mut got = received.headers.clone();
    got.sort();
    let length = received.body.len().to_string();
    let address = upstream.address().to_string();
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("content-length", &length),
        ("content-type", "application/json"),
        ("host", &address),
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo"),
        ("mcp-protocol-version", "2026-07-28"),
        ("traceparent", parent),
    ];
    assert_eq!(got, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let message = received.json();
    assert!(message["id"].is_u64(), "our own id: {}", message["id"]);
    let sent = &message["params"]["_meta"];
    assert_eq!(sent["io.modelcontextprotocol/clientInfo"]["name"], "fondaco");
    assert!(
        received.body.contains(
            r#"clientCapabilities":{"elicitation":{"form":{}},"sampling":{},"roots":{},"new":{"x":1.50}}"#
        ),
        "{}",
        received.body
    );
    assert!(sent["progressToken"].is_string() && sent["progressToken"] != "theirs");
    assert_eq!(sent["example.com/a"], 1);
    assert_eq!(message["params"]["inputResponses"], json!({"q": {"action": "accept"}}));
    let everything =
        upstream.requests().iter().map(|r| format!("{:?}{}", r.headers, r.body)).collect::<String>();
    for secret in
        ["s3same", "10.1.2.3", "evil", "localhost", "theirs", "alice", &alice.token, &gw.addr.to_string()]
    {
        assert!(!everything.contains(secret), "{secret}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn the_credential_is_ours_and_follows_its_file() {
    let (bearer, header) = tokio::join!(Upstream::start(), Upstream::start());
    let secrets = tempfile::tempdir().unwrap();
    let file = secrets.path().join("token");
    std::fs::write(&file, "first-value\n").unwrap();
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  acme:
    secrets: {{s: {{file: "{}"}}}}
    backends:
      one: {{kind: mcp, url: "{}", credential: {{kind: bearer, secret: s}}}}
      two: {{kind: mcp, url: "{}", credential: {{kind: header, name: X-Api-Key, secret: s}}}}
"#,
        file.display(),
        bearer.url(),
        header.url()
    );
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    let latest = async || {
        let mut all = String::new();
        for tool in ["one_echo", "two_echo"] {
            let answer = call(&alice, tool, "", "", &[("X-Api-Key", "theirs")]).await;
            answer.result();
            all.push_str(&answer.text());
        }
        let (one, two) = (calls(&bearer).pop().unwrap(), calls(&header).pop().unwrap());
        assert_eq!((one.header("x-api-key").len(), two.header("authorization").len()), (0, 0));
        let (one, two) = (one.header("authorization"), two.header("x-api-key"));
        assert_eq!((one.len(), two.len()), (1, 1));
        assert!(!all.contains("value"), "a credential came back");
        (one[0].to_owned(), two[0].to_owned())
    };
    let is = |value: &str| (format!("Bearer {value}"), value.to_owned());
    assert_eq!(latest().await, is("first-value"));
    let next = secrets.path().join("next");
    std::fs::write(&next, "second-value").unwrap();
    std::fs::rename(&next, &file).unwrap();
    let began = tokio::time::Instant::now();
    while latest().await != is("second-value") {
        assert!(began.elapsed() < Duration::from_secs(8), "the new value never came");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(latest().await, is("second-value"), "the last good value stays");
    gw.stop().await;
}

#[tokio::test]
async fn the_backends_own_name_and_its_own_mirrors_go_upstream() {
    let upstream = Upstream::start().await;
    upstream.tool("größe", r#"{"name":"größe","inputSchema":{"type":"object"}}"#);
    upstream.tool(
        "lookup",
        r#"{"name":"lookup","inputSchema":{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "count":{"type":"integer","x-mcp-header":"Count"},
            "dry":{"type":"boolean","x-mcp-header":"Dry"},
            "plain":{"type":"string"}}}}"#,
    );
    let (gw, alice) = before(&upstream, "").await;
    let listed = alice.tools().await;
    assert_eq!(listed.len(), 3);
    let odd = listed.iter().find(|name| name.contains("--")).unwrap();
    for name in ["up_echo", odd, "up_lookup"] {
        call(&alice, name, "", "", &[]).await.result();
    }
    let names: Vec<_> = calls(&upstream)
        .iter()
        .map(|r| (r.header("mcp-name")[0].to_owned(), r.json()["params"]["name"].clone()))
        .collect();
    let expected = [("echo", "echo"), ("=?base64?Z3LDtsOfZQ==?=", "größe"), ("lookup", "lookup")];
    assert_eq!(names, expected.map(|(header, name)| (header.to_owned(), json!(name))));

    let plain = [("Mcp-Param-Region", "eu")];
    let wrapped = [("mcp-param-region", "=?base64?ZXU=?="), ("Mcp-Param-Unknown", "x")];
    let odd = [("Mcp-Param-Region", "=?base64?R3LDtsOfZQ==?="), ("Mcp-Param-Dry", "false")];
    let number = [("Mcp-Param-Count", "42")];
    for (arguments, sent, minted) in [
        (r#"{"region":"eu"}"#, &plain[..], &[("mcp-param-region", "eu")][..]),
        (r#"{"region":"\u0065u"}"#, &wrapped, &[("mcp-param-region", "eu")]),
        (
            r#"{"region":"Größe","dry":false}"#,
            &odd,
            &[("mcp-param-dry", "false"), ("mcp-param-region", "=?base64?R3LDtsOfZQ==?=")],
        ),
        (r#"{"count":42.0}"#, &number, &[("mcp-param-count", "42")]),
        // As good as not there, for whom a header is concerned, and it goes on as it came.
        (r#"{"dry":null,"region":"eu"}"#, &plain, &[("mcp-param-region", "eu")]),
        (r#"{"other":1}"#, &[], &[]),
    ] {
        let answer = call(&alice, "up_lookup", &format!(r#","arguments":{arguments}"#), "", sent).await;
        assert_eq!(answer.refusal(), (200, 0), "{arguments}: {}", answer.text());
        let received = calls(&upstream).pop().unwrap();
        let mut params: Vec<_> =
            received.headers.iter().filter(|(n, _)| n.starts_with("mcp-param-")).collect();
        params.sort();
        let params: Vec<_> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(params, minted, "{arguments}");
        assert!(received.body.contains(&format!(r#""arguments":{arguments}"#)), "{}", received.body);
    }
    let refused =
        call(&alice, "up_lookup", r#","arguments":{"dry":null,"plain":null}"#, "", &[]).await.result();
    assert_eq!(refused["isError"], true, "{refused}");
    gw.stop().await;
}

/// The tool `echo` before and after its backend's new release.
const RELEASED: &str = r#"{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;

#[tokio::test]
async fn stale_mirrors_are_mended_by_one_refresh_and_one_retry() {
    let upstream = Upstream::start().await;
    let (gw, alice) = before(&upstream, "").await;
    assert_eq!(alice.tools().await, ["up_echo"]);
    let lists = || upstream.requests().iter().filter(|r| r.header("mcp-method") == ["tools/list"]).count();
    assert_eq!(lists(), 1);

    // The backend has a new release: its clients may mirror already what we do not know of yet.
    upstream.tool("echo", RELEASED).behave("echo", Behaviour::Mirrored("Mcp-Param-Region"));
    let region = [("Mcp-Param-Region", "eu")];
    let params = r#","arguments":{"region":"eu"}"#;
    let many = (0..20).map(|_| call(&alice, "up_echo", params, "", &region));
    for answer in join_all(many).await {
        assert_eq!(answer.result()["structuredContent"], json!({"region": "eu"}));
    }
    assert_eq!(lists(), 2, "one refresh for all");
    let with = calls(&upstream).iter().filter(|r| r.header("mcp-param-region") == ["eu"]).count();
    let without = calls(&upstream).len() - with;
    assert!(with == 20 && (1..=20).contains(&without), "{with} with, {without} without");

    // From now on the gate itself knows.
    let before = calls(&upstream).len();
    let answer = call(&alice, "up_echo", params, "", &[]).await;
    assert_eq!(answer.refusal(), (400, -32020), "{}", answer.text());
    assert_eq!(calls(&upstream).len(), before);

    upstream.behave("echo", Behaviour::Mirrored("Mcp-Param-Zone"));
    let answer = call(&alice, "up_echo", params, "", &region).await;
    assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
    assert_eq!(answer.message()["error"].get("data"), None, "it was refused unseen");
    assert_eq!(calls(&upstream).len(), before + 2, "one retry");
    assert_eq!(lists(), 2, "a backend that always says so is not asked to list again every time");
    gw.stop().await;
}

#[tokio::test]
async fn large_tools_come_in_more_pages_each_once() {
    let upstream = Upstream::start().await;
    for n in 10..30 {
        let filler = "x".repeat(n * 7_000);
        let tool =
            format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}},"_meta":{{"a":"{filler}"}}}}"#);
        upstream.tool(&format!("t{n}"), &tool);
    }
    let (gw, alice) = before(&upstream, "").await;
    let (mut names, mut params, mut pages) = (Vec::new(), json!({}), 0);
    loop {
        let answer = alice.rpc("tools/list", params.clone()).await;
        assert!(answer.body.len() < (1 << 20) + 1_000, "{}", answer.body.len());
        let page = answer.result();
        names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()));
        pages += 1;
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    assert!((3..=4).contains(&pages), "{pages}");
    let expected: Vec<_> =
        ["up_echo".to_owned()].into_iter().chain((10..30).map(|n| format!("up_t{n}"))).collect();
    assert_eq!(names, expected);
    gw.stop().await;
}

#[tokio::test]
async fn a_key_that_differs_from_a_mirrored_one_in_case_is_refused() {
    let upstream = Upstream::start().await;
    upstream.tool("echo", RELEASED);
    let (gw, alice) = before(&upstream, "").await;
    alice.tools().await;
    let region = [("Mcp-Param-Region", "eu")];
    for (arguments, sent, expected) in [
        (r#"{"region":"eu"}"#, &region[..], (200, 0)),
        (r#"{"region":"eu","Region":"us"}"#, &region, (400, -32020)),
        (r#"{"REGION":"us"}"#, &[], (400, -32020)),
        (r#"{"zone":{"Region":"us"}}"#, &[], (200, 0)),
    ] {
        let answer = call(&alice, "up_echo", &format!(r#","arguments":{arguments}"#), "", sent).await;
        assert_eq!(answer.refusal(), expected, "{arguments}: {}", answer.text());
    }
    assert_eq!(calls(&upstream).len(), 2);
    gw.stop().await;
}
