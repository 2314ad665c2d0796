//! What a backend is watched for, and what it says has changed.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;

use crate::protocol::json::Json;

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
    /// What changes, as it is said. Dropping it ends the subscription.
    pub changes: Pin<Box<dyn Stream<Item = Change> + Send>>,
}
