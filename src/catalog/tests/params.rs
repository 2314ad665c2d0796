//! `x-mcp-header` in schemas, and `Mcp-Param-*` against arguments.

use http::HeaderName;
use http::HeaderValue;
use serde_json::json;

use crate::catalog::header_params::HeaderParam;
use crate::catalog::header_params::ParamKind;
use crate::catalog::header_params::extract;
use crate::catalog::mirror::check_mirrored;
use crate::catalog::mirror::mint;
use crate::model::clock::cpu_time;
use crate::protocol::headers::Mismatch;

fn names(schema: serde_json::Value) -> Result<Vec<String>, String> {
    let params = extract(&schema).map_err(|problem| problem.to_string())?;
    Ok(params
        .iter()
        .map(|param| format!("{} {:?} {}", param.header, param.kind, param.path.join("/")))
        .collect())
}

#[test]
fn annotations_are_found_through_properties_alone() {
    let found = names(json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "shard": {"type": ["integer", "null"], "x-mcp-header": "Shard-1"},
        "where": {"type": "object", "properties": {"dry": {"type": "boolean", "x-mcp-header": "Dry"}}},
        // Names and data that only look like annotations.
        "x-mcp-header": {"type": "string", "default": {"x-mcp-header": ""}, "enum": ["a"]},
    }, "$defs": {"x-mcp-header": {"type": "string"}}}));
    let expected = [
        "Mcp-Param-Region String region",
        "Mcp-Param-Shard-1 Integer shard",
        "Mcp-Param-Dry Boolean where/dry",
    ];
    let mut found = found.unwrap();
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn wrong_annotations_are_refused() {
    let on = |name: serde_json::Value| json!({"properties": {"a": {"type": "string", "x-mcp-header": name}}});
    let of = |schema: serde_json::Value| json!({"properties": {"a": schema}});
    let a = || json!({"type": "string", "x-mcp-header": "A"});
    for (schema, part) in [
        (on(json!("")), "token"),
        (on(json!("My Region")), "token"),
        (on(json!("Région")), "token"),
        (on(json!("a\tb")), "token"),
        (on(json!("a\r\nX: 1")), "token"),
        (on(json!("a:b")), "token"),
        (on(json!("a".repeat(129))), "token"),
        (on(json!(7)), "not a string"),
        (on(json!(null)), "not a string"),
        (on(json!("Authorization")), "must not be mirrored"),
        (on(json!("cookie")), "must not be mirrored"),
        (on(json!("HOST")), "must not be mirrored"),
        (on(json!("api_key")), "must not be mirrored"),
        (on(json!("X-Api-Key")), "must not be mirrored"),
        (
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "Region"}, "b": {"type": "string", "x-mcp-header": "REGION"}}}),
            "twice",
        ),
        (of(json!({"type": "number", "x-mcp-header": "A"})), "not on a string"),
        (of(json!({"type": "array", "x-mcp-header": "A"})), "not on a string"),
        (of(json!({"type": "object", "x-mcp-header": "A"})), "not on a string"),
        (of(json!({"type": ["string", "integer"], "x-mcp-header": "A"})), "not on a string"),
        (of(json!({"x-mcp-header": "A"})), "not on a string"),
        (of(json!({"type": "integer", "enum": [1, 9007199254740992u64], "x-mcp-header": "A"})), "2^53"),
        (of(json!({"type": "integer", "const": -9007199254740993i64, "x-mcp-header": "A"})), "2^53"),
        (json!({"type": "object", "x-mcp-header": "A"}), "`properties` alone"),
        (of(json!({"type": "array", "items": a()})), "`properties` alone"),
        (of(json!({"type": "array", "prefixItems": [a()]})), "`properties` alone"),
        (of(json!({"oneOf": [a(), {"type": "null"}]})), "`properties` alone"),
        (of(json!({"additionalProperties": a()})), "`properties` alone"),
        (of(json!({"items": {"properties": {"b": a()}}})), "`properties` alone"),
        (of(json!({"vendor": {"deep": [a()]}})), "`properties` alone"),
        (json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": a()}}), "`properties` alone"),
        (json!({"if": {"properties": {"a": a()}}}), "`properties` alone"),
        (json!({"dependentSchemas": {"a": a()}}), "`properties` alone"),
        (json!({"patternProperties": {"x-mcp-header": a()}}), "`properties` alone"),
    ] {
        let problem = names(schema.clone()).expect_err(&schema.to_string());
        assert!(problem.contains(part), "{schema}: {problem}");
    }
}

fn param(name: &str, kind: ParamKind, path: &[&str]) -> HeaderParam {
    let header = format!("Mcp-Param-{name}");
    HeaderParam {
        field: header.parse().unwrap(),
        header,
        kind,
        path: path.iter().map(|key| (*key).into()).collect(),
    }
}

fn headers(sent: &[(&str, &[u8])]) -> Vec<(HeaderName, HeaderValue)> {
    sent.iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap()))
        .collect()
}

#[test]
fn strings_are_mirrored_exactly() {
    const REGION: &str = "Mcp-Param-Region";
    let region = [param("Region", ParamKind::String, &["region"])];
    for (arguments, sent, expected) in [
        (r#"{"region":"us-west1"}"#, vec![], Some(Mismatch::Missing)),
        (r#"{"region":"us-west1"}"#, vec![(REGION, &b"us-west1"[..])], None),
        (r#"{"region":"us\u002dwest1"}"#, vec![(REGION, b"us-west1")], None),
        (r#"{"region":"us-west1"}"#, vec![(REGION, b"eu")], Some(Mismatch::Different)),
        (r#"{"region":"us-west1"}"#, vec![(REGION, b"=?base64?dXMtd2VzdDE=?=")], None),
        (r#"{"region":"us-west1"}"#, vec![(REGION, b"=?base64?dXMtd2VzdDE?=")], Some(Mismatch::Undecodable)),
        (r#"{"region":"us-west1"}"#, vec![("mcp-param-REGION", b"us-west1")], None),
        (r#"{"region":"us-west1"}"#, vec![(REGION, b"US-WEST1")], Some(Mismatch::Different)),
        (r#"{"region":null}"#, vec![], None),
        (r#"{"region":null}"#, vec![(REGION, b"null")], Some(Mismatch::Unbacked)),
        ("{}", vec![], None),
        ("{}", vec![(REGION, b"us-west1")], Some(Mismatch::Unbacked)),
        ("{}", vec![(REGION, b"")], Some(Mismatch::Unbacked)),
        (r#"{"region":" us-west1 "}"#, vec![(REGION, b" us-west1 ")], Some(Mismatch::Different)),
        (r#"{"region":" us-west1 "}"#, vec![(REGION, b"=?base64?IHVzLXdlc3QxIA==?=")], None),
        (r#"{"region":""}"#, vec![(REGION, b"=?base64??=")], None),
        (r#"{"region":""}"#, vec![(REGION, b"")], None),
        (r#"{"region":""}"#, vec![], Some(Mismatch::Missing)),
        (r#"{"region":"日本語"}"#, vec![(REGION, b"=?base64?5pel5pys6Kqe?=")], None),
        (r#"{"region":"é"}"#, vec![(REGION, b"=?base64?ZcyB?=")], Some(Mismatch::Different)),
        (
            r#"{"region":"=?base64?literal?="}"#,
            vec![(REGION, b"=?base64?literal?=")],
            Some(Mismatch::Undecodable),
        ),
        (r#"{"region":"=?base64?dXM="}"#, vec![(REGION, b"=?base64?dXM=")], None),
        (r#"{"region":"us-west1"}"#, vec![(REGION, b"us-west1"), ("Mcp-Param-Foo", b"x")], None),
        (r#"{"region":"us-west1"}"#, vec![("Mcp_Param_Region", b"us-west1")], Some(Mismatch::Missing)),
        (r#"{"region":"日"}"#, vec![(REGION, "日".as_bytes())], Some(Mismatch::Undecodable)),
        (r#"{"region":"line1\nline2"}"#, vec![(REGION, b"=?base64?bGluZTEKbGluZTI=?=")], None),
        (r#"{"region":"a"}"#, vec![(REGION, b"a"), (REGION, b"a")], Some(Mismatch::Repeated)),
        // The wrong type is the schema's business, unless it was mirrored.
        (r#"{"region":7}"#, vec![], None),
        (r#"{"region":7}"#, vec![(REGION, b"7")], Some(Mismatch::Different)),
        (r#"{"region":["a"]}"#, vec![(REGION, b"a")], Some(Mismatch::Different)),
    ] {
        let verdict = check_mirrored(&region, Some(&super::json(arguments)), &headers(&sent));
        assert_eq!(verdict.err().map(|(_, problem)| problem), expected, "{arguments} {sent:?}");
    }
    assert_eq!(check_mirrored(&region, None, &[]), Ok(()));
    let unbacked = check_mirrored(&region, None, &headers(&[(REGION, b"a")]));
    assert_eq!(unbacked, Err((REGION.into(), Mismatch::Unbacked)));
}

#[test]
fn integers_are_mirrored_as_numbers_and_booleans_as_words() {
    let shard = [param("Shard", ParamKind::Integer, &["in", "shard"])];
    let dry = [param("Shard", ParamKind::Boolean, &["in", "shard"])];
    for (params, value, sent, expected) in [
        (&shard, "42", "42", None),
        (&shard, "42", "42.0", None),
        (&shard, "42.0", "42", None),
        (&shard, "4.2e1", "42", None),
        (&shard, "0.42E+2", "42", None),
        (&shard, "4200e-2", "42", None),
        (&shard, "42", "42.5", Some(Mismatch::Different)),
        (&shard, "42", "+42", Some(Mismatch::Different)),
        (&shard, "42", "042", Some(Mismatch::Different)),
        (&shard, "42", "4.2e1", Some(Mismatch::Different)),
        (&shard, "42", "0x2a", Some(Mismatch::Different)),
        (&shard, "42", "42.", Some(Mismatch::Different)),
        (&shard, "42", "", Some(Mismatch::Different)),
        (&shard, "42", "=?base64?NDI=?=", None),
        (&shard, "-7", "-7", None),
        (&shard, "-7", "7", Some(Mismatch::Different)),
        (&shard, "0", "-0", None),
        (&shard, "-0.0", "0", None),
        (&shard, "100", "10", Some(Mismatch::Different)),
        // Two doubles would be equal.
        (&shard, "9007199254740993", "9007199254740992", Some(Mismatch::Different)),
        (&shard, "1e999999999999", "1", Some(Mismatch::Different)),
        (&shard, "42.5", "42.5", Some(Mismatch::Different)),
        (&shard, "\"42\"", "42", Some(Mismatch::Different)),
        (&dry, "true", "true", None),
        (&dry, "false", "false", None),
        (&dry, "true", "True", Some(Mismatch::Different)),
        (&dry, "true", "1", Some(Mismatch::Different)),
        (&dry, "\"true\"", "true", Some(Mismatch::Different)),
    ] {
        let arguments = super::json(&format!(r#"{{"shard":1,"in":{{"shard":{value}}}}}"#));
        let verdict =
            check_mirrored(params, Some(&arguments), &headers(&[("mcp-param-shard", sent.as_bytes())]));
        assert_eq!(verdict.err().map(|(_, problem)| problem), expected, "{value} {sent}");
    }
    for unmirrored in [
        r#"{"in":7}"#,
        r#"{"in":[]}"#,
        r#"{"in":{"shard":42.5}}"#,
        r#"{"in":{"shard":1e99999999999999999999}}"#,
    ] {
        assert_eq!(check_mirrored(&shard, Some(&super::json(unmirrored)), &[]), Ok(()), "{unmirrored}");
    }
}

#[test]
fn what_is_minted_passes_the_check() {
    let params = [
        param("Region", ParamKind::String, &["region"]),
        param("Shard", ParamKind::Integer, &["shard"]),
        param("Dry", ParamKind::Boolean, &["dry"]),
    ];
    for (arguments, expected) in [
        (r#"{"region":"eu","shard":42,"dry":false}"#, vec!["eu", "42", "false"]),
        (r#"{"region":"","shard":4.2e1}"#, vec!["=?base64??=", "42"]),
        (r#"{"region":" a ","shard":-0.0}"#, vec!["=?base64?IGEg?=", "0"]),
        (r#"{"region":"a\r\nHost: b","shard":-1200}"#, vec!["=?base64?YQ0KSG9zdDogYg==?=", "-1200"]),
        (r#"{"region":null,"dry":true}"#, vec!["true"]),
        (r#"{"region":7,"shard":"7","dry":null}"#, vec![]),
        (r#"{"shard":1e999999999}"#, vec![]),
    ] {
        let arguments = super::json(arguments);
        let minted = mint(&params, Some(&arguments));
        let values: Vec<_> = minted.iter().map(|(_, value)| value.to_str().unwrap()).collect();
        assert_eq!(values, expected, "{arguments:?}");
        if !arguments.text().contains("1e9") {
            assert_eq!(check_mirrored(&params, Some(&arguments), &minted), Ok(()), "{arguments:?}");
        }
    }
    assert_eq!(mint(&params, None), []);
}

#[test]
fn a_tool_mirrors_so_many_arguments() {
    let schema = |count: usize| {
        let all =
            (0..count).map(|n| (format!("p{n}"), json!({"type": "string", "x-mcp-header": format!("P{n}")})));
        json!({"properties": all.collect::<serde_json::Map<_, _>>()})
    };
    assert_eq!(names(schema(64)).unwrap().len(), 64);
    assert_eq!(names(schema(65)).unwrap_err(), "it has more than 64 `x-mcp-header`");
    let far =
        |bytes: usize| json!({"properties": {"k".repeat(bytes): {"type": "string", "x-mcp-header": "A"}}});
    assert_eq!(names(far(1_024)).unwrap().len(), 1);
    assert!(names(far(1_025)).unwrap_err().contains("or 1024 bytes of them"));
    let deep = |levels: usize| {
        let inner = json!({"type": "string", "x-mcp-header": "A"});
        (0..levels).fold(inner, |inner, _| json!({"properties": {"k": inner}}))
    };
    assert_eq!(names(deep(16)).unwrap().len(), 1);
    assert!(names(deep(17)).unwrap_err().contains("more than 16 keys"));
}

#[test]
fn arguments_are_walked_once_for_all_parameters() {
    let keys: Vec<String> = (0..64).map(|n| format!("p{n}")).collect();
    let params: Vec<_> =
        keys.iter().map(|key| param(&format!("X-{key}"), ParamKind::String, &["in", "deep", key])).collect();
    let noise: String = (0..100_000).map(|n| format!(r#""n{n}":0,"#)).collect();
    let mirrored: Vec<_> = keys.iter().map(|key| format!(r#""{key}":"v{key}""#)).collect();
    let inner = format!(r#"{{"other":1,{noise}"deep":{{{noise}{}}}}}"#, mirrored.join(","));
    let arguments = super::json(&format!(r#"{{{noise}"in":{inner}}}"#));
    let before = cpu_time();
    let minted = mint(&params, Some(&arguments));
    assert_eq!(minted.len(), 64);
    assert_eq!(minted[7].1, "vp7");
    assert_eq!(check_mirrored(&params, Some(&arguments), &minted), Ok(()));
    // Without optimisation; one walk for each parameter took 64 times as long.
    assert!(cpu_time() - before < std::time::Duration::from_secs(4), "{:?}", cpu_time() - before);
    let gone = super::json(r#"{"in":{"deep":7,"p1":"x"},"deep":{"p1":"x"},"p1":"x"}"#);
    assert_eq!(mint(&params, Some(&gone)), []);
}

#[test]
fn keys_that_differ_in_case_only_are_refused() {
    let params = [
        param("Region", ParamKind::String, &["region"]),
        param("Task", ParamKind::String, &["in", "Task-\u{e9}"]),
    ];
    for (arguments, header) in [
        (r#"{"region":"eu","Region":"us"}"#, Some("Mcp-Param-Region")),
        (r#"{"REGION":"us","region":"eu"}"#, Some("Mcp-Param-Region")),
        (r#"{"regi\u004fn":"us"}"#, Some("Mcp-Param-Region")),
        (r#"{"in":{},"IN":{}}"#, Some("Mcp-Param-Task")),
        (r#"{"in":{"tA\u017fK-\u00c9":"a"}}"#, Some("Mcp-Param-Task")),
        (r#"{"in":{"ta\u017f\u212a-é":null}}"#, Some("Mcp-Param-Task")),
        (r#"{"in":{"Region":"us","Task-e":1},"regions":1,"other":{"Region":1}}"#, None),
        (r#"{"Other":{"REGION":1},"in":[{"IN":1}]}"#, None),
    ] {
        let arguments = super::json(arguments);
        let verdict = check_mirrored(&params, Some(&arguments), &mint(&params, Some(&arguments)));
        let expected = header.map_or(Ok(()), |header| Err((header.to_owned(), Mismatch::Twin)));
        assert_eq!(verdict, expected, "{arguments:?}");
    }
}
