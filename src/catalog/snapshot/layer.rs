//! What one caller has of its own, over what all callers of the tenant share.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::catalog::entry::Template;
use crate::catalog::owners::Owners;
use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot::extensions;
use crate::catalog::snapshot::instructions;
use crate::catalog::table::Table;
use crate::catalog::view::Views;
use crate::model::limits::Limits;
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;

impl Snapshot {
    /// This, which all share, with what backends list for one caller, who alone may see it; `complete` if
    /// all of them have. What all share keeps every name that it has, and every one that is `recorded` as
    /// another backend's, whether that shows it now or not. It costs what is laid over, and copies
    /// nothing of what is below.
    pub(in crate::catalog) fn with(
        &self,
        tenant: &Tenant,
        own: &[Arc<Part>],
        recorded: &Owners,
        complete: bool,
        limits: &Limits,
    ) -> Self {
        let admissions = || own.iter().map(|part| &part.admission);
        let mut left_out: Vec<_> = admissions().flat_map(|part| part.left_out.iter().cloned()).collect();
        let cleaned = admissions().flat_map(|part| part.cleaned.iter().cloned()).collect();
        let tools = admissions().flat_map(|part| &part.tools);
        let tools = self.tools.with(List::Tools, tenant, recorded, tools, &mut left_out);
        let prompts = admissions().flat_map(|part| &part.prompts);
        let prompts = self.prompts.with(List::Prompts, tenant, recorded, prompts, &mut left_out);
        let resources = admissions().flat_map(|part| &part.resources);
        let resources = self.resources.with(List::Resources, tenant, recorded, resources, &mut left_out);
        let templates = admissions().flat_map(|part| &part.templates);
        let templates: Table<Arc<Template>> =
            self.templates.with(List::Templates, tenant, recorded, templates, &mut left_out);
        let owned = |template: &&Arc<Template>| {
            templates.find(&template.entry.public).is_some_and(|owner| Arc::ptr_eq(owner, template))
        };
        let mut own_templates: Vec<_> =
            admissions().flat_map(|part| &part.templates).filter(owned).cloned().collect();
        own_templates.sort_by_key(|template| Reverse(template.pattern.specificity()));
        let by_specificity = self.by_specificity.iter().cloned().chain(own_templates).collect();
        let with_resources = own.iter().filter(|part| part.has_resources);
        Self {
            revision: self.revision,
            left_out,
            cleaned,
            instructions: instructions(self.instructions.as_deref(), own, limits.instructions_bytes),
            extensions: extensions(self.extensions.as_ref(), own, &tools),
            complete: self.complete && complete && own.iter().all(|part| part.complete),
            tools,
            prompts,
            resources,
            templates,
            by_specificity,
            backends: self.backends.clone(),
            homes: self.homes.clone(),
            own_homes: with_resources.map(|part| part.home.clone()).collect(),
            known: self.known.clone(),
            own_tasks: own.iter().any(|part| part.home.tasks),
            aliases: self.aliases.with(admissions().flat_map(|part| &part.tools)),
            page_size: self.page_size,
            uri_bytes: self.uri_bytes,
            views: Views::unkept(),
        }
    }
}
