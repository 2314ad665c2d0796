//! A client of modern MCP servers over Streamable HTTP: one POST a request, and one answer to it.
//!
//! `request` builds what is sent, from nothing. `response` takes messages out of HTTP answers,
//! `answer` judges them, `call` and `list` put it together.

pub(super) mod answer;
mod call;
mod list;
mod progress;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;

use crate::backend::BackendError;
use crate::backend::ToolCall;
use crate::backend::ToolListing;
use crate::egress::Egress;
use crate::exchange::Frames;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::tenant;

/// An MCP server, as one tenant configured it.
pub struct Mcp {
    config: Arc<tenant::Backend>,
    tenant: TenantName,
    /// `None` where the URL is none that HTTP can name.
    target: Option<http::Uri>,
    egress: Egress,
    limits: Arc<Limits>,
    /// Ids and progress tokens of this backend's requests. No client has a say in them.
    next_id: AtomicU64,
    /// A permit is held while a call is in flight, and returned when its stream is dropped.
    slots: Arc<Semaphore>,
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
        let slots = Arc::new(Semaphore::new(limits.upstream_calls));
        let target = url.as_str().parse().ok();
        Self { config, tenant, target, egress, limits, next_id: AtomicU64::new(1), slots }
    }

    /// All tools, page by page, within the limits.
    pub async fn list_tools(&self) -> Result<ToolListing, BackendError> {
        list::tools(self).await
    }

    /// Begins a call; see [`Backend::call_tool`](crate::backend::Backend::call_tool).
    pub fn call_tool(&self, call: ToolCall) -> Result<Frames<BackendError>, BackendError> {
        call::begin(self, call)
    }

    fn mint_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
