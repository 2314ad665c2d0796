//! What of a backend's lists is taken into the catalog: each entry is judged by itself.
//!
//! Its members are kept as they came. The name or URI becomes the public one; texts for people lose
//! hidden characters and what is over the limit, icons those that no client may load. Schemas are
//! never changed: clients, this gateway and the backend must read the same.

mod descriptor;
mod prompt;
mod resource;
mod tool;

use std::collections::HashSet;
use std::sync::Arc;

use crate::backend::listing::Listing;
use crate::catalog::admission::descriptor::Change;
use crate::catalog::entry;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::catalog::entry::Prompt;
use crate::catalog::entry::Remark;
use crate::catalog::entry::Template;
use crate::catalog::header_params::ParamProblem;
use crate::catalog::names;
use crate::catalog::names::NameProblem;
use crate::catalog::schema::SchemaProblem;
use crate::catalog::template::TemplateProblem;
use crate::catalog::tool::Tool;
use crate::catalog::ui::Ui;
use crate::catalog::uris;
use crate::catalog::uris::UriProblem;
use crate::model::limits::Limits;
use crate::model::tenant::ObjectKind;
use crate::protocol::json::Json;
use crate::protocol::methods::List;

/// Longest name in a remark.
const SHOWN: usize = 100;

/// What became of a backend's lists.
#[derive(Debug, Default)]
pub struct Admission {
    /// The tools that were taken, in the backend's order.
    pub tools: Vec<Arc<Tool>>,
    /// The prompts, likewise.
    pub prompts: Vec<Arc<Prompt>>,
    /// The resources, likewise.
    pub resources: Vec<Arc<Entry>>,
    /// The resource templates, likewise.
    pub templates: Vec<Arc<Template>>,
    /// What was not taken.
    pub left_out: Vec<Remark>,
    /// What was changed.
    pub cleaned: Vec<Remark>,
    /// The public names and URIs of what was not taken: they are still the backend's.
    pub withheld: HashSet<(List, Arc<str>)>,
    /// What the patterns of its tools' schemas may come to take in memory.
    pub pattern_bytes: usize,
}

/// Why an entry was left out. `Display` is what the tenant's operators read.
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
    /// A URI that cannot be used.
    #[error(transparent)]
    Uri(#[from] UriProblem),
    /// A template that cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateProblem),
    /// A prompt with more arguments than are taken.
    #[error("it has more than {0} arguments")]
    Arguments(usize),
    /// Only ever run as a task.
    #[error("it is only run as a task, which is not relayed")]
    TaskOnly,
    /// A second entry of this name.
    #[error("an earlier {0} of the backend has the same name")]
    Duplicate(&'static str),
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

/// An entry that is taken, and what was changed of it, if anything was.
type Taken<T> = Result<(T, Option<Change>), Unfit>;

/// Judges what a backend lists.
///
/// Compiles schemas: takes time, and belongs on a blocking thread.
pub fn admit(home: &Arc<Home>, limits: &Limits, listing: &Listing) -> Admission {
    let mut all = Admission::default();
    let mut tools = tool::Budget::of(limits);
    all.tools = all.each(home, limits, listing, List::Tools, |desk, raw| tools.judge(desk, raw));
    all.pattern_bytes = tools.pattern_bytes();
    all.prompts = all.each(home, limits, listing, List::Prompts, prompt::judge);
    all.resources = all.each(home, limits, listing, List::Resources, resource::judge);
    all.templates = all.each(home, limits, listing, List::Templates, resource::judge_template);
    all
}

impl Admission {
    /// Judges each entry of one list.
    fn each<T>(
        &mut self,
        home: &Arc<Home>,
        limits: &Limits,
        listing: &Listing,
        list: List,
        mut judge: impl FnMut(&Desk<'_>, &Json) -> Taken<(Arc<str>, T)>,
    ) -> Vec<T> {
        let mut desk = Desk { home, limits, list, names: HashSet::new() };
        let mut taken = Vec::new();
        for (place, raw) in listing.of(list).entries().iter().enumerate() {
            let remark = |reason: String| {
                let name = raw.member(list.key()).and_then(|name| name.string()).map_or_else(
                    || format!("{} {place}", list.noun()),
                    |name| name.escape_debug().take(SHOWN).collect(),
                );
                Remark { backend: home.config.name.clone(), list, name, reason }
            };
            match desk.whole(raw).and_then(|()| judge(&desk, raw)) {
                Ok(((public, one), change)) => {
                    self.cleaned.extend(change.map(|change| remark(change.to_string())));
                    desk.names.insert(public);
                    taken.push(one);
                }
                Err(reason) => {
                    self.withheld.extend(desk.claimed(raw).map(|public| (list, public)));
                    self.left_out.push(remark(reason.to_string()));
                }
            }
        }
        taken
    }
}

/// Where the entries of one list are judged.
struct Desk<'a> {
    home: &'a Arc<Home>,
    limits: &'a Limits,
    list: List,
    /// Public names that are taken.
    names: HashSet<Arc<str>>,
}

impl Desk<'_> {
    /// Refuses what no reader of the list could read.
    fn whole(&self, raw: &Json) -> Result<(), Unfit> {
        if !raw.is_object() {
            return Err(Unfit::NotObject);
        }
        // A list may be nested deeper than one entry: it is read before its entries are judged.
        let depth = self.limits.json_depth;
        Json::parse(raw.bytes().clone(), depth).map(drop).map_err(|_| Unfit::Deep(depth))
    }

    /// The backend's own name of an entry.
    fn own(&self, raw: &Json) -> Result<Arc<str>, Unfit> {
        let key = self.list.key();
        raw.member(key).and_then(|name| name.string()).map(Arc::from).ok_or(Unfit::Member(key))
    }

    /// The public name that an entry would have, whatever else is wrong with it.
    fn claimed(&self, raw: &Json) -> Option<Arc<str>> {
        let (own, config) = (self.own(raw).ok()?, &self.home.config);
        match self.list {
            List::Tools | List::Prompts => names::public_name(&config.prefix, &own).ok().map(Arc::from),
            List::Resources | List::Templates => {
                (own.len() <= self.limits.uri_bytes).then(|| uris::public_uri(config, &own).into())
            }
        }
    }

    /// `public`, if it is free.
    fn free(&self, public: String) -> Result<Arc<str>, Unfit> {
        match self.names.contains(&*public) {
            true => Err(Unfit::Duplicate(self.list.noun())),
            false => Ok(public.into()),
        }
    }

    /// The entry of these names, and what was changed of what lists show of it.
    fn entry(
        &self,
        kind: ObjectKind,
        own: Arc<str>,
        public: Arc<str>,
        raw: &Json,
    ) -> (Arc<Entry>, Option<Change>) {
        let (shown, change) = descriptor::describe(self, raw, &public);
        let needs = entry::needed(&self.home.config, kind, &own);
        let ui = Ui::of(kind, &own, &shown);
        (Arc::new(Entry { kind, public, own, home: self.home.clone(), descriptor: shown, needs, ui }), change)
    }
}
