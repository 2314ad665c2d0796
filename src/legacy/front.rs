//! What a message in a session asks for.

use std::sync::Arc;

use crate::legacy::asking;
use crate::legacy::session::Session;
use crate::protocol::ProtocolError;
use crate::protocol::call::Call;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::level::Level;
use crate::protocol::media::Accept;
use crate::protocol::message::Notification;
use crate::protocol::message::Request;
use crate::protocol::meta::Meta;
use crate::protocol::methods;
use crate::protocol::methods::INITIALIZE;
use crate::protocol::methods::Method;

const PING: &str = "ping";
const SET_LEVEL: &str = "logging/setLevel";
const CANCELLED: &str = "notifications/cancelled";
const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// The methods that this era has beside the modern ones, for logs and metrics.
const OWN: [&str; 7] =
    [INITIALIZE, PING, SUBSCRIBE, UNSUBSCRIBE, SET_LEVEL, CANCELLED, "notifications/initialized"];

/// What a request asks for.
pub enum Asked {
    /// Whether we are there.
    Ping,
    /// To hear when this resource changes.
    Subscribe(Arc<str>),
    /// Not to hear it any more.
    Unsubscribe(Arc<str>),
    /// That its session hears log messages from this level on.
    SetLevel(Level),
    /// What the modern road answers.
    Call(Box<Call>),
}

/// The name of a method, if it is one that somebody in a session may call.
pub fn label(method: &str) -> Option<&'static str> {
    let own = OWN.into_iter().find(|own| *own == method);
    own.or_else(|| shared(method).map(Method::name))
}

/// Steps 14 and 15 for a request of a session. Nothing is mirrored in headers, and what the client can
/// do was said at the start.
pub fn ask(request: Request, session: &Session, accept: Accept) -> Result<Asked, ProtocolError> {
    let Request { id, method, params, meta } = request;
    if params.as_ref().is_some_and(|params| !params.is_object()) {
        return Err(ProtocolError::InvalidParams("`params` has to be an object"));
    }
    let meta = Meta::in_session(meta.as_ref(), asking::capabilities(session, accept.sse))?;
    if method == PING {
        return Ok(Asked::Ping);
    }
    if method == SUBSCRIBE || method == UNSUBSCRIBE {
        let uri = params.as_ref().and_then(|params| params.member("uri")?.string()).map(Arc::from);
        let uri = uri.ok_or(ProtocolError::InvalidParams("`params.uri` must be a string"))?;
        return Ok(if method == SUBSCRIBE { Asked::Subscribe(uri) } else { Asked::Unsubscribe(uri) });
    }
    if method == SET_LEVEL {
        let level = params.and_then(|params| params.member("level")?.string());
        let level = level.and_then(|level| Level::named(&level));
        return level
            .map(Asked::SetLevel)
            .ok_or(ProtocolError::InvalidParams("`params.level` is no log level"));
    }
    let method = shared(&method).ok_or(ProtocolError::MethodNotFound)?;
    let params = params.map_or_else(|| Object::new().finish(), without_task);
    let name = methods::mirrored_member(method.name()).and_then(|member| params.member(member)?.string());
    let name = name.map(Arc::from);
    Ok(Asked::Call(Box::new(Call { id, method, name, params, meta, accept, mirrored: None })))
}

/// The id of the request that a notification cancels.
pub fn cancels(notification: &Notification) -> Option<Json> {
    let params = notification.params.as_ref().filter(|_| notification.method == CANCELLED)?;
    params.member("requestId")
}

/// A modern method that this era has, too.
fn shared(method: &str) -> Option<Method> {
    match Method::named(method)? {
        Method::Discover | Method::Listen => None,
        // spec: SEP-2663, Backward Compatibility: this era knows nothing of the extension.
        method if method.is_about_a_task() => None,
        method => Some(method),
    }
}

/// Tasks are not offered: a call that asks for one is a plain call.
///
/// spec: 2025-11-25 basic/utilities/tasks, Capability Negotiation
fn without_task(params: Json) -> Json {
    if params.member("task").is_none() {
        return params;
    }
    let members = params.members().filter(|(name, _)| name != "task");
    members.fold(Object::new(), |all, (name, value)| all.put(&name, &value)).finish()
}
