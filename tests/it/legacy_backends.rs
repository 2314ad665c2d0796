//! Backends that only know the handshake, behind the front door and modern clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::faults::Row;
use crate::faults::error;
use crate::faults::http;
use crate::faults::judge;
use crate::faults::meanwhile;
use crate::faults::row;
use crate::faults::silent_and_broken;
use crate::faults::unknown;
use crate::faults::wrong_answers;
use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::text;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::upstream::sessions::Ids;
use crate::harness::upstream::sessions::Session;
use crate::harness::wait::eventually;
use crate::harness::wire::Connection;

async fn server(mode: Handshake) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.handshake(mode);
    upstream
}

/// Tenant `globex` alone.
fn globex(other: &Upstream) -> String {
    format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  globex: {{backends: {{good: {{kind: mcp, url: "{}"}}}}}}
"#,
        other.url()
    )
}

/// Tenant `acme` with these backends, and `globex` with one of its own.
fn tenants(backends: &[(&str, String)], other: &Upstream) -> String {
    let line = |(name, url): &(&str, String)| {
        format!("      {name}: {{kind: mcp, url: \"{url}\", timeout: 5s, idle_timeout: 1500ms}}\n")
    };
    let backends: String = backends.iter().map(line).collect();
    format!("{}  acme:\n    backends:\n{backends}", globex(other))
}

async fn house(backends: &[(&str, String)], other: &Upstream) -> Gateway {
    Gateway::start_with(&tenants(backends, other), |settings| {
        settings.limits.connect_time = Duration::from_millis(300);
        settings.limits.first_catalog_time = Duration::from_secs(2);
        settings.limits.probe_time = Duration::from_millis(300);
        settings.limits.open_time = Duration::from_millis(500);
        settings.limits.open_pause = Duration::from_millis(100);
    })
    .await
}

/// A gateway with `upstream` as its one backend, and the settings that every test here has.
async fn before(upstream: &Upstream) -> (Gateway, Caller) {
    let other = Upstream::start().await;
    let gw = house(&[("old", upstream.url())], &other).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["old_echo"]);
    (gw, alice)
}

/// How many tool calls of this name the server saw.
fn sent(upstream: &Upstream, name: &str) -> usize {
    upstream.requests().iter().filter(|request| request.json()["params"]["name"] == name).count()
}

fn ended(upstream: &Upstream) -> usize {
    upstream.sessions().iter().filter(|session| session.ended).count()
}

fn errors() -> Vec<Row> {
    let remapped = |code: i64| json!({"upstreamCode": code});
    let row = |fault, status, code, expected: (u16, i64), data| {
        row(fault, error(status, code, ""), expected.0, expected.1, data, "theirs")
    };
    vec![
        row("says -32002", 200, -32002, (200, -32603), remapped(-32002)),
        row("says -32042", 200, -32042, (200, -32603), remapped(-32042)),
        row("says -32000", 200, -32000, (200, -32603), remapped(-32000)),
        // Under the call's own id it is what the call came to, and nothing is done twice.
        row("says -32000 with 400", 400, -32000, (200, -32603), remapped(-32000)),
        row("says -32001 with 404", 404, -32001, (200, -32603), remapped(-32001)),
        row("says -32022", 400, -32022, (200, -32603), remapped(-32022)),
        row("says -32601", 200, -32601, (404, -32601), Value::Null),
        row("says -32602", 400, -32602, (200, -32602), Value::Null),
        row("says -32603", 500, -32603, (200, -32603), Value::Null),
    ]
}

#[tokio::test]
async fn every_fault_has_its_answer_and_harms_no_other_call() {
    let (good, other, elsewhere) = tokio::join!(Upstream::start(), Upstream::start(), Upstream::start());
    let (bad, fine) = (server(Handshake::default()).await, server(Handshake::default()).await);
    let mut rows: Vec<Row> =
        [silent_and_broken(), wrong_answers(&elsewhere.url()), errors()].into_iter().flatten().collect();
    // Its own requests are answered here; what it said then never comes.
    rows.retain(|row| row.fault != "asks on the stream");
    rows.push(unknown("asks on the stream", Behaviour::ServerRequest, "idle timeout"));
    // Nothing can have run: a proxy may send it again.
    let lost =
        |fault, behaviour| row(fault, behaviour, 502, -32603, Value::Null, "does not know the session");
    rows.push(lost("always says 404", http("404 Not Found\r\nContent-Length: 0", "")));
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"theirs"}}"#;
    let no_session = http("400 Bad Request\r\nContent-Type: application/json", null);
    rows.push(lost("always says 400 and -32000 of no request", no_session));
    for (n, row) in rows.iter().enumerate() {
        bad.tool(&format!("t{n}"), &format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}}}}"#));
        bad.behave(&format!("t{n}"), row.behaviour.clone());
    }
    let backends = [("good", good.url()), ("bad", bad.url()), ("fine", fine.url())];
    let gw = house(&backends, &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    assert_eq!(alice.tools().await.len(), rows.len() + 3);
    let mut failures = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        alice.call_tool("bad_echo", json!({})).await.result();
        let answer = meanwhile(alice.call_tool(&format!("bad_t{n}"), json!({"n": n})), &[&alice, &bob]).await;
        failures.extend(judge(row, &answer).err());
        let expected = if row.fault.starts_with("always") { 2 } else { 1 };
        let sent = sent(&bad, &format!("t{n}"));
        if sent != expected {
            failures.push(format!("{}: sent {sent} times", row.fault));
        }
        alice.call_tool("fine_echo", json!({})).await.result();
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(elsewhere.connections(), 0, "a redirect is not followed");
    assert_eq!(fine.count("initialize"), 2, "another backend's sessions stay: the gateway's and alice's");
    alice.call_tool("bad_echo", json!({})).await.result();
    gw.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_opened_is_said_to_be_so() {
    let (other, good) = tokio::join!(Upstream::start(), Upstream::start());
    let bad = server(Handshake::default()).await;
    let gw = house(&[("good", good.url()), ("bad", bad.url())], &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("globex", "bob", ""));
    alice.tools().await;
    let line = |value: &str| Ids::Line(format!("Mcp-Session-Id: {value}"));
    let mode = Handshake::default;
    let rows = [
        (mode(), Behaviour::Hang, 504, -32603, "open timeout"),
        (mode(), Behaviour::HangInStream, 504, -32603, "open timeout"),
        (mode(), Behaviour::Reset, 502, -32603, "cannot be reached"),
        (mode(), http("503 Busy\r\nContent-Length: 0", ""), 502, -32603, "opened"),
        (mode(), http("401 Who\r\nContent-Length: 0", ""), 502, 1004, "refuses"),
        (mode(), error(200, -32601, ""), 502, -32603, "with an error"),
        (mode(), http("200 OK\r\nContent-Type: text/html", "<p>Hi"), 502, -32603, "opened"),
        (Handshake { ids: line("a b"), ..mode() }, Behaviour::Echo, 502, -32603, "visible ASCII"),
        (Handshake { ids: line(&"x".repeat(1025)), ..mode() }, Behaviour::Echo, 502, -32603, "visible ASCII"),
        (Handshake { revision: "2024-11-05", ..mode() }, Behaviour::Echo, 502, -32603, "older than"),
        (Handshake { accepted: 400, ..mode() }, Behaviour::Echo, 502, -32603, "initialized"),
    ];
    let calls = sent(&bad, "echo");
    for (n, (mode, behaviour, status, code, word)) in rows.into_iter().enumerate() {
        let shown = format!("{mode:?}, {behaviour:?}");
        bad.handshake(mode).behave("initialize", behaviour);
        // Each by somebody who has no session, when the pause after the one before is over.
        let carol = gw.caller("acme", &format!("carol{n}"), "");
        eventually(&format!("{word} is said of {shown}"), async || {
            let call = carol.call_tool("bad_echo", json!({}));
            let answer = meanwhile(call, &[&alice, &bob]).await;
            assert!(!answer.text().contains("127.0.0.1"));
            answer.refusal() == (status, code)
                && answer.text().contains(word)
                && answer.message()["error"].get("data").is_none()
        })
        .await;
    }
    assert_eq!(sent(&bad, "echo"), calls, "nothing was sent, so the outcome is known");
    bad.handshake(Handshake::default()).behave("initialize", Behaviour::Echo);
    eventually("it is opened again", async || alice.call_tool("bad_echo", json!({})).await.status == 200)
        .await;
    gw.stop().await;
}

#[tokio::test]
async fn odd_but_legal_servers_are_served() {
    for mode in [
        Handshake { revision: "2025-03-26", ..Handshake::default() },
        Handshake { revision: "2025-06-18", ..Handshake::default() },
        Handshake { ids: Ids::None, ..Handshake::default() },
        Handshake { accepted: 200, ..Handshake::default() },
        Handshake { delete: 405, ..Handshake::default() },
    ] {
        let old = server(mode.clone()).await;
        old.behave("initialize", Behaviour::EchoSse).behave("tools/list", Behaviour::EchoSse);
        let asks = [vec!["elicitation/create"], vec!["ping"; 100]].concat();
        old.behave("echo", Behaviour::Asks(asks));
        let (gw, alice) = before(&old).await;
        let result = alice.call_tool("old_echo", json!({"a": 1})).await.result();
        assert_eq!(result["structuredContent"]["a"], 1, "{mode:?}");
        assert_eq!(result["resultType"], "complete", "{mode:?}");
        gw.stop().await;
    }
}

#[tokio::test]
async fn lists_and_instructions_are_the_gateways_own_and_tools_are_modern() {
    let old = server(Handshake::default()).await;
    old.instructions("Be kind.").page_size(1);
    let tool = |name: &str, support: &str| {
        format!(
            r#"{{"name":"{name}","execution":{{"taskSupport":"{support}"}},"inputSchema":{{"type":"object"}}}}"#
        )
    };
    old.tool("either", &tool("either", "optional")).tool("slow", &tool("slow", "required"));
    let other = Upstream::start().await;
    let gw = house(&[("old", old.url())], &other).await;
    let alice = gw.caller("acme", "alice", "");
    assert_eq!(alice.tools().await, ["old_echo", "old_either"]);
    let listed = alice.rpc("tools/list", json!({})).await.result();
    assert!(
        !listed.to_string().contains("taskSupport") && !listed.to_string().contains("execution"),
        "{listed}"
    );
    assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(60_000), &json!("private")));
    assert_eq!(alice.rpc("server/discover", json!({})).await.result()["instructions"], "Be kind.");
    assert_eq!(alice.call_tool("old_slow", json!({})).await.refusal(), (200, -32602));
    alice.call_tool("old_either", json!({})).await.result();
    let methods = |session: &Session| {
        session.calls.iter().map(|call| call["method"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let sessions = old.sessions();
    assert_eq!(sessions.iter().map(methods).collect::<Vec<_>>(), [vec!["tools/list"; 3], vec!["tools/call"]]);
    assert!(sessions.iter().all(|session| session.initialized));
    gw.stop().await;
}

#[tokio::test]
async fn prompts_resources_and_completions_come_from_sessions_too() {
    for (revision, context) in [("2025-03-26", Value::Null), ("2025-11-25", json!({"arguments": {"a": "b"}}))]
    {
        let old = server(Handshake { revision, ..Handshake::default() }).await;
        old.prompt("greet", r#"{"name":"greet","arguments":[{"name":"whom"}]}"#);
        old.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
        old.template("x://{n}", r#"{"uriTemplate":"x://{n}","name":"any"}"#);
        let other = Upstream::start().await;
        let gw = house(&[("old", old.url())], &other).await;
        let alice = gw.caller("acme", "alice", "");
        assert_eq!(alice.tools().await, ["old_echo"]);
        assert_eq!(alice.prompts().await, ["old_greet"]);
        assert_eq!(alice.resources().await, ["old+x://1"]);
        assert_eq!(alice.templates().await, ["old+x://{n}"]);
        let got = alice.prompt("old_greet", json!({"whom": "Bob"})).await.result();
        assert_eq!(got["messages"][0]["content"]["text"], r#"{"whom":"Bob"}"#);
        let read = alice.read("old+x://1").await.result();
        assert_eq!(read["contents"][0]["uri"], "old+x://1");
        // spec: 2025-11-25 server/resources, Error Handling: the era's own code for it.
        old.behave("x://2", Behaviour::Error(200, r#"{"code":-32002,"message":"no"}"#.to_owned()));
        let missing = alice.read("old+x://2").await;
        assert_eq!(missing.refusal(), (200, -32602), "{}", missing.text());
        assert_eq!(missing.message()["error"]["data"]["uri"], "old+x://2");
        let params = json!({
            "ref": {"type": "ref/prompt", "name": "old_greet"}, "argument": {"name": "whom", "value": "B"},
            "context": {"arguments": {"a": "b"}},
        });
        let completed = alice.rpc("completion/complete", params).await.result();
        assert_eq!(completed["completion"]["values"], json!([r#""B""#]));
        let sessions = old.sessions();
        assert_eq!(sessions.len(), 2, "{revision}: the gateway's and alice's");
        let asked = sessions[1].calls.last().unwrap();
        assert_eq!(
            (&asked["method"], &asked["params"]["context"]),
            (&json!("completion/complete"), &context)
        );
        gw.stop().await;
    }
}

/// Calls one after the other on a kept connection; each answer has to be its own.
async fn calls(caller: &Caller, name: &str, ids: impl Iterator<Item = usize>) {
    let mut connection = Connection::open(caller.addr).await;
    for id in ids {
        let tool = if id % 3 == 0 { "old_late" } else { "old_echo" };
        let params = format!(r#","name":"{tool}","arguments":{{"who":"{name}","n":{id}}}"#);
        let body = text(&id.to_string(), "tools/call", &params, "");
        connection.post(&caller.path, &caller.headers("tools/call", Some(tool)), &body).await;
        let message = connection.answer().await.message();
        assert_eq!(message["id"], id);
        assert_eq!(message["result"]["structuredContent"], json!({"who": name, "n": id}), "{message}");
    }
}

#[tokio::test]
async fn two_users_before_one_server_without_credentials_never_share_a_session() {
    let old = server(Handshake::default()).await;
    old.tool("late", r#"{"name":"late","inputSchema":{"type":"object"}}"#);
    old.behave("late", Behaviour::Late(Duration::from_millis(3)));
    let other = Upstream::start().await;
    let gw = house(&[("old", old.url())], &other).await;
    let (alice, bob) = (gw.caller("acme", "alice", ""), gw.caller("acme", "bob", ""));
    alice.tools().await;
    const LANES: usize = 25;
    const EACH: usize = 200;
    // The same JSON-RPC ids, of one user from below, of the other from above.
    let lanes = (0..LANES).map(async |lane| {
        let up = (lane * EACH)..(lane + 1) * EACH;
        let down = up.clone().rev();
        tokio::join!(calls(&alice, "alice", up), calls(&bob, "bob", down));
    });
    join_all(lanes).await;
    let mut owners: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for session in old.sessions() {
        for call in session.calls.iter().filter(|call| call["method"] == "tools/call") {
            let who = call["params"]["arguments"]["who"].as_str().unwrap().to_owned();
            *owners.entry(session.id.clone()).or_default().entry(who).or_default() += 1;
        }
    }
    let owners: Vec<_> = owners.into_values().collect();
    let of = |who: &str| BTreeMap::from([(who.to_owned(), LANES * EACH)]);
    assert!(owners == [of("alice"), of("bob")] || owners == [of("bob"), of("alice")], "{owners:?}");
    assert_eq!(old.count("initialize"), 3, "theirs, and the gateway's for lists");
    gw.stop().await;
}

/// Callers who call without a pause until they are told to stop, and how their calls ended.
struct Load {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    bad: Arc<AtomicUsize>,
    lanes: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn of(callers: Vec<Caller>) -> Self {
        let (stop, good, bad): (Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let lane = |caller: Caller| {
            let (stop, good, bad) = (stop.clone(), good.clone(), bad.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = caller.call_tool("old_echo", json!({})).await;
                    let ended = if answer.refusal() == (200, 0) { &good } else { &bad };
                    ended.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        };
        let lanes = callers.into_iter().map(lane).collect();
        Self { stop, good, bad, lanes }
    }

    fn counts(&self) -> (usize, usize) {
        (self.good.load(Ordering::Relaxed), self.bad.load(Ordering::Relaxed))
    }

    /// Waits until so many more calls of each kind have ended.
    async fn goes_on(&self, what: &str, good: usize, bad: usize) {
        let (was_good, was_bad) = self.counts();
        eventually(what, async || {
            let (is_good, is_bad) = self.counts();
            is_good >= was_good + good && is_bad >= was_bad + bad
        })
        .await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for lane in self.lanes {
            lane.await.unwrap();
        }
    }
}

/// How many tries there can be in this time, if they are as close as they may be.
fn most_steps(time: Duration) -> usize {
    let mut pause = Duration::from_millis(75);
    let (mut steps, mut passed) = (1, Duration::ZERO);
    while passed + pause <= time {
        passed += pause;
        pause *= 2;
        steps += 1;
    }
    steps
}

fn openings(upstream: &Upstream) -> usize {
    upstream.count("initialize") + upstream.count("server/discover")
}

#[tokio::test]
async fn a_server_killed_and_restarted_under_load_is_found_again_and_not_hammered() {
    let old = server(Handshake::default()).await;
    let (gw, alice) = before(&old).await;
    let caller = |name: &str, n: usize| gw.caller("acme", &format!("{name}{n}"), "");
    let load = Load::of((0..12).map(|n| caller("known", n)).collect());
    load.goes_on("everybody has a session", 200, 0).await;
    assert_eq!(openings(&old), 2 + 12);

    // Restarted: every session is gone, and each is opened once more, the gateway's own too, since its
    // lists are asked for anew. Nobody notices.
    let (_, bad) = load.counts();
    for restart in 1..4 {
        old.forget_sessions();
        load.goes_on("calls go on", 200, 0).await;
        assert!(openings(&old) <= 2 + 12 + 13 * restart, "{}", openings(&old));
    }
    assert_eq!(load.counts().1, bad);

    // Behind a proxy that answers for it: those with a session are told, and those without do not each
    // try for themselves.
    for dead in [http("503 Busy\r\nContent-Length: 0", ""), Behaviour::Raw(String::new())] {
        let (tried, began) = (openings(&old), Instant::now());
        old.always(Some(dead));
        load.goes_on("calls fail", 0, 50).await;
        let strangers = Load::of((0..12).map(|n| caller("new", n)).collect());
        strangers.goes_on("strangers fail, too", 0, 150).await;
        strangers.end().await;
        let (tried, most) = (openings(&old) - tried, most_steps(began.elapsed()));
        assert!((1..=most).contains(&tried), "{tried} tries where {most} could be");
        old.forget_sessions().always(None);
        eventually("it is opened again", async || alice.call_tool("old_echo", json!({})).await.status == 200)
            .await;
        load.goes_on("calls go on", 200, 0).await;
    }

    // Really gone, and really another process on the same port.
    let address = old.address();
    old.stop();
    load.goes_on("calls fail", 0, 100).await;
    let old = Upstream::start_at(address).await;
    old.handshake(Handshake::default());
    eventually("it is found again", async || alice.call_tool("old_echo", json!({})).await.status == 200)
        .await;
    load.goes_on("calls go on", 200, 0).await;
    let (_, bad) = load.counts();
    load.goes_on("no session stays lost", 200, 0).await;
    assert_eq!(load.counts().1, bad);
    load.end().await;
    gw.stop().await;
}

#[tokio::test]
async fn a_dead_server_is_tried_once_a_step_however_many_call() {
    let old = server(Handshake::default()).await;
    let (gw, _) = before(&old).await;
    // It answers 404 to whoever had a session, and nobody gets another.
    let known: Vec<_> = (0..20).map(|n| gw.caller("acme", &format!("c{n}"), "")).collect();
    join_all(known.iter().map(|caller| caller.call_tool("old_echo", json!({})))).await;
    let before = openings(&old);
    old.forget_sessions();
    old.behave("initialize", http("503 Busy\r\nContent-Length: 0", ""));
    let began = Instant::now();
    let load = Load::of(known);
    load.goes_on("all fail", 0, 300).await;
    let (tried, most) = (openings(&old) - before, most_steps(began.elapsed()));
    assert!((1..=most).contains(&tried), "{tried} tries where {most} could be");
    old.behave("initialize", Behaviour::Echo);
    load.goes_on("all are served again", 200, 0).await;
    load.end().await;
    gw.stop().await;
}

/// The cancellations that the server was told, by session.
fn cancelled(upstream: &Upstream) -> Vec<(String, Value)> {
    let of = |session: Session| {
        let calls = session.calls.into_iter().filter(|call| call["method"] == "notifications/cancelled");
        calls.map(move |call| (session.id.clone(), call["params"]["requestId"].clone())).collect::<Vec<_>>()
    };
    upstream.sessions().into_iter().flat_map(of).collect()
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call_and_no_other() {
    let old = server(Handshake::default()).await;
    let (gw, alice) = before(&old).await;
    let bob = gw.caller("acme", "bob", "");
    old.behave("echo", Behaviour::HangInStream);
    let stays = alice.open("old_echo", "").await;
    eventually("the first call is there", async || sent(&old, "echo") == 1).await;
    let other = bob.open("old_echo", "").await;
    eventually("the second call is there", async || sent(&old, "echo") == 2).await;
    let leaves = alice.open("old_echo", "").await;
    eventually("the third call is there", async || sent(&old, "echo") == 3).await;
    let last = old.requests().last().unwrap().json()["id"].clone();
    let session = old.requests().last().unwrap().header("mcp-session-id")[0].to_owned();
    drop(leaves);
    eventually("the server is told", async || cancelled(&old) == [(session.clone(), last.clone())]).await;
    // The others are ended by their idle clock, which is told, too.
    eventually("all are told", async || cancelled(&old).len() == 3).await;
    drop((stays, other));
    gw.stop().await;
}

#[tokio::test]
async fn progress_goes_on_under_the_clients_token() {
    let old = server(Handshake::default()).await;
    let (gw, alice) = before(&old).await;
    old.behave("echo", Behaviour::Progress(3));
    let mut open = alice.open("old_echo", r#","progressToken":"mine""#).await;
    let answer = open.answer().await;
    let events = answer.events();
    let progress: Vec<_> = events[..3].iter().map(|event| event["params"].clone()).collect();
    let expected: Vec<_> = (1..4).map(|n| json!({"progressToken": "mine", "progress": n})).collect();
    assert_eq!(progress, expected);
    assert_eq!(events[3]["id"], 1);
    let token = old.requests().last().unwrap().json()["params"]["_meta"]["progressToken"].clone();
    assert!(token.is_string() && token != "mine", "{token}");
    gw.stop().await;
}

// Row X-14: most servers of the era send it on the session's GET stream.
#[tokio::test]
async fn progress_that_is_said_beside_the_call_reaches_the_client() {
    let old = server(Handshake { listen: 200, ..Handshake::default() }).await;
    let (gw, alice) = before(&old).await;
    let listens = || old.sessions().iter().map(|session| session.listens).sum::<usize>();
    for streams in 1..=2 {
        // Where the server has ended the stream, the gateway listens again when it is needed.
        while listens() < streams {
            alice.open("old_echo", r#","progressToken":"mine""#).await.answer().await.result();
        }
        old.behave("echo", Behaviour::Once(Box::new(Behaviour::Late(Duration::from_millis(300)))));
        let before = old.count("tools/call");
        let mut open = alice.open("old_echo", r#","progressToken":"mine""#).await;
        eventually("the call is there", async || old.count("tools/call") > before).await;
        let token = old.requests().last().unwrap().json()["params"]["_meta"]["progressToken"].clone();
        let params = json!({"progressToken": token, "progress": 1, "message": "so far"});
        let said = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        assert_eq!(old.say(&said.to_string()), 1);
        let events = open.answer().await.events();
        assert_eq!(events[0]["params"], json!({"progressToken": "mine", "progress": 1, "message": "so far"}));
        assert_eq!((events.len(), &events[1]["id"]), (2, &json!(1)));
        old.hang_up();
    }
    gw.stop().await;
}

#[tokio::test]
async fn sessions_end_when_the_gateway_does() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let gw = house(&[("old", old.url())], &other).await;
    let callers: Vec<_> = (0..10).map(|n| gw.caller("acme", &format!("c{n}"), "")).collect();
    callers[0].tools().await;
    join_all(callers.iter().map(|caller| caller.call_tool("old_echo", json!({})))).await;
    assert_eq!((old.sessions().len(), ended(&old)), (11, 0));
    gw.stop().await;
    assert_eq!(ended(&old), 11);
    // One that does not hear it holds nobody up.
    let gw = house(&[("old", old.url())], &other).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    alice.call_tool("old_echo", json!({})).await.result();
    old.always(Some(Behaviour::Hang));
    let began = Instant::now();
    gw.stop().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn sessions_end_with_their_tenant_and_with_its_configuration() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenants.yaml");
    let acme = |more: &str| {
        let url = old.url();
        format!(r#"tenants: {{acme: {{{more}backends: {{old: {{kind: mcp, url: "{url}"}}}}}}}}"#)
    };
    std::fs::write(&file, acme("")).unwrap();
    let gw = Gateway::start_with(&globex(&other), |settings| settings.tenants = Some(file.clone())).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    alice.call_tool("old_echo", json!({})).await.result();
    assert_eq!((old.sessions().len(), ended(&old)), (2, 0));

    std::fs::write(&file, acme("instructions: Changed., ")).unwrap();
    gw.app.tenants.reload();
    eventually("the sessions of the earlier configuration end", async || ended(&old) == 2).await;
    alice.call_tool("old_echo", json!({})).await.result();
    assert_eq!(old.sessions().len(), 4);

    // A call in flight is not cut off.
    old.behave("echo", Behaviour::Late(Duration::from_millis(400)));
    let calling = {
        let alice = alice.clone();
        tokio::spawn(async move { alice.call_tool("old_echo", json!({"n": 1})).await })
    };
    eventually("the call is there", async || sent(&old, "echo") == 3).await;
    std::fs::write(&file, "tenants: {}").unwrap();
    gw.app.tenants.reload();
    eventually("the gateway's session ends", async || ended(&old) == 3).await;
    assert_eq!(calling.await.unwrap().result()["structuredContent"]["n"], 1);
    eventually("alice's session ends", async || ended(&old) == 4).await;
    gw.stop().await;
}

#[tokio::test]
async fn an_earlier_configuration_holds_no_shutdown_up() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenants.yaml");
    let acme = format!(r#"tenants: {{acme: {{backends: {{old: {{kind: mcp, url: "{}"}}}}}}}}"#, old.url());
    std::fs::write(&file, acme).unwrap();
    let notice_time = Duration::from_millis(400);
    let gw = Gateway::start_with(&globex(&other), |settings| {
        settings.tenants = Some(file.clone());
        settings.limits.notice_time = notice_time;
    })
    .await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    old.behave("echo", Behaviour::Hang);
    let goes_on = alice.open("old_echo", "").await;
    eventually("the call is there", async || sent(&old, "echo") == 1).await;
    std::fs::write(&file, "tenants: {}").unwrap();
    gw.app.tenants.reload();
    eventually("the gateway's session ends", async || ended(&old) == 1).await;
    let began = Instant::now();
    gw.app.catalogs.shutdown().await;
    assert!(began.elapsed() < notice_time * 2, "{:?}", began.elapsed());
    eventually("alice's session ends", async || ended(&old) == 2).await;
    drop(goes_on);
    gw.stop().await;
}

#[tokio::test]
async fn a_server_that_changes_its_era_is_served_on() {
    let old = server(Handshake::default()).await;
    let (gw, alice) = before(&old).await;
    let bob = gw.caller("acme", "bob", "");
    for round in 0..2 {
        old.handshake(Handshake::default()).behave("initialize", Behaviour::Echo);
        old.behave("tools/call", Behaviour::Echo);
        for caller in [&alice, &bob] {
            let result = caller.call_tool("old_echo", json!({"round": round})).await.result();
            assert_eq!(result["structuredContent"]["round"], round);
        }
        old.modern().behave("tools/call", Behaviour::Mirrored("mcp-method"));
        old.behave("initialize", error(400, -32022, r#","data":{"supported":["2026-07-28"]}"#));
        for caller in [&alice, &bob] {
            let result = caller.call_tool("old_echo", json!({"round": round})).await.result();
            assert_eq!(result["structuredContent"]["round"], round);
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_server_that_was_restarted_as_something_else_is_listed_anew() {
    let old = server(Handshake::default()).await;
    let (gw, alice) = before(&old).await;
    alice.call_tool("old_echo", json!({})).await.result();
    // By the schedule it would be minutes.
    old.forget_sessions().tool("fresh", r#"{"name":"fresh","inputSchema":{"type":"object"}}"#);
    alice.call_tool("old_echo", json!({})).await.result();
    eventually("its new tool is listed", async || alice.tools().await.contains(&"old_fresh".to_owned()))
        .await;
    gw.stop().await;
}

#[tokio::test]
async fn a_rotated_secret_begins_other_sessions() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let home = tempfile::tempdir().unwrap();
    let (file, secret) = (home.path().join("tenants.yaml"), home.path().join("token"));
    std::fs::write(&secret, "first-secret\n").unwrap();
    let acme = format!(
        r#"
tenants:
  acme:
    secrets: {{t: {{file: "{}"}}}}
    backends: {{old: {{kind: mcp, url: "{}", credential: {{kind: bearer, secret: t}}}}}}
"#,
        secret.display(),
        old.url()
    );
    std::fs::write(&file, acme).unwrap();
    let gw = Gateway::start_with(&globex(&other), |settings| settings.tenants = Some(file.clone())).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    alice.call_tool("old_echo", json!({})).await.result();
    std::fs::write(&secret, "second-secret").unwrap();
    let second = ["Bearer second-secret"];
    eventually("alice has a session with the new secret", async || {
        alice.call_tool("old_echo", json!({})).await.result();
        old.sessions().iter().any(|session| session.opened_with("authorization") == second)
    })
    .await;
    eventually("the earlier sessions end", async || ended(&old) == 2).await;
    for session in old.sessions() {
        let requests = old.requests();
        let mut of = requests.iter().filter(|request| request.header("mcp-session-id") == [&*session.id]);
        assert!(of.all(|request| request.header("authorization") == session.opened_with("authorization")));
    }
    gw.stop().await;
}

#[tokio::test]
async fn sessions_that_nobody_uses_end_and_make_room() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let before = async |idle: Duration| {
        Gateway::start_with(&tenants(&[("old", old.url())], &other), |settings| {
            settings.limits.upstream_sessions = 3;
            settings.limits.upstream_session_idle = idle;
        })
        .await
    };
    let gw = before(Duration::from_secs(60)).await;
    let caller = |n: usize| gw.caller("acme", &format!("c{n}"), "");
    caller(0).tools().await;
    for n in 0..6 {
        caller(n).call_tool("old_echo", json!({})).await.result();
    }
    eventually("the oldest are ended", async || ended(&old) == 4).await;
    old.behave("echo", Behaviour::Hang);
    let mut busy = Vec::new();
    for n in 6..9 {
        busy.push(caller(n).open("old_echo", "").await);
        eventually("the call is there", async || sent(&old, "echo") == n + 1).await;
    }
    let answer = caller(9).call_tool("old_echo", json!({})).await;
    assert_eq!(answer.refusal(), (503, 1003), "{}", answer.text());
    drop(busy);
    gw.stop().await;

    old.behave("echo", Behaviour::Echo);
    let gw = before(Duration::from_millis(200)).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    let before = ended(&old);
    alice.call_tool("old_echo", json!({})).await.result();
    eventually("both end by themselves", async || ended(&old) == before + 2).await;
    alice.call_tool("old_echo", json!({})).await.result();
    gw.stop().await;
}

#[tokio::test]
async fn the_total_clock_ends_a_call_that_makes_progress_and_cancels_it() {
    let (old, other) = (server(Handshake::default()).await, Upstream::start().await);
    let tenants = tenants(&[("old", old.url())], &other).replace("timeout: 5s", "timeout: 300ms");
    let gw = Gateway::start(&tenants).await;
    let alice = gw.caller("acme", "alice", "");
    alice.tools().await;
    old.behave("echo", Behaviour::Progress(10_000));
    let mut open = alice.open("old_echo", r#","progressToken":1"#).await;
    let last = open.answer().await.events().pop().unwrap();
    assert!(last["error"]["message"].as_str().unwrap().contains("total timeout"), "{last}");
    assert_eq!(last["error"]["data"]["outcome"], "unknown");
    eventually("the server is told", async || cancelled(&old).len() == 1).await;
    gw.stop().await;
}
