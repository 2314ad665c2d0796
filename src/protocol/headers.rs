//! Steps 10 to 13: headers that mirror the body, each counted before it is read.

/// How a mirror header disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Not sent.
    #[error("the header is missing")]
    Missing,
    /// Sent more than once.
    #[error("the header is sent more than once")]
    Repeated,
    /// A value that cannot be decoded.
    #[error("the header's value cannot be decoded")]
    Undecodable,
    /// Another value than the body's.
    #[error("the header differs from the body")]
    Different,
    /// Sent although the body has no such value.
    #[error("the header is sent, but the body has no such value")]
    Unbacked,
}
