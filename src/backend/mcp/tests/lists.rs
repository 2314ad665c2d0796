//! Listing: all pages, and no more than the limits.

use std::time::Duration;

use super::backend;
use super::backend_of;
use super::config;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use crate::backend::Account;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::backend::listing::Listed;
use crate::model::limits::Limits;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

#[tokio::test]
async fn all_pages_are_listed_and_tools_stay_as_they_came() {
    let upstream = Upstream::start().await;
    let odd = r#"{ "name":"odd", "inputSchema":{"type":"object","maximum":1e400}, "new":null }"#;
    upstream.tool("odd", odd).tool("third", r#"{"name":"third"}"#).page_size(1).instructions("Be kind.");
    let listing = backend(&upstream.url()).list(&Account::Gateway).await.unwrap();
    let tools: Vec<_> = listing.tools.entries().iter().map(Json::text).collect();
    assert_eq!(tools.len(), 3);
    assert_eq!(tools[1..], [odd, r#"{"name":"third"}"#]);
    assert_eq!(listing.tools.truncated(), None);
    assert_eq!(listing.ttl_ms, Some(60_000));
    assert_eq!(listing.instructions.as_deref(), Some("Be kind."));
    let cursors: Vec<_> = upstream
        .requests()
        .iter()
        .filter(|request| request.header("mcp-method") == ["tools/list"])
        .map(|request| request.json()["params"]["cursor"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(cursors, [None, Some(String::new()), Some("2".to_owned())], "an empty cursor is a cursor");
}

#[tokio::test]
async fn lists_without_end_are_cut_and_say_so() {
    let upstream = Upstream::start().await;
    let limits = Limits { upstream_pages: 7, upstream_tools: 5, ..Limits::default() };
    let small = Limits { upstream_tools: 100, ..limits.clone() };
    let tiny = Limits { upstream_bytes: 40, ..small.clone() };
    for (behaviour, limits, tools, why) in [
        (Behaviour::EndlessPages, limits, 5, "it has more entries than are taken from one backend"),
        (Behaviour::EndlessPages, small.clone(), 7, "it has more pages than are read"),
        (Behaviour::SameCursor, small, 1, "a page of it has nothing new, but names a next one"),
    ] {
        upstream.behave("tools/list", behaviour);
        let listing = backend_of(config(&upstream.url()), limits).list(&Account::Gateway).await.unwrap();
        assert_eq!((listing.tools.entries().len(), listing.tools.truncated()), (tools, Some(why)));
    }
    upstream.behave("tools/list", Behaviour::EndlessPages);
    let short = Limits { upstream_bytes: 300, ..tiny.clone() };
    let listing = backend_of(config(&upstream.url()), short).list(&Account::Gateway).await.unwrap();
    assert_eq!(listing.tools.truncated(), Some("it is larger than is taken from one backend"));
    assert!((2..7).contains(&listing.tools.entries().len()), "{}", listing.tools.entries().len());
    let error = backend_of(config(&upstream.url()), tiny).list(&Account::Gateway).await.unwrap_err();
    assert!(matches!(error, BackendError::Invalid(_)), "a page may not be larger than an answer");
}

#[tokio::test]
async fn bad_lists_are_errors_and_bad_discovery_is_not() {
    let upstream = Upstream::start().await;
    let result = |text: &str| Behaviour::Result(text.to_owned());
    let error = |code: i64| Behaviour::Error(404, format!(r#"{{"code":{code},"message":"m"}}"#));
    for (behaviour, expected) in [
        (result("{}"), "no array of entries"),
        (result(r#"{"tools":{}}"#), "no array of entries"),
        (result(r#"{"tools":[],"nextCursor":1}"#), "`nextCursor` is no string"),
        (result(r#"{"resultType":"input_required"}"#), "where nobody is asked"),
        (error(-32602), "with an error"),
        (error(-32020), "with an error"),
        (Behaviour::Error(401, "{}".into()), "Unauthorized"),
    ] {
        let shown = format!("{behaviour:?}");
        upstream.behave("tools/list", behaviour);
        let error = backend(&upstream.url()).list(&Account::Gateway).await.expect_err(&shown);
        assert!(format!("{error:?}").contains(expected), "{shown}: {error:?}");
    }
    for (ttl, expected) in [("-1", Some(0)), ("1e18", Some(3_600_000)), ("1.5", Some(1)), ("\"1\"", None)] {
        upstream.behave("tools/list", result(&format!(r#"{{"tools":[],"nextCursor":null,"ttlMs":{ttl}}}"#)));
        assert_eq!(backend(&upstream.url()).list(&Account::Gateway).await.unwrap().ttl_ms, expected, "{ttl}");
    }
    upstream.behave("tools/list", error(-32601));
    assert!(
        backend(&upstream.url()).list(&Account::Gateway).await.unwrap().tools.entries().is_empty(),
        "no tools is no fault"
    );

    upstream.behave("tools/list", Behaviour::Echo);
    for behaviour in [error(-32601), Behaviour::Reset, Behaviour::HalfJson, result(r#"{"instructions":7}"#)] {
        upstream.behave("server/discover", behaviour);
        let listing = backend(&upstream.url()).list(&Account::Gateway).await.unwrap();
        assert_eq!((listing.tools.entries().len(), listing.instructions), (1, None));
    }
    upstream.behave("server/discover", Behaviour::Error(403, "{}".into()));
    assert!(matches!(
        backend(&upstream.url()).list(&Account::Gateway).await,
        Err(BackendError::Unauthorized)
    ));
}

#[tokio::test]
async fn a_list_that_hangs_ends_with_its_time() {
    let upstream = Upstream::start().await;
    upstream.behave("tools/list", Behaviour::Hang).behave("server/discover", Behaviour::Hang);
    let limits = Limits { list_time: Duration::from_millis(200), ..Limits::default() };
    let backend = backend_of(config(&upstream.url()), limits);
    let error = backend.list(&Account::Gateway).await.unwrap_err();
    assert!(matches!(error, BackendError::TimedOut { clock: Clock::Total, sent: true }), "{error:?}");
    upstream.behave("tools/list", Behaviour::Echo);
    let listing = backend.list(&Account::Gateway).await.unwrap();
    assert_eq!((listing.tools.entries().len(), listing.instructions), (1, None), "discovery may hang");
}

fn names(listed: &Listed, key: &str) -> Vec<String> {
    listed.entries().iter().map(|entry| entry.member(key).unwrap().string().unwrap()).collect()
}

/// A server that has one of everything.
async fn full() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.prompt("greet", r#"{"name":"greet"}"#);
    upstream.resource("x://1", r#"{"uri":"x://1","name":"one"}"#);
    upstream.resource("x://2", r#"{ "uri":"x://2", "name":"two", "size":1e400 }"#);
    upstream.template("x://{n}", r#"{"uriTemplate":"x://{n}","name":"n"}"#);
    upstream
}

#[tokio::test]
async fn every_list_is_listed_page_by_page() {
    let upstream = full().await;
    upstream.page_size(1);
    let listing = backend(&upstream.url()).list(&Account::Gateway).await.unwrap();
    assert_eq!(names(&listing.tools, "name"), ["echo"]);
    assert_eq!(names(&listing.prompts, "name"), ["greet"]);
    assert_eq!(names(&listing.resources, "uri"), ["x://1", "x://2"]);
    assert_eq!(listing.resources.entries()[1].text(), r#"{ "uri":"x://2", "name":"two", "size":1e400 }"#);
    assert_eq!(names(&listing.templates, "uriTemplate"), ["x://{n}"]);
    assert!(listing.is_complete() && listing.failed.is_empty());
    let limits = Limits {
        upstream_prompts: 1,
        upstream_resources: 2,
        upstream_templates: 3,
        upstream_tools: 4,
        ..Limits::default()
    };
    for (list, most) in [(List::Prompts, 1), (List::Resources, 2), (List::Templates, 3), (List::Tools, 4)] {
        let upstream = full().await;
        for n in 0..5 {
            upstream.tool(&format!("t{n}"), &format!(r#"{{"name":"t{n}"}}"#));
            upstream.prompt(&format!("p{n}"), &format!(r#"{{"name":"p{n}"}}"#));
            upstream.resource(&format!("r{n}"), &format!(r#"{{"uri":"x:{n}"}}"#));
            upstream.template(&format!("u{n}"), &format!(r#"{{"uriTemplate":"x:{n}{{a}}"}}"#));
        }
        let listing =
            backend_of(config(&upstream.url()), limits.clone()).list(&Account::Gateway).await.unwrap();
        let listed = listing.of(list);
        assert_eq!(listed.entries().len(), most, "{list:?}");
        assert_eq!(listed.truncated(), Some("it has more entries than are taken from one backend"));
    }
}

// DV-02
#[tokio::test]
async fn what_is_not_advertised_is_not_asked_for() {
    let upstream = full().await;
    let asked = |method: &str| {
        let requests = upstream.requests();
        requests.iter().filter(|request| request.header("mcp-method") == [method]).count()
    };
    upstream.capabilities(r#"{"prompts":{},"resources":false}"#);
    let listing = backend(&upstream.url()).list(&Account::Gateway).await.unwrap();
    assert_eq!(names(&listing.prompts, "name"), ["greet"]);
    assert_eq!([&listing.tools, &listing.resources, &listing.templates], [&Listed::Absent; 3]);
    assert_eq!((asked("tools/list"), asked("resources/list"), asked("resources/templates/list")), (0, 0, 0));
    assert!(listing.is_complete());
    // Who does not tell is asked for everything, and has what it does not refuse.
    let none = || Behaviour::Error(404, r#"{"code":-32601,"message":"m"}"#.to_owned());
    upstream.behave("server/discover", none()).behave("resources/templates/list", none());
    let listing = backend(&upstream.url()).list(&Account::Gateway).await.unwrap();
    assert_eq!(names(&listing.tools, "name"), ["echo"]);
    assert_eq!(names(&listing.resources, "uri"), ["x://1", "x://2"]);
    assert_eq!(listing.templates, Listed::Absent);
}

#[tokio::test]
async fn one_list_that_fails_takes_no_other_away() {
    for behaviour in [
        Behaviour::Hang,
        Behaviour::Reset,
        Behaviour::HalfJson,
        Behaviour::Result("{}".to_owned()),
        Behaviour::Error(500, r#"{"code":-32603,"message":"m"}"#.to_owned()),
        Behaviour::Error(401, "{}".to_owned()),
    ] {
        for list in List::ALL {
            let upstream = full().await;
            upstream.behave(list.method().name(), behaviour.clone());
            let limits = Limits { list_time: Duration::from_millis(500), ..Limits::default() };
            let listing = backend_of(config(&upstream.url()), limits).list(&Account::Gateway).await.unwrap();
            let failed: Vec<_> = listing.failed.iter().map(|(list, _)| *list).collect();
            assert_eq!(failed, [list], "{behaviour:?}");
            for other in List::ALL {
                assert_eq!(listing.of(other).is_known(), other != list, "{behaviour:?} {list:?} {other:?}");
            }
            assert!(!listing.is_complete());
        }
    }
    let upstream = full().await;
    List::ALL.iter().for_each(|list| {
        upstream.behave(list.method().name(), Behaviour::Reset);
    });
    assert!(backend(&upstream.url()).list(&Account::Gateway).await.is_err(), "nothing at all is a failure");
}
