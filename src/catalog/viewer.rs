//! Who looks at a catalog.

use std::sync::Arc;

use crate::exchange::Exchange;
use crate::model::caller::Caller;
use crate::protocol::json::Json;

/// Who looks at a catalog: what backends list for single callers hangs on it.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// The caller.
    pub caller: &'a Arc<Caller>,
    /// What its client declares that it can do, an object.
    pub capabilities: &'a Json,
}

impl<'a> Viewer<'a> {
    /// Who sent a request.
    pub fn of(exchange: &'a Exchange) -> Self {
        Self { caller: &exchange.caller, capabilities: &exchange.call.meta.capabilities }
    }
}
