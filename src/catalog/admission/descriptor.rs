//! What lists show of an entry: which members it may have, and what is changed of them.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::catalog::admission::Desk;
use crate::catalog::admission::Unfit;
use crate::catalog::text;
use crate::catalog::ui;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::change;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::List;

/// The schemes of icons that a client may load.
///
/// spec: basic/index, icons
/// The member of a tool that only the handshake era knows.
const EXECUTION: &str = "execution";

const ICON_SCHEMES: [&str; 3] = ["https:", "http:", "data:"];

/// What was changed of an entry. `Display` is what the tenant's operators read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Change {
    /// A text in this member.
    #[error("its `{0}` had hidden characters or was too long")]
    Text(&'static str),
    /// Icons that no client may load.
    #[error("its `icons` had some that are neither on the web nor data")]
    Icons,
}

/// Refuses members of a type that the specification does not know: a client that is strict about
/// one entry drops the whole list.
pub(super) fn check_members(list: List, raw: &Json) -> Result<(), Unfit> {
    let resource = matches!(list, List::Resources | List::Templates);
    for (key, value) in raw.members() {
        let text = value.kind() == Kind::String;
        let (member, fits) = match &*key {
            "title" => ("title", text),
            "description" => ("description", text),
            "mimeType" if resource => ("mimeType", text),
            "size" if list == List::Resources => ("size", value.kind() == Kind::Number),
            "annotations" if list == List::Tools => ("annotations", has_hints(&value)),
            "annotations" if resource => ("annotations", has_annotations(&value)),
            "arguments" if list == List::Prompts => ("arguments", are_arguments(&value)),
            "icons" => ("icons", value.kind() == Kind::Array && value.elements().all(|icon| is_icon(&icon))),
            "_meta" => ("_meta", value.is_object()),
            _ => continue,
        };
        if !fits {
            return Err(Unfit::Member(member));
        }
    }
    Ok(())
}

/// Refuses a tool that is only run as a task of 2025-11-25. Where its backend has the extension, that word
/// of the handshake era says nothing: who calls it without knowing tasks is told so by the backend.
///
/// spec: 2025-11-25 basic/utilities/tasks, Tool-Level Negotiation; SEP-2663, Capability Negotiation
pub(super) fn refuse_task_only(desk: &Desk<'_>, raw: &Json) -> Result<(), Unfit> {
    let support = raw.member(EXECUTION).and_then(|execution| execution.member("taskSupport"));
    let required = support.is_some_and(|s| s.string_ref().is_some_and(|support| support == "required"));
    match required && !desk.home.tasks {
        true => Err(Unfit::TaskOnly),
        false => Ok(()),
    }
}

fn has_hints(value: &Json) -> bool {
    let fits = |key: &str, kind| match key {
        "title" => kind == Kind::String,
        "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => kind == Kind::Boolean,
        _ => true,
    };
    value.is_object() && value.members().all(|(key, member)| fits(&key, member.kind()))
}

/// spec: server/resources, Annotations
fn has_annotations(value: &Json) -> bool {
    let is_role = |role: Json| role.string_ref().is_some_and(|role| role == "user" || role == "assistant");
    let is_share = |text: &str| text.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share));
    let fits = |key: &str, member: Json| match key {
        "audience" => member.kind() == Kind::Array && member.elements().all(is_role),
        "priority" => member.kind() == Kind::Number && is_share(member.text()),
        "lastModified" => member.kind() == Kind::String,
        _ => true,
    };
    value.is_object() && value.members().all(|(key, member)| fits(&key, member))
}

/// Arguments of a prompt: each has a name of its own.
///
/// spec: server/prompts, Prompt
fn are_arguments(value: &Json) -> bool {
    let mut names = HashSet::new();
    let mut fits = |argument: Json| {
        let name = argument.member("name").and_then(|name| name.string());
        name.is_some_and(|name| !name.contains(text::is_hidden) && names.insert(name))
            && argument.members().all(|(key, member)| match &*key {
                "title" | "description" => member.kind() == Kind::String,
                "required" => member.kind() == Kind::Boolean,
                _ => true,
            })
    };
    value.kind() == Kind::Array && value.elements().all(&mut fits)
}

fn is_icon(value: &Json) -> bool {
    value.member("src").is_some_and(|src| src.kind() == Kind::String)
}

/// What lists show of an entry under its `public` name, and what was changed of it.
pub(super) fn describe(desk: &Desk<'_>, raw: &Json, public: &str) -> (Json, Option<Change>) {
    let (list, most) = (desk.list, desk.limits.description_bytes);
    let resource = matches!(list, List::Resources | List::Templates);
    let mut shown = Object::with_capacity(raw.bytes().len() + public.len());
    let mut what_changed = None;
    let unknown = |key: &str| list == List::Tools && key == EXECUTION;
    for (key, value) in raw.members().filter(|(key, _)| !unknown(key)) {
        let changed = match &*key {
            key if key == list.key() => Some((Json::from_str_value(public), None)),
            "name" if resource => text_of(&value, most, "name"),
            "title" => text_of(&value, most, "title"),
            "description" => text_of(&value, most, "description"),
            "mimeType" if resource => text_of(&value, most, "mimeType"),
            "annotations" => {
                with_texts(&value, &["title"], most).map(|new| (new, Some(Change::Text("annotations"))))
            }
            "arguments" if list == List::Prompts => {
                change::elements(&value, |argument| with_texts(argument, &["title", "description"], most))
                    .map(|new| (new, Some(Change::Text("arguments"))))
            }
            "_meta" if list == List::Tools => {
                ui::public_meta(&desk.home.config, &value).map(|new| (new, None))
            }
            "icons" => icons(&value).map(|new| (new, Some(Change::Icons))),
            _ => None,
        };
        shown = match changed {
            Some((new, what)) => {
                what_changed = what.or(what_changed);
                shown.put(&key, &new)
            }
            None => shown.put(&key, &value),
        };
    }
    (shown.finish(), what_changed)
}

fn text_of(value: &Json, most: usize, member: &'static str) -> Option<(Json, Option<Change>)> {
    cleaned(value, most).map(|new| (new, Some(Change::Text(member))))
}

/// The text of `value` cleaned, if it has to be another.
fn cleaned(value: &Json, most: usize) -> Option<Json> {
    match text::clean(&value.string_ref()?, most) {
        Cow::Borrowed(_) => None,
        Cow::Owned(other) => Some(Json::from_str_value(&other)),
    }
}

/// An object with these texts of it cleaned, if any has to be another.
fn with_texts(object: &Json, texts: &[&str], most: usize) -> Option<Json> {
    texts.iter().fold(None, |changed, key| {
        change::member(changed.as_ref().unwrap_or(object), key, |text| cleaned(text, most)).or(changed)
    })
}

/// The icons that a client may load, if some are none.
fn icons(value: &Json) -> Option<Json> {
    let loads = |icon: &Json| {
        let src = icon.member("src").and_then(|src| src.string()).unwrap_or_default();
        ICON_SCHEMES
            .iter()
            .any(|scheme| src.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)))
    };
    let all = value.elements().all(|icon| loads(&icon));
    (!all).then(|| value.elements().filter(loads).fold(Array::new(), |kept, icon| kept.push(&icon)).finish())
}
