//! One thing that a backend asks of a client.
//!
//! spec: client/elicitation, client/sampling, client/roots

use url::Host;
use url::Url;

use crate::backend::BackendError;
use crate::methods::links::Links;
use crate::methods::rounds::form;
use crate::methods::rounds::secret;
use crate::model::tenant::Ask;
use crate::protocol::able::Able;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::change;
use crate::protocol::json::compose::Object;
use crate::protocol::message::misspells;

/// A way to include context, which asks for none.
const NO_CONTEXT: &str = "none";

/// What of sampling only a client with its own capability takes.
const TOOLS: [&str; 2] = ["tools", "toolChoice"];

/// The blocks of a message that belong to tools.
const TOOL_BLOCKS: [&str; 2] = ["tool_use", "tool_result"];

/// The members of an entry, and those of its params that are judged. Peers that ignore case would read
/// others for them.
const ENTRY: [&str; 2] = ["method", "params"];
const PARAMS: [&str; 10] = [
    "mode",
    "message",
    "requestedSchema",
    "url",
    "elicitationId",
    "messages",
    "includeContext",
    "tools",
    "toolChoice",
    TASK,
];

/// How requests became tasks before the extension for it: nobody asks a client for one here.
const TASK: &str = "task";

/// What a form, a URL and everything else have no use for, and nobody judges in it.
const NOT_IN_FORMS: &[&str] = &[TASK, "url", "elicitationId"];
const NOT_WITH_URLS: &[&str] = &[TASK, "requestedSchema"];
const NOT_IN_OTHERS: &[&str] = &[TASK];

/// What is known when an entry is judged.
pub(super) struct Judging<'a> {
    /// What the client can be asked.
    pub(super) able: Able,
    /// What the tenant does not let the backend ask for.
    pub(super) refused: &'a [Ask],
    /// How URIs of the backend are shown.
    pub(super) links: &'a Links,
    /// Whether loopback may be opened in clear text, as we are reached ourselves.
    pub(super) clear_text: bool,
}

/// What becomes of an entry.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It goes to the client, as it is or changed.
    Goes {
        /// What it asks.
        ask: Ask,
        /// What the client gets, if that is not what came.
        changed: Option<Json>,
        /// Whether it asks for context, by a deprecated word.
        context: bool,
    },
    /// The client cannot do that, which needs this capability: its name, and the part of it.
    Lacks(&'static str, Option<&'static str>),
    /// It may not be asked.
    Refused(Refusal),
}

/// Why something may not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The tenant does not let this backend.
    Tenant(Ask),
    /// A form asks for a secret.
    Secret,
    /// A URL that nobody should open.
    Url,
    /// The call was asked back so often already.
    Rounds,
}

impl Refusal {
    /// As a metric's label.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Tenant(ask) => ask.word(),
            Self::Secret => "secret",
            Self::Url => "url",
            Self::Rounds => "rounds",
        }
    }

    /// For whoever called.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Tenant(Ask::Form) => "the backend asks for a form, which it may not do here",
            Self::Tenant(Ask::Url) => "the backend asks to open a URL, which it may not do here",
            Self::Tenant(Ask::Sampling) => "the backend asks for sampling, which it may not do here",
            Self::Tenant(Ask::Roots) => "the backend asks for roots, which it may not do here",
            Self::Secret => "the backend asks for a secret in a form, which is never passed on",
            Self::Url => "the backend asks to open a URL that is not `https`, or has a user in it",
            Self::Rounds => "the backend has asked for more input too often in this call",
        }
    }
}

impl Judging<'_> {
    /// Judges one entry.
    ///
    /// spec: row MR-02
    pub(super) fn judge(&self, entry: &Json) -> Result<Verdict, BackendError> {
        let method = entry.member("method");
        let method = method.as_ref().and_then(|method| method.string_ref());
        let params = entry.member("params");
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(BackendError::Invalid("it asks a client something whose `params` are no object"));
        }
        match (method.as_deref(), params) {
            (Some("elicitation/create"), Some(params)) => self.elicitation(entry, &params),
            (Some("sampling/createMessage"), Some(params)) => Ok(self.sampling(entry, &params)),
            (Some("roots/list"), params) => Ok(match self.able.roots {
                _ if self.refuses(Ask::Roots) => Verdict::Refused(Refusal::Tenant(Ask::Roots)),
                true => goes(Ask::Roots, entry, params.as_ref(), NOT_IN_OTHERS),
                false => Verdict::Lacks("roots", None),
            }),
            _ => Err(BackendError::Invalid("it asks a client something that no client can be asked")),
        }
    }

    fn refuses(&self, ask: Ask) -> bool {
        self.refused.contains(&ask)
    }

    fn elicitation(&self, entry: &Json, params: &Json) -> Result<Verdict, BackendError> {
        let text = |key: &str| params.member(key).map(|value| value.string());
        let Some(Some(message)) = text("message") else {
            return Err(BackendError::Invalid("it asks a user something without a `message`"));
        };
        match text("mode") {
            None => self.form(entry, params, &message),
            Some(Some(mode)) if mode == "form" => self.form(entry, params, &message),
            Some(Some(mode)) if mode == "url" => self.url(entry, params),
            Some(_) => Err(BackendError::Invalid("it asks a user something in an unknown mode")),
        }
    }

    fn form(&self, entry: &Json, params: &Json, message: &str) -> Result<Verdict, BackendError> {
        let schema = params.member("requestedSchema").filter(Json::is_object);
        let schema = schema.ok_or(BackendError::Invalid("it asks for a form without `requestedSchema`"))?;
        Ok(if self.refuses(Ask::Form) {
            Verdict::Refused(Refusal::Tenant(Ask::Form))
        } else if form::is_ambiguous(&schema) {
            return Err(BackendError::Invalid("it asks for a form that clients may read in different ways"));
        } else if secret::is_asked(message, &schema) {
            Verdict::Refused(Refusal::Secret)
        } else if self.able.form {
            goes(Ask::Form, entry, Some(params), NOT_IN_FORMS)
        } else {
            Verdict::Lacks("elicitation", Some("form"))
        })
    }

    fn url(&self, entry: &Json, params: &Json) -> Result<Verdict, BackendError> {
        let url = params.member("url").and_then(|url| url.string());
        let url = url.ok_or(BackendError::Invalid("it asks to open a URL without `url`"))?;
        Ok(if self.refuses(Ask::Url) {
            Verdict::Refused(Refusal::Tenant(Ask::Url))
        } else if !may_open(&url, self.clear_text) {
            Verdict::Refused(Refusal::Url)
        } else if self.able.url {
            goes(Ask::Url, entry, Some(params), NOT_WITH_URLS)
        } else {
            Verdict::Lacks("elicitation", Some("url"))
        })
    }

    /// spec: row MR-08
    fn sampling(&self, entry: &Json, params: &Json) -> Verdict {
        if self.refuses(Ask::Sampling) {
            return Verdict::Refused(Refusal::Tenant(Ask::Sampling));
        }
        if !self.able.sampling {
            return Verdict::Lacks("sampling", None);
        }
        if !self.able.tools && has_tools(params) {
            return Verdict::Lacks("sampling", Some("tools"));
        }
        let included = params.member("includeContext");
        let asks = included.is_some_and(|value| value.string_ref().is_none_or(|word| word != NO_CONTEXT));
        let stripped =
            (asks && !self.able.context).then(|| without(params, &["includeContext"], &[])).flatten();
        // Links in what it calls a tool's result are left as they are.
        let linked = self.links.messages(stripped.as_ref().unwrap_or(params)).or(stripped);
        let params = without(linked.as_ref().unwrap_or(params), NOT_IN_OTHERS, &PARAMS).or(linked);
        Verdict::Goes { ask: Ask::Sampling, changed: with(entry, params), context: asks && self.able.context }
    }
}

/// Whether sampling with these params needs a client that has tools.
///
/// spec: client/sampling, Tools in Sampling
fn has_tools(params: &Json) -> bool {
    let is_block = |block: &Json| {
        block
            .member("type")
            .is_some_and(|kind| TOOL_BLOCKS.iter().any(|of| kind.string().as_deref() == Some(of)))
    };
    let has_block = |message: Json| {
        let Some(content) = message.member("content") else { return false };
        is_block(&content) || content.elements().any(|block| is_block(&block))
    };
    TOOLS.iter().any(|key| params.member(key).is_some())
        || params.member("messages").is_some_and(|messages| messages.elements().any(has_block))
}

/// The entry goes, without the members of its params that it has no use for.
fn goes(ask: Ask, entry: &Json, params: Option<&Json>, unused: &[&str]) -> Verdict {
    let params = params.and_then(|params| without(params, unused, &PARAMS));
    Verdict::Goes { ask, changed: with(entry, params), context: false }
}

/// The entry with these params, if they are others, and without members that could be read for its own.
fn with(entry: &Json, params: Option<Json>) -> Option<Json> {
    let changed = params.and_then(|params| change::member(entry, "params", |_| Some(params)));
    without(changed.as_ref().unwrap_or(entry), &[], &ENTRY).or(changed)
}

/// The object without these members, and without what spells a known one in another case, if there are any.
fn without(object: &Json, left_out: &[&str], known: &[&str]) -> Option<Json> {
    let is_kept = |key: &str| !left_out.contains(&key) && !misspells(key, known);
    if object.members().all(|(key, _)| is_kept(&key)) {
        return None;
    }
    let kept = object.members().filter(|(key, _)| is_kept(key));
    let whole = Object::with_capacity(object.bytes().len());
    Some(kept.fold(whole, |all, (key, value)| all.put(&key, &value)).finish())
}

/// Whether a user may be sent there: nobody reads along, the URL is nobody's credential, and every reader
/// of it finds the same host in it.
///
/// spec: client/elicitation, Safe URL Handling
fn may_open(url: &str, clear_text: bool) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://").filter(|_| clear_text));
    let Some(rest) = rest else { return false };
    // Readers take the first for nothing, and the last for a slash, or do not.
    let is_odd = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '\\';
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') || url.contains(is_odd) {
        return false;
    }
    let Ok(url) = Url::parse(url) else { return false };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_loopback
}

/// What a client has to declare for what it lacks, as a `ClientCapabilities` object.
pub(super) fn required(lacking: &[(&'static str, Option<&'static str>)]) -> Json {
    let mut names: Vec<&str> = lacking.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let parts = |name: &str| {
        let mut parts: Vec<&str> =
            lacking.iter().filter(|(of, _)| *of == name).filter_map(|(_, part)| *part).collect();
        parts.sort_unstable();
        parts.dedup();
        let none = Object::new().finish();
        parts.into_iter().fold(Object::new(), |all, part| all.put(part, &none)).finish()
    };
    names.into_iter().fold(Object::new(), |all, name| all.put(name, &parts(name))).finish()
}

/// Whether `value` has more entries than `most`.
pub(super) fn has_more(value: &Json, most: usize) -> bool {
    debug_assert_eq!(value.kind(), Kind::Object);
    value.members().nth(most).is_some()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Judging;
    use super::Refusal;
    use super::Verdict;
    use super::may_open;
    use super::required;
    use crate::methods::links::Links;
    use crate::model::tenant::Ask;
    use crate::protocol::able::Able;
    use crate::protocol::json::Json;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
    }

    /// What becomes of the entry, in short.
    fn told(declared: &str, refused: &[Ask], entry: &str) -> String {
        let able = Able::of(&json(declared));
        let judging = Judging { able, refused, links: &Links::none(), clear_text: false };
        match judging.judge(&json(entry)) {
            Ok(Verdict::Goes { ask, changed: None, context }) => format!("goes: {ask:?} {context}"),
            Ok(Verdict::Goes { changed: Some(changed), .. }) => changed.text().to_owned(),
            Ok(Verdict::Lacks(name, part)) => required(&[(name, part)]).text().to_owned(),
            Ok(Verdict::Refused(refusal)) => format!("refused: {}", refusal.reason()),
            Err(error) => format!("{error:?}"),
        }
    }

    const ALL: &str =
        r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}"#;
    const FORM: &str = r#"{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}"#;
    const URL: &str =
        r#"{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/"}}"#;
    const SAMPLING: &str = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    const ROOTS: &str = r#"{"method":"roots/list"}"#;

    // spec: row MR-02
    #[test]
    fn an_entry_goes_to_a_client_that_declared_that_it_can() {
        for (entry, ask, lacked) in [
            (FORM, Ask::Form, r#"{"elicitation":{"form":{}}}"#),
            (URL, Ask::Url, r#"{"elicitation":{"url":{}}}"#),
            (SAMPLING, Ask::Sampling, r#"{"sampling":{}}"#),
            (ROOTS, Ask::Roots, r#"{"roots":{}}"#),
        ] {
            assert_eq!(told(ALL, &[], entry), format!("goes: {ask:?} false"));
            assert_eq!(told("{}", &[], entry), lacked);
            assert_eq!(told(ALL, &[ask], entry), format!("refused: {}", ask.word()));
        }
        let only = r#"{"elicitation":{}}"#;
        assert_eq!(told(only, &[], FORM), "goes: Form false");
        assert_eq!(told(only, &[], URL), r#"{"elicitation":{"url":{}}}"#);
        assert_eq!(told(r#"{"elicitation":{"url":{}}}"#, &[], FORM), r#"{"elicitation":{"form":{}}}"#);
        let tools = SAMPLING.replace(r#""maxTokens""#, r#""tools":[],"maxTokens""#);
        assert_eq!(told(r#"{"sampling":{}}"#, &[], &tools), r#"{"sampling":{"tools":{}}}"#);
        assert_eq!(told(ALL, &[], &tools), "goes: Sampling false");
    }

    // spec: row MR-02
    #[test]
    fn what_is_no_such_request_is_invalid() {
        for entry in [
            "1",
            "[]",
            "{}",
            r#"{"method":"ping","params":{}}"#,
            r#"{"method":7,"params":{}}"#,
            r#"{"method":"roots/list","params":[]}"#,
            r#"{"method":"sampling/createMessage"}"#,
            r#"{"method":"sampling/createMessage","params":null}"#,
            r#"{"method":"elicitation/create"}"#,
            r#"{"method":"elicitation/create","params":{"requestedSchema":{}}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m"}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m","requestedSchema":[]}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m","mode":"voice"}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m","mode":null,"requestedSchema":{}}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m","mode":"url"}}"#,
        ] {
            assert!(told(ALL, &[], entry).starts_with("Invalid"), "{entry}: {}", told(ALL, &[], entry));
        }
    }

    // spec: row MR-08
    #[test]
    fn context_is_included_for_a_client_that_has_it_alone() {
        let with = |word: &str| {
            SAMPLING.replace(r#""maxTokens""#, &format!(r#""includeContext":{word},"maxTokens""#))
        };
        let plain = r#"{"sampling":{}}"#;
        assert_eq!(told(plain, &[], &with(r#""allServers""#)), SAMPLING);
        assert_eq!(told(plain, &[], &with("7")), SAMPLING);
        assert_eq!(told(plain, &[], &with(r#""none""#)), "goes: Sampling false");
        assert_eq!(told(ALL, &[], &with(r#""allServers""#)), "goes: Sampling true");
    }

    // spec: row MR-07
    #[test]
    fn a_user_is_sent_to_safe_urls() {
        for (url, safe, in_development) in [
            ("https://x.example/a?b=c", true, true),
            ("HTTPS://x.example", false, false),
            ("https:x.example", false, false),
            ("https:/x.example", false, false),
            ("https:///x.example", false, false),
            ("https://x.example\\@y.example/", false, false),
            ("https://x.example/a\\b", false, false),
            (" https://x.example/", false, false),
            ("https://x.example/ ", false, false),
            ("https://x.example/a b", false, false),
            ("https://x.ex\tample/", false, false),
            ("https://x.example/\n", false, false),
            ("https://x.example/\u{7f}", false, false),
            ("https://x.example/\u{a0}", false, false),
            ("https://@x.example/", false, false),
            ("https://x.example/@a", true, true),
            ("https:\\\\x.example/", false, false),
            ("HTTP://localhost/", false, false),
            ("http://x.example/", false, false),
            ("http://localhost:8080/", false, true),
            ("http://127.0.0.1/", false, true),
            ("http://[::1]/", false, true),
            ("http://localhost.evil.example/", false, false),
            ("https://alice@x.example/", false, false),
            ("https://alice:pw@x.example/", false, false),
            ("https://:pw@x.example/", false, false),
            ("javascript:alert(1)", false, false),
            ("file:///etc/passwd", false, false),
            ("/relative", false, false),
            ("", false, false),
        ] {
            assert_eq!((may_open(url, false), may_open(url, true)), (safe, in_development), "{url}");
        }
        let evil = URL.replace("https://", "http://");
        assert_eq!(told(ALL, &[], &evil), format!("refused: {}", Refusal::Url.reason()));
        let secret = FORM.replace("name", "password");
        assert_eq!(told(ALL, &[], &secret), format!("refused: {}", Refusal::Secret.reason()));
        assert_eq!(told("{}", &[], &secret), format!("refused: {}", Refusal::Secret.reason()));
    }

    // spec: row MR-02
    #[test]
    fn what_nobody_judges_is_not_relayed() {
        let with =
            |entry: &str, more: &str| entry.replace(r#""params":{"#, &format!(r#""params":{{{more},"#));
        for (entry, more) in [
            (FORM, r#""task":{"ttl":1}"#),
            (URL, r#""task":{"ttl":1}"#),
            (SAMPLING, r#""task":{"ttl":1}"#),
            (FORM, r#""url":"javascript:alert(1)","elicitationId":"x""#),
            (FORM, r#""URL":"javascript:alert(1)""#),
            (FORM, r#""RequestedSchema":{}"#),
            (URL, r#""requestedSchema":{"properties":{"password":{"type":"string"}}}"#),
            (SAMPLING, r#""Tools":[]"#),
        ] {
            assert_ne!(with(entry, more), entry);
            assert_eq!(told(ALL, &[], &with(entry, more)), entry, "{more}");
        }
        let twice = FORM.replacen('{', r#"{"Method":"sampling/createMessage","#, 1);
        assert_eq!(told(ALL, &[], &twice), FORM);
        let roots = r#"{"method":"roots/list","params":{"task":{},"x":1.50}}"#;
        assert_eq!(told(ALL, &[], roots), r#"{"method":"roots/list","params":{"x":1.50}}"#);
        assert_eq!(told(ALL, &[], &with(URL, r#""elicitationId":"x""#)), "goes: Url false");
        for content in [r#"{"type":"tool_use"}"#, r#"[{"type":"text"},{"type":"tool_result"}]"#] {
            let tools = SAMPLING.replace("[]", &format!(r#"[{{"role":"user","content":{content}}}]"#));
            assert_eq!(told(r#"{"sampling":{}}"#, &[], &tools), r#"{"sampling":{"tools":{}}}"#, "{content}");
            assert_eq!(told(ALL, &[], &tools), "goes: Sampling false");
        }
    }

    #[test]
    fn what_is_lacked_is_said_together() {
        let lacking = [("sampling", None), ("elicitation", Some("url")), ("elicitation", Some("form"))];
        assert_eq!(required(&lacking).text(), r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#);
        assert_eq!(
            required(&[("sampling", None), ("sampling", Some("tools"))]).text(),
            r#"{"sampling":{"tools":{}}}"#
        );
    }
}
