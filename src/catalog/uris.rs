//! URIs of resources: which are taken, how they are shown, and what they need.

use std::sync::Arc;

use crate::catalog::text;
use crate::model::scope::Scopes;
use crate::model::tenant::Backend;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::ScopeRule;
use crate::model::tenant::Uris;
use crate::model::uri::LAYERS;
use crate::model::uri::Reading;
use crate::model::uri::decode;
use crate::policy::glob;
use crate::policy::scope;

/// What stands between a backend's name and its URI.
const JOINT: char = '+';

/// Why a URI is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriProblem {
    /// Over `limits.uri_bytes`.
    #[error("its URI is longer than {0} bytes")]
    Long(usize),
    /// A control, bidi, zero-width or other invisible character, or an encoded NUL.
    #[error("its URI has a character that cannot be seen")]
    Hidden,
    /// Not RFC 3986: relative, or without a scheme.
    #[error("its URI does not begin with a scheme")]
    NoScheme,
    /// `.` and `..` between separators, and backslashes, encoded or not: they lead elsewhere in a
    /// server that follows them.
    #[error("its URI has dot segments or backslashes")]
    Dots,
}

/// Judges a URI as its backend has it.
///
/// spec: server/resources, Security Considerations (Servers MUST validate all resource URIs)
pub fn check(own: &str, most: usize) -> Result<(), UriProblem> {
    if own.len() > most {
        return Err(UriProblem::Long(most));
    }
    if own.contains(text::is_hidden) {
        return Err(UriProblem::Hidden);
    }
    let scheme = scheme(own).ok_or(UriProblem::NoScheme)?;
    let mut bytes = own.as_bytes()[scheme.len() + 1..].to_vec();
    for _ in 0..LAYERS {
        if bytes.contains(&0) {
            return Err(UriProblem::Hidden);
        }
        if bytes.contains(&b'\\') || bytes.split(is_separator).any(is_dots) {
            return Err(UriProblem::Dots);
        }
        let decoded = decode(&bytes);
        if decoded == bytes {
            return Ok(());
        }
        bytes = decoded;
    }
    Err(UriProblem::Dots)
}

/// The scheme of a URI, without its colon.
///
/// spec: RFC 3986, section 3.1
pub fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(legal))
        .then_some(scheme)
}

/// The URI, or URI template, that clients know `own` by.
pub fn public_uri(backend: &Backend, own: &str) -> String {
    match backend.uris {
        Uris::Keep => own.to_owned(),
        Uris::Prefixed => format!("{}{JOINT}{own}", backend.name),
    }
}

/// The two parts of a URI that may be a prefixed one: a backend's name, if there is such a backend,
/// and its own URI.
pub fn split(public: &str) -> Option<(&str, &str)> {
    public.split_once(JOINT)
}

/// The backend whose URIs begin with `name`.
pub fn owner<'b>(backends: &'b [Arc<Backend>], name: &str) -> Option<&'b Arc<Backend>> {
    backends.iter().find(|backend| backend.uris == Uris::Prefixed && backend.name.as_str() == name)
}

/// Whether what a resource of this backend needs hangs on its URI.
pub fn is_guarded(backend: &Backend) -> bool {
    let speaks = |rule: &ScopeRule| rule.kind.is_none_or(|kind| kind == ObjectKind::Resource);
    backend.scopes.iter().any(|rule| speaks(rule) && rule.glob.bytes().any(|byte| byte != b'*'))
}

/// What a resource or template needs: what rules say of any form of its URI.
pub fn needed(backend: &Backend, own: &str) -> Scopes {
    let mut needs = scope::needed(backend, ObjectKind::Resource, own);
    if is_guarded(backend) {
        for reading in Reading::ALL {
            let forms = reading.forms(own);
            let matches = |glob: &str| {
                let glob = reading.of(glob);
                forms.iter().any(|form| glob::matches(&glob, form))
            };
            needs.extend(&scope::needed_where(backend, ObjectKind::Resource, matches));
        }
    }
    needs
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b'/' | b'?' | b'#' | b'&' | b'=' | b';')
}

fn is_dots(piece: &[u8]) -> bool {
    matches!(piece, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::UriProblem;
    use super::check;
    use super::scheme;

    #[test]
    fn uris_that_lead_elsewhere_are_refused() {
        let long = format!("file:///{}", "a".repeat(2048));
        for (uri, expected) in [
            ("demo://note/1", None),
            ("file:///var/log/a.b/...", None),
            ("file:///..a/b..", None),
            ("urn:isbn:0451450523", None),
            ("x:", None),
            ("ui://widget/v1?q=a%20b#top", None),
            ("note://caf\u{e9}/\u{65e5}", None),
            ("file:///100%/50%2", None),
            ("", Some(UriProblem::NoScheme)),
            ("note", Some(UriProblem::NoScheme)),
            ("/etc/passwd", Some(UriProblem::NoScheme)),
            ("1x://a", Some(UriProblem::NoScheme)),
            ("a b://c", Some(UriProblem::NoScheme)),
            ("://a", Some(UriProblem::NoScheme)),
            ("../x:y", Some(UriProblem::NoScheme)),
            ("file:///var/log/../../etc/passwd", Some(UriProblem::Dots)),
            ("file:///var/log/%2e%2e/%2E%2E/etc", Some(UriProblem::Dots)),
            ("file:///var/log/.%2e/etc", Some(UriProblem::Dots)),
            ("file:///var/log/..%2f..%2fetc", Some(UriProblem::Dots)),
            ("file:///var/%252e%252e/etc", Some(UriProblem::Dots)),
            ("file:///var/%25252e%25252e/etc", Some(UriProblem::Dots)),
            ("file:///%2525252525252e", Some(UriProblem::Dots)),
            ("file:///var/./log", Some(UriProblem::Dots)),
            ("file:///var/..", Some(UriProblem::Dots)),
            ("file://../etc", Some(UriProblem::Dots)),
            ("file:..", Some(UriProblem::Dots)),
            ("file:///a/..;/b", Some(UriProblem::Dots)),
            ("files://read?path=../etc", Some(UriProblem::Dots)),
            ("file:///c:\\windows", Some(UriProblem::Dots)),
            ("file:///a%5c..%5cb", Some(UriProblem::Dots)),
            ("file:///a%00.txt", Some(UriProblem::Hidden)),
            ("file:///a\nb", Some(UriProblem::Hidden)),
            ("file:///a\u{202e}b", Some(UriProblem::Hidden)),
            (&long, Some(UriProblem::Long(2048))),
        ] {
            assert_eq!(check(uri, 2048).err(), expected, "{uri:?}");
        }
    }

    #[test]
    fn schemes() {
        for (uri, expected) in
            [("a+b-1.c:x", Some("a+b-1.c")), ("A:", Some("A")), ("+a:x", None), (":x", None), ("a", None)]
        {
            assert_eq!(scheme(uri), expected, "{uri}");
        }
    }
}
