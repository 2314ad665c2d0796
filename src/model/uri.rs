//! How URIs of resources may be written, and what rules about them are compared with.
//!
//! Which resource a URI means is its server's to say, and servers ignore much: `new URL(…)` alone makes
//! one of many spellings. So where scopes hang on a URI, what no list shows is read under one spelling
//! only, the plain one ([`is_plain`]). What differs between plain spellings is few things, and rules are
//! compared with all of them ([`Reading::forms`]).

use url::Url;

/// Layers of percent-encoding that are looked through. URIs with more are refused everywhere.
pub const LAYERS: usize = 4;

/// What separates the parts of a URI, and is a part's text where it is encoded.
const DELIMITERS: &[u8] = b"/?#";

/// Schemes whose URIs end in `/` where there is no path, as every parser of the web writes them.
const ROOTED: [&str; 6] = ["file", "ftp", "http", "https", "ws", "wss"];

/// What may stand in the place of a glob's `*` and `?`, one pair at a time.
const FILLINGS: [(&str, &str); 7] =
    [("x", "x"), ("1", "1"), ("", "x"), ("/x", "x"), ("x/x", "x"), ("//x/x", "x"), ("///x", "x")];

/// How a server may go about percent-encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// First the parts, then what is encoded in each.
    Parts,
    /// First what is encoded, then the parts.
    Whole,
}

impl Reading {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Parts, Self::Whole];

    /// A URI, or a rule or template about URIs, read so: decoded, and in lower case. What matches
    /// before does so afterwards.
    pub fn of(self, text: &str) -> String {
        let (kept, layers): (&[u8], _) = match self {
            Self::Parts => (DELIMITERS, 1),
            Self::Whole => (b"", LAYERS),
        };
        let bytes = (0..layers).fold(text.as_bytes().to_vec(), |bytes, _| decode_but(&bytes, kept));
        String::from_utf8_lossy(&bytes).to_ascii_lowercase()
    }

    /// What a rule, read so, is compared with: the URI as it is written, and as it would be plain; each
    /// also without what follows the path, without a user, and without a port.
    pub fn forms(self, uri: &str) -> Vec<String> {
        let written = self.of(uri);
        let mut forms = vec![tidy(&written), written];
        forms.extend(Url::parse(uri).ok().map(|url| tidy(&self.of(url.as_str()))));
        for form in 0..forms.len() {
            forms.extend(forms[form].find(['?', '#']).map(|end| forms[form][..end].to_owned()));
        }
        for form in 0..forms.len() {
            let bare = [false, true].map(|port| without_user(&forms[form], port));
            forms.extend(bare.into_iter().flatten());
        }
        forms.sort_unstable();
        forms.dedup();
        forms
    }
}

/// Whether a URI is spelt in the one way that is taken where scopes hang on it: as the WHATWG's parser
/// writes it, but for the case of letters; with sound percent-encoding, of text that can be seen, once;
/// without user, fragment, host of a file, and `;`; and without an empty segment, encoded or not.
pub fn is_plain(uri: &str) -> bool {
    let lower = uri.to_ascii_lowercase();
    let is_written_so = |url: Url| {
        url.as_str() == lower
            && (url.host_str().is_some_and(|host| !host.is_empty()) || !url.path().is_empty())
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    lower.bytes().all(|byte| byte.is_ascii_graphic())
        && Url::parse(&lower).is_ok_and(is_written_so)
        && is_encoded_once(uri)
        && Reading::ALL.map(|reading| reading.of(uri)).iter().all(|text| tidy(text) == *text)
}

/// Whether a glob over URIs is plain, so that it can be the rule for a plain URI. One that does not
/// begin with a scheme says nothing about spelling.
pub fn is_plain_glob(glob: &str) -> bool {
    let text = filled(glob);
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.?".contains(&byte);
    if scheme.is_empty() || !scheme.bytes().all(legal) {
        return true;
    }
    FILLINGS.iter().any(|(many, one)| is_plain(&text.replace('*', many).replace('?', one)))
}

/// A template's text with something plain in place of each expression.
fn filled(text: &str) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, (_, after))) =
        rest.split_once('{').and_then(|(before, inside)| Some((before, inside.split_once('}')?)))
    {
        filled.push_str(before);
        filled.push('x');
        rest = after;
    }
    filled + rest
}

/// `text` with one layer of percent-encoding less.
pub fn decode(text: &[u8]) -> Vec<u8> {
    decode_but(text, b"")
}

/// `text` as one segment of a path: everything but letters, digits and `-._~` percent-encoded.
// spec: RFC 3986, 2.3
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// [`decode`], but for these bytes.
fn decode_but(text: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let encoded = encoded(text, at).filter(|byte| !kept.contains(byte));
        decoded.push(encoded.unwrap_or(*byte));
        at += if encoded.is_some() { 3 } else { 1 };
    }
    decoded
}

/// The byte that is percent-encoded at this place.
fn encoded(text: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let percent = text.get(at) == Some(&b'%');
    let (high, low) = (digit(at + 1)?, digit(at + 2)?);
    u8::try_from(high * 16 + low).ok().filter(|_| percent)
}

/// Whether each `%` of a URI begins an encoded byte, these are text that can be seen, and are not
/// encoded again.
fn is_encoded_once(uri: &str) -> bool {
    let bytes = uri.as_bytes();
    let sound = (0..bytes.len()).all(|at| bytes[at] != b'%' || encoded(bytes, at).is_some());
    let decoded = decode(bytes);
    sound
        && decode(&decoded) == decoded
        && String::from_utf8(decoded).is_ok_and(|text| !text.contains(char::is_control))
}

/// A text read of a URI with the parts that [`is_plain`] wants: no empty segments, nothing behind a `;`
/// in one, no dot behind a host, no host of a file.
fn tidy(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once(':') else { return text.to_owned() };
    let (rest, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let mut tidy = format!("{scheme}:");
    if rest.starts_with('/') {
        let undotted = authority.split(':').map(|piece| piece.trim_end_matches('.'));
        tidy.push_str("//");
        tidy.push_str(&if scheme == "file" { String::new() } else { undotted.collect::<Vec<_>>().join(":") });
    }
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    let segments: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
    let rooted = rest.starts_with('/') && (!segments.is_empty() || ROOTED.contains(&scheme));
    if rooted {
        tidy.push('/');
    }
    tidy + &segments.join("/") + tail
}

/// A text read of a URI without the user in its authority, and without the port; `None` where it has
/// neither.
fn without_user(text: &str, port: bool) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let bare = match host.rsplit_once(':') {
        Some((bare, digits)) if port && digits.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host,
    };
    (bare != authority).then(|| format!("{scheme}://{bare}{path}"))
}

#[cfg(test)]
mod tests {
    use super::Reading;
    use super::is_plain;
    use super::is_plain_glob;

    #[test]
    fn one_spelling_is_plain() {
        for uri in [
            "file:///",
            "FILE:///Secret/a.b/..c",
            "file:///c:/x%20y",
            "https://host.example/",
            "https://host.example:8443/a?b=http://c//d&e=%2F",
            "note://Work",
            "note://caf%C3%A9/%2Ea",
            "note:///app",
            "user://alice%40example.com/a:b@c",
            "db://localhost:5432/public/rows",
            "urn:ISBN:1",
            "ui://widget/v1?q=a",
            "x://%23/%3F",
            "x://100%25/a",
            "x://[::1]/a",
        ] {
            assert!(is_plain(uri), "{uri}");
        }
        for uri in [
            "",
            "a",
            "x:",
            "x:/a",
            "x://",
            "x://a/",
            "x://a//b",
            "x:///",
            "x://a/%2fb",
            "x://a/b%2f",
            "x://a/b;c",
            "x://a/b%3Bc",
            "x://a.",
            "x://a./b",
            "x://a.:1/b",
            "x://a%2E/b",
            "x://u@a/b",
            "x://u:p@a/b",
            "x://@a/b",
            "x://a/b#",
            "x://a/b#c",
            "x://a/%",
            "x://a/%2",
            "x://a/%zz",
            "x://a/%2541",
            "x://a/%00",
            "x://a/%0A",
            "x://a/%c2%85",
            "x://a/%ff",
            "x://a/%c0%af",
            "x://caf\u{e9}",
            "x://a/caf\u{e9}",
            "x://a b",
            "x:a b",
            " x://a",
            "x://a\t",
            "file:a",
            "file:/a",
            "file://a/b",
            "file://localhost/b",
            "file://LOCALHOST/b",
            "file:////b",
            "https:a/b",
            "https:/a/b",
            "https://a",
            "https://a:443/",
            "https://%61/",
            "https://\u{ff41}/",
            "https://0x7f.1/",
            "https://a\\b",
        ] {
            assert!(!is_plain(uri), "{uri:?}");
        }
    }

    #[test]
    fn plain_uris_differ_in_few_things() {
        for (uri, parts, whole) in [
            ("x://A/%62", &["x://a/b"][..], &["x://a/b"][..]),
            ("x://a/b%2Fc", &["x://a/b%2fc"], &["x://a/b/c"]),
            (
                "x://a:1/b?c",
                &["x://a/b", "x://a/b?c", "x://a:1/b", "x://a:1/b?c"],
                &["x://a/b", "x://a/b?c", "x://a:1/b", "x://a:1/b?c"],
            ),
            ("x://a/b%3fc", &["x://a/b%3fc"], &["x://a/b", "x://a/b?c"]),
            ("x://u%40a/b", &["x://a/b", "x://u@a/b"], &["x://a/b", "x://u@a/b"]),
        ] {
            assert!(is_plain(uri), "{uri}");
            assert_eq!(Reading::Parts.forms(uri), parts, "{uri}");
            assert_eq!(Reading::Whole.forms(uri), whole, "{uri}");
        }
    }

    #[test]
    fn globs_that_can_be_a_plain_uris_are_plain() {
        for glob in [
            "*",
            "*.pem",
            "*://secret/*",
            "get_*",
            "file:*",
            "file://*",
            "file:///*",
            "file:///Secret/*",
            "https:*",
            "https://*",
            "https://host*",
            "https://*.example/?",
            "https://*:84??/*",
            "note://{id}",
            "note://{id}{?q}",
            "note://*{/x}/y?",
            "h*p://a",
            "ui://*",
            "s:*",
        ] {
            assert!(is_plain_glob(glob), "{glob}");
        }
        for glob in [
            "file://localhost/*",
            "file:/secret/*",
            "FILE:secret",
            "https://host",
            "https://host:443/*",
            "x://a/",
            "x://a*/",
            "x://a//*",
            "x://u@a/*",
            "x://a/b#c",
            "x://a/b;*",
            "x://caf\u{e9}/*",
            "note://{id}/",
        ] {
            assert!(!is_plain_glob(glob), "{glob}");
        }
    }
}
