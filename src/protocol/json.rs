//! JSON whose text is proven, kept as text. See [`Json`].

use bytes::Bytes;

/// A JSON value as its proven text: UTF-8, the grammar, bounded depth, no duplicate keys, no
/// unpaired surrogates. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Bytes);

/// Why a text is not JSON as we read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Two members of one object have the same key, after unescaping.
    #[error("an object has the same key twice")]
    DuplicateKey,
    /// Not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    Encoding(usize),
    /// Not the grammar of RFC 8259.
    #[error("unexpected text at byte {0}")]
    Grammar(usize),
    /// Nested too deep.
    #[error("nested too deep at byte {0}")]
    Depth(usize),
    /// A `\u` escape that is half of a surrogate pair.
    #[error("an unpaired surrogate at byte {0}")]
    Surrogate(usize),
}
