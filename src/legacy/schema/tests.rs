//! What a wrapped schema takes is what the schema took, in an object.

use bytes::Bytes;
use serde_json::Value;
use serde_json::json;

use super::is_wrapped;
use super::wrap;
use crate::catalog::schema::Judged;
use crate::model::limits::Limits;
use crate::protocol::json::Json;

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
}

fn takes(schema: &Value, instance: &Value) -> bool {
    let compiled = jsonschema::options().build(schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    compiled.is_valid(instance)
}

fn value(json: &Json) -> Value {
    serde_json::from_slice(json.bytes()).unwrap()
}

#[test]
fn only_what_is_said_to_be_an_object_is_one() {
    for (schema, wrapped) in [
        (r#"{"type":"object"}"#, false),
        (r#"{"properties":{},"type":"o\u0062ject"}"#, false),
        (r#"{"type":["object"]}"#, true),
        (r#"{"type":"array"}"#, true),
        (r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}"##, true),
        ("{}", true),
    ] {
        assert_eq!(is_wrapped(&json(schema)), wrapped, "{schema}");
    }
}

/// A schema, what it takes, and what it does not.
type Row = (&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    (r#"{"type":"integer","maximum":9007199254740993}"#, "3", "\"a\""),
    // To the root, which is the schema itself.
    (r##"{"type":"array","items":{"$ref":"#"}}"##, "[[[]]]", "[[1]]"),
    (r##"{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}"##, "[1]", "[\"a\"]"),
    (r##"{"$ref":"#/definitions/a%20b","definitions":{"a b":{"type":"integer"}}}"##, "1", "\"a\""),
    // Between definitions, and into what no definition is.
    (
        r##"{"type":["array","null"],"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"const":1}}}"##,
        "[1]",
        "[2]",
    ),
    (r##"{"anyOf":[{"type":"integer"},{"type":"array","items":{"$ref":"#/anyOf/0"}}]}"##, "[1]", "[[1]]"),
    // By name.
    (
        r##"{"type":"array","items":{"$ref":"#n"},"$defs":{"n":{"$anchor":"n","type":"integer"}}}"##,
        "[1]",
        "[true]",
    ),
    (
        r##"{"type":"array","items":{"$dynamicRef":"#n"},"$defs":{"n":{"$dynamicAnchor":"n","type":"integer"}}}"##,
        "[1]",
        "[true]",
    ),
    (r##"{"$dynamicAnchor":"all","type":"array","items":{"$dynamicRef":"#all"}}"##, "[[]]", "[1]"),
    (
        r##"{"type":"array","items":{"$dynamicRef":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}"##,
        "[1]",
        "[true]",
    ),
    // A document of its own.
    (r##"{"$id":"https://a.example/s","type":"array","items":{"$ref":"#"}}"##, "[[]]", "[1]"),
    (
        r##"{"$id":"https://a.example/s","type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}"##,
        "[1]",
        "[true]",
    ),
    // Older dialects.
    (
        r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"$ref":"#/definitions/n"}],"definitions":{"n":{"type":"integer"}}}"##,
        "[1]",
        "[true]",
    ),
    (
        r##"{"$schema":"http://json-schema.org/draft-07/schema#","$id":"#top","type":"array","items":{"$ref":"#"}}"##,
        "[[]]",
        "[1]",
    ),
    (
        r##"{"$schema":"http://json-schema.org/draft-04/schema#","id":"https://a.example/s","type":"array","items":{"$ref":"#"}}"##,
        "[[]]",
        "[1]",
    ),
    (
        r##"{"$schema":"http://json-schema.org/draft-04/schema#","type":"array","items":{"type":"integer","minimum":1,"exclusiveMinimum":true}}"##,
        "[2]",
        "[1]",
    ),
    (
        r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"type":"array","items":{"$recursiveRef":"#"}}"##,
        "[[]]",
        "[1]",
    ),
    (
        r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"array","items":{"allOf":[{"maxItems":1}],"$recursiveRef":"#"}}"##,
        "[[[]]]",
        "[[[],[]]]",
    ),
    // Names and data that look like references.
    (
        r##"{"anyOf":[{"type":"object","properties":{"$ref":{"$ref":"#/$defs/n"},"enum":{"$ref":"#/$defs/n"}}}],"$defs":{"n":{"type":"integer"}}}"##,
        r##"{"$ref":1,"enum":1}"##,
        r##"{"$ref":1,"enum":"a"}"##,
    ),
    (r##"{"enum":[{"$ref":"#"},["#/a"]]}"##, r##"{"$ref":"#"}"##, r##"{"$ref":"#/properties/result"}"##),
    (r##"{"const":{"properties":{"a":{"$ref":"#/b"}}}}"##, r##"{"properties":{"a":{"$ref":"#/b"}}}"##, "1"),
];

#[test]
fn references_lead_where_they_led() {
    for (text, right, wrong) in ROWS {
        let schema = json(text);
        // A row that admission refuses says nothing.
        Judged::new(&schema, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let wrapped = wrap(&schema);
        let [plain, wrapped] = [value(&schema), value(&wrapped)];
        for (instance, expected) in [(right, true), (wrong, false)] {
            let instance: Value = serde_json::from_str(instance).unwrap();
            assert_eq!(takes(&plain, &instance), expected, "the row is wrong: {text} {instance}");
            assert_eq!(takes(&wrapped, &json!({"result": instance})), expected, "{wrapped} {instance}");
            assert!(!takes(&wrapped, &json!({})), "{wrapped}");
        }
        assert_eq!(wrapped["type"], "object");
    }
}

#[test]
fn what_is_no_reference_stays_as_it_was() {
    let text = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"a\u0062","type":"number","multipleOf":1e-400,"default":{"$ref":"#"},"x-own":[1.0,null,"#/a"]}"##;
    assert_eq!(
        wrap(&json(text)).text(),
        r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"result":{"title":"a\u0062","type":"number","multipleOf":1e-400,"default":{"$ref":"#"},"x-own":[1.0,null,"#/a"]}},"required":["result"]}"##
    );
}

#[test]
fn an_escaped_slash_begins_a_pointer_too() {
    let wrapped = wrap(&json(r##"{"$ref":"#%2Fdefinitions%2Fn","definitions":{"n":{"$ref":"#n%2F"}}}"##));
    let properties = value(&wrapped)["properties"]["result"].clone();
    assert_eq!(properties["$ref"], "#/properties/result%2Fdefinitions%2Fn");
    assert_eq!(properties["definitions"]["n"]["$ref"], "#n%2F", "an anchor");
}
