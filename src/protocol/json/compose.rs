//! Composing: proven texts put together, never parsed again.

use crate::protocol::json::Json;
use crate::protocol::json::JsonError;
use crate::protocol::json::text;

/// An object that is being written. Its author puts each key once.
#[derive(Debug)]
pub struct Object(Vec<u8>);

/// An array that is being written.
#[derive(Debug)]
pub struct Array(Vec<u8>);

impl Default for Object {
    fn default() -> Self {
        Self::new()
    }
}

impl Object {
    /// An empty object.
    pub fn new() -> Self {
        Self::with_capacity(128)
    }

    /// An empty object with room for `bytes` of text.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        out.push(b'{');
        Self(out)
    }

    /// Appends a value as it is.
    #[must_use]
    pub fn put(mut self, key: &str, value: &Json) -> Self {
        self.key(key, value.bytes().len());
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// Appends a value where there is one.
    #[must_use]
    pub fn put_some(self, key: &str, value: Option<&Json>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// Appends a string.
    #[must_use]
    pub fn put_str(mut self, key: &str, value: &str) -> Self {
        self.key(key, value.len() + 2);
        text::quote(&mut self.0, value);
        self
    }

    /// Appends a number.
    #[must_use]
    pub fn put_u64(mut self, key: &str, value: u64) -> Self {
        self.key(key, 20);
        self.0.extend_from_slice(value.to_string().as_bytes());
        self
    }

    /// Appends a number that may be negative.
    #[must_use]
    pub fn put_i64(mut self, key: &str, value: i64) -> Self {
        self.key(key, 20);
        self.0.extend_from_slice(value.to_string().as_bytes());
        self
    }

    /// Appends `true` or `false`.
    #[must_use]
    pub fn put_bool(mut self, key: &str, value: bool) -> Self {
        self.key(key, 5);
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// The object.
    pub fn finish(mut self) -> Json {
        self.0.push(b'}');
        finished(self.0)
    }

    fn key(&mut self, key: &str, value_bytes: usize) {
        self.0.reserve(key.len() + value_bytes + 5);
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        text::quote(&mut self.0, key);
        self.0.push(b':');
    }
}

impl Default for Array {
    fn default() -> Self {
        Self::new()
    }
}

impl Array {
    /// An empty array.
    pub fn new() -> Self {
        Self::with_capacity(128)
    }

    /// An empty array with room for `bytes` of text.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes);
        out.push(b'[');
        Self(out)
    }

    /// Appends a value as it is.
    #[must_use]
    pub fn push(mut self, value: &Json) -> Self {
        self.separate();
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// Appends a string.
    #[must_use]
    pub fn push_str(mut self, value: &str) -> Self {
        self.separate();
        text::quote(&mut self.0, value);
        self
    }

    /// The array.
    pub fn finish(mut self) -> Json {
        self.0.push(b']');
        finished(self.0)
    }

    fn separate(&mut self) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
    }
}

fn finished(text: Vec<u8>) -> Json {
    let json = Json(text.into());
    debug_assert_ne!(
        Json::parse(json.0.clone(), usize::MAX),
        Err(JsonError::DuplicateKey),
        "a composed object has the same key twice",
    );
    json
}
