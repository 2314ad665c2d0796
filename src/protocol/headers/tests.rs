//! Tables of header values.

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;

use crate::protocol::headers::Mismatch;
use crate::protocol::headers::Single;
use crate::protocol::headers::decode_value;
use crate::protocol::headers::encode_value;
use crate::protocol::headers::mirrored;
use crate::protocol::headers::single;

#[test]
fn a_header_is_counted_before_it_is_read() {
    let mut headers = HeaderMap::new();
    let name = HeaderName::from_static("mcp-name");
    assert_eq!(single(&headers, "Mcp-Name"), Single::Zero);
    headers.append(&name, HeaderValue::from_static("a"));
    assert_eq!(single(&headers, "Mcp-Name"), Single::One(&HeaderValue::from_static("a")));
    assert_eq!(single(&headers, &name), Single::One(&HeaderValue::from_static("a")));
    headers.append(&name, HeaderValue::from_static("a"));
    assert_eq!(single(&headers, "Mcp-Name"), Single::Many);
}

#[test]
fn only_an_exact_sentinel_is_decoded() {
    let undecodable = Err(Mismatch::Undecodable);
    for (value, expected) in [
        (&b"echo"[..], Ok("echo")),
        (b" \techo\t ", Ok("echo")),
        (b"", Ok("")),
        (b"a b\tc", Ok("a b\tc")),
        (b"=?base64?ZWNobw==?=", Ok("echo")),
        (b"=?base64??=", Ok("")),
        (b"=?base64?5pel5pys6Kqe?=", Ok("日本語")),
        (b"=?base64?IHBhZGRlZCA=?=", Ok(" padded ")),
        // Half a sentinel, or one in another case, is literal text.
        (b"=?base64?ZWNobw==", Ok("=?base64?ZWNobw==")),
        (b"ZWNobw==?=", Ok("ZWNobw==?=")),
        (b"=?base64?=", Ok("=?base64?=")),
        (b"=?BASE64?ZWNobw==?=", Ok("=?BASE64?ZWNobw==?=")),
        (b"x=?base64?ZWNobw==?=", Ok("x=?base64?ZWNobw==?=")),
        // Not canonical: padding, alphabet, trailing bits, white space, UTF-8.
        (b"=?base64?ZWNobw?=", undecodable),
        (b"=?base64?ZWNobw=?=", undecodable),
        (b"=?base64?ZWNobw===?=", undecodable),
        (b"=?base64?ZWN!obw==?=", undecodable),
        (b"=?base64?ZGVtbzovL25vdGUvMT8_?=", undecodable),
        (b"=?base64?ZWNobx==?=", undecodable),
        (b"=?base64? ZWNobw==?=", undecodable),
        (b"=?base64?literal?=", undecodable),
        (b"=?base64?//4=?=", undecodable),
        (b"=?base64?wK8=?=", undecodable),
        (b"\xc3\xa9", undecodable),
    ] {
        let value = HeaderValue::from_bytes(value).unwrap();
        assert_eq!(decode_value(&value).as_deref(), expected.as_ref().copied(), "{value:?}");
    }
}

#[test]
fn what_is_encoded_decodes_to_itself() {
    for (text, expected) in [
        ("us-west1", "us-west1"),
        ("a b\tc~!", "a b\tc~!"),
        ("=?base64?dXM=", "=?base64?dXM="),
        ("", "=?base64??="),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("tab\t", "=?base64?dGFiCQ==?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("\u{7f}", "=?base64?fw==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
    ] {
        let value = encode_value(text);
        assert_eq!(value, expected);
        assert_eq!(decode_value(&value).unwrap(), text);
    }
}

#[test]
fn parameter_headers_are_kept_with_their_repeats() {
    let mut headers = HeaderMap::new();
    for (name, value) in [("mcp-param-a", "1"), ("mcp-param-a", "2"), ("mcp_param_b", "3"), ("mcp-name", "4")]
    {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let kept: Vec<_> = mirrored(&headers).into_iter().map(|(_, value)| value).collect();
    assert_eq!(kept, ["1", "2"]);
}
