//! Tables of `_meta`.

use bytes::Bytes;

use crate::protocol::ProtocolError;
use crate::protocol::json::Json;
use crate::protocol::level::Level;
use crate::protocol::meta::Meta;

const REQUIRED: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"a":1}"#;

fn read(params: &str) -> Result<Meta, ProtocolError> {
    let params = Json::parse(Bytes::copy_from_slice(params.as_bytes()), 64).unwrap();
    Meta::read(Some(&params), params.member("_meta").as_ref())
}

fn with(members: &str) -> Result<Meta, ProtocolError> {
    read(&format!(r#"{{"_meta":{{{REQUIRED},{members}}}}}"#))
}

#[test]
fn what_is_required_is_there_and_of_its_type() {
    assert!(matches!(Meta::read(None, None), Err(ProtocolError::InvalidParams(_))));
    for params in [
        "null",
        "[1]",
        "\"x\"",
        "{}",
        r#"{"_meta":null}"#,
        r#"{"_meta":[]}"#,
        r#"{"_meta":"x"}"#,
        r#"{"_meta":{}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1,"io.modelcontextprotocol/clientCapabilities":{}}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientCapabilities":null}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientCapabilities":[]}}"#,
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientCapabilities":true}}"#,
    ] {
        assert!(matches!(read(params), Err(ProtocolError::InvalidParams(_))), "{params}");
    }
    let meta = read(&format!(r#"{{"_meta":{{{REQUIRED}}}}}"#)).unwrap();
    assert_eq!(meta.capabilities.text(), r#"{"a":1}"#);
    assert!(meta.progress_token.is_none() && meta.traceparent.is_none() && meta.unknown.is_empty());
}

#[test]
fn optional_members_have_their_type_or_are_refused() {
    for token in [r#""""#, r#""a\n""#, "0", "-7", "9007199254740993"] {
        let meta = with(&format!(r#""progressToken":{token}"#)).unwrap();
        assert_eq!(meta.progress_token.unwrap().text(), token);
    }
    let of_length = |bytes: usize| [format!("\"{}\"", "a".repeat(bytes - 2)), "7".repeat(bytes)];
    for token in of_length(256) {
        assert!(with(&format!(r#""progressToken":{token}"#)).is_ok());
    }
    for token in of_length(257) {
        let refused = with(&format!(r#""progressToken":{token}"#));
        assert!(matches!(refused, Err(ProtocolError::InvalidParams(_))), "{token}");
    }
    for members in [
        r#""progressToken":{}"#,
        r#""progressToken":1.5"#,
        r#""progressToken":1e3"#,
        r#""progressToken":null"#,
        r#""progressToken":true"#,
        r#""io.modelcontextprotocol/logLevel":"verbose""#,
        r#""io.modelcontextprotocol/logLevel":5"#,
        r#""io.modelcontextprotocol/logLevel":"Debug""#,
        r#""ProgressToken":1"#,
        r#""io.modelcontextprotocol/clientcapabilities":{}"#,
        r#""progre\u017fsToken":1"#,
    ] {
        assert!(matches!(with(members), Err(ProtocolError::InvalidParams(_))), "{members}");
    }
    for level in Level::ALL {
        let meta = with(&format!(r#""io.modelcontextprotocol/logLevel":"{}""#, level.name())).unwrap();
        assert!(meta.unknown.is_empty());
        assert_eq!(meta.log_level, Some(level));
    }
}

#[test]
fn what_means_nothing_to_us_is_kept_as_it_is() {
    let meta = with(
        r#""com.example/k\u0061":[9007199254740993,1e400, null],"io.modelcontextprotocol/zzz":1,
           "io.modelcontextprotocol/clientInfo":{"name":"x"},"baggage":"a=b","tracestate":"a=b""#,
    )
    .unwrap();
    let unknown: Vec<_> = meta.unknown.iter().map(|(key, value)| (&**key, value.text())).collect();
    let expected =
        [("com.example/ka", "[9007199254740993,1e400, null]"), ("io.modelcontextprotocol/zzz", "1")];
    assert_eq!(unknown, expected);
}

#[test]
fn a_trace_context_is_kept_as_far_as_it_is_well_formed() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let keys = ["a".to_owned()];
    for (parent, state, baggage, kept) in [
        (PARENT, r#""a=1""#, r#""a=1,b=2""#, (true, Some("a=1"), Some("a=1"))),
        (PARENT, r#""A=1""#, r#""a""#, (true, None, None)),
        (PARENT, "5", "[]", (true, None, None)),
        (
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            r#""a=1""#,
            r#""a=1""#,
            (false, None, Some("a=1")),
        ),
    ] {
        let mut meta =
            with(&format!(r#""traceparent":"{parent}","tracestate":{state},"baggage":{baggage}"#)).unwrap();
        meta.admit_baggage(&keys);
        let (traceparent, tracestate, baggage) = kept;
        assert_eq!(meta.traceparent.as_deref(), traceparent.then_some(parent));
        assert_eq!(meta.tracestate.as_deref(), tracestate, "{state}");
        assert_eq!(meta.baggage.as_deref(), baggage, "{state}");
    }
    assert_eq!(with(r#""traceparent":5"#).unwrap().traceparent, None);
}
