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
        extensions: Vec::new(),
        scopes: Vec::new(),
        credential: None,
        refused: Vec::new(),
        validate: tenant::Validate::default(),
        catalog: tenant::Catalog::default(),
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
            tracestate: None,
            baggage: None,
            log_level: None,
            unknown: Vec::new(),
        },
        capabilities: json("{}"),
        responses: None,
        state: None,
        param_headers: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(30),
    }
}

/// Of a client that fills in forms.
fn asking(call: BackendCall) -> BackendCall {
    BackendCall { capabilities: json(r#"{"elicitation":{}}"#), ..call }
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
    let expected =
        ["echo", "add", "subtract", "slow", "region_lookup", "draft_create", "draft_append", "confirm"];
    assert_eq!(names, expected);
    for name in names {
        let end = run(&demo, asking(call(&name, r#"{"steps":1,"delay_ms":0}"#))).await.1;
        assert!(matches!(end, Ok(Outcome::Result(_) | Outcome::Asks(_))), "{name}: {end:?}");
    }
    assert!(matches!(run(&demo, call("other", "{}")).await.1, Ok(Outcome::Error(_))));
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

// spec: row MR-06
#[tokio::test]
async fn confirm_asks_and_tells_the_answers_apart() {
    let demo = demo();
    let asked = async |arguments: &str| match run(&demo, asking(call("confirm", arguments))).await.1 {
        Ok(Outcome::Asks(result)) => result.member("requestState").and_then(|state| state.string()).unwrap(),
        other => panic!("{other:?}"),
    };
    let state = asked(r#"{"action":"leave"}"#).await;
    let told = async |arguments: &str, state: Option<&str>, response: &str| {
        let (responses, state) = (Some(json(response)), state.map(str::to_owned));
        run(&demo, BackendCall { responses, state, ..asking(call("confirm", arguments)) }).await.1.unwrap()
    };
    for (response, text) in [
        (r#"{"confirm":{"action":"accept","content":{"confirm":true}}}"#, "confirmed: leave"),
        (r#"{"confirm":{"action":"accept","content":{"confirm":false}},"x":{}}"#, "not confirmed: leave"),
        (r#"{"confirm":{"action":"decline"}}"#, "declined: leave"),
        (r#"{"confirm":{"action":"cancel"}}"#, "cancelled: leave"),
    ] {
        let Outcome::Result(result) = told(r#"{"action":"leave"}"#, Some(&state), response).await else {
            panic!("{response}")
        };
        let text = format!(r#""text":"{text}"}}],"isError":false"#);
        assert!(result.text().contains(&text), "{}", result.text());
    }
    let yes = r#"{"confirm":{"action":"accept","content":{"confirm":true}}}"#;
    // spec: row MR-05
    for (response, state) in [("{}", Some(&*state)), (r#"{"other":{}}"#, Some(&*state)), (yes, None)] {
        let again = told(r#"{"action":"leave"}"#, state, response).await;
        assert!(matches!(again, Outcome::Asks(_)), "{response}: {again:?}");
    }
    let wrong = told(r#"{"action":"leave"}"#, Some(&state), r#"{"confirm":{"action":"accept"}}"#).await;
    assert!(matches!(wrong, Outcome::Result(result) if result.text().contains(r#""isError":true"#)));
    for (arguments, state) in [(r#"{"action":"stay"}"#, &*state), (r#"{"action":"leave"}"#, "0")] {
        let refused = told(arguments, Some(state), yes).await;
        assert!(matches!(&refused, Outcome::Error(error) if error.code == -32602), "{refused:?}");
    }
}

// spec: row BW-09
#[tokio::test]
async fn confirm_needs_a_client_that_fills_in_forms() {
    for capabilities in ["{}", r#"{"elicitation":{"url":{}}}"#, r#"{"sampling":{}}"#] {
        let call = BackendCall { capabilities: json(capabilities), ..call("confirm", "{}") };
        match run(&demo(), call).await.1 {
            Ok(Outcome::Error(error)) => {
                assert_eq!(error.code, -32021);
                let required = r#"{"requiredCapabilities":{"elicitation":{"form":{}}}}"#;
                assert_eq!(error.data.unwrap().text(), required);
            }
            other => panic!("{other:?}"),
        }
    }
}
