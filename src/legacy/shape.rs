//! Results in the form that a session's revision knows: without what came later, and structured content
//! as the object that it was then.

use crate::catalog::tool::Tool;
use crate::exchange::Reply;
use crate::legacy::schema;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;
use crate::protocol::version::Handshake;

/// What belongs to results of the modern era alone.
const MODERN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// Whose keys of a result's `_meta` mean something to modern clients alone: the protocol's and ours.
const MODERN_META: [&str; 2] = ["io.modelcontextprotocol/", "dev.fondaco/"];

/// How the answer to one request is shaped.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    revision: Handshake,
    result: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Tools,
    /// A call of a tool; whether lists show its output schema wrapped.
    Call {
        wrapped: bool,
    },
    /// A resource.
    Read,
    Plain,
}

impl Shape {
    /// The shape of answers to `method`, asked of `tool` if it is one that is called.
    pub fn new(revision: Handshake, method: Method, tool: Option<&Tool>) -> Self {
        let output = || tool.and_then(|tool| tool.entry.descriptor.member("outputSchema"));
        let result = match method {
            Method::ToolsList => Form::Tools,
            Method::ToolsCall => {
                Form::Call { wrapped: output().is_some_and(|schema| schema::is_wrapped(&schema)) }
            }
            Method::ResourcesRead => Form::Read,
            _ => Form::Plain,
        };
        Self { revision, result }
    }

    /// `reply` in this shape.
    pub fn reply<E: 'static>(self, reply: Reply<E>) -> Result<Reply<E>, E> {
        reply.map_end(move |end| end.map(|outcome| self.outcome(outcome)))
    }

    fn outcome(self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Result(result) => Outcome::Result(self.result(&result)),
            Outcome::Error(error) if error.code == code::MISSING_CAPABILITY => self.lacking(error),
            Outcome::Error(error) if matches!(self.result, Form::Read) => Outcome::Error(unread(error)),
            Outcome::Error(error) => Outcome::Error(error),
            Outcome::Asks(_) => self.failed("the backend asks for more input, which this client cannot give"),
            // What this era has no form for.
            other @ Outcome::Task(_) => other,
        }
    }

    /// A capability that the client did not declare cannot be asked for in this era: a model reads it
    /// where there is one, others hear that it failed.
    fn lacking(self, error: RpcError) -> Outcome {
        match self.failed(&error.message) {
            Outcome::Error(failed) => Outcome::Error(RpcError { data: error.data, ..failed }),
            told => told,
        }
    }

    /// A call that cannot go on.
    fn failed(self, why: &str) -> Outcome {
        match self.result {
            Form::Call { .. } => Outcome::Result(
                Object::new()
                    .put("content", &Array::new().push(&text(why)).finish())
                    .put_bool("isError", true)
                    .finish(),
            ),
            Form::Tools | Form::Read | Form::Plain => {
                Outcome::Error(RpcError { code: code::INTERNAL_ERROR, message: why.to_owned(), data: None })
            }
        }
    }

    fn result(self, result: &Json) -> Json {
        let mut shaped = Object::with_capacity(result.bytes().len() + 64);
        let structured = self.revision.has_structured_content();
        for (key, value) in result.members() {
            shaped = match (&*key, self.result) {
                (key, _) if MODERN.contains(&key) => shaped,
                ("_meta", _) => shaped.put_some("_meta", meta(&value).as_ref()),
                ("tools", Form::Tools) => shaped.put("tools", &self.tools(&value)),
                ("structuredContent", Form::Call { wrapped }) if structured => {
                    shaped.put("structuredContent", &content(value, wrapped))
                }
                ("structuredContent", Form::Call { .. }) => shaped,
                ("content", Form::Call { .. }) if !structured && is_empty(&value) => shaped,
                (key, _) => shaped.put(key, &value),
            };
        }
        match self.result {
            Form::Call { .. } if !structured => text_instead(shaped, result).finish(),
            _ => shaped.finish(),
        }
    }

    // spec: row Y-04
    fn tools(self, tools: &Json) -> Json {
        let shaped = |all: Array, tool: Json| {
            let Some(output) = tool.member("outputSchema") else { return all.push(&tool) };
            let output = match self.revision.has_structured_content() {
                true if !schema::is_wrapped(&output) => return all.push(&tool),
                true => Some(schema::wrap(&output)),
                false => None,
            };
            let members = tool.members().fold(
                Object::with_capacity(tool.bytes().len()),
                |all, (key, value)| match &*key {
                    "outputSchema" => all.put_some("outputSchema", output.as_ref()),
                    key => all.put(key, &value),
                },
            );
            all.push(&members.finish())
        };
        tools.elements().fold(Array::with_capacity(tools.bytes().len()), shaped).finish()
    }
}

/// A backend's word that there is no such resource had a code of its own in this era.
///
/// spec: 2025-11-25 server/resources, Error Handling
fn unread(error: RpcError) -> RpcError {
    let names_uri = error.data.as_ref().is_some_and(|data| data.member("uri").is_some());
    match error.code == code::INVALID_PARAMS && names_uri {
        true => RpcError { code: code::RESOURCE_NOT_FOUND, ..error },
        false => error,
    }
}

/// Structured content as an object.
fn content(value: Json, wrapped: bool) -> Json {
    match wrapped || !value.is_object() {
        true => Object::with_capacity(value.bytes().len() + 16).put(schema::RESULT, &value).finish(),
        false => value,
    }
}

/// Says as text what a result without content says in a form that the revision does not know.
fn text_instead(shaped: Object, result: &Json) -> Object {
    let has_content = result.member("content").is_some_and(|content| !is_empty(&content));
    if has_content {
        return shaped;
    }
    let blocks = match result.member("structuredContent") {
        Some(value) => Array::new().push(&text(value.text())),
        None => Array::new(),
    };
    shaped.put("content", &blocks.finish())
}

fn is_empty(content: &Json) -> bool {
    content.kind() == Kind::Array && content.elements().next().is_none()
}

/// A block of text.
fn text(text: &str) -> Json {
    Object::new().put_str("type", "text").put_str("text", text).finish()
}

/// A result's `_meta` without what is for modern clients alone, if anything is left.
fn meta(meta: &Json) -> Option<Json> {
    let is_kept = |key: &str| !MODERN_META.iter().any(|prefix| key.starts_with(prefix));
    let mut kept = meta.members().filter(|(key, _)| is_kept(key)).peekable();
    kept.peek()?;
    Some(kept.fold(Object::new(), |all, (key, value)| all.put(&key, &value)).finish())
}

#[cfg(test)]
mod tests;
