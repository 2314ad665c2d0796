//! MCP Apps: tools with views, which hosts that show them read under `ui://`.
//!
//! A host that does not declare the extension sees tools as if they had no view, and no views.
//!
//! spec: docs/extensions/apps/overview; ext-apps 2026-01-26, Resource Discovery

use crate::catalog::uris;
use crate::model::tenant::Backend;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Uris;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::change;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::Meta;
use crate::protocol::meta::UI;

/// The keys of `_meta` that say which view something has: the extension's, and an older one.
const KEYS: [&str; 2] = ["ui", "ui/resourceUri"];

/// What a client does with views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// It shows them, and says so.
    Apps,
    /// It knows nothing of them.
    Plain,
}

/// What an entry of the catalog has to do with views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ui {
    /// Nothing.
    None,
    /// A tool that has one; and what lists show of it to who knows nothing of views.
    Tool(Json),
    /// It is one.
    View,
}

impl Host {
    /// What the client of a request does.
    pub fn of(meta: &Meta) -> Self {
        match meta.extension(UI) {
            Some(_) => Self::Apps,
            None => Self::Plain,
        }
    }
}

impl Ui {
    /// Of an entry with this own name or URI, which lists show like this.
    pub fn of(kind: ObjectKind, own: &str, descriptor: &Json) -> Self {
        match kind {
            ObjectKind::Tool => plain(descriptor).map_or(Self::None, Self::Tool),
            ObjectKind::Resource if is_view(own) => Self::View,
            ObjectKind::Resource | ObjectKind::Prompt => Self::None,
        }
    }
}

/// Whether a backend's own URI, or URI template, is a view's.
fn is_view(own: &str) -> bool {
    uris::scheme(own).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ui"))
}

/// A tool, or its result, without what its `_meta` says of views, if that says something.
fn plain(object: &Json) -> Option<Json> {
    let is_kept = |key: &str| !KEYS.contains(&key);
    let meta = object.member("_meta")?;
    if meta.members().all(|(key, _)| is_kept(&key)) {
        return None;
    }
    let mut kept = meta.members().filter(|(key, _)| is_kept(key)).peekable();
    let anything = kept.peek().is_some();
    let kept = kept.fold(Object::new(), |all, (key, value)| all.put(&key, &value)).finish();
    let mut whole = Object::with_capacity(object.bytes().len());
    for (key, value) in object.members() {
        whole = match &*key {
            "_meta" => whole.put_some("_meta", anything.then_some(&kept)),
            key => whole.put(key, &value),
        };
    }
    Some(whole.finish())
}

/// The outcome of a tool's call, for this host.
pub fn shown(outcome: Outcome, host: Host) -> Outcome {
    match outcome {
        Outcome::Result(result) if host == Host::Plain => Outcome::Result(plain(&result).unwrap_or(result)),
        other => other,
    }
}

/// The `_meta` of a tool, or of its result, with the URI of its view as clients know it, where that is
/// another: they read it to show the tool's results.
pub fn public_meta(backend: &Backend, meta: &Json) -> Option<Json> {
    if backend.uris == Uris::Keep {
        return None;
    }
    let public = |uri: &Json| {
        let own = uri.string_ref().filter(|own| own.starts_with("ui://"))?;
        Some(Json::from_str_value(&uris::public_uri(backend, &own)))
    };
    let [nested, flat] = KEYS;
    let changed = change::member(meta, nested, |ui| change::member(ui, "resourceUri", public));
    change::member(changed.as_ref().unwrap_or(meta), flat, public).or(changed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Ui;
    use crate::model::tenant::ObjectKind;
    use crate::protocol::json::Json;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    // spec: row EX-07
    #[test]
    fn a_tool_without_its_view_is_otherwise_as_it_was() {
        for (shown, plain) in [
            (r#"{"a":1e400,"_meta":{"ui":{"x":1}},"b":[ 1 ]}"#, Some(r#"{"a":1e400,"b":[ 1 ]}"#)),
            (r#"{"_meta":{"k":1.0,"ui":7,"ui/resourceUri":"ui://v"}}"#, Some(r#"{"_meta":{"k":1.0}}"#)),
            (r#"{"_meta":{"\u0075i/resourceUri":"ui://v"}}"#, Some("{}")),
            (r#"{"_meta":{"ui2":1,"x":{"ui":1}},"ui":1}"#, None),
            (r#"{"name":"ui"}"#, None),
        ] {
            let expected = plain.map_or(Ui::None, |plain| Ui::Tool(json(plain)));
            assert_eq!(Ui::of(ObjectKind::Tool, "a", &json(shown)), expected, "{shown}");
        }
        for (own, expected) in [("ui://v", Ui::View), ("UI://v/{x}", Ui::View), ("uix://v", Ui::None)] {
            assert_eq!(Ui::of(ObjectKind::Resource, own, &Json::null()), expected, "{own}");
        }
    }
}
