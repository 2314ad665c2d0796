//! What a backend is told that its client can do: what the client declared, as far as it can do that
//! through this gateway.

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::tasks;

/// What a client may be able to do but cannot do through us: what asks the user back, and
/// whatever an extension means.
const NOT_CARRIED: [&str; 4] = ["elicitation", "sampling", "roots", "extensions"];

/// What of these client capabilities a backend is told, which may answer with `tasks` or not.
///
/// spec: row GW-04
pub(super) fn carried(declared: &Json, tasks: bool) -> Json {
    let carried = declared.members().filter(|(key, _)| !NOT_CARRIED.contains(&&**key));
    let carried = carried.fold(Object::new(), |all, (key, value)| all.put(&key, &value));
    carried.put_some(tasks::EXTENSIONS, extensions(declared, tasks).as_ref()).finish()
}

/// The extensions that a backend is told of: of the client's those that are carried and that the backend has.
///
/// spec: rows DV-05, EX-01
fn extensions(declared: &Json, tasks: bool) -> Option<Json> {
    let tasks = tasks::declared(declared).filter(|_| tasks)?;
    Some(Object::new().put(tasks::EXTENSION, &tasks).finish())
}
