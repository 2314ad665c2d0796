//! A client of MCP servers over Streamable HTTP: one POST a request, and one answer to it.
//!
//! `upstream` is the way there. `request` builds what is sent, from nothing. `response` takes messages
//! out of HTTP answers, `answer` judges them, `call` and `list` put it together.

pub(super) mod answer;
mod call;
mod list;
mod progress;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod upstream;

use std::sync::Arc;

use crate::backend::BackendCall;
use crate::backend::BackendError;
use crate::backend::Listing;
use crate::backend::mcp::upstream::Upstream;
use crate::egress::Egress;
use crate::exchange::Frames;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tenant;
use crate::protocol::call::Outcome;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::methods::Method;

/// An MCP server, as one tenant configured it.
pub struct Mcp {
    upstream: Upstream,
}

impl Mcp {
    /// A client of the server at `url`.
    pub fn new(
        url: &url::Url,
        config: Arc<tenant::Backend>,
        tenant: TenantName,
        egress: Egress,
        limits: Arc<Limits>,
    ) -> Self {
        Self { upstream: Upstream::new(url, config, tenant, egress, limits) }
    }

    /// What it lists, page by page, within the limits.
    pub async fn list(&self) -> Result<Listing, BackendError> {
        list::everything(self).await
    }

    /// Begins a call; see [`Backend::call`](crate::backend::Backend::call).
    pub fn call(&self, call: BackendCall) -> Result<Frames<BackendError>, BackendError> {
        call::begin(&self.upstream, call)
    }

    /// Asks on the gateway's own account and waits for the outcome, without clocks.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    async fn ask(&self, method: Method, params: Object) -> Result<Outcome, BackendError> {
        call::ask(&self.upstream, method, params).await
    }

    /// What the server says of itself: `instructions` and `capabilities` are members of it.
    async fn about(&self) -> Result<Option<Json>, BackendError> {
        match self.ask(Method::Discover, Object::new()).await? {
            Outcome::Result(result) => Ok(Some(result)),
            Outcome::Error(_) => Ok(None),
        }
    }
}
