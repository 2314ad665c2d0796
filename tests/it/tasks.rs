//! Tasks (`io.modelcontextprotocol/tasks`): who is told that a client knows them, whose they are, and what
//! goes through.

mod listening;

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco::config::keys::RingKey;
use fondaco::model::clock::Clock;
use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::issuer::Issuer;
use crate::harness::session::REVISIONS;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

/// The capabilities of a server, and of a client, that knows tasks.
const SERVER: &str = r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const CLIENT: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// The backend's own id of its task.
const OWN: &str = "own/task 1";

/// Members of every task, some of them of no protocol, and text that no parser gives back as it was.
const REST: &str = r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:01Z","pollIntervalMs":5000,"vendor/x":{"n":1.10E+2,"z":9007199254740993, "k\u0065y":"\u0041"}"#;

/// A result with a task of this status, and more members, each with a comma in front.
fn task(kind: &str, id: &str, status: &str, more: &str) -> Behaviour {
    let head = format!(r#""resultType":"{kind}","taskId":"{id}","status":"{status}""#);
    Behaviour::Result(format!(r#"{{{head},{REST},"ttlMs":60000{more}}}"#))
}

/// A server whose tool `echo` makes the task `OWN`, which goes on.
async fn working() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.capabilities(SERVER).behave("echo", task("task", OWN, "working", ""));
    upstream.behave("tasks/get", task("complete", OWN, "working", ""));
    // To be listed again at once.
    let echo = r#"{"name":"echo","inputSchema":{"type":"object"}}"#;
    upstream.behave("tools/list", Behaviour::Result(format!(r#"{{"tools":[{echo}],"ttlMs":0}}"#)));
    upstream
}

/// The tenants `acme` and `other`, each with these backends.
fn tenants(backends: &str, issuer: &str) -> String {
    format!(
        r#"
issuers: [{{issuer: "{issuer}", tenant_claim: tenant}}]
tenants:
  acme: {{issuers: [{{shared: "{issuer}"}}], backends: {{{backends}}}}}
  other: {{issuers: [{{shared: "{issuer}"}}], backends: {{{backends}}}}}
"#
    )
}

/// A gateway before `upstream`, named `up` and with more settings of it.
async fn before(upstream: &Upstream, more: &str) -> (Gateway, Caller) {
    let gw = Gateway::start_with(&tenants(&upstream.backend("up", more), "{issuer}"), |settings| {
        settings.limits.refresh_time = Duration::from_millis(200);
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    (gw, alice)
}

/// Asks with these members of `params`, each with a comma in front, and these capabilities.
async fn ask(caller: &Caller, method: &str, name: Option<&str>, params: &str, capabilities: &str) -> Answer {
    caller.post(&caller.headers(method, name), &body(method, params, capabilities)).await
}

fn body(method: &str, params: &str, capabilities: &str) -> String {
    let meta = format!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}"#
    );
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{{meta}}}{params}}}}}"#)
}

async fn call(caller: &Caller, tool: &str, capabilities: &str) -> Answer {
    ask(caller, "tools/call", Some(tool), &format!(r#","name":"{tool}""#), capabilities).await
}

/// Asks about a task as a client that knows tasks.
async fn about(caller: &Caller, method: &str, id: &str) -> Answer {
    let params = match method {
        "tasks/update" => format!(r#","taskId":"{id}","inputResponses":{{}}"#),
        _ => format!(r#","taskId":"{id}""#),
    };
    ask(caller, method, Some(id), &params, CLIENT).await
}

/// The id of a task that `caller` makes.
async fn made(caller: &Caller, tool: &str) -> String {
    let result = call(caller, tool, CLIENT).await.result();
    assert_eq!(result["resultType"], "task", "{result}");
    result["taskId"].as_str().unwrap().to_owned()
}

/// The requests with this method that the backend received.
fn asked(upstream: &Upstream, method: &str) -> Vec<Received> {
    let mut requests = upstream.requests();
    requests.retain(|request| request.header("mcp-method") == [method]);
    requests
}

/// What the backend was last told that its client can do.
fn told(upstream: &Upstream, method: &str) -> Value {
    let last = asked(upstream, method).pop().unwrap().json();
    last["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
}

/// No tenants yet, and the gateway's own issuer for those that come.
const SHARED: &str = "issuers: [{issuer: \"{issuer}\", tenant_claim: tenant}]\ntenants: {}";

const ABOUT: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

// spec: rows DV-05, EX-02
#[tokio::test]
async fn a_backend_that_lists_for_each_caller_makes_tasks_like_any_other() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, ", catalog: per_caller").await;
    let discovered = ask(&alice, "server/discover", None, "", CLIENT).await.result();
    assert_eq!(discovered["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"], json!({}));
    let id = made(&alice, "up_echo").await;
    assert!(told(&upstream, "tools/call")["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    for method in ABOUT {
        assert_eq!(about(&alice, method, &id).await.status, 200, "{method}");
        assert_eq!(
            about(&gw.caller("acme", "bob", ""), method, &id).await.refusal(),
            (200, -32602),
            "{method}"
        );
    }
    assert_eq!(about(&alice, "tasks/get", &id).await.result()["status"], "working");
    gw.stop().await;
}

// spec: rows EX-01, EX-02, SH-08, BW-10, BW-12
#[tokio::test]
async fn a_call_may_become_a_task_under_an_id_of_the_callers_own() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let answer = call(&alice, "up_echo", CLIENT).await;
    let result = answer.result();
    let id = result["taskId"].as_str().unwrap().to_owned();
    assert!(id.len() > 60 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
    let whole = format!(r#"{{"resultType":"task","taskId":"{id}","status":"working",{REST},"ttlMs":60000,"#);
    assert!(answer.text().contains(&whole), "{}", answer.text());
    assert!(!answer.text().contains(OWN));
    assert_ne!(made(&alice, "up_echo").await, id, "no two are the same");

    // The next requests are about it, and the backend knows it by its own id, in header and body alike.
    let result = about(&alice, "tasks/get", &id).await;
    let whole =
        format!(r#"{{"resultType":"complete","taskId":"{id}","status":"working",{REST},"ttlMs":60000,"#);
    assert!(result.text().contains(&whole), "{}", result.text());
    let responses = r#"{"k\u0065y":{"action":"accept","content":{"n":1.10E+2}}, "b":{"action":"decline"}}"#;
    let params = format!(r#","taskId":"{id}","inputResponses":{responses},"future":[ 1.50]"#);
    upstream.behave("tasks/update", Behaviour::Result("{}".into()));
    let ack = ask(&alice, "tasks/update", Some(&id), &params, CLIENT).await.result();
    assert_eq!(ack["resultType"], "complete", "{ack}");
    let sent = asked(&upstream, "tasks/update").pop().unwrap().body;
    assert!(sent.contains(&format!(r#""inputResponses":{responses},"future":[ 1.50]"#)), "{sent}");
    // A server that still tells in its acknowledgement what is at the time.
    upstream.behave("tasks/cancel", task("complete", OWN, "working", ""));
    let ack = about(&alice, "tasks/cancel", &id).await;
    assert_eq!(ack.result()["taskId"], id, "{}", ack.text());
    for method in ABOUT {
        let request = asked(&upstream, method).pop().unwrap();
        assert_eq!(request.header("mcp-name"), [OWN], "{method}");
        assert_eq!(request.json()["params"]["taskId"], OWN, "{method}");
        assert_eq!(told(&upstream, method), json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
        assert!(!request.body.contains(&id), "{}", request.body);
    }
    // A mirror that is another is refused before anybody looks at the id.
    let params = format!(r#","taskId":"{id}""#);
    let wrong = ask(&alice, "tasks/get", Some("other"), &params, CLIENT).await;
    assert_eq!(wrong.refusal(), (400, -32020));
    assert_eq!(upstream.count("tasks/get"), 1);

    // An id that is no header value goes as the specification has it.
    upstream.behave("echo", task("task", "tâche", "working", ""));
    let id = made(&alice, "up_echo").await;
    about(&alice, "tasks/get", &id).await;
    let request = asked(&upstream, "tasks/get").pop().unwrap();
    assert_eq!(request.header("mcp-name"), ["=?base64?dMOiY2hl?="]);
    gw.stop().await;
}

// spec: rows EX-04, MR-02
#[tokio::test]
async fn what_a_task_is_at_is_relayed_if_it_is_the_task_that_was_asked_for() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let id = made(&alice, "up_echo").await;
    let result = r#"{"content":[{"type":"resource_link","uri":"x://1","name":"one"},7],"isError":true,"resultType":"complete","structuredContent":{"n":1.10E+2}}"#;
    for (status, more, shown) in [
        ("completed", format!(r#","result":{result}"#), result.replace("x://1", "up+x://1")),
        (
            "failed",
            r#","error":{"code":-32050,"message":"m","data":1.10E+2}"#.to_owned(),
            "1.10E+2".to_owned(),
        ),
        ("cancelled", r#","statusMessage":"enough""#.to_owned(), "enough".to_owned()),
    ] {
        // `task` is what examples of the specification have here, against its own words.
        for kind in ["complete", "task"] {
            upstream.behave("tasks/get", task(kind, OWN, status, &more));
            let answer = about(&alice, "tasks/get", &id).await;
            let result = answer.result();
            assert_eq!((&result["resultType"], &result["status"]), (&json!("complete"), &json!(status)));
            assert_eq!(result["taskId"], id);
            assert!(answer.text().contains(&shown) && answer.text().contains(REST), "{}", answer.text());
        }
    }
    for wrong in [
        task("complete", "another", "working", ""),
        task("complete", OWN, "completed", ""),
        task("complete", OWN, "failed", r#","error":7"#),
        task("complete", OWN, "input_required", ""),
        task("complete", OWN, "resting", ""),
        task("input_required", OWN, "working", ""),
        task("surprise", OWN, "working", ""),
        task("complete", OWN, "input_required", r#","inputRequests":{"a":{"method":"tools/call"}}"#),
        Behaviour::Result("{}".into()),
    ] {
        upstream.behave("tasks/get", wrong);
        let answer = about(&alice, "tasks/get", &id).await;
        assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
    }

    // Input is asked of who can give it.
    let asks = r#"{"k":{"method":"elicitation/create","params":{"message":"?", "x":1.10E+2,"requestedSchema":{ }}},"r":{"method":"roots/list"}}"#;
    upstream
        .behave("tasks/get", task("complete", OWN, "input_required", &format!(r#","inputRequests":{asks}"#)));
    let params = format!(r#","taskId":"{id}""#);
    let all = CLIENT.replacen('{', r#"{"elicitation":{},"roots":{},"#, 1);
    let answer = ask(&alice, "tasks/get", Some(&id), &params, &all).await;
    assert_eq!(answer.result()["status"], "input_required");
    assert!(answer.text().contains(&format!(r#""inputRequests":{asks}"#)), "{}", answer.text());
    let some = CLIENT.replacen('{', r#"{"elicitation":{},"#, 1);
    let answer = ask(&alice, "tasks/get", Some(&id), &params, &some).await;
    assert_eq!(answer.refusal(), (400, -32021));
    assert_eq!(answer.message()["error"]["data"], json!({"requiredCapabilities": {"roots": {}}}));

    // What its backend does not know, it says itself.
    upstream.behave("tasks/get", Behaviour::Error(200, r#"{"code":-32602,"message":"Unknown task"}"#.into()));
    assert_eq!(about(&alice, "tasks/get", &id).await.refusal(), (200, -32602));
    gw.stop().await;
}

// spec: rows EX-04, MR-02, MR-07, GW-04
#[tokio::test]
async fn what_a_task_asks_is_judged_like_what_a_call_asks() {
    let upstream = working().await;
    let form = |field: &str| {
        let properties = format!(r#"{{"{field}":{{"type":"string"}}}}"#);
        format!(
            r#"{{"method":"elicitation/create","params":{{"message":"m","requestedSchema":{{"type":"object","properties":{properties}}}}}}}"#
        )
    };
    let url = |url: &str| {
        format!(r#"{{"method":"elicitation/create","params":{{"mode":"url","message":"m","url":"{url}"}}}}"#)
    };
    let sampling = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let roots = r#"{"method":"roots/list"}"#;
    let able = CLIENT.replacen('{', r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},"#, 1);
    for (refuse, wanted, reason) in [
        ("", form("password"), "secret"),
        ("", url("javascript:alert(1)"), "url"),
        (", refuse: [forms]", form("name"), "forms"),
        (", refuse: [urls]", url("https://x.example/"), "urls"),
        (", refuse: [sampling]", sampling.to_owned(), "sampling"),
        (", refuse: [roots]", roots.to_owned(), "roots"),
    ] {
        let (gw, alice) = before(&upstream, refuse).await;
        let asks = format!(r#","inputRequests":{{"k":{wanted}}}"#);
        upstream.behave("echo", task("task", OWN, "input_required", &asks));
        let refused = call(&alice, "up_echo", &able).await;
        assert_eq!(refused.refusal(), (200, -32603), "{reason}: {}", refused.text());
        assert!(refused.text().contains("the backend asks"), "{}", refused.text());

        // Where nobody waits for answers, nobody is asked.
        let more = format!(r#"{asks},"InputRequests":{{"k":{wanted}}}"#);
        upstream.behave("echo", task("task", OWN, "working", &more));
        let begun = call(&alice, "up_echo", &able).await;
        let id = begun.result()["taskId"].as_str().unwrap().to_owned();
        assert!(!begun.text().contains("nputRequests") && begun.text().contains(REST), "{}", begun.text());
        for method in ["tasks/update", "tasks/cancel"] {
            upstream.behave(method, task("complete", OWN, "input_required", &more));
        }
        upstream.behave("tasks/get", task("complete", OWN, "cancelled", &more));
        for method in ABOUT {
            let told = about(&alice, method, &id).await;
            assert_eq!(told.result()["taskId"], id, "{}", told.text());
            assert!(!told.text().contains("nputRequests"), "{method}: {}", told.text());
        }

        upstream.behave("tasks/get", task("complete", OWN, "input_required", &asks));
        let params = format!(r#","taskId":"{id}""#);
        let refused = ask(&alice, "tasks/get", Some(&id), &params, &able).await;
        assert_eq!(refused.refusal(), (200, -32603), "{reason}: {}", refused.text());
        assert!(refused.text().contains("the backend asks"), "{}", refused.text());
        let counted = format!(r#"fondaco_asks_refused_total{{reason="{reason}"}} 2"#);
        assert!(gw.app.metrics.encode().contains(&counted), "{counted}");
        gw.stop().await;
    }
}

// spec: rows MR-02, MR-05
#[tokio::test]
async fn what_a_task_asks_and_is_told_has_bounds() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let id = made(&alice, "up_echo").await;
    let able = CLIENT.replacen('{', r#"{"roots":{},"#, 1);
    let many = |count: usize, each: &str| {
        (0..count).map(|n| format!(r#""k{n}":{each}"#)).collect::<Vec<_>>().join(",")
    };
    let params = format!(r#","taskId":"{id}""#);
    upstream.behave("tasks/update", Behaviour::Result("{}".into()));
    for (count, fits) in [(32, true), (33, false)] {
        let asks = format!(r#","inputRequests":{{{}}}"#, many(count, r#"{"method":"roots/list"}"#));
        upstream.behave("tasks/get", task("complete", OWN, "input_required", &asks));
        upstream.behave("echo", task("task", OWN, "input_required", &asks));
        let told = ask(&alice, "tasks/get", Some(&id), &params, &able).await;
        let begun = call(&alice, "up_echo", &able).await;
        let answers = format!(r#"{params},"inputResponses":{{{}}}"#, many(count, "{}"));
        let ack = ask(&alice, "tasks/update", Some(&id), &answers, &able).await;
        if fits {
            for answer in [told, begun] {
                assert_eq!(answer.result()["inputRequests"].as_object().unwrap().len(), count);
            }
            ack.result();
        } else {
            assert_eq!((told.refusal(), begun.refusal()), ((200, -32603), (200, -32603)));
            assert_eq!(ack.refusal(), (400, -32602), "{}", ack.text());
        }
    }
    assert_eq!(upstream.count("tasks/update"), 1);
    // Who has not said that it can be asked is not, from the beginning.
    upstream.behave(
        "echo",
        task("task", OWN, "input_required", r#","inputRequests":{"k":{"method":"roots/list"}}"#),
    );
    assert_eq!(call(&alice, "up_echo", CLIENT).await.refusal(), (400, -32021));
    gw.stop().await;
}

// spec: rows EX-04, EX-07
#[tokio::test]
async fn the_result_of_a_task_becomes_what_a_calls_would() {
    let upstream = working().await;
    let gw = Gateway::start_with(&tenants(&upstream.backend("up", ""), "{issuer}"), |settings| {
        settings.limits.media_bytes = 1 << 10;
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    let id = made(&alice, "up_echo").await;
    let shows = CLIENT.replace("}}}", r#"},"io.modelcontextprotocol/ui":{}}}"#);
    let params = format!(r#","taskId":"{id}""#);
    let ends = |result: &str| task("complete", OWN, "completed", &format!(r#","result":{result}"#));
    upstream.behave("tasks/get", ends(r#"{"content":[],"_meta":{"ui":{"resourceUri":"ui://v"},"n":1.0}}"#));
    let told = ask(&alice, "tasks/get", Some(&id), &params, CLIENT).await;
    assert!(told.text().contains(r#""result":{"content":[],"_meta":{"n":1.0}}"#), "{}", told.text());
    let told = ask(&alice, "tasks/get", Some(&id), &params, &shows).await;
    assert!(told.result()["result"]["_meta"]["ui"]["resourceUri"].is_string(), "{}", told.text());
    let image =
        |bytes: usize| format!(r#"{{"content":[{{"type":"image","data":"{}"}}]}}"#, "A".repeat(bytes));
    for (bytes, fits) in [(1 << 10, true), ((1 << 10) + 1, false)] {
        upstream.behave("tasks/get", ends(&image(bytes)));
        let told = about(&alice, "tasks/get", &id).await.result();
        assert_eq!(told["status"], "completed");
        assert_eq!(told["result"].get("isError").is_none(), fits, "{bytes}");
        assert_eq!(told.to_string().contains("at most 1024 are relayed"), !fits, "{bytes}");
    }
    upstream.behave(
        "tasks/get",
        ends(r#"{"content":[],"resultType":"input_required","inputRequests":{"k":{}}}"#),
    );
    assert!(!about(&alice, "tasks/get", &id).await.text().contains("inputRequests"));
    gw.stop().await;
}

// spec: basic/index, Error Codes; SEP-2663, Task Polling
#[tokio::test]
async fn the_error_of_a_task_says_what_that_of_a_call_may() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let id = made(&alice, "up_echo").await;
    let large = format!(r#"{{"code":7,"message":"{}","data":"{0}"}}"#, "m".repeat(100 << 10));
    for (error, code, upstream_code) in [
        (r#"{"code":7,"message":"no","data":{"n":1.5}}"#, 7, None),
        (r#"{"code":-32002,"message":"no"}"#, -32603, Some(-32002)),
        (r#"{"code":-32042,"message":"no","data":{"elicitations":[]}}"#, -32603, Some(-32042)),
        (r#"{"code":-32020,"message":"no"}"#, -32603, None),
        (r#"{"message":"no"}"#, -32603, None),
        (&large, 7, None),
    ] {
        upstream.behave("tasks/get", task("complete", OWN, "failed", &format!(r#","error":{error}"#)));
        let answer = about(&alice, "tasks/get", &id).await;
        assert!(answer.text().len() < 10 << 10, "{}", answer.text().len());
        let told = answer.result();
        assert_eq!(told["status"], "failed");
        assert_eq!(told["error"]["code"], code, "{error:.80}");
        assert_eq!(
            told["error"]["data"].get("upstreamCode").and_then(Value::as_i64),
            upstream_code,
            "{error:.80}"
        );
    }
    gw.stop().await;
}

// spec: rows EX-01, EX-11, DV-05, GW-04, BW-10
#[tokio::test]
async fn a_backend_hears_of_tasks_from_who_knows_them_if_it_has_them_itself() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    let discover = async || alice.rpc("server/discover", json!({})).await.result()["capabilities"].clone();
    assert_eq!(discover().await["extensions"], extensions);
    assert_eq!(discover().await["tasks"], json!(null));
    call(&alice, "up_echo", &CLIENT.replace("tasks\":{", "tasks\":{\"x\":1")).await.result();
    assert_eq!(
        told(&upstream, "tools/call"),
        json!({"extensions": {"io.modelcontextprotocol/tasks": {"x": 1}}})
    );

    // Who does not declare it gets no task, whatever the backend makes of it, and no word about one.
    let undeclared = [
        "{}",
        r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#,
        r#"{"extensions":{"io.modelcontextprotocol/tasks":true,"example.com/y":{}}}"#,
    ];
    for capabilities in undeclared {
        let answer = call(&alice, "up_echo", capabilities).await;
        assert_eq!(answer.refusal(), (200, -32603), "{capabilities}");
        assert!(answer.text().contains("task that was not asked for"), "{}", answer.text());
        assert_eq!(told(&upstream, "tools/call")["extensions"], json!(null), "{capabilities}");
        for method in ABOUT {
            let params = r#","taskId":"x","inputResponses":{}"#;
            let answer = ask(&alice, method, Some("x"), params, capabilities).await;
            assert_eq!(answer.refusal(), (400, -32021), "{method} {capabilities}");
            let required = json!({"requiredCapabilities": {"extensions": extensions}});
            assert_eq!(answer.message()["error"]["data"], required);
        }
    }
    let sessions = [REVISIONS[0], REVISIONS[2]];
    for revision in sessions {
        let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}, "example.com/y": {}}});
        let session = Session::open_with(&alice, revision, &capabilities).await;
        assert_eq!(session.opened["capabilities"].get("extensions"), None);
        let answer = session.call_tool("up_echo", json!({})).await;
        assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
        assert_eq!(told(&upstream, "tools/call")["extensions"], json!(null));
        for method in ABOUT {
            let answer = session.rpc(method, json!({"taskId": "x", "inputResponses": {}})).await;
            assert_eq!(answer.refusal(), (200, -32601), "{method}");
        }
    }
    for method in ["tasks/list", "tasks/result"] {
        let answer = ask(&alice, method, None, r#","taskId":"x""#, CLIENT).await;
        assert_eq!(answer.refusal(), (404, -32601), "{method}");
    }
    // No other method may become a task.
    upstream.prompt("greet", r#"{"name":"greet"}"#).behave("greet", task("task", OWN, "working", ""));
    upstream.capabilities(&SERVER.replacen('{', r#"{"prompts":{},"#, 1));
    eventually("it is listed", async || alice.prompts().await == ["up_greet"]).await;
    let answer = ask(&alice, "prompts/get", Some("up_greet"), r#","name":"up_greet""#, CLIENT).await;
    assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
    assert!(ABOUT.iter().all(|method| upstream.count(method) == 0), "{:?}", upstream.methods());

    // It has them until it says otherwise; then nobody is told of them.
    upstream.behave("server/discover", Behaviour::Error(500, r#"{"code":-32603,"message":"m"}"#.into()));
    let before = upstream.count("tools/list");
    eventually("it is listed again", async || upstream.count("tools/list") > before + 2).await;
    assert_eq!(discover().await["extensions"], extensions);
    upstream.behave("server/discover", Behaviour::Echo).capabilities(r#"{"tools":{},"tasks":{}}"#);
    eventually("it says that it has none", async || discover().await["extensions"] == json!(null)).await;
    assert_eq!(call(&alice, "up_echo", CLIENT).await.refusal(), (200, -32603));
    assert_eq!(told(&upstream, "tools/call"), json!({}));
    gw.stop().await;
}

// spec: row EX-01
#[tokio::test]
async fn a_tool_that_only_runs_as_a_task_is_listed_and_says_what_it_needs() {
    let upstream = working().await;
    let job = r#"{"name":"job","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}"#;
    let required = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    let error = format!(r#"{{"code":-32021,"message":"only as a task","data":{required}}}"#);
    upstream
        .behave("tools/list", Behaviour::Echo)
        .tool("job", job)
        .behave("job", Behaviour::Error(400, error));
    let (gw, alice) = before(&upstream, "").await;
    assert_eq!(alice.tools().await, ["up_echo", "up_job"]);
    for capabilities in ["{}", r#"{"extensions":{"io.modelcontextprotocol/ui":{}}}"#] {
        let answer = call(&alice, "up_job", capabilities).await;
        assert_eq!(answer.refusal(), (400, -32021), "{}", answer.text());
        assert_eq!(answer.message()["error"]["data"].to_string(), required);
    }
    // Who has said that it knows tasks cannot mend it.
    assert_eq!(call(&alice, "up_job", CLIENT).await.refusal(), (200, -32603));
    gw.stop().await;

    upstream.capabilities(r#"{"tools":{}}"#);
    let (gw, alice) = before(&upstream, "").await;
    assert_eq!(alice.tools().await, ["up_echo"], "nobody could run it");
    gw.stop().await;
}

// spec: rows EX-01, EX-02
#[tokio::test]
async fn a_task_without_the_form_of_one_is_none() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let right = format!(r#"{{"resultType":"task","taskId":"a","status":"working",{REST},"ttlMs":null}}"#);
    upstream.behave("echo", Behaviour::Result(right.clone()));
    made(&alice, "up_echo").await;
    upstream
        .behave("echo", Behaviour::Result(right.replace("\"a\"", &format!("\"{}\"", "x".repeat(1 << 10)))));
    made(&alice, "up_echo").await;
    let long = format!("\"{}\"", "x".repeat((1 << 10) + 1));
    for (from, to) in [
        ("\"a\"", "7"),
        ("\"a\"", long.as_str()),
        (r#""taskId":"a""#, r#""task":{"taskId":"a"}"#),
        ("working", "started"),
        (r#""ttlMs":null"#, r#""ttl":null"#),
        ("null", "1.5"),
        (r#""createdAt""#, r#""created""#),
    ] {
        upstream.behave("echo", Behaviour::Result(right.replace(from, to)));
        let answer = call(&alice, "up_echo", CLIENT).await;
        assert_eq!(answer.refusal(), (200, -32603), "{to:.40}");
        assert_eq!(answer.message()["error"]["data"], json!({"outcome": "unknown"}));
    }
    gw.stop().await;
}

// spec: rows EX-02, EX-03
#[tokio::test]
async fn a_task_of_somebody_else_is_as_unknown_as_one_that_never_was() {
    let upstream = working().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenants.yaml");
    std::fs::write(&file, "tenants: {}").unwrap();
    let gw = Gateway::start_with(SHARED, |settings| {
        settings.tenants = Some(file.clone());
        let limits = &mut settings.limits;
        (limits.task_time, limits.task_time_most) = (Duration::from_secs(600), Duration::from_secs(1200));
    })
    .await;
    let issuer = format!("http://{}/dev-issuer", gw.addr);
    let write = |backends: &str| {
        let text = tenants(backends, &issuer);
        let (_, text) = text.split_once("tenants:").unwrap();
        std::fs::write(&file, format!("tenants:{text}")).unwrap();
        gw.app.tenants.reload();
    };
    let scoped = r#", prefix: "", scopes: {"tool:echo": [crm.read]}"#;
    let up = upstream.backend("up", scoped);
    write(&up);
    let alice = gw.caller("acme", "alice", "crm.read");
    eventually("its tools are there", async || alice.tools().await == ["echo"]).await;
    let id = made(&alice, "echo").await;
    let mut forged = id.clone();
    forged.replace_range(70..71, if &forged[70..71] == "A" { "B" } else { "A" });
    let asked = || ABOUT.iter().map(|method| upstream.count(method)).sum::<usize>();
    let mut seen = BTreeSet::new();
    let mut unknown = async |why: &str, caller: &Caller, id: &str| {
        for method in ABOUT {
            let answer = about(caller, method, id).await;
            assert_eq!(answer.refusal(), (200, -32602), "{why}: {}", answer.text());
            seen.insert(answer.text());
            assert_eq!((asked(), seen.len()), (0, 1), "{why}");
        }
    };
    unknown("never was", &alice, "786512e2-9e0d-44bd-8f29-789f320fe840").await;
    unknown("the backend's own", &alice, OWN).await;
    unknown("a byte is another", &alice, &forged).await;
    unknown("a part of it", &alice, &id[..id.len() - 1]).await;
    unknown("bob's", &gw.caller("acme", "bob", "crm.read"), &id).await;
    unknown("another tenant", &gw.caller("other", "alice", "crm.read"), &id).await;
    unknown("another endpoint's tenant", &gw.caller_at("/t/other/mcp", "other", "alice", ""), &id).await;
    unknown("no scope any more", &gw.caller("acme", "alice", ""), &id).await;
    write(&upstream.backend("renamed", scoped));
    eventually("the backend has left", async || alice.tools().await == ["echo"]).await;
    unknown("its backend has left", &alice, &id).await;
    write(&up.replace("crm.read", "crm.admin"));
    eventually("the rules are others", async || alice.tools().await.is_empty()).await;
    unknown("the rules want more", &alice, &id).await;
    write(&up);
    eventually("the rules are as before", async || alice.tools().await == ["echo"]).await;

    // The control: with the caller, the tenant and the policy of before it is there.
    assert_eq!(about(&alice, "tasks/get", &id).await.result()["taskId"], id.as_str());
    let forever = {
        let ends =
            format!(r#"{{"resultType":"task","taskId":"{OWN}","status":"working",{REST},"ttlMs":null}}"#);
        upstream.behave("echo", Behaviour::Result(ends));
        made(&alice, "echo").await
    };
    gw.app.clock.advance(500);
    about(&alice, "tasks/get", &id).await.result();
    gw.app.clock.advance(101);
    let before = upstream.count("tasks/get");
    let answer = about(&alice, "tasks/get", &id).await;
    assert_eq!((answer.text(), upstream.count("tasks/get")), (seen.pop_last().unwrap(), before), "expired");
    // The task's own time counts, within bounds.
    about(&alice, "tasks/get", &forever).await.result();
    gw.app.clock.advance(600);
    assert_eq!(about(&alice, "tasks/get", &forever).await.refusal(), (200, -32602));
    gw.stop().await;
}

// spec: row EX-02
#[tokio::test]
async fn params_of_the_wrong_form_are_told_apart_from_unknown_tasks() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let id = made(&alice, "up_echo").await;
    for method in ABOUT {
        for params in ["", r#","taskId":7"#, r#","taskId":null"#] {
            let answer = ask(&alice, method, None, params, CLIENT).await;
            assert_eq!(answer.refusal(), (400, -32602), "{method} {params}");
        }
        let params = format!(r#","taskId":"{id}","taskid":"x""#);
        assert_eq!(ask(&alice, method, Some(&id), &params, CLIENT).await.status, 400, "{method}");
    }
    for responses in ["", r#","inputResponses":[]"#, r#","inputResponses":null"#] {
        let params = format!(r#","taskId":"{id}"{responses}"#);
        let answer = ask(&alice, "tasks/update", Some(&id), &params, CLIENT).await;
        assert_eq!(answer.refusal(), (400, -32602), "{responses}");
    }
    assert!(ABOUT.iter().all(|method| upstream.count(method) == 0));
    gw.stop().await;
}

// spec: rows EX-02, EX-03, BW-14
#[tokio::test]
async fn every_replica_with_the_keys_knows_every_task_at_once() {
    let (upstream, issuer) = (working().await, Issuer::start("").await);
    let tenants = tenants(&upstream.backend("up", ""), issuer.url());
    // "a key of a test and not a secret"
    let key = RingKey::parse("YSBrZXkgb2YgYSB0ZXN0IGFuZCBub3QgYSBzZWNyZXQ").unwrap();
    let replica = async || {
        let gw = Gateway::start_with(&tenants, |settings| {
            settings.keys.ring = vec![key.clone()];
            settings.limits.first_catalog_time = Duration::from_millis(500);
        })
        .await;
        let token = issuer.token(&format!("http://{}/t/acme/mcp", gw.addr), Clock::default().now());
        let alice = Caller { addr: gw.addr, path: "/t/acme/mcp".to_owned(), token };
        (gw, alice)
    };
    let (one, alice) = replica().await;
    let id = made(&alice, "up_echo").await;
    one.stop().await;
    // Also one that has not come to list its backend yet.
    upstream.behave("tools/list", Behaviour::Hang);
    let (other, there) = replica().await;
    assert_eq!(about(&there, "tasks/get", &id).await.result()["taskId"], id.as_str());
    upstream.stop();
    let answer = about(&there, "tasks/get", &id).await;
    assert_eq!(answer.refusal().1, -32603, "gone for now is not unknown: {}", answer.text());
    other.stop().await;
}

// spec: row RL-08
#[tokio::test]
async fn whoever_leaves_ends_a_request_and_never_a_task() {
    let upstream = working().await;
    let (gw, alice) = before(&upstream, "").await;
    let mut calling = Connection::open(gw.addr).await;
    let headers = alice.headers("tools/call", Some("up_echo"));
    calling.post(&alice.path, &headers, &body("tools/call", r#","name":"up_echo""#, CLIENT)).await;
    let id = made(&alice, "up_echo").await;
    eventually("both calls have arrived", async || upstream.count("tools/call") == 2).await;
    drop(calling);
    upstream.behave("tasks/get", Behaviour::Once(Box::new(Behaviour::Hang)));
    let mut polling = Connection::open(gw.addr).await;
    let headers = alice.headers("tasks/get", Some(&id));
    polling.post(&alice.path, &headers, &body("tasks/get", &format!(r#","taskId":"{id}""#), CLIENT)).await;
    eventually("it is asked for", async || upstream.count("tasks/get") == 1).await;
    drop(polling);
    eventually("the poll was given up", async || upstream.cancellations() == 1).await;
    upstream.behave("tasks/get", task("complete", OWN, "working", ""));
    assert_eq!(about(&alice, "tasks/get", &id).await.result()["status"], "working");
    let told = upstream.methods().iter().any(|method| method.contains("cancel"));
    assert!(!told, "{:?}", upstream.methods());

    // Nor does a tool end its tasks that is in the catalog no more.
    upstream.behave("tools/list", Behaviour::Result(r#"{"tools":[],"ttlMs":0}"#.into()));
    eventually("the tool is gone", async || alice.tools().await.is_empty()).await;
    assert_eq!(about(&alice, "tasks/get", &id).await.result()["status"], "working");
    gw.stop().await;
}
