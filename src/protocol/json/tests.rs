//! The scanner against tables and against `serde_json`; composing and walking against each other.

use std::collections::HashSet;

use bytes::Bytes;
use proptest::prelude::*;

use crate::protocol::json::Json;
use crate::protocol::json::JsonError;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;

fn parse(text: &str) -> Result<Json, JsonError> {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64)
}

#[test]
fn what_the_grammar_allows_is_kept_as_text() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "0.0",
        "-1.5e+10",
        "1E5",
        "1e400",
        "9007199254740993",
        r#""""#,
        r#""a\"b\\c\/\b\f\n\r\t""#,
        r#""\u0000\uD83D\uDE00""#,
        "\"\u{7f}é日😀\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1,[2,{\"a\":[]}],\"]\"]",
        "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
        "{\"\":1,\" \":2}",
        "[ 1 , 2 ]",
        "{\"a\"\n:\t1\r}",
    ] {
        assert_eq!(parse(text).as_ref().map(Json::text), Ok(text), "{text}");
    }
    assert_eq!(parse(" \t\r\n[1] \n").unwrap().text(), "[1]");
    let digits = "9".repeat(10_000);
    assert_eq!(parse(&digits).unwrap().text(), digits);
}

#[test]
fn what_the_grammar_refuses_is_refused_where_it_goes_wrong() {
    for (text, at) in [
        ("", 0),
        (" ", 1),
        ("nul", 0),
        ("nulll", 4),
        ("True", 0),
        ("NaN", 0),
        ("Infinity", 0),
        ("-", 1),
        ("-Infinity", 1),
        ("+1", 0),
        ("01", 1),
        ("-01", 2),
        ("1.", 2),
        (".5", 0),
        ("1.e5", 2),
        ("1e", 2),
        ("1e+", 3),
        ("0x10", 1),
        ("1 2", 2),
        ("\"", 1),
        ("\"a", 2),
        ("\"\n\"", 1),
        ("\"\u{1f}\"", 1),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 2),
        ("\"\\u123", 2),
        ("'a'", 0),
        ("[", 1),
        ("[1", 2),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1}", 2),
        ("]", 0),
        ("{", 1),
        ("{\"a\"}", 4),
        ("{\"a\":}", 5),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("{1:1}", 1),
        ("{\"a\":1]", 6),
        ("{\"a\" 1}", 5),
        ("{,}", 1),
        ("{} {}", 3),
        ("[]x", 2),
        ("/*x*/1", 0),
        ("1//x", 1),
        ("\u{feff}1", 0),
        ("\u{a0}1", 0),
        ("\"aaaaaaaaaaaaaaaa\u{0}\"", 17),
        ("[1]\u{0}", 3),
    ] {
        assert_eq!(parse(text), Err(JsonError::Grammar(at)), "{text:?}");
    }
}

#[test]
fn what_is_not_utf8_is_refused() {
    for (text, at) in [
        (&b"\"\xff\""[..], 1),
        (b"\"a\xc0\xaf\"", 2),
        (b"\"\xed\xa0\x80\"", 1),
        (b"\xff\xfe{\0}\0", 0),
        (b"\"\xe6\x97", 1),
    ] {
        assert_eq!(Json::parse(Bytes::from_static(text), 64), Err(JsonError::Encoding(at)), "{text:?}");
    }
}

#[test]
fn half_a_surrogate_pair_is_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\n""#,
        r#""\ud800\ud800""#,
        r#""\ud800A""#,
        r#""\udc00\ud800""#,
        r#""\ud83d\ude00\ude00""#,
        r#"{"\ud800":1}"#,
    ] {
        assert!(matches!(parse(text), Err(JsonError::Surrogate(_))), "{text}");
    }
}

#[test]
fn depth_counts_arrays_and_objects() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels = 64 / (open.matches(['[', '{']).count());
        let nested = |count: usize| format!("{}1{}", open.repeat(count), close.repeat(count));
        assert!(parse(&nested(levels)).is_ok(), "{open}");
        assert!(matches!(parse(&nested(levels + 1)), Err(JsonError::Depth(_))), "{open}");
    }
    assert_eq!(parse(&"[".repeat(1_000_000)), Err(JsonError::Depth(64)));
    assert_eq!(Json::parse(Bytes::from_static(b"[]"), 0), Err(JsonError::Depth(0)));
    assert!(Json::parse(Bytes::from_static(b"1"), 0).is_ok());
}

#[test]
fn a_key_stands_once_in_its_object_however_it_is_spelt() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"":1,"":2}"#,
        r#"{"name":1,"n\u0061me":2}"#,
        r#"{"n\u0061me":1,"name":2}"#,
        r#"{"\u006e\u0061":1,"b":2,"\u006E\u0061":3}"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"/":1,"\/":2}"#,
        r#"{"a":{"a":{"b":1}},"b":1,"a":1}"#,
        r#"[[{"x":{"a":1,"b":[{}],"a":2}}]]"#,
    ] {
        assert_eq!(parse(text), Err(JsonError::DuplicateKey), "{text}");
    }
    for text in [
        r#"{"a":{"b":1},"b":1}"#,
        r#"{"a":1,"A":1}"#,
        r#"{"é":1,"e\u0301":2}"#,
        r#"{"a":{"a":1},"b":{"a":[{"a":1},{"a":1}]}}"#,
    ] {
        assert!(parse(text).is_ok(), "{text}");
    }
    // A text with another fault is refused for that.
    assert_eq!(parse(r#"{"a":1,"a":1"#), Err(JsonError::Grammar(12)));
    assert_eq!(parse(r#"[{"a":1,"a":1},]"#), Err(JsonError::Grammar(15)));
}

#[test]
fn a_key_stands_once_among_many() {
    let object = |count: usize, last: &str| {
        let members: String = (0..count).map(|at| format!("\"key{at}\":{{\"key0\":{at}}},")).collect();
        format!("{{{members}\"{last}\":0}}")
    };
    for count in [14, 15, 16, 17, 18, 100] {
        assert!(parse(&object(count, "other")).is_ok(), "{count}");
        for repeated in [0, count / 2, count - 1] {
            let plain = object(count, &format!("key{repeated}"));
            assert_eq!(parse(&plain), Err(JsonError::DuplicateKey), "{count} {repeated}");
            let escaped = object(count, &format!("\\u006bey{repeated}"));
            assert_eq!(parse(&escaped), Err(JsonError::DuplicateKey), "{count} {repeated}");
        }
    }
    // Quadratic work here would take minutes.
    assert!(parse(&object(200_000, "other")).is_ok());
    assert!(parse(&format!("[{}0]", "0,".repeat(1_000_000))).is_ok());
}

#[test]
fn members_are_slices_of_the_text() {
    let json = parse(
        r#" { "a\u0062" : [1, {"x":"]}"}] , "b":"\\\"}" ,"c":{ "d":[[]] },"n":-1.5e400,"t":true,"z":null } "#,
    )
    .unwrap();
    let members: Vec<_> = json.members().map(|(key, value)| format!("{key}={}", value.text())).collect();
    let expected =
        [r#"ab=[1, {"x":"]}"}]"#, r#"b="\\\"}""#, r#"c={ "d":[[]] }"#, "n=-1.5e400", "t=true", "z=null"];
    assert_eq!(members, expected);
    assert_eq!(json.member("ab").unwrap().elements().nth(1).unwrap().text(), r#"{"x":"]}"}"#);
    assert_eq!(json.member("b").unwrap().string().unwrap(), "\\\"}");
    assert_eq!(json.member("d"), None);
    let inside = json.member("c").unwrap();
    let (outer, inner) = (json.bytes().as_ptr_range(), inside.bytes().as_ptr_range());
    assert!(outer.start < inner.start && inner.end < outer.end);
    for text in ["{}", "[]", "[1]", "\"{}\"", "1", "null"] {
        assert_eq!(parse(text).unwrap().members().count(), 0, "{text}");
        assert_eq!(parse(text).unwrap().elements().count(), usize::from(text == "[1]"), "{text}");
    }
}

#[test]
fn a_string_ends_where_it_ends_at_any_offset() {
    for before in 0..80 {
        for filler in ["x", "é", "\u{7f}"] {
            let filler = filler.repeat(before);
            for escape in [r#"\\"#, r#"\""#, r#"\\\""#, "", r"\u0022"] {
                let json =
                    parse(&format!(r#"{{"a":["{filler}{escape}]"],"{filler}{escape}":2,"c":3}}"#)).unwrap();
                let values: Vec<_> = json.members().map(|(_, value)| value.text().to_owned()).collect();
                assert_eq!(values[1..], ["2", "3"], "{}", json.text());
            }
            for control in ['\0', '\u{1f}', '\n'] {
                let text = format!("\"{filler}{control}{filler}\"");
                assert_eq!(parse(&text), Err(JsonError::Grammar(filler.len() + 1)));
            }
        }
    }
}

#[test]
fn scalars_are_read_exactly() {
    for (text, integer) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("-7", Some(-7)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("1.0", None),
        ("1e3", None),
        ("\"1\"", None),
        ("true", None),
    ] {
        assert_eq!(parse(text).unwrap().integer(), integer, "{text}");
    }
    assert!(parse(&"1".repeat(300)).unwrap().is_integer());
    assert_eq!(parse("true").unwrap().boolean(), Some(true));
    assert_eq!(parse("\"true\"").unwrap().boolean(), None);
    assert_eq!(parse(r#""\u0041\ud83d\ude00\n\/é""#).unwrap().string().unwrap(), "A😀\n/é");
    let kinds = [
        ("{}", Kind::Object),
        ("[]", Kind::Array),
        ("\"\"", Kind::String),
        ("-1", Kind::Number),
        ("false", Kind::Boolean),
        ("null", Kind::Null),
    ];
    for (text, kind) in kinds {
        assert_eq!(parse(text).unwrap().kind(), kind, "{text}");
    }
}

#[test]
fn composed_text_holds_its_parts_as_they_were() {
    let big = parse("[9007199254740993, 1e400]").unwrap();
    let list = Array::new().push(&big).push_str("a\"\u{1}").finish();
    let object = Object::new()
        .put("list", &list)
        .put_str("k\n", "é\\")
        .put_u64("u", u64::MAX)
        .put_i64("i", -32_602)
        .put_bool("b", false)
        .put_some("none", None)
        .put("null", &Json::null())
        .finish();
    assert_eq!(
        object.text(),
        "{\"list\":[[9007199254740993, 1e400],\"a\\\"\\u0001\"],\"k\\n\":\"é\\\\\",\"u\":18446744073709551615,\
         \"i\":-32602,\"b\":false,\"null\":null}",
    );
    assert_eq!(Object::new().finish().text(), "{}");
    assert_eq!(Array::new().finish().text(), "[]");
}

/// Texts that are JSON, almost JSON, or JSON that only `serde_json` refuses or only we do.
fn texts() -> impl Strategy<Value = String> {
    use prop::sample::select;
    // A fault here and there: of a text with twenty parts, most stay JSON.
    let mostly = |good: &[&'static str], bad: &[&'static str]| prop_oneof![60 => select(good.to_vec()), 1 => select(bad.to_vec())];
    let scalar = mostly(
        &[
            "null",
            "true",
            "0",
            "-1.5e3",
            r#""""#,
            r#""a\n\u0041""#,
            r#""\ud83d\ude00é""#,
            "12345678901234567890123",
        ],
        &["01", "1.", "1e400", r#""\ud800""#, r#""\udc00""#, "\"\t\"", r#""\x""#, "nul"],
    )
    .prop_map(str::to_owned);
    let key = mostly(
        &[r#""a""#, r#""b""#, r#""d""#, r#""e""#, r#""c\\""#, r#""é""#, r#""\n""#, r#""""#, r#""ff""#],
        &[r#""\u0061""#, "a", r#""\ud800""#],
    );
    let blank = mostly(&["", "", "", " ", "\n\t\r"], &["\u{b}", "//"]);
    let comma = mostly(&[","], &["", ",,"]);
    scalar.prop_recursive(5, 60, 6, move |inner| {
        let array = (prop::collection::vec((blank.clone(), inner.clone()), 0..6), comma.clone()).prop_map(
            |(items, comma)| {
                let items: Vec<_> =
                    items.into_iter().map(|(blank, item)| format!("{blank}{item}{blank}")).collect();
                format!("[{}]", items.join(comma))
            },
        );
        let member = (key.clone(), blank.clone(), inner);
        let object = (prop::collection::vec(member, 0..5), comma.clone()).prop_map(|(members, comma)| {
            let members: Vec<_> = members
                .into_iter()
                .map(|(key, blank, value)| format!("{key}{blank}:{blank}{value}"))
                .collect();
            format!("{{{}}}", members.join(comma))
        });
        prop_oneof![array, object]
    })
}

/// Whether some object of this text, which `serde_json` takes, has a key twice.
fn has_twins(text: &str) -> bool {
    struct Keys(bool);
    impl<'de> serde::Deserialize<'de> for Keys {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(KeysVisitor)
        }
    }
    struct KeysVisitor;
    impl<'de> serde::de::Visitor<'de> for KeysVisitor {
        type Value = Keys;
        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("JSON")
        }
        fn visit_unit<E>(self) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_bool<E>(self, _: bool) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_i64<E>(self, _: i64) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_u64<E>(self, _: u64) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_f64<E>(self, _: f64) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_str<E>(self, _: &str) -> Result<Keys, E> {
            Ok(Keys(false))
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Keys, A::Error> {
            let mut twins = false;
            while let Some(Keys(inner)) = items.next_element()? {
                twins |= inner;
            }
            Ok(Keys(twins))
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut members: A) -> Result<Keys, A::Error> {
            let (mut seen, mut twins) = (HashSet::new(), false);
            while let Some((key, Keys(inner))) = members.next_entry::<String, Keys>()? {
                twins |= inner || !seen.insert(key);
            }
            Ok(Keys(twins))
        }
    }
    serde_json::from_str::<Keys>(text).is_ok_and(|keys| keys.0)
}

/// A copy that is made by walking and composing.
fn rebuilt(json: &Json) -> Json {
    match json.kind() {
        Kind::Object => {
            json.members().fold(Object::new(), |out, (key, value)| out.put(&key, &rebuilt(&value))).finish()
        }
        Kind::Array => json.elements().fold(Array::new(), |out, value| out.push(&rebuilt(&value))).finish(),
        Kind::String => Json::from_str_value(&json.string().unwrap()),
        _ => json.clone(),
    }
}

fn value(text: &str) -> Option<serde_json::Value> {
    serde_json::from_str(text).ok()
}

/// The verdict and the content agree with those of `serde_json`, but for the rules that are ours alone.
fn agree(text: &str) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_str::<serde_json::Value>(text);
    match (parse(text), &theirs) {
        (Ok(json), Ok(theirs)) => {
            prop_assert_eq!(&value(json.text()).unwrap(), theirs);
            prop_assert_eq!(&value(rebuilt(&json).text()).unwrap(), theirs);
            prop_assert!(!has_twins(text));
        }
        (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("number out of range"), "{}", error),
        (Err(JsonError::DuplicateKey), Ok(_)) => prop_assert!(has_twins(text)),
        (Err(JsonError::DuplicateKey), Err(error)) => {
            prop_assert!(error.to_string().contains("number out of range"), "{}", error);
        }
        (Err(error), Ok(_)) => prop_assert!(false, "only we refuse: {}", error),
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scanner_agrees_with_serde_json(text in texts()) {
        agree(&text)?;
    }

    #[test]
    fn the_scanner_agrees_on_soup(text in r#"[\[\]{}:,"\\u0-9a-fdDcC.eE+\- \ntruefalsn\x00-\x1f]{0,24}"#) {
        agree(&text)?;
        agree(&format!("\"{text}\""))?;
        agree(&format!("[{text}]"))?;
        agree(&format!("{{\"a\":{text}}}"))?;
    }

    #[test]
    fn any_string_survives(text in any::<String>()) {
        let json = Json::from_str_value(&text);
        prop_assert_eq!(&parse(json.text()).unwrap(), &json);
        prop_assert_eq!(json.string().unwrap(), text.clone());
        let object = Object::new().put_u64(&text, 1).finish();
        prop_assert_eq!(object.member(&text).unwrap().integer(), Some(1));
        let theirs = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(parse(&theirs).unwrap().string().unwrap(), text);
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Json::parse(bytes.into(), 4);
    }
}

#[test]
fn values_are_counted_without_their_keys() {
    for (text, expected) in [
        ("7", 1),
        (r#""a:b,[""#, 1),
        ("[]", 1),
        ("{ }", 1),
        ("[1, [2,\t\"]\"],{}\n]", 6),
        (r#"{"a":1,"b" : {"\":\\" :[null , -1.5e3, true]}, "c":""}"#, 8),
    ] {
        assert_eq!(parse(text).unwrap().values(), expected, "{text}");
    }
}
