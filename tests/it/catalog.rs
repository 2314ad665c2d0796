//! The catalog through the front door: what is checked of calls and results, and what outlives a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use fondaco::model::name::BackendName;
use fondaco::model::name::TenantName;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;

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
        let before = upstream.asked().len();
        let answer = called(&alice, tool, r#"{"n":"x"}"#, "").await;
        assert_eq!(problem(&answer).is_some(), refused, "{tool}: {answer}");
        assert_eq!(upstream.asked().len() == before, refused, "{tool}");
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
            let before = upstream.asked().len();
            let headers = alice.headers("tools/call", Some(tool));
            let params = format!(r#","name":"{tool}","arguments":{{"n":{number}}}"#);
            let answer = alice.post(&headers, &text("1", "tools/call", &params, "")).await;
            let relayed = format!(r#""structuredContent":{{"n":{number}}}"#);
            assert_eq!(answer.text().contains(&relayed), fits, "{tool} {number}: {}", answer.text());
            let requests = upstream.asked();
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

/// A gateway that keeps its state in `data`.
async fn restarted(data: &Path, backends: &[String]) -> (Gateway, Caller) {
    let gw = Gateway::start_with(&acme_and_other(backends), |settings| {
        settings.data_dir = data.to_owned();
        settings.limits.first_catalog_time = Duration::from_secs(60);
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    (gw, alice)
}

/// A server with one of everything, described in bytes that are easily changed.
async fn furnished() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.tool(
        "find",
        r#"{"name":"find","inputSchema":{"type":"object"},"x":[1.50,9007199254740993],"t\u0069tle":"\u00e9"}"#,
    );
    upstream.prompt("greet", r#"{"name":"greet"}"#).resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    upstream.template("x://{n}", r#"{"uriTemplate":"x://{n}","name":"n"}"#).instructions("Be kind.");
    upstream
}

#[tokio::test]
async fn a_restart_with_a_backend_down_still_lists_what_it_has() {
    let data = tempfile::tempdir().unwrap();
    let (crm, wiki) = tokio::join!(Upstream::start(), furnished());
    let backends = [crm.backend("crm", ""), wiki.backend("wiki", ", era: modern")];
    let (gw, alice) = restarted(data.path(), &backends).await;
    let before = alice.rpc("tools/list", json!({})).await.text();
    assert!(before.contains("1.50,9007199254740993"), "{before}");
    let others = everything_but_tools(&alice).await;
    gw.stop().await;

    let file = data.path().join("catalogs/acme.json");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));

    // It takes connections and is silent: whoever waits for it waits for a minute.
    wiki.behave("server/discover", Behaviour::Hang).behave("tools/list", Behaviour::Hang);
    let began = Instant::now();
    let (gw, alice) = restarted(data.path(), &backends).await;
    assert_eq!(alice.rpc("tools/list", json!({})).await.text(), before, "byte for byte");
    assert_eq!(everything_but_tools(&alice).await, others);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    gw.stop().await;

    // It is gone altogether, and comes back: a call is tried either way.
    let address = wiki.address();
    drop(wiki);
    let (gw, alice) = restarted(data.path(), &backends).await;
    assert_eq!(alice.tools().await, ["crm_echo", "wiki_echo", "wiki_find"]);
    assert_eq!(alice.call_tool("wiki_echo", json!({})).await.refusal(), (502, -32603));
    alice.call_tool("crm_echo", json!({})).await.result();
    let _wiki = Upstream::start_at(address).await;
    eventually("the backend is called", async || alice.call_tool("wiki_echo", json!({})).await.status == 200)
        .await;
    gw.stop().await;
}

/// What every list but that of tools has.
async fn everything_but_tools(caller: &Caller) -> Vec<Value> {
    let mut all = Vec::new();
    for method in ["prompts/list", "resources/list", "resources/templates/list", "server/discover"] {
        all.push(caller.rpc(method, json!({})).await.result());
    }
    all
}

#[tokio::test]
async fn only_what_came_from_the_same_place_is_taken_over() {
    let data = tempfile::tempdir().unwrap();
    let (crm, wiki) = tokio::join!(Upstream::start(), furnished());
    let (gw, alice) = restarted(data.path(), &[crm.backend("crm", ""), wiki.backend("wiki", "")]).await;
    assert_eq!(alice.tools().await, ["crm_echo", "wiki_echo", "wiki_find"]);
    gw.stop().await;
    // Another server under the same name, which is down.
    let other = Upstream::start().await;
    let moved = other.backend("wiki", "");
    drop(other);
    let (gw, alice) = restarted(data.path(), &[crm.backend("crm", ""), moved]).await;
    assert_eq!(alice.tools().await, ["crm_echo"]);
    gw.stop().await;
    // Under another prefix it is the same place.
    let (gw, alice) = restarted(data.path(), &[crm.backend("crm", ", prefix: c_")]).await;
    assert_eq!(alice.tools().await, ["c_echo"]);
    gw.stop().await;
}

#[tokio::test]
async fn files_that_are_not_ours_are_as_good_as_none_and_those_of_nobody_go() {
    let data = tempfile::tempdir().unwrap();
    let catalogs = data.path().join("catalogs");
    std::fs::create_dir(&catalogs).unwrap();
    let crm = Upstream::start().await;
    let (acme, gone, foreign) =
        (catalogs.join("acme.json"), catalogs.join("gone.json"), catalogs.join("README"));
    let anothers = r#"{"form":"fondaco catalog 1","tenant":"other","owners":{"tools":{"crm":["crm_echo"]}},"backends":{}}"#;
    for content in
        [&b"{"[..], b"\xff\x00", b"", b"[]", br#"{"form":"fondaco catalog 0"}"#, anothers.as_bytes()]
    {
        for file in [&acme, &gone, &foreign] {
            std::fs::write(file, content).unwrap();
        }
        let (gw, alice) = restarted(data.path(), &[crm.backend("crm", "")]).await;
        assert_eq!(alice.tools().await, ["crm_echo"], "{content:?}");
        eventually("the file of a tenant that is gone is removed", async || !gone.exists()).await;
        gw.stop().await;
        let written = std::fs::read_to_string(&acme).unwrap();
        assert!(written.starts_with(r#"{"form":"fondaco catalog 1","tenant":"acme""#), "{written:.100}");
        assert_eq!(std::fs::read(&foreign).unwrap(), content);
        let aside = std::fs::read(catalogs.join("acme.unread")).unwrap();
        assert_eq!(aside, content, "what could not be read is not lost");
    }
    // Larger than it may be: the next one has the same file, and does not take it.
    drop(crm);
    let gw = Gateway::start_with(&acme_and_other(&[]), |settings| {
        settings.data_dir = data.path().to_owned();
        settings.limits.catalog_file_bytes = 100;
    })
    .await;
    assert!(gw.caller("acme", "alice", "").tools().await.is_empty());
    gw.stop().await;
}

/// The server that `find` leads to.
async fn reached(caller: &Caller, servers: &[&Upstream]) -> usize {
    let counts = || servers.iter().map(|server| server.asked().len()).collect::<Vec<_>>();
    let before = counts();
    let answer = caller.call_tool("find", json!({})).await;
    let after = counts();
    let reached = (0..servers.len()).find(|n| after[*n] > before[*n]);
    reached.unwrap_or_else(|| panic!("nobody was asked: {}", answer.text()))
}

// spec: row LT-08
#[tokio::test]
async fn a_public_name_stays_with_its_owner() {
    let data = tempfile::tempdir().unwrap();
    let find = r#"{"name":"find","inputSchema":{"type":"object"}}"#;
    let (first, second) = tokio::join!(Upstream::start(), Upstream::start());
    second.tool("find", find);
    let open = ", prefix: \"\"";
    let (one, two) = (first.backend("first", open), second.backend("second", open));
    let servers = [&first, &second];
    let acme = TenantName::new("acme").unwrap();
    let names = ["first", "second"].map(|name| BackendName::new(name).unwrap());
    let (gw, alice) = restarted(data.path(), &[one.clone(), two.clone()]).await;
    assert_eq!(alice.tools().await, ["echo", "find"]);
    assert_eq!(reached(&alice, &servers).await, 1);
    // Its sibling that stands before it begins to list the name.
    first.tool("find", find);
    assert!(gw.app.catalogs.refreshed(&acme, &names[0]).await);
    assert_eq!(reached(&alice, &servers).await, 1);
    let left_out = "fondaco_entries_left_out_total 2";
    let metrics = gw.app.metrics.encode();
    assert!(metrics.contains(left_out), "`echo` of the second and `find` of the first: {metrics}");
    // An owner that lists it in a form that cannot be used is its owner.
    second.tool("find", r#"{"name":"find","inputSchema":7}"#);
    assert!(gw.app.catalogs.refreshed(&acme, &names[1]).await);
    assert_eq!(alice.tools().await, ["echo"]);
    gw.stop().await;

    // A restart forgets nothing, and an owner that is down owns.
    let (gw, alice) = restarted(data.path(), &[one.clone(), two.clone()]).await;
    assert_eq!(alice.tools().await, ["echo"]);
    second.tool("find", find);
    assert!(gw.app.catalogs.refreshed(&acme, &names[1]).await);
    assert_eq!(reached(&alice, &servers).await, 1);
    gw.stop().await;

    // It does not list it any more.
    let bare = Upstream::start().await;
    let (gw, alice) = restarted(data.path(), &[one.clone(), bare.backend("second", open)]).await;
    assert_eq!(alice.tools().await, ["echo", "find"]);
    assert_eq!(reached(&alice, &servers).await, 0);
    gw.stop().await;
    // From now on it is the other one's, until that leaves the configuration.
    let (gw, alice) = restarted(data.path(), &[two.clone(), one.clone()]).await;
    assert_eq!(reached(&alice, &servers).await, 0);
    gw.stop().await;
    let (gw, alice) = restarted(data.path(), &[two]).await;
    assert_eq!(reached(&alice, &servers).await, 1);
    gw.stop().await;
}
