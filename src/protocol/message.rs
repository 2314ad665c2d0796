//! Step 9: the era and the JSON-RPC envelope.

use crate::protocol::json::Json;

/// A request id: a string or an integer of bounded length, kept as its JSON text so that it is
/// echoed digit for digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Json);
