//! Who owns a public name, for as long as it is a contract.
//!
//! A name belongs to the backend that it was first shown for. It stays there while that backend is in
//! the configuration and is not known to have given the name up, that is, as long as it lists it, if only
//! in a form that cannot be used, or its list was not had in full. A sibling that begins to list the
//! name takes nothing, wherever it stands in the file. How many names a backend owns is bounded: one that
//! is over its bound loses names that it does not list any more.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::part::Part;
use crate::catalog::snapshot::Snapshot;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::tenant::Catalog;
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;

/// How many times as many names of one list a backend may own as it may list. Those that it lists always
/// fit, whatever it listed before.
const SHARE: usize = 2;

/// The recorded owners of a tenant's public names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owners(HashMap<List, HashMap<Arc<str>, BackendName>>);

/// What backends list, with the public names.
type Listed<'p> = HashSet<(&'p BackendName, List, &'p str)>;

impl Owners {
    /// The owner of a name of one list.
    pub fn of(&self, list: List, public: &str) -> Option<&BackendName> {
        self.0.get(&list)?.get(public)
    }

    /// Makes a backend the owner of a name.
    pub fn insert(&mut self, list: List, public: Arc<str>, owner: BackendName) {
        self.0.entry(list).or_default().insert(public, owner);
    }

    /// Every name with its owner.
    pub fn iter(&self) -> impl Iterator<Item = (List, &Arc<str>, &BackendName)> {
        self.0.iter().flat_map(|(list, names)| names.iter().map(|(name, owner)| (*list, name, owner)))
    }

    /// Without those that own nothing any more, since `tenant` does not have them, or not for all callers.
    pub fn among(&self, tenant: &Tenant) -> Self {
        let shared = tenant.backends.iter().filter(|backend| backend.catalog == Catalog::Shared);
        let there: HashSet<_> = shared.map(|backend| &backend.name).collect();
        let mut left = Self::default();
        for (list, name, owner) in self.iter().filter(|(_, _, owner)| there.contains(owner)) {
            left.insert(list, name.clone(), owner.clone());
        }
        left
    }

    /// Without the names that their owners have given up.
    pub fn still(&self, parts: &[Arc<Part>]) -> Self {
        self.still_among(parts, &listed(parts))
    }

    /// Who owns what once a snapshot that was put together with these owners is shown to clients.
    pub fn after(&self, parts: &[Arc<Part>], snapshot: &Snapshot, limits: &Limits) -> Self {
        let listed = listed(parts);
        let mut now = self.still_among(parts, &listed);
        for list in List::ALL {
            for entry in snapshot.entries(list) {
                now.insert(list, entry.public.clone(), entry.backend().clone());
            }
        }
        now.within(&listed, limits)
    }

    fn still_among(&self, parts: &[Arc<Part>], listed: &Listed<'_>) -> Self {
        let parts: HashMap<_, _> = parts.iter().map(|part| (&part.home.config.name, part)).collect();
        let mut left = Self::default();
        for (list, name, owner) in self.iter() {
            let whole = parts.get(owner).is_some_and(|part| part.is_whole(list));
            if !whole || listed.contains(&(owner, list, &**name)) {
                left.insert(list, name.clone(), owner.clone());
            }
        }
        left
    }

    /// Without names that nobody lists of backends that own too many.
    fn within(mut self, listed: &Listed<'_>, limits: &Limits) -> Self {
        for (list, names) in &mut self.0 {
            let mut over: HashMap<BackendName, usize> = HashMap::new();
            for owner in names.values() {
                match over.get_mut(owner) {
                    Some(count) => *count += 1,
                    None => {
                        over.insert(owner.clone(), 1);
                    }
                }
            }
            let most = most(*list, limits).saturating_mul(SHARE);
            over.values_mut().for_each(|count| *count = count.saturating_sub(most));
            names.retain(|name, owner| {
                let Some(over) = over.get_mut(owner).filter(|over| **over > 0) else { return true };
                let stays = listed.contains(&(&*owner, *list, &**name));
                *over -= usize::from(!stays);
                stays
            });
        }
        self
    }
}

fn listed(parts: &[Arc<Part>]) -> Listed<'_> {
    let mut listed = HashSet::new();
    for part in parts {
        for list in List::ALL {
            listed.extend(part.names(list).map(|name| (&part.home.config.name, list, &**name)));
        }
    }
    listed
}

/// Most entries of a list of one backend.
fn most(list: List, limits: &Limits) -> usize {
    match list {
        List::Tools => limits.upstream_tools,
        List::Prompts => limits.upstream_prompts,
        List::Resources => limits.upstream_resources,
        List::Templates => limits.upstream_templates,
    }
}
