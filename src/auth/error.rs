//! Why nobody was authenticated. `Display` is what the sender may read: no part of a token is in it.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::discovery::DiscoveryError;
use crate::auth::introspection::IntrospectionError;

/// Why nobody was authenticated.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthError {
    /// No bearer token: no `Authorization`, or one of another scheme.
    #[error("a bearer token is needed")]
    MissingToken,
    /// A token that is not accepted here.
    #[error("{0}")]
    InvalidToken(Reason),
    /// The token may be good, but its issuer's keys have never been had.
    #[error("the keys of the token's issuer cannot be had at present")]
    KeysUnavailable {
        /// When it is worth asking again.
        retry_after: Duration,
        /// What went wrong, for the log.
        #[source]
        cause: Option<Arc<DiscoveryError>>,
    },
    /// The token may be good, but who says so cannot be asked.
    #[error("the token's issuer cannot be asked about it at present")]
    IntrospectionUnavailable {
        /// When it is worth asking again.
        retry_after: Duration,
        /// What went wrong, for the log.
        #[source]
        cause: Arc<IntrospectionError>,
    },
}

/// Why a token is not accepted. Each is plain ASCII without quotes, as an `error_description` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// More than one `Authorization` header.
    #[error("there is more than one Authorization header")]
    Repeated,
    /// Not one token in the grammar of bearer tokens.
    #[error("the credentials are not one bearer token")]
    Credentials,
    /// Too long to be looked at.
    #[error("the token is too long")]
    TooLong,
    /// Not a JWT in compact form, or one with duplicate or mistyped members.
    #[error("the token is not a well-formed JWT")]
    Malformed,
    /// `typ` is not an access token's.
    #[error("the token is not an access token: its typ must be at+jwt")]
    Type,
    /// `crit` names what we do not know.
    #[error("the token has critical header parameters that are not known")]
    Critical,
    /// `iss` is of no issuer that is accepted at this endpoint.
    #[error("the token's issuer is not accepted here")]
    Issuer,
    /// `alg` is not accepted from this issuer, or does not fit the key.
    #[error("the token's signature algorithm is not accepted")]
    Algorithm,
    /// No key of this id, or no id where several keys fit.
    #[error("the token's key is not known")]
    Key,
    /// The signature is wrong.
    #[error("the token's signature is wrong")]
    Signature,
    /// A required claim is missing.
    #[error("the token has no {0} claim")]
    Missing(&'static str),
    /// A claim of a wrong type.
    #[error("the token's {0} claim has a wrong type")]
    Mistyped(&'static str),
    /// Its issuer says that it is not good, or not any more.
    #[error("the token is not active")]
    Inactive,
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` or `iat` is in the future.
    #[error("the token is not valid yet")]
    TooEarly,
    /// `aud` names others.
    #[error("the token was issued for another resource")]
    Audience,
    /// It names no tenant, or another one than the endpoint's.
    #[error("the token is not good for a tenant of this endpoint")]
    Tenant,
}

impl From<Reason> for AuthError {
    fn from(reason: Reason) -> Self {
        Self::InvalidToken(reason)
    }
}
