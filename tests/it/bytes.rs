//! What is not understood goes through byte for byte: JSON that was made up at random, both ways, for
//! clients and backends of both eras. The seed is fixed, so a failure comes again.

use proptest::collection::vec;
use proptest::prelude::BoxedStrategy;
use proptest::prelude::Strategy;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::strategy::Union;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::acme_and_other;
use crate::harness::gateway::text;
use crate::harness::session::Session;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::upstream::sessions::Handshake;
use crate::harness::wire::Answer;

/// How many texts of each kind a pair of eras is tried with.
const ROUNDS: usize = 24;

/// Numbers that no double holds, or that it would write in another way.
const NUMBERS: [&str; 16] = [
    "9007199254740993",
    "-9007199254740993",
    "123456789012345678901234567890",
    "1e400",
    "-1E+400",
    "1e-400",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "1.10E+2",
    "0.1000000000000000055511151231257827",
    "3.141592653589793238462643383279502884197",
    "18446744073709551616",
    "1e0",
    "100000000000000000000000",
];

/// Pieces of strings: escapes that need not be, and characters beyond the first plane.
const PIECES: [&str; 18] = [
    r"\u0041",
    r"\ud83d\ude00",
    r"\/",
    "/",
    r"\n",
    r"\u000a",
    r"\\",
    r#"\""#,
    r"\u00e9",
    "é",
    "日本",
    "😀",
    "\u{10ffff}",
    "\u{2028}",
    "\u{7f}",
    " ",
    "</script>",
    r"\u0000",
];

/// Any text of JSON, with the blanks that somebody has put there.
fn value() -> BoxedStrategy<String> {
    let digits = "(-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?)";
    let leaf = Union::new([
        select(&NUMBERS[..]).prop_map(str::to_owned).boxed(),
        digits.boxed(),
        select(vec!["null", "true", "false", "{}", "[]", "[ ]", "\"\""]).prop_map(str::to_owned).boxed(),
        string().boxed(),
    ]);
    leaf.prop_recursive(6, 40, 6, |inner| {
        Union::new([
            vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(" ,\t"))).boxed(),
            members(inner).boxed(),
        ])
    })
    .boxed()
}

/// Any object.
fn object() -> BoxedStrategy<String> {
    members(value()).boxed()
}

/// An object whose keys are told apart by a number, which is also where they begin to differ.
fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec((select(&PIECES[..]), value, any::<bool>()), 0..6).prop_map(|members| {
        let members = members.iter().enumerate().map(|(n, (piece, value, wide))| match wide {
            true => format!("\"{n}{piece}\" :\n {value}"),
            false => format!("\"{n}{piece}\":{value}"),
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

/// Any string, quoted.
fn string() -> impl Strategy<Value = String> {
    let piece =
        Union::new([select(&PIECES[..]).prop_map(str::to_owned).boxed(), "[ -!#-\\[\\]-~]{0,9}".boxed()]);
    vec(piece, 0..8).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// Objects, the last of them nested nearly as deep as the gateway reads.
fn objects() -> Vec<String> {
    let mut objects = some(&object(), ROUNDS);
    objects.push((0..40).fold("1e400".to_owned(), |inner, _| format!(r#"{{"a":{inner},"b":null}}"#)));
    objects
}

/// Somebody in front of the gateway, in one of the eras.
enum Front {
    Modern(Caller),
    Session(Session),
}

impl Front {
    /// Sends these members of `params`, each with a comma in front, and of `_meta`.
    async fn ask(&self, method: &str, name: Option<&str>, params: &str, meta: &str) -> Answer {
        match self {
            Self::Modern(caller) => {
                caller.post(&caller.headers(method, name), &text("7", method, params, meta)).await
            }
            Self::Session(session) => {
                let meta = meta.trim_start_matches(',');
                let body = format!(
                    r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"_meta":{{{meta}}}{params}}}}}"#
                );
                session.post(&body).await
            }
        }
    }
}

/// Texts of one kind, always the same ones.
fn some(strategy: &BoxedStrategy<String>, count: usize) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("a text").current()).collect()
}

fn has(whole: &str, part: &str) {
    assert!(whole.contains(part), "not there:\n{part}\nin:\n{whole}");
}

/// A gateway before `upstream` under the prefix "", and somebody of each era in front of it.
async fn before(upstream: &Upstream) -> (Gateway, [Front; 2]) {
    let gw = Gateway::start(&acme_and_other(&[upstream.backend("up", ", prefix: \"\"")])).await;
    let caller = gw.caller("acme", "alice", "");
    let session = Session::open(&caller, "2025-11-25").await;
    (gw, [Front::Modern(caller), Front::Session(session)])
}

/// What a backend has for [`both_ways`].
async fn server() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet","arguments":[{"name":"whom"}]}"#);
    upstream.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    upstream
}

/// The body of the last request with this method.
fn last(upstream: &Upstream, method: &str) -> String {
    let named = format!(r#""method":"{method}""#);
    upstream
        .requests()
        .into_iter()
        .rev()
        .map(|request| request.body)
        .find(|body| body.contains(&named))
        .unwrap()
}

/// Everything that may hold what nobody understands, from the client to the backend and back.
async fn both_ways(upstream: &Upstream, front: &Front) {
    let values = some(&value(), ROUNDS + 1);
    for (object, value) in objects().iter().zip(&values) {
        let params = format!(r#","name":"echo","arguments": {object} ,"0":{value},"1": null"#);
        let meta = format!(r#","example.com/a":{value},"example.com/b" : {object}"#);
        let answer = front.ask("tools/call", Some("echo"), &params, &meta).await.text();
        has(&answer, &format!(r#""structuredContent":{object}"#));
        let sent = last(upstream, "tools/call");
        for part in [
            format!(r#""arguments":{object}"#),
            format!(r#""0":{value}"#),
            r#""1":null"#.to_owned(),
            format!(r#""example.com/a":{value}"#),
            format!(r#""example.com/b":{object}"#),
        ] {
            has(&sent, &part);
        }

        let extra = format!(r#""0":{value},"_meta":{{"example.com/c":{value}}}"#);
        let blocks =
            format!(r#"[{{"type":"hologram","data":{value}}},{{"type":"text","text":"a",{extra}}}]"#);
        let [tool, prompt, resource] = [
            format!(r#""content":{blocks},"structuredContent":{object},"isError":false,"1":{value}"#),
            format!(r#""messages":[{{"role":"user","content":{{"type":"hologram",{extra}}}}}],"1":{value}"#),
            format!(r#""contents":[{{"uri":"x://1","text":"a",{extra}}}],"1":{value}"#),
        ];
        for (method, name, params, result) in [
            ("tools/call", "echo", r#","name":"echo""#, tool),
            ("prompts/get", "greet", r#","name":"greet""#, prompt),
            ("resources/read", "x://1", r#","uri":"x://1""#, resource),
        ] {
            upstream.behave(name, Behaviour::Once(Box::new(Behaviour::Result(format!("{{{result}}}")))));
            has(&front.ask(method, Some(name), params, "").await.text(), &result);
        }
        let error = format!(r#"{{"code":-32602,"message":"m","data":{value}}}"#);
        upstream.behave("echo", Behaviour::Once(Box::new(Behaviour::Error(200, error.clone()))));
        let answer = front.ask("tools/call", Some("echo"), r#","name":"echo""#, "").await.text();
        has(&answer, &format!(r#""data":{value}"#));
    }
    for string in some(&string().boxed(), ROUNDS) {
        let params = format!(r#","name":"greet","arguments":{{"whom":{string}}}"#);
        front.ask("prompts/get", Some("greet"), &params, "").await.result();
        has(&last(upstream, "prompts/get"), &format!(r#""arguments":{{"whom":{string}}}"#));
    }
}

#[tokio::test]
async fn random_json_passes_to_and_from_a_modern_backend_as_it_is() {
    let upstream = server().await;
    let (gw, fronts) = before(&upstream).await;
    for front in &fronts {
        both_ways(&upstream, front).await;
    }
    gw.stop().await;
}

#[tokio::test]
async fn random_json_passes_to_and_from_a_handshake_backend_as_it_is() {
    let upstream = server().await;
    upstream.handshake(Handshake::default());
    let (gw, fronts) = before(&upstream).await;
    for front in &fronts {
        both_ways(&upstream, front).await;
    }
    gw.stop().await;
}

#[tokio::test]
async fn what_a_list_says_beside_what_is_known_stays_as_it_is() {
    let upstream = server().await;
    let values = some(&value(), ROUNDS);
    // A schema is compiled, and what compiles it knows doubles alone.
    let compiled = |value: &&String| serde_json::from_str::<Value>(value).is_ok();
    assert!(values.iter().filter(compiled).count() > ROUNDS / 3);
    for (n, value) in values.iter().enumerate() {
        let note = Some(value).filter(compiled).map_or("true", String::as_str);
        let more = format!(r#""vendor":{value},"_meta":{{"example.com/a":{value}}}"#);
        upstream.tool(
            &format!("t{n}"),
            &format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object","x-note":{note}}},{more}}}"#),
        );
        upstream.prompt(&format!("p{n}"), &format!(r#"{{"name":"p{n}",{more}}}"#));
        upstream.resource(&format!("x://r{n}"), &format!(r#"{{"uri":"x://r{n}","name":"n",{more}}}"#));
        upstream.template(
            &format!("y://{n}/{{a}}"),
            &format!(r#"{{"uriTemplate":"y://{n}/{{a}}","name":"n",{more}}}"#),
        );
    }
    let (gw, fronts) = before(&upstream).await;
    for front in &fronts {
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let listed = front.ask(method, None, "", "").await.text();
            for value in &values {
                has(&listed, &format!(r#""vendor":{value}"#));
                has(&listed, &format!(r#""example.com/a":{value}"#));
            }
        }
        let tools = front.ask("tools/list", None, "", "").await.text();
        values.iter().filter(compiled).for_each(|value| has(&tools, &format!(r#""x-note":{value}"#)));
    }
    gw.stop().await;
}

/// The texts are worth their name: each peculiarity is in some of them.
#[test]
fn the_texts_hold_what_they_should() {
    let all = [some(&value(), ROUNDS), objects()].concat().join("\n");
    for part in [
        "9007199254740993",
        "e400",
        "-0",
        "null",
        "\\ud83d\\ude00",
        "\u{10ffff}",
        "\\u0000",
        "\\/",
        "[[",
        "{}",
    ] {
        has(&all, part);
    }
    for text in some(&value(), ROUNDS).iter().chain(&objects()) {
        assert!(serde_json::from_str::<Box<RawValue>>(text).is_ok(), "no JSON: {text}");
    }
    assert_eq!(objects(), objects(), "the same every time");
}
