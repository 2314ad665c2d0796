//! Which tools of a backend's list are taken into the catalog: each is judged by itself.
//!
//! Its members are kept as they came. The name becomes the public one; texts for people lose
//! hidden characters and what is over the limit. Schemas are never changed: clients, this
//! gateway and the backend must read the same.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::backend::Backend;
use crate::catalog::header_params;
use crate::catalog::header_params::ParamProblem;
use crate::catalog::names;
use crate::catalog::names::NameProblem;
use crate::catalog::schema::Judged;
use crate::catalog::schema::Patterns;
use crate::catalog::schema::SchemaProblem;
use crate::catalog::text;
use crate::catalog::tool::Remark;
use crate::catalog::tool::Tool;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::model::tenant::ObjectKind;
use crate::policy::scope;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;
use crate::protocol::json::compose::Object;

/// How many times the limit of one tool's subschemas the schemas of all tools of a backend may weigh
/// together, every value in them counted.
const BACKEND_SHARE: usize = 50;

/// The member of a tool that only the handshake era knows.
const EXECUTION: &str = "execution";

/// Longest name in a remark.
const SHOWN: usize = 100;

/// What became of a backend's list.
#[derive(Debug, Default)]
pub struct Admission {
    /// The tools that were taken, in the backend's order.
    pub tools: Vec<Arc<Tool>>,
    /// Those that were not.
    pub left_out: Vec<Remark>,
    /// Those whose texts were changed.
    pub cleaned: Vec<Remark>,
}

/// Why a tool was left out. `Display` is what the tenant's operators read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Not an object.
    #[error("it is not an object")]
    NotObject,
    /// Nested so deep that clients would refuse the whole list for it.
    #[error("it is nested deeper than {0} levels")]
    Deep(usize),
    /// A member of a type that clients refuse.
    #[error("its `{0}` has the wrong type")]
    Member(&'static str),
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// Only ever run as a task.
    #[error("it is only run as a task, which is not relayed")]
    TaskOnly,
    /// A second tool of this name.
    #[error("an earlier tool of the backend has the same name")]
    Duplicate,
    /// A schema that cannot be used.
    #[error("its `{0}` {1}")]
    Schema(&'static str, #[source] SchemaProblem),
    /// A wrong `x-mcp-header`.
    #[error(transparent)]
    Param(#[from] ParamProblem),
    /// The backend's tools together are over their limit.
    #[error("the backend's tools have too much in their schemas together")]
    Budget,
}

/// Judges `listed`, the tools of `config` as it sent them. `live` is where they are called.
///
/// Compiles schemas: takes time, and belongs on a blocking thread.
pub fn admit(config: &tenant::Backend, live: &Arc<Backend>, limits: &Limits, listed: &[Json]) -> Admission {
    let mut judge = Judge {
        config,
        live,
        limits,
        patterns: Patterns::default(),
        left: limits.subschemas.saturating_mul(BACKEND_SHARE),
        names: HashSet::new(),
    };
    let mut admission = Admission::default();
    for (place, raw) in listed.iter().enumerate() {
        let remark = |reason: String| {
            let name = raw.member("name").and_then(|name| name.string());
            let name = name
                .map_or_else(|| format!("tool {place}"), |name| name.escape_debug().take(SHOWN).collect());
            Remark { backend: config.name.clone(), name, reason }
        };
        match judge.tool(raw) {
            Ok((tool, cleaned)) => {
                if let Some(member) = cleaned {
                    admission
                        .cleaned
                        .push(remark(format!("its `{member}` had hidden characters or was too long")));
                }
                admission.tools.push(Arc::new(tool));
            }
            Err(reason) => admission.left_out.push(remark(reason.to_string())),
        }
    }
    admission
}

struct Judge<'a> {
    config: &'a tenant::Backend,
    live: &'a Arc<Backend>,
    limits: &'a Limits,
    patterns: Patterns,
    left: usize,
    /// Public names that are taken.
    names: HashSet<Arc<str>>,
}

impl Judge<'_> {
    /// The tool, and a member whose text was changed, if any was.
    fn tool(&mut self, raw: &Json) -> Result<(Tool, Option<&'static str>), Unfit> {
        if !raw.is_object() {
            return Err(Unfit::NotObject);
        }
        // A list may be nested deeper than one tool: it is read before its tools are judged.
        Json::parse(raw.bytes().clone(), self.limits.json_depth)
            .map_err(|_| Unfit::Deep(self.limits.json_depth))?;
        let own: Arc<str> =
            raw.member("name").and_then(|name| name.string()).ok_or(Unfit::Member("name"))?.into();
        let public: Arc<str> = names::public_name(&self.config.prefix, &own)?.into();
        if self.names.contains(&public) {
            return Err(Unfit::Duplicate);
        }
        check_members(raw)?;
        if let Some(output) = raw.member("outputSchema") {
            let judged =
                Judged::new(&output, self.limits).map_err(|why| Unfit::Schema("outputSchema", why))?;
            header_params::refuse_any(judged.schema())?;
            self.left = self.left.checked_sub(judged.weight).ok_or(Unfit::Budget)?;
        }
        let unfit = |why| Unfit::Schema("inputSchema", why);
        let input = raw.member("inputSchema").ok_or(unfit(SchemaProblem::NotObject))?;
        let judged = Judged::new(&input, self.limits).map_err(unfit)?;
        // spec: server/tools, Tool (`inputSchema` MUST be a valid JSON Schema object of type object)
        if judged.schema().get("type").is_none_or(|kind| kind != "object") {
            return Err(unfit(SchemaProblem::NotObject));
        }
        let header_params = header_params::extract(judged.schema())?;
        self.left = self.left.checked_sub(judged.weight).ok_or(Unfit::Budget)?;
        let validator = Arc::new(judged.compile(&mut self.patterns).map_err(unfit)?);
        let (descriptor, cleaned) = describe(raw, &public, self.limits.description_bytes);
        self.names.insert(public.clone());
        let tool = Tool {
            needs: scope::needed(self.config, ObjectKind::Tool, &own),
            public,
            own,
            backend: self.config.name.clone(),
            live: self.live.clone(),
            descriptor,
            header_params,
            validator,
        };
        Ok((tool, cleaned))
    }
}

/// Refuses members of a type that the specification does not know: a client that is strict about
/// one tool drops the whole list.
fn check_members(raw: &Json) -> Result<(), Unfit> {
    for (key, value) in raw.members() {
        let (member, fits) = match &*key {
            "title" => ("title", value.kind() == Kind::String),
            "description" => ("description", value.kind() == Kind::String),
            "annotations" => ("annotations", has_annotations(&value)),
            "icons" => ("icons", value.kind() == Kind::Array && value.elements().all(|icon| is_icon(&icon))),
            "_meta" => ("_meta", value.is_object()),
            EXECUTION if runs_as_task_only(&value) => return Err(Unfit::TaskOnly),
            _ => continue,
        };
        if !fits {
            return Err(Unfit::Member(member));
        }
    }
    Ok(())
}

/// spec: 2025-11-25 basic/utilities/tasks, Tool-Level Negotiation
fn runs_as_task_only(execution: &Json) -> bool {
    let support = execution.member("taskSupport");
    support.is_some_and(|support| support.string_ref().is_some_and(|support| support == "required"))
}

fn has_annotations(value: &Json) -> bool {
    let fits = |key: &str, kind| match key {
        "title" => kind == Kind::String,
        "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => kind == Kind::Boolean,
        _ => true,
    };
    value.is_object() && value.members().all(|(key, member)| fits(&key, member.kind()))
}

fn is_icon(value: &Json) -> bool {
    value.member("src").is_some_and(|src| src.kind() == Kind::String)
}

/// What lists show of a tool, and a member whose text was changed.
fn describe(raw: &Json, public: &str, most: usize) -> (Json, Option<&'static str>) {
    let mut shown = Object::with_capacity(raw.bytes().len() + public.len());
    let mut cleaned = None;
    for (key, value) in raw.members().filter(|(key, _)| key != EXECUTION) {
        let changed = match &*key {
            "name" => Some(Json::from_str_value(public)),
            "title" => cleaned_text(&value, most).inspect(|_| cleaned = Some("title")),
            "description" => cleaned_text(&value, most).inspect(|_| cleaned = Some("description")),
            "annotations" => cleaned_title(&value, most).inspect(|_| cleaned = Some("annotations")),
            _ => None,
        };
        shown = shown.put(&key, changed.as_ref().unwrap_or(&value));
    }
    (shown.finish(), cleaned)
}

/// The text of `value` cleaned, if it has to be another.
fn cleaned_text(value: &Json, most: usize) -> Option<Json> {
    match text::clean(&value.string_ref()?, most) {
        Cow::Borrowed(_) => None,
        Cow::Owned(other) => Some(Json::from_str_value(&other)),
    }
}

/// Annotations with their title cleaned, if it has to be another.
fn cleaned_title(annotations: &Json, most: usize) -> Option<Json> {
    let title = cleaned_text(&annotations.member("title")?, most)?;
    let members = annotations.members().filter(|(key, _)| key != "title");
    Some(members.fold(Object::new().put("title", &title), |all, (key, value)| all.put(&key, &value)).finish())
}
