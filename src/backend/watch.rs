//! What a backend is watched for, and what it says has changed.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// The key of `_meta` that names a subscription.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// What is wanted, or honoured, of a backend's changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// That its tools are others now.
    pub tools: bool,
    /// That its prompts are others now.
    pub prompts: bool,
    /// That its resources or templates are others now.
    pub resources: bool,
    /// That the contents of these resources are others now: the backend's own URIs.
    pub uris: Vec<Arc<str>>,
    /// That these tasks went on: the backend's own ids.
    pub tasks: Vec<Arc<str>>,
}

/// Something that a backend says has changed. What was not asked for is never said.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Its resources or templates.
    Resources,
    /// The contents of the resource with this own URI, which was asked for or lies below one that was.
    Resource(Arc<str>),
    /// A task: the `params` of its notification, as they came, without what names the subscription.
    Task(Json),
}

/// An open subscription. It ends when the backend ends it, or the connection does; what changed until
/// the next one is open is not known.
pub struct Watching {
    /// What of the interest the backend honours.
    pub honoured: Interest,
    /// What changes, as it is said. Dropping it ends the subscription. Where nothing is honoured, it does not
    /// end before it is worth asking again.
    pub changes: Pin<Box<dyn Stream<Item = Change> + Send>>,
}

impl Watching {
    /// Nothing is honoured, and it is not worth asking again before `until`.
    pub(super) fn unheard(until: Instant) -> Self {
        let waiting = stream::once(tokio::time::sleep_until(until));
        Self { honoured: Interest::default(), changes: Box::pin(waiting.filter_map(async |()| None)) }
    }
}

impl Interest {
    /// Of every list that there is.
    pub fn in_lists() -> Self {
        Self { tools: true, prompts: true, resources: true, ..Self::default() }
    }

    /// Whether it is of nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is of any list.
    pub(super) fn is_of_lists(&self) -> bool {
        self.tools || self.prompts || self.resources
    }

    /// Whether it is of some resources or tasks.
    pub(super) fn is_of_some(&self) -> bool {
        !self.uris.is_empty() || !self.tasks.is_empty()
    }

    /// What a message of a backend says of what is wanted, if it is a notification of that.
    ///
    /// spec: patterns/subscriptions, Receiving Notifications
    pub(super) fn change(&self, message: &Json) -> Option<Change> {
        if message.member("id").is_some() {
            return None;
        }
        let method = message.member("method")?;
        match &*method.string_ref()? {
            "notifications/tools/list_changed" => self.tools.then_some(Change::Tools),
            "notifications/prompts/list_changed" => self.prompts.then_some(Change::Prompts),
            "notifications/resources/list_changed" => self.resources.then_some(Change::Resources),
            "notifications/resources/updated" => {
                let uri = message.member("params")?.member("uri")?.string()?;
                self.above(&uri).map(|_| Change::Resource(uri.into()))
            }
            "notifications/tasks" => {
                let params = message.member("params")?;
                let id = params.member("taskId")?;
                let id = id.string_ref()?;
                self.tasks
                    .iter()
                    .any(|task| **task == *id)
                    .then(|| Change::Task(without_subscription(&params)))
            }
            _ => None,
        }
    }

    /// The wanted URI that `uri` is, or lies below.
    ///
    /// spec: schema, ResourceUpdatedNotification: it may be a part of what was subscribed to
    pub(super) fn above(&self, uri: &str) -> Option<&Arc<str>> {
        let exact = self.uris.iter().find(|wanted| ***wanted == *uri);
        exact.or_else(|| self.uris.iter().find(|wanted| is_below(uri, wanted)))
    }
}

/// Whether `uri` is a part of what `above` names.
fn is_below(uri: &str, above: &str) -> bool {
    let rest = uri.strip_prefix(above).filter(|_| !above.is_empty());
    rest.is_some_and(|rest| above.ends_with('/') || rest.starts_with(['/', '#', '?']))
}

/// `params` as they are, but for what names the backend's subscription.
fn without_subscription(params: &Json) -> Json {
    let mut kept = Object::with_capacity(params.bytes().len());
    for (key, value) in params.members() {
        if key != "_meta" {
            kept = kept.put(&key, &value);
            continue;
        }
        let mut others = value.members().filter(|(key, _)| key != SUBSCRIPTION_KEY).peekable();
        if others.peek().is_some() {
            let meta = others.fold(Object::new(), |meta, (key, value)| meta.put(&key, &value));
            kept = kept.put(&key, &meta.finish());
        }
    }
    kept.finish()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Change;
    use super::Interest;
    use crate::protocol::json::Json;

    fn said(interest: &Interest, message: &str) -> Option<Change> {
        interest.change(&Json::parse(Bytes::copy_from_slice(message.as_bytes()), 64).unwrap())
    }

    fn updated(uri: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
        )
    }

    #[test]
    fn what_was_not_asked_for_is_no_change() {
        let nothing = Interest::default();
        let all = Interest { uris: vec!["x://a".into(), "x://d/".into()], ..Interest::in_lists() };
        for (kind, change) in
            [("tools", Change::Tools), ("prompts", Change::Prompts), ("resources", Change::Resources)]
        {
            let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
            assert_eq!(said(&all, &message), Some(change));
            assert_eq!(said(&nothing, &message), None);
        }
        for (uri, is_wanted) in [
            ("x://a", true),
            ("x://a/b", true),
            ("x://a#b", true),
            ("x://ab", false),
            ("x://d/e", true),
            ("x://d", false),
            ("", false),
        ] {
            assert_eq!(said(&all, &updated(uri)), is_wanted.then(|| Change::Resource(uri.into())), "{uri}");
            assert_eq!(said(&nothing, &updated(uri)), None);
        }
        for noise in [
            r#"{"jsonrpc":"2.0","id":1,"method":"notifications/tools/list_changed"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
            r#"{"jsonrpc":"2.0","method":7}"#,
            r#"[]"#,
        ] {
            assert_eq!(said(&all, noise), None, "{noise}");
        }
    }

    #[test]
    fn a_task_comes_as_it_was_said_without_the_name_of_the_subscription() {
        let interest = Interest { tasks: vec!["t1".into()], ..Interest::default() };
        let message = |id: &str, meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{"taskId":"{id}","n":1e400,"_meta":{{{meta}}}}}}}"#
            )
        };
        let ours = r#""io.modelcontextprotocol/subscriptionId":7"#;
        for (meta, left) in
            [(ours.to_owned(), ""), (format!(r#"{ours},"a/b":null"#), r#","_meta":{"a/b":null}"#)]
        {
            let Some(Change::Task(params)) = said(&interest, &message("t1", &meta)) else { panic!("{meta}") };
            assert_eq!(params.text(), format!(r#"{{"taskId":"t1","n":1e400{left}}}"#));
        }
        assert_eq!(said(&interest, &message("t2", ours)), None);
    }
}
