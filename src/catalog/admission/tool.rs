//! A tool: its name, its schemas, its mirrored arguments.

use std::sync::Arc;

use crate::catalog::admission::Desk;
use crate::catalog::admission::Taken;
use crate::catalog::admission::Unfit;
use crate::catalog::admission::descriptor;
use crate::catalog::header_params;
use crate::catalog::names;
use crate::catalog::schema::Judged;
use crate::catalog::schema::Patterns;
use crate::catalog::schema::SchemaProblem;
use crate::catalog::tool::Tool;
use crate::model::limits::Limits;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Validate;
use crate::protocol::json::Json;

/// How many times the limit of one tool's subschemas the schemas of all tools of a backend may weigh
/// together, every value in them counted.
const BACKEND_SHARE: usize = 50;

/// What the tools of one backend may cost together.
pub(super) struct Budget {
    patterns: Patterns,
    left: usize,
}

impl Budget {
    /// What the patterns of the tools may come to take in memory.
    pub(super) fn pattern_bytes(&self) -> usize {
        self.patterns.bytes()
    }

    pub(super) fn of(limits: &Limits) -> Self {
        Self { patterns: Patterns::default(), left: limits.subschemas.saturating_mul(BACKEND_SHARE) }
    }

    /// spec: server/tools, Tool
    pub(super) fn judge(&mut self, desk: &Desk<'_>, raw: &Json) -> Taken<(Arc<str>, Arc<Tool>)> {
        let own = desk.own(raw)?;
        let public = desk.free(names::public_name(&desk.home.config.prefix, &own)?)?;
        descriptor::check_members(desk.list, raw)?;
        descriptor::refuse_task_only(desk, raw)?;
        let validate = desk.home.config.validate;
        let mut output = None;
        if let Some(text) = raw.member("outputSchema") {
            let unfit = |why| Unfit::Schema("outputSchema", why);
            let judged = Judged::new(&text, desk.limits).map_err(unfit)?;
            // Clients that compile it would refuse the whole list for it.
            judged.is_schema().map_err(unfit)?;
            header_params::refuse_any(judged.schema())?;
            self.left = self.left.checked_sub(judged.weight).ok_or(Unfit::Budget)?;
            if validate == Validate::Both {
                output = Some(Arc::new(judged.compile(&mut self.patterns).map_err(unfit)?));
            }
        }
        let unfit = |why| Unfit::Schema("inputSchema", why);
        let text = raw.member("inputSchema").ok_or(unfit(SchemaProblem::NotObject))?;
        let judged = Judged::new(&text, desk.limits).map_err(unfit)?;
        // spec: server/tools, Tool (`inputSchema` MUST be a valid JSON Schema object of type object)
        if judged.schema().get("type").is_none_or(|kind| kind != "object") {
            return Err(unfit(SchemaProblem::NotObject));
        }
        let header_params = header_params::extract(judged.schema())?;
        self.left = self.left.checked_sub(judged.weight).ok_or(Unfit::Budget)?;
        let input = match validate {
            Validate::Off => judged.is_schema().map(|()| None),
            Validate::Arguments | Validate::Both => judged.compile(&mut self.patterns).map(Some),
        };
        let input = input.map_err(unfit)?.map(Arc::new);
        let (entry, change) = desk.entry(ObjectKind::Tool, own, public.clone(), raw);
        Ok(((public, Arc::new(Tool { entry, header_params, input, output })), change))
    }
}
