//! The proof of a text: one pass, an explicit stack, every object's keys compared.
//!
//! spec: RFC 8259; I-JSON (RFC 7493), 2.1 and 2.3, for surrogates and repeated keys

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::ops::Range;

use crate::protocol::json::JsonError;
use crate::protocol::json::text;

/// From so many keys on an object is compared by digest instead of key by key.
const FEW: usize = 16;

/// The range of the one value in `bytes`, if it is all that is there.
pub(super) fn prove(bytes: &[u8], depth: usize) -> Result<Range<usize>, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Encoding(error.valid_up_to()))?;
    let mut scanner =
        Scanner { text, bytes, at: 0, depth, open: Vec::new(), keys: Vec::new(), duplicate: false };
    scanner.blanks();
    let start = scanner.at;
    scanner.value()?;
    let end = scanner.at;
    scanner.blanks();
    match scanner.peek() {
        Some(_) => Err(scanner.unexpected()),
        // A text with another fault is refused for that one: JSON comes before its keys.
        None if scanner.duplicate => Err(JsonError::DuplicateKey),
        None => Ok(start..end),
    }
}

/// What is open around the current position.
enum Container {
    Array,
    Object {
        /// Where its keys begin in `Scanner::keys`; those of closed inner objects are gone by then.
        first: usize,
        /// Whether any of them has an escape.
        escaped: bool,
        /// Digests of the keys, once there are many. Keyed at random, so that nobody can aim at collisions.
        digests: Option<(RandomState, HashSet<u64>)>,
    },
}

struct Scanner<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    depth: usize,
    open: Vec<Container>,
    /// The raw keys, without quotes, of every open object.
    keys: Vec<Range<usize>>,
    duplicate: bool,
}

impl Scanner<'_> {
    /// Reads one value, whatever it holds.
    fn value(&mut self) -> Result<(), JsonError> {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'{') => {
                    self.enter(Container::Object { first: self.keys.len(), escaped: false, digests: None })?;
                    if !self.closes(b'}') {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.enter(Container::Array)?;
                    if !self.closes(b']') {
                        continue;
                    }
                }
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.unexpected()),
            }
            if !self.goes_on()? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here. Whether another value follows; its key has then been read.
    fn goes_on(&mut self) -> Result<bool, JsonError> {
        loop {
            let Some(container) = self.open.last() else { return Ok(false) };
            let object = matches!(container, Container::Object { .. });
            self.blanks();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    if object {
                        self.blanks();
                        self.key()?;
                    }
                    return Ok(true);
                }
                Some(b'}') if object => self.leave(),
                Some(b']') if !object => self.leave(),
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn enter(&mut self, container: Container) -> Result<(), JsonError> {
        if self.open.len() >= self.depth {
            return Err(JsonError::Depth(self.at));
        }
        self.open.push(container);
        self.at += 1;
        Ok(())
    }

    /// Whether the container that was just entered is empty; it is left then.
    fn closes(&mut self, bracket: u8) -> bool {
        self.blanks();
        let empty = self.peek() == Some(bracket);
        if empty {
            self.leave();
        }
        empty
    }

    fn leave(&mut self) {
        self.at += 1;
        if let Some(Container::Object { first, .. }) = self.open.pop() {
            self.keys.truncate(first);
        }
    }

    /// Reads a key with its colon, and compares it with its siblings.
    fn key(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        let start = self.at + 1;
        let has_escape = self.string()?;
        let key = start..self.at - 1;
        self.blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected());
        }
        self.at += 1;
        if !self.duplicate {
            self.duplicate = self.repeats(&key, has_escape);
            self.keys.push(key);
        }
        Ok(())
    }

    /// Whether the innermost object has this key already.
    fn repeats(&mut self, key: &Range<usize>, has_escape: bool) -> bool {
        let text = self.text;
        let Some(Container::Object { first, escaped, digests }) = self.open.last_mut() else { return false };
        *escaped |= has_escape;
        let siblings = &self.keys[*first..];
        let escaped = *escaped;
        let raw = &text[key.clone()];
        let compare = || {
            if escaped {
                let key = text::unescape(raw);
                siblings.iter().any(|other| text::unescape(&text[other.clone()]) == key)
            } else {
                siblings.iter().any(|other| &text[other.clone()] == raw)
            }
        };
        if siblings.len() < FEW {
            return compare();
        }
        let (state, seen) = digests.get_or_insert_with(|| {
            let state = RandomState::new();
            let seen = siblings.iter().map(|other| digest(&state, &text[other.clone()])).collect();
            (state, seen)
        });
        // A digest that was seen is compared in earnest: two keys may share one, if hardly ever.
        !seen.insert(digest(state, raw)) && compare()
    }

    /// Reads a string; whether it has an escape.
    fn string(&mut self) -> Result<bool, JsonError> {
        self.at += 1;
        let mut has_escape = false;
        loop {
            self.at = text::special(self.bytes, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(has_escape);
                }
                Some(b'\\') => {
                    has_escape = true;
                    self.escape()?;
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => match self.unit()? {
                0xd800..0xdc00 => {
                    if !self.bytes[self.at..].starts_with(b"\\u") {
                        return Err(JsonError::Surrogate(start));
                    }
                    self.at += 1;
                    match self.unit()? {
                        0xdc00..0xe000 => Ok(()),
                        _ => Err(JsonError::Surrogate(start)),
                    }
                }
                0xdc00..0xe000 => Err(JsonError::Surrogate(start)),
                _ => Ok(()),
            },
            _ => Err(self.unexpected()),
        }
    }

    /// Reads `u` and four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at + 1..self.at + 5);
        let unit = digits.and_then(text::hex).ok_or_else(|| self.unexpected())?;
        self.at += 5;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            // No digit may follow a leading zero: what comes next is not read as part of the number.
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    /// Reads at least one digit.
    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len()) {
            0 => Err(self.unexpected()),
            count => {
                self.at += count;
                Ok(())
            }
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.unexpected());
        }
        self.at += word.len();
        Ok(())
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn unexpected(&self) -> JsonError {
        JsonError::Grammar(self.at)
    }
}

fn digest(state: &RandomState, raw: &str) -> u64 {
    state.hash_one(text::unescape(raw).as_bytes())
}
