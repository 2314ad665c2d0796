//! JSON whose text is proven, kept as text. See [`Json`].
//!
//! `scan` proves a text once, without recursion and without converting a number; [`members`] walks
//! proven text; [`compose`] and [`change`] put proven texts together; [`canonical`] makes one text of equal ones. Nothing here
//! ever re-serialises a value.

pub mod canonical;
pub mod change;
pub mod compose;
pub mod members;
mod scan;
mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;

use crate::protocol::json::members::Elements;
use crate::protocol::json::members::Members;

/// A JSON value as its proven text: UTF-8, the grammar, bounded depth, no duplicate keys, no
/// unpaired surrogates, no blanks around it. Cloning shares the bytes; equality is equality of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Bytes);

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number, of any size.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`
    Null,
}

/// Why a text is not JSON as we read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Two members of one object have the same key, after unescaping. Reported only for a text that
    /// has no other fault.
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

impl Json {
    /// Proves `text`, with arrays and objects nested at most `depth` deep, in one pass. Time and memory
    /// are linear in its length, whatever it holds.
    pub fn parse(text: Bytes, depth: usize) -> Result<Self, JsonError> {
        let value = scan::prove(&text, depth)?;
        Ok(Self(text.slice(value)))
    }

    /// A JSON string that holds `text`.
    pub fn from_str_value(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len() + 2);
        text::quote(&mut out, text);
        Self(out.into())
    }

    /// `null`
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The text of a value that was built, or read, off the road.
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }

    /// The same value in bytes of its own: what it was cut from can go.
    pub fn alone(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// The text. This walks it to check UTF-8 again: where bytes will do, take [`Json::bytes`].
    pub fn text(&self) -> &str {
        utf8(&self.0)
    }

    /// The text's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// What the value is.
    pub fn kind(&self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.kind() == Kind::Object
    }

    /// The members of an object in their order, keys unescaped; nothing for any other value.
    pub fn members(&self) -> Members<'_> {
        Members::of(self)
    }

    /// The member of an object that has this key, once unescaped.
    pub fn member(&self, name: &str) -> Option<Json> {
        self.members().find_value(name)
    }

    /// The elements of an array in their order; nothing for any other value.
    pub fn elements(&self) -> Elements<'_> {
        Elements::of(self)
    }

    /// How many values there are in it, itself included and keys not: one pass over the text.
    pub fn values(&self) -> usize {
        members::count(self)
    }

    /// The text that a JSON string stands for.
    pub fn string(&self) -> Option<String> {
        self.string_ref().map(Cow::into_owned)
    }

    /// The text that a JSON string stands for, borrowed where it has no escapes.
    pub fn string_ref(&self) -> Option<Cow<'_, str>> {
        match self.kind() {
            Kind::String => Some(text::unescape(utf8(&self.0[1..self.0.len() - 1]))),
            _ => None,
        }
    }

    /// The value of `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        match &self.0[..] {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Whether the value is a number without fraction and exponent: `-?(0|[1-9][0-9]*)`, of any length.
    pub fn is_integer(&self) -> bool {
        let digits = self.0.strip_prefix(b"-").unwrap_or(&self.0);
        // The grammar is proven: a text of nothing but digits has no leading zero.
        digits.iter().all(u8::is_ascii_digit)
    }

    /// The value of an integer that fits; `1.0` and `1e3` are none.
    pub fn integer(&self) -> Option<i64> {
        if !self.is_integer() {
            return None;
        }
        self.text().parse().ok()
    }
}

/// Text out of bytes that lie inside a proven text, on its character boundaries.
fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("a Json is checked to be UTF-8 when it is made")
}
