//! `docs/reference/configuration.md`, made from the defaults so that it cannot say anything else.

use std::fmt::Write;

use crate::config::layers::DEFAULTS;

/// The page, as Markdown.
pub fn page() -> String {
    let mut page =
        String::from("# Configuration\n\n<!-- Made from src/config/defaults.toml by a test. -->\n\n");
    let mut section = String::new();
    for block in DEFAULTS.split("\n\n") {
        let mut words: Vec<&str> = Vec::new();
        for line in block.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = format!("{name}.");
                let _ = write!(page, "## `[{name}]`\n\n");
            } else if let Some((key, value, default)) = setting(line) {
                entry(&mut page, &section, key, value, default, &words);
                words.clear();
            } else {
                words.push(line.trim_start_matches('#').trim());
            }
        }
        paragraphs(&mut page, &words);
    }
    page.trim_end().to_owned() + "\n"
}

/// A line that sets a key: the key, its value, and whether that is a default or an example.
fn setting(line: &str) -> Option<(&str, &str, bool)> {
    let (text, default) = line.strip_prefix("# ").map_or((line, true), |rest| (rest, false));
    let (key, value) = text.split_once(" = ")?;
    key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some((key, value, default))
}

fn entry(page: &mut String, section: &str, key: &str, value: &str, default: bool, words: &[&str]) {
    let variable = format!("{section}{key}").replace('.', "__").to_uppercase();
    let told = if default { "Default" } else { "Not set by default; for example" };
    let _ = write!(page, "### `{section}{key}`\n\n{}\n\n", words.join("\n"));
    let _ = write!(page, "{told}: `{value}`. Variable: `FONDACO_{variable}`.\n\n");
}

fn paragraphs(page: &mut String, words: &[&str]) {
    if !words.is_empty() {
        let _ = write!(page, "{}\n\n", words.join("\n").trim());
    }
}
