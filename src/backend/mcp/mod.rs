//! A client of MCP servers over Streamable HTTP: one POST a request, and one answer to it.
//!
//! `upstream` is the way there, `probe` knows which era is spoken there, and `call` takes a request there
//! in that era. Of the modern one: `request` builds what is sent, from nothing; `response` takes messages
//! out of HTTP answers, `answer` judges them, `flight` puts it together. `list` asks for everything; `watch` hears what
//! changes.

pub mod answer;
pub(super) mod call;
mod flight;
mod list;
pub(super) mod probe;
pub(super) mod progress;
pub(super) mod request;
pub(super) mod response;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod upstream;
pub(super) mod watch;

use std::sync::Arc;

use crate::backend::Account;
use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::Surroundings;
use crate::backend::legacy::pool::Pool;
use crate::backend::legacy::sessions::Holder;
use crate::backend::legacy::ticket::Ticket;
use crate::backend::listing::Listing;
use crate::backend::mcp::probe::Era;
use crate::backend::mcp::probe::Probe;
use crate::backend::mcp::upstream::Upstream;
use crate::backend::mcp::watch::Watches;
use crate::backend::waiting::Unanswered;
use crate::backend::watch::Interest;
use crate::backend::watch::Watching;
use crate::exchange::Frames;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::model::tenant;
use crate::model::tenant::BackendEra;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;

/// An MCP server, as one tenant configured it. When it is dropped, the sessions with its server end.
pub struct Mcp {
    upstream: Arc<Upstream>,
    probe: Arc<Probe>,
    watches: Watches,
}

impl Mcp {
    /// A client of the server at `url`, which is spoken to as `era` says.
    pub fn new(
        url: &url::Url,
        era: BackendEra,
        config: Arc<tenant::Backend>,
        tenant: TenantName,
        around: Surroundings,
    ) -> Self {
        let upstream = Arc::new(Upstream::new(url, config, tenant, around));
        let pool = Arc::new(Pool::new(upstream.clone()));
        let watches = Watches::new(&upstream);
        Self { probe: Arc::new(Probe::new(era, upstream.clone(), pool)), upstream, watches }
    }

    /// What it lists, page by page, within the limits.
    pub async fn list(&self, account: &Account) -> Result<Listing, BackendError> {
        list::everything(self, account).await
    }

    /// Waits until the server may not be what it was.
    pub async fn suspected(&self) {
        self.upstream.suspected().await;
    }

    /// Opens a subscription; see [`Backend::watch`](crate::backend::Backend::watch).
    pub async fn watch(&self, interest: Interest) -> Result<Watching, BackendError> {
        self.watches.open(&self.probe, interest).await
    }

    /// Begins a call; see [`Backend::call`](crate::backend::Backend::call).
    pub async fn call(&self, call: BackendCall) -> Result<Frames<BackendError>, BackendError> {
        call::begin(&self.probe, call).await
    }

    /// Gives up a call that waits; see [`Backend::forsake`](crate::backend::Backend::forsake).
    pub fn forsake(&self, caller: &Caller, state: &str, why: Unanswered) {
        if let Some(ticket) = Ticket::read(state) {
            self.probe.pool().forsake(&ticket, &Holder::of(caller), why);
        }
    }

    /// Sessions with the server end as soon as they are not in use.
    pub fn retire(&self) {
        self.probe.pool().retire();
    }

    /// Ends the sessions with the server, within `limits.notice_time`.
    pub async fn shutdown(&self) {
        self.probe.pool().shutdown().await;
    }

    /// Asks on this account and waits for the outcome, at most `limits.list_time`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    async fn ask(&self, account: &Account, method: Method, params: Object) -> Result<Outcome, BackendError> {
        call::ask(&self.probe, account, method, params.finish()).await
    }

    /// What the server says of itself, if it does: `instructions` and `capabilities` are members of it.
    async fn about(&self, account: &Account) -> Result<Option<Json>, BackendError> {
        if self.probe.era().await? == Era::Handshake {
            let (pool, declared) = (self.probe.pool().clone(), request::declared_by(account));
            let leased = Pool::lease(pool, Holder::of_account(account), declared, false).await;
            return leased.map(|lease| lease.session().about().cloned()).map_err(|unopened| unopened.error);
        }
        match self.ask(account, Method::Discover, Object::new()).await? {
            Outcome::Result(result) => Ok(Some(result)),
            Outcome::Error(_) | Outcome::Asks(_) | Outcome::Task(_) => Ok(None),
        }
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        self.retire();
    }
}
