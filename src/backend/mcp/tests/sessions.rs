//! Sessions of the handshake era: whose they are, what is sent in them, how they end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use http::HeaderName;
use http::HeaderValue;
use secrecy::SecretString;
use serde_json::Value;
use serde_json::json;

use super::INFO;
use super::alice;
use super::backend_of;
use super::call;
use super::call_with_progress;
use super::config_of;
use super::eventually;
use super::json as text;
use super::result;
use super::run;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use super::upstream::sessions::Handshake;
use super::upstream::sessions::Ids;
use super::upstream::sessions::Session;
use crate::backend::Account;
use crate::backend::Backend;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::exchange::Frame;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::BackendEra;
use crate::model::tenant::Credential;
use crate::model::tenant::CredentialPlace;
use crate::model::tenant::SecretCell;
use crate::protocol::call::Outcome;

async fn server(mode: Handshake) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.handshake(mode);
    upstream
}

fn limits() -> Limits {
    Limits {
        open_time: Duration::from_millis(500),
        open_pause: Duration::from_millis(20),
        connect_time: Duration::from_secs(1),
        ..Limits::default()
    }
}

fn config(upstream: &Upstream) -> tenant::Backend {
    config_of(&upstream.url(), BackendEra::Handshake)
}

fn backend(upstream: &Upstream) -> Backend {
    backend_of(config(upstream), limits())
}

fn call_of(subject: &str) -> BackendCall {
    let caller = Caller { subject: subject.into(), ..alice() };
    BackendCall { caller: Arc::new(caller), ..call("echo") }
}

/// What the session with this number saw, without answers to the server's own requests.
fn calls(upstream: &Upstream, number: usize) -> Vec<String> {
    let session = &upstream.sessions()[number - 1];
    session.calls.iter().map(|message| message["method"].as_str().unwrap_or("an answer").to_owned()).collect()
}

fn ended(upstream: &Upstream) -> usize {
    upstream.sessions().iter().filter(|session| session.ended).count()
}

#[tokio::test]
async fn what_is_sent_in_a_session_is_of_its_era_alone() {
    for (revision, has_header) in [("2025-03-26", false), ("2025-06-18", true), ("2025-11-25", true)] {
        let upstream = server(Handshake { revision, ..Handshake::default() }).await;
        let mut config = config(&upstream);
        let value = SecretCell::default();
        value.set(SecretString::from("s3cret"));
        config.credential =
            Some(Credential { place: CredentialPlace::Bearer, secret: "crm-token".into(), value });
        let backend = backend_of(config, limits());
        let mut call = call_with_progress("größe");
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        call.meta.traceparent = Some(trace.into());
        call.meta.capabilities = text(r#"{"sampling":{},"new":{"x":1e400}}"#);
        call.meta.unknown = vec![
            ("a/b".into(), text("9007199254740993")),
            ("progressToken".into(), text("1")),
            ("io.modelcontextprotocol/related-task".into(), text(r#"{"taskId":"t"}"#)),
        ];
        call.params = text(
            r#"{"_meta":{"x":1},"arguments":{"n":9007199254740993,"x":1e400},"task":{"ttl":1},"requestState":"r","name":"crm_x","new":[ 1.0 ]}"#,
        );
        let header = (HeaderName::from_static("mcp-param-region"), HeaderValue::from_static("us-west1"));
        call.param_headers = vec![header];
        run(&backend, call).await.1.unwrap();

        let bodies = [
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{INFO}}}}}"#
            ),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
            format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"größe","arguments":{{"n":9007199254740993,"x":1e400}},"new":[ 1.0 ],"_meta":{{"progressToken":"p2","traceparent":"{trace}","a/b":9007199254740993}}}}}}"#
            ),
        ];
        // The caller wants progress, which may be said beside the answer.
        let (listening, requests): (Vec<_>, Vec<_>) =
            upstream.requests().into_iter().partition(|request| request.line.starts_with("GET "));
        assert_eq!(requests.iter().map(|request| request.body.as_str()).collect::<Vec<_>>(), bodies);
        let host = upstream.url().replace("http://", "").replace("/mcp", "");
        for (n, request) in requests.iter().chain(&listening).enumerate() {
            let mut expected = vec![("authorization", "Bearer s3cret"), ("host", &host)];
            let length = request.body.len().to_string();
            match n {
                3 => expected.push(("accept", "text/event-stream")),
                _ => {
                    assert_eq!(request.line, "POST /mcp HTTP/1.1");
                    expected.push(("accept", "application/json, text/event-stream"));
                    expected.push(("content-type", "application/json"));
                    expected.push(("content-length", &length));
                }
            }
            if n > 0 && has_header {
                expected.push(("mcp-protocol-version", revision));
            }
            if n > 0 {
                expected.push(("mcp-session-id", "s1"));
            }
            if n == 2 {
                expected.push(("traceparent", trace));
            }
            let expected: BTreeSet<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(request.headers.len(), expected.len(), "{revision}, request {n}");
            assert_eq!(request.headers.iter().cloned().collect::<BTreeSet<_>>(), expected);
        }
    }
}

#[tokio::test]
async fn results_are_completed_and_an_empty_meta_is_not_sent() {
    let upstream = server(Handshake::default()).await;
    upstream.instructions("Be kind.");
    let backend = backend(&upstream);
    let expected = format!(
        r#"{{"resultType":"complete","content":[],"structuredContent":{{"text":"hi"}},"_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}"#
    );
    assert_eq!(result(&backend, call("echo")).await, expected);
    assert_eq!(
        upstream.sessions()[0].calls[0]["params"],
        json!({"name": "echo", "arguments": {"text": "hi"}})
    );
    let listing = backend.list(&Account::Gateway).await.unwrap();
    assert_eq!((listing.tools.entries().len(), listing.ttl_ms), (1, None));
    assert_eq!(listing.instructions.as_deref(), Some("Be kind."));
    assert_eq!(calls(&upstream, 2), ["tools/list"], "the gateway's own session");
}

#[tokio::test]
async fn callers_share_no_session_and_one_caller_has_one() {
    let upstream = server(Handshake::default()).await;
    let backend = backend(&upstream);
    let others = [
        Caller { issuer: "https://other.example".into(), ..alice() },
        Caller { client: Some("cli".into()), ..alice() },
        Caller { subject: "bob".into(), ..alice() },
    ];
    for caller in std::iter::once(alice()).chain(others) {
        let asked =
            (0..20).map(|_| run(&backend, BackendCall { caller: Arc::new(caller.clone()), ..call("echo") }));
        assert!(join_all(asked).await.iter().all(|(_, end)| end.is_ok()));
    }
    let sessions = upstream.sessions();
    assert_eq!(sessions.iter().map(|session| session.calls.len()).collect::<Vec<_>>(), [20; 4]);
    assert!(sessions.iter().all(|session| session.initialized));
}

#[tokio::test]
async fn an_opening_goes_on_when_who_began_it_has_left() {
    let upstream = server(Handshake::default()).await;
    upstream.behave("initialize", Behaviour::Late(Duration::from_millis(150)));
    let backend = backend(&upstream);
    let first = tokio::time::timeout(Duration::from_millis(30), run(&backend, call("echo"))).await;
    assert!(first.is_err());
    result(&backend, call("echo")).await;
    assert_eq!(upstream.methods(), ["initialize", "notifications/initialized", "tools/call"]);
}

#[tokio::test]
async fn odd_but_legal_servers_are_served() {
    for mode in [
        Handshake { ids: Ids::None, ..Handshake::default() },
        Handshake { accepted: 200, ..Handshake::default() },
        Handshake { accepted: 204, ..Handshake::default() },
        Handshake { ids: Ids::Line(format!("Mcp-Session-Id: {}", "~".repeat(1024))), ..Handshake::default() },
    ] {
        let upstream = server(mode.clone()).await;
        upstream.behave("initialize", Behaviour::EchoSse).behave("echo", Behaviour::EchoSse);
        let backend = backend(&upstream);
        result(&backend, call("echo")).await;
        let expected = upstream.sessions()[0].id.clone();
        let last = upstream.requests().pop().unwrap();
        let given = last.header("mcp-session-id").first().map_or(String::new(), |id| (*id).to_owned());
        assert_eq!(given, expected, "{mode:?}");
    }
}

#[tokio::test]
async fn a_session_that_is_not_begun_as_it_should_be_is_none() {
    let line = |value: &str| Ids::Line(format!("Mcp-Session-Id: {value}"));
    for (mode, expected) in [
        (Handshake { ids: line(""), ..Handshake::default() }, "visible ASCII"),
        (Handshake { ids: line("a b"), ..Handshake::default() }, "visible ASCII"),
        (Handshake { ids: line("größe"), ..Handshake::default() }, "visible ASCII"),
        (Handshake { ids: line(&"x".repeat(1025)), ..Handshake::default() }, "visible ASCII"),
        (Handshake { ids: line("a\r\nMcp-Session-Id: b"), ..Handshake::default() }, "more than one id"),
        (Handshake { revision: "2024-11-05", ..Handshake::default() }, "older than"),
        (Handshake { accepted: 400, ..Handshake::default() }, "initialized"),
        (Handshake { accepted: 500, ..Handshake::default() }, "initialized"),
    ] {
        let upstream = server(mode.clone()).await;
        let error = run(&backend(&upstream), call("echo")).await.1.unwrap_err();
        assert!(matches!(error, BackendError::NotOpened(_)), "{mode:?}: {error:?}");
        assert!(error.to_string().contains(expected) && !error.sent(), "{mode:?}: {error}");
        assert_eq!(upstream.count("tools/call"), 0);
    }
}

#[tokio::test]
async fn a_lost_session_is_opened_again_once_for_all_who_saw_it() {
    for unknown in [(404, -32001), (404, -32600), (400, -32000)] {
        let upstream = server(Handshake { unknown, ..Handshake::default() }).await;
        let backend = backend(&upstream);
        result(&backend, call("echo")).await;
        for round in 1..4 {
            upstream.forget_sessions();
            let together = join_all((0..30).map(|_| run(&backend, call("echo")))).await;
            assert!(together.iter().all(|(_, end)| end.is_ok()), "{unknown:?}, {round}");
            assert_eq!(upstream.count("initialize"), 1 + round, "{unknown:?}");
            assert_eq!(upstream.sessions()[round].calls.len(), 30, "{unknown:?}");
        }
        assert_eq!(ended(&upstream), 0, "who does not know a session is not told that it is over");
    }
}

#[tokio::test]
async fn no_other_refusal_is_taken_for_a_lost_session() {
    let plain =
        "HTTP/1.1 400 Bad\r\nContent-Type: text/plain\r\n\r\nBad Request: No valid session ID provided";
    for (behaviour, sent, next) in [
        (Behaviour::Error(400, r#"{"code":-32600,"message":"m"}"#.into()), 1, 1),
        (Behaviour::Error(200, r#"{"code":-32000,"message":"m"}"#.into()), 1, 1),
        (Behaviour::Error(500, r#"{"code":-32000,"message":"m"}"#.into()), 1, 1),
        // Refused without an answer: not sent again, but the next one begins anew.
        (Behaviour::Raw(plain.into()), 1, 2),
        // It may have meant its session: the next one begins anew, and nothing is sent again.
        (Behaviour::Error(404, r#"{"code":-32001,"message":"m"}"#.into()), 1, 2),
        (Behaviour::Error(400, r#"{"code":-32000,"message":"m"}"#.into()), 1, 2),
        (Behaviour::Error(404, r#"{"code":-32601,"message":"m"}"#.into()), 1, 1),
        // The second time it is an error.
        (refusal(404, "null", -32001), 2, 3),
        (refusal(400, "null", -32000), 2, 3),
    ] {
        let upstream = server(Handshake::default()).await;
        let backend = backend(&upstream);
        upstream.behave("echo", behaviour.clone());
        let (_, end) = run(&backend, call("echo")).await;
        assert!(!matches!(end, Ok(Outcome::Result(_))), "{behaviour:?}");
        assert_eq!(upstream.count("tools/call"), sent, "{behaviour:?}");
        upstream.behave("echo", Behaviour::Echo);
        result(&backend, call("echo")).await;
        assert_eq!(upstream.count("initialize"), next, "{behaviour:?}");
    }
}

/// A JSON-RPC error under this id, as text.
fn refusal(status: u16, id: &str, code: i64) -> Behaviour {
    let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"theirs"}}}}"#);
    Behaviour::Raw(format!("HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n\r\n{error}"))
}

#[tokio::test]
async fn what_answers_a_call_is_its_answer_and_nothing_is_done_twice() {
    let json = |body: &str| {
        Behaviour::Raw(format!("HTTP/1.1 404 No\r\nContent-Type: application/json\r\n\r\n{body}"))
    };
    for (behaviour, said) in [
        (refusal(400, "$ID", -32000), "theirs"),
        (refusal(404, "$ID", -32000), "theirs"),
        (refusal(404, "$ID", -32001), "theirs"),
        (refusal(404, "$ID", -32600), "theirs"),
        (refusal(404, "\"$ID\"", -32001), "another id"),
        (json(r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#), "HTTP status"),
        (json(r#"[{"jsonrpc":"2.0","id":$ID,"error":{"code":-32001,"message":"m"}}]"#), "HTTP status"),
        (json(r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32001,"#), "not JSON"),
    ] {
        for mode in [Handshake::default(), Handshake { revision: "2025-03-26", ..Handshake::default() }] {
            let upstream = server(mode).await;
            let backend = backend(&upstream);
            upstream.behave("echo", behaviour.clone());
            let (_, end) = run(&backend, call("echo")).await;
            assert!(format!("{end:?}").contains(said), "{behaviour:?}: {end:?}");
            assert_eq!(upstream.count("tools/call"), 1, "{behaviour:?}");
            upstream.behave("echo", Behaviour::Echo);
            result(&backend, call("echo")).await;
            assert_eq!(upstream.count("initialize"), 2, "{behaviour:?}: it may have meant its session");
        }
    }
    let head = "HTTP/1.1 404 No\r\n";
    for behaviour in [
        refusal(404, "null", -32001),
        refusal(400, "null", -32000),
        refusal(404, "\"server-error\"", -32600),
        json(r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"m"}}"#),
        json(r#"{"detail":"Not Found"}"#),
        json(""),
        Behaviour::Raw(format!("{head}Content-Length: 0\r\n\r\n")),
        Behaviour::Raw(format!("{head}\r\nNot Found: Session not found")),
    ] {
        let upstream = server(Handshake::default()).await;
        let backend = backend(&upstream);
        upstream.behave("echo", Behaviour::Once(Box::new(behaviour.clone())));
        result(&backend, call("echo")).await;
        assert_eq!(upstream.count("initialize"), 2, "{behaviour:?}");
    }
    // What cannot be read may be the call's own answer, too.
    for declared in [
        "Content-Type: text/event-stream",
        "Content-Type: application/problem+json",
        "Content-Type: application/json\r\nContent-Encoding: gzip",
        "Content-Type: a/b\r\nContent-Type: a/b",
    ] {
        let upstream = server(Handshake::default()).await;
        let backend = backend(&upstream);
        let behaviour = Behaviour::Raw(format!("{head}{declared}\r\nContent-Length: 1\r\n\r\nx"));
        upstream.behave("echo", Behaviour::Once(Box::new(behaviour)));
        run(&backend, call("echo")).await.1.unwrap_err();
        assert_eq!(upstream.count("tools/call"), 1, "{declared}");
    }
    // What is only read is asked again, so that who repeats our id is found again.
    for behaviour in [refusal(400, "$ID", -32000), refusal(404, "$ID", -32001)] {
        let upstream = server(Handshake::default()).await;
        let backend = backend(&upstream);
        upstream.behave("tools/list", Behaviour::Once(Box::new(behaviour)));
        assert_eq!(backend.list(&Account::Gateway).await.unwrap().tools.entries().len(), 1);
        assert_eq!(upstream.count("initialize"), 2);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_not_tried_again() {
    for behaviour in
        [Behaviour::Reset, Behaviour::ResetInBody, Behaviour::ResetInStream, Behaviour::Raw(String::new())]
    {
        let upstream = server(Handshake::default()).await;
        let backend = backend(&upstream);
        upstream.behave("echo", behaviour.clone());
        let error = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(matches!(error, BackendError::Broken(_)) && error.sent(), "{behaviour:?}: {error:?}");
        assert_eq!(upstream.methods(), ["initialize", "notifications/initialized", "tools/call"]);
    }
}

#[tokio::test]
async fn a_servers_own_requests_are_answered_and_the_call_goes_on() {
    let upstream = server(Handshake::default()).await;
    upstream.behave("echo", Behaviour::Asks(vec!["ping", "sampling/createMessage", "roots/list", "x/y"]));
    let backend = backend(&upstream);
    let answer = result(&backend, call("echo")).await;
    assert!(answer.contains(r#""structuredContent":{"text":"hi"}"#), "{answer}");
    let session = &upstream.sessions()[0];
    let mut replies: Vec<&Value> = session.calls[1..].iter().collect();
    replies.sort_by_key(|reply| reply["id"].to_string());
    assert_eq!(*replies[0], json!({"jsonrpc": "2.0", "id": "ask-0", "result": {}}));
    for (n, reply) in replies.iter().enumerate().skip(1) {
        assert_eq!(reply["id"], format!("ask-{n}"));
        assert_eq!(reply["error"]["code"], -32601);
    }
    // As many as it asks.
    upstream.behave("echo", Behaviour::Asks(vec!["ping"; 200]));
    result(&backend, call("echo")).await;
    // But answers may not pile up.
    let backend = backend_of(config(&upstream), Limits { upstream_replies: 0, ..limits() });
    let error = run(&backend, call("echo")).await.1.unwrap_err();
    assert!(error.to_string().contains("faster than it takes answers"), "{error}");
}

#[tokio::test]
async fn what_comes_before_the_answer_is_dropped_or_relayed() {
    let upstream = server(Handshake { revision: "2025-03-26", ..Handshake::default() }).await;
    let progress = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN,"progress":{n}}}}}"#
        )
    };
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let batch = format!("[{log},{}]", progress(2));
    upstream
        .behave("echo", Behaviour::Events(vec![log.into(), progress(1), batch, progress(1), progress(3)]));
    let (relayed, end) = run(&backend(&upstream), call_with_progress("echo")).await;
    end.unwrap();
    let expected = [1, 2, 3].map(|n| progress(n).replace("$TOKEN", r#""theirs""#));
    assert_eq!(relayed, expected);
    // Batches are of the first revision alone.
    upstream.handshake(Handshake::default());
    let error = run(&backend(&upstream), call_with_progress("echo")).await.1.unwrap_err();
    assert!(error.to_string().contains("JSON object"), "{error}");
}

#[tokio::test]
async fn one_array_has_so_many_messages_and_no_arrays() {
    let upstream = server(Handshake { revision: "2025-03-26", ..Handshake::default() }).await;
    let backend = backend_of(config(&upstream), Limits { upstream_batch: 8, ..limits() });
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    let array = |messages: usize| format!("[{}]", vec![log; messages].join(","));
    for (event, expected) in [
        (array(8), ""),
        (array(9), "too many messages"),
        (format!("[{}]", "0,".repeat(200_000) + "0"), "too many messages"),
        (format!("[{}]", array(1)), "JSON object"),
    ] {
        upstream.behave("echo", Behaviour::Events(vec![event]));
        match run(&backend, call("echo")).await.1 {
            Ok(_) => assert_eq!(expected, ""),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}"),
        }
    }
}

#[tokio::test]
async fn what_is_said_of_a_session_at_its_opening_has_a_bound() {
    for (behaviour, size) in [(Behaviour::Echo, 16 << 10), (Behaviour::EchoSse, 16 << 10)] {
        let upstream = server(Handshake::default()).await;
        upstream.behave("initialize", behaviour);
        let backend = backend_of(config(&upstream), Limits { initialize_bytes: size, ..limits() });
        upstream.instructions(&"x".repeat(size));
        let error = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(error.to_string().contains("larger than is taken"), "{error}");
        upstream.instructions(&"x".repeat(size / 2));
        eventually(|| upstream.sessions().len() == 1).await;
        let mut end = run(&backend, call("echo")).await.1;
        while end.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            end = run(&backend, call("echo")).await.1;
        }
    }
}

#[tokio::test]
async fn a_server_may_give_a_request_up() {
    let upstream = server(Handshake::default()).await;
    let cancels = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    upstream.behave("echo", Behaviour::Events(vec![cancels("999"), cancels("\"$ID\"")]));
    let backend = backend(&upstream);
    result(&backend, call("echo")).await;
    upstream.behave("echo", Behaviour::Events(vec![cancels("$ID")]));
    let error = run(&backend, call("echo")).await.1.unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
}

/// The cancellations that a session was told.
fn cancelled(session: &Session) -> Vec<u64> {
    let told = session.calls.iter().filter(|message| message["method"] == "notifications/cancelled");
    told.filter_map(|message| message["params"]["requestId"].as_u64()).collect()
}

/// The id of the last call that a session saw.
fn last_call(session: &Session) -> u64 {
    let call = session.calls.iter().rfind(|message| message["method"] == "tools/call");
    call.and_then(|call| call["id"].as_u64()).expect("a call")
}

#[tokio::test]
async fn who_leaves_is_told_to_the_server_before_the_connection_closes() {
    for behaviour in [Behaviour::Hang, Behaviour::HangInStream, Behaviour::Progress(1000), Behaviour::Drip] {
        let upstream = server(Handshake::default()).await;
        let backend = backend_of(config(&upstream), Limits { upstream_calls: 1, ..limits() });
        result(&backend, call("echo")).await;
        upstream.behave("echo", behaviour.clone());
        let mut frames = backend.call(call_with_progress("echo")).await.unwrap();
        let polled = tokio::time::timeout(Duration::from_millis(100), frames.next()).await;
        assert!(matches!(polled, Err(_) | Ok(Some(Frame::Notice(_)))));
        assert_eq!(upstream.cancellations(), 0);
        drop(frames);
        eventually(|| upstream.cancellations() == 1).await;
        let session = &upstream.sessions()[0];
        assert_eq!(cancelled(session), [last_call(session)], "{behaviour:?}");
        upstream.behave("echo", Behaviour::Echo);
        // The slot comes back, too.
        result(&backend, call("echo")).await;
        assert_eq!(upstream.sessions().len(), 1, "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_clock_that_runs_out_cancels_the_call() {
    let upstream = server(Handshake::default()).await;
    let (short, long) = (Duration::from_millis(200), Duration::from_secs(20));
    for (idle_timeout, timeout, expected) in [(short, long, Clock::Idle), (long, short, Clock::Total)] {
        upstream.behave("echo", Behaviour::Hang);
        let config = tenant::Backend { idle_timeout, timeout, ..config(&upstream) };
        let backend = backend_of(config, limits());
        let error = run(&backend, call("echo")).await.1.unwrap_err();
        let named = matches!(error, BackendError::TimedOut { clock, sent: true } if clock == expected);
        assert!(named, "{error:?}");
        let session = || upstream.sessions().pop().unwrap();
        eventually(|| cancelled(&session()) == [last_call(&session())]).await;
        // While a session is being opened, nothing of the call was sent, and nothing is cancelled.
        upstream.forget_sessions();
        upstream.behave("initialize", Behaviour::Hang);
        let error = run(&backend, call("echo")).await.1.unwrap_err();
        let named = matches!(error, BackendError::TimedOut { clock, sent: false } if clock == expected);
        assert!(named, "{error:?}");
        upstream.behave("initialize", Behaviour::Echo);
        assert!(cancelled(&session()).is_empty());
    }
}

#[tokio::test]
async fn a_rotated_credential_begins_other_sessions() {
    let upstream = server(Handshake::default()).await;
    let value = SecretCell::default();
    value.set(SecretString::from("one"));
    let place = CredentialPlace::Header("x-api-key".into());
    let credential = Some(Credential { place, secret: "crm-token".into(), value: value.clone() });
    let backend = backend_of(tenant::Backend { credential, ..config(&upstream) }, limits());
    result(&backend, call_of("alice")).await;
    result(&backend, call_of("bob")).await;
    upstream.behave("echo", Behaviour::Late(Duration::from_millis(200)));
    let slow = backend.call(call_of("carol")).await.unwrap();
    let slow = tokio::spawn(super::end_of(slow));
    eventually(|| upstream.count("tools/call") == 3).await;
    upstream.behave("echo", Behaviour::Echo);
    // The same value again is no other value.
    value.set(SecretString::from("one"));
    result(&backend, call_of("alice")).await;
    assert_eq!(upstream.sessions().len(), 3);

    value.set(SecretString::from("two"));
    result(&backend, call_of("alice")).await;
    let sessions = upstream.sessions();
    assert_eq!(sessions.len(), 4);
    assert_eq!(sessions[3].opened_with("x-api-key"), ["two"]);
    // Those of the earlier value end; the one that is in use, after that.
    eventually(|| ended(&upstream) == 2).await;
    assert!(!upstream.sessions()[2].ended);
    slow.await.unwrap().1.unwrap();
    eventually(|| ended(&upstream) == 3).await;
    let sent = upstream.requests();
    for session in &sessions[..3] {
        let of = sent.iter().filter(|request| request.header("mcp-session-id") == [&*session.id]);
        assert!(of.clone().count() > 1 && of.clone().all(|request| request.header("x-api-key") == ["one"]));
    }
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    let upstream = server(Handshake::default()).await;
    let idle = Duration::from_millis(150);
    let backend = backend_of(config(&upstream), Limits { upstream_session_idle: idle, ..limits() });
    upstream.behave("echo", Behaviour::Late(idle * 3));
    let slow = tokio::spawn(super::end_of(backend.call(call_of("bob")).await.unwrap()));
    eventually(|| upstream.count("tools/call") == 1).await;
    upstream.behave("echo", Behaviour::Echo);
    result(&backend, call_of("alice")).await;
    eventually(|| ended(&upstream) == 1).await;
    assert!(!slow.is_finished() && !upstream.sessions()[0].ended, "what is in use is not idle");
    slow.await.unwrap().1.unwrap();
    eventually(|| ended(&upstream) == 2).await;
    result(&backend, call_of("alice")).await;
    assert_eq!(upstream.sessions().len(), 3);
    eventually(|| ended(&upstream) == 3).await;
}

#[tokio::test]
async fn the_oldest_unused_session_makes_room_and_one_in_use_does_not() {
    let upstream = server(Handshake::default()).await;
    let backend = backend_of(config(&upstream), Limits { upstream_sessions: 3, ..limits() });
    for subject in ["a", "b", "c", "a"] {
        result(&backend, call_of(subject)).await;
    }
    result(&backend, call_of("d")).await;
    eventually(|| ended(&upstream) == 1).await;
    assert!(upstream.sessions()[1].ended, "b was not used for longest");
    // Now all three are in use.
    upstream.behave("echo", Behaviour::Hang);
    let mut busy = Vec::new();
    for subject in ["a", "c", "d"] {
        let frames = backend.call(call_of(subject)).await.unwrap();
        busy.push(tokio::spawn(super::end_of(frames)));
    }
    eventually(|| upstream.count("tools/call") == 8).await;
    let error = run(&backend, call_of("e")).await.1.unwrap_err();
    assert!(matches!(error, BackendError::Busy), "{error:?}");
    let shared: BTreeSet<_> = upstream.sessions().iter().map(|session| session.id.clone()).collect();
    assert_eq!(shared.len(), 4);
    busy.iter().for_each(|busy| busy.abort());
    upstream.behave("echo", Behaviour::Echo);
    eventually(|| upstream.count("notifications/cancelled") == 3).await;
    let mut found = run(&backend, call_of("e")).await.1;
    while matches!(found, Err(BackendError::Busy)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        found = run(&backend, call_of("e")).await.1;
    }
    found.unwrap();
}

#[tokio::test]
async fn a_caller_with_many_kinds_of_clients_makes_room_of_its_own() {
    let upstream = server(Handshake::default()).await;
    let backend = backend_of(config(&upstream), Limits { upstream_sessions: 6, ..limits() });
    let alice = |n: usize| {
        let capabilities = text(&format!(r#"{{"extensions":{{"com.example/{n}":{{}}}}}}"#));
        BackendCall { capabilities, ..call_of("alice") }
    };
    result(&backend, call_of("bob")).await;
    for n in 0..6 {
        result(&backend, alice(n)).await;
    }
    eventually(|| ended(&upstream) == 2).await;
    let ended: Vec<bool> = upstream.sessions().iter().map(|session| session.ended).collect();
    assert_eq!(ended, [false, true, true, false, false, false, false]);
    // Now all hers are in use.
    upstream.behave("echo", Behaviour::Hang);
    let mut busy = Vec::new();
    for n in 2..6 {
        let frames = backend.call(alice(n)).await.unwrap();
        busy.push(tokio::spawn(super::end_of(frames)));
    }
    eventually(|| upstream.count("tools/call") == 11).await;
    let error = run(&backend, alice(6)).await.1.unwrap_err();
    assert!(matches!(error, BackendError::Busy), "{error:?}");
    upstream.behave("echo", Behaviour::Echo);
    result(&backend, call_of("bob")).await;
    assert_eq!(upstream.sessions().len(), 7);
    busy.iter().for_each(|busy| busy.abort());
}

#[tokio::test]
async fn sessions_end_with_their_backend_but_not_under_a_call() {
    for delete in [200, 204, 405, 500] {
        let upstream = server(Handshake { delete, ..Handshake::default() }).await;
        let backend = backend(&upstream);
        result(&backend, call_of("alice")).await;
        upstream.behave("echo", Behaviour::Late(Duration::from_millis(200)));
        let slow = tokio::spawn(super::end_of(backend.call(call_of("bob")).await.unwrap()));
        eventually(|| upstream.count("tools/call") == 2).await;
        drop(backend);
        let deleted = |id: &str| {
            let requests = upstream.requests();
            requests.iter().any(|r| r.line.starts_with("DELETE ") && r.header("mcp-session-id") == [id])
        };
        eventually(|| deleted("s1")).await;
        assert!(!deleted("s2"));
        slow.await.unwrap().1.unwrap();
        eventually(|| deleted("s2")).await;
    }
}

#[tokio::test]
async fn all_backends_together_have_so_many_sessions() {
    let (one, other) = (server(Handshake::default()).await, server(Handshake::default()).await);
    // A tenant has a quarter of them.
    let around = super::around(Limits { all_upstream_sessions: 12, ..limits() });
    let [first, second] = [&one, &other].map(|upstream| super::backend_in(config(upstream), around.clone()));
    first.list(&Account::Gateway).await.unwrap();
    for subject in ["a", "b"] {
        result(&first, call_of(subject)).await;
    }
    result(&second, call_of("a")).await;
    // The gateway's own do not count, and its lists go on when there is no seat.
    second.list(&Account::Gateway).await.unwrap();
    result(&first, call_of("c")).await;
    eventually(|| ended(&one) == 1).await;
    assert!(one.sessions()[1].ended, "a was not used for longest");
    other.behave("echo", Behaviour::Hang);
    let busy = tokio::spawn(super::end_of(second.call(call_of("a")).await.unwrap()));
    eventually(|| other.count("tools/call") == 2).await;
    let error = run(&second, call_of("b")).await.1.unwrap_err();
    assert!(matches!(error, BackendError::Busy), "{error:?}");
    // A seat comes back with the end of its session.
    first.shutdown().await;
    other.behave("echo", Behaviour::Echo);
    for subject in ["b", "c"] {
        result(&second, call_of(subject)).await;
    }
    assert_eq!((ended(&one), ended(&other)), (4, 0));
    busy.abort();
}

#[tokio::test]
async fn a_retired_backend_ends_with_the_process_whatever_is_in_use() {
    let upstream = server(Handshake { listen: 200, ..Handshake::default() }).await;
    let notice_time = Duration::from_millis(300);
    for is_deaf in [false, true] {
        let around = super::around(Limits { notice_time, ..limits() });
        let backend = super::backend_in(config(&upstream), around.clone());
        result(&backend, call_with_progress("echo")).await;
        upstream.behave("echo", Behaviour::Hang);
        let frames = backend.call(call_with_progress("echo")).await.unwrap();
        let busy = tokio::spawn(super::end_of(frames));
        let number = upstream.sessions().len();
        eventually(|| calls(&upstream, number).len() == 2).await;
        drop(backend);
        upstream.always(is_deaf.then_some(Behaviour::Hang));
        // The process ends, and nobody knows the backend any more.
        let began = tokio::time::Instant::now();
        around.stop.cancel();
        around.tasks.close();
        let over = tokio::time::timeout(notice_time * 10, around.tasks.wait()).await;
        assert!(over.is_ok() && began.elapsed() < notice_time * 2, "{:?}", began.elapsed());
        assert_eq!(upstream.sessions()[number - 1].ended, !is_deaf);
        assert!(!busy.is_finished(), "the call is not ours to end");
        busy.abort();
        upstream.always(None).behave("echo", Behaviour::Echo);
    }
}

#[tokio::test]
async fn a_shutdown_ends_all_sessions_in_its_time() {
    let upstream = server(Handshake::default()).await;
    let notice_time = Duration::from_millis(300);
    let backend = backend_of(config(&upstream), Limits { notice_time, ..limits() });
    join_all((0..100).map(|n| run(&backend, call_of(&format!("c{n}"))))).await;
    upstream.behave("echo", Behaviour::Hang);
    let busy = tokio::spawn(super::end_of(backend.call(call_of("c0")).await.unwrap()));
    eventually(|| upstream.count("tools/call") == 101).await;
    backend.shutdown().await;
    assert_eq!(ended(&upstream), 100);
    busy.abort();
    // One that does not answer is not waited for.
    let upstream = server(Handshake::default()).await;
    let backend = backend_of(config(&upstream), Limits { notice_time, ..limits() });
    join_all((0..100).map(|n| run(&backend, call_of(&format!("c{n}"))))).await;
    upstream.always(Some(Behaviour::Hang));
    let began = tokio::time::Instant::now();
    backend.shutdown().await;
    assert!(began.elapsed() < notice_time * 3, "{:?}", began.elapsed());
}
