//! Steps 10 to 15: each alone, and that the earlier of two faults is the one that is told.

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;

use crate::protocol::ProtocolError;
use crate::protocol::call::Call;
use crate::protocol::call::validate;
use crate::protocol::json::Json;
use crate::protocol::media::Accept;
use crate::protocol::message::Envelope;
use crate::protocol::message::Message;
use crate::protocol::methods::Method;

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
const VERSION: (&str, &[u8]) = ("mcp-protocol-version", b"2026-07-28");
const LIST: (&str, &[u8]) = ("mcp-method", b"tools/list");
const CALL: (&str, &[u8]) = ("mcp-method", b"tools/call");

fn answer(fields: &[(&'static str, &[u8])], method: &str, params: &str) -> Result<Call, ProtocolError> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    let params = params.replace("$M", META);
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let json = Json::parse(Bytes::from(text), 64).unwrap();
    let Message::Request(request) = Message::of(Envelope::read(&json, 256))? else {
        panic!("{json:?} is a request")
    };
    validate(request, &headers, Accept { json: true, sse: true })
}

/// The header and problem of a refusal, or the step that refused.
fn refusal(answer: Result<Call, ProtocolError>) -> String {
    match answer.map(|call| call.method.name()) {
        Ok(method) => method.to_owned(),
        Err(ProtocolError::HeaderMismatch { header, problem }) => format!("{header} {problem:?}"),
        Err(ProtocolError::UnsupportedVersion { requested }) => format!("11 {requested}"),
        Err(ProtocolError::InvalidParams(_)) => "14".to_owned(),
        Err(ProtocolError::MethodNotFound) => "15".to_owned(),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_good_call_is_taken_apart() {
    let fields = [
        VERSION,
        CALL,
        ("mcp-name", &b"=?base64?ZWNobw==?="[..]),
        ("mcp-param-region", b"eu"),
        ("mcp-param-region", b"us"),
    ];
    let call =
        answer(&fields, "tools/call", r#"{"name":"\u0065cho","arguments":{"n":1e400},"_meta":$M}"#).unwrap();
    assert_eq!(call.id.as_json().text(), "1");
    assert_eq!(call.method, Method::ToolsCall);
    assert_eq!(call.name.as_deref(), Some("echo"));
    assert_eq!(call.params.member("arguments").unwrap().text(), r#"{"n":1e400}"#);
    assert_eq!(call.mirrored.unwrap().len(), 2);
}

#[test]
fn the_version_comes_once_agrees_and_is_served() {
    let version = "mcp-protocol-version";
    let meta = |value: &str| {
        format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{value},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
        )
    };
    for (fields, params, expected) in [
        (&[LIST][..], r#"{"_meta":$M}"#, "MCP-Protocol-Version Missing"),
        (&[VERSION, VERSION, LIST], r#"{"_meta":$M}"#, "MCP-Protocol-Version Repeated"),
        (&[(version, b"2025-11-25"), LIST], r#"{"_meta":$M}"#, "MCP-Protocol-Version Different"),
        (&[(version, b"2026-07-28, 2025-11-25"), LIST], r#"{"_meta":$M}"#, "MCP-Protocol-Version Different"),
        (
            &[(version, b"=?base64?MjAyNi0wNy0yOA==?="), LIST],
            r#"{"_meta":$M}"#,
            "MCP-Protocol-Version Different",
        ),
        (&[(version, b"2026-07-28\xe9"), LIST], r#"{"_meta":$M}"#, "MCP-Protocol-Version Undecodable"),
        (&[VERSION, LIST], &meta("\"v999\""), "MCP-Protocol-Version Different"),
        (&[(version, b" 2026-07-28\t"), LIST], r#"{"_meta":$M}"#, "tools/list"),
        (&[(version, b"1900-01-01"), LIST], &meta("\"1900-01-01\""), "11 1900-01-01"),
        (&[(version, b"2025-11-25"), LIST], "{}", "11 2025-11-25"),
        (&[(version, b""), LIST], "{}", "11 "),
        (&[VERSION, LIST], &meta("20260728"), "14"),
    ] {
        assert_eq!(refusal(answer(fields, "tools/list", params)), expected, "{fields:?} {params}");
    }
}

#[test]
fn the_method_and_the_name_are_mirrored_exactly() {
    let method = "mcp-method";
    for (value, expected) in [
        (&b"prompts/list"[..], "Mcp-Method Different"),
        (b"TOOLS/LIST", "Mcp-Method Different"),
        (b"=?base64?dG9vbHMvbGlzdA==?=", "Mcp-Method Different"),
        (b"tools/list\xe9", "Mcp-Method Undecodable"),
    ] {
        let found = answer(&[VERSION, (method, value)], "tools/list", r#"{"_meta":$M}"#);
        assert_eq!(refusal(found), expected, "{value:?}");
    }
    assert_eq!(refusal(answer(&[VERSION], "tools/list", r#"{"_meta":$M}"#)), "Mcp-Method Missing");
    let twice = answer(&[VERSION, LIST, LIST], "tools/list", r#"{"_meta":$M}"#);
    assert_eq!(refusal(twice), "Mcp-Method Repeated");

    let echo = r#"{"name":"echo","_meta":$M}"#;
    for (names, params, expected) in [
        (&[][..], echo, "Mcp-Name Missing"),
        (&[&b"echo"[..]], echo, "tools/call"),
        (&[b"echo", b"echo"], echo, "Mcp-Name Repeated"),
        (&[b"Echo"], echo, "Mcp-Name Different"),
        (&[b""], echo, "Mcp-Name Different"),
        (&[b"=?BASE64?ZWNobw==?="], echo, "Mcp-Name Different"),
        (&[b"=?base64?ZWNobw?="], echo, "Mcp-Name Undecodable"),
        (&[b"\xe6\x97\xa5"], r#"{"name":"日","_meta":$M}"#, "Mcp-Name Undecodable"),
        (&[b"echo"], r#"{"_meta":$M}"#, "Mcp-Name Unbacked"),
        (&[b"5"], r#"{"name":5,"_meta":$M}"#, "Mcp-Name Unbacked"),
        (&[], r#"{"_meta":$M}"#, "tools/call"),
        (&[], r#"{"name":5,"_meta":$M}"#, "tools/call"),
        (&[b""], r#"{"name":"","_meta":$M}"#, "tools/call"),
        (&[b"=?base64??="], r#"{"name":"","_meta":$M}"#, "tools/call"),
    ] {
        let mut fields = vec![VERSION, CALL];
        fields.extend(names.iter().map(|name| ("mcp-name", *name)));
        assert_eq!(refusal(answer(&fields, "tools/call", params)), expected, "{names:?} {params}");
    }
    // A method without a name ignores the header; one that is not served is mirrored all the same.
    let ignored =
        answer(&[VERSION, LIST, ("mcp-name", b"a"), ("mcp-name", b"b")], "tools/list", r#"{"_meta":$M}"#);
    assert_eq!(refusal(ignored), "tools/list");
    let fields = [VERSION, ("mcp-method", &b"resources/read"[..]), ("mcp-name", b"demo://note/1")];
    let unserved = answer(&fields, "resources/read", r#"{"uri":"demo://note/%31","_meta":$M}"#);
    assert_eq!(refusal(unserved), "Mcp-Name Different");
}

#[test]
fn the_earlier_of_two_faults_is_told() {
    let old = ("mcp-protocol-version", &b"1900-01-01"[..]);
    for (fields, method, params, expected) in [
        // 10 before 11, 12, 14
        (&[old, LIST][..], "tools/list", r#"{"_meta":$M}"#, "MCP-Protocol-Version Different"),
        (&[CALL], "tools/list", "[]", "MCP-Protocol-Version Missing"),
        // 11 before 12, 14, 15
        (&[old], "tools/list", "{}", "11 1900-01-01"),
        (&[old, ("mcp-method", b"x/y")], "x/y", "[1]", "11 1900-01-01"),
        // 12 before 13, 14, 15
        (&[VERSION, LIST], "tools/call", r#"{"name":"a","_meta":$M}"#, "Mcp-Method Different"),
        (&[VERSION], "x/y", "null", "Mcp-Method Missing"),
        // 13 before 14, 15
        (&[VERSION, CALL], "tools/call", r#"{"name":"a"}"#, "Mcp-Name Missing"),
        (&[VERSION, CALL, ("mcp-name", b"a")], "tools/call", "[1]", "Mcp-Name Unbacked"),
        (&[VERSION, ("mcp-method", b"prompts/get")], "prompts/get", r#"{"name":"a"}"#, "Mcp-Name Missing"),
        // 14 before 15
        (&[VERSION, ("mcp-method", b"x/y")], "x/y", "{}", "14"),
        (&[VERSION, ("mcp-method", b"x/y")], "x/y", r#"{"_meta":$M}"#, "15"),
        (&[VERSION, ("mcp-method", b"")], "", r#"{"_meta":$M}"#, "15"),
        (&[VERSION, ("mcp-method", b"initialize")], "initialize", r#"{"_meta":$M}"#, "15"),
    ] {
        assert_eq!(refusal(answer(fields, method, params)), expected, "{fields:?} {method} {params}");
    }
}
