//! The catalog through the front door: what is checked of calls and results, and what outlives a restart.

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;

/// The text of the result that a call of `tool` with these arguments gets.
async fn called(caller: &Caller, tool: &str, arguments: &str, meta: &str) -> Value {
    let headers = caller.headers("tools/call", Some(tool));
    let params = format!(r#","name":"{tool}","arguments":{arguments}"#);
    caller.post(&headers, &text("1", "tools/call", &params, meta)).await.result()
}

/// What a result that is an error says; `None` of one that is none.
fn problem(result: &Value) -> Option<String> {
    let said = || result["content"][0]["text"].as_str().unwrap_or("nothing").to_owned();
    (result["isError"] == true).then(said)
}

/// A tool whose argument and result are objects with a number `n`.
const STRICT: &str = r#"{"name":"strict","inputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"outputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":9}},"required":["n"]}}"#;

/// A gateway before `upstream` three times: as `off`, as `arguments` (the default) and as `both`.
async fn thrice(upstream: &Upstream) -> (Gateway, Caller) {
    let backends = [
        upstream.backend("off", ", validate: off"),
        upstream.backend("arguments", ""),
        upstream.backend("both", ", validate: both"),
    ];
    let gw = Gateway::start(&acme_and_other(&backends)).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    (gw, alice)
}

// spec: row LT-11
#[tokio::test]
async fn what_does_not_fit_its_schema_is_an_error_where_that_is_asked_for() {
    let upstream = Upstream::start().await;
    upstream.tool("strict", STRICT);
    let (gw, alice) = thrice(&upstream).await;
    let result = |members: &str| format!(r#"{{"resultType":"complete","content":[]{members}}}"#);
    let secret = format!(r#","structuredContent":{{"n":"s3same {}"}}"#, "x".repeat(2_000));
    for (members, fits) in [
        (r#","structuredContent":{"n":9}"#, Ok(())),
        (r#","structuredContent":{"n":10}"#, Err("/n: ")),
        (r#","structuredContent":{}"#, Err("required")),
        (r#","structuredContent":[]"#, Err("object")),
        (r#","structuredContent":null"#, Err("object")),
        (&secret, Err("/n: ")),
        ("", Err("no `structuredContent`")),
        (r#","isError":false"#, Err("no `structuredContent`")),
        // A tool that fails has nothing to say of that kind; what it says has to fit.
        (r#","isError":true"#, Ok(())),
        (r#","isError":true,"structuredContent":{"n":"x"}"#, Err("/n: ")),
    ] {
        upstream.behave("strict", Behaviour::Result(result(members)));
        for tool in ["off_strict", "arguments_strict"] {
            let relayed = called(&alice, tool, r#"{"n":1}"#, "").await;
            assert!(problem(&relayed).is_none_or(|said| said == "nothing"), "{tool}: {relayed}");
        }
        let answer = called(&alice, "both_strict", r#"{"n":1}"#, "").await;
        match fits {
            Ok(()) => assert!(problem(&answer).is_none_or(|said| said == "nothing"), "{members}: {answer}"),
            Err(word) => {
                let said = problem(&answer).unwrap_or_else(|| panic!("{members}: {answer}"));
                assert!(said.starts_with("the backend's result does not fit its output schema: "), "{said}");
                assert!(said.contains(word) && said.len() < 700, "{members}: {said}");
                assert!(!said.contains("s3same") && answer.get("structuredContent").is_none(), "{answer}");
            }
        }
    }
    upstream.behave("strict", Behaviour::Error(200, r#"{"code":-32602,"message":"m"}"#.to_owned()));
    assert_eq!(alice.call_tool("both_strict", json!({"n": 1})).await.refusal(), (200, -32602));
    gw.stop().await;
}

// A result that ends a stream is checked, too, and a tool without an output schema is never asked for more.
#[tokio::test]
async fn results_are_checked_at_the_end_of_streams() {
    let upstream = Upstream::start().await;
    upstream.tool("strict", STRICT).behave("strict", Behaviour::Progress(2));
    let (gw, alice) = thrice(&upstream).await;
    let meta = r#","progressToken":"p""#;
    for (n, fits) in [("3", true), ("30", false)] {
        let headers = alice.headers("tools/call", Some("both_strict"));
        let params = format!(r#","name":"both_strict","arguments":{{"n":{n}}}"#);
        let answer = alice.post(&headers, &text("1", "tools/call", &params, meta)).await;
        assert_eq!(answer.events().len(), 3, "{}", answer.text());
        assert_eq!(problem(&answer.result()).is_none(), fits, "{}", answer.text());
    }
    upstream.behave("echo", Behaviour::Result(r#"{"content":[],"structuredContent":"any"}"#.to_owned()));
    assert_eq!(problem(&called(&alice, "both_echo", "{}", "").await), None);
    gw.stop().await;
}

#[tokio::test]
async fn arguments_are_checked_unless_that_is_switched_off() {
    let upstream = Upstream::start().await;
    // The second has a pattern that is not supported: where nothing is checked, that is nobody's problem.
    upstream.tool("strict", STRICT).tool(
        "ahead",
        r#"{"name":"ahead","inputSchema":{"type":"object","properties":{"n":{"pattern":"^(?=a)"}}}}"#,
    );
    let (gw, alice) = thrice(&upstream).await;
    let tools = alice.tools().await;
    let expected = ["arguments_echo", "arguments_strict", "both_echo", "both_strict"];
    assert_eq!(tools, [&expected[..], &["off_ahead", "off_echo", "off_strict"]].concat());
    for (tool, refused) in [("off_strict", false), ("arguments_strict", true), ("both_strict", true)] {
        let before = upstream.requests().len();
        let answer = called(&alice, tool, r#"{"n":"x"}"#, "").await;
        assert_eq!(problem(&answer).is_some(), refused, "{tool}: {answer}");
        assert_eq!(upstream.requests().len() == before, refused, "{tool}");
    }
    gw.stop().await;
}

// Only the copy that is checked is clamped.
#[tokio::test]
async fn numbers_out_of_range_are_checked_and_travel_as_they_are() {
    let upstream = Upstream::start().await;
    let schema = r#"{"type":"object","properties":{"n":{"type":"number","exclusiveMaximum":1e308}}}"#;
    upstream.tool(
        "number",
        &format!(r#"{{"name":"number","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#),
    );
    upstream.tool("bounded", &format!(r#"{{"name":"bounded","inputSchema":{schema}}}"#));
    let (gw, alice) = thrice(&upstream).await;
    let exact = ["9007199254740993", "-0.0", "1.10E+2", "123456789012345678901234567890", "1e-400", "-1e400"];
    for (number, fits) in
        exact.map(|number| (number, true)).into_iter().chain([("1e400", false), ("1e99999999999", false)])
    {
        for (tool, sent) in [("both_number", true), ("both_bounded", fits)] {
            let before = upstream.requests().len();
            let headers = alice.headers("tools/call", Some(tool));
            let params = format!(r#","name":"{tool}","arguments":{{"n":{number}}}"#);
            let answer = alice.post(&headers, &text("1", "tools/call", &params, "")).await;
            let relayed = format!(r#""structuredContent":{{"n":{number}}}"#);
            assert_eq!(answer.text().contains(&relayed), fits, "{tool} {number}: {}", answer.text());
            let requests = upstream.requests();
            assert_eq!(requests.len() > before, sent, "{tool} {number}");
            if sent {
                let arguments = format!(r#""arguments":{{"n":{number}}}"#);
                assert!(requests[before].body.contains(&arguments), "{}", requests[before].body);
            }
        }
    }
    gw.stop().await;
}

// spec: row LT-12
#[tokio::test]
async fn an_image_that_is_too_large_is_an_error_that_says_so() {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet"}"#).resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    let backends = [upstream.backend("up", ", uris: keep")];
    let gw = Gateway::start_with(&acme_and_other(&backends), |s| s.limits.media_bytes = 64 << 10).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    for (size, fits) in [(64 << 10, true), ((64 << 10) + 4, false)] {
        let data = "A".repeat(size);
        let image = format!(r#"{{"type":"image","mimeType":"image/png","data":"{data}"}}"#);
        // What is only long is relayed.
        let padding = format!(r#"{{"type":"text","text":"{}"}}"#, "x".repeat(80 << 10));
        let content = format!(r#"{{"content":[{padding},{image}]}}"#);
        upstream.behave("echo", Behaviour::Result(content));
        let messages = format!(r#"{{"messages":[{{"role":"user","content":{image}}}]}}"#);
        upstream.behave("greet", Behaviour::Result(messages));
        upstream.behave(
            "x://1",
            Behaviour::Result(format!(r#"{{"contents":[{{"uri":"x://1","blob":"{data}"}}]}}"#)),
        );
        let called = alice.call_tool("up_echo", json!({})).await.result();
        let (got, read) = (alice.prompt("up_greet", json!({})).await, alice.read("x://1").await);
        if fits {
            assert_eq!(called["content"][1]["data"], data);
            assert_eq!(got.result()["messages"][0]["content"]["data"], data);
            assert_eq!(read.result()["contents"][0]["blob"], data);
            continue;
        }
        let said = problem(&called).unwrap();
        assert!(said.contains("65540 bytes") && said.contains("at most 65536"), "{said}");
        for answer in [got, read] {
            assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
            assert!(
                answer.text().contains("65540 bytes") && answer.text().len() < 1_000,
                "{}",
                answer.text()
            );
        }
    }
    gw.stop().await;
}
