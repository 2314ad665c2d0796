//! What one caller sees of one list of a snapshot, page by page, in the order of public names.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use moka::sync::Cache;

use crate::catalog::entry::Entry;
use crate::catalog::ui::Host;
use crate::model::caller::Caller;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant::Tenant;
use crate::policy::Decision;
use crate::policy::Operation;
use crate::policy::decide;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Array;
use crate::protocol::methods::List;

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

/// What a caller may list.
pub struct View {
    entries: Vec<Arc<Entry>>,
    page_size: PageSize,
    host: Host,
    first: OnceLock<Page>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The descriptors, an array.
    pub entries: Json,
    /// The last public name on this page, if there are more behind it.
    pub next: Option<Arc<str>>,
}

impl PageSize {
    /// How many of `entries` are on a page that begins with them, and the bytes of their array.
    fn of(self, entries: &[Arc<Entry>], host: Host) -> (usize, usize) {
        // The brackets; each entry has its comma.
        let mut bytes = 2;
        for (place, entry) in entries.iter().take(self.entries).enumerate() {
            let more = entry.shown(host).map_or(0, |shown| shown.bytes().len()) + 1;
            if place > 0 && bytes + more > self.bytes {
                return (place, bytes);
            }
            bytes += more;
        }
        (entries.len().min(self.entries), bytes)
    }
}

impl View {
    /// Decides about each of `entries`.
    pub(super) fn new<'e>(
        entries: impl Iterator<Item = &'e Arc<Entry>>,
        tenant: &Tenant,
        caller: &Caller,
        page_size: PageSize,
        host: Host,
    ) -> Self {
        let visible = |entry: &&Arc<Entry>| {
            entry.shown(host).is_some()
                && matches!(decide(caller, tenant, Operation::List, &entry.target()), Decision::Allow)
        };
        Self { entries: entries.filter(visible).cloned().collect(), page_size, host, first: OnceLock::new() }
    }

    /// The entries behind the public name `after`, whether or not it is still there; without one, the
    /// first page, which is composed once.
    pub fn page(&self, after: Option<&str>) -> Page {
        match after {
            None => self.first.get_or_init(|| self.compose(0)).clone(),
            Some(last) => self.compose(self.entries.partition_point(|entry| &*entry.public <= last)),
        }
    }

    fn compose(&self, from: usize) -> Page {
        let rest = &self.entries[from..];
        let (count, bytes) = self.page_size.of(rest, self.host);
        let shown = &rest[..count];
        let descriptors = shown.iter().filter_map(|entry| entry.shown(self.host));
        let all = descriptors.fold(Array::with_capacity(bytes), Array::push);
        let next =
            if rest.len() > shown.len() { shown.last().map(|entry| entry.public.clone()) } else { None };
        Page { entries: all.finish(), next }
    }

    /// What it may come to weigh in memory.
    fn weight(&self) -> u32 {
        let (_, page) = self.page_size.of(&self.entries, self.host);
        u32::try_from(page + self.entries.len() * size_of::<usize>() + size_of::<Self>()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} entries)", self.entries.len())
    }
}

/// The views of one snapshot, by list and by everything about a caller that a decision reads. Of a snapshot
/// that is one caller's own, none are kept.
pub(super) struct Views(Option<Cache<Seen, Arc<View>>>);

/// What callers who share a view have in common.
type Seen = (List, TenantName, Scopes, Host);

impl Views {
    pub(super) fn new() -> Self {
        let cache = Cache::builder().max_capacity(CACHE_BYTES);
        Self(Some(cache.weigher(|_, view: &Arc<View>| view.weight()).build()))
    }

    pub(super) fn unkept() -> Self {
        Self(None)
    }

    /// The view of `list` for those who are in the caller's tenant, hold `held` and are such a host.
    pub(super) fn get(
        &self,
        list: List,
        tenant: &Tenant,
        caller: &Caller,
        held: Scopes,
        host: Host,
        build: impl FnOnce() -> View,
    ) -> Arc<View> {
        match &self.0 {
            Some(kept) if caller.tenant == tenant.name => {
                kept.get_with((list, caller.tenant.clone(), held, host), || Arc::new(build()))
            }
            // A caller of another tenant sees nothing, and leaves nothing behind.
            Some(_) | None => Arc::new(build()),
        }
    }
}
