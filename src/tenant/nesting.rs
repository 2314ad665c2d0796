//! How deep a YAML text nests its brackets, counted before it is parsed: the parser's time grows
//! with the square of that.

use crate::config::report::Problem;

/// The deepest nesting that is parsed. A tenants file needs about five.
const DEEPEST: usize = 64;

/// Refuses a text whose brackets nest deeper than [`DEEPEST`]. It counts those that begin a value:
/// in the midst of text, a bracket is text.
pub(super) fn check(text: &str, source: &str) -> Result<(), Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut bytes = text.bytes().peekable();
    let (mut depth, mut line) = (0_usize, 1);
    let (mut before, mut token) = (Before::default(), b' ');
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => {
                line += 1;
                before = Before::default();
            }
            b'#' if before.spaced => while bytes.next_if(|byte| *byte != b'\n').is_some() {},
            b'"' | b'\'' if before.begins(token) => {
                line += quoted(byte, &mut bytes);
                before.note(byte);
            }
            b'[' | b'{' if before.begins(token) => {
                depth += 1;
                if depth > DEEPEST {
                    let message = format!("lists and maps in brackets are nested deeper than {DEEPEST}");
                    let problem = Problem { line: Some(line), ..Problem::new(source, "", message) };
                    return Err(problem.hint("close every `[` and `{`; what is text goes in quotes"));
                }
                before.note(byte);
            }
            _ => {
                if matches!(byte, b']' | b'}') {
                    depth = depth.saturating_sub(1);
                }
                if before.spaced {
                    token = byte;
                }
                before.note(byte);
            }
        }
    }
    Ok(())
}

/// What stands before a byte on its line.
struct Before {
    /// The last byte that is not a space, if any.
    last: Option<u8>,
    /// Whether a space is right before it, or nothing.
    spaced: bool,
}

impl Default for Before {
    fn default() -> Self {
        Self { last: None, spaced: true }
    }
}

impl Before {
    fn note(&mut self, byte: u8) {
        self.spaced = matches!(byte, b' ' | b'\t' | b'\r');
        if !self.spaced {
            self.last = Some(byte);
        }
    }

    /// Whether a value may begin here; `token` is the first byte of the last word, which may be an
    /// anchor or a tag.
    fn begins(&self, token: u8) -> bool {
        let opened = self.last.is_none_or(|last| b"[{,:-?".contains(&last));
        opened || self.spaced && matches!(token, b'&' | b'!')
    }
}

/// Skips to the end of a quoted text; how many lines further that is.
fn quoted(quote: u8, bytes: &mut std::iter::Peekable<std::str::Bytes<'_>>) -> usize {
    let mut lines = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => lines += 1,
            b'\\' if quote == b'"' => {
                lines += usize::from(bytes.next() == Some(b'\n'));
            }
            // Doubled, it is a quote inside of the text.
            _ if byte == quote && !(quote == b'\'' && bytes.next_if_eq(&quote).is_some()) => break,
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<usize> {
        check(text, "f").err().and_then(|problem| problem.line)
    }

    #[test]
    fn brackets_nest_only_so_deep() {
        let many = |text: &str, times: usize| text.repeat(times);
        for (text, refused) in [
            (many("[", 64), None),
            (many("[", 65), Some(1)),
            (format!("\u{feff}{}", many("[", 65)), Some(1)),
            (format!("# a comment\na: 'x'\nb: {}", many("{a: ", 65)), Some(3)),
            (many("[\n", 65), Some(65)),
            (many("&a [", 65), Some(1)),
            (many("!!seq [", 65), Some(1)),
            (many("{? [", 33), Some(1)),
            (format!("a: \"\\\"\n\"\nb: 'it''s'\nc: {}", many("[", 65)), Some(4)),
            (many("- []\n", 65), None),
            (many("[[], ", 63), None),
            (format!("# {}\na: 1 # {}", many("[", 65), many("[", 65)), None),
            (format!("a: '{}'\nb: \"\\\"{}\"", many("['' ", 65), many("[\\\"", 65)), None),
            (many("a: times are in [start, end)\n", 65), None),
            (many("a: b[c\n", 65), None),
        ] {
            assert_eq!(line(&text), refused, "{text}");
        }
    }
}
