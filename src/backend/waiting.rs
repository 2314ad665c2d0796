//! Calls that wait for their clients' answers: how many there may be, and how they end without them.

use std::fmt;
use std::sync::Arc;

use crate::backend::legacy::ticket::Ticket;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tally::Counted;
use crate::model::tally::Tally;

/// What callers have of all backends together.
#[derive(Default)]
pub struct Seats {
    /// The sessions of callers, each tenant's.
    pub sessions: Arc<Tally<TenantName>>,
    /// The calls that wait, each tenant's.
    tenants: Arc<Tally<TenantName>>,
    /// The same, each caller's.
    callers: Arc<Tally<Arc<str>>>,
}

/// One place among the calls that wait, until it is dropped.
pub(super) struct Place {
    _caller: Counted<Arc<str>>,
    _tenant: Counted<TenantName>,
}

impl Seats {
    /// A place for a call of this principal, unless it, its tenant or the process has as many as it may.
    pub(super) fn place(&self, principal: &Arc<str>, tenant: &TenantName, limits: &Limits) -> Option<Place> {
        let own = self.callers.take(principal.clone(), limits.caller_parked_calls, usize::MAX)?;
        let all = self.tenants.take(tenant.clone(), limits.tenant_parked_calls, limits.parked_calls)?;
        Some(Place { _caller: own, _tenant: all })
    }
}

/// Whether a backend's state is that of a call which waits in some process for its client's answers.
pub fn waits(state: &str) -> bool {
    Ticket::read(state).is_some()
}

/// Why what a backend asked has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It may not ask that.
    Refused,
    /// Nobody answers.
    Nobody,
}

/// Why a call that its backend asked back does not go on. `Display` is what the caller, or its model, reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// No such call waits for this caller: its time is over, or others of its answers were taken.
    Unknown,
    /// One of the answers is none.
    Malformed(&'static str),
    /// As many calls wait as may, or the backend is about to be spoken to otherwise.
    Busy,
    /// The process that knew it, or the session that it was in, is gone.
    Lost,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such call waits for answers",
            Self::Malformed(problem) => problem,
            Self::Busy => {
                "the backend asks for input, and the gateway is busy: too many calls wait for answers \
                 already; this one was cancelled"
            }
            Self::Lost => "the interaction was lost; its outcome is unknown; check before trying again",
        })
    }
}
