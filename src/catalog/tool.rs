//! A tool of the catalog.

use std::fmt;
use std::sync::Arc;

use crate::catalog::entry::Cataloged;
use crate::catalog::entry::Entry;
use crate::catalog::header_params::HeaderParam;
use crate::catalog::schema::Validator;

/// A tool that was admitted. Shared in an `Arc`; never changes.
pub struct Tool {
    /// What it has in common with everything else.
    pub entry: Arc<Entry>,
    /// Its arguments that are mirrored in headers.
    pub header_params: Vec<HeaderParam>,
    /// Its input schema; `None` where its backend has arguments unchecked.
    pub input: Option<Arc<Validator>>,
    /// Its output schema, if it has one and its backend has results checked.
    pub output: Option<Arc<Validator>>,
}

impl Cataloged for Arc<Tool> {
    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}
