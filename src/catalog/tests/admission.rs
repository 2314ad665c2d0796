//! Tools that are left out, with their reasons, and tools that are kept as they came.

use super::admitted;
use super::backend;
use super::json;
use super::tool;

/// The reason for which `raw` is left out, while its sibling stays.
fn reason(raw: &str) -> String {
    let mut admission = admitted(&backend("crm", "crm_", &[]), &[json(raw), tool("sibling")]);
    assert_eq!(admission.tools.len(), 1, "{raw}");
    assert_eq!(&*admission.tools[0].entry.public, "crm_sibling");
    admission.left_out.remove(0).reason
}

#[test]
fn a_bad_tool_is_left_out_and_its_sibling_stays() {
    for (raw, expected) in [
        ("7", "it is not an object"),
        ("[]", "it is not an object"),
        (r#"{"inputSchema":{"type":"object"}}"#, "its `name` has the wrong type"),
        (r#"{"name":7,"inputSchema":{"type":"object"}}"#, "its `name` has the wrong type"),
        (r#"{"name":"","inputSchema":{"type":"object"}}"#, "its name is empty"),
        (
            r#"{"name":"a\u202eb","inputSchema":{"type":"object"}}"#,
            "its name has a character that cannot be seen",
        ),
        (
            r#"{"name":"a\nb","inputSchema":{"type":"object"}}"#,
            "its name has a character that cannot be seen",
        ),
        (
            r#"{"name":"a","description":7,"inputSchema":{"type":"object"}}"#,
            "its `description` has the wrong type",
        ),
        (r#"{"name":"a","title":null,"inputSchema":{"type":"object"}}"#, "its `title` has the wrong type"),
        (
            r#"{"name":"a","annotations":{"readOnlyHint":"yes"},"inputSchema":{"type":"object"}}"#,
            "its `annotations` has the wrong type",
        ),
        (r#"{"name":"a","icons":[{}],"inputSchema":{"type":"object"}}"#, "its `icons` has the wrong type"),
        (r#"{"name":"a","_meta":[],"inputSchema":{"type":"object"}}"#, "its `_meta` has the wrong type"),
        (
            r#"{"name":"a","execution":{"taskSupport":"required"},"inputSchema":{"type":"object"}}"#,
            "it is only run as a task, which is not relayed",
        ),
        (r#"{"name":"a"}"#, r#"its `inputSchema` is not an object of `"type": "object"`"#),
        (r#"{"name":"a","inputSchema":null}"#, "its `inputSchema` is not an object"),
        (r#"{"name":"a","inputSchema":true}"#, "its `inputSchema` is not an object"),
        (r#"{"name":"a","inputSchema":[]}"#, "its `inputSchema` is not an object"),
        (r#"{"name":"a","inputSchema":{}}"#, r#"its `inputSchema` is not an object of `"type": "object"`"#),
        (
            r#"{"name":"a","inputSchema":{"type":"array"}}"#,
            r#"its `inputSchema` is not an object of `"type": "object"`"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":["object"]}}"#,
            r#"its `inputSchema` is not an object of `"type": "object"`"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","$ref":"file:///etc/hostname"}}"#,
            r#"its `inputSchema` refers to something outside itself: "file:///etc/hostname""#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":true}"#,
            "its `outputSchema` is not an object",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"banana"}}"#,
            r#"its `outputSchema` is not a valid schema: /type: "banana" is not valid under any of the schemas listed in the 'anyOf' keyword"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":7}}}"#,
            r#"its `outputSchema` is not a valid schema: /properties/a: 7 is not of types "boolean", "object""#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","required":"a"}}"#,
            r#"its `outputSchema` is not a valid schema: /required: "a" is not of type "array""#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"$ref":"http://a.example/"}}"#,
            r#"its `outputSchema` refers to something outside itself: "http://a.example/""#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#,
            "an `x-mcp-header` is not reached through `properties` alone",
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#,
            r#"the `x-mcp-header` "A" is not on a string, an integer or a boolean"#,
        ),
    ] {
        assert_eq!(reason(raw), expected, "{raw}");
    }
}

#[test]
fn of_two_tools_with_one_name_the_later_is_left_out() {
    let second = json(r#"{"name":"find","title":"second","inputSchema":{"type":"object"}}"#);
    let admission = admitted(&backend("crm", "", &[]), &[tool("find"), second, tool("other")]);
    assert_eq!(admission.tools.len(), 2);
    assert!(!admission.tools[0].entry.descriptor.text().contains("second"));
    assert_eq!(admission.left_out.len(), 1);
    assert_eq!(admission.left_out[0].name, "find");
}

#[test]
fn members_are_kept_as_they_came() {
    let raw = r#"{ "vendor/x":1e400, "name" : "fi\u006ed","description":"a\tb\u00e9", "inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}},"$comment":"\u200b"},"_meta":{"a":null}, "vendor/y":{"taskSupport":"optional"}}"#;
    let admission = admitted(&backend("crm", "crm_", &[]), &[json(raw)]);
    assert_eq!(admission.cleaned, []);
    let found = &admission.tools[0].entry;
    assert_eq!((&*found.public, &*found.own), ("crm_find", "find"));
    assert_eq!(
        found.descriptor.text(),
        r#"{"vendor/x":1e400,"name":"crm_find","description":"a\tb\u00e9","inputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}},"$comment":"\u200b"},"_meta":{"a":null},"vendor/y":{"taskSupport":"optional"}}"#
    );
}

#[test]
fn texts_for_people_are_cleaned_and_cut() {
    let raw = format!(
        r#"{{"name":"find","title":"Fi\u202end","description":"\u001b[31m{}","annotations":{{"title":"a\u200bb","readOnlyHint":true}},"inputSchema":{{"type":"object"}}}}"#,
        "x".repeat(1 << 20)
    );
    let admission = admitted(&backend("crm", "", &[]), &[json(&raw)]);
    let shown = &admission.tools[0].entry.descriptor;
    assert_eq!(shown.member("title").unwrap().text(), r#""Find""#);
    assert_eq!(shown.member("annotations").unwrap().text(), r#"{"title":"ab","readOnlyHint":true}"#);
    let description = shown.member("description").unwrap().string().unwrap();
    assert!(description.starts_with("xxx") && description.len() <= 8 << 10);
    assert_eq!(admission.cleaned.len(), 1, "and it is said");
}

#[test]
fn a_backend_has_one_budget_for_all_its_tools() {
    let properties: String = (0..9_000).map(|n| format!(r#","p{n}":true"#)).collect();
    let wide = |n: usize| {
        json(&format!(
            r#"{{"name":"t{n}","inputSchema":{{"type":"object","properties":{{"a":true{properties}}}}}}}"#
        ))
    };
    let listed: Vec<_> = (0..60).map(wide).collect();
    let admission = admitted(&backend("crm", "", &[]), &listed);
    // Nine thousand subschemas each, and as many keys and values.
    assert!((15..20).contains(&admission.tools.len()), "{}", admission.tools.len());
    assert!(admission.left_out.iter().all(|remark| remark.reason.contains("together")));
}

#[test]
fn every_value_of_a_schema_counts_against_its_backends_budget() {
    let zeros = "0,".repeat(100_000);
    for data in [
        format!(r#""inputSchema":{{"type":"object","properties":{{"a":{{"enum":[{zeros}1]}}}}}}"#),
        format!(r#""inputSchema":{{"type":"object","const":[{zeros}1]}}"#),
        format!(r#""inputSchema":{{"type":"object","default":[{zeros}1]}}"#),
        format!(r#""inputSchema":{{"type":"object","examples":[{zeros}1]}}"#),
        format!(r#""inputSchema":{{"type":"object","x-vendor":[{zeros}1]}}"#),
        format!(
            r#""inputSchema":{{"type":"object"}},"outputSchema":{{"type":"object","default":[{zeros}1]}}"#
        ),
    ] {
        let listed: Vec<_> = (0..6).map(|n| json(&format!(r#"{{"name":"t{n}",{data}}}"#))).collect();
        let admission = admitted(&backend("crm", "", &[]), &listed);
        let shown = &data[..60];
        assert_eq!(admission.tools.len(), 4, "{shown}: {:?}", admission.left_out);
        assert!(admission.left_out.iter().all(|remark| remark.reason.contains("together")), "{shown}");
    }
}

#[test]
fn the_patterns_of_a_backend_have_one_budget() {
    let with = |n: usize| {
        let patterns: Vec<_> =
            (0..50).map(|p| format!(r#""p{p}":{{"type":"string","pattern":"^a{n}b{p}$"}}"#)).collect();
        let patterns = patterns.join(",");
        json(&format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object","properties":{{{patterns}}}}}}}"#))
    };
    let listed: Vec<_> = (0..25).map(with).collect();
    let admission = admitted(&backend("crm", "", &[]), &listed);
    assert_eq!(admission.tools.len(), 20, "{:?}", admission.left_out);
    let reason = "its `inputSchema` has more patterns than a backend's tools may have together";
    assert!(admission.left_out.iter().all(|remark| remark.reason == reason));
}

/// Memory of this process, in MiB.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 / 1024
}

#[cfg(target_os = "linux")]
#[test]
fn the_worst_lists_stay_small_in_memory() {
    // In a process of its own: other tests beside it would be measured too.
    const ALONE: &str = "FONDACO_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return measure_the_worst_lists();
    }
    let this = std::thread::current().name().unwrap().to_owned();
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", &this]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[cfg(target_os = "linux")]
fn measure_the_worst_lists() {
    let data = |n: usize| format!(r#""enum":[{}{n}]"#, "0,".repeat(120_000));
    let objects = |n: usize| format!(r#""enum":[{}{n}]"#, r#"{"":0},"#.repeat(36_000));
    let keys = |n: usize| {
        let keys: Vec<_> = (0..20_000).map(|k| format!(r#""{k}":0"#)).collect();
        format!(r#""default":{{{}}},"x":{n}"#, keys.join(","))
    };
    let schemas = |n: usize| {
        let all: Vec<_> = (0..3_300)
            .map(|p| {
                format!(r#""{p}":{{"type":"string","minLength":{n},"maxLength":9,"not":{{"minimum":{p}}}}}"#)
            })
            .collect();
        format!(r#""properties":{{{}}}"#, all.join(","))
    };
    let patterns = |n: usize| {
        let all: Vec<_> = (0..60).map(|p| format!(r#""{p}":{{"pattern":"^([ab]|c{n}-{p})$"}}"#)).collect();
        format!(r#""properties":{{{}}}"#, all.join(","))
    };
    let large = |n: usize| {
        let all: Vec<_> = (0..60)
            .map(|p| format!(r#""{p}":{{"pattern":"^([ab]|c{n}-{p})[01ab]{{340}}[^01]$"}}"#))
            .collect();
        format!(r#""properties":{{{}}}"#, all.join(","))
    };
    let rows: [(&str, &dyn Fn(usize) -> String); 6] = [
        ("data", &data),
        ("objects", &objects),
        ("keys", &keys),
        ("subschemas", &schemas),
        ("patterns", &patterns),
        ("large patterns", &large),
    ];
    let mut kept = Vec::new();
    for (what, schema) in rows {
        let listed: Vec<_> = (0..60)
            .map(|n| json(&format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object",{}}}}}"#, schema(n))))
            .collect();
        let before = resident();
        let admission = admitted(&backend("crm", "", &[]), &listed);
        let grown = resident().saturating_sub(before);
        assert!(grown < 200, "{what}: {grown} MiB, {:?}", admission.left_out.first());
        kept.push(admission);
    }
}

#[test]
fn how_the_handshake_era_runs_a_tool_is_not_shown() {
    for support in [r#"{"taskSupport":"optional"}"#, r#"{"taskSupport":"forbidden"}"#, "{}", "7"] {
        let raw = format!(r#"{{"name":"a","execution":{support},"x":1,"inputSchema":{{"type":"object"}}}}"#);
        let admission = admitted(&backend("crm", "crm_", &[]), &[json(&raw)]);
        let shown = admission.tools[0].entry.descriptor.text();
        assert_eq!(shown, r#"{"name":"crm_a","x":1,"inputSchema":{"type":"object"}}"#, "{support}");
    }
}
