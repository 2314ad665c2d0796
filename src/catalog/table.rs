//! One list of a snapshot: everything of one kind, in the order of public names.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use crate::catalog::entry::Cataloged;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Remark;
use crate::catalog::owners::Owners;
use crate::catalog::ui::Ui;
use crate::catalog::uris;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant::ObjectKind;
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;

/// Everything of one kind. A public name is there once.
#[derive(Debug)]
pub struct Table<T> {
    /// What all callers share, in the order of public names.
    shared: Arc<Vec<T>>,
    /// What is one caller's own, likewise.
    own: Vec<T>,
    /// Every scope that some of them needs.
    relevant: Scopes,
    /// Whether hosts of apps see something else than others.
    has_ui: bool,
}

impl<T: Cataloged + Clone> Table<T> {
    /// Of what the backends have, which comes in the tenant's order: the recorded owner of a public name
    /// has it, else the first to claim it; any other is left out.
    pub(super) fn compose<'p>(
        list: List,
        tenant: &'p Tenant,
        recorded: &'p Owners,
        admitted: impl Iterator<Item = &'p T>,
        left_out: &mut Vec<Remark>,
    ) -> Self
    where
        T: 'p,
    {
        let known = |entry: &Entry| recorded.of(list, &entry.public);
        let rows = owned(list, tenant, known, admitted, left_out);
        let mut relevant = Scopes::default();
        rows.iter().for_each(|row| relevant.extend(&row.entry().needs));
        let has_ui = rows.iter().any(|row| row.entry().ui != Ui::None);
        Self { shared: Arc::new(rows), own: Vec::new(), relevant, has_ui }
    }

    /// The same with what is one caller's own, which comes in the tenant's order: a public name that all
    /// share stays whose it is, whatever the order and whatever is recorded; so does one that is recorded, shown
    /// or not; any other is the first one's.
    pub(super) fn with<'p>(
        &'p self,
        list: List,
        tenant: &'p Tenant,
        recorded: &'p Owners,
        admitted: impl Iterator<Item = &'p T>,
        left_out: &mut Vec<Remark>,
    ) -> Self
    where
        T: 'p,
    {
        let shared = |entry: &Entry| self.find(&entry.public).map(|shared| shared.entry().backend());
        let known = |entry: &Entry| shared(entry).or_else(|| recorded.of(list, &entry.public));
        let own = owned(list, tenant, known, admitted, left_out);
        let mut relevant = self.relevant.clone();
        own.iter().for_each(|row| relevant.extend(&row.entry().needs));
        let has_ui = self.has_ui || own.iter().any(|row| row.entry().ui != Ui::None);
        Self { shared: self.shared.clone(), own, relevant, has_ui }
    }

    /// What has this public name, whoever may see it.
    pub fn find(&self, public: &str) -> Option<&T> {
        let find = |rows: &'_ [T]| rows.binary_search_by(|row| (*row.entry().public).cmp(public)).ok();
        match find(&self.shared) {
            Some(at) => self.shared.get(at),
            None => find(&self.own).and_then(|at| self.own.get(at)),
        }
    }

    /// Everything, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (mut shared, mut own) = (self.shared.iter().peekable(), self.own.iter().peekable());
        iter::from_fn(move || {
            let (Some(one), Some(other)) = (shared.peek(), own.peek()) else {
                return shared.next().or_else(|| own.next());
            };
            match one.entry().public < other.entry().public {
                true => shared.next(),
                false => own.next(),
            }
        })
    }

    /// The entries, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.iter().map(Cataloged::entry)
    }

    /// Every scope that matters to what a caller sees of it.
    pub(super) fn relevant(&self) -> &Scopes {
        &self.relevant
    }

    /// Whether a client that shows views sees something else than others.
    pub(super) fn has_ui(&self) -> bool {
        self.has_ui
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shared.len() + self.own.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Those of `admitted` whose public names are their backends', in the order of the names: the backend that every
/// such URI belongs to has one, else the one that is `known` to, else the first to claim it.
fn owned<'a, T: Cataloged + Clone + 'a>(
    list: List,
    tenant: &'a Tenant,
    known: impl Fn(&Entry) -> Option<&'a BackendName>,
    admitted: impl Iterator<Item = &'a T>,
    left_out: &mut Vec<Remark>,
) -> Vec<T> {
    let mut owners: HashMap<&str, &BackendName> = HashMap::new();
    let mut rows = Vec::new();
    for row in admitted {
        let entry = row.entry();
        let owner = named(tenant, entry).or_else(|| known(entry));
        let owner = owner.unwrap_or_else(|| *owners.entry(&entry.public).or_insert(entry.backend()));
        match owner == entry.backend() {
            true => rows.push(row.clone()),
            false => left_out.push(belongs(list, entry, owner)),
        }
    }
    rows.sort_unstable_by(|one, other| one.entry().public.cmp(&other.entry().public));
    rows
}

/// What is left out, since its public name is another backend's.
fn belongs(list: List, entry: &Entry, owner: &BackendName) -> Remark {
    Remark {
        backend: entry.backend().clone(),
        list,
        name: entry.own.to_string(),
        reason: format!("the public name {:?} belongs to backend `{owner}`", entry.public),
    }
}

/// The backend that every URI beginning like this one belongs to, listed or not.
fn named<'t>(tenant: &'t Tenant, entry: &Entry) -> Option<&'t BackendName> {
    if entry.kind != ObjectKind::Resource {
        return None;
    }
    let (name, _) = uris::split(&entry.public)?;
    uris::owner(&tenant.backends, name).map(|backend| &backend.name)
}
