//! What is sent, how long it is waited for, and what comes while it is.

use std::time::Duration;

use futures_util::StreamExt;
use http::HeaderName;
use http::HeaderValue;
use secrecy::SecretString;
use tokio::time::Instant;

use super::INFO;
use super::backend;
use super::backend_of;
use super::call;
use super::call_with_progress;
use super::config;
use super::eventually;
use super::json;
use super::run;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use crate::backend::Account;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::exchange::Frame;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::Credential;
use crate::model::tenant::CredentialPlace;
use crate::model::tenant::SecretCell;
use crate::protocol::methods::Method;

#[tokio::test]
async fn a_closed_port_is_unreachable_and_nothing_was_sent() {
    let upstream = Upstream::start().await;
    upstream.stop();
    eventually(|| std::net::TcpStream::connect(upstream.address()).is_err()).await;
    let backend = backend(&upstream.url());
    let error = run(&backend, call("echo")).await.1.unwrap_err();
    assert!(matches!(error, BackendError::Unreachable(_)), "{error:?}");
    assert!(!error.sent());
    assert_eq!(error.to_string(), "the backend cannot be reached");
    assert!(matches!(backend.list(&Account::Gateway).await, Err(BackendError::Unreachable(_))));
}

#[tokio::test]
async fn what_is_sent_is_built_from_nothing() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream.url());
    let value = SecretCell::default();
    value.set(SecretString::from("s3cret"));
    config.credential =
        Some(Credential { place: CredentialPlace::Bearer, secret: "crm-token".into(), value });
    let backend = backend_of(config, Limits::default());
    let mut call = call_with_progress("größe");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    call.meta.traceparent = Some(trace.into());
    call.meta.capabilities =
        json(r#"{"sampling":{},"elicitation":{},"new":{"x":1e400},"roots":{},"extensions":{"ui":{}}}"#);
    call.capabilities = json(r#"{"new":{"x":1e400}}"#);
    call.meta.unknown = vec![("a/b".into(), json("9007199254740993")), ("progressToken".into(), json("1"))];
    call.params = json(
        r#"{"_meta":{"x":1},"arguments":{"n":9007199254740993,"x":1e400,"z":null},"requestState":"r","name":"crm_x","new":[ 1.0 ],"inputResponses":{}}"#,
    );
    let header = (HeaderName::from_static("mcp-param-region"), HeaderValue::from_static("us-west1"));
    call.param_headers = vec![header];
    run(&backend, call).await.1.unwrap();

    let requests = upstream.requests();
    let [request] = &requests[..] else { panic!("one request") };
    assert_eq!(request.line, "POST /mcp HTTP/1.1");
    let mut headers = request.headers.clone();
    headers.sort();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"größe","arguments":{{"n":9007199254740993,"x":1e400,"z":null}},"new":[ 1.0 ],"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"new":{{"x":1e400}}}},"io.modelcontextprotocol/clientInfo":{INFO},"progressToken":"p1","traceparent":"{trace}","a/b":9007199254740993}}}}}}"#
    );
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("authorization", "Bearer s3cret"),
        ("content-length", &body.len().to_string()),
        ("content-type", "application/json"),
        ("host", upstream.url().trim_start_matches("http://").trim_end_matches("/mcp")),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
        ("mcp-param-region", "us-west1"),
        ("mcp-protocol-version", "2026-07-28"),
        ("traceparent", trace),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, expected);
    assert_eq!(request.body, body);
}

#[tokio::test]
async fn a_credential_that_cannot_be_read_sends_nothing() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream.url());
    let value = SecretCell::default();
    let place = CredentialPlace::Header("x-api-key".into());
    config.credential = Some(Credential { place, secret: "crm-token".into(), value: value.clone() });
    let backend = backend_of(config, Limits::default());
    for secret in [None, Some("a\nb")] {
        if let Some(secret) = secret {
            value.set(SecretString::from(secret));
        }
        let error = run(&backend, call("echo")).await.1.unwrap_err();
        assert!(matches!(error, BackendError::CredentialMissing), "{error:?}");
        assert!(matches!(backend.list(&Account::Gateway).await, Err(BackendError::CredentialMissing)));
    }
    assert!(upstream.requests().is_empty());
    value.set(SecretString::from("k"));
    run(&backend, call("echo")).await.1.unwrap();
    assert_eq!(upstream.requests()[0].header("X-Api-Key"), ["k"]);
}

#[tokio::test]
async fn progress_goes_on_under_the_clients_token_and_only_upwards() {
    let upstream = Upstream::start().await;
    let progress =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
    let sent = [
        r#"{"progressToken":$TOKEN,"progress":1.50,"total":1e400,"message":"é","new":null}"#,
        r#"{"progressToken":"p2","progress":2}"#,
        r#"{"progressToken":2,"progress":2}"#,
        r#"{"progressToken":$TOKEN,"progress":1.5}"#,
        r#"{"progressToken":$TOKEN,"progress":-3}"#,
        r#"{"progressToken":$TOKEN,"progress":"7"}"#,
        r#"{"progress":8,"progressToken":$TOKEN}"#,
        r#"{"progressToken":$TOKEN,"progress":9007199254740993}"#,
    ];
    upstream.behave("echo", Behaviour::Events(sent.map(progress).into()));
    let (relayed, end) = run(&backend(&upstream.url()), call_with_progress("echo")).await;
    end.unwrap();
    let expected = [
        r#"{"progressToken":"theirs","progress":1.50,"total":1e400,"message":"é","new":null}"#,
        r#"{"progress":8,"progressToken":"theirs"}"#,
        r#"{"progressToken":"theirs","progress":9007199254740993}"#,
    ];
    assert_eq!(relayed, expected.map(progress));
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_and_frees_the_slot() {
    for behaviour in [Behaviour::Hang, Behaviour::HangInStream, Behaviour::Progress(1000), Behaviour::Drip] {
        let upstream = Upstream::start().await;
        upstream.behave("echo", behaviour);
        let backend = backend_of(config(&upstream.url()), Limits { upstream_calls: 1, ..Limits::default() });
        let mut frames = backend.call(call_with_progress("echo")).await.unwrap();
        let polled = tokio::time::timeout(Duration::from_millis(100), frames.next()).await;
        assert!(matches!(polled, Err(_) | Ok(Some(Frame::Notice(_)))));
        let second = backend.call(call("echo")).await;
        assert!(matches!(second, Err(BackendError::Busy)), "the only slot is taken");
        assert_eq!(upstream.cancellations(), 0);
        drop(frames);
        eventually(|| upstream.cancellations() == 1).await;
        upstream.behave("echo", Behaviour::Echo);
        run(&backend, call("echo")).await.1.unwrap();
    }
}

#[tokio::test]
async fn each_clock_ends_a_call_and_is_named() {
    let upstream = Upstream::start().await;
    let (short, middle, long) =
        (Duration::from_millis(400), Duration::from_millis(1500), Duration::from_secs(20));
    for (behaviour, idle, total, deadline, expected) in [
        (Behaviour::Hang, short, long, long, Clock::Idle),
        (Behaviour::HangInStream, short, long, long, Clock::Idle),
        (Behaviour::Drip, short, long, long, Clock::Idle),
        (Behaviour::Hang, long, short, long, Clock::Total),
        (Behaviour::Drip, long, long, short, Clock::Total),
        (Behaviour::Progress(10_000), middle, middle * 2, long, Clock::Total),
    ] {
        let shown = format!("{behaviour:?}, {idle:?}, {total:?}, {deadline:?}");
        upstream.behave("echo", behaviour);
        let config = tenant::Backend { idle_timeout: idle, timeout: total, ..config(&upstream.url()) };
        let backend = backend_of(config, Limits::default());
        let mut call = call_with_progress("echo");
        let began = Instant::now();
        call.deadline = began + deadline;
        let error = run(&backend, call).await.1.expect_err(&shown);
        let named = matches!(error, BackendError::TimedOut { clock, sent: true } if clock == expected);
        assert!(named, "{shown}: {error:?}");
        assert!(began.elapsed() < long / 2, "{shown}");
    }
    eventually(|| upstream.cancellations() == 6).await;
    let late = BackendCall { deadline: Instant::now(), ..call("echo") };
    let error = run(&backend(&upstream.url()), late).await.1.unwrap_err();
    assert!(matches!(error, BackendError::TimedOut { clock: Clock::Total, sent: false }), "{error:?}");
    assert_eq!(upstream.requests().len(), 6);
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let upstream = Upstream::start().await;
    let backend = backend(&upstream.url());
    for behaviour in
        [Behaviour::Echo, Behaviour::EchoSse, Behaviour::Error(200, r#"{"code":1,"message":""}"#.into())]
    {
        upstream.behave("echo", behaviour);
        for _ in 0..5 {
            run(&backend, call("echo")).await.1.unwrap();
        }
    }
    let ids: Vec<_> = upstream.requests().iter().map(|request| request.json()["id"].as_u64()).collect();
    assert_eq!(ids, (1..=15).map(Some).collect::<Vec<_>>(), "ids are never used again");
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[tokio::test]
async fn reads_gets_and_completions_are_sent_under_the_backends_own_names() {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet"}"#).resource("x://1", r#"{"uri":"x://1","name":"n"}"#);
    let backend = backend_of(config(&upstream.url()), Limits::default());
    for (method, own, params, named, expected) in [
        (
            Method::ResourcesRead,
            "x://\u{e9}",
            r#"{"uri":"crm+x://\u00e9","y":1e400,"inputResponses":{},"requestState":"s"}"#,
            Some("=?base64?eDovL8Op?="),
            "{\"uri\":\"x://\u{e9}\",\"y\":1e400,",
        ),
        (
            Method::PromptsGet,
            "greet",
            r#"{"name":"crm_greet","arguments":{"a":"\u0041"}}"#,
            Some("greet"),
            r#"{"name":"greet","arguments":{"a":"\u0041"},"#,
        ),
        (
            Method::Complete,
            "greet",
            r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":""},"name":"x"}"#,
            None,
            r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":""},"name":"x","#,
        ),
    ] {
        let call = BackendCall { method, name: own.into(), params: json(params), ..call("x") };
        run(&backend, call).await.1.unwrap();
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.header("mcp-method"), [method.name()]);
        assert_eq!(request.header("mcp-name"), Vec::from_iter(named), "{method:?}");
        let (_, sent) = request.body.split_once(r#""params":"#).unwrap();
        assert!(sent.starts_with(expected), "{sent}");
        assert!(!sent.contains("requestState"), "{sent}");
    }
}
