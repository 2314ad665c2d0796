//! Names that are proven well-formed when they are made.

use std::fmt;
use std::sync::Arc;

/// A tenant's slug: `[a-z][a-z0-9-]{0,62}`, unique in the deployment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantName(Arc<str>);

/// A backend's name: `[a-z][a-z0-9-]{0,31}`, unique in its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendName(Arc<str>);

/// Why a name was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a name starts with a lower-case letter and goes on with at most {0} of `a-z`, `0-9` and `-`")]
pub struct NameError(usize);

fn slug(text: &str, tail: usize) -> Result<Arc<str>, NameError> {
    let mut bytes = text.bytes();
    let head = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if head && rest && text.len() <= tail + 1 { Ok(text.into()) } else { Err(NameError(tail)) }
}

impl TenantName {
    /// Takes `text` if it is a tenant slug.
    pub fn new(text: &str) -> Result<Self, NameError> {
        slug(text, 62).map(Self)
    }

    /// The slug as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BackendName {
    /// Takes `text` if it is a backend name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        slug(text, 31).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TenantName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for BackendName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::BackendName;
    use super::TenantName;

    #[test]
    fn only_slugs_are_names() {
        assert!(TenantName::new("acme-2").is_ok());
        for bad in ["", "2a", "-a", "A", "a_b", "a/b", "a.b", "é", &"a".repeat(64)] {
            assert!(TenantName::new(bad).is_err(), "{bad}");
        }
        assert!(BackendName::new(&"a".repeat(32)).is_ok());
        assert!(BackendName::new(&"a".repeat(33)).is_err());
    }
}
