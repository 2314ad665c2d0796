//! What a client of the handshake era can be asked, which is nothing yet: there it would be a request of
//! ours in the middle of its own.

use crate::legacy::session::Session;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;

/// What somebody is asked by who has these capabilities.
const ASKED: [&str; 3] = ["elicitation", "sampling", "roots"];

/// What the client of `session` can do in a call.
pub(super) fn capabilities(session: &Session) -> Json {
    let carried = session.capabilities.members().filter(|(name, _)| !ASKED.contains(&&**name));
    carried.fold(Object::new(), |all, (name, value)| all.put(&name, &value)).finish()
}
