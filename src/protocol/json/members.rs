//! Walking proven text: no check is repeated, values are slices of the same bytes.

use std::borrow::Cow;
use std::ops::Range;

use crate::protocol::json::Json;
use crate::protocol::json::text;
use crate::protocol::json::utf8;

/// How far a string's end is looked for before the search gets wide.
const NEAR: usize = 32;

/// The members of an object: key, unescaped, and value.
#[derive(Clone, Debug)]
pub struct Members<'j>(Walk<'j>);

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'j>(Walk<'j>);

impl<'j> Members<'j> {
    pub(super) fn of(json: &'j Json) -> Self {
        Self(Walk::inside(json, b'{'))
    }

    /// The value under `name`, from here on.
    pub(super) fn find_value(mut self, name: &str) -> Option<Json> {
        while let Some((raw, value)) = self.step() {
            if raw == name.as_bytes() || text::unescape(utf8(raw)) == name {
                return Some(self.0.slice(value));
            }
        }
        None
    }

    /// The next raw key, without quotes, and the range of its value.
    fn step(&mut self) -> Option<(&'j [u8], Range<usize>)> {
        let key = self.0.value()?;
        let value = self.0.value()?;
        Some((&self.0.bytes()[key.start + 1..key.end - 1], value))
    }
}

impl<'j> Iterator for Members<'j> {
    type Item = (Cow<'j, str>, Json);

    fn next(&mut self) -> Option<Self::Item> {
        let (raw, value) = self.step()?;
        Some((text::unescape(utf8(raw)), self.0.slice(value)))
    }
}

impl<'j> Elements<'j> {
    pub(super) fn of(json: &'j Json) -> Self {
        Self(Walk::inside(json, b'['))
    }
}

impl Iterator for Elements<'_> {
    type Item = Json;

    fn next(&mut self) -> Option<Json> {
        let value = self.0.value()?;
        Some(self.0.slice(value))
    }
}

/// A position inside a container. Since the text is proven, commas and colons are as good as blanks.
#[derive(Clone, Debug)]
struct Walk<'j> {
    json: &'j Json,
    at: usize,
}

impl<'j> Walk<'j> {
    /// At the first value inside `json`, or at its end if it does not begin with `bracket`.
    fn inside(json: &'j Json, bracket: u8) -> Self {
        let at = if json.0.first() == Some(&bracket) { 1 } else { json.0.len() };
        Self { json, at }
    }

    fn bytes(&self) -> &'j [u8] {
        &self.json.0
    }

    fn slice(&self, range: Range<usize>) -> Json {
        Json(self.json.0.slice(range))
    }

    /// The range of the next value of this container, and steps over it.
    fn value(&mut self) -> Option<Range<usize>> {
        let bytes = self.bytes();
        let rest = bytes.get(self.at..)?;
        let blanks =
            rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'))?;
        let start = self.at + blanks;
        let end = match bytes[start] {
            b'}' | b']' => return None,
            b'"' => after_string(bytes, start),
            b'{' | b'[' => after_container(bytes, start),
            _ => after_word(bytes, start),
        };
        self.at = end;
        Some(start..end)
    }
}

/// How many values `json` has in it, itself included.
pub(super) fn count(json: &Json) -> usize {
    let bytes = &json.0[..];
    let (mut at, mut values, mut keys) = (0, 0, 0);
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b'}' | b']' => at + 1,
            b':' => {
                keys += 1;
                at + 1
            }
            start => {
                values += 1;
                match start {
                    b'{' | b'[' => at + 1,
                    b'"' => after_string(bytes, at),
                    _ => after_word(bytes, at),
                }
            }
        };
    }
    // Each colon outside of strings follows a string that is no value.
    values - keys
}

/// The position after the string that begins at `start`.
pub(super) fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        // Most strings are short, where the wide search costs more than it saves.
        let near = bytes.len().min(at + NEAR);
        at = match text::special(&bytes[..near], at) {
            found if found < near => found,
            _ => near + memchr::memchr2(b'"', b'\\', &bytes[near..]).unwrap_or(bytes.len() - near),
        };
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            _ => return at + 1,
        }
    }
}

/// The position after the array or object that begins at `start`.
fn after_container(bytes: &[u8], start: usize) -> usize {
    let mut open = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = after_string(bytes, at - 1),
            b'{' | b'[' => open += 1,
            b'}' | b']' => {
                open -= 1;
                if open == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    at
}

/// The position after the number or literal that begins at `start`.
pub(super) fn after_word(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start..];
    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    rest.iter().position(ends).map_or(bytes.len(), |length| start + length)
}
