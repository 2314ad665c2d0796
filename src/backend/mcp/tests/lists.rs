//! Listing: all pages, and no more than the limits.

use std::time::Duration;

use super::backend;
use super::backend_of;
use super::config;
use super::upstream::Behaviour;
use super::upstream::Upstream;
use crate::backend::BackendError;
use crate::backend::clock::Clock;
use crate::model::limits::Limits;
use crate::protocol::json::Json;

#[tokio::test]
async fn all_pages_are_listed_and_tools_stay_as_they_came() {
    let upstream = Upstream::start().await;
    let odd = r#"{ "name":"odd", "inputSchema":{"type":"object","maximum":1e400}, "new":null }"#;
    upstream.tool("odd", odd).tool("third", r#"{"name":"third"}"#).page_size(1).instructions("Be kind.");
    let listing = backend(&upstream.url()).list().await.unwrap();
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
        let listing = backend_of(config(&upstream.url()), limits).list().await.unwrap();
        assert_eq!((listing.tools.entries().len(), listing.tools.truncated()), (tools, Some(why)));
    }
    upstream.behave("tools/list", Behaviour::EndlessPages);
    let short = Limits { upstream_bytes: 300, ..tiny.clone() };
    let listing = backend_of(config(&upstream.url()), short).list().await.unwrap();
    assert_eq!(listing.tools.truncated(), Some("it is larger than is taken from one backend"));
    assert!((2..7).contains(&listing.tools.entries().len()), "{}", listing.tools.entries().len());
    let error = backend_of(config(&upstream.url()), tiny).list().await.unwrap_err();
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
        (result(r#"{"resultType":"input_required"}"#), "with `input_required`"),
        (error(-32602), "with an error"),
        (error(-32020), "with an error"),
        (Behaviour::Error(401, "{}".into()), "Unauthorized"),
    ] {
        let shown = format!("{behaviour:?}");
        upstream.behave("tools/list", behaviour);
        let error = backend(&upstream.url()).list().await.expect_err(&shown);
        assert!(format!("{error:?}").contains(expected), "{shown}: {error:?}");
    }
    for (ttl, expected) in [("-1", Some(0)), ("1e18", Some(3_600_000)), ("1.5", Some(1)), ("\"1\"", None)] {
        upstream.behave("tools/list", result(&format!(r#"{{"tools":[],"nextCursor":null,"ttlMs":{ttl}}}"#)));
        assert_eq!(backend(&upstream.url()).list().await.unwrap().ttl_ms, expected, "{ttl}");
    }
    upstream.behave("tools/list", error(-32601));
    assert!(
        backend(&upstream.url()).list().await.unwrap().tools.entries().is_empty(),
        "no tools is no fault"
    );

    upstream.behave("tools/list", Behaviour::Echo);
    for behaviour in [error(-32601), Behaviour::Reset, Behaviour::HalfJson, result(r#"{"instructions":7}"#)] {
        upstream.behave("server/discover", behaviour);
        let listing = backend(&upstream.url()).list().await.unwrap();
        assert_eq!((listing.tools.entries().len(), listing.instructions), (1, None));
    }
    upstream.behave("server/discover", Behaviour::Error(403, "{}".into()));
    assert!(matches!(backend(&upstream.url()).list().await, Err(BackendError::Unauthorized)));
}

#[tokio::test]
async fn a_list_that_hangs_ends_with_its_time() {
    let upstream = Upstream::start().await;
    upstream.behave("tools/list", Behaviour::Hang).behave("server/discover", Behaviour::Hang);
    let limits = Limits { list_time: Duration::from_millis(200), ..Limits::default() };
    let backend = backend_of(config(&upstream.url()), limits);
    let error = backend.list().await.unwrap_err();
    assert!(matches!(error, BackendError::TimedOut { clock: Clock::Total, sent: true }), "{error:?}");
    upstream.behave("tools/list", Behaviour::Echo);
    let listing = backend.list().await.unwrap();
    assert_eq!((listing.tools.entries().len(), listing.instructions), (1, None), "discovery may hang");
}
