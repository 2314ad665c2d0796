//! What a backend is told that its client can do: what the client declared, as far as it can do that
//! through this gateway.

use crate::model::tenant::Backend;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::UI;
use crate::protocol::tasks;

/// What a client may be able to do but cannot do through us: what asks the user back.
const NOT_CARRIED: [&str; 3] = ["elicitation", "sampling", "roots"];

/// Longest thing that a client may say of an extension, in bytes: what is longer is not told.
const EXTENSION_BYTES: usize = 4 << 10;

/// What of these client capabilities this backend is told, which may answer with `tasks` or not.
///
/// spec: row GW-04
pub(super) fn carried(declared: &Json, backend: &Backend, tasks: bool) -> Json {
    let mut carried = Object::new();
    for (key, value) in declared.members() {
        if key == "extensions" {
            carried = carried.put_some("extensions", extensions(&value, backend, tasks).as_ref());
        } else if !NOT_CARRIED.contains(&&*key) {
            carried = carried.put(&key, &value);
        }
    }
    carried.finish()
}

/// Of the extensions that a client declares, those that this gateway carries, and those that the tenant
/// lets this backend have.
///
/// spec: rows DV-05, EX-01, EX-14; basic/versioning, Extension Negotiation
fn extensions(declared: &Json, backend: &Backend, tasks: bool) -> Option<Json> {
    let is_carried = |name: &str| match name {
        tasks::EXTENSION => tasks,
        UI => true,
        _ => backend.extensions.iter().any(|allowed| **allowed == *name),
    };
    let fits = |value: &Json| value.is_object() && value.bytes().len() <= EXTENSION_BYTES;
    let mut carried = declared.members().filter(|(name, value)| is_carried(name) && fits(value)).peekable();
    carried.peek()?;
    Some(carried.fold(Object::new(), |all, (name, value)| all.put(&name, &value)).finish())
}
