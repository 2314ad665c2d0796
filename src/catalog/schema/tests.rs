//! Schemas that are refused and taken, and arguments that are checked: bombs, loops, a canary.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use serde_json::json;

use super::Judged;
use super::Patterns;
use super::SchemaProblem;
use super::Validator;
use crate::model::clock::cpu_time;
use crate::model::limits::Limits;
use crate::protocol::json::Json;

fn text(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 10_000).unwrap()
}

fn compile(schema: &Value) -> Result<Validator, SchemaProblem> {
    Judged::new(&Json::from_value(schema), &Limits::default())?.compile(&mut Patterns::default())
}

/// The schema of one property `a`.
fn of(schema: Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}})
}

/// `$defs` of which each applies the next one twice, through `keyword`.
fn doubling(levels: usize, keyword: &str) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({keyword: [next, next]}));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
}

#[test]
fn schemas_that_are_refused() {
    let deep = (0..70).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    let chain: Value = (0..200)
        .map(|n| (format!("d{n}"), json!({"items": {"$ref": format!("#/$defs/d{}", n + 1)}})))
        .chain([("d200".to_owned(), json!({}))])
        .collect::<serde_json::Map<_, _>>()
        .into();
    for (schema, part) in [
        (json!([]), "not an object"),
        (json!({"$schema": "http://json-schema.org/draft-03/schema#"}), "not supported"),
        (json!({"$schema": "https://example.com/dialect"}), "not supported"),
        (json!({"$schema": 7}), "not supported"),
        (of(json!({"$schema": "http://json-schema.org/draft-04/schema#"})), "inside"),
        (of(json!({"$ref": "other.json"})), "outside itself"),
        (of(json!({"$ref": "//example.com/a"})), "outside itself"),
        (json!({"$id": "http://a.example/", "$ref": "x"}), "outside itself"),
        (of(json!({"$dynamicRef": "http://a.example/#b"})), "outside itself"),
        (of(json!({"$id": "http://a.example/b", "properties": {}})), "inside"),
        (of(json!({"$ref": "#/$defs/none"})), "leads nowhere"),
        (of(json!({"$ref": "#none"})), "leads nowhere"),
        (of(json!({"$ref": "#/type"})), "leads nowhere"),
        (of(json!({"$ref": 7})), "outside itself"),
        (json!({"allOf": [{"$anchor": "a"}, {"$anchor": "a"}]}), "inside"),
        (json!({"type": "object", "$ref": "#"}), "back to itself"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "back to itself",
        ),
        (json!({"allOf": [{"not": {"$ref": "#"}}]}), "back to itself"),
        (json!({"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}]}), "back to itself"),
        (
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "anyOf": [{"$recursiveRef": "#"}]}),
            "back to itself",
        ),
        (deep, "deeper than 64"),
        (json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": chain}), "deeper than 64"),
        (doubling(25, "allOf"), "more than 10000 subschemas"),
        (doubling(25, "anyOf"), "more than 10000 subschemas"),
        (doubling(25, "prefixItems"), "more than 10000 subschemas"),
        (json!({"description": "x".repeat(300 << 10)}), "larger than"),
        (of(json!({"enum": (0..100_000).collect::<Vec<_>>()})), "larger than"),
        (of(json!({"type": "strin"})), "not a valid schema"),
        (of(json!({"multipleOf": 0})), "not a valid schema"),
        (of(json!({"minLength": "1"})), "not a valid schema"),
        (of(json!({"pattern": "("})), "not a valid schema"),
        (of(json!({"pattern": "(?=a)b"})), "not a valid schema"),
        (of(json!({"pattern": "(?<!a)b"})), "not a valid schema"),
        (of(json!({"pattern": r"(a)\1"})), "not a valid schema"),
        (of(json!({"pattern": "((a{100}){100}){100}"})), "not a valid schema"),
        (of(json!({"patternProperties": {"(?=a)": {}}})), "not a valid schema"),
        (
            json!({"allOf": (0..101).map(|n| json!({"pattern": format!("a{n}")})).collect::<Vec<_>>()}),
            "more than 10000",
        ),
    ] {
        let before = cpu_time();
        let problem = compile(&schema).err().map(|problem| problem.to_string());
        let shown: String = schema.to_string().chars().take(200).collect();
        assert!(problem.as_ref().is_some_and(|problem| problem.contains(part)), "{shown}: {problem:?}");
        // Some 100 ms at most.
        assert!(cpu_time() - before < Duration::from_secs(1), "{shown}: {:?}", cpu_time() - before);
    }
}

#[test]
fn a_schema_of_a_million_levels_costs_no_stack() {
    let deep = format!("{}{}", r#"{"not":"#.repeat(9_000), "{}".to_owned() + &"}".repeat(9_000));
    assert_eq!(Judged::new(&text(&deep), &Limits::default()).err(), Some(SchemaProblem::Deep(64)));
    assert!(matches!(
        Judged::new(&text(r#"{"maximum":1e400}"#), &Limits::default()).err(),
        Some(SchemaProblem::Unreadable(_))
    ));
}

#[test]
fn schemas_that_are_taken() {
    for schema in [
        json!({"type": "object"}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "string"}}, "properties": {"b": {"$ref": "#/definitions/a"}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a.example/", "properties": {"id": {"minimum": 1, "exclusiveMinimum": true}}}),
        json!({"$id": "http://a.example/b", "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}),
        json!({"$defs": {"a b/c~%": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a%20b~1c~0%25"}}}),
        json!({"$defs": {"a": {"$anchor": "here", "type": "string"}}, "properties": {"a": {"$ref": "#here"}}}),
        json!({"properties": {"__proto__": {}, "": {}, "constructor": {}}}),
        of(json!({"minLength": 1e18, "required": (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>()})),
        of(json!({"pattern": "^(a+)+$"})),
        of(json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"})),
        of(json!({"default": {"$schema": "https://example.com/chart.json"}})),
        of(
            json!({"pattern": r"^\w{1,255}$", "format": "no-such-format", "x-unknown": {"$ref": "http://a.example/"}}),
        ),
        // A tree, and a union of expressions.
        json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}),
        doubling(5, "allOf"),
    ] {
        if let Err(problem) = compile(&schema) {
            panic!("{schema}: {problem}");
        }
    }
}

#[test]
fn nothing_is_fetched() {
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let url = format!("http://{}/schema", canary.local_addr().unwrap());
    for schema in [
        json!({"$schema": url}),
        of(json!({"$ref": url})),
        of(json!({"$dynamicRef": url})),
        json!({"$id": url, "$ref": "other"}),
        of(json!({"$id": url, "$ref": "other"})),
        json!({"type": "object", "$defs": {"unused": {"$ref": url}}}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": url}),
        of(json!({"contentSchema": {"$ref": url}})),
    ] {
        assert!(compile(&schema).is_err(), "{schema}");
    }
    // Below the root, no dialect begins without an identifier.
    assert!(compile(&of(json!({"$schema": url}))).is_ok());
    let seen = canary.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(seen, Err(ErrorKind::WouldBlock));
}

#[test]
fn arguments_are_checked_and_the_message_says_where() {
    let validator = compile(&json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
            "count": {"type": "integer", "minimum": 0},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": false},
        },
        "required": ["text"],
    }))
    .unwrap();
    for (arguments, part) in [
        (r#"{"text":"abc"}"#, None),
        (r#"{"text":"abc","count":9007199254740993,"more":1e400}"#, None),
        (r#"{"text":"abc","count":2.0}"#, None),
        (r#"{"text":"abc","count":1e400}"#, None),
        ("{}", Some("\"text\" is a required property")),
        (r#"{"text":7}"#, Some("/text: 7 is not of type \"string\"")),
        (r#"{"text":null}"#, Some("/text")),
        (r#"{"text":"abcdef"}"#, Some("/text")),
        (r#"{"text":"A"}"#, Some("/text")),
        (r#"{"text":"a","count":-1e400}"#, Some("/count")),
        (r#"{"text":"a","count":0.5}"#, Some("/count")),
        (r#"{"text":"a","at":{"y":1}}"#, Some("'y' was unexpected")),
        ("[]", Some("object")),
    ] {
        let verdict = validator.check(Some(&text(arguments)));
        match part {
            None => assert_eq!(verdict, Ok(()), "{arguments}"),
            Some(part) => assert!(
                verdict.as_ref().is_err_and(|message| message.contains(part)),
                "{arguments}: {verdict:?}"
            ),
        }
    }
    assert!(validator.check(None).is_err());
    assert_eq!(compile(&json!({"type": "object"})).unwrap().check(None), Ok(()));
    let long =
        validator.check(Some(&text(&format!(r#"{{"text":"\u202e{}"}}"#, "é".repeat(40 << 10))))).unwrap_err();
    assert!(long.len() <= 500 && long.ends_with('…') && !long.contains('\u{202e}'), "{long}");
}

#[test]
fn work_is_bounded_whatever_the_arguments() {
    // Twice the work with every level: fine for what people write, refused where it would not end.
    let union = compile(&json!({
        "type": "object",
        "properties": {"a": {"anyOf": [
            {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#/properties/a"}}, "required": ["b"]},
            {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
            {"type": "string"},
        ]}},
    }))
    .unwrap();
    let nested = |levels: usize| text(&format!("{}7{}", r#"{"a":"#.repeat(levels), "}".repeat(levels)));
    assert!(union.check(Some(&nested(8))).unwrap_err().contains("anyOf"));
    let before = cpu_time();
    assert!(union.check(Some(&nested(60))).unwrap_err().contains("too large or too deep"));
    let wide =
        compile(&of(json!({"items": {"required": (0..2_000).map(|n| n.to_string()).collect::<Vec<_>>()}})))
            .unwrap();
    let many = text(&format!(r#"{{"a":[{}0]}}"#, "0,".repeat(100_000)));
    assert!(wide.check(Some(&many)).unwrap_err().contains("too large or too deep"));
    let slow = compile(&of(json!({"pattern": "^(a+)+$"}))).unwrap();
    let long = text(&format!(r#"{{"a":"{}b"}}"#, "a".repeat(1 << 20)));
    assert!(slow.check(Some(&long)).is_err());
    assert!(cpu_time() - before < Duration::from_secs(5), "{:?}", cpu_time() - before);
    // A large argument of a plain schema is no problem.
    let plain = compile(&of(json!({"type": "array", "items": {"type": "integer"}}))).unwrap();
    assert_eq!(plain.check(Some(&many)), Ok(()));
}

/// Checks `arguments`, with the time that it took.
fn timed(validator: &Validator, arguments: &str) -> (Result<(), String>, Duration) {
    let arguments = text(arguments);
    let before = cpu_time();
    let verdict = validator.check(Some(&arguments));
    (verdict, cpu_time() - before)
}

#[test]
fn complaints_about_large_arguments_are_not_collected() {
    let nullable = compile(&of(json!({"anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "null"},
    ]})))
    .unwrap();
    let wrong = |count: usize| format!(r#"{{"a":[{}0]}}"#, "0,".repeat(count));
    let (verdict, _) = timed(&nullable, &wrong(1_000));
    assert!(verdict.unwrap_err().contains("/a: "), "a small one is told in full");
    for (count, part) in [(199_000, "are too large to say where"), (2_000_000, "more than 200000 values")] {
        let (verdict, took) = timed(&nullable, &wrong(count));
        assert!(verdict.as_ref().is_err_and(|message| message.contains(part)), "{verdict:?}");
        // Without optimisation; collected, they take tens of seconds and most of a gigabyte.
        assert!(took < Duration::from_secs(3), "{count}: {took:?}");
    }
    // Few values, many alternatives: as many complaints.
    let many: Vec<_> = (0..2_000).map(|n| json!({"required": [n.to_string()]})).collect();
    let alternatives = compile(&of(json!({"items": {"anyOf": many}}))).unwrap();
    let (verdict, _) = timed(&alternatives, &format!(r#"{{"a":[{}{{}}]}}"#, "{},".repeat(40)));
    assert!(verdict.unwrap_err().contains("are too large to say where"));
    let valid = format!(r#"{{"a":[{}"\\",null,{{"k:":1e400}}]}}"#, "\"\",".repeat(199_990));
    assert_eq!(compile(&json!({"type": "object"})).unwrap().check(Some(&text(&valid))), Ok(()));
}

#[test]
fn matching_is_bounded_whatever_pattern_and_text_are() {
    let zeros_and_ones: String = (0u64..4 << 20)
        .map(|n| if n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 1 == 0 { '0' } else { '1' })
        .collect();
    assert!(compile(&of(json!({"pattern": "1[01]{1500}[^01]"}))).is_err(), "too large itself");
    for schema in [
        of(json!({"pattern": "1[01]{350}[^01]"})),
        of(
            json!({"allOf": (0..90).map(|n| json!({"pattern": format!("1[01]{{{}}}[^01]", 20 + n)})).collect::<Vec<_>>()}),
        ),
        of(json!({"items": {"pattern": "1[01]{350}[^01]"}})),
        of(json!({"patternProperties": {"1[01]{350}[^01]": {}}})),
        of(json!({"propertyNames": {"pattern": "1[01]{350}[^01]"}})),
    ] {
        let validator = compile(&schema).unwrap();
        let mut longest = 0;
        for bytes in [1 << 10, 15 << 10, 4 << 20] {
            let part = &zeros_and_ones[..bytes];
            for arguments in [
                format!(r#"{{"a":"{part}"}}"#),
                format!(r#"{{"a":["{part}"]}}"#),
                format!(r#"{{"a":{{"{part}":0}}}}"#),
            ] {
                let (verdict, took) = timed(&validator, &arguments);
                let refused = verdict.is_err_and(|message| message.contains("too much text"));
                if !refused {
                    longest = longest.max(bytes);
                }
                // A tenth of a second with optimisation.
                assert!(took < Duration::from_secs(8), "{schema}, {bytes}: {took:?}");
            }
        }
        assert!(longest >= 1 << 10, "{schema}");
    }
    let small = text(&format!(r#"{{"a":"{}"}}"#, &zeros_and_ones[..1 << 10]));
    let often = json!({"allOf": (0..90).map(|_| json!({"pattern": "1[01]{350}[^01]"})).collect::<Vec<_>>()});
    assert!(compile(&of(often)).unwrap().is_slow(&small), "a little text, many patterns");
    let sane = compile(&of(json!({"pattern": "^[A-Za-z0-9+/]*={0,2}$"}))).unwrap();
    assert!(!sane.is_slow(&small));
    assert_eq!(sane.check(Some(&text(&format!(r#"{{"a":"{}"}}"#, "QUJD".repeat(200 << 10))))), Ok(()));
    let late = sane.check(Some(&text(&format!(r#"{{"a":"{}"}}"#, &zeros_and_ones[..(4 << 20) - 100]))));
    assert!(late.unwrap_err().contains("too much text to be matched"));
}
