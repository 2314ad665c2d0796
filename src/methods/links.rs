//! URIs in results: a backend's own become those that clients know.
//!
//! They are changed where the protocol has them, in links, embedded resources and contents, and nowhere
//! else: everything around them is relayed byte for byte.

use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::uris;
use crate::model::tenant::Uris;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::change;

/// How the URIs in one result are changed; `None` where the backend's are kept.
pub(super) struct Links(Option<Prefixed>);

/// A backend whose URIs are shown behind its name.
struct Prefixed {
    home: Arc<Home>,
    snapshot: Arc<Snapshot>,
}

impl Links {
    /// For results about `entry`.
    pub(super) fn of(entry: &Entry, snapshot: &Arc<Snapshot>) -> Self {
        let prefixed = entry.home.config.uris == Uris::Prefixed;
        Self(prefixed.then(|| Prefixed { home: entry.home.clone(), snapshot: snapshot.clone() }))
    }

    /// For results that have no URIs to change.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// An outcome with the result that `of` makes of it, if that is another.
    pub(super) fn change(&self, outcome: Outcome, of: impl Fn(&Self, &Json) -> Option<Json>) -> Outcome {
        match outcome {
            Outcome::Result(result) => Outcome::Result(of(self, &result).unwrap_or(result)),
            error => error,
        }
    }

    /// A tool's result.
    ///
    /// spec: server/tools, Tool Result
    pub(super) fn content(&self, result: &Json) -> Option<Json> {
        let prefixed = self.0.as_ref()?;
        change::member(result, "content", |content| change::elements(content, |block| prefixed.block(block)))
    }

    /// A prompt.
    ///
    /// spec: server/prompts, PromptMessage
    pub(super) fn messages(&self, result: &Json) -> Option<Json> {
        let prefixed = self.0.as_ref()?;
        let message = |message: &Json| {
            change::member(message, "content", |content| match content.kind() {
                Kind::Array => change::elements(content, |block| prefixed.block(block)),
                _ => prefixed.block(content),
            })
        };
        change::member(result, "messages", |messages| change::elements(messages, message))
    }

    /// What a resource has in it.
    ///
    /// spec: server/resources, Resource Contents
    pub(super) fn contents(&self, result: &Json) -> Option<Json> {
        let prefixed = self.0.as_ref()?;
        change::member(result, "contents", |contents| {
            change::elements(contents, |part| prefixed.resource(part))
        })
    }
}

impl Prefixed {
    fn block(&self, block: &Json) -> Option<Json> {
        match &*block.member("type")?.string_ref()? {
            "resource_link" => change::member(block, "uri", |uri| self.link(uri)),
            "resource" => change::member(block, "resource", |resource| self.resource(resource)),
            _ => None,
        }
    }

    fn resource(&self, resource: &Json) -> Option<Json> {
        change::member(resource, "uri", |uri| Some(Json::from_str_value(&self.public(&uri.string_ref()?))))
    }

    /// A link into the web that the backend does not list leads there, for the client as for us.
    fn link(&self, uri: &Json) -> Option<Json> {
        let own = uri.string_ref()?;
        let public = self.public(&own);
        let web = uris::scheme(&own).is_some_and(|scheme| {
            scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
        });
        let listed = || self.snapshot.resources.find(&public).is_some();
        (!web || listed()).then(|| Json::from_str_value(&public))
    }

    fn public(&self, own: &str) -> String {
        uris::public_uri(&self.home.config, own)
    }
}
