//! Tables of `Content-Type`, `Content-Encoding` and `Accept`.

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;

use crate::protocol::ProtocolError;
use crate::protocol::media::Accept;
use crate::protocol::media::check;

fn headers(fields: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

#[test]
fn the_body_is_declared_as_json_once_and_plain() {
    for (types, taken) in [
        (&["application/json"][..], true),
        (&["APPLICATION/JSON; charset=utf-8"], true),
        (&["application/json;charset=\"utf-8\""], true),
        (&["application/json ;x"], true),
        (&[], false),
        (&[""], false),
        (&["application/json", "application/json"], false),
        (&["application/json", "text/plain"], false),
        (&["application/json, text/plain"], false),
        (&["text/plain; application/json"], false),
        (&["application/jsonx"], false),
        (&["application/json-rpc"], false),
        (&["application/vnd.x+json"], false),
        (&["multipart/form-data; boundary=x"], false),
        (&["application/json\u{e9}"], false),
    ] {
        let fields: Vec<_> = types.iter().map(|value| ("content-type", value.as_bytes())).collect();
        let verdict = check(&headers(&fields));
        assert_eq!(verdict.is_ok(), taken, "{types:?}");
        assert!(taken || matches!(verdict, Err(ProtocolError::UnsupportedMedia(_))), "{types:?}");
    }
    for coding in ["gzip", "identity", ""] {
        let fields = [("content-type", &b"application/json"[..]), ("content-encoding", coding.as_bytes())];
        assert!(matches!(check(&headers(&fields)), Err(ProtocolError::UnsupportedMedia(_))), "{coding}");
    }
}

#[test]
fn the_most_specific_range_decides_what_is_taken() {
    let (both, json, sse) = ((true, true), (true, false), (false, true));
    for (ranges, expected) in [
        (&[][..], Some(both)),
        (&[""], Some(both)),
        (&["*/*"], Some(both)),
        (&["*/*;q=0.1"], Some(both)),
        (&["application/json, text/event-stream"], Some(both)),
        (&["application/json", "text/event-stream"], Some(both)),
        (&["Text/Event-Stream ; q=0.5,APPLICATION/JSON"], Some(both)),
        (&["application/json"], Some(json)),
        (&["application/*"], Some(json)),
        (&["application/json;charset=utf-8"], Some(json)),
        (&["text/event-stream"], Some(sse)),
        (&["text/*, text/html"], Some(sse)),
        (&["*/*, text/event-stream;q=0"], Some(json)),
        (&["text/event-stream; q=0.000, */*"], Some(json)),
        (&["application/*;Q=0, */*"], Some(sse)),
        (&["application/*;q=0, application/json"], Some(json)),
        (&["application/json;q=0.001"], Some(json)),
        (&["application/json;q=0"], None),
        (&["*/*;q=0"], None),
        (&["text/html"], None),
        (&["application/jsonx, text/event-streams"], None),
        (&["*/json"], None),
        (&["nonsense"], None),
        (&["application/json\u{e9}"], None),
    ] {
        let mut fields = vec![("content-type", &b"application/json"[..])];
        fields.extend(ranges.iter().map(|value| ("accept", value.as_bytes())));
        match (check(&headers(&fields)), expected) {
            (Ok(Accept { json, sse }), Some(expected)) => assert_eq!((json, sse), expected, "{ranges:?}"),
            (Err(ProtocolError::NotAcceptable(_)), None) => {}
            (verdict, _) => panic!("{ranges:?}: {verdict:?}"),
        }
    }
}
