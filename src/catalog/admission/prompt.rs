//! A prompt: its name and its arguments.

use std::sync::Arc;

use crate::catalog::admission::Desk;
use crate::catalog::admission::Taken;
use crate::catalog::admission::Unfit;
use crate::catalog::admission::descriptor;
use crate::catalog::entry::Prompt;
use crate::catalog::names;
use crate::model::tenant::ObjectKind;
use crate::protocol::json::Json;

/// Most arguments of a prompt: each call is judged by all of them.
const ARGUMENTS: usize = 256;

/// spec: server/prompts, Prompt
pub(super) fn judge(desk: &Desk<'_>, raw: &Json) -> Taken<(Arc<str>, Arc<Prompt>)> {
    let own = desk.own(raw)?;
    let public = desk.free(names::public_name(&desk.home.config.prefix, &own)?)?;
    descriptor::check_members(desk.list, raw)?;
    let arguments = raw.member("arguments").unwrap_or_else(Json::null);
    if arguments.elements().nth(ARGUMENTS).is_some() {
        return Err(Unfit::Arguments(ARGUMENTS));
    }
    let is_required =
        |argument: &Json| argument.member("required").and_then(|required| required.boolean()) == Some(true);
    let required = arguments.elements().filter(is_required);
    let required = required.filter_map(|argument| argument.member("name")?.string().map(Arc::from)).collect();
    let (entry, change) = desk.entry(ObjectKind::Prompt, own, public.clone(), raw);
    Ok(((public, Arc::new(Prompt { entry, required })), change))
}
