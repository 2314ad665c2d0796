//! A call that waits in this process for its client's answers, as whoever asks the client for them has it.

use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::waiting::Unanswered;
use crate::backend::waiting::waits;
use crate::catalog::entry::Entry;
use crate::exchange::Exchange;
use crate::methods::rounds::Sealing;
use crate::model::caller::Caller;
use crate::protocol::call::REQUEST_STATE;
use crate::protocol::json::Json;
use crate::router::state::Occasion;

/// A call that waits. If it still does when this is dropped, its backend is told that nobody answers, and
/// the call is cancelled.
pub struct Waiting {
    live: Arc<Backend>,
    caller: Arc<Caller>,
    state: String,
}

impl Waiting {
    /// Of this exchange with the backend of `entry`, which was answered with this `input_required`. `None`
    /// where nothing waits: the backend wants all of it back.
    pub fn of(exchange: &Exchange, entry: &Entry, sealing: &Sealing, result: &Json) -> Option<Self> {
        let handle = result.member(REQUEST_STATE)?.string()?;
        let state = Occasion::of(exchange, entry).open(&sealing.keys, &handle, sealing.clock.now()).ok()?;
        let state = Some(state.upstream).filter(|state| waits(state))?;
        Some(Self { live: entry.home.live.clone(), caller: exchange.caller.clone(), state })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.live.forsake(&self.caller, &self.state, Unanswered::Nobody);
    }
}
