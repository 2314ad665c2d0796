//! One state of a tenant's catalog. Never changes; readers hold it as long as they need it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::catalog::admission::Admission;
use crate::catalog::text;
use crate::catalog::tool::Remark;
use crate::catalog::tool::Tool;
use crate::catalog::view::PageSize;
use crate::catalog::view::View;
use crate::catalog::view::Views;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant::Tenant;
use crate::policy::scope;

/// A tenant's compiled catalog.
pub struct Snapshot {
    /// Grows with every snapshot of the tenant.
    pub revision: u64,
    /// The tools that were left out, and why.
    pub left_out: Vec<Remark>,
    /// The tools whose texts were changed, and why.
    pub cleaned: Vec<Remark>,
    /// Text for `server/discover`: the tenant's, then its backends'.
    pub instructions: Option<Arc<str>>,
    /// Whether every backend has been listed at least once.
    pub complete: bool,
    /// In the order of public names.
    tools: Vec<Arc<Tool>>,
    /// Every scope that some tool needs.
    relevant: Scopes,
    page_size: PageSize,
    views: Views,
}

/// What one backend puts into a snapshot.
#[derive(Debug)]
pub struct Part {
    /// Its name.
    pub backend: BackendName,
    /// Its tools.
    pub admission: Admission,
    /// Its own instructions.
    pub instructions: Option<String>,
}

impl Snapshot {
    /// Puts together what the backends have, which come in the tenant's order: the first to claim
    /// a public name owns it, a later one is left out.
    pub fn compose(revision: u64, tenant: &Tenant, parts: &[Arc<Part>], limits: &Limits) -> Self {
        let mut owners: HashMap<&str, &BackendName> = HashMap::new();
        let mut tools = Vec::with_capacity(parts.iter().map(|part| part.admission.tools.len()).sum());
        let (mut left_out, mut cleaned) = (Vec::new(), Vec::new());
        for part in parts {
            left_out.extend(part.admission.left_out.iter().cloned());
            cleaned.extend(part.admission.cleaned.iter().cloned());
            for tool in &part.admission.tools {
                let owner = *owners.entry(&tool.public).or_insert(&part.backend);
                if owner == &part.backend {
                    tools.push(tool.clone());
                } else {
                    left_out.push(Remark {
                        backend: part.backend.clone(),
                        name: tool.own.to_string(),
                        reason: format!("the public name {:?} belongs to backend `{owner}`", tool.public),
                    });
                }
            }
        }
        tools.sort_unstable_by(|one, other| one.public.cmp(&other.public));
        let mut relevant = Scopes::default();
        tools.iter().for_each(|tool| relevant.extend(&tool.needs));
        let instructions = instructions(tenant, parts, limits.instructions_bytes);
        let page_size = PageSize { entries: limits.page_size.max(1), bytes: limits.page_bytes };
        let complete = parts.len() == tenant.backends.len();
        Self {
            revision,
            left_out,
            cleaned,
            instructions,
            complete,
            tools,
            relevant,
            page_size,
            views: Views::new(),
        }
    }

    /// The tool of this public name, whoever may see it.
    pub fn find(&self, public: &str) -> Option<&Arc<Tool>> {
        let at = self.tools.binary_search_by(|tool| (*tool.public).cmp(public)).ok()?;
        self.tools.get(at)
    }

    /// What `caller` sees of it. Callers who hold the same of the scopes that matter share a view.
    pub fn view(&self, tenant: &Tenant, caller: &Caller) -> Arc<View> {
        let held: Scopes = self.relevant.iter().filter(|scope| scope::holds(caller, tenant, scope)).collect();
        self.views.get(tenant, caller, held, || View::new(&self.tools, tenant, caller, self.page_size))
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({}: {} tools)", self.revision, self.tools.len())
    }
}

fn instructions(tenant: &Tenant, parts: &[Arc<Part>], most: usize) -> Option<Arc<str>> {
    let backends = parts.iter().filter_map(|part| part.instructions.as_deref());
    let all: Vec<_> = tenant.instructions.as_deref().into_iter().chain(backends).collect();
    let all = all.iter().map(|one| text::clean(one, most)).filter(|one| !one.trim().is_empty());
    let joined = all.collect::<Vec<_>>().join("\n\n");
    (!joined.is_empty()).then(|| text::clean(&joined, most).into())
}
