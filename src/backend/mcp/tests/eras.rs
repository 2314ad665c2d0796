//! Which era a server is spoken to in, and what makes that another one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::alice;
use super::auto;
use super::backend_of;
use super::call;
use super::config_of;
use super::eventually;
use super::result;
use super::run;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use super::upstream::sessions::Handshake;
use super::upstream::sessions::Ids;
use crate::backend::Account;
use crate::backend::Backend;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::mcp::Mcp;
use crate::backend::mcp::probe::Era;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::tenant::BackendEra;
use crate::protocol::call::Outcome;

fn http(head: &str, body: &str) -> Behaviour {
    Behaviour::Raw(format!("HTTP/1.1 {head}\r\n\r\n{body}"))
}

fn error(status: u16, code: i64, data: &str) -> Behaviour {
    Behaviour::Error(status, format!(r#"{{"code":{code},"message":"m"{data}}}"#))
}

fn body(result: &str) -> Behaviour {
    Behaviour::Result(result.into())
}

fn quick() -> Limits {
    Limits {
        probe_time: Duration::from_millis(150),
        open_time: Duration::from_millis(400),
        connect_time: Duration::from_secs(1),
        open_pause: Duration::from_millis(20),
        ..Limits::default()
    }
}

fn mcp(backend: &Backend) -> &Mcp {
    match backend {
        Backend::Mcp(mcp) => mcp,
        Backend::Demo(_) => panic!("not an MCP server"),
    }
}

fn known(backend: &Backend) -> Option<Era> {
    mcp(backend).probe.known()
}

/// What answers `server/discover` as the modern era does.
fn modern_answers() -> Vec<Behaviour> {
    vec![
        Behaviour::Echo,
        Behaviour::EchoSse,
        body(r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#),
        error(400, -32020, ""),
        error(400, -32021, ""),
        error(400, -32022, ""),
        error(400, -32022, r#","data":{"supported":["2026-07-28"]}"#),
        error(400, -32022, r#","data":{"supported":[]}"#),
        error(200, -32022, r#","data":{"supported":7}"#),
        error(500, -32022, ""),
        http(
            "400 Bad\r\nContent-Type: application/json",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"m"}}"#,
        ),
    ]
}

/// What does not, and leads to `initialize`.
fn other_answers() -> Vec<Behaviour> {
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Server not initialized"}}"#;
    vec![
        error(400, -32000, ""),
        error(400, -32600, ""),
        error(400, -32700, ""),
        error(404, -32601, ""),
        error(200, -32601, ""),
        error(200, -32602, ""),
        error(422, 1, ""),
        http("400 Bad\r\nContent-Type: application/json", null),
        http("400 Bad\r\nContent-Type: text/plain", "Bad Request: No valid session ID provided"),
        http("404 Not Found\r\nContent-Length: 0", ""),
        http("404 Not Found\r\nContent-Type: application/json", r#"{"detail":"Not Found"}"#),
        http("405 Not Allowed\r\nContent-Length: 0", ""),
        http("406 Not Acceptable\r\nContent-Length: 0", ""),
        http("415 Unsupported\r\nContent-Length: 0", ""),
        http("422 Unprocessable\r\nContent-Type: text/plain", "expect initialize request"),
        http("200 OK\r\nContent-Type: text/html", "<p>Welcome"),
        http("200 OK\r\nContent-Type: application/json", ""),
        http("200 OK\r\nContent-Length: 0", ""),
        http("202 Accepted\r\nContent-Length: 0", ""),
        http("200 OK\r\nContent-Type: text/event-stream", ""),
        body("{}"),
        body(r#"{"supportedVersions":"2026-07-28"}"#),
        body(r#"{"supportedVersions":["2025-06-18"]}"#),
        error(400, -32022, r#","data":{"supported":["2025-11-25"]}"#),
        Behaviour::HalfJson,
        Behaviour::Hang,
        Behaviour::HangInStream,
    ]
}

#[tokio::test]
async fn a_modern_answer_is_never_followed_by_a_handshake() {
    for behaviour in modern_answers() {
        let upstream = Upstream::start().await;
        upstream.behave("server/discover", behaviour.clone());
        let backend = auto(&upstream.url(), quick());
        run(&backend, call("echo")).await.1.unwrap();
        assert_eq!(known(&backend), Some(Era::Modern), "{behaviour:?}");
        assert_eq!(upstream.methods(), ["server/discover", "tools/call"], "{behaviour:?}");
    }
}

#[tokio::test]
async fn any_other_answer_and_silence_lead_to_the_handshake() {
    for behaviour in other_answers() {
        let upstream = Upstream::start().await;
        // As a server that asks for no session before it is asked for one.
        upstream.handshake(Handshake { ids: Ids::None, ..Handshake::default() });
        upstream.behave("server/discover", behaviour.clone());
        let backend = auto(&upstream.url(), quick());
        run(&backend, call("echo")).await.1.unwrap();
        assert_eq!(known(&backend), Some(Era::Handshake), "{behaviour:?}");
        let opening = ["initialize", "notifications/initialized"];
        let expected = [&["server/discover"][..], &opening, &opening, &["tools/call"]].concat();
        assert_eq!(upstream.methods(), expected, "{behaviour:?}: the gateway's session, and the caller's");
    }
}

#[tokio::test]
async fn what_is_no_evidence_teaches_nothing() {
    for (behaviour, expected) in [
        (http("401 Who\r\nContent-Length: 0", ""), "Unauthorized"),
        (http("403 No\r\nContent-Length: 0", ""), "Unauthorized"),
        (http("413 Large\r\nContent-Length: 0", ""), "NotOpened"),
        (http("414 Long\r\nContent-Length: 0", ""), "NotOpened"),
        (http("429 Slow\r\nContent-Length: 0", ""), "NotOpened"),
        (http("431 Large\r\nContent-Length: 0", ""), "NotOpened"),
        (http("500 Oops\r\nContent-Type: text/html", "<p>Oops"), "NotOpened"),
        (http("503 Busy\r\nContent-Length: 0", ""), "NotOpened"),
        (error(500, -32603, ""), "NotOpened"),
        (Behaviour::Redirect("http://127.0.0.1:9/".into()), "NotOpened"),
        (Behaviour::Reset, "Unreachable"),
        (body(r#"{"supportedVersions":["2030-01-01"]}"#), "no revision"),
        (error(400, -32022, r#","data":{"supported":["2030-01-01"]}"#), "no revision"),
    ] {
        let upstream = Upstream::start().await;
        upstream.behave("server/discover", behaviour.clone());
        let backend = auto(&upstream.url(), quick());
        let refused = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(format!("{refused:?}").contains(expected), "{behaviour:?}: {refused:?}");
        assert!(!refused.sent(), "{behaviour:?}");
        assert_eq!(known(&backend), None, "{behaviour:?}");
        assert_eq!(upstream.methods(), ["server/discover"], "{behaviour:?}");
    }
}

#[tokio::test]
async fn the_handshake_is_believed_only_when_it_is_shaken() {
    let result = |result: &str| Behaviour::Result(result.into());
    for (behaviour, expected) in [
        (error(200, -32601, ""), "with an error"),
        (error(404, -32601, ""), "with an error"),
        (http("404 Not Found\r\nContent-Length: 0", ""), "HTTP status"),
        (http("200 OK\r\nContent-Type: text/html", "<p>Welcome"), "neither JSON nor"),
        (http("500 Oops\r\nContent-Length: 0", ""), "HTTP status"),
        (http("401 Who\r\nContent-Length: 0", ""), "Unauthorized"),
        (result("{}"), "names no revision"),
        (result(r#"{"protocolVersion":"2024-11-05"}"#), "older than"),
        (result(r#"{"protocolVersion":"2026-07-28"}"#), "not spoken here"),
        (Behaviour::WrongId, "another id"),
        (Behaviour::ServerRequest, "request of its own"),
        (Behaviour::Hang, "clock: Open"),
        (Behaviour::Reset, "Unreachable"),
    ] {
        let upstream = Upstream::start().await;
        upstream.handshake(Handshake::default());
        upstream.behave("initialize", behaviour.clone());
        let backend = auto(&upstream.url(), quick());
        let refused = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(format!("{refused:?}").contains(expected), "{behaviour:?}: {refused:?}");
        assert!(!refused.sent(), "{behaviour:?}: {refused:?}");
        assert_eq!(known(&backend), None, "{behaviour:?}");
        assert_eq!(upstream.count("tools/call"), 0, "{behaviour:?}");
    }
    // A modern server that was only slow.
    let upstream = Upstream::start().await;
    upstream.behave("server/discover", Behaviour::Hang).behave("initialize", error(400, -32020, ""));
    let backend = auto(&upstream.url(), quick());
    run(&backend, call("echo")).await.1.unwrap();
    assert_eq!(known(&backend), Some(Era::Modern));
}

#[tokio::test]
async fn many_who_do_not_know_share_one_probe() {
    let upstream = Upstream::start().await;
    upstream
        .behave("server/discover", Behaviour::Once(Box::new(Behaviour::Late(Duration::from_millis(100)))));
    let backend = auto(&upstream.url(), quick());
    let calls = join_all((0..50).map(|_| run(&backend, call("echo")))).await;
    assert!(calls.iter().all(|(_, end)| end.is_ok()));
    assert_eq!(upstream.count("server/discover"), 1);
    // Also when whoever began it has left.
    let backend = auto(&upstream.url(), quick());
    upstream.behave("server/discover", Behaviour::Late(Duration::from_millis(100)));
    let first = tokio::time::timeout(Duration::from_millis(20), run(&backend, call("echo"))).await;
    assert!(first.is_err());
    run(&backend, call("echo")).await.1.unwrap();
    assert_eq!(upstream.count("server/discover"), 2);
}

#[tokio::test]
async fn an_era_that_is_configured_is_never_asked_for() {
    for (era, expected) in [
        (BackendEra::Modern, &["tools/call"][..]),
        (BackendEra::Handshake, &["initialize", "notifications/initialized", "tools/call"][..]),
    ] {
        let upstream = Upstream::start().await;
        if era == BackendEra::Handshake {
            upstream.handshake(Handshake::default());
        }
        let backend = backend_of(config_of(&upstream.url(), era), quick());
        run(&backend, call("echo")).await.1.unwrap();
        assert_eq!(upstream.methods(), expected);
        // Nor is it given up.
        match era {
            BackendEra::Handshake => upstream.modern().behave("initialize", error(400, -32022, "")),
            _ => upstream.handshake(Handshake::default()),
        };
        upstream.behave("tools/call", error(400, -32022, ""));
        for _ in 0..2 {
            assert!(!matches!(run(&backend, call("echo")).await.1, Ok(Outcome::Result(_))));
        }
        assert_eq!(upstream.count("server/discover"), 0);
    }
}

#[tokio::test]
async fn a_server_that_changes_its_era_is_found_out_and_nothing_is_done_twice() {
    let upstream = Upstream::start().await;
    let backend = auto(&upstream.url(), quick());
    for round in 0..2 {
        result(&backend, call("echo")).await;
        assert_eq!(known(&backend), Some(Era::Modern), "{round}");
        // -32000, as most servers say it: surely nothing was done.
        upstream.handshake(Handshake::default()).behave("initialize", Behaviour::Echo);
        upstream.behave("tools/call", Behaviour::Echo);
        result(&backend, call("echo")).await;
        assert_eq!(known(&backend), Some(Era::Handshake), "{round}");
        // A modern server refuses a session's request: likewise.
        upstream.modern().behave("tools/call", Behaviour::Mirrored("mcp-method"));
        upstream.behave("initialize", error(400, -32022, r#","data":{"supported":["2026-07-28"]}"#));
        result(&backend, call("echo")).await;
        assert_eq!(known(&backend), Some(Era::Modern), "{round}");
        let reached = upstream.requests().iter().filter(|r| r.json()["method"] == "tools/call").count();
        assert_eq!(reached, 5 * (round + 1), "each was sent once more, after it was refused");
    }
}

#[tokio::test]
async fn a_call_that_may_have_been_done_is_not_sent_again() {
    let plain = http("400 Bad Request\r\nContent-Type: text/plain", "Missing session ID");
    let python = http(
        "400 Bad Request\r\nContent-Type: application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}"#,
    );
    for answer in [plain, python] {
        let upstream = Upstream::start().await;
        let backend = auto(&upstream.url(), quick());
        result(&backend, call("echo")).await;
        upstream.behave("tools/call", Behaviour::Once(Box::new(answer.clone())));
        upstream.behave("server/discover", answer.clone());
        let refused = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(matches!(refused, BackendError::Invalid(_)), "{refused:?}");
        assert_eq!(known(&backend), None, "found out at the next use");
        assert_eq!(upstream.count("tools/call"), 2);
        // A list goes on at once.
        upstream.handshake(Handshake::default());
        assert_eq!(backend.list(&Account::Gateway).await.unwrap().tools.entries().len(), 1);
        assert_eq!(known(&backend), Some(Era::Handshake));
    }
}

#[tokio::test]
async fn an_error_under_the_id_of_a_call_ends_it_in_either_era() {
    let json = |status: u16, body: &str| {
        Behaviour::Raw(format!("HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n\r\n{body}"))
    };
    let result_of = r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#;
    for (behaviour, said) in [
        (error(400, -32000, ""), r#"message: "m""#),
        (json(404, result_of), "HTTP status"),
        (json(405, result_of), "HTTP status"),
        (json(404, r#"{"jsonrpc":"2.0","id":$ID,"error":{"co"#), "not JSON"),
    ] {
        let upstream = Upstream::start().await;
        let backend = auto(&upstream.url(), quick());
        result(&backend, call("echo")).await;
        // The server acted, and speaks the handshake from now on.
        upstream.behave("tools/call", Behaviour::Once(Box::new(behaviour.clone())));
        upstream.behave("server/discover", error(404, -32601, ""));
        let answered = run(&backend, call("echo"));
        let turns = async {
            eventually(|| upstream.count("tools/call") == 2).await;
            upstream.handshake(Handshake { ids: Ids::None, ..Handshake::default() });
        };
        let ((_, end), ()) = tokio::join!(answered, turns);
        assert!(format!("{end:?}").contains(said), "{behaviour:?}: {end:?}");
        assert_eq!(upstream.count("tools/call"), 2, "{behaviour:?}");
        assert_eq!(upstream.count("initialize"), 0, "{behaviour:?}");
    }
}

#[tokio::test]
async fn what_one_caller_sends_makes_no_server_another_one() {
    for (mode, era) in [(None, Era::Modern), (Some(Handshake::default()), Era::Handshake)] {
        for status in [413, 414, 422, 429, 431] {
            let upstream = Upstream::start().await;
            if let Some(mode) = &mode {
                upstream.handshake(mode.clone());
            }
            let backend = auto(&upstream.url(), quick());
            result(&backend, call("echo")).await;
            let plain = format!("HTTP/1.1 {status} No\r\nContent-Type: text/plain\r\n\r\nToo much");
            let error = format!(
                "HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n\r\n{}",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Request body is too large"}}"#
            );
            for answer in [plain, error] {
                upstream.behave("echo", Behaviour::Once(Box::new(Behaviour::Raw(answer))));
                assert!(!matches!(run(&backend, call("echo")).await.1, Ok(Outcome::Result(_))));
                assert_eq!(known(&backend), Some(era), "{status}");
                result(&backend, call("echo")).await;
            }
            // A session in which a request is refused without a word is not used again.
            let sessions = if status == 422 { 3 } else { 2 };
            assert_eq!(upstream.sessions().len(), if era == Era::Handshake { sessions } else { 0 });
            assert_eq!(upstream.count("server/discover"), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn a_modern_server_that_only_says_so_stays_one() {
    let upstream = Upstream::start().await;
    let backend = auto(&upstream.url(), quick());
    let mut asked = 1;
    for (behaviour, probes) in [
        (error(400, -32602, ""), 0),
        (error(404, -32601, ""), 0),
        (error(400, -32021, ""), 0),
        (error(200, -32000, ""), 0),
        (error(400, -32000, ""), 1),
        (error(400, -32022, ""), 1),
    ] {
        upstream.behave("tools/call", behaviour.clone());
        let (_, end) = run(&backend, call("echo")).await;
        assert!(matches!(end, Ok(Outcome::Error(_))), "{behaviour:?}: {end:?}");
        // Of one that is in doubt that is found out at the next use.
        backend.list(&Account::Gateway).await.unwrap();
        assert_eq!(known(&backend), Some(Era::Modern), "{behaviour:?}");
        // Each list asks what the server says of itself, too.
        asked += 1 + probes;
        assert_eq!(upstream.count("server/discover"), asked, "{behaviour:?}");
    }
    assert_eq!(upstream.count("tools/call"), 6);
    assert_eq!(upstream.count("initialize"), 0);
}

#[tokio::test]
async fn a_dead_server_sees_one_probe_a_step_however_many_wait() {
    let limits = Limits { open_pause: Duration::from_millis(200), ..quick() };
    for dead in [http("503 Busy\r\nContent-Length: 0", ""), Behaviour::Raw(String::new())] {
        let upstream = Upstream::start().await;
        upstream.always(Some(dead));
        let backend = auto(&upstream.url(), limits.clone());
        for _ in 0..3 {
            let calls = join_all((0..40).map(|_| run(&backend, call("echo")))).await;
            assert!(calls.iter().all(|(_, end)| end.as_ref().is_err_and(|error| !error.sent())));
            assert!(backend.list(&Account::Gateway).await.is_err());
        }
        assert_eq!((upstream.connections(), upstream.requests().len()), (1, 1));
        upstream.always(None);
        eventually(|| {
            let entered = futures_util::FutureExt::now_or_never(mcp(&backend).probe.pool().backoff().enter());
            entered.is_some_and(|entered| entered.is_ok())
        })
        .await;
        result(&backend, call("echo")).await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_one_session_keeps_the_others() {
    let upstream = Upstream::start().await;
    upstream.handshake(Handshake::default());
    let backend = auto(&upstream.url(), quick());
    backend.list(&Account::Gateway).await.unwrap();
    result(&backend, call("echo")).await;
    upstream.behave("initialize", error(200, -32603, ""));
    let bob = Caller { subject: "bob".into(), ..alice() };
    for _ in 0..3 {
        let call_of_bob = BackendCall { caller: Arc::new(bob.clone()), ..call("echo") };
        let refused = run(&backend, call_of_bob).await.1.unwrap_err();
        assert!(matches!(refused, BackendError::NotOpened(_)), "{refused:?}");
        result(&backend, call("echo")).await;
        assert_eq!(known(&backend), Some(Era::Handshake));
    }
    // Once nobody has one any more, it is asked what it is.
    upstream.forget_sessions();
    while known(&backend).is_some() {
        assert!(run(&backend, call("echo")).await.1.is_err());
        assert!(backend.list(&Account::Gateway).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
