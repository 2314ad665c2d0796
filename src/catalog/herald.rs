//! Who is told that a catalog has changed.

use crate::model::name::TenantName;

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
