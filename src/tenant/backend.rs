//! `backends`: where a tenant's tools live.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use crate::config::node::Value;
use crate::config::public;
use crate::config::reader::At;
use crate::config::reader::Fields;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant::Ask;
use crate::model::tenant::Backend;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::model::tenant::Catalog;
use crate::model::tenant::Credential;
use crate::model::tenant::CredentialPlace;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::ScopeRule;
use crate::model::tenant::Uris;
use crate::model::tenant::Validate;
use crate::model::uri;
use crate::tenant::entry::Declared;

/// The longest prefix, of the 64 characters that a public name may have.
const PREFIX: usize = 32;

const KEYS: [&str; 13] = [
    "kind",
    "url",
    "era",
    "prefix",
    "uris",
    "timeout",
    "idle_timeout",
    "scopes",
    "extensions",
    "credential",
    "refuse",
    "validate",
    "catalog",
];

/// Longest name of an extension, and most of them.
const EXTENSION_BYTES: usize = 128;
const EXTENSIONS: usize = 32;

/// What begins the names of extensions that are the protocol's own. Those are the gateway's to carry, or
/// not.
const OFFICIAL: &str = "io.modelcontextprotocol/";

/// Headers that are about the message, the connection or the protocol, not about who sends it.
const RESERVED: [&str; 26] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "baggage",
    "connection",
    "date",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-accel-buffering",
];

#[derive(Clone, Copy)]
enum Kind {
    Mcp,
    Demo,
}

/// Reads one backend of a tenant whose secrets are `secrets`.
pub(super) fn read(name: &str, at: &At<'_>, secrets: &Declared) -> Option<Backend> {
    let parsed = match BackendName::new(name) {
        Ok(name) => Some(name),
        Err(error) => at.refuse(error.to_string()),
    };
    let fields = at.map(&KEYS)?;
    let kind = kind(&fields);
    let prefix = match fields.get("prefix") {
        Some(at) => prefix(&at),
        None => Some(format!("{name}_").into()),
    };
    let uris = match fields.get("uris") {
        Some(at) => at.word(&[("keep", Uris::Keep), ("prefixed", Uris::Prefixed)]),
        None if prefix.as_deref() == Some("") => Some(Uris::Keep),
        None => Some(Uris::Prefixed),
    };
    let timeout = duration(&fields, "timeout", 60);
    let idle_timeout = duration(&fields, "idle_timeout", 30);
    let rules = fields.get("scopes").map_or_else(Vec::new, |at| at.entries());
    let scopes = rules.iter().filter_map(|(glob, at)| rule(glob, at)).collect();
    let extensions = fields.get("extensions").map_or_else(|| Some(Vec::new()), |at| extensions(&at));
    let credential = fields.get("credential").map(|at| credential(&at, secrets));
    let refused = fields.get("refuse").map_or(Some(Vec::new()), |at| refused(&at));
    let words = [("off", Validate::Off), ("arguments", Validate::Arguments), ("both", Validate::Both)];
    let validate = fields.get("validate").map_or(Some(Validate::default()), |at| match at.node.value {
        // YAML 1.1 readers take the bare word for a boolean.
        Value::Bool(false) => Some(Validate::Off),
        _ => at.word(&words),
    });
    let words = [("shared", Catalog::Shared), ("per_caller", Catalog::PerCaller)];
    let catalog = fields.get("catalog").map_or(Some(Catalog::default()), |at| at.word(&words));
    Some(Backend {
        name: parsed?,
        kind: kind?,
        prefix: prefix?,
        uris: uris?,
        timeout: timeout?,
        idle_timeout: idle_timeout?,
        scopes,
        extensions: extensions?,
        credential: match credential {
            Some(credential) => Some(credential?),
            None => None,
        },
        refused: refused?,
        validate: validate?,
        catalog: catalog?,
    })
}

fn kind(fields: &Fields<'_>) -> Option<BackendKind> {
    let at = fields.need("kind")?;
    match at.word(&[("mcp", Kind::Mcp), ("demo", Kind::Demo)])? {
        Kind::Mcp => {
            let words = [
                ("auto", BackendEra::Auto),
                ("modern", BackendEra::Modern),
                ("legacy", BackendEra::Handshake),
            ];
            let era = fields.get("era").map_or(Some(BackendEra::default()), |at| at.word(&words));
            let url = fields.need("url").and_then(|at| target(&at));
            Some(BackendKind::Mcp { url: url?, era: era? })
        }
        Kind::Demo => {
            for key in ["url", "era", "extensions", "credential", "catalog"] {
                if let Some(at) = fields.get(key) {
                    at.refuse::<()>("a backend of kind `demo` has none");
                }
            }
            Some(BackendKind::Demo)
        }
    }
}

fn target(at: &At<'_>) -> Option<Url> {
    public::link(at).map(|(_, url)| url)
}

fn prefix(at: &At<'_>) -> Option<Arc<str>> {
    let text = at.text()?;
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if text.len() > PREFIX || !text.bytes().all(legal) {
        let expected = format!("expected at most {PREFIX} of `A-Z`, `a-z`, `0-9`, `_`, `.` and `-`");
        return at.refuse(format!("found `{text}`, {expected}"));
    }
    Some(text.into())
}

fn duration(fields: &Fields<'_>, key: &str, default: u64) -> Option<Duration> {
    fields.get(key).map_or(Some(Duration::from_secs(default)), |at| at.duration(&(100..=24 * 3_600_000)))
}

/// The extensions that a backend's clients may have with it.
fn extensions(at: &At<'_>) -> Option<Vec<Arc<str>>> {
    let items = at.list();
    if items.len() > EXTENSIONS {
        return at.refuse(format!("found {} names, expected at most {EXTENSIONS}", items.len()));
    }
    let name = |at: &At<'_>| -> Option<Arc<str>> {
        let text = at.filled()?;
        if !is_extension(text) {
            let hint = "a name is a domain that reads backwards, `/` and a word, as in `com.example/search`";
            return at.refuse_hint(format!("found `{text}`, which is no name of an extension"), hint);
        }
        if text.starts_with(OFFICIAL) {
            return at.refuse(format!("`{text}` is the protocol's own: the gateway carries what it knows"));
        }
        Some(text.into())
    };
    let names: Vec<_> = items.iter().filter_map(name).collect();
    (names.len() == items.len()).then_some(names)
}

/// Whether this can be the name of an extension.
///
/// spec: docs/extensions/overview; basic/index, _meta (key name format, with a prefix)
fn is_extension(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    let of = |text: &str, more: &[u8]| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
            && text.ends_with(alphanumeric)
    };
    let label = |label: &str| label.starts_with(|c: char| c.is_ascii_alphabetic()) && of(label, b"-");
    text.len() <= EXTENSION_BYTES
        && text.split_once('/').is_some_and(|(prefix, name)| {
            prefix.split('.').all(label) && name.starts_with(alphanumeric) && of(name, b"-_.")
        })
}

/// What a backend may not ask of clients: a list of words.
fn refused(at: &At<'_>) -> Option<Vec<Ask>> {
    let words = Ask::ALL.map(|ask| (ask.word(), ask));
    let items = at.list();
    let known: Vec<Ask> = items.iter().filter_map(|at| at.word(&words)).collect();
    (known.len() == items.len()).then_some(known)
}

/// One scope rule: `"*"`, `"tool:delete_*"`, `"prompt:…"`, `"resource:…"` or a bare glob.
fn rule(key: &str, at: &At<'_>) -> Option<ScopeRule> {
    let needs = scopes(at);
    let (kind, glob) = match key.split_once(':') {
        Some(("tool", glob)) => (Some(ObjectKind::Tool), glob),
        Some(("prompt", glob)) => (Some(ObjectKind::Prompt), glob),
        Some(("resource", glob)) => (Some(ObjectKind::Resource), glob),
        // Taken as a glob it would match nothing, and nothing would be guarded by it.
        Some((word, rest)) if !rest.starts_with("//") && word.bytes().all(|b| b.is_ascii_alphabetic()) => {
            let hint = "kinds are `tool:`, `prompt:` and `resource:`; a key without one means all of them";
            return at.refuse_hint(format!("`{word}` is no kind of object"), hint);
        }
        _ => (None, key),
    };
    if glob.is_empty() {
        return at.refuse_hint("the pattern is empty", "`*` matches everything");
    }
    let of_resources = kind == Some(ObjectKind::Resource) || kind.is_none() && glob.contains("://");
    if of_resources && !uri::is_plain_glob(glob) {
        let hint = "leave out a port that goes without saying, a user, a fragment, the host of a file, `;`, \
                    empty segments and a `/` at the end, and encode what is not ASCII";
        return at.refuse_hint(format!("`{glob}` is not how a plain URI is written"), hint);
    }
    Some(ScopeRule { kind, glob: glob.into(), needs: needs? })
}

/// A list of scopes.
pub(super) fn scopes(at: &At<'_>) -> Option<Scopes> {
    let items = at.list();
    let good: Vec<&str> = items.iter().filter_map(scope).collect();
    (good.len() == items.len()).then(|| good.into_iter().collect())
}

/// One scope.
// spec: RFC 6749, section 3.3
fn scope<'a>(at: &At<'a>) -> Option<&'a str> {
    let text = at.filled()?;
    is_scope(text).then_some(text).or_else(|| at.refuse(format!("found `{text}`, which is no OAuth scope")))
}

/// Whether `text` can be an OAuth scope.
pub(crate) fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

fn credential(at: &At<'_>, secrets: &Declared) -> Option<Credential> {
    let fields = at.map(&["kind", "secret", "name"])?;
    let named = fields.need("secret").and_then(|at| secrets.named(&at));
    let place = match fields.need("kind")?.word(&[("bearer", false), ("header", true)])? {
        true => CredentialPlace::Header(fields.need("name").and_then(|at| header(&at))?),
        false => {
            if let Some(at) = fields.get("name") {
                at.refuse::<()>("a credential of kind `bearer` has none");
            }
            CredentialPlace::Bearer
        }
    };
    let secret = named?;
    Some(Credential { place, secret: secret.name.as_str().into(), value: secret.cell.clone() })
}

fn header(at: &At<'_>) -> Option<Arc<str>> {
    let text = at.filled()?;
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        return at.refuse(format!("`{text}` is no header name"));
    };
    let name = name.as_str();
    let owned = ["content-", "mcp-", "x-forwarded-", "sec-", "access-control-"];
    if RESERVED.contains(&name) || owned.iter().any(|prefix| name.starts_with(prefix)) {
        return at.refuse(format!("`{text}` cannot carry a credential"));
    }
    Some(name.into())
}
