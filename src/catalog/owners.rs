//! Who owns a public name, for as long as it is a contract.
//!
//! A name belongs to the backend that it was first shown for. It stays there while that backend is in
//! the configuration and is not known to have given the name up, that is, as long as it lists it, if only
//! in a form that cannot be used, or its list was not had in full. A sibling that begins to list the
//! name takes nothing, wherever it stands in the file.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::snapshot::Part;
use crate::catalog::snapshot::Snapshot;
use crate::model::name::BackendName;
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;

/// The recorded owners of a tenant's public names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owners(HashMap<List, HashMap<Arc<str>, BackendName>>);

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

    /// Without those that own nothing any more, since `tenant` does not have them.
    pub fn among(&self, tenant: &Tenant) -> Self {
        let there: HashSet<_> = tenant.backends.iter().map(|backend| &backend.name).collect();
        let mut left = Self::default();
        for (list, name, owner) in self.iter().filter(|(_, _, owner)| there.contains(owner)) {
            left.insert(list, name.clone(), owner.clone());
        }
        left
    }

    /// Without the names that their owners have given up.
    pub fn still(&self, parts: &[Arc<Part>]) -> Self {
        let mut listed = HashSet::new();
        for part in parts {
            for list in List::ALL {
                listed.extend(part.names(list).map(|name| (&part.home.config.name, list, &**name)));
            }
        }
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

    /// With the names in a snapshot that was put together with these owners and is shown to clients.
    pub fn with(mut self, snapshot: &Snapshot) -> Self {
        for list in List::ALL {
            for entry in snapshot.entries(list) {
                self.insert(list, entry.public.clone(), entry.backend().clone());
            }
        }
        self
    }
}
