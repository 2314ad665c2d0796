//! `subscriptions/listen`: to what, and which resources a caller may hear of.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::exchange::Exchange;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::tenant::Catalog;
use crate::model::tenant::Tenant;
use crate::policy::Operation;
use crate::protocol::json::Json;
use crate::protocol::json::Kind as Type;
use crate::protocol::subscription::FILTER;
use crate::protocol::subscription::Kind;
use crate::protocol::subscription::Kinds;
use crate::protocol::subscription::TASK_IDS;
use crate::protocol::subscription::URIS;
use crate::protocol::tasks;
use crate::router::RouteError;
use crate::router::allows;

/// What a client wants to hear of.
#[derive(Debug, Default)]
pub struct Filter {
    /// The lists that change.
    pub kinds: Kinds,
    /// The resources whose contents change, each once, as the client spells them.
    pub uris: Vec<Arc<str>>,
    /// The tasks that go on, each once, as the client knows them.
    pub tasks: Vec<Arc<str>>,
}

impl Filter {
    /// Refuses a filter that is too large.
    pub fn check(&self, limits: &Limits) -> Result<(), RouteError> {
        let names = || self.uris.iter().chain(&self.tasks);
        let bytes: usize = names().map(|name| name.len()).sum();
        if names().count() > limits.subscription_uris || bytes > limits.subscription_bytes {
            return Err(RouteError::InvalidParams(
                "`params.notifications` names more resources and tasks than one subscription may have",
            ));
        }
        Ok(())
    }
}

/// The filter of a request. Members that nobody knows are no fault.
///
/// spec: patterns/subscriptions, Notification Filter
pub(super) fn filter(exchange: &Exchange) -> Result<Filter, RouteError> {
    // There is nothing but a stream to answer with.
    if !exchange.call.accept.sse {
        return Err(RouteError::NeedsStream);
    }
    let filter = exchange.call.params.member(FILTER).filter(Json::is_object);
    let filter = filter.ok_or(RouteError::InvalidParams("`params.notifications` must be an object"))?;
    let mut wanted = Filter::default();
    for kind in Kind::ALL {
        let flag = filter.member(kind.flag()).map(|flag| {
            flag.boolean().ok_or(RouteError::InvalidParams(
                "`params.notifications.toolsListChanged`, `promptsListChanged` and `resourcesListChanged` must \
                 be booleans",
            ))
        });
        if flag.transpose()? == Some(true) {
            wanted.kinds = wanted.kinds.or([kind].into_iter().collect());
        }
    }
    if let Some(uris) = filter.member(URIS) {
        wanted.uris = strings(&uris).ok_or(RouteError::InvalidParams(
            "`params.notifications.resourceSubscriptions` must be an array of strings",
        ))?;
    }
    if let Some(ids) = filter.member(TASK_IDS) {
        // spec: SEP-2663, Task Status Notifications; row EX-06
        tasks::declared(&exchange.call.meta.capabilities).ok_or(RouteError::NeedsTasks)?;
        wanted.tasks = strings(&ids)
            .ok_or(RouteError::InvalidParams("`params.notifications.taskIds` must be an array of strings"))?;
    }
    Ok(wanted)
}

/// The strings of an array of strings, each once.
fn strings(list: &Json) -> Option<Vec<Arc<str>>> {
    if list.kind() != Type::Array || list.elements().any(|one| one.kind() != Type::String) {
        return None;
    }
    let mut all: Vec<Arc<str>> = list.elements().filter_map(|one| Some(one.string_ref()?.into())).collect();
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.clone()));
    Some(all)
}

/// Whether it is heard when this resource changes. Subscriptions with backends are the gateway's own: what a
/// backend has for single callers, it may have nothing of for that, or tell it what only they may know.
pub fn is_heard(entry: &Entry) -> bool {
    entry.home.config.catalog == Catalog::Shared
}

/// The resource of this URI, if `caller` may read it: who may not is told nothing of its changes, either.
pub fn readable(
    snapshot: &Snapshot,
    caller: &Caller,
    tenant: &Tenant,
    uri: &str,
) -> Result<Arc<Entry>, RouteError> {
    let found = snapshot.resource(uri);
    let allowed = allows(caller, tenant, Operation::Read, found.as_ref())?;
    found.filter(|_| allowed).ok_or_else(|| RouteError::UnknownResource { uri: uri.to_owned() })
}
