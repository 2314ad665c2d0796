//! What a server asks in a call: one request of its own each, what a client is shown of it, and what the
//! server is answered.
//!
//! spec: 2025-11-25 client/elicitation, client/sampling, client/roots

use crate::backend::legacy::request;
use crate::backend::legacy::ticket;
use crate::backend::waiting::Unanswered;
use crate::model::tenant::Ask;
use crate::protocol::able::Able;
use crate::protocol::able::ELICITATION;
use crate::protocol::able::ROOTS;
use crate::protocol::able::SAMPLING;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// Keys of `_meta` that mean something on the leg that they came on alone.
const OWN_META: [&str; 2] = ["progressToken", "io.modelcontextprotocol/related-task"];

/// The mode in which a user is asked to open a URL.
const URL: &str = "url";

/// One question of a server's.
pub(super) struct Question {
    /// The server's id.
    id: Json,
    /// What is asked.
    ask: Asks,
    /// What a client is shown: `method` and `params`.
    pub(super) entry: Json,
}

/// What a server may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Elicitation,
    Sampling,
    Roots,
}

/// Why a server is refused at once.
pub(super) struct Refused {
    /// What it is told.
    pub(super) code: i64,
    /// What of a client's it would have needed, where that is anything.
    pub(super) ask: Option<Ask>,
}

/// Whether a server asks a client something by this method.
pub(super) fn is_question(method: &str) -> bool {
    Asks::named(method).is_some()
}

impl Asks {
    fn named(method: &str) -> Option<Self> {
        match method {
            ELICITATION => Some(Self::Elicitation),
            SAMPLING => Some(Self::Sampling),
            ROOTS => Some(Self::Roots),
            _ => None,
        }
    }
}

impl Question {
    /// A server's request with this id, for a client that can do this.
    ///
    /// spec: row X-07; 2025-11-25 client/elicitation, Error Handling
    pub(super) fn read(id: &Json, method: &str, message: &Json, able: Able) -> Result<Self, Refused> {
        let unknown = |ask| Refused { code: code::METHOD_NOT_FOUND, ask };
        let kind = Asks::named(method).ok_or(unknown(None))?;
        let params = message.member("params");
        match kind {
            Asks::Elicitation => {
                let mode = params.as_ref().and_then(|params| params.member("mode")?.string());
                let (ask, can) = match mode.as_deref() {
                    Some(URL) => (Ask::Url, able.url),
                    None | Some(_) => (Ask::Form, able.form),
                };
                if !can {
                    let code =
                        if able.form || able.url { code::INVALID_PARAMS } else { code::METHOD_NOT_FOUND };
                    return Err(Refused { code, ask: Some(ask) });
                }
            }
            Asks::Sampling if !able.sampling => return Err(unknown(Some(Ask::Sampling))),
            Asks::Roots if !able.roots => return Err(unknown(Some(Ask::Roots))),
            Asks::Sampling | Asks::Roots => {}
        }
        Ok(Self { id: id.alone(), ask: kind, entry: entry(method, params.as_ref()) })
    }

    /// What tells it from other questions, in whichever process it is asked.
    pub(super) fn digest(&self) -> String {
        ticket::digest(&self.entry)
    }

    /// Whether this is an answer to it; else what is wrong.
    ///
    /// spec: row MR-05
    pub(super) fn check(&self, response: &Json) -> Result<(), &'static str> {
        let is = |key: &str, kinds: &[Kind]| {
            response.member(key).is_some_and(|value| kinds.contains(&value.kind()))
        };
        let action = response.member("action").and_then(|action| action.string());
        match self.ask {
            Asks::Elicitation if !matches!(action.as_deref(), Some("accept" | "decline" | "cancel")) => {
                Err("the answer to `elicitation/create` needs an `action`: `accept`, `decline` or `cancel`")
            }
            Asks::Elicitation if response.member("content").is_some() && !is("content", &[Kind::Object]) => {
                Err("the `content` of the answer to `elicitation/create` has to be an object")
            }
            Asks::Sampling if !(is("role", &[Kind::String]) && is("model", &[Kind::String])) => {
                Err("the answer to `sampling/createMessage` needs a `role` and a `model`")
            }
            Asks::Sampling if !is("content", &[Kind::Object, Kind::Array]) => {
                Err("the answer to `sampling/createMessage` needs `content`")
            }
            Asks::Roots if !is("roots", &[Kind::Array]) => {
                Err("the answer to `roots/list` needs `roots`, an array")
            }
            Asks::Elicitation | Asks::Sampling | Asks::Roots => Ok(()),
        }
    }

    /// The message that answers it with this.
    pub(super) fn answer(&self, response: &Json) -> Json {
        request::answer(&self.id, response)
    }

    /// The message that says that there is no answer.
    ///
    /// spec: requirements N.3, End without retry; row MR-06
    pub(super) fn refusal(&self, why: Unanswered) -> Json {
        let action = |word: &str| request::answer(&self.id, &Object::new().put_str("action", word).finish());
        match (self.ask, why) {
            (Asks::Elicitation, Unanswered::Refused) => action("decline"),
            (Asks::Elicitation, Unanswered::Nobody) => action("cancel"),
            (Asks::Sampling, _) => {
                request::refusal(&self.id, REJECTED, "the user rejected the sampling request")
            }
            (Asks::Roots, Unanswered::Refused) => {
                request::refusal(&self.id, code::METHOD_NOT_FOUND, "this client does not tell its roots")
            }
            (Asks::Roots, Unanswered::Nobody) => {
                request::refusal(&self.id, code::INTERNAL_ERROR, "the client did not tell its roots")
            }
        }
    }
}

/// How a client says that its user does not want it.
///
/// spec: 2025-11-25 client/sampling, Error Handling
const REJECTED: i64 = -1;

/// What a client is shown: nothing that means something in the session alone.
fn entry(method: &str, params: Option<&Json>) -> Json {
    let shown = params.map(|params| if params.is_object() { shown(params) } else { params.alone() });
    Object::new().put_str("method", method).put_some("params", shown.as_ref()).finish()
}

fn shown(params: &Json) -> Json {
    let whole = Object::with_capacity(params.bytes().len());
    let whole = params.members().fold(whole, |whole, (key, value)| match &*key {
        "elicitationId" | "task" => whole,
        "_meta" if value.is_object() => {
            let mut left = value.members().filter(|(key, _)| !OWN_META.contains(&&**key)).peekable();
            let is_empty = left.peek().is_none();
            let left = left.fold(Object::new(), |all, (key, value)| all.put(&key, &value)).finish();
            if is_empty { whole } else { whole.put("_meta", &left) }
        }
        _ => whole.put(&key, &value),
    });
    whole.finish()
}

/// What the error of a server asks its user to open before the call can be made, each as a client is
/// shown it. `None` where that cannot be told.
///
/// spec: row X-10; 2025-11-25 client/elicitation, URL Elicitation Required Error
pub(super) fn wanted_urls(message: &Json, most: usize) -> Option<Vec<Json>> {
    let error = message.member("error")?;
    if error.member("code")?.integer()? != code::URL_WANTED {
        return None;
    }
    let elicitations = error.member("data")?.member("elicitations")?;
    let all: Vec<Json> = elicitations.elements().take(most + 1).collect();
    let is_url =
        |entry: &Json| entry.member("mode").and_then(|mode| mode.string()).is_some_and(|mode| mode == URL);
    let are_urls = !all.is_empty() && all.len() <= most && all.iter().all(is_url);
    are_urls.then(|| all.iter().map(|params| entry(ELICITATION, Some(params))).collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Question;
    use super::wanted_urls;
    use crate::backend::waiting::Unanswered;
    use crate::protocol::able::Able;
    use crate::protocol::json::Json;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text)
    }

    const ALL: Able =
        Able { form: true, url: true, sampling: true, tools: false, context: false, roots: true };

    fn read(method: &str, params: &str, able: Able) -> Result<Question, i64> {
        let message = json(&format!(r#"{{"id":"a","method":"{method}","params":{params}}}"#));
        Question::read(&json(r#""a""#), method, &message, able).map_err(|refused| refused.code)
    }

    // spec: row X-07
    #[test]
    fn a_client_is_shown_what_means_something_to_it() {
        for (params, shown) in [
            ("{}", "{}"),
            (
                r#"{"message":"m","elicitationId":"x","task":{"ttl":1},"n":1.50}"#,
                r#"{"message":"m","n":1.50}"#,
            ),
            (r#"{"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{}}}"#, "{}"),
            (r#"{"_meta":{"progressToken":1,"a/b":1e400}}"#, r#"{"_meta":{"a/b":1e400}}"#),
            ("[1]", "[1]"),
        ] {
            let question = read("elicitation/create", params, ALL).ok().unwrap();
            let expected = format!(r#"{{"method":"elicitation/create","params":{shown}}}"#);
            assert_eq!(question.entry.text(), expected);
        }
    }

    // spec: row X-07
    #[test]
    fn what_a_client_cannot_do_is_refused_in_the_words_of_the_revision() {
        let (none, form) = (Able::default(), Able { form: true, ..Able::default() });
        let url = Able { url: true, ..Able::default() };
        for (method, params, able, code) in [
            ("elicitation/create", "{}", none, -32601),
            ("elicitation/create", r#"{"mode":"url"}"#, form, -32602),
            ("elicitation/create", r#"{"mode":"form"}"#, url, -32602),
            ("elicitation/create", r#"{"mode":"voice"}"#, url, -32602),
            ("sampling/createMessage", "{}", form, -32601),
            ("roots/list", "{}", form, -32601),
            ("tasks/get", "{}", ALL, -32601),
        ] {
            assert_eq!(read(method, params, able).err(), Some(code), "{method} {params}");
        }
    }

    // spec: rows MR-05, MR-06
    #[test]
    fn an_answer_has_the_shape_of_what_was_asked() {
        for (method, right, wrong) in [
            (
                "elicitation/create",
                &[r#"{"action":"accept","content":{}}"#, r#"{"action":"cancel"}"#][..],
                &["{}", r#"{"action":"yes"}"#, r#"{"action":"accept","content":[]}"#][..],
            ),
            (
                "sampling/createMessage",
                &[r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#],
                &[
                    r#"{"role":"assistant","content":{}}"#,
                    r#"{"role":"assistant","model":"m","content":"t"}"#,
                ],
            ),
            ("roots/list", &[r#"{"roots":[]}"#], &["{}", r#"{"roots":{}}"#]),
        ] {
            let question = read(method, "{}", ALL).ok().unwrap();
            right.iter().for_each(|answer| assert_eq!(question.check(&json(answer)), Ok(()), "{answer}"));
            wrong.iter().for_each(|answer| assert!(question.check(&json(answer)).is_err(), "{answer}"));
        }
        for (method, why, told) in [
            ("elicitation/create", Unanswered::Refused, r#""result":{"action":"decline"}"#),
            ("elicitation/create", Unanswered::Nobody, r#""result":{"action":"cancel"}"#),
            ("sampling/createMessage", Unanswered::Nobody, r#""code":-1"#),
            ("roots/list", Unanswered::Refused, r#""code":-32601"#),
            ("roots/list", Unanswered::Nobody, r#""code":-32603"#),
        ] {
            let said = read(method, "{}", ALL).ok().unwrap().refusal(why);
            assert!(said.text().contains(told) && said.text().contains(r#""id":"a""#), "{}", said.text());
        }
    }

    // spec: row X-10
    #[test]
    fn an_error_says_which_urls_come_first() {
        let error =
            |data: &str| json(&format!(r#"{{"error":{{"code":-32042,"message":"m","data":{data}}}}}"#));
        let one = r#"{"mode":"url","message":"m","url":"https://x.example/","elicitationId":"x"}"#;
        let urls = wanted_urls(&error(&format!(r#"{{"elicitations":[{one}]}}"#)), 1).unwrap();
        assert_eq!(
            urls[0].text(),
            r#"{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://x.example/"}}"#
        );
        for data in [
            "{}".to_owned(),
            r#"{"elicitations":[]}"#.to_owned(),
            r#"{"elicitations":[{"mode":"form"}]}"#.to_owned(),
            format!(r#"{{"elicitations":[{one},{one}]}}"#),
        ] {
            assert!(wanted_urls(&error(&data), 1).is_none(), "{data}");
        }
        assert!(wanted_urls(&json(r#"{"error":{"code":-32000,"message":"m"}}"#), 1).is_none());
    }
}
