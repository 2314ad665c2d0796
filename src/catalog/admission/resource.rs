//! A resource, and a resource template: their URIs.

use std::sync::Arc;

use crate::catalog::admission::Desk;
use crate::catalog::admission::Taken;
use crate::catalog::admission::Unfit;
use crate::catalog::admission::descriptor;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Template;
use crate::catalog::template::Pattern;
use crate::catalog::uris;
use crate::catalog::uris::UriProblem;
use crate::model::tenant::ObjectKind;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// spec: server/resources, Resource
pub(super) fn judge(desk: &Desk<'_>, raw: &Json) -> Taken<(Arc<str>, Arc<Entry>)> {
    let own = desk.own(raw)?;
    uris::check(&own, desk.limits.uri_bytes)?;
    let (entry, change) = entry(desk, raw, own)?;
    Ok(((entry.public.clone(), entry), change))
}

/// spec: server/resources, Resource Templates
pub(super) fn judge_template(desk: &Desk<'_>, raw: &Json) -> Taken<(Arc<str>, Arc<Template>)> {
    let own = desk.own(raw)?;
    if own.len() > desk.limits.uri_bytes {
        return Err(UriProblem::Long(desk.limits.uri_bytes).into());
    }
    let pattern = Pattern::read(&own)?;
    // One that begins with a variable would take every URI there is.
    if !pattern.has_scheme() {
        return Err(UriProblem::NoScheme.into());
    }
    uris::check(&pattern.example(), usize::MAX)?;
    let (entry, change) = entry(desk, raw, own)?;
    Ok(((entry.public.clone(), Arc::new(Template::new(entry, pattern))), change))
}

fn entry(desk: &Desk<'_>, raw: &Json, own: Arc<str>) -> Taken<Arc<Entry>> {
    let public = desk.free(uris::public_uri(&desk.home.config, &own))?;
    if raw.member("name").is_none_or(|name| name.kind() != Kind::String) {
        return Err(Unfit::Member("name"));
    }
    descriptor::check_members(desk.list, raw)?;
    Ok(desk.entry(ObjectKind::Resource, own, public, raw))
}
