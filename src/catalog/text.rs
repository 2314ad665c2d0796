//! Text for people and models that a backend wrote: what must not be in it, and how it is cut.

use std::borrow::Cow;

/// Whether `character` is invisible or changes how its neighbours are shown: controls, bidi
/// overrides and isolates, zero-width characters, tags and supplementary variation selectors.
/// Line ends and tabs count too.
pub fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
}

/// `text` without ANSI sequences and hidden characters (line ends and tabs stay), cut to at
/// most `most` bytes. Borrowed where nothing had to be changed.
pub fn clean(text: &str, most: usize) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && !matches!(c, '\n' | '\r' | '\t');
    if text.len() <= most && !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len().min(most));
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if matches!(next, '\u{1b}' | '\u{9b}') {
            skip_sequence(next, &mut rest);
        } else if !hidden(next) {
            if kept.len() + next.len_utf8() > most {
                cut(&mut kept, most.saturating_sub('…'.len_utf8()));
                kept.push('…');
                break;
            }
            kept.push(next);
        }
    }
    Cow::Owned(kept)
}

/// Cuts `text` to at most `most` bytes, between two characters.
pub fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

/// Skips what follows an escape: a control sequence up to its final byte, else nothing.
fn skip_sequence(escape: char, rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    if escape == '\u{1b}' && ahead.next() != Some('[') {
        return;
    }
    for next in ahead.by_ref() {
        match next {
            '\u{20}'..='\u{3f}' => {}
            '\u{40}'..='\u{7e}' => break,
            // Not a control sequence after all: only its introducer goes.
            _ => return,
        }
    }
    *rest = ahead;
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn hidden_characters_go_and_the_rest_stays() {
        for (dirty, cleaned) in [
            ("plain\n\ttext\r\n", "plain\n\ttext\r\n"),
            ("日本語 é 👍", "日本語 é 👍"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{9b}1;2Hx", "x"),
            ("a\u{1b}b", "ab"),
            ("a\u{1b}[\u{7}b", "a[b"),
            ("nul\0bell\u{7}", "nulbell"),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}e", "abcde"),
            ("tag\u{e0041}\u{e007f}", "tag"),
            ("\u{1b}[31", ""),
        ] {
            assert_eq!(clean(dirty, 100), cleaned, "{dirty:?}");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(clean("abcdef", 6), "abcdef");
        assert_eq!(clean("abcdefg", 6), "abc…");
        assert_eq!(clean("ééééé", 8), "éé…");
        assert!(clean(&"x".repeat(1 << 20), 8 << 10).len() <= 8 << 10);
    }
}
