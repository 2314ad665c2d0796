//! Calls that go on in rounds: what a backend asks reaches the client that can be asked, and what the
//! client sends back reaches this backend, for this call, and nobody else.

mod live;
mod parking;

use fondaco::config::Settings;
use fondaco::config::keys::RingKey;
use fondaco::model::clock::Clock;
use fondaco::model::name::BackendName;
use fondaco::model::name::TenantName;
use serde_json::Value;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::issuer::Issuer;
use crate::harness::session::Session;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Received;
use crate::harness::upstream::Upstream;
use crate::harness::wire;
use crate::harness::wire::Answer;

/// A request for a form, and what is answered.
const FORM: &str = r#"{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}"#;
const FILLED: &str = r#"{"k":{"action":"accept","content":{"name":"Ada","n":1.50}},"extra":{}}"#;
const URL: &str =
    r#"{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/"}}"#;
const SAMPLING: &str = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
const ROOTS: &str = r#"{"method":"roots/list"}"#;

/// A client that can be asked everything.
const ABLE: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;

/// The three methods: what is called, by which name, and what the backend calls it.
const CALLS: [(&str, &str, &str); 3] = [
    ("tools/call", r#""name":"crm_echo","arguments":{"b":[1.0,{"d":1e30,"c":"é"}],"a":null}"#, "echo"),
    ("prompts/get", r#""name":"crm_greet","arguments":{"whom":"x"}"#, "greet"),
    ("resources/read", r#""uri":"crm+x://1""#, "x://1"),
];

async fn upstream() -> Upstream {
    let crm = Upstream::start().await;
    crm.prompt("greet", r#"{"name":"greet"}"#).resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    crm.tool("other", r#"{"name":"other","inputSchema":{"type":"object"}}"#);
    crm
}

async fn before(crm: &Upstream, more: &str, change: impl FnOnce(&mut Settings)) -> (Gateway, Caller) {
    let gw = Gateway::start_with(&acme_and_other(&[crm.backend("crm", more)]), change).await;
    let alice = gw.caller("acme", "alice", "crm.read");
    (gw, alice)
}

/// Asks with what `wanted` is, members of a result.
fn asks(wanted: &str) -> Behaviour {
    Behaviour::Result(format!(
        r#"{{"resultType":"input_required",{wanted},"ttlMs":60000,"cacheScope":"public"}}"#
    ))
}

/// One form, and this state.
fn form_and(state: &str) -> Behaviour {
    let state = Value::from(state);
    asks(&format!(r#""inputRequests":{{"k":{FORM}}},"requestState":{state}"#))
}

/// Sends a request of a client with these capabilities, whose params, but for `_meta`, are this text.
async fn send(caller: &Caller, able: &str, method: &str, params: &str) -> Answer {
    let (_, name) = params.split_once(r#""uri":""#).or(params.split_once(r#""name":""#)).unwrap();
    let (name, _) = name.split_once('"').unwrap();
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{able}}}"#
    );
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{meta},{params}}}}}"#);
    caller.post(&caller.headers(method, Some(name)), &body).await
}

/// The params of the next round.
fn again(params: &str, responses: &str, handle: &str) -> String {
    format!(r#"{params},"inputResponses":{responses},"requestState":"{handle}""#)
}

/// Calls the tool and gives back the state that came.
async fn begin(caller: &Caller) -> String {
    let answer = send(caller, ABLE, CALLS[0].0, CALLS[0].1).await;
    handle(&answer)
}

fn handle(answer: &Answer) -> String {
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    result["requestState"].as_str().unwrap().to_owned()
}

/// What the upstream received last.
fn last(crm: &Upstream) -> Received {
    crm.asked().pop().unwrap()
}

/// The text of a tool's result that is an error.
fn failure(answer: &Answer) -> String {
    let result = answer.result();
    assert_eq!((answer.status, &result["isError"]), (200, &json!(true)), "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The value of a metric's line.
async fn metric(gw: &Gateway, line: &str) -> u64 {
    let text = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
    let value = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or(0)
}

// spec: rows MR-01, MR-03, FR-4
#[tokio::test]
async fn a_call_goes_on_with_the_clients_answers_and_the_backends_own_state() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let long = "\u{1f512}x".repeat(2 << 10);
    for state in ["s", "", "\u{0}\"\\\n/ ünï\u{1f512}", r#"{"a": 1.0}"#, &long] {
        for (method, params, own) in CALLS {
            crm.behave(own, form_and(state));
            let asked = send(&alice, ABLE, method, params).await;
            let first = last(&crm).json();
            let (handle, result) = (handle(&asked), asked.result());
            let form: Value = serde_json::from_str(FORM).unwrap();
            assert_eq!(result["inputRequests"], json!({"k": form}), "{method}");
            assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "fondaco");
            assert_eq!((result.get("ttlMs"), result.get("cacheScope")), (None, None), "{method}");
            assert!(state.len() < 9 || !handle.contains(state));

            crm.behave(own, Behaviour::Echo);
            let done = send(&alice, ABLE, method, &again(params, FILLED, &handle)).await;
            assert_eq!(done.result()["resultType"], "complete", "{method}");
            let (second, sent) = (last(&crm).json(), last(&crm).body);
            assert_eq!(second["params"]["requestState"], state, "{method}");
            assert!(sent.contains(&format!(r#""inputResponses":{FILLED}"#)), "{sent}");
            assert_ne!(first["id"], second["id"]);
            for key in ["arguments", "name", "uri"] {
                assert_eq!(first["params"].get(key), second["params"].get(key), "{method} {key}");
            }
        }
    }
    gw.stop().await;
}

// spec: rows MR-03, MR-04
#[tokio::test]
async fn a_state_that_was_not_given_is_not_invented_and_one_that_was_opens_again() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let (method, params, own) = CALLS[0];
    crm.behave(own, asks(&format!(r#""inputRequests":{{"k":{FORM}}}"#)));
    let asked = send(&alice, ABLE, method, params).await.result();
    assert_eq!((&asked["resultType"], asked.get("requestState")), (&json!("input_required"), None));
    crm.behave(own, Behaviour::Echo);
    send(&alice, ABLE, method, &format!(r#"{params},"inputResponses":{FILLED}"#)).await.result();
    let sent = last(&crm).json();
    assert_eq!(
        (sent["params"]["inputResponses"].is_object(), sent["params"].get("requestState")),
        (true, None)
    );

    crm.behave(own, asks(r#""requestState":"only""#));
    let asked = send(&alice, ABLE, method, params).await;
    assert_eq!(asked.result().get("inputRequests"), None);
    let handle = handle(&asked);
    crm.behave(own, Behaviour::Echo);
    let mut ids = Vec::new();
    for _ in 0..2 {
        send(&alice, "{}", method, &format!(r#"{params},"requestState":"{handle}""#)).await.result();
        let sent = last(&crm).json();
        assert_eq!(
            (&sent["params"]["requestState"], sent["params"].get("inputResponses")),
            (&json!("only"), None)
        );
        ids.push(sent["id"].as_u64().unwrap());
    }
    assert_ne!(ids[0], ids[1], "each is a call of its own");
    gw.stop().await;
}

// spec: rows MR-04, GW-03
#[tokio::test]
async fn a_state_opens_for_the_same_caller_on_the_same_call_and_in_time() {
    let (crm, globex) = tokio::join!(upstream(), upstream());
    let tenants = acme_and_other(&[crm.backend("crm", "")]).replace(
        "  other:\n",
        &format!(
            "  globex:\n    issuers: [{{shared: \"{{issuer}}\"}}]\n    backends: {{{}}}\n  other:\n",
            globex.backend("crm", "")
        ),
    );
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    let (method, params, own) = CALLS[0];
    crm.behave(own, form_and("s"));
    let handle = begin(&alice).await;
    crm.behave(own, Behaviour::Echo);
    let next = async |caller: &Caller, method: &str, params: &str, handle: &str| {
        send(caller, ABLE, method, &again(params, FILLED, handle)).await
    };
    let there = gw.caller_at("/t/acme/mcp", "acme", "alice", "");
    next(&there, method, params, &handle).await.result();
    for same in [
        r#""arguments":{"a":null,"b":[ 1.0,{"c":"\u00e9","d":1e30}]},"name":"crm_echo""#,
        r#""name":"crm_echo", "arguments" : {"b":[1.0,{"d":1e30,"c":"é"}],"\u0061":null}"#,
    ] {
        next(&alice, method, same, &handle).await.result();
    }
    let sent = crm.asked().len();
    let altered = |at: usize| {
        let other = if handle.as_bytes()[at] == b'A' { "B" } else { "A" };
        let mut handle = handle.clone();
        handle.replace_range(at..=at, other);
        handle
    };
    let (bob, stranger) = (gw.caller("acme", "bob", ""), gw.caller("globex", "alice", ""));
    let refused = next(&alice, method, params, "nonsense").await;
    assert_eq!(refused.refusal(), (200, -32602), "{}", refused.text());
    for (caller, params, handle, what) in [
        (&alice, params.to_owned(), altered(0), "another key id"),
        (&alice, params.to_owned(), altered(handle.len() / 2), "an altered byte"),
        (&alice, params.to_owned(), String::new(), "nothing"),
        (&alice, params.to_owned(), "s".to_owned(), "the backend's own"),
        (&bob, params.to_owned(), handle.clone(), "another caller"),
        (&stranger, params.to_owned(), handle.clone(), "another tenant"),
        (&alice, params.replace("crm_echo", "crm_other"), handle.clone(), "another tool"),
        (&alice, params.replace("null", "false"), handle.clone(), "another argument"),
        (&alice, params.replace("1.0", "1"), handle.clone(), "another number"),
        (&alice, params.replace(r#","a":null"#, ""), handle.clone(), "an argument less"),
    ] {
        let answer = next(caller, method, &params, &handle).await;
        assert_eq!((answer.status, answer.text()), (200, refused.text()), "{what}");
    }
    for (method, params, _) in &CALLS[1..] {
        let answer = next(&alice, method, params, &handle).await;
        assert_eq!((answer.status, answer.text()), (200, refused.text()), "{method}");
    }
    gw.app.clock.advance(15 * 60 - 5);
    next(&alice, method, params, &handle).await.result();
    gw.app.clock.advance(5);
    let late = next(&alice, method, params, &handle).await;
    assert_eq!((late.status, late.text()), (200, refused.text()), "too late");
    assert_eq!((crm.asked().len(), globex.count("tools/call")), (sent + 1, 0), "nobody was asked");
    gw.stop().await;
}

// spec: row MR-04
#[tokio::test]
async fn another_process_with_the_same_keys_carries_the_next_round() {
    let (issuer, crm) = (Issuer::start("").await, upstream().await);
    let shared = format!("{{issuer: \"{}\"", issuer.url());
    let tenants = format!(
        "issuers: [{shared}, tenant_claim: tenant}}]\ntenants: {{acme: {{issuers: [{}}}], backends: {{{}}}}}}}",
        shared.replace("issuer", "shared"),
        crm.backend("crm", "")
    );
    // "a key of a test and not a secret", "another key of a test, no secret"
    let key = |text: &str| RingKey::parse(text).unwrap();
    let own = key("YSBrZXkgb2YgYSB0ZXN0IGFuZCBub3QgYSBzZWNyZXQ");
    let newer = key("YW5vdGhlciBrZXkgb2YgYSB0ZXN0LCBubyBzZWNyZXQ");
    let replica = async |ring: Vec<RingKey>| {
        let gw = Gateway::start_with(&tenants, |settings| settings.keys.ring = ring).await;
        let token = issuer.token(&format!("http://{}/t/acme/mcp", gw.addr), Clock::default().now());
        let alice = Caller { addr: gw.addr, path: "/t/acme/mcp".to_owned(), token };
        (gw, alice)
    };
    let (one, alice) = replica(vec![own.clone()]).await;
    let (other, there) = replica(vec![newer.clone(), own]).await;
    let (third, nowhere) = replica(vec![newer]).await;
    let (method, params, tool) = CALLS[0];
    crm.behave(tool, form_and("s"));
    let handle = begin(&alice).await;
    crm.behave(tool, Behaviour::Echo);
    let next = again(params, FILLED, &handle);
    send(&there, ABLE, method, &next).await.result();
    assert_eq!(crm.asked().pop().unwrap().json()["params"]["requestState"], "s");
    assert_eq!(send(&nowhere, ABLE, method, &next).await.refusal(), (200, -32602), "it has not the key");
    for gw in [one, other, third] {
        gw.stop().await;
    }
}

// spec: rows MR-08, FR-4
#[tokio::test]
async fn a_call_is_asked_back_ten_times_and_no_more() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    for (method, params, own) in CALLS {
        crm.behave(own, form_and("again"));
        let mut answer = send(&alice, ABLE, method, params).await;
        for round in 2..=10 {
            answer = send(&alice, ABLE, method, &again(params, FILLED, &handle(&answer))).await;
            assert_eq!(answer.result()["resultType"], "input_required", "round {round}");
        }
        let asked = crm.asked().len();
        answer = send(&alice, ABLE, method, &again(params, FILLED, &handle(&answer))).await;
        assert_eq!(crm.asked().len(), asked + 1);
        match method {
            "tools/call" => assert!(failure(&answer).contains("too often")),
            _ => assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text()),
        }
    }
    assert_eq!(metric(&gw, r#"fondaco_asks_refused_total{reason="rounds"}"#).await, 3);
    gw.stop().await;
}

// spec: rows MR-02, BW-09, GW-04
#[tokio::test]
async fn a_client_is_asked_what_it_declared_on_this_request() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let told = |crm: &Upstream| {
        let sent = last(crm).json();
        sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    for (method, params, own) in CALLS {
        for (able, wanted, lacking) in [
            ("{}", FORM, json!({"elicitation": {"form": {}}})),
            ("{}", URL, json!({"elicitation": {"url": {}}})),
            ("{}", SAMPLING, json!({"sampling": {}})),
            ("{}", ROOTS, json!({"roots": {}})),
            (r#"{"elicitation":{}}"#, FORM, Value::Null),
            (r#"{"elicitation":{}}"#, URL, json!({"elicitation": {"url": {}}})),
            (r#"{"sampling":{"tools":{}}}"#, SAMPLING, Value::Null),
            (r#"{"roots":{}}"#, ROOTS, Value::Null),
        ] {
            crm.behave(own, asks(&format!(r#""inputRequests":{{"k":{wanted}}},"requestState":"s""#)));
            let answer = send(&alice, able, method, params).await;
            assert_eq!(told(&crm), serde_json::from_str::<Value>(able).unwrap());
            if lacking.is_null() {
                let wanted: Value = serde_json::from_str(wanted).unwrap();
                assert_eq!(answer.result()["inputRequests"]["k"], wanted, "{able}");
            } else {
                assert_eq!(answer.refusal(), (400, -32021), "{able} {wanted}");
                assert_eq!(answer.message()["error"]["data"]["requiredCapabilities"], lacking);
            }
        }
    }
    let both = format!(r#""inputRequests":{{"a":{ROOTS},"b":{URL},"c":{FORM}}}"#);
    crm.behave("echo", asks(&both));
    let answer = send(&alice, r#"{"elicitation":{}}"#, CALLS[0].0, CALLS[0].1).await;
    let required = &answer.message()["error"]["data"]["requiredCapabilities"];
    assert_eq!(*required, json!({"elicitation": {"url": {}}, "roots": {}}));
    assert_eq!(metric(&gw, r#"fondaco_deprecated_uses_total{feature="sampling"}"#).await, 3);
    assert_eq!(metric(&gw, r#"fondaco_deprecated_uses_total{feature="roots"}"#).await, 3);
    assert_eq!(metric(&gw, r#"fondaco_asks_refused_total{reason="capability"}"#).await, 16);
    gw.stop().await;
}

// spec: rows MR-07, MR-08, GW-04
#[tokio::test]
async fn a_tenant_says_what_its_backend_may_not_ask() {
    let crm = upstream().await;
    let secret = FORM.replace("\"name\"", "\"apiKey\"");
    let unsafe_url = URL.replace("https:", "http:");
    let lacks = r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#;
    for (refuse, told, refused) in [
        (
            "sampling, roots",
            r#"{"elicitation":{"form":{},"url":{}}}"#,
            [(SAMPLING, "sampling"), (ROOTS, "roots")],
        ),
        (
            "forms, sampling",
            r#"{"elicitation":{"url":{}},"roots":{}}"#,
            [(FORM, "forms"), (SAMPLING, "sampling")],
        ),
        (
            "urls, sampling",
            r#"{"elicitation":{"form":{}},"roots":{}}"#,
            [(URL, "urls"), (SAMPLING, "sampling")],
        ),
        (
            "sampling",
            r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#,
            [(&secret, "secret"), (&unsafe_url, "url")],
        ),
    ] {
        let (gw, alice) = before(&crm, &format!(", refuse: [{refuse}]"), |_| {}).await;
        for (wanted, reason) in refused {
            for (method, params, own) in CALLS {
                crm.behave(own, asks(&format!(r#""inputRequests":{{"k":{wanted}}},"requestState":"s""#)));
                let answer = send(&alice, ABLE, method, params).await;
                let sent = crm.asked().pop().unwrap().json();
                let declared = &sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
                assert_eq!(*declared, serde_json::from_str::<Value>(told).unwrap(), "{refuse}");
                match method {
                    "tools/call" => assert!(failure(&answer).starts_with("the backend asks"), "{reason}"),
                    _ => assert_eq!(answer.refusal(), (200, -32603), "{reason} {}", answer.text()),
                }
            }
            assert_eq!(metric(&gw, &format!(r#"fondaco_asks_refused_total{{reason="{reason}"}}"#)).await, 3);
        }
        // A backend that looks at what it is told says so, and the client cannot mend that.
        crm.behave("echo", Behaviour::Error(400, lacks.to_owned()));
        assert!(failure(&send(&alice, ABLE, CALLS[0].0, CALLS[0].1).await).contains("sampling"));
        let answer = send(&alice, "{}", CALLS[0].0, CALLS[0].1).await;
        assert_eq!(answer.refusal(), (400, -32021), "{}", answer.text());
        gw.stop().await;
    }
}

// spec: row MR-08
#[tokio::test]
async fn context_is_asked_of_a_client_that_has_it_and_links_are_public() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let link = |uri: &str| format!(r#"{{"type":"resource_link","uri":"{uri}","name":"n"}}"#);
    let messages = |uri: &str| format!(r#""messages":[{{"role":"user","content":[{}]}}]"#, link(uri));
    let wanted = |uri: &str, context: &str| {
        format!(
            r#"{{"method":"sampling/createMessage","params":{{{}{context},"maxTokens":1}}}}"#,
            messages(uri)
        )
    };
    let including = r#","includeContext":"allServers""#;
    crm.behave("echo", asks(&format!(r#""inputRequests":{{"k":{}}}"#, wanted("x://1", including))));
    for (able, context) in [(r#"{"sampling":{}}"#, ""), (r#"{"sampling":{"context":{}}}"#, including)] {
        let answer = send(&alice, able, CALLS[0].0, CALLS[0].1).await;
        let expected: Value = serde_json::from_str(&wanted("crm+x://1", context)).unwrap();
        assert_eq!(answer.result()["inputRequests"]["k"], expected);
    }
    assert_eq!(metric(&gw, r#"fondaco_deprecated_uses_total{feature="include_context"}"#).await, 1);
    gw.stop().await;
}

// spec: rows MR-01, MR-02, MR-05
#[tokio::test]
async fn what_is_asked_and_answered_has_bounds_and_a_form() {
    let crm = upstream().await;
    let change = |settings: &mut Settings| {
        settings.limits.input_entries = 2;
        settings.limits.input_bytes = 1 << 10;
        settings.limits.state_bytes = 300;
    };
    let (gw, alice) = before(&crm, "", change).await;
    let (method, params, own) = CALLS[0];
    let many = |count: usize| (0..count).map(|n| format!(r#""k{n}":{ROOTS}"#)).collect::<Vec<_>>().join(",");
    let long = "x".repeat(1 << 10);
    for (wanted, fits) in [
        (format!(r#""inputRequests":{{{}}}"#, many(2)), true),
        (format!(r#""inputRequests":{{{}}}"#, many(3)), false),
        (format!(r#""inputRequests":{{"k":{}}}"#, FORM.replace("Who?", &long)), false),
        (format!(r#""requestState":"{}""#, &long[..300]), true),
        (format!(r#""requestState":"{}""#, &long[..301]), false),
        (r#""requestState":1"#.to_owned(), false),
        (r#""requestState":null"#.to_owned(), false),
        (r#""inputRequests":[]"#.to_owned(), false),
        (r#""inputRequests":{"k":{"method":"ping"}}"#.to_owned(), false),
        (r#""inputRequests":{"k":7}"#.to_owned(), false),
        (r#""other":1"#.to_owned(), false),
    ] {
        crm.behave(own, asks(&wanted));
        let answer = send(&alice, ABLE, method, params).await;
        match fits {
            true => assert_eq!(answer.result()["resultType"], "input_required", "{wanted}"),
            false => assert_eq!(answer.refusal(), (200, -32603), "{wanted}"),
        }
    }
    crm.behave(own, Behaviour::Echo);
    let asked = crm.asked().len();
    for responses in [
        "[]".to_owned(),
        "7".to_owned(),
        r#"{"k":1}"#.to_owned(),
        r#"{"k":{},"l":null}"#.to_owned(),
        r#"{"a":{},"b":{},"c":{}}"#.to_owned(),
        format!(r#"{{"a":{{"b":"{long}"}}}}"#),
    ] {
        let answer = send(&alice, ABLE, method, &format!(r#"{params},"inputResponses":{responses}"#)).await;
        assert_eq!(answer.refusal(), (400, -32602), "{responses}");
    }
    assert_eq!(crm.asked().len(), asked, "nobody was asked");
    crm.behave("completion/complete", form_and("s"));
    let completion =
        json!({"ref": {"type": "ref/prompt", "name": "crm_greet"}, "argument": {"name": "a", "value": ""}});
    assert_eq!(alice.rpc("completion/complete", completion).await.refusal(), (200, -32603));
    gw.stop().await;
}

// spec: rows GW-01, MR-03
#[tokio::test]
async fn each_round_is_authorised_anew() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, r#", scopes: {"tool:echo": [crm.read]}"#, |_| {}).await;
    let (method, params, own) = CALLS[0];
    crm.behave(own, form_and("s"));
    let next = again(params, FILLED, &begin(&alice).await);
    crm.behave(own, Behaviour::Echo);
    let fewer = gw.caller("acme", "alice", "");
    assert_eq!(send(&fewer, ABLE, method, &next).await.status, 403);
    send(&alice, ABLE, method, &next).await.result();
    crm.behave("tools/list", Behaviour::Result(r#"{"tools":[]}"#.to_owned()));
    let (tenant, backend) = (TenantName::new("acme").unwrap(), BackendName::new("crm").unwrap());
    gw.app.catalogs.refreshed(&tenant, &backend).await;
    let gone = send(&alice, ABLE, method, &next).await;
    assert_eq!(gone.refusal(), (200, -32602));
    assert_eq!(gone.message()["error"]["message"], "unknown tool: crm_echo");
    gw.stop().await;
}

// spec: row MR-03
#[tokio::test]
async fn a_round_that_is_sent_once_more_is_the_same_round() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let (method, params, own) = CALLS[0];
    crm.behave(own, form_and("s"));
    let next = again(params, FILLED, &begin(&alice).await);
    let stale = Behaviour::Error(400, r#"{"code":-32020,"message":"m"}"#.to_owned());
    crm.behave(own, Behaviour::Once(Box::new(stale)));
    send(&alice, ABLE, method, &next).await.result();
    let calls = crm.requests().into_iter().filter(|r| r.header("mcp-method") == ["tools/call"]);
    let sent: Vec<Value> = calls.map(|call| call.json()["params"].clone()).skip(1).collect();
    let [refused, taken] = &sent[..] else { panic!("{sent:?}") };
    for key in ["requestState", "inputResponses", "arguments"] {
        assert_eq!(refused[key], taken[key], "{key}");
    }
    assert_eq!(taken["requestState"], "s");
    gw.stop().await;
}

// spec: rows MR-03, GW-03
#[tokio::test]
async fn rounds_of_calls_at_the_same_time_do_not_meet() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    crm.behave("echo", asks(&format!(r#""inputRequests":{{"k":{FORM}}},"requestState":"of $ID""#)));
    let params = |n: usize| format!(r#""name":"crm_echo","arguments":{{"n":{n}}}"#);
    let mut first = JoinSet::new();
    for n in 0..24 {
        let (alice, params) = (alice.clone(), params(n));
        first.spawn(async move { (n, handle(&send(&alice, ABLE, "tools/call", &params).await)) });
    }
    let handles = first.join_all().await;
    let mut states = std::collections::HashMap::new();
    for request in crm.requests().iter().filter(|r| r.header("mcp-method") == ["tools/call"]) {
        let sent = request.json();
        states.insert(sent["params"]["arguments"]["n"].as_u64().unwrap(), format!("of {}", sent["id"]));
    }
    crm.behave("echo", Behaviour::Echo);
    let mut second = JoinSet::new();
    for (n, handle) in handles {
        let (alice, params) = (alice.clone(), params(n));
        second.spawn(async move {
            let responses = format!(r#"{{"k":{{"action":"accept","content":{{"n":{n}}}}}}}"#);
            let done = send(&alice, ABLE, "tools/call", &again(&params, &responses, &handle)).await.result();
            assert_eq!(done["structuredContent"]["n"], n);
        });
    }
    second.join_all().await;
    let retries = crm.requests().into_iter().filter(|request| request.body.contains("inputResponses"));
    let mut count = 0;
    for retry in retries {
        let sent = retry.json()["params"].clone();
        let n = sent["arguments"]["n"].as_u64().unwrap();
        assert_eq!(sent["requestState"], states[&n]);
        assert_eq!(sent["inputResponses"]["k"]["content"]["n"], n);
        count += 1;
    }
    assert_eq!(count, 24);
    gw.stop().await;
}

// spec: rows MR-06, FR-4
#[tokio::test]
async fn the_demonstration_asks_and_goes_on() {
    let gw = Gateway::start(&acme_and_other(&["demo: {kind: demo, prefix: \"\"}".to_owned()])).await;
    let alice = gw.caller("acme", "alice", "");
    let params = r#""name":"confirm","arguments":{"action":"leave"}"#;
    assert_eq!(send(&alice, "{}", "tools/call", params).await.refusal(), (400, -32021));
    let asked = send(&alice, r#"{"elicitation":{}}"#, "tools/call", params).await;
    let handle = handle(&asked);
    assert_eq!(asked.result()["inputRequests"]["confirm"]["method"], "elicitation/create");
    for (answer, text) in [
        (r#"{"action":"accept","content":{"confirm":true}}"#, "confirmed: leave"),
        (r#"{"action":"decline"}"#, "declined: leave"),
        (r#"{"action":"cancel"}"#, "cancelled: leave"),
    ] {
        let responses = format!(r#"{{"confirm":{answer}}}"#);
        let told =
            send(&alice, r#"{"elicitation":{}}"#, "tools/call", &again(params, &responses, &handle)).await;
        assert_eq!(told.result()["content"][0]["text"], text);
    }
    gw.stop().await;
}

// spec: rows Y-05, GW-04
#[tokio::test]
async fn a_session_whose_client_takes_no_stream_is_not_asked() {
    let crm = upstream().await;
    let (gw, alice) = before(&crm, "", |_| {}).await;
    let able: Value = serde_json::from_str(ABLE).unwrap();
    let session = Session::open_with(&alice, "2025-11-25", &able).await;
    let headers = session.headers_with("Accept", "application/json");
    let call = |method: &str, params: Value| request(&json!(1), method, &params);
    for wanted in [format!(r#""inputRequests":{{"k":{FORM}}}"#), r#""requestState":"s""#.to_owned()] {
        crm.behave("echo", asks(&wanted)).behave("greet", asks(&wanted));
        let answer = alice.post(&headers, &call("tools/call", json!({"name": "crm_echo"}))).await;
        assert!(failure(&answer).starts_with("the backend asks for"), "{wanted}");
        assert_eq!(answer.result().get("resultType"), None);
        let told = last(&crm).json();
        assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
        let answer = alice.post(&headers, &call("prompts/get", json!({"name": "crm_greet"}))).await;
        assert_eq!(answer.refusal(), (200, -32603), "{}", answer.text());
    }
    gw.stop().await;
}
