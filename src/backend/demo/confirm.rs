//! `confirm`: a tool that asks its caller back, and goes on with the answer.
//!
//! spec: patterns/mrtr; client/elicitation, Response Actions

use std::hash::BuildHasher;
use std::hash::RandomState;

use crate::backend::BackendCall;
use crate::backend::demo::Said;
use crate::backend::demo::said;
use crate::backend::demo::text_of;
use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;

/// The key of the one thing that is asked.
const KEY: &str = "confirm";
/// Longest thing to confirm, in characters.
const ACTION: usize = 200;

/// What makes, and knows, the states of one tenant's `confirm`: keyed with the system's randomness, so
/// that nobody else makes one.
#[derive(Default)]
pub(super) struct Confirmations(RandomState);

impl Confirmations {
    /// The tool's answer to `call`, with these arguments.
    pub(super) fn answer(&self, call: &BackendCall, arguments: &Json) -> Outcome {
        let action = match arguments.member("action") {
            None => Ok("go on".to_owned()),
            Some(_) => text_of(arguments, "action"),
        };
        let action = match action {
            Ok(action) if action.chars().count() <= ACTION => action,
            Ok(_) => return said(Said::Wrong(format!("`action` has at most {ACTION} characters"))),
            Err(wrong) => return said(Said::Wrong(wrong)),
        };
        let state = self.state(&action);
        if call.state.as_ref().is_some_and(|theirs| *theirs != state) {
            return refused("the request state is not of this call", code::INVALID_PARAMS, None);
        }
        // Answers without the state that was asked for with them are answers to nothing.
        let responses = call.responses.as_ref().filter(|_| call.state.is_some());
        match responses.and_then(|all| all.member(KEY)) {
            Some(response) => said(heard(&response, &action)),
            None => ask(call, &action, &state),
        }
    }

    fn state(&self, action: &str) -> String {
        format!("{:016x}", self.0.hash_one(action))
    }
}

/// Asks, if that can be asked.
fn ask(call: &BackendCall, action: &str, state: &str) -> Outcome {
    let none = Object::new().finish();
    let elicitation = call.capabilities.member("elicitation");
    let has = |mode: &str| elicitation.as_ref().is_some_and(|modes| modes.member(mode).is_some());
    if elicitation.is_none() || has("url") && !has("form") {
        let form = Object::new().put("form", &none).finish();
        let required = Object::new().put("elicitation", &form).finish();
        let data = Object::new().put("requiredCapabilities", &required).finish();
        return refused("`confirm` asks with a form", code::MISSING_CAPABILITY, Some(data));
    }
    let field = Object::new()
        .put_str("type", "boolean")
        .put_str("title", "Confirm")
        .put_str("description", "Whether to do it.");
    let schema = Object::new()
        .put_str("type", "object")
        .put("properties", &Object::new().put(KEY, &field.finish()).finish())
        .put("required", &Array::new().push_str(KEY).finish());
    let params = Object::new()
        .put_str("mode", "form")
        .put_str("message", &format!("Do you want this: {action}?"))
        .put("requestedSchema", &schema.finish());
    let request = Object::new().put_str("method", "elicitation/create").put("params", &params.finish());
    let result = Object::new()
        .put_str("resultType", "input_required")
        .put("inputRequests", &Object::new().put(KEY, &request.finish()).finish())
        .put_str("requestState", state)
        .put("_meta", &Object::new().put(SERVER_INFO, &our_info()).finish());
    Outcome::Asks(result.finish())
}

/// What the answer means.
fn heard(response: &Json, action: &str) -> Said {
    let answered = response.member("action").and_then(|word| word.string());
    let content = response.member("content");
    let confirmed = content.and_then(|content| content.member(KEY)).and_then(|value| value.boolean());
    Said::Text(match (answered.as_deref(), confirmed) {
        (Some("accept"), Some(true)) => format!("confirmed: {action}"),
        (Some("accept"), Some(false)) => format!("not confirmed: {action}"),
        (Some("decline"), _) => format!("declined: {action}"),
        (Some("cancel"), _) => format!("cancelled: {action}"),
        _ => {
            return Said::Wrong(format!(
                "the answer `{KEY}` is `accept` with a boolean, `decline` or `cancel`"
            ));
        }
    })
}

fn refused(message: &str, code: i64, data: Option<Json>) -> Outcome {
    Outcome::Error(RpcError { code, message: message.to_owned(), data })
}
