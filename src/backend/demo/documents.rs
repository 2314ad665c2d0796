//! Notes to read, a prompt to get, and suggestions for both.

use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;

/// What the URI of every note begins with.
const NOTE: &str = "demo://note/";

/// The template of the notes' URIs.
const NOTES_TEMPLATE: &str = "demo://note/{id}";

/// The notes, by their numbers.
const NOTES: [(&str, &str); 3] = [
    ("1", "A fondaco was a trading house: one gate, and behind it many merchants."),
    ("2", "Each merchant had rooms of their own, and a key to no other."),
    ("3", "At night the gate was locked from outside."),
];

/// Whom the prompt's argument suggests.
const NAMES: [&str; 6] = ["Ada", "Alan", "Barbara", "Edsger", "Grace", "Kathleen"];

/// `resources/read`.
///
/// spec: server/resources, Error Handling
pub(super) fn read(uri: &str) -> Outcome {
    let known = uri.strip_prefix(NOTE).and_then(|id| NOTES.iter().find(|(known, _)| *known == id));
    let Some((_, text)) = known else {
        let data = Some(Object::new().put_str("uri", uri).finish());
        return refused("Resource not found", data);
    };
    let note = Object::new().put_str("uri", uri).put_str("mimeType", "text/plain").put_str("text", text);
    let result = complete().put("contents", &Array::new().push(&note.finish()).finish());
    Outcome::Result(result.put_u64("ttlMs", 60_000).put_str("cacheScope", "public").finish())
}

/// `prompts/get`.
///
/// spec: server/prompts, Getting a Prompt
pub(super) fn get(name: &str, arguments: &Json) -> Outcome {
    if name != "greet" {
        return refused("Unknown prompt", None);
    }
    let whom = arguments.member("name").and_then(|name| name.string());
    let whom = whom.filter(|name| !name.is_empty()).unwrap_or_else(|| "a friend".to_owned());
    let text = Object::new()
        .put_str("type", "text")
        .put_str("text", &format!("Please greet {whom} warmly, in one sentence."));
    let message = Object::new().put_str("role", "user").put("content", &text.finish());
    let messages = Array::new().push(&message.finish()).finish();
    Outcome::Result(complete().put_str("description", "A greeting").put("messages", &messages).finish())
}

/// `completion/complete`.
///
/// spec: server/utilities/completion
pub(super) fn suggest(params: &Json) -> Outcome {
    let text = |object: &str, member: &str| params.member(object)?.member(member)?.string();
    let begun = text("argument", "value").unwrap_or_default().to_lowercase();
    let argument = text("argument", "name").unwrap_or_default();
    let of = text("ref", "name").or_else(|| text("ref", "uri")).unwrap_or_default();
    let all: Vec<&str> = match (&*of, &*argument) {
        ("greet", "name") => NAMES.to_vec(),
        (NOTES_TEMPLATE, "id") => NOTES.iter().map(|(id, _)| *id).collect(),
        ("greet" | NOTES_TEMPLATE, _) => return refused("Unknown argument", None),
        _ => return refused("Unknown reference", None),
    };
    let fitting: Vec<_> = all.iter().filter(|value| value.to_lowercase().starts_with(&begun)).collect();
    let values = fitting.iter().fold(Array::new(), |all, value| all.push_str(value)).finish();
    let completion = Object::new().put("values", &values).put_u64("total", fitting.len() as u64);
    Outcome::Result(complete().put("completion", &completion.put_bool("hasMore", false).finish()).finish())
}

fn complete() -> Object {
    let meta = Object::new().put(SERVER_INFO, &our_info()).finish();
    Object::new().put_str("resultType", "complete").put("_meta", &meta)
}

fn refused(message: &str, data: Option<Json>) -> Outcome {
    Outcome::Error(RpcError { code: code::INVALID_PARAMS, message: message.to_owned(), data })
}
