//! What one caller sees of a snapshot, page by page, in the order of public names.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use moka::sync::Cache;

use crate::catalog::tool::Tool;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Tenant;
use crate::policy::Decision;
use crate::policy::Operation;
use crate::policy::decide;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;

/// Most bytes that the views of one snapshot keep.
const CACHE_BYTES: u64 = 32 << 20;

/// How large a page may be: full with whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    /// Most entries.
    pub(super) entries: usize,
    /// Most bytes, unless the one entry is larger.
    pub(super) bytes: usize,
}

/// The tools that a caller may list.
pub struct View {
    tools: Vec<Arc<Tool>>,
    page_size: PageSize,
    first: OnceLock<Page>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The descriptors, an array.
    pub tools: Json,
    /// The last public name on this page, if there are more behind it.
    pub next: Option<Arc<str>>,
}

impl PageSize {
    /// How many of `tools` are on a page that begins with them, and the bytes of their array.
    fn of(self, tools: &[Arc<Tool>]) -> (usize, usize) {
        // The brackets; each entry has its comma.
        let mut bytes = 2;
        for (place, tool) in tools.iter().take(self.entries).enumerate() {
            let more = tool.descriptor.bytes().len() + 1;
            if place > 0 && bytes + more > self.bytes {
                return (place, bytes);
            }
            bytes += more;
        }
        (tools.len().min(self.entries), bytes)
    }
}

impl View {
    /// Decides about each tool.
    pub(super) fn new(tools: &[Arc<Tool>], tenant: &Tenant, caller: &Caller, page_size: PageSize) -> Self {
        let visible = |tool: &&Arc<Tool>| {
            matches!(decide(caller, tenant, Operation::List, &tool.target()), Decision::Allow)
        };
        let tools = tools.iter().filter(visible).cloned().collect();
        Self { tools, page_size, first: OnceLock::new() }
    }

    /// The tools behind the public name `after`, whether or not it is still there; without one, the
    /// first page, which is composed once.
    pub fn page(&self, after: Option<&str>) -> Page {
        match after {
            None => self.first.get_or_init(|| self.compose(0)).clone(),
            Some(last) => self.compose(self.tools.partition_point(|tool| &*tool.public <= last)),
        }
    }

    fn compose(&self, from: usize) -> Page {
        let rest = &self.tools[from..];
        let (entries, bytes) = self.page_size.of(rest);
        let shown = &rest[..entries];
        let tools =
            shown.iter().fold(Array::with_capacity(bytes), |all, tool| all.push(&tool.descriptor)).finish();
        let next = if rest.len() > shown.len() { shown.last().map(|tool| tool.public.clone()) } else { None };
        Page { tools, next }
    }

    /// What it may come to weigh in memory.
    fn weight(&self) -> u32 {
        let (_, page) = self.page_size.of(&self.tools);
        u32::try_from(page + self.tools.len() * size_of::<usize>() + size_of::<Self>()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} tools)", self.tools.len())
    }
}

/// The views of one snapshot, by everything about a caller that a decision reads.
pub(super) struct Views(Cache<(TenantName, Scopes), Arc<View>>);

impl Views {
    pub(super) fn new() -> Self {
        Self(Cache::builder().max_capacity(CACHE_BYTES).weigher(|_, view: &Arc<View>| view.weight()).build())
    }

    /// The view of those who are in the caller's tenant and hold `held`.
    pub(super) fn get(
        &self,
        tenant: &Tenant,
        caller: &Caller,
        held: Scopes,
        build: impl FnOnce() -> View,
    ) -> Arc<View> {
        // A caller of another tenant sees nothing, and leaves nothing behind.
        if caller.tenant != tenant.name {
            return Arc::new(build());
        }
        self.0.get_with((caller.tenant.clone(), held), || Arc::new(build()))
    }
}
