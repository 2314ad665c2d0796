//! OAuth scopes as a set.

use std::collections::BTreeSet;
use std::sync::Arc;

/// A set of OAuth scope values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scopes(BTreeSet<Arc<str>>);

impl Scopes {
    /// Reads the space-separated form of RFC 6749, section 3.3.
    pub fn parse(text: &str) -> Self {
        text.split(' ').filter(|s| !s.is_empty()).collect()
    }

    /// Whether `scope` is in the set.
    pub fn contains(&self, scope: &str) -> bool {
        self.0.contains(scope)
    }

    /// Whether every scope of `needed` is in the set.
    pub fn covers(&self, needed: &Scopes) -> bool {
        needed.0.is_subset(&self.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds every scope of `other`.
    pub fn extend(&mut self, other: &Scopes) {
        self.0.extend(other.0.iter().cloned());
    }

    /// The scopes in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|s| &**s)
    }

    /// The space-separated form of RFC 6749, section 3.3.
    pub fn joined(&self) -> String {
        self.iter().collect::<Vec<_>>().join(" ")
    }
}

impl<'a> FromIterator<&'a str> for Scopes {
    fn from_iter<T: IntoIterator<Item = &'a str>>(iter: T) -> Self {
        Self(iter.into_iter().map(Arc::from).collect())
    }
}
