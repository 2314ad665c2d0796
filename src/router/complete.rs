//! `completion/complete`: of which prompt or resource template.

use crate::catalog::entry::Cataloged;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::policy::Operation;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::change;
use crate::protocol::json::compose::Object;
use crate::protocol::message::misspells;
use crate::router::Completion;
use crate::router::RouteError;
use crate::router::may;
use crate::router::prompt::are_strings;
use crate::router::shown;

/// What a request refers to, if this caller may use it. Suggestions tell what is there: who may not get
/// the prompt, or read the resource, is told nothing.
///
/// spec: server/utilities/completion, Requesting Completions, Security
pub(super) fn completion(snapshot: &Snapshot, exchange: &Exchange) -> Result<Completion, RouteError> {
    let params = &exchange.call.params;
    let reference = params.member("ref").unwrap_or_else(Json::null);
    let of_prompt = reference.member("type").and_then(|kind| match &*kind.string_ref()? {
        "ref/prompt" => Some(true),
        "ref/resource" => Some(false),
        _ => None,
    });
    let key = if of_prompt == Some(true) { "name" } else { "uri" };
    let name = reference.member(key).and_then(|name| name.string());
    let found = name.as_deref().zip(of_prompt).and_then(|(name, of_prompt)| match of_prompt {
        true => snapshot.prompts.find(name).map(Cataloged::entry),
        // spec: server/utilities/completion, CompleteRequest (`uri` is a URI or URI template)
        false => {
            snapshot.templates.find(name).map(Cataloged::entry).or_else(|| snapshot.resources.find(name))
        }
    });
    let allowed = may(exchange, Operation::Complete, found)?;
    let Some(of_prompt) = of_prompt else {
        return malformed("`params.ref.type` must be \"ref/prompt\" or \"ref/resource\"");
    };
    let Some(name) = name else {
        return malformed("`params.ref` must name a prompt, or a resource by its URI");
    };
    check(params, &reference)?;
    match found.filter(|_| allowed) {
        Some(of) => {
            let own = own(of_prompt, &of.own, reference.member("title"));
            let params = change::member(params, "ref", |_| Some(own)).unwrap_or_else(|| params.clone());
            Ok(Completion { of: of.clone(), params })
        }
        None if of_prompt => Err(RouteError::UnknownPrompt(shown(&name))),
        None => Err(RouteError::UnknownResource { uri: name }),
    }
}

/// What the backend is told to complete: what was authorised, and nothing that it could take for more.
///
/// spec: server/utilities/completion, Reference Types
fn own(of_prompt: bool, own: &str, title: Option<Json>) -> Json {
    let (kind, key) = if of_prompt { ("ref/prompt", "name") } else { ("ref/resource", "uri") };
    let reference = Object::new().put_str("type", kind).put_str(key, own);
    match title.filter(|title| of_prompt && title.kind() == Kind::String) {
        Some(title) => reference.put("title", &title).finish(),
        None => reference.finish(),
    }
}

/// The form of everything else.
fn check(params: &Json, reference: &Json) -> Result<(), RouteError> {
    if reference.members().any(|(key, _)| misspells(&key, &["type", "name", "uri"])) {
        return malformed("a member of `params.ref` is spelt in another case than the protocol's");
    }
    let argument = params.member("argument").unwrap_or_else(Json::null);
    let is_text = |key| argument.member(key).is_some_and(|member| member.kind() == Kind::String);
    if !is_text("name") || !is_text("value") {
        return malformed("`params.argument` must be an object with a `name` and a `value`, both strings");
    }
    let context = params.member("context");
    let resolved = context.as_ref().and_then(|context| context.member("arguments"));
    if context.is_some_and(|context| !context.is_object()) || !resolved.as_ref().is_none_or(are_strings) {
        return malformed("`params.context.arguments` must be an object of strings");
    }
    Ok(())
}

fn malformed<T>(what: &'static str) -> Result<T, RouteError> {
    Err(RouteError::InvalidParams(what))
}
