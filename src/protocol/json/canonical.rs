//! One text for all texts of the same value, to be compared or digested; never sent to anybody.

use std::ops::Range;

use crate::protocol::json::Json;
use crate::protocol::json::members::after_string;
use crate::protocol::json::members::after_word;
use crate::protocol::json::text;
use crate::protocol::json::utf8;

/// `json` without blanks, keys sorted, strings escaped in one way, numbers as they are written: `1.0` is
/// not `1`, since nobody can tell whom that is the same to.
pub fn canonical(json: &Json) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.bytes().len());
    write(json.bytes(), 0, &mut out);
    out
}

/// Writes the value that begins at `at`; the position after it. The text's depth was bounded when it was
/// proven.
fn write(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    match bytes[at] {
        b'{' => object(bytes, at + 1, out),
        b'[' => array(bytes, at + 1, out),
        b'"' => {
            let end = after_string(bytes, at);
            text::quote(out, &text::unescape(utf8(&bytes[at + 1..end - 1])));
            end
        }
        _ => {
            let end = after_word(bytes, at);
            out.extend_from_slice(&bytes[at..end]);
            end
        }
    }
}

fn object(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    out.push(b'{');
    let begin = out.len();
    // What was written of each member: its key, and the whole of it.
    let mut members: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    loop {
        at = next(bytes, at);
        if bytes[at] == b'}' {
            break;
        }
        let start = out.len();
        at = write(bytes, at, out);
        let key = start..out.len();
        out.push(b':');
        at = write(bytes, next(bytes, at), out);
        members.push((key, start..out.len()));
    }
    if !members.is_sorted_by(|a, b| out[a.0.clone()] < out[b.0.clone()]) {
        members.sort_by(|a, b| out[a.0.clone()].cmp(&out[b.0.clone()]));
        let mut sorted = Vec::with_capacity(out.len() - begin);
        members.iter().for_each(|(_, whole)| sorted.extend_from_slice(&out[whole.clone()]));
        out.truncate(begin);
        out.extend_from_slice(&sorted);
    }
    out.push(b'}');
    at + 1
}

fn array(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    out.push(b'[');
    loop {
        at = next(bytes, at);
        if bytes[at] == b']' {
            out.push(b']');
            return at + 1;
        }
        at = write(bytes, at, out);
        out.push(b',');
    }
}

/// The position of what comes next. Since the text is proven, commas and colons are as good as blanks.
fn next(bytes: &[u8], at: usize) -> usize {
    let blanks =
        bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'));
    at + blanks.count()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::canonical;
    use crate::protocol::json::Json;

    fn of(text: &str) -> String {
        let json = Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).expect(text);
        String::from_utf8(canonical(&json)).unwrap()
    }

    // spec: row MR-04
    #[test]
    fn the_same_value_has_one_text() {
        for (one, other) in [
            (r#"{"a":1,"b":2}"#, r#" { "b" : 2 ,"a":1 }"#),
            (r#"{"a":{"c":[1,{"y":0,"x":0}],"b":null}}"#, r#"{"a":{"b":null,"c":[1,{"x":0,"y":0}]}}"#),
            (r#"{"é":"\u00e9\/\n"}"#, r#"{"\u00e9":"é/\u000a"}"#),
            (r#"{"\"":1,"b":2}"#, r#"{"b":2,"\u0022":1}"#),
            ("[]", "[ ]"),
            ("{}", "{ }"),
        ] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
    }

    // spec: row MR-04
    #[test]
    fn other_values_have_other_texts() {
        let texts = [
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1e0}"#,
            r#"{"a":"1"}"#,
            r#"{"a":true}"#,
            r#"{"a":null}"#,
            "{}",
            r#"{"A":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a,b":1}"#,
            r#"{"a":[1,2]}"#,
            r#"{"a":[2,1]}"#,
            r#"{"a":[12]}"#,
            r#"{"a":[[1],2]}"#,
            r#"{"a":[1,[2]]}"#,
            r#"{"a":9007199254740993}"#,
            r#"{"a":9007199254740992}"#,
            r#"{"a":"{\"b\":1}"}"#,
        ];
        for (n, one) in texts.iter().enumerate() {
            for other in &texts[..n] {
                assert_ne!(of(one), of(other));
            }
        }
    }

    #[test]
    fn a_long_or_deep_text_takes_a_moment() {
        let wide: String = (0..200_000).rev().map(|n| format!(r#""k{n}":{n},"#)).collect();
        assert!(of(&format!("{{{}}}", wide.trim_end_matches(','))).starts_with(r#"{"k0":0"#));
        let deep = format!("{}{}", r#"{"b":0,"a":"#.repeat(63) + "1", "}".repeat(63));
        assert!(of(&deep).starts_with(r#"{"a":{"a":"#));
    }
}
