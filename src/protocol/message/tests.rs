//! Tables of envelopes and eras.

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;

use crate::protocol::ProtocolError;
use crate::protocol::era;
use crate::protocol::era::Era;
use crate::protocol::headers::Mismatch;
use crate::protocol::json::Json;
use crate::protocol::message::Envelope;
use crate::protocol::message::Message;

const MODERN: &[(&str, &str)] = &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];

/// Step 9 as the road takes it, the modern branch; the other ends in the revision that shows the era.
fn read(fields: &[(&'static str, &str)], text: &str) -> (Result<Message, ProtocolError>, Option<String>) {
    let json = Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap();
    let envelope = Envelope::read(&json, 256);
    let id = envelope.id().map(|id| id.as_json().text().to_owned());
    let message = era::tell(&headers(fields), &envelope).and_then(|era| match era {
        Era::Modern => Message::of(envelope),
        Era::Handshake { requested } => Err(ProtocolError::HandshakeEra { requested }),
    });
    (message, id)
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn missing_version() -> ProtocolError {
    ProtocolError::HeaderMismatch { header: "MCP-Protocol-Version".to_owned(), problem: Mismatch::Missing }
}

#[test]
fn an_id_is_a_string_or_an_integer_and_kept_as_it_was_sent() {
    let longest = format!("\"{}\"", "x".repeat(254));
    for id in
        ["0", "1", "-1", "-0", "9007199254740993", "\"\"", "\"1\"", r#""a\n\ndata: {}\u0041""#, &longest]
    {
        let (message, echoed) =
            read(MODERN, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        let Ok(Message::Request(request)) = message else { panic!("{id}") };
        assert_eq!(request.id.as_json().text(), id);
        assert_eq!(echoed.as_deref(), Some(id));
    }
    let long = format!("\"{}\"", "x".repeat(255));
    for id in ["null", "true", "{}", "[1]", "1.5", "1.0", "1e400", "1e0", &long, &"1".repeat(257)] {
        let (message, echoed) =
            read(MODERN, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        assert!(matches!(message, Err(ProtocolError::InvalidRequest(_))), "{id}");
        assert_eq!(echoed, None, "{id}");
    }
}

#[test]
fn an_envelope_that_is_none_is_refused_under_its_id() {
    for text in [
        r#"{"id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"Method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"ID":2,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","JsonRPC":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","jſonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","Params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_Meta":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","NAME":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","argumentſ":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"taskId":"a","tas\u212aId":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
    ] {
        let (message, id) = read(MODERN, text);
        assert!(matches!(message, Err(ProtocolError::InvalidRequest(_))), "{text}: {message:?}");
        assert_eq!(id.as_deref(), Some("1"), "{text}");
    }
    for text in ["null", "\"tools/list\"", "42", "[]", r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#]
    {
        // Nothing of it shows another era.
        for fields in [MODERN, &[]] {
            let (message, id) = read(fields, text);
            assert!(matches!(message, Err(ProtocolError::InvalidRequest(_))), "{text}");
            assert_eq!(id, None);
        }
    }
}

#[test]
fn other_members_are_nobodys_business() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","extra":{"Method":1}}"#,
        r#"{"json\u0072pc":"2.0","id":1,"m\u0065thod":"tools\/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","paramſ":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"arguments":{"Name":1}}}"#,
    ] {
        let (message, _) = read(MODERN, text);
        let Ok(Message::Request(request)) = message else { panic!("{text}: {message:?}") };
        assert_eq!(request.method, "tools/list");
    }
}

#[test]
fn the_era_is_told_before_the_envelope_is_judged() {
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let meta = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}}"#;
    let initialize =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    let broken = r#"{"id":1}"#;
    let legacy = |requested: &str| Some(ProtocolError::HandshakeEra { requested: requested.to_owned() });
    let version = "mcp-protocol-version";
    for (fields, text, expected) in [
        (&[][..], bare, Some(missing_version())),
        (&[], broken, Some(missing_version())),
        (&[], r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Some(missing_version())),
        (&[], meta, None),
        (&[("mcp-method", "tools/list")], bare, None),
        (&[("mcp-method", "initialize")], initialize, legacy("2025-06-18")),
        (&[("mcp-method", "initialize"), (version, "2026-07-28")], initialize, None),
        (&[(version, "2026-07-28")], bare, None),
        (&[(version, "1900-01-01")], initialize, None),
        (&[(version, "")], bare, None),
        (&[(version, "2025-06-18"), (version, "2025-06-18")], bare, None),
        (&[(version, "2025-11-25"), ("mcp-method", "tools/list")], bare, None),
        (&[(version, "2025-11-25")], meta, None),
        (&[(version, "2025-11-25")], bare, legacy("2025-11-25")),
        (&[(version, "2025-11-25")], broken, legacy("2025-11-25")),
        (&[(version, "2024-11-05")], bare, legacy("2024-11-05")),
        (&[("mcp-session-id", "x")], bare, legacy("Mcp-Session-Id")),
        (&[("mcp-session-id", "x"), ("mcp-session-id", "y")], broken, legacy("Mcp-Session-Id")),
        (&[("mcp-session-id", "x"), ("mcp-method", "tools/list")], bare, None),
        (&[("mcp-session-id", "x"), (version, "2026-07-28")], bare, None),
        (&[("mcp-session-id", "x")], meta, None),
        (&[], initialize, legacy("2025-06-18")),
        (&[(version, "2025-03-26")], initialize, legacy("2025-06-18")),
        (&[], r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, legacy("initialize")),
        (
            &[],
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
            legacy("initialize"),
        ),
    ] {
        let (message, id) = read(fields, text);
        assert_eq!(message.err(), expected, "{fields:?} {text}");
        assert_eq!(id.as_deref(), Some("1"));
    }
    let long =
        format!(r#"{{"id":1,"method":"initialize","params":{{"protocolVersion":"{}"}}}}"#, "9".repeat(65));
    assert_eq!(read(&[], &long).0.err(), legacy("initialize"));
}

#[test]
fn a_notification_needs_no_era_but_an_envelope() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for fields in [MODERN, &[]] {
        assert!(matches!(read(fields, text), (Ok(Message::Notification(_)), None)));
    }
    for text in [
        r#"{"method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","result":1}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","Id":1}"#,
    ] {
        assert!(matches!(read(&[], text), (Err(ProtocolError::InvalidRequest(_)), None)), "{text}");
    }
    // `id: null` is a request with a wrong id, and a method that is no string makes no notification.
    for text in [r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, r#"{"jsonrpc":"2.0","method":5}"#] {
        assert!(matches!(read(MODERN, text), (Err(ProtocolError::InvalidRequest(_)), None)), "{text}");
        assert_eq!(read(&[], text).0.err(), Some(missing_version()), "{text}");
    }
    let legacy = read(&[("mcp-protocol-version", "2025-11-25")], text).0;
    assert!(matches!(legacy, Err(ProtocolError::HandshakeEra { .. })));
}

#[test]
fn a_notifications_mirrors_are_compared_where_they_are_sent() {
    let notification = |method: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"name":"a",
                "_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#,
        );
        match read(&[], &text).0 {
            Ok(Message::Notification(notification)) => notification,
            other => panic!("{other:?}"),
        }
    };
    let (plain, named) = (notification("notifications/x"), notification("tools/call"));
    let version = "mcp-protocol-version";
    for (notification, fields, problem) in [
        (&plain, &[][..], None),
        (&plain, &[(version, "2026-07-28"), ("mcp-method", "notifications/x"), ("mcp-name", "z")], None),
        (&plain, &[(version, "2026-07-29")], Some(Mismatch::Different)),
        (&plain, &[(version, "2026-07-28"), (version, "2026-07-28")], Some(Mismatch::Repeated)),
        (&plain, &[("mcp-method", "Notifications/x")], Some(Mismatch::Different)),
        (&named, &[], None),
        (&named, &[("mcp-name", "a")], None),
        (&named, &[("mcp-name", "b")], Some(Mismatch::Different)),
    ] {
        let found = match notification.check(&headers(fields)) {
            Err(ProtocolError::HeaderMismatch { problem, .. }) => Some(problem),
            other => other.err().map(|error| panic!("{error}")),
        };
        assert_eq!(found, problem, "{fields:?}");
    }
}
