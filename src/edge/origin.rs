//! Steps 2 and 3: which authority a request is for, and which web origin it comes from.
//!
//! Whether an authority or an origin is *known* is the directory's to say; here they are
//! only proven to be one, whole and well-formed.

use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::header;
use http::request::Parts;

use crate::edge::EdgeError;

const EXPOSED: HeaderValue =
    HeaderValue::from_static("WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version, Retry-After");
const ALLOWED: &str = "authorization, content-type, accept, mcp-protocol-version, mcp-method, mcp-name, \
                       mcp-session-id, last-event-id, traceparent, tracestate";
const PARAM_PREFIX: &str = "mcp-param-";
const MAX_PARAM_HEADERS: usize = 32;
const MAX_AUTHORITY: usize = 255;
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");
const PREFLIGHT_VARY: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers");

/// The one authority that the request is for, `host[:port]` in lower case.
///
/// The port stays as sent and a trailing dot stays: both make it another name, which the
/// directory then knows or does not.
// spec: RFC 9112 3.2: a request with no Host, or more than one, is answered 400.
pub fn authority(parts: &Parts) -> Result<String, EdgeError> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(EdgeError::BadHost("exactly one Host is needed"));
    };
    let host = host.to_str().ok().filter(|host| is_authority(host));
    let host = host.ok_or(EdgeError::BadHost("Host is no `host[:port]`"))?;
    match parts.uri.authority() {
        Some(other) if !other.as_str().eq_ignore_ascii_case(host) => {
            Err(EdgeError::BadHost("Host differs from the request target"))
        }
        _ => Ok(host.to_ascii_lowercase()),
    }
}

/// The origin that the request names, if it names one. Refused when it names several, `null`,
/// nothing, or what is no serialised origin.
pub fn origin(headers: &HeaderMap) -> Result<Option<&str>, EdgeError> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => {
            let one = one.to_str().ok().filter(|one| is_origin(one));
            one.map(Some).ok_or(EdgeError::ForbiddenOrigin)
        }
        _ => Err(EdgeError::ForbiddenOrigin),
    }
}

/// Steps 2 and 3 in one: the authority, then the origin, each as `known` says.
pub fn admit(
    parts: &Parts,
    known_host: impl FnOnce(&str) -> bool,
    known_origin: impl FnOnce(&str, &str) -> bool,
) -> Result<(String, Option<&str>), EdgeError> {
    let authority = authority(parts)?;
    if !known_host(&authority) {
        return Err(EdgeError::UnknownHost);
    }
    match origin(&parts.headers)? {
        Some(origin) if !known_origin(&authority, origin) => Err(EdgeError::ForbiddenOrigin),
        origin => Ok((authority, origin)),
    }
}

/// Whether the request is a browser's question before a cross-origin request.
pub fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS && parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Lets the page of an admitted `origin` read the answer, an error's too.
///
/// Credentials (cookies) are never allowed, and the answer is never for everybody.
pub fn cors_headers(origin: &str, headers: &mut HeaderMap) {
    let Ok(value) = HeaderValue::from_str(origin) else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// Answers the preflight in `request` for an admitted `origin`: `methods`, the headers that MCP
/// uses, and those `Mcp-Param-*` that were asked for.
pub fn preflight_headers(origin: &str, methods: &'static str, request: &HeaderMap, headers: &mut HeaderMap) {
    let Ok(value) = HeaderValue::from_str(origin) else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let mut allowed = ALLOWED.to_owned();
    for name in asked_params(request) {
        allowed.push_str(", ");
        allowed.push_str(&name);
    }
    if let Ok(allowed) = HeaderValue::from_str(&allowed) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
    headers.insert(header::VARY, PREFLIGHT_VARY);
}

fn asked_params(request: &HeaderMap) -> Vec<String> {
    let lists = request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| name.starts_with(PARAM_PREFIX) && http::HeaderName::try_from(name.as_str()).is_ok())
        .take(MAX_PARAM_HEADERS)
        .collect()
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let mut scheme = scheme.bytes();
    scheme.next().is_some_and(|b| b.is_ascii_lowercase())
        && scheme.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
        && is_authority(authority)
}

fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    let port_holds =
        port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    text.len() <= MAX_AUTHORITY && port_holds && is_host(host)
}

fn is_host(host: &str) -> bool {
    if let Some(literal) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return literal.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::Request;

    use super::authority;
    use super::cors_headers;
    use super::origin;
    use super::preflight_headers;
    use crate::edge::EdgeError;

    fn host(uri: &str, hosts: &[&str]) -> Option<String> {
        let request = hosts.iter().fold(Request::get(uri), |request, host| request.header("host", *host));
        let found = authority(&request.body(()).unwrap().into_parts().0);
        match found {
            Ok(found) => Some(found),
            Err(EdgeError::BadHost(_)) => None,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_well_formed_host_is_taken() {
        for good in ["a.example", "a.example:8080", "127.0.0.1:1", "[::1]", "[::1]:8080", "a.example."] {
            assert_eq!(host("/mcp", &[good]).as_deref(), Some(good));
        }
        assert_eq!(host("/mcp", &["A.Example"]).as_deref(), Some("a.example"));
        let bad =
            ["", ":80", "a:", "a:99999", "a:+1", "a:1:2", "u@a", "a/x?y", "a#x", "a b", "[::1", "[x]", "::1"];
        for bad in bad {
            assert_eq!(host("/mcp", &[bad]), None, "{bad}");
        }
        assert_eq!(host("/mcp", &[]), None);
        assert_eq!(host("/mcp", &["a", "a"]), None);
    }

    #[test]
    fn an_absolute_target_agrees_with_the_host() {
        assert_eq!(host("http://a:1/mcp", &["A:1"]).as_deref(), Some("a:1"));
        assert_eq!(host("http://evil/mcp", &["a"]), None);
        assert_eq!(host("http://u@a/mcp", &["a"]), None);
    }

    #[test]
    fn one_serialised_origin_is_taken() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("origin", value.parse().unwrap());
            }
            origin(&headers).map(|found| found.map(str::to_owned))
        };
        assert_eq!(of(&[]), Ok(None));
        for good in ["https://app.example", "http://localhost:6274", "vscode-webview://x", "http://[::1]:1"] {
            assert_eq!(of(&[good]), Ok(Some(good.to_owned())));
        }
        for bad in
            ["", "null", "https://a/", "https://a/x", "https://u@a", "a.example", "HTTPS://a", "https://"]
        {
            assert_eq!(of(&[bad]), Err(EdgeError::ForbiddenOrigin), "{bad}");
        }
        assert_eq!(of(&["https://a", "https://a"]), Err(EdgeError::ForbiddenOrigin));
    }

    #[test]
    fn answers_never_allow_everybody_or_cookies() {
        let mut request = HeaderMap::new();
        let asked = "X-Evil, Mcp-Param-Region, content-type, mcp-param-bad name";
        request.insert("access-control-request-headers", asked.parse().unwrap());
        let mut answer = HeaderMap::new();
        preflight_headers("https://a", "POST", &request, &mut answer);
        assert_eq!(answer["access-control-allow-origin"], "https://a");
        let allowed = answer["access-control-allow-headers"].to_str().unwrap();
        assert!(allowed.ends_with("tracestate, mcp-param-region"), "{allowed}");
        let mut error = HeaderMap::new();
        cors_headers("https://a", &mut error);
        assert_eq!(
            (&error["access-control-allow-origin"], &error["vary"]),
            (&"https://a".parse().unwrap(), &"Origin".parse().unwrap())
        );
        for headers in [answer, error] {
            assert!(!headers.contains_key("access-control-allow-credentials"));
        }
    }
}
