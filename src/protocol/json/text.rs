//! Strings: finding what is special in them, escaping and unescaping.

use std::borrow::Cow;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The first position from `at` on of a quote, a backslash or a control character, or the end.
pub(super) fn special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        // Eight bytes at a time: a subtraction borrows into the high bit of each byte that is smaller.
        // A borrow can only make bytes after a true hit look like one, so the lowest hit is exact.
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let hits = (word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash);
        match hits & HIGHS {
            0 => at += 8,
            hits => return at + (hits.trailing_zeros() / 8) as usize,
        }
    }
    bytes[at..]
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))
        .map_or(bytes.len(), |offset| at + offset)
}

/// Appends `text` as a JSON string, with its quotes.
pub(super) fn quote(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut from = 0;
    loop {
        let at = special(bytes, from);
        out.extend_from_slice(&bytes[from..at]);
        let Some(byte) = bytes.get(at) else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(control >> 4), digit(control & 15)]);
            }
        }
        from = at + 1;
    }
    out.push(b'"');
}

/// The text that the inside of a proven JSON string stands for.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', raw.as_bytes()) else {
        return Cow::Borrowed(raw);
    };
    let mut out = String::with_capacity(raw.len());
    out.push_str(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some(escape) = rest.strip_prefix('\\') {
        let (character, after) = escaped(escape);
        out.push(character);
        let next = memchr::memchr(b'\\', after.as_bytes()).unwrap_or(after.len());
        out.push_str(&after[..next]);
        rest = &after[next..];
    }
    Cow::Owned(out)
}

/// The character of one escape, given the text after its backslash, and what follows.
fn escaped(text: &str) -> (char, &str) {
    let (letter, rest) = text.split_at(1);
    let character = match letter {
        "b" => '\u{8}',
        "f" => '\u{c}',
        "n" => '\n',
        "r" => '\r',
        "t" => '\t',
        "u" => return unit(rest),
        other => other.chars().next().unwrap_or('\\'),
    };
    (character, rest)
}

/// The character of a `\u` escape, or of two that are a surrogate pair, given the text after `\u`.
fn unit(text: &str) -> (char, &str) {
    let first = hex(&text.as_bytes()[..4]);
    let (code, rest) = match first {
        Some(high @ 0xd800..0xdc00) => {
            let low = hex(&text.as_bytes()[6..10]).unwrap_or(0xdc00);
            (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), &text[10..])
        }
        Some(code) => (code, &text[4..]),
        None => (0xfffd, &text[4..]),
    };
    (char::from_u32(code).expect("surrogates are paired in a proven text"), rest)
}

/// The number that exactly four hexadecimal digits stand for.
pub(super) fn hex(digits: &[u8]) -> Option<u32> {
    let digits: &[u8; 4] = digits.try_into().ok()?;
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
}
