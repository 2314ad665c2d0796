//! Step 1: what hyper lets through and we do not. Pure; `accept` has enforced time before.

use http::HeaderMap;
use http::HeaderName;
use http::Method;
use http::Version;
use http::header::CONTENT_LENGTH;
use http::header::TRANSFER_ENCODING;
use http::request::Parts;

use crate::edge::EdgeError;
use crate::model::limits::Limits;

/// Proves that the head is within `limits` and says unambiguously where its body ends.
///
/// hyper drops a `Content-Length` beside a `Transfer-Encoding` before we see it, so `accept`
/// closes the connection after every chunked request.
pub fn check(parts: &Parts, limits: &Limits) -> Result<(), EdgeError> {
    if parts.version != Version::HTTP_11 {
        return Err(EdgeError::HttpVersion);
    }
    let target = target_bytes(parts);
    if target > limits.target_bytes {
        return Err(EdgeError::TargetTooLong);
    }
    if parts.headers.len() > limits.header_fields || head_bytes(parts, target) > limits.head_bytes {
        return Err(EdgeError::HeadTooLarge);
    }
    // spec: RFC 9112 6.1: a coding that is not understood is not guessed at.
    match values(&parts.headers, &TRANSFER_ENCODING).as_slice() {
        [] => {}
        [_] if parts.headers.contains_key(CONTENT_LENGTH) => {
            return Err(EdgeError::BadFraming("Transfer-Encoding and Content-Length together"));
        }
        [one] if one.eq_ignore_ascii_case(b"chunked") => {}
        _ => return Err(EdgeError::BadFraming("Transfer-Encoding is not exactly `chunked`")),
    }
    if values(&parts.headers, &CONTENT_LENGTH).len() > 1 {
        return Err(EdgeError::BadFraming("Content-Length is sent more than once"));
    }
    target_form(parts)
}

/// The forms of RFC 9112 3.2: origin and absolute for everybody, asterisk for OPTIONS alone.
fn target_form(parts: &Parts) -> Result<(), EdgeError> {
    match parts.method {
        Method::CONNECT => return Err(EdgeError::BadFraming("this is no tunnel")),
        // spec: RFC 9110 9.3.8: never reflect what may hold credentials.
        Method::TRACE => return Err(EdgeError::MethodNotAllowed { allow: "POST" }),
        _ => {}
    }
    let path = parts.uri.path();
    let asterisk = path == "*" && parts.method == Method::OPTIONS;
    if path.starts_with('/') || asterisk {
        Ok(())
    } else {
        Err(EdgeError::BadFraming("the request target is no path"))
    }
}

fn target_bytes(parts: &Parts) -> usize {
    let origin = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let scheme = parts.uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    origin + scheme + parts.uri.authority().map_or(0, |authority| authority.as_str().len())
}

fn head_bytes(parts: &Parts, target: usize) -> usize {
    let line = parts.method.as_str().len() + target + "  HTTP/1.1\r\n".len();
    let fields = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + fields.sum::<usize>() + "\r\n".len()
}

fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::check;
    use crate::edge::EdgeError;
    use crate::model::limits::Limits;

    fn of(request: http::request::Builder) -> Result<(), EdgeError> {
        let limits = Limits { head_bytes: 400, target_bytes: 40, header_fields: 5, ..Limits::default() };
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, &limits)
    }

    #[test]
    fn only_one_way_to_frame_a_body_is_taken() {
        let post = || Request::post("/mcp").header("host", "a");
        assert_eq!(of(post()), Ok(()));
        assert_eq!(of(post().header("content-length", "5")), Ok(()));
        assert_eq!(of(post().header("transfer-encoding", "Chunked")), Ok(()));
        for coding in ["gzip, chunked", "xchunked", "chunked, chunked", "identity", ""] {
            let refused = of(post().header("transfer-encoding", coding));
            assert!(matches!(refused, Err(EdgeError::BadFraming(_))), "{coding}: {refused:?}");
        }
        for (a, b) in [("transfer-encoding", "content-length"), ("content-length", "content-length")] {
            let refused = of(post().header(a, "chunked").header(b, "5"));
            assert!(matches!(refused, Err(EdgeError::BadFraming(_))), "{a}, {b}: {refused:?}");
        }
        let twice = post().header("transfer-encoding", "chunked").header("transfer-encoding", "chunked");
        assert!(matches!(of(twice), Err(EdgeError::BadFraming(_))));
    }

    #[test]
    fn a_head_is_counted_whole() {
        let long = "x".repeat(300);
        assert_eq!(of(Request::post("/mcp").header("a", &long)), Ok(()));
        let refused = of(Request::post("/mcp").header("a", &long).header("b", &long[..80]));
        assert_eq!(refused, Err(EdgeError::HeadTooLarge));
        assert_eq!(of(Request::get(format!("/{}", &long[..39]))), Ok(()));
        assert_eq!(of(Request::get(format!("/{}", &long[..40]))), Err(EdgeError::TargetTooLong));
        let fields = |n: usize| (0..n).fold(Request::get("/"), |r, i| r.header(format!("x-{i}"), "1"));
        assert_eq!(of(fields(5)), Ok(()));
        assert_eq!(of(fields(6)), Err(EdgeError::HeadTooLarge));
    }

    #[test]
    fn targets_are_paths() {
        assert_eq!(of(Request::post("http://a/mcp")), Ok(()));
        assert_eq!(of(Request::options("*")), Ok(()));
        assert!(matches!(of(Request::post("*")), Err(EdgeError::BadFraming(_))));
        assert!(matches!(of(Request::connect("evil.example:443")), Err(EdgeError::BadFraming(_))));
        assert!(matches!(of(Request::post("evil.example:443")), Err(EdgeError::BadFraming(_))));
        assert_eq!(of(Request::trace("/mcp")), Err(EdgeError::MethodNotAllowed { allow: "POST" }));
        assert_eq!(of(Request::get("/").version(http::Version::HTTP_10)), Err(EdgeError::HttpVersion));
    }
}
