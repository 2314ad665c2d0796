//! Who the tenants are: the file that declares them, the index that finds their endpoints, and
//! the one decision whose request this is.

pub(crate) mod backend;
pub mod document;
mod entry;
pub mod file;
pub mod index;
mod issuer;
mod json;
mod nesting;
pub mod parts;
pub mod resolve;
pub mod secret;
pub mod source;
mod stored;
pub mod watch;
mod yaml;

#[cfg(test)]
mod tests;

/// Why a request has no tenant.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TenantError {
    /// The credential names a tenant that is not known, or another one: answered like a bad credential.
    #[error("the token is not valid here")]
    NoSuchTenant,
    /// No such endpoint.
    #[error("not found")]
    NotFound,
}
