//! One state of a tenant's catalog. Never changes; readers hold it as long as they need it. `layer` puts what
//! one caller has of its own over what all share.

mod layer;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::catalog::aliases::Aliases;
use crate::catalog::entry::Cataloged;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::catalog::entry::Prompt;
use crate::catalog::entry::Remark;
use crate::catalog::entry::Template;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::table::Table;
use crate::catalog::template::Steps;
use crate::catalog::text;
use crate::catalog::tool::Tool;
use crate::catalog::ui::Host;
use crate::catalog::ui::Ui;
use crate::catalog::uris;
use crate::catalog::view::PageSize;
use crate::catalog::view::View;
use crate::catalog::view::Views;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::Catalog;
use crate::model::tenant::Tenant;
use crate::model::tenant::Uris;
use crate::model::uri;
use crate::model::uri::Reading;
use crate::policy::scope;
use crate::protocol::json::Json;
use crate::protocol::json::compose::Object;
use crate::protocol::meta::UI;
use crate::protocol::methods::List;

/// A tenant's compiled catalog.
pub struct Snapshot {
    /// Grows with every snapshot of the tenant.
    pub revision: u64,
    /// What was left out, and why.
    pub left_out: Vec<Remark>,
    /// Those whose texts were changed, and why.
    pub cleaned: Vec<Remark>,
    /// Text for `server/discover`: the tenant's, then its backends'.
    pub instructions: Option<Arc<str>>,
    /// `capabilities.extensions` of `server/discover`, where there are some.
    pub extensions: Option<Json>,
    /// Whether every backend has given each of its lists at least once.
    pub complete: bool,
    /// The tools.
    pub tools: Table<Arc<Tool>>,
    /// The prompts.
    pub prompts: Table<Arc<Prompt>>,
    /// The resources.
    pub resources: Table<Arc<Entry>>,
    /// The resource templates.
    pub templates: Table<Arc<Template>>,
    /// The templates, the most specific first, else in the tenant's order; what all share goes before.
    by_specificity: Vec<Arc<Template>>,
    /// All backends of the tenant.
    backends: Vec<Arc<tenant::Backend>>,
    /// Those that have resources, in the tenant's order.
    homes: Vec<Arc<Home>>,
    /// Those that have resources for one caller alone, likewise.
    own_homes: Vec<Arc<Home>>,
    /// All that can be asked, whether they have listed anything or not.
    known: Vec<Arc<Home>>,
    /// Whether one that lists for one caller said that it may answer a call with a task.
    own_tasks: bool,
    /// The tools by their own names.
    aliases: Aliases,
    page_size: PageSize,
    uri_bytes: usize,
    views: Views,
}

impl Snapshot {
    /// Puts together what the backends have, which come in the tenant's order: a public name is its
    /// recorded owner's, else the first one's to claim it; any other is left out.
    pub fn compose(
        revision: u64,
        tenant: &Tenant,
        parts: &[Arc<Part>],
        owners: &Owners,
        limits: &Limits,
    ) -> Self {
        let admissions = || parts.iter().map(|part| &part.admission);
        let mut left_out: Vec<_> = admissions().flat_map(|part| part.left_out.iter().cloned()).collect();
        let cleaned = admissions().flat_map(|part| part.cleaned.iter().cloned()).collect();
        let tools = admissions().flat_map(|part| &part.tools);
        let tools = Table::compose(List::Tools, tenant, owners, tools, &mut left_out);
        let prompts = admissions().flat_map(|part| &part.prompts);
        let prompts = Table::compose(List::Prompts, tenant, owners, prompts, &mut left_out);
        let resources = admissions().flat_map(|part| &part.resources);
        let resources = Table::compose(List::Resources, tenant, owners, resources, &mut left_out);
        let templates = admissions().flat_map(|part| &part.templates);
        let templates: Table<Arc<Template>> =
            Table::compose(List::Templates, tenant, owners, templates, &mut left_out);
        let owned = |template: &&Arc<Template>| {
            templates.find(&template.entry.public).is_some_and(|owner| Arc::ptr_eq(owner, template))
        };
        let mut by_specificity: Vec<_> =
            admissions().flat_map(|part| &part.templates).filter(owned).cloned().collect();
        // Stable: of two that say as much, the first backend's is meant.
        by_specificity.sort_by_key(|template| Reverse(template.pattern.specificity()));
        let aliases = Aliases::of(admissions().flat_map(|part| &part.tools));
        let shared = tenant.backends.iter().filter(|backend| backend.catalog == Catalog::Shared).count();
        let homes = parts.iter().filter(|part| part.has_resources).map(|part| part.home.clone()).collect();
        Self {
            revision,
            left_out,
            cleaned,
            instructions: instructions(tenant.instructions.as_deref(), parts, limits.instructions_bytes),
            extensions: extensions(None, parts, &tools),
            complete: parts.len() == shared && parts.iter().all(|part| part.complete),
            tools,
            prompts,
            resources,
            templates,
            by_specificity,
            backends: tenant.backends.clone(),
            homes,
            own_homes: Vec::new(),
            known: parts.iter().map(|part| part.home.clone()).collect(),
            own_tasks: false,
            aliases,
            page_size: PageSize { entries: limits.page_size.max(1), bytes: limits.page_bytes },
            uri_bytes: limits.uri_bytes,
            views: Views::new(),
        }
    }

    /// The same, which can also ask these backends: they may have listed nothing yet.
    pub(super) fn knowing(mut self, homes: impl Iterator<Item = Arc<Home>>) -> Self {
        for home in homes {
            if self.backend(home.config.name.as_str()).is_none() {
                self.known.push(home);
            }
        }
        self
    }

    /// The backend of this name, to ask it.
    pub fn backend(&self, name: &str) -> Option<&Arc<Home>> {
        self.known.iter().find(|home| home.config.name.as_str() == name)
    }

    /// Whether some backend may answer a call with a task.
    ///
    /// spec: row DV-05
    pub fn has_tasks(&self) -> bool {
        self.own_tasks || self.known.iter().any(|home| home.tasks)
    }

    /// The resource that a URI names, whoever may see it: of the backend that it begins with, listed or
    /// not; else of the backend that lists it; else of the one whose template may have made it, the
    /// most specific template first; else of the only backend that keeps its URIs. In each step what all
    /// share goes before what is one caller's own. Nobody has a URI that no list shows and that takes too
    /// long to look up, or that is not plain where scopes hang on it.
    ///
    /// spec: server/resources, Reading Resources
    pub fn resource(&self, public: &str) -> Option<Arc<Entry>> {
        if let Some((home, own)) = self.prefixed(public) {
            uris::check(own, self.uri_bytes).ok()?;
            let listed = self.resources.find(public).cloned();
            return listed.or_else(|| self.unlisted(home?, public, own, &mut Steps::default()));
        }
        uris::check(public, self.uri_bytes).ok()?;
        if let Some(listed) = self.resources.find(public) {
            return Some(listed.clone());
        }
        let mut steps = Steps::default();
        let mut made = None;
        for template in self.kept_templates() {
            if template.pattern.matches(public, &mut steps)? {
                made = Some(template);
                break;
            }
        }
        let keeping = |home: &&Arc<Home>| home.config.uris == Uris::Keep;
        let (mut shared, mut own) =
            (self.homes.iter().filter(keeping).peekable(), self.own_homes.iter().filter(keeping));
        let home = match made {
            Some(template) => &template.entry.home,
            None if shared.peek().is_some() => shared.next().filter(|_| shared.next().is_none())?,
            None => own.next().filter(|_| own.next().is_none())?,
        };
        self.unlisted(home, public, public, &mut steps)
    }

    /// The entries of one list.
    pub(super) fn entries(&self, list: List) -> Box<dyn Iterator<Item = &Arc<Entry>> + '_> {
        match list {
            List::Tools => Box::new(self.tools.entries()),
            List::Prompts => Box::new(self.prompts.entries()),
            List::Resources => Box::new(self.resources.entries()),
            List::Templates => Box::new(self.templates.entries()),
        }
    }

    /// What `caller` sees of a list. Callers who hold the same of the scopes that matter share a view.
    pub fn view(&self, list: List, tenant: &Tenant, caller: &Caller, host: Host) -> Arc<View> {
        match list {
            List::Tools => self.view_of(list, &self.tools, tenant, caller, host),
            List::Prompts => self.view_of(list, &self.prompts, tenant, caller, host),
            List::Resources => self.view_of(list, &self.resources, tenant, caller, host),
            List::Templates => self.view_of(list, &self.templates, tenant, caller, host),
        }
    }

    /// Whether lists show clients something else for what they declare that they can do.
    pub fn has_ui(&self) -> bool {
        self.tools.has_ui() || self.resources.has_ui() || self.templates.has_ui()
    }

    /// The tool that a backend calls like this, whoever may see it, if it has a view and no other backend
    /// of the tenant calls one of its tools so: a view knows its backend's own names alone.
    ///
    /// spec: row EX-09; ext-apps 2026-01-26, Visibility
    pub fn alias(&self, own: &str) -> Option<&Arc<Tool>> {
        let single = self.aliases.find(own).filter(|tool| matches!(tool.entry.ui, Ui::Tool(_)))?;
        self.tools
            .find(&single.entry.public)
            .is_some_and(|owner| Arc::ptr_eq(owner, single))
            .then_some(single)
    }

    fn view_of<T: Cataloged + Clone>(
        &self,
        list: List,
        table: &Table<T>,
        tenant: &Tenant,
        caller: &Caller,
        host: Host,
    ) -> Arc<View> {
        // Where there are no views, all see the same.
        let host = if table.has_ui() { host } else { Host::Plain };
        let relevant = table.relevant().iter();
        let held: Scopes = relevant.filter(|scope| scope::holds(caller, tenant, scope)).collect();
        let build = || View::new(table.entries(), tenant, caller, self.page_size, host);
        self.views.get(list, tenant, caller, held, host, build)
    }

    /// The backend that `public` begins with, and what it says to it. `None` inside where the backend
    /// has no resources.
    fn prefixed<'u>(&self, public: &'u str) -> Option<(Option<&Arc<Home>>, &'u str)> {
        let (name, own) = uris::split(public)?;
        let backend = uris::owner(&self.backends, name)?;
        let mut homes = self.homes.iter().chain(&self.own_homes);
        Some((homes.find(|home| home.config.name == backend.name), own))
    }

    fn kept_templates(&self) -> impl Iterator<Item = &Arc<Template>> {
        self.by_specificity.iter().filter(|template| template.entry.home.config.uris == Uris::Keep)
    }

    /// A resource that is in no list. It needs what every template needs that may have made it.
    fn unlisted(&self, home: &Arc<Home>, public: &str, own: &str, steps: &mut Steps) -> Option<Arc<Entry>> {
        let mut needs = uris::needed(&home.config, own);
        if uris::is_guarded(&home.config) {
            // A server that takes another spelling for the same would be asked past its rules.
            if !uri::is_plain(own) {
                return None;
            }
            let forms = Reading::ALL.map(|reading| reading.forms(own));
            let theirs = self.by_specificity.iter().filter(|one| Arc::ptr_eq(&one.entry.home, home));
            for template in theirs.filter(|template| !template.entry.needs.is_empty()) {
                if template.may_have_made(&forms, steps)? {
                    needs.extend(&template.entry.needs);
                }
            }
        }
        Some(Arc::new(Entry::unlisted(home, public, own, needs)))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({}: {} tools)", self.revision, self.tools.len())
    }
}

/// What is offered beside the protocol itself: what a backend offers and may, as the first one says it.
///
/// `earlier` ones stay what they are.
///
/// spec: row DV-05; basic/versioning, Extension Negotiation
fn extensions(earlier: Option<&Json>, parts: &[Arc<Part>], tools: &Table<Arc<Tool>>) -> Option<Json> {
    let earlier: Vec<_> = earlier.iter().flat_map(|all| all.members()).collect();
    let mut all: BTreeMap<&str, Json> =
        earlier.iter().map(|(name, value)| (&**name, value.clone())).collect();
    for (name, value) in parts.iter().flat_map(|part| &part.extensions) {
        all.entry(&**name).or_insert_with(|| value.clone());
    }
    if tools.has_ui() {
        all.insert(UI, Object::new().finish());
    }
    let whole = |all: BTreeMap<&str, Json>| {
        all.iter().fold(Object::new(), |whole, (name, value)| whole.put(name, value)).finish()
    };
    (!all.is_empty()).then(|| whole(all))
}

/// Texts for clients: `first`, then the backends'.
fn instructions(first: Option<&str>, parts: &[Arc<Part>], most: usize) -> Option<Arc<str>> {
    let backends = parts.iter().filter_map(|part| part.instructions.as_deref());
    let all: Vec<_> = first.into_iter().chain(backends).collect();
    let all = all.iter().map(|one| text::clean(one, most)).filter(|one| !one.trim().is_empty());
    let joined = all.collect::<Vec<_>>().join("\n\n");
    (!joined.is_empty()).then(|| text::clean(&joined, most).into())
}
