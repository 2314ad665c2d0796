//! A tool of the catalog, and one that was left out of it.

use std::fmt;
use std::sync::Arc;

use crate::backend::Backend;
use crate::catalog::header_params::HeaderParam;
use crate::catalog::schema::Validator;
use crate::model::name::BackendName;
use crate::model::scope::Scopes;
use crate::model::tenant::ObjectKind;
use crate::policy::Target;
use crate::protocol::json::Json;

/// A tool that was admitted. Shared in an `Arc`; never changes.
pub struct Tool {
    /// The name that clients call it by.
    pub public: Arc<str>,
    /// The backend's own name for it.
    pub own: Arc<str>,
    /// Its backend's name.
    pub backend: BackendName,
    /// Its backend, to call it.
    pub live: Arc<Backend>,
    /// What lists show: the backend's members as they came, under the public name, with texts for
    /// people cleaned.
    pub descriptor: Json,
    /// The scopes that it needs.
    pub needs: Scopes,
    /// Its arguments that are mirrored in headers.
    pub header_params: Vec<HeaderParam>,
    /// Its input schema.
    pub validator: Arc<Validator>,
}

impl Tool {
    /// This tool, as a decision's target.
    pub fn target(&self) -> Target<'_> {
        Target { backend: &self.backend, kind: ObjectKind::Tool, own_name: &self.own, needs: &self.needs }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({} = {} of {})", self.public, self.own, self.backend)
    }
}

/// A tool that is not in the catalog, or that is in it changed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark {
    /// Its backend.
    pub backend: BackendName,
    /// Its own name, escaped and cut, or its place in the list where it has no name.
    pub name: String,
    /// Why, to be read by the tenant's operators.
    pub reason: String,
}
