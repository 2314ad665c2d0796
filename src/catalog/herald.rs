//! Who is told that a catalog has changed.

use std::ops::BitAnd;
use std::ops::BitOr;
use std::ops::Not;
use std::sync::Arc;

use crate::backend::watch::Change;
use crate::backend::watch::Interest;
use crate::catalog::entry::Cataloged;
use crate::catalog::entry::Entry;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::table::Table;
use crate::model::name::TenantName;
use crate::protocol::methods::List;

/// Which lists of a catalog changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Its tools.
    pub tools: bool,
    /// Its prompts.
    pub prompts: bool,
    /// Its resources or templates.
    pub resources: bool,
}

/// Is told after the catalog that has the change is in place: who lists now sees it.
pub trait Herald: Send + Sync {
    /// Something changed for the callers of `tenant`. Must not block.
    fn changed(&self, tenant: &TenantName, what: Changed);
}

/// Tells nobody.
impl Herald for () {
    fn changed(&self, _: &TenantName, _: Changed) {}
}

impl Changed {
    /// Nothing.
    pub const NOTHING: Self = Self { tools: false, prompts: false, resources: false };

    /// What differs for clients between two catalogs of a tenant.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Self {
        Self {
            tools: differ(&old.tools, &new.tools),
            prompts: differ(&old.prompts, &new.prompts),
            resources: differ(&old.resources, &new.resources) || differ(&old.templates, &new.templates),
        }
    }

    /// What of this is about lists.
    pub(super) fn of(interest: &Interest) -> Self {
        Self { tools: interest.tools, prompts: interest.prompts, resources: interest.resources }
    }
}

impl From<&Change> for Changed {
    fn from(change: &Change) -> Self {
        match change {
            Change::Tools => Self { tools: true, ..Self::NOTHING },
            Change::Prompts => Self { prompts: true, ..Self::NOTHING },
            Change::Resources => Self { resources: true, ..Self::NOTHING },
            Change::Resource(_) | Change::Task(_) => Self::NOTHING,
        }
    }
}

impl From<List> for Changed {
    fn from(list: List) -> Self {
        match list {
            List::Tools => Self { tools: true, ..Self::NOTHING },
            List::Prompts => Self { prompts: true, ..Self::NOTHING },
            List::Resources | List::Templates => Self { resources: true, ..Self::NOTHING },
        }
    }
}

impl BitOr for Changed {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            tools: self.tools | other.tools,
            prompts: self.prompts | other.prompts,
            resources: self.resources | other.resources,
        }
    }
}

impl BitAnd for Changed {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        !(!self | !other)
    }
}

impl Not for Changed {
    type Output = Self;

    fn not(self) -> Self {
        Self { tools: !self.tools, prompts: !self.prompts, resources: !self.resources }
    }
}

/// Whether some caller may see another list.
fn differ<T: Cataloged + Clone>(old: &Table<T>, new: &Table<T>) -> bool {
    let same = |(one, other): (&Arc<Entry>, &Arc<Entry>)| {
        Arc::ptr_eq(one, other)
            || one.public == other.public && one.needs == other.needs && one.descriptor == other.descriptor
    };
    old.len() != new.len() || !old.entries().zip(new.entries()).all(same)
}
