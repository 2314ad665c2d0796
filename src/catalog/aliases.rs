//! The names that views call: a backend's own, where only one backend has them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::tool::Tool;

/// Tools by their backends' own names, visible or not. `None` where several backends have one.
type Names = HashMap<Arc<str>, Option<Arc<Tool>>>;

/// The tools that a snapshot knows by their backends' own names.
pub(super) struct Aliases {
    /// Those that all callers share.
    shared: Arc<Names>,
    /// Those of one caller alone.
    own: Names,
}

impl Aliases {
    /// Of all tools that the backends have.
    pub(super) fn of<'t>(all: impl Iterator<Item = &'t Arc<Tool>>) -> Self {
        Self { shared: Arc::new(names(all)), own: Names::new() }
    }

    /// The same with all that a caller has of its own.
    pub(super) fn with<'t>(&self, own: impl Iterator<Item = &'t Arc<Tool>>) -> Self {
        Self { shared: self.shared.clone(), own: names(own) }
    }

    /// The tool that its backend calls like this, if no other one does.
    pub(super) fn find(&self, own: &str) -> Option<&Arc<Tool>> {
        match (self.shared.get(own), self.own.get(own)) {
            (Some(one), None) | (None, Some(one)) => one.as_ref(),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

fn names<'t>(all: impl Iterator<Item = &'t Arc<Tool>>) -> Names {
    let mut names = Names::new();
    for tool in all {
        let own = tool.entry.own.clone();
        names.entry(own).and_modify(|owner| *owner = None).or_insert_with(|| Some(tool.clone()));
    }
    names
}
