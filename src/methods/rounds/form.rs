//! The schemas of forms: flat, and the same for whoever reads them.

use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::message::misspells;

/// How deep a form's schema may be nested: two levels more than its choices are.
const FORM_DEPTH: usize = 6;

/// What is read of a form's schema.
const KEYWORDS: &[&str] = &[
    "properties",
    "type",
    "format",
    "title",
    "description",
    "items",
    "enum",
    "const",
    "oneOf",
    "anyOf",
    "allOf",
];

/// Whether clients may read a form's schema in different ways: it is nested deeper than forms are, spells a
/// keyword that is judged here in another case, which some readers take for the same, or says something
/// elsewhere.
///
/// spec: client/elicitation, Requested Schema (flat objects with primitive properties only)
pub(super) fn is_ambiguous(schema: &Json) -> bool {
    is_odd(schema, FORM_DEPTH)
}

fn is_odd(schema: &Json, levels: usize) -> bool {
    let within = |value: &Json| levels == 0 || is_odd(value, levels - 1);
    schema.elements().any(|element| is_nested(&element) && within(&element))
        || schema.members().any(|(key, value)| {
            let is_named = |(_, field): (_, Json)| is_nested(&field) && within(&field);
            match &*key {
                "$ref" | "$dynamicRef" | "$recursiveRef" => true,
                // Its keys are names, not keywords.
                "properties" => value.members().any(is_named),
                key => misspells(key, KEYWORDS) || is_nested(&value) && within(&value),
            }
        })
}

fn is_nested(value: &Json) -> bool {
    matches!(value.kind(), Kind::Object | Kind::Array)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::is_ambiguous;
    use crate::methods::rounds::secret::is_asked;
    use crate::model::clock::cpu_time;
    use crate::protocol::json::Json;

    fn odd(field: &str) -> bool {
        let schema =
            format!(r#"{{"type":"object","properties":{{"Title":{{"type":"string"}},"a":{field}}}}}"#);
        is_ambiguous(&Json::parse(Bytes::copy_from_slice(schema.as_bytes()), 64).expect(&schema))
    }

    #[test]
    fn what_is_nested_is_not_walked_at_each_level() {
        let mass = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
        let before = cpu_time();
        for levels in [5, 55] {
            let nested = format!("{}{mass}{}", r#"{"items":"#.repeat(levels), "}".repeat(levels));
            let schema = format!(r#"{{"properties":{{"a":{nested}}}}}"#);
            let schema = Json::parse(Bytes::from(schema), 64).unwrap();
            assert_eq!(is_ambiguous(&schema), levels > 5);
            assert!(is_ambiguous(&schema) || !is_asked("m", &schema));
        }
        // Without optimisation.
        assert!(cpu_time() - before < Duration::from_secs(8), "{:?}", cpu_time() - before);
    }

    // spec: row MR-07
    #[test]
    fn forms_are_flat_and_spelt_as_they_are_read() {
        for field in [
            r#"{"type":"string","enumNames":["a"],"x-own":{"deep":[{}]}}"#,
            r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}"#,
        ] {
            assert!(!odd(field), "{field}");
        }
        let deep = |levels: usize| format!("{}{{}}{}", r#"{"items":"#.repeat(levels), "}".repeat(levels));
        assert!(!odd(&deep(5)) && odd(&deep(6)) && odd(&deep(50)));
        for field in [
            r##"{"$ref":"#/$defs/a"}"##,
            r#"{"type":"string","Title":"Password"}"#,
            r#"{"type":"string","FORMAT":"password"}"#,
            r#"{"anyOf":[{"con\u017ft":1}]}"#,
            r#"{"Propertie\u017f":{}}"#,
        ] {
            assert!(odd(field), "{field}");
        }
    }
}
