//! What becomes of answers, good and bad.

use std::time::Duration;

use super::INFO;
use super::backend;
use super::backend_of;
use super::call;
use super::config_of;
use super::result;
use super::run;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use super::upstream::sessions::Handshake;
use crate::backend::BackendError;
use crate::model::limits::Limits;
use crate::model::tenant::BackendEra;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::json::Json;

/// Each answer, and what its error says in `Debug`.
fn bad_answers(elsewhere: &str) -> Vec<(Behaviour, &'static str)> {
    let right = r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#;
    let body = |body: &str| http("200 OK\r\nContent-Type: application/json", body);
    let event = |data: &str| http("200 OK\r\nContent-Type: text/event-stream", &format!("data: {data}\n\n"));
    let result = |text: &str| Behaviour::Result(text.into());
    let error = |status, text: &str| Behaviour::Error(status, text.into());
    vec![
        (Behaviour::Reset, "Broken"),
        (Behaviour::ResetInBody, "Broken"),
        (Behaviour::ResetInStream, "Broken"),
        (Behaviour::Raw("SSH-2.0-OpenSSH\r\n".into()), "Broken"),
        (Behaviour::Raw(String::new()), "Broken"),
        (Behaviour::HalfJson, "is not JSON"),
        (Behaviour::WrongId, "another id"),
        (Behaviour::StringId, "another id"),
        (Behaviour::Huge(1 << 20), "larger than is taken"),
        (Behaviour::ServerRequest, "a request of its own"),
        (Behaviour::Redirect(elsewhere.into()), "redirects"),
        (Behaviour::Gzip, "compressed"),
        (result("[]"), "`result` is no object"),
        (result(r#"{"resultType":"weird"}"#), "`resultType` is not known"),
        (result(r#"{"resultType":null}"#), "`resultType` is not known"),
        (result(r#"{"resultType":"input_required"}"#), "asks for nothing"),
        (result(r#"{"resultType":"input_required","inputRequests":[]}"#), "`inputRequests` is no object"),
        (result(r#"{"resultType":"input_required","inputRequests":{},"requestState":1}"#), "no string"),
        (result(r#"{"_meta":1}"#), "`_meta` is no object"),
        (result(r#"{"a":1,"\u0061":2}"#), "the same key twice"),
        (error(400, r#"{"code":-32020,"message":"m"}"#), "Stale"),
        (error(200, r#"{"code":1.5,"message":"m"}"#), "no integer `code`"),
        (error(200, r#"{"code":"x","message":"m"}"#), "no integer `code`"),
        (error(200, r#"{"code":1}"#), "no `message`"),
        (error(200, "null"), "no integer `code`"),
        (error(401, r#"{"code":-32602,"message":"m"}"#), "Unauthorized"),
        (error(403, r#"{"code":-32602,"message":"m"}"#), "Unauthorized"),
        (http("200 OK\r\nContent-Type: text/html", "<p>Welcome"), "neither JSON nor"),
        (http("200 OK", right), "neither JSON nor"),
        (http("200 OK\r\nContent-Type: application/json\r\nContent-Type: a/b", right), "repeats a header"),
        (http("202 Accepted\r\nContent-Length: 0", ""), "as if it were a notification"),
        (http("500 Oops\r\nContent-Type: text/html", "<p>Oops"), "500 without a JSON-RPC error"),
        (http("500 Oops\r\nContent-Type: application/json", right), "without a JSON-RPC error"),
        (body(""), "is not JSON"),
        (body(&format!("[{right}]")), "a message is a JSON object"),
        (body(&format!("\u{feff}{right}")), "is not JSON"),
        (body(r#"{"id":$ID,"result":{}}"#), "a message has `jsonrpc`"),
        (body(r#"{"jsonrpc":2.0,"id":$ID,"result":{}}"#), "a message has `jsonrpc`"),
        (body(r#"{"jsonrpc":"2.0","id":$ID}"#), "either `result` or `error`"),
        (body(r#"{"jsonrpc":"2.0","id":$ID,"result":{},"error":{}}"#), "either `result` or `error`"),
        (body(r#"{"jsonrpc":"2.0","result":{}}"#), "another id"),
        (body(r#"{"jsonrpc":"2.0","id":$ID.0,"result":{}}"#), "another id"),
        (body(r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#), "another id"),
        (body(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#), "no response in it"),
        (event("nonsense"), "is not JSON"),
        (event(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#), "ended without a response"),
        (event(&"x".repeat(70 << 10)), "larger than is taken"),
    ]
}

fn http(head: &str, body: &str) -> Behaviour {
    Behaviour::Raw(format!("HTTP/1.1 {head}\r\n\r\n{body}"))
}

#[tokio::test]
async fn every_bad_answer_has_its_error() {
    let (upstream, elsewhere) = (Upstream::start().await, Upstream::start().await);
    let backend = backend(&upstream.url());
    for (behaviour, expected) in bad_answers(&elsewhere.url()) {
        let shown = format!("{behaviour:.80?}");
        upstream.behave("echo", behaviour);
        let (progress, end) = run(&backend, call("echo")).await;
        let error = end.expect_err(&shown);
        assert!(format!("{error:?}").contains(expected), "{shown}: {error:?}");
        assert!(progress.is_empty(), "{shown}");
        let may_have_acted = !matches!(error, BackendError::Unauthorized | BackendError::Stale);
        assert_eq!(error.sent(), may_have_acted, "{shown}");
        assert!(!error.to_string().contains("127.0.0.1"), "{shown}");
    }
    assert!(elsewhere.requests().is_empty(), "a redirect is not followed");
    upstream.behave("echo", Behaviour::Echo);
    run(&backend, call("echo")).await.1.unwrap();
}

#[tokio::test]
async fn what_is_understood_of_odd_answers_is_taken() {
    let upstream = Upstream::start().await;
    let backend = backend(&upstream.url());
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}"#);
    let echoed =
        format!(r#"{{"resultType":"complete","content":[],"structuredContent":{{"text":"hi"}},{meta}"#);
    let other = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let bare = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\n";
    let marked = format!(
        "{bare}\u{feff}: note\r\revent: evil\rid: 7\rretry: 0\rdata: {{\"jsonrpc\":\"2.0\",\r\
         data: \"id\":$ID,\"result\":{{}}}}\r\rdata: unfinished"
    );
    for (behaviour, expected) in [
        (Behaviour::EchoSse, &echoed),
        (Behaviour::TwoFinals, &echoed),
        (Behaviour::Late(Duration::from_millis(20)), &echoed),
        (Behaviour::Events(vec![other.into()]), &echoed),
        (Behaviour::Progress(3), &echoed),
        (Behaviour::Raw(marked), &format!(r#"{{"resultType":"complete",{meta}"#)),
        (Behaviour::Result("{}".into()), &format!(r#"{{"resultType":"complete",{meta}"#)),
    ] {
        let shown = format!("{behaviour:?}");
        upstream.behave("echo", behaviour);
        let (progress, end) = run(&backend, call("echo")).await;
        let Ok(Outcome::Result(result)) = end else { panic!("{shown}: {end:?}") };
        assert_eq!(result.text(), expected, "{shown}");
        assert_eq!(progress, [""; 0], "{shown}");
    }
}

#[tokio::test]
async fn a_result_is_relayed_byte_for_byte_but_for_its_server_info() {
    let upstream = Upstream::start().await;
    let exact = r#"{"n":9007199254740993,"x":1e400,"y":-0.0,"z":null,"f":false,"s":"\u00e9\n"}"#;
    let result_text = format!(
        r#"{{"structuredContent":{exact},"new":[1.0,{{}}],"_meta":{{"a/b":null,"io.modelcontextprotocol/serverInfo":{{"name":"theirs"}},"dev.fondaco/upstreamServerInfo":1}},"isError":false,"resultType":"complete"}}"#
    );
    upstream.behave("echo", Behaviour::Result(result_text));
    assert_eq!(
        result(&backend(&upstream.url()), call("echo")).await,
        format!(
            r#"{{"structuredContent":{exact},"new":[1.0,{{}}],"isError":false,"resultType":"complete","_meta":{{"a/b":null,"dev.fondaco/upstreamServerInfo":{{"name":"theirs"}},"io.modelcontextprotocol/serverInfo":{INFO}}}}}"#
        )
    );
}

#[tokio::test]
async fn errors_keep_what_may_be_said_and_mend_the_rest() {
    let upstream = Upstream::start().await;
    let backend = backend(&upstream.url());
    for (status, code, data, expected, expected_data) in [
        (200, -32602, "", -32602, None),
        (404, -32601, r#","data":{"a":1e400}"#, -32601, Some(r#"{"a":1e400}"#)),
        (400, -32021, r#","data":null"#, -32021, Some("null")),
        (500, -32603, "", -32603, None),
        (200, 42, r#","data":[1]"#, 42, Some("[1]")),
        (
            200,
            -32002,
            r#","data":{"uri":"x","upstreamCode":7}"#,
            -32603,
            Some(r#"{"uri":"x","upstreamCode":-32002}"#),
        ),
        (200, -32042, r#","data":"d""#, -32603, Some(r#"{"upstreamData":"d","upstreamCode":-32042}"#)),
        (200, -32000, "", -32603, Some(r#"{"upstreamCode":-32000}"#)),
        (200, -32019, "", -32603, Some(r#"{"upstreamCode":-32019}"#)),
        (400, -32022, "", -32603, Some(r#"{"upstreamCode":-32022}"#)),
        (200, -32099, "", -32603, Some(r#"{"upstreamCode":-32099}"#)),
        (200, -32100, "", -32100, None),
    ] {
        upstream
            .behave("echo", Behaviour::Error(status, format!(r#"{{"code":{code},"message":"m"{data}}}"#)));
        let end = run(&backend, call("echo")).await.1;
        let Ok(Outcome::Error(RpcError { code: got, message, data: got_data })) = end else {
            panic!("{code}: {end:?}")
        };
        assert_eq!((got, &*message), (expected, "m"), "{code}");
        assert_eq!(got_data.as_ref().map(Json::text), expected_data, "{code}");
    }
    let long = "é".repeat(4 << 10);
    upstream.behave("echo", Behaviour::Error(200, format!(r#"{{"code":1,"message":"{long}"}}"#)));
    let Ok(Outcome::Error(error)) = run(&backend, call("echo")).await.1 else { panic!("an error") };
    assert_eq!(error.message.len(), 4 << 10);
    let anonymous = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#;
    let raw = format!("HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\n\r\n{anonymous}");
    upstream.behave("echo", Behaviour::Raw(raw));
    assert!(matches!(run(&backend, call("echo")).await.1, Ok(Outcome::Error(_))));
}

#[tokio::test]
async fn the_data_of_an_error_has_a_bound_in_either_era() {
    let error_of = |code: i64, bytes: usize| {
        // Quotes are two of the bytes.
        let data = "x".repeat(bytes - 2);
        Behaviour::Error(200, format!(r#"{{"code":{code},"message":"m","data":"{data}"}}"#))
    };
    for era in [BackendEra::Modern, BackendEra::Handshake] {
        let upstream = Upstream::start().await;
        if era == BackendEra::Handshake {
            upstream.handshake(Handshake::default());
        }
        let backend = backend_of(config_of(&upstream.url(), era), Limits::default());
        for (code, bytes, expected) in [
            (1, 64 << 10, None),
            (1, (64 << 10) + 1, Some(r#"{"upstreamDataOmitted":true}"#)),
            (-32602, 1 << 20, Some(r#"{"upstreamDataOmitted":true}"#)),
            (-32021, 1 << 20, Some(r#"{"upstreamDataOmitted":true}"#)),
            (-32000, 1 << 20, Some(r#"{"upstreamDataOmitted":true,"upstreamCode":-32000}"#)),
        ] {
            upstream.behave("echo", error_of(code, bytes));
            let Ok(Outcome::Error(error)) = run(&backend, call("echo")).await.1 else { panic!("{code}") };
            let data = error.data.unwrap();
            match expected {
                Some(expected) => assert_eq!(data.text(), expected),
                None => assert_eq!(data.bytes().len(), bytes),
            }
        }
    }
}
