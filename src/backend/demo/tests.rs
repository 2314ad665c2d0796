//! The demonstration tools as they answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::demo::Demo;
use crate::exchange::Frame;
use crate::model::caller::Caller;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::BackendKind;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::meta::Meta;
use crate::protocol::methods::Method;

fn demo() -> Demo {
    demo_with(Duration::from_secs(60), Duration::from_secs(30))
}

fn demo_with(timeout: Duration, idle_timeout: Duration) -> Demo {
    Demo::new(Arc::new(tenant::Backend {
        name: BackendName::new("demo").unwrap(),
        kind: BackendKind::Demo,
        prefix: "".into(),
        uris: tenant::Uris::Keep,
        timeout,
        idle_timeout,
        scopes: Vec::new(),
        credential: None,
        validate: tenant::Validate::default(),
    }))
}

fn json(text: &str) -> Json {
    Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
}

fn alice() -> Caller {
    Caller {
        tenant: TenantName::new("acme").unwrap(),
        issuer: "https://login.example".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::default(),
        expires_at: u64::MAX,
    }
}

fn call(tool: &str, arguments: &str) -> BackendCall {
    BackendCall {
        caller: Arc::new(alice()),
        method: Method::ToolsCall,
        name: tool.into(),
        params: json(&format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#)),
        meta: Meta {
            capabilities: json("{}"),
            progress_token: Some(json("7")),
            traceparent: None,
            unknown: Vec::new(),
        },
        capabilities: json("{}"),
        param_headers: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(30),
    }
}

async fn run(demo: &Demo, call: BackendCall) -> (usize, Result<Outcome, BackendError>) {
    let mut frames = demo.call(call).unwrap();
    let mut progress = 0;
    loop {
        match frames.next().await.expect("an end") {
            Frame::Notice(_) => progress += 1,
            Frame::End(end) => {
                assert!(frames.next().await.is_none());
                return (progress, end);
            }
        }
    }
}

/// The text of the result's first block, and whether it is an error.
async fn said(demo: &Demo, tool: &str, arguments: &str) -> (String, bool) {
    let Ok(Outcome::Result(result)) = run(demo, call(tool, arguments)).await.1 else { panic!("a result") };
    let block = result.member("content").and_then(|content| content.elements().next()).expect("a block");
    let is_error = result.member("isError").and_then(|value| value.boolean());
    (block.member("text").and_then(|text| text.string()).expect("a text"), is_error.expect("`isError`"))
}

#[tokio::test]
async fn every_listed_tool_is_a_tool_and_every_tool_is_listed() {
    let demo = demo();
    let listing = demo.list().unwrap();
    let tools = listing.tools.entries();
    let names: Vec<_> = tools.iter().map(|t| t.member("name").and_then(|n| n.string()).unwrap()).collect();
    let expected = ["echo", "add", "subtract", "slow", "region_lookup", "draft_create", "draft_append"];
    assert_eq!(names, expected);
    for name in names {
        assert!(matches!(
            run(&demo, call(&name, r#"{"steps":1,"delay_ms":0}"#)).await.1,
            Ok(Outcome::Result(_))
        ));
    }
    assert!(matches!(run(&demo, call("confirm", "{}")).await.1, Ok(Outcome::Error(_))));
}

#[tokio::test]
async fn tools_answer_and_wrong_arguments_are_told() {
    for (tool, arguments, text, is_error) in [
        ("echo", r#"{"text":"h\u0069"}"#, "hi", false),
        ("echo", "{}", "`text` is a string, and required", true),
        ("echo", "[]", "`arguments` is an object", true),
        ("add", r#"{"a":9007199254740993,"b":1}"#, r#"{"result":9007199254740994}"#, false),
        ("add", r#"{"a":0.5,"b":1}"#, r#"{"result":1.5}"#, false),
        ("add", r#"{"a":1e400,"b":1}"#, "the result is too large for a number", true),
        ("add", r#"{"a":"1","b":1}"#, "`a` is a number, and required", true),
        ("subtract", r#"{"a":1,"b":3}"#, r#"{"result":-2}"#, false),
        ("slow", r#"{"steps":0}"#, "`steps` is a whole number from 1 to 1000", true),
        ("slow", r#"{"steps":1.0}"#, "`steps` is a whole number from 1 to 1000", true),
        ("region_lookup", r#"{"region":"us-west1"}"#, "us-west1: The Dalles", false),
        ("region_lookup", r#"{"region":"Mars"}"#, "Mars: not known here", false),
        ("region_lookup", r#"{"region":7}"#, "`region` is a string", true),
        (
            "draft_append",
            r#"{"draftId":"x","text":""}"#,
            "there is no such draft; `draft_create` makes one",
            true,
        ),
    ] {
        assert_eq!(said(&demo(), tool, arguments).await, (text.to_owned(), is_error), "{tool} {arguments}");
    }
}

#[tokio::test]
async fn slow_work_reports_each_step_and_its_clocks_run() {
    let demo = demo_with(Duration::from_secs(60), Duration::from_millis(500));
    let (progress, end) = run(&demo, call("slow", r#"{"steps":12,"delay_ms":60}"#)).await;
    assert_eq!((progress, end.is_ok()), (12, true), "steps wind up the idle clock");
    let hasty = demo_with(Duration::from_millis(300), Duration::from_secs(60));
    for (demo, arguments, expected) in [
        (&demo, r#"{"delay_ms":5000}"#, Clock::Idle),
        (&hasty, r#"{"steps":1000,"delay_ms":20}"#, Clock::Total),
    ] {
        let (progress, end) = run(demo, call("slow", arguments)).await;
        let error = end.unwrap_err();
        assert!(matches!(error, BackendError::TimedOut { clock, .. } if clock == expected), "{error:?}");
        assert!(progress < 20, "{progress}");
    }
}

#[tokio::test]
async fn a_draft_is_known_to_the_tenant_that_made_it_alone() {
    let (mine, other) = (demo(), demo());
    let (created, _) = said(&mine, "draft_create", r#"{"title":"T"}"#).await;
    let id = json(&created).member("draftId").and_then(|id| id.string()).unwrap();
    let append = format!(r#"{{"draftId":"{id}","text":"ab"}}"#);
    said(&mine, "draft_append", &append).await;
    let whole = format!(r#"{{"draftId":"{id}","title":"T","text":"abab"}}"#);
    assert_eq!(said(&mine, "draft_append", &append).await, (whole, false));
    assert!(said(&other, "draft_append", &append).await.1);
    for _ in 0..256 {
        said(&mine, "draft_create", "{}").await;
    }
    assert!(said(&mine, "draft_append", &append).await.1, "only the latest drafts are kept");
}

/// What the method answers about this name: its result, or its error's code.
async fn answers(method: Method, name: &str, params: &str) -> Result<Json, i64> {
    let call = BackendCall { method, name: name.into(), params: json(params), ..call("x", "{}") };
    match run(&demo(), call).await.1 {
        Ok(Outcome::Result(result)) => Ok(result),
        Ok(Outcome::Error(error)) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn notes_are_read_and_greetings_are_got() {
    let listing = demo().list().unwrap();
    assert_eq!(listing.resources.entries()[0].member("uri").unwrap().text(), r#""demo://note/1""#);
    for (uri, known) in [
        ("demo://note/1", true),
        ("demo://note/3", true),
        ("demo://note/4", false),
        ("demo://note/", false),
        ("demo://note/1/2", false),
        ("file:///etc/passwd", false),
    ] {
        let read = answers(Method::ResourcesRead, uri, "{}").await;
        assert_eq!(read.is_ok(), known, "{uri}");
        match read {
            Ok(read) => assert!(read.text().contains(&format!(r#""contents":[{{"uri":"{uri}""#)), "{read:?}"),
            Err(code) => assert_eq!(code, -32602),
        }
    }
    for (arguments, text) in
        [("{}", "a friend"), (r#"{"name":""}"#, "a friend"), (r#"{"name":"Ada"}"#, "Ada")]
    {
        let params = format!(r#"{{"arguments":{arguments}}}"#);
        let got = answers(Method::PromptsGet, "greet", &params).await.unwrap();
        assert!(got.text().contains(&format!("Please greet {text} warmly")), "{got:?}");
    }
    assert_eq!(answers(Method::PromptsGet, "other", "{}").await, Err(-32602));
}

#[tokio::test]
async fn arguments_are_completed() {
    for (of, argument, value, expected) in [
        (r#""type":"ref/prompt","name":"greet""#, "name", "a", Ok(r#"["Ada","Alan"]"#)),
        (r#""type":"ref/prompt","name":"greet""#, "name", "x", Ok("[]")),
        (r#""type":"ref/resource","uri":"demo://note/{id}""#, "id", "", Ok(r#"["1","2","3"]"#)),
        (r#""type":"ref/resource","uri":"demo://note/{id}""#, "name", "", Err(-32602)),
        (r#""type":"ref/prompt","name":"other""#, "name", "", Err(-32602)),
    ] {
        let params = format!(r#"{{"ref":{{{of}}},"argument":{{"name":"{argument}","value":"{value}"}}}}"#);
        let completion = answers(Method::Complete, "x", &params).await;
        let values = completion.map(|result| result.member("completion").unwrap().member("values").unwrap());
        assert_eq!(values.as_ref().map(Json::text), expected.as_ref().map(|text| *text), "{params}");
    }
}
