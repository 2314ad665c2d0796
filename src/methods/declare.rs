//! What a backend is told that its client can do: what the client declared, as far as it can do that
//! through this gateway.

use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// What a client may be able to do but cannot do through us: what asks the user back, and
/// whatever an extension means.
const NOT_CARRIED: [&str; 4] = ["elicitation", "sampling", "roots", "extensions"];

/// What of these client capabilities a backend is told.
///
/// spec: row GW-04
pub(super) fn carried(declared: &Json) -> Json {
    let carried = declared.members().filter(|(key, _)| !NOT_CARRIED.contains(&&**key));
    carried.fold(Object::new(), |all, (key, value)| all.put(&key, &value)).finish()
}
