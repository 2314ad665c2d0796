//! Backends that fail in every way: each failure has its one answer, and harms no other call.

use std::cell::Cell;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::eventually;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wire::Answer;

/// Bytes that a flood may push into the gateway and the sockets before it.
const SWALLOWED: usize = 36 << 20;

/// A fault, how it is made, and the status, code, `data` and a word of its answer. Code 0 is a result.
pub struct Row {
    /// What it is called.
    pub fault: &'static str,
    /// What makes it.
    pub behaviour: Behaviour,
    status: u16,
    code: i64,
    data: Value,
    word: &'static str,
}

/// A row of the table.
pub fn row(
    fault: &'static str,
    behaviour: Behaviour,
    status: u16,
    code: i64,
    data: Value,
    word: &'static str,
) -> Row {
    Row { fault, behaviour, status, code, data, word }
}

/// The backend may have acted: 200, since a proxy that retries on 5xx would run the tool again.
pub fn unknown(fault: &'static str, behaviour: Behaviour, word: &'static str) -> Row {
    row(fault, behaviour, 200, -32603, json!({"outcome": "unknown"}), word)
}

/// These bytes of HTTP.
pub fn http(head: &str, body: &str) -> Behaviour {
    Behaviour::Raw(format!("HTTP/1.1 {head}\r\n\r\n{body}"))
}

/// A JSON-RPC error under this status.
pub fn error(status: u16, code: i64, data: &str) -> Behaviour {
    Behaviour::Error(status, format!(r#"{{"code":{code},"message":"theirs"{data}}}"#))
}

/// This text as JSON.
pub fn body(body: &str) -> Behaviour {
    http("200 OK\r\nContent-Type: application/json", body)
}

/// Backends that say nothing, or break.
pub fn silent_and_broken() -> Vec<Row> {
    vec![
        unknown("hangs", Behaviour::Hang, "idle timeout"),
        unknown("hangs in the stream", Behaviour::HangInStream, "idle timeout"),
        unknown("drips", Behaviour::Drip, "idle timeout"),
        unknown("resets before the head", Behaviour::Reset, "lost"),
        unknown("resets in the body", Behaviour::ResetInBody, "lost"),
        unknown("resets in the stream", Behaviour::ResetInStream, "lost"),
        unknown("closes without an answer", Behaviour::Raw(String::new()), "lost"),
        unknown("speaks no HTTP", Behaviour::Raw("220 smtp.example ESMTP\r\n".into()), "lost"),
        unknown("asks on the stream", Behaviour::ServerRequest, "request of its own"),
        unknown("floods with a declared length", Behaviour::Huge(50 << 20), "larger"),
        unknown("floods with JSON", Behaviour::Flood("application/json", 50 << 20), "larger"),
        unknown("floods with one event", Behaviour::Flood("text/event-stream", 50 << 20), "larger"),
    ]
}

/// Backends that answer what is no answer.
pub fn wrong_answers(elsewhere: &str) -> Vec<Row> {
    let result = |text: &str| Behaviour::Result(text.into());
    let both = r#"{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"m"}}"#;
    let right = r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#;
    vec![
        unknown("answers HTML", http("200 OK\r\nContent-Type: text/html", "<p>Hi"), "neither JSON nor"),
        unknown("answers half of the JSON", Behaviour::HalfJson, "not JSON"),
        unknown("answers a key twice", result(r#"{"a":1,"\u0061":2}"#), "same key twice"),
        unknown("answers half a character", result(r#"{"a":"\ud83d"}"#), "not JSON"),
        unknown("answers an array, deep", result(&format!("{}{}", "[".repeat(63), "]".repeat(63))), "object"),
        unknown("answers too deep", result(&format!("{}{}", "[".repeat(64), "]".repeat(64))), "too deep"),
        unknown("answers another id", Behaviour::WrongId, "another id"),
        unknown("answers the id as a string", Behaviour::StringId, "another id"),
        unknown("answers result and error", body(both), "either"),
        unknown("answers neither", body(r#"{"jsonrpc":"2.0","id":$ID}"#), "either"),
        unknown("answers a batch", body(&format!("[{right}]")), "JSON object"),
        unknown("answers 202", http("202 Accepted\r\nContent-Length: 0", ""), "notification"),
        unknown("answers a surprise", result(r#"{"resultType":"surprise"}"#), "not known"),
        unknown("asks for input", result(r#"{"resultType":"input_required"}"#), "input_required"),
        unknown("compresses", Behaviour::Gzip, "compressed"),
        unknown("sends elsewhere", Behaviour::Redirect(elsewhere.to_owned()), "redirects"),
        unknown("answers 500", http("500 Oops\r\nContent-Type: text/html", "<p>Oops"), "HTTP status"),
        unknown("answers 500 with a result", http("500 Oops\r\nContent-Type: application/json", right), ""),
        unknown("answers 503", http("503 Busy\r\nRetry-After: 9\r\nContent-Length: 0", ""), "HTTP status"),
        row("answers 401", error(401, -32600, ""), 502, 1004, Value::Null, "refuses"),
        row("answers 403", error(403, -32600, ""), 502, 1004, Value::Null, "refuses"),
        row("answers twice", Behaviour::TwoFinals, 200, 0, Value::Null, "structuredContent"),
    ]
}

fn errors() -> Vec<Row> {
    let row = |fault, status, code, data: &str, expected: (u16, i64), expected_data| {
        row(fault, error(status, code, data), expected.0, expected.1, expected_data, "theirs")
    };
    let remapped = |code: i64| json!({"upstreamCode": code});
    let lacks = r#","data":{"requiredCapabilities":{"elicitation":{}}}"#;
    let lacking = json!({"requiredCapabilities": {"elicitation": {}}});
    vec![
        row("says -32002", 200, -32002, "", (200, -32603), remapped(-32002)),
        row("says -32042", 200, -32042, "", (200, -32603), remapped(-32042)),
        row("says -32050", 500, -32050, "", (200, -32603), remapped(-32050)),
        row("says -32000", 400, -32000, "", (200, -32603), remapped(-32000)),
        row("says -32022", 400, -32022, "", (200, -32603), remapped(-32022)),
        row("says -32601", 404, -32601, "", (404, -32601), Value::Null),
        row("says -32602", 200, -32602, r#","data":{"a":1}"#, (200, -32602), json!({"a": 1})),
        row("says -32603", 500, -32603, "", (200, -32603), Value::Null),
        row("says -32021 of what the client lacks", 400, -32021, lacks, (400, -32021), lacking),
    ]
}

/// Two tenants; `acme` has a bad backend beside a good one.
async fn house(bad: &[(&str, String)], good: &Upstream, other: &Upstream) -> Gateway {
    let mut tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  globex: {{backends: {{good: {{kind: mcp, url: "{}"}}}}}}
  acme:
    backends:
      good: {{kind: mcp, url: "{}"}}
"#,
        other.url(),
        good.url()
    );
    for (name, url) in bad {
        let line = format!("      {name}: {{kind: mcp, url: \"{url}\", timeout: 5s, idle_timeout: 500ms}}\n");
        tenants.push_str(&line);
    }
    Gateway::start_with(&tenants, |settings| {
        settings.limits.connect_time = Duration::from_millis(300);
        settings.limits.first_catalog_time = Duration::from_secs(2);
        settings.limits.upstream_calls = 3;
        settings.limits.argument_values = 3_000_000;
    })
    .await
}

/// Calls the good backends for as long as `fault` is going on, and at least once each.
pub async fn meanwhile(fault: impl Future<Output = Answer>, good: &[&Caller]) -> Answer {
    let unharmed = async |n: usize| {
        for caller in good {
            let call = caller.call_tool("good_echo", json!({"n": n}));
            let answer = tokio::time::timeout(Duration::from_secs(5), call).await;
            let result = answer.expect("another call is held up").result();
            assert_eq!(result["structuredContent"]["n"], n);
        }
    };
    let others = async {
        for n in 0.. {
            unharmed(n).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = tokio::select! {
        answer = fault => answer,
        () = others => unreachable!(),
    };
    unharmed(0).await;
    answer
}

/// Whether the answer is the row's.
pub fn judge(row: &Row, answer: &Answer) -> Result<(), String> {
    let got = answer.refusal();
    let data = if row.code == 0 { Value::Null } else { answer.message()["error"]["data"].clone() };
    let right = got == (row.status, row.code) && data == row.data && answer.text().contains(row.word);
    if right && !answer.text().contains("127.0.0.1") {
        return Ok(());
    }
    Err(format!("{}: {got:?} {}", row.fault, answer.text()))
}

#[tokio::test]
async fn every_fault_has_its_answer_and_harms_no_other_call() {
    let (bad, good, other, elsewhere) =
        tokio::join!(Upstream::start(), Upstream::start(), Upstream::start(), Upstream::start());
    let rows = [silent_and_broken(), wrong_answers(&elsewhere.url()), errors()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    for (n, row) in rows.iter().enumerate() {
        bad.tool(&format!("t{n}"), &format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}}}}"#));
        bad.behave(&format!("t{n}"), row.behaviour.clone());
    }
    let gw = house(&[("bad", bad.url())], &good, &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    assert_eq!(alice.tools().await.len(), rows.len() + 2);
    let mut failures = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        // On a kept connection: the one thing that might be sent twice.
        alice.call_tool("bad_echo", json!({})).await.result();
        let before = bad.flooded();
        let answer = meanwhile(alice.call_tool(&format!("bad_t{n}"), json!({"n": n})), &[&alice, &bob]).await;
        failures.extend(judge(row, &answer).err());
        let taken = bad.flooded() - before;
        if taken > SWALLOWED {
            failures.push(format!("{}: {taken} bytes were taken", row.fault));
        }
        let name = format!("t{n}");
        let sent = bad.requests().iter().filter(|request| request.header("mcp-name") == [&*name]).count();
        if sent != 1 {
            failures.push(format!("{}: sent {sent} times", row.fault));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(bad.flooded() > 0);
    assert_eq!(elsewhere.connections(), 0, "a redirect is not followed");
    alice.call_tool("bad_echo", json!({})).await.result();
    gw.stop().await;
}

#[tokio::test]
async fn a_backend_that_cannot_be_reached_is_said_to_be_so() {
    let (down, deaf, good, other) =
        tokio::join!(Upstream::start(), Upstream::start(), Upstream::start(), Upstream::start());
    let gw = house(&[("down", down.url()), ("deaf", deaf.url())], &good, &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    assert_eq!(alice.tools().await, ["deaf_echo", "down_echo", "good_echo"]);
    down.stop();
    deaf.stop();
    eventually(|| std::net::TcpStream::connect(down.address()).is_err()).await;
    eventually(|| std::net::TcpStream::connect(deaf.address()).is_err()).await;
    // A listener whose queue is full does not answer: not even a refusal.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(deaf.address()).unwrap();
    let _listener = socket.listen(1).unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(deaf.address())).await
    {
        queued.push(stream);
    }
    for (tool, status, word) in
        [("down_echo", 502, "cannot be reached"), ("deaf_echo", 504, "connect timeout")]
    {
        let answer = meanwhile(alice.call_tool(tool, json!({})), &[&alice, &bob]).await;
        assert_eq!(answer.refusal(), (status, -32603), "{tool}: {}", answer.text());
        let error = &answer.message()["error"];
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
        assert_eq!(error.get("data"), None, "nothing was sent, so the outcome is known");
    }
    assert_eq!(alice.tools().await, ["deaf_echo", "down_echo", "good_echo"], "the last list stays");
    gw.stop().await;
}

/// A tool whose schema is nested so deep.
fn deep(name: &str, levels: usize) -> String {
    let schema = format!("{}{{}}{}", r#"{"properties":{"a":"#.repeat(levels / 2), "}}".repeat(levels / 2));
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"a":{schema}}}}}}}"#)
}

#[tokio::test]
async fn lists_that_fail_leave_the_other_lists_alone() {
    let (good, other) = tokio::join!(Upstream::start(), Upstream::start());
    let faults: Vec<(&str, Behaviour)> = vec![
        ("endless", Behaviour::EndlessPages),
        ("same", Behaviour::SameCursor),
        ("hang", Behaviour::Hang),
        ("drip", Behaviour::Drip),
        ("reset", Behaviour::ResetInBody),
        ("html", http("200 OK\r\nContent-Type: text/html", "<p>Hi")),
        ("half", Behaviour::HalfJson),
        ("flood", Behaviour::Flood("application/json", 50 << 20)),
        ("asks", Behaviour::ServerRequest),
        ("refuses", error(401, 1, "")),
        ("bottomless", body(&"[".repeat(1 << 20))),
    ];
    let mut upstreams = Vec::new();
    let mut bad = Vec::new();
    for (name, behaviour) in faults {
        let upstream = Upstream::start().await;
        upstream.behave("tools/list", behaviour);
        bad.push((name, upstream.url()));
        upstreams.push(upstream);
    }
    let mixed = Upstream::start().await;
    mixed.tool("deep", &deep("deep", 80)).tool("deepest", &deep("deepest", 200));
    mixed.tool(
        "meta",
        &format!(
            r#"{{"name":"meta","inputSchema":{{"type":"object"}},"_meta":{{"a":{}{}}}}}"#,
            "[".repeat(80),
            "]".repeat(80)
        ),
    );
    mixed.tool("fits", &deep("fits", 50)).tool("odd", r#"{"name":7}"#);
    mixed.page_size(2).instructions("Be kind.");
    bad.push(("mixed", mixed.url()));
    let gw = house(&bad, &good, &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));

    let list = async { alice.rpc("tools/list", json!({})).await };
    let listed = meanwhile(list, &[&bob]).await.result();
    let names: Vec<_> =
        listed["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let mut expected: Vec<String> = (0..100).map(|n| format!("endless_t{n}")).collect();
    expected.extend(["good_echo", "mixed_echo", "mixed_fits", "same_echo"].map(str::to_owned));
    expected.sort_unstable();
    assert_eq!(names, expected);
    for absent in ["endless_t100", "mixed_deep", "mixed_deepest", "mixed_meta", "hang_echo", "flood_echo"] {
        let answer = alice.call_tool(absent, json!({})).await;
        assert_eq!(answer.refusal(), (200, -32602), "{absent}: {}", answer.text());
    }
    let discovered = alice.rpc("server/discover", json!({})).await.result();
    assert_eq!(discovered["instructions"], "Be kind.");
    alice.call_tool("endless_t99", json!({})).await.result();
    alice.call_tool("mixed_fits", json!({})).await.result();
    assert!(upstreams[7].flooded() < SWALLOWED, "{}", upstreams[7].flooded());
    gw.stop().await;
}

/// A tool whose argument is judged part by part.
const SUM: &str = r#"{"name":"sum","inputSchema":{"type":"object","properties":{"a":{
    "anyOf":[{"type":"array","items":{"type":"integer"}},{"type":"object","additionalProperties":{"type":"integer"}}]
}}}}"#;

#[tokio::test]
async fn huge_arguments_hold_nobody_up() {
    let (bad, good, other) = tokio::join!(Upstream::start(), Upstream::start(), Upstream::start());
    bad.tool("sum", SUM);
    let gw = house(&[("bad", bad.url())], &good, &other).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    for (what, argument) in [
        ("numbers", format!("[{}\"\"]", "0,".repeat((4 << 20) / 2 - 400))),
        ("objects", format!("[{}\"\"]", "{},".repeat((4 << 20) / 3 - 400))),
        (
            "keys",
            format!("{{{}\"z\":\"\"}}", (0..300_000).map(|n| format!("\"{n:06}\":0,")).collect::<String>()),
        ),
        ("text", format!("\"{}\"", "x".repeat((4 << 20) - 400))),
    ] {
        let body =
            text("1", "tools/call", &format!(r#","name":"bad_sum","arguments":{{"a":{argument}}}"#), "");
        assert!(body.len() <= 4 << 20);
        let headers = alice.headers("tools/call", Some("bad_sum"));
        let (longest, last) = (Cell::new(Duration::ZERO), Cell::new(Instant::now()));
        let tick = || {
            longest.set(longest.get().max(last.get().elapsed()));
            last.set(Instant::now());
        };
        let ticks = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tick();
            }
        };
        let began = Instant::now();
        let answer = tokio::select! {
            answer = alice.post(&headers, &body) => answer,
            () = ticks => unreachable!(),
        };
        tick();
        let (stall, took) = (longest.get(), began.elapsed());
        // Without optimisation, and on a busy machine, only the proportion tells: most of the time
        // is the check, and the check is elsewhere. Where there is little to check, reading is most.
        let most = match cfg!(debug_assertions) {
            true => (took * 3 / 4).max(Duration::from_millis(400)),
            false => Duration::from_millis(100),
        };
        assert!(stall < most, "{what}: nothing else could run for {stall:?} of {took:?}");
        assert_eq!(answer.result()["isError"], true, "{}", answer.text());
    }
    gw.stop().await;
}

#[tokio::test]
async fn arguments_of_too_many_values_are_refused_with_a_word() {
    let upstream = Upstream::start().await;
    upstream.tool("sum", SUM).tool(
        "named",
        r#"{"name":"named","inputSchema":{"type":"object","properties":{"a":{"pattern":"1[01]{350}[^01]"}}}}"#,
    );
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants: {{acme: {{backends: {{up: {{kind: mcp, url: "{}"}}}}}}}}
"#,
        upstream.url()
    );
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    let numbers = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
    for (tool, argument, word) in [
        ("up_sum", numbers(2_000_000), Some("more than 200000 values")),
        ("up_sum", numbers(199_999), Some("more than 200000 values")),
        ("up_sum", numbers(199_998), None),
        (
            "up_named",
            format!("\"{}\"", "01".repeat(2 << 20).split_at((4 << 20) - 400).0),
            Some("too much text"),
        ),
        ("up_named", format!("\"{}\"", "0".repeat(1_000)), Some("/a: ")),
    ] {
        let arguments = format!(r#","name":"{tool}","arguments":{{"a":{argument}}}"#);
        let before = upstream.asked().len();
        let headers = alice.headers("tools/call", Some(tool));
        let result = alice.post(&headers, &text("1", "tools/call", &arguments, "")).await.result();
        let refused = result["isError"] == true;
        assert_eq!(refused, word.is_some(), "{tool}: {result}");
        assert_eq!(upstream.asked().len() - before, usize::from(!refused));
        if let Some(word) = word {
            assert!(result["content"][0]["text"].as_str().unwrap().contains(word), "{result}");
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_request_of_a_removed_tenant_asks_nobody() {
    let (gone, other) = tokio::join!(Upstream::start(), Upstream::start());
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenants.yaml");
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants: {{globex: {{backends: {{up: {{kind: mcp, url: "{}"}}}}}}}}
"#,
        other.url()
    );
    let acme = format!(r#"tenants: {{acme: {{backends: {{up: {{kind: mcp, url: "{}"}}}}}}}}"#, gone.url());
    std::fs::write(&file, acme).unwrap();
    let gw = Gateway::start_with(&tenants, |settings| {
        settings.tenants = Some(file.clone());
        settings.limits.refresh_time = Duration::from_millis(50);
    })
    .await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    assert_eq!(alice.tools().await, ["up_echo"]);

    let mut stream = TcpStream::connect(gw.addr).await.unwrap();
    let body = text("1", "tools/list", "", "");
    let (half, rest) = body.split_at(body.len() / 2);
    let mut head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n", gw.addr);
    for (name, value) in alice.headers("tools/list", None) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n{half}", body.len()));
    stream.write_all(head.as_bytes()).await.unwrap();
    // The request has its tenant, and waits for the rest of its body.
    tokio::time::sleep(Duration::from_millis(200)).await;
    std::fs::write(&file, "tenants: {}").unwrap();
    gw.app.tenants.reload();
    let listing = async || {
        let before = gone.requests().len();
        tokio::time::sleep(Duration::from_millis(300)).await;
        gone.requests().len() > before
    };
    while listing().await {}

    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""tools":[]"#), "{answer}");
    assert!(!listing().await, "the backend of a tenant that is gone is asked again");
    assert_eq!(bob.tools().await, ["up_echo"]);
    gw.stop().await;
}

#[tokio::test]
async fn a_backend_that_is_full_is_not_asked() {
    let (bad, good, other) = tokio::join!(Upstream::start(), Upstream::start(), Upstream::start());
    let gw = house(&[("bad", bad.url())], &good, &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    alice.tools().await;
    bad.behave("echo", Behaviour::Hang);
    let asked = || bad.requests().iter().filter(|request| request.header("mcp-name") == ["echo"]).count();
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(alice.open("bad_echo", "").await);
    }
    eventually(|| asked() == 3).await;
    let answer = meanwhile(alice.call_tool("bad_echo", json!({})), &[&alice, &bob]).await;
    assert_eq!(answer.refusal(), (503, 1003), "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.message()["error"].get("data"), None);
    assert_eq!(asked(), 3, "what is refused is not sent");
    bad.behave("echo", Behaviour::Echo);
    drop(open.pop());
    eventually(|| bad.cancellations() == 1).await;
    alice.call_tool("bad_echo", json!({})).await.result();
    gw.stop().await;
}
