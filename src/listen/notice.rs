//! What listeners are told, as messages. In a subscription each of them names it, by the id of the request
//! that opened it; in a session there is nothing to name.
//!
//! spec: patterns/subscriptions, Receiving Notifications

use std::sync::Arc;

use crate::listen::listener::Due;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::SERVER_INFO;
use crate::protocol::meta::our_info;
use crate::protocol::subscription::ACKNOWLEDGED;
use crate::protocol::subscription::FILTER;
use crate::protocol::subscription::Kinds;
use crate::protocol::subscription::SUBSCRIPTION_ID;
use crate::protocol::subscription::TASK;
use crate::protocol::subscription::TASK_IDS;
use crate::protocol::subscription::UPDATED;
use crate::protocol::subscription::URIS;

/// The first message: what of the filter is honoured.
///
/// spec: patterns/subscriptions, Acknowledgment
pub(super) fn acknowledged(subscription: &Json, kinds: Kinds, uris: &[Arc<str>], tasks: &[Arc<str>]) -> Json {
    let mut filter = kinds.iter().fold(Object::new(), |all, kind| all.put_bool(kind.flag(), true));
    for (member, names) in [(URIS, uris), (TASK_IDS, tasks)] {
        if !names.is_empty() {
            let names = names.iter().fold(Array::new(), |all, name| all.push_str(name)).finish();
            filter = filter.put(member, &names);
        }
    }
    let params = Object::new().put("_meta", &meta(subscription)).put(FILTER, &filter.finish());
    notification(ACKNOWLEDGED).put("params", &params.finish()).finish()
}

/// That something has changed.
pub(super) fn changed(subscription: Option<&Json>, due: &Due) -> Json {
    let meta = subscription.map(meta);
    match due {
        Due::List(kind) => {
            let params = meta.map(|meta| Object::new().put("_meta", &meta).finish());
            notification(kind.notification()).put_some("params", params.as_ref()).finish()
        }
        Due::Resource(uri) => {
            let params = Object::new().put_some("_meta", meta.as_ref()).put_str("uri", uri).finish();
            notification(UPDATED).put("params", &params).finish()
        }
    }
}

/// What a task is at: the result of a `tasks/get`, without what makes it one.
///
/// spec: SEP-2663, Task Status Notifications
pub(super) fn task(subscription: Option<&Json>, task: &Json) -> Json {
    let told = Object::with_capacity(task.bytes().len() + 128);
    let told = told.put_some("_meta", subscription.map(meta).as_ref());
    let members = task.members().filter(|(key, _)| !matches!(&**key, "_meta" | "resultType"));
    let told = members.fold(told, |told, (key, value)| told.put(&key, &value));
    notification(TASK).put("params", &told.finish()).finish()
}

/// The result of the request that opened the subscription: its end.
///
/// spec: patterns/subscriptions, Graceful Closure
pub(super) fn ended(subscription: &Json) -> Json {
    let meta = Object::new().put(SUBSCRIPTION_ID, subscription).put(SERVER_INFO, &our_info()).finish();
    Object::new().put_str("resultType", "complete").put("_meta", &meta).finish()
}

fn meta(subscription: &Json) -> Json {
    Object::new().put(SUBSCRIPTION_ID, subscription).finish()
}

fn notification(method: &str) -> Object {
    Object::new().put_str("jsonrpc", "2.0").put_str("method", method)
}
