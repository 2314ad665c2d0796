//! Results before and after.

use std::convert::Infallible;

use bytes::Bytes;

use super::Form;
use super::Shape;
use crate::exchange::Reply;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::version::Handshake;

const CALL: Form = Form::Call { wrapped: false };
const WRAPPED: Form = Form::Call { wrapped: true };

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
}

fn outcome(revision: Handshake, result: Form, outcome: Outcome) -> Outcome {
    match (Shape { revision, result }).reply(Reply::<Infallible>::Once(outcome)) {
        Ok(Reply::Once(outcome)) => outcome,
        _ => panic!("an answer stays an answer"),
    }
}

fn shaped(revision: Handshake, form: Form, text: &str) -> String {
    match outcome(revision, form, Outcome::Result(json(text))) {
        Outcome::Result(result) => result.text().to_owned(),
        other => panic!("{other:?}"),
    }
}

// spec: row Y-03
#[test]
fn what_came_later_is_left_out_and_everything_else_stays_byte_for_byte() {
    let result = r#"{ "resultType":"complete", "n" : 1e400,"ttlMs":1,"a":null,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{},"x/y":[1.0 ,2],"dev.fondaco/upstreamServerInfo":{},"io.modelcontextprotocol.other/z":1} }"#;
    let expected = r#"{"n":1e400,"a":null,"_meta":{"x/y":[1.0 ,2],"io.modelcontextprotocol.other/z":1}}"#;
    for revision in Handshake::ALL {
        assert_eq!(shaped(revision, Form::Plain, result), expected);
    }
    let emptied = r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{}},"tools":[]}"#;
    assert_eq!(shaped(Handshake::June, Form::Tools, emptied), r#"{"tools":[]}"#);
}

// spec: row Y-04
#[test]
fn output_schemas_are_of_objects_or_left_out() {
    let list = r#"{"tools":[{"name":"a","outputSchema":{"type":"object"},"n":1.0},{"name":"b","outputSchema":{"type":"array"},"n":1.0},{"name":"c"}]}"#;
    let wrapped = list.replace(
        r#"{"type":"array"}"#,
        r#"{"type":"object","properties":{"result":{"type":"array"}},"required":["result"]}"#,
    );
    for revision in [Handshake::November, Handshake::June] {
        assert_eq!(shaped(revision, Form::Tools, list), wrapped);
    }
    let without = r#"{"tools":[{"name":"a","n":1.0},{"name":"b","n":1.0},{"name":"c"}]}"#;
    assert_eq!(shaped(Handshake::March, Form::Tools, list), without);
}

// spec: row Y-04
#[test]
fn structured_content_is_an_object_or_left_out() {
    let content = r#""content":[{"type":"text","text":"t"}]"#;
    for (form, value, expected) in [
        (CALL, r#"{"a":1e400}"#, r#"{"a":1e400}"#),
        (CALL, "[1.0]", r#"{"result":[1.0]}"#),
        (CALL, "null", r#"{"result":null}"#),
        (WRAPPED, "7", r#"{"result":7}"#),
        (WRAPPED, r#"{"a":1}"#, r#"{"result":{"a":1}}"#),
    ] {
        let result = format!(r#"{{{content},"structuredContent":{value},"isError":false}}"#);
        let expected = format!(r#"{{{content},"structuredContent":{expected},"isError":false}}"#);
        for revision in [Handshake::November, Handshake::June] {
            assert_eq!(shaped(revision, form, &result), expected);
        }
        let without = format!(r#"{{{content},"isError":false}}"#);
        assert_eq!(shaped(Handshake::March, form, &result), without);
    }
    for form in [CALL, WRAPPED] {
        let plain = format!("{{{content}}}");
        assert_eq!(shaped(Handshake::June, form, &plain), plain, "there is nothing to wrap");
    }
}

#[test]
fn a_result_that_would_say_nothing_says_its_structured_content_as_text() {
    let said = r#"{"isError":true,"content":[{"type":"text","text":"{\"a\": [1.0]}"}]}"#;
    for result in [
        r#"{"content":[],"structuredContent":{"a": [1.0]},"isError":true}"#,
        r#"{"structuredContent":{"a": [1.0]},"isError":true}"#,
    ] {
        assert_eq!(shaped(Handshake::March, CALL, result), said);
    }
    assert_eq!(shaped(Handshake::March, CALL, r#"{"content":[]}"#), r#"{"content":[]}"#);
}

// spec: row Y-13
#[test]
fn a_capability_that_cannot_be_asked_for_is_said_to_the_model() {
    let error =
        |code| Outcome::Error(RpcError { code, message: "needs \"x\"".into(), data: Some(json("[1]")) });
    let code_of = |form, code| match outcome(Handshake::June, form, error(code)) {
        Outcome::Error(error) => Some((error.code, error.data.unwrap().text().to_owned())),
        Outcome::Result(result) => {
            assert_eq!(result.text(), r#"{"content":[{"type":"text","text":"needs \"x\""}],"isError":true}"#);
            None
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(code_of(CALL, code::MISSING_CAPABILITY), None);
    assert_eq!(code_of(Form::Plain, code::MISSING_CAPABILITY), Some((code::INTERNAL_ERROR, "[1]".into())));
    assert_eq!(code_of(CALL, -7), Some((-7, "[1]".into())));
}
