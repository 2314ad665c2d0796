//! The architecture as a test: who may import whom, which crates belong to one room, and how
//! files look. ARCHITECTURE.md gives the reasons in words.
//!
//! It reads the text of `src/**`. [`mask`] blanks comments, strings and tests, [`paths`] lists
//! the paths that are left, [`check`] judges one file. A violation prints `file:line: rule`.
//! A new entry in a table here is an architecture change: a commit of its own, with the reason.

use std::fmt;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// Who may import whom. An entry is a room, a part of one (`tenant::index`), or `*Error`: the
/// error types of any room. Every room but `model` and `protocol` may also use [`LEAVES`].
///
/// `auth`, `tenant`, `router` and `backend` never import each other: only the pipeline knows
/// the order of the road.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("protocol", &[]),
    ("exchange", &["model", "protocol"]),
    ("seal", &["model"]),
    ("egress", &["model"]),
    // `seal`: secrets are sealed where they are stored.
    ("store", &["model", "seal"]),
    ("policy", &["model", "protocol"]),
    // `protocol::headers`: the credential's header is counted like every other one.
    ("auth", &["model", "egress", "seal", "protocol::headers"]),
    ("tenant", &["model", "egress", "seal", "store"]),
    ("stream", &["exchange", "model", "protocol"]),
    ("backend", &["exchange", "model", "protocol", "stream", "egress", "seal"]),
    ("cache", &["exchange", "model", "protocol"]),
    // `cache`: what was read goes when the resources that a backend lists change.
    ("catalog", &["exchange", "model", "protocol", "stream", "egress", "seal", "backend", "policy", "cache"]),
    ("router", &["exchange", "model", "protocol", "stream", "egress", "seal", "policy", "catalog"]),
    (
        "methods",
        &[
            "exchange", "model", "protocol", "stream", "egress", "seal", "backend", "policy", "catalog",
            "router", "cache",
        ],
    ),
    // Whose resource a URI is, and where its changes come from.
    ("listen", &["exchange", "model", "protocol", "backend", "catalog", "cache"]),
    // The handshake era may use the modern rooms; of those, none may use it.
    (
        "legacy",
        &[
            "exchange", "model", "protocol", "stream", "egress", "seal", "backend", "policy", "catalog",
            "router", "methods", "listen",
        ],
    ),
    (
        "error",
        &[
            "model", "protocol", "exchange", "seal", "egress", "policy", "auth", "tenant", "stream",
            "backend", "catalog", "router", "methods", "listen", "*Error",
        ],
    ),
    (
        "app",
        &[
            "model", "protocol", "exchange", "seal", "egress", "policy", "auth", "tenant", "stream",
            "backend", "catalog", "router", "methods", "listen", "legacy", "error", "cache", "store",
        ],
    ),
    (
        "pipeline",
        &[
            "model", "protocol", "exchange", "seal", "egress", "policy", "auth", "tenant", "stream",
            "backend", "catalog", "router", "methods", "listen", "legacy", "error", "app", "cache",
        ],
    ),
    (
        "edge",
        &[
            "app",
            "pipeline",
            "error",
            "exchange",
            "stream",
            "model",
            "protocol",
            "tenant::index",
            "auth::challenge",
            "*Error",
        ],
    ),
    // `tenant`: a document is checked by the reader that will load it. `egress::rules`: a target that is
    // never dialled is refused when it is written.
    (
        "admin",
        &[
            "app",
            "auth",
            "model",
            "store",
            "tenant",
            "seal",
            "egress::rules",
            "protocol::json",
            "protocol::media",
            "*Error",
        ],
    ),
    ("config", &["model"]),
    ("telemetry", &["model"]),
    ("serve", EVERYTHING),
    ("cli", EVERYTHING),
    ("lib", &[]),
    ("main", &["cli"]),
];

/// Rooms that any room may use; `config` only as sections handed in.
const LEAVES: &[&str] = &["config", "telemetry"];

const EVERYTHING: &[&str] = &["*"];

/// Crates, or parts of crates, that belong to some rooms alone. The longest entry decides.
const CRATES: &[(&str, &[&str])] = &[
    // The AEAD and the key derivation are the seal; digests name and compare things anywhere;
    // what is left is signatures (tokens) and the provider that rustls is built with.
    ("aws_lc_rs", &["seal", "auth", "egress"]),
    ("aws_lc_rs::aead", &["seal"]),
    ("aws_lc_rs::hkdf", &["seal"]),
    ("aws_lc_rs::digest", &["*"]),
    ("jsonwebtoken", &["auth"]),
    ("sqlx", &["store"]),
    ("jsonschema", &["catalog"]),
    ("hyper::client", &["egress"]),
    ("hyper_util::client", &["egress"]),
    ("hyper_rustls", &["egress"]),
    ("rustls", &["egress"]),
    ("axum", &["edge", "admin"]),
    ("tower", &["edge", "admin"]),
    // The client's resolver is one.
    ("tower::Service", &["edge", "admin", "egress"]),
    ("tower_http", &["edge", "admin"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
    ("opentelemetry_otlp", &["telemetry"]),
    ("tracing_opentelemetry", &["telemetry"]),
    ("clap", &["cli"]),
    ("anyhow", &["cli", "serve"]),
];

/// Rooms that may speak of HTTP statuses: those that answer, and those that read answers.
const STATUS_ROOMS: &[&str] = &["edge", "admin", "backend", "egress"];

/// Where the revisions of the handshake era may stand in code.
const REVISION_FILES: &[&str] = &["src/protocol/version.rs", "src/legacy/"];

const HANDSHAKE_REVISIONS: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Who may ask which era a message or a revision is of: one answer to it, where the road divides, and
/// nobody decides it again.
const ERA_FILES: &[&str] = &[
    "src/protocol/",
    "src/pipeline.rs",
    "src/pipeline/",
    "src/legacy/",
    "src/backend/legacy",
    "src/backend/probe",
    "src/backend/mcp/probe",
];

/// What somebody names who asks.
const ERA_PATHS: &[&str] = &["crate::protocol::era", "crate::protocol::version::Handshake"];

/// Names that say nothing; plurals too.
const EMPTY_NAMES: &[&str] = &["util", "helper", "common", "misc", "manager", "base"];

const MAX_LINES: usize = 400;

/// Files that are longer than [`MAX_LINES`] without their tests, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

// === the scanner ===

/// One file, as the checks see it. All texts have the same lines.
struct Source {
    path: String,
    room: String,
    raw: String,
    /// Without comments and strings.
    all: String,
    /// Without comments, strings and tests.
    code: String,
    /// Without comments and tests: strings are left.
    text: String,
    /// Lines that are not tests.
    production_lines: usize,
}

impl Source {
    fn new(path: &str, raw: &str) -> Self {
        let inside = path.strip_prefix("src/").unwrap_or(path);
        let room = inside.split(['/', '.']).next().unwrap_or_default().to_owned();
        let is_tests = inside.ends_with("/tests.rs") || inside.contains("/tests/");
        let all = mask(raw, true);
        let tests = if is_tests { vec![(0, all.len())] } else { test_items(&all) };
        let (mut code, mut text) = (all.clone(), mask(raw, false));
        let mut production_lines = raw.lines().count();
        for (start, end) in tests {
            production_lines -= all[start..end].lines().count();
            blank(&mut code, start, end);
            blank(&mut text, start, end);
        }
        Self { path: path.to_owned(), room, raw: raw.to_owned(), all, code, text, production_lines }
    }

    /// How many modules above this file's end at the crate root.
    fn depth(&self) -> usize {
        let inside = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        inside.split('/').filter(|part| !["mod", "lib", "main"].contains(part)).count()
    }

    fn violation(&self, line: usize, rule: impl Into<String>) -> Violation {
        Violation { file: self.path.clone(), line, rule: rule.into() }
    }
}

#[derive(Debug, PartialEq)]
struct Violation {
    file: String,
    line: usize,
    rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.rule)
    }
}

/// `source` with comments, and with `strings` also the insides of literals, as spaces. Every
/// byte keeps its place.
fn mask(source: &str, strings: bool) -> String {
    let bytes = source.as_bytes();
    let mut out = source.to_owned();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        let before = source[..at].chars().next_back();
        let (end, is_literal) = if rest.starts_with("//") {
            (at + rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (at + block_comment(rest), false)
        } else if let Some(length) = raw_string(rest).filter(|_| !before.is_some_and(is_word)) {
            (at + length, true)
        } else if rest.starts_with('"') {
            (at + quoted(rest), true)
        } else if let Some(length) = character(rest) {
            (at + length, true)
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        if !is_literal || strings {
            blank(&mut out, at, end);
        }
        at = end;
    }
    out
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") if depth == 1 => return at + 2,
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let body = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body.trim_start_matches('#').strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&close).map_or(inside.len(), |found| found + close.len());
    Some(text.len() - inside.len() + length)
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character literal; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return inside[2..].find('\'').map(|close| close + 4);
    }
    inside[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

fn blank(text: &mut String, start: usize, end: usize) {
    let spaces: String = text[start..end]
        .chars()
        .flat_map(|c| std::iter::repeat_n(if c == '\n' { '\n' } else { ' ' }, c.len_utf8()))
        .collect();
    text.replace_range(start..end, &spaces);
}

/// Where items under `#[cfg(test)]` begin and end.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let (mut items, mut from) = (Vec::new(), 0);
    while let Some(found) = code[from..].find(MARK) {
        let start = from + found;
        let (mut depth, mut end) = (0_usize, code.len());
        for (at, byte) in code.bytes().enumerate().skip(start + MARK.len()) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth <= 1 => {
                    end = at + 1;
                    break;
                }
                b'}' => depth -= 1,
                b';' if depth == 0 => {
                    end = at + 1;
                    break;
                }
                _ => {}
            }
        }
        items.push((start, end));
        from = end;
    }
    items
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every path of `code` with its line; the groups of a `use` are written out.
fn paths(code: &str) -> Vec<(usize, String)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < code.len() {
        let rest = &code[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if !is_word(first) {
            at += first.len_utf8();
            continue;
        }
        let length = path(rest, "", &mut |offset, path| {
            found.push((1 + code[..at + offset].matches('\n').count(), path));
        });
        at += length;
    }
    found
}

/// Reads one path, or the tree of a `use`, at the start of `text`; returns its length.
fn path(text: &str, prefix: &str, found: &mut dyn FnMut(usize, String)) -> usize {
    let (mut at, mut name) = (0, prefix.to_owned());
    loop {
        let word = text[at..].find(|c| !is_word(c)).unwrap_or(text.len() - at);
        name.push_str(&text[at..at + word]);
        at += word;
        let after = &text[at..];
        if !after.starts_with("::") {
            break;
        }
        match after[2..].chars().next() {
            Some(c) if is_word(c) => {}
            Some('*') => {
                found(at, format!("{name}::*"));
                return at + 3;
            }
            Some('{') => return at + 2 + group(&after[2..], &format!("{name}::"), at + 2, found),
            _ => break,
        }
        name.push_str("::");
        at += 2;
    }
    found(0, name);
    at
}

fn group(text: &str, prefix: &str, offset: usize, found: &mut dyn FnMut(usize, String)) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at..].chars().next() {
            Some('}') => return at + 1,
            Some('*') => {
                found(offset + at, format!("{prefix}*"));
                at += 1;
            }
            Some(c) if is_word(c) => {
                at += path(&text[at..], prefix, &mut |inner, path| found(offset + at + inner, path));
            }
            other => at += other.map_or(1, char::len_utf8),
        }
    }
    text.len()
}

// === the rules ===

fn check(source: &Source) -> Vec<Violation> {
    let mut found = imports(source);
    found.extend(crates(source));
    found.extend(eras(source));
    found.extend(statements(source));
    found.extend(names(source));
    found.extend(words(source));
    if !source.raw.starts_with("//!") {
        found.push(source.violation(1, "the file does not start with `//!`: say what it promises"));
    }
    let exempt = LONG_FILES.iter().any(|(path, _)| *path == source.path);
    if source.production_lines > MAX_LINES && !exempt {
        found.push(source.violation(
            MAX_LINES,
            format!("{} lines without tests, more than {MAX_LINES}: cut it", source.production_lines),
        ));
    }
    found
}

/// Rooms import what their row says; a path out of the room is written from `crate`.
fn imports(source: &Source) -> Vec<Violation> {
    let Some((room, allowed)) = ROOMS.iter().find(|(room, _)| *room == source.room) else {
        return vec![source.violation(1, format!("room `{}` has no row in the import table", source.room))];
    };
    let leaf = |target: &str| LEAVES.contains(&target) && !["model", "protocol"].contains(room);
    let mut found = Vec::new();
    for (line, path) in paths(&source.code) {
        let supers = path.split("::").take_while(|part| *part == "super").count();
        if supers > 0 && supers >= source.depth() {
            found.push(source.violation(line, format!("`{path}` leaves the room: write it from `crate`")));
        }
        let Some(inside) = path.strip_prefix("crate::").or_else(|| path.strip_prefix("fondaco::")) else {
            continue;
        };
        let target = inside.split("::").next().unwrap_or_default();
        let is_error = inside.rsplit("::").next().is_some_and(|last| last.ends_with("Error"));
        let fits = |entry: &str| match entry {
            "*" => true,
            "*Error" => is_error,
            entry => inside == entry || inside.starts_with(&format!("{entry}::")),
        };
        if target != *room && !leaf(target) && !allowed.iter().any(|entry| fits(entry)) {
            found.push(source.violation(line, format!("room `{room}` may not use `{path}`")));
        }
    }
    found
}

/// Some crates belong to some rooms.
fn crates(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for (line, path) in paths(&source.code) {
        let fits = |name: &str| path == name || path.starts_with(&format!("{name}::"));
        let owner = CRATES.iter().filter(|(name, _)| fits(name)).max_by_key(|(name, _)| name.len());
        let Some((name, rooms)) = owner else { continue };
        // A bare word is a variable or a module's declaration, not a use of the crate.
        if path.contains("::") && !rooms.contains(&"*") && !rooms.contains(&&*source.room) {
            found.push(source.violation(line, format!("`{name}` belongs to {}", rooms.join(", "))));
        }
    }
    found
}

/// The era is asked where the road divides.
fn eras(source: &Source) -> Vec<Violation> {
    if ERA_FILES.iter().any(|file| source.path.starts_with(file)) {
        return Vec::new();
    }
    let asks = |path: &str| ERA_PATHS.iter().any(|era| path == *era || path.starts_with(&format!("{era}::")));
    let asked = paths(&source.code).into_iter().filter(|(_, path)| asks(path));
    asked
        .map(|(line, path)| {
            source.violation(line, format!("`{path}`: only where the road divides is the era asked"))
        })
        .collect()
}

/// One `use crate::room::Thing;` per line: no groups and no globs of ours.
fn statements(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut at = 0;
    for statement in source.all.split_inclusive(';') {
        let start = statement
            .rfind("use ")
            .filter(|found| !statement[..*found].chars().next_back().is_some_and(is_word));
        if let Some(start) = start {
            let tree = statement[start + 4..].trim_start();
            let line = 1 + source.all[..at + start].matches('\n').count();
            let in_tests = source.code[at + start..].bytes().next() == Some(b' ');
            if tree.starts_with("crate::") && tree.contains('{') {
                found.push(source.violation(line, "one `use crate::room::Thing;` per line, no group"));
            }
            if tree.contains('*')
                && (tree.starts_with("crate::") || tree.starts_with("self::") || tree.starts_with("super::"))
                && !(in_tests && tree.starts_with("super::"))
            {
                found.push(source.violation(line, "no glob import of our own"));
            }
        }
        at += statement.len();
    }
    found
}

/// Names say what a thing is for.
fn names(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for part in source.path.trim_end_matches(".rs").split('/') {
        if let Some(word) = empty_word(part) {
            found.push(source.violation(1, format!("`{part}`: `{word}` says nothing")));
        }
        if part == "http" {
            found.push(source.violation(1, "a module `http` shadows the crate"));
        }
    }
    for (number, line) in source.code.lines().enumerate() {
        let mut tokens = line.split(|c| !is_word(c)).filter(|word| !word.is_empty());
        while let Some(token) = tokens.next() {
            if !["struct", "enum", "trait", "type", "union", "mod"].contains(&token) {
                continue;
            }
            let Some(name) = tokens.next() else { break };
            if let Some(word) = empty_word(name) {
                found.push(source.violation(number + 1, format!("`{name}`: `{word}` says nothing")));
            }
        }
    }
    found
}

fn empty_word(name: &str) -> Option<&'static str> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if (c == '_' || c == '-' || c.is_uppercase()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c != '_' && c != '-') {
            word.extend(c.to_lowercase());
        }
    }
    EMPTY_NAMES
        .iter()
        .copied()
        .find(|empty| words.iter().any(|w| w == empty || w.strip_suffix('s') == Some(empty)))
}

/// Words that belong to some rooms, or nowhere.
fn words(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let has = |line: &str, wanted: &str| line.split(|c| !is_word(c)).any(|word| word == wanted);
    for (number, line) in source.code.lines().enumerate() {
        if has(line, "StatusCode") && !STATUS_ROOMS.contains(&&*source.room) {
            found.push(source.violation(number + 1, "statuses are decided in edge/respond.rs alone"));
        }
    }
    for (number, line) in source.text.lines().enumerate() {
        let home = REVISION_FILES.iter().any(|file| source.path.starts_with(file));
        if let Some(revision) = HANDSHAKE_REVISIONS.iter().find(|revision| !home && line.contains(**revision))
        {
            found.push(
                source.violation(number + 1, format!("{revision} is known to protocol/version.rs alone")),
            );
        }
    }
    for (number, line) in source.raw.lines().enumerate() {
        if let Some(word) = ["TODO", "FIXME"].iter().find(|word| has(line, word)) {
            found.push(source.violation(number + 1, format!("`{word}`: do it, or write an issue")));
        }
    }
    found
}

// === the house itself ===

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn house() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    files.sort();
    let source = |file: &PathBuf| {
        let path = file.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        Source::new(&path, &fs::read_to_string(file).unwrap())
    };
    files.iter().map(source).collect()
}

#[test]
fn the_house_keeps_its_rules() {
    let violations: Vec<String> = house().iter().flat_map(check).map(|v| v.to_string()).collect();
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn the_tables_speak_of_what_exists() {
    let house = house();
    for (room, _) in ROOMS {
        assert!(house.iter().any(|source| source.room == *room), "the table has a row for `{room}`");
    }
    for (path, reason) in LONG_FILES {
        let source = house.iter().find(|source| source.path == *path);
        assert!(source.is_some_and(|s| s.production_lines > MAX_LINES), "{path} needs no exemption");
        assert!(!reason.is_empty(), "{path} is exempt without a reason");
    }
}

// === the scanner can fail ===

/// What `check` says of `text` at `path`, as `line: rule`.
fn said(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(path, &format!("//! Head.\n{text}"));
    check(&source).into_iter().map(|v| format!("{}: {}", v.line, v.rule)).collect()
}

#[test]
fn each_rule_catches_its_violation() {
    let not = |room: &str, path: &str| format!("2: room `{room}` may not use `{path}`");
    let cases = [
        ("src/auth/jwt.rs", "use crate::tenant::index::Index;", not("auth", "crate::tenant::index::Index")),
        ("src/auth/jwt.rs", "use crate::protocol::json::Json;", not("auth", "crate::protocol::json::Json")),
        ("src/model/x.rs", "use crate::config::Section;", not("model", "crate::config::Section")),
        ("src/router/mod.rs", "fn f(b: &crate::backend::Pool) {}", not("router", "crate::backend::Pool")),
        ("src/edge/mcp.rs", "use crate::tenant::resolve;", not("edge", "crate::tenant::resolve")),
        ("src/main.rs", "fn main() { fondaco::serve::run() }", not("main", "fondaco::serve::run")),
        (
            "src/auth/mod.rs",
            "use super::tenant::Index;",
            "2: `super::tenant::Index` leaves the room: write it from `crate`".into(),
        ),
        (
            "src/seal.rs",
            "pub(in super::x) fn f() {}",
            "2: `super::x` leaves the room: write it from `crate`".into(),
        ),
        ("src/cellar/mod.rs", "", "1: room `cellar` has no row in the import table".into()),
        ("src/auth/keys.rs", "use aws_lc_rs::{aead, digest};", "2: `aws_lc_rs::aead` belongs to seal".into()),
        (
            "src/catalog/x.rs",
            "fn f() { ::aws_lc_rs::rand::fill(b) }",
            "2: `aws_lc_rs` belongs to seal, auth, egress".into(),
        ),
        ("src/tenant/x.rs", "use jsonwebtoken::Header;", "2: `jsonwebtoken` belongs to auth".into()),
        (
            "src/backend/mcp.rs",
            "use hyper_util::client::legacy::Client;",
            "2: `hyper_util::client` belongs to egress".into(),
        ),
        ("src/pipeline.rs", "use axum::response::Response;", "2: `axum` belongs to edge, admin".into()),
        (
            "src/error.rs",
            "pub status: StatusCode,",
            "2: statuses are decided in edge/respond.rs alone".into(),
        ),
        (
            "src/edge/mcp.rs",
            "use crate::{app::App};",
            "2: one `use crate::room::Thing;` per line, no group".into(),
        ),
        (
            "src/edge/mcp.rs",
            "use crate::model::{\n  Limits,\n  Tenant,\n};",
            "2: one `use crate::room::Thing;` per line, no group".into(),
        ),
        ("src/edge/mcp.rs", "use crate::app::*;", "2: no glob import of our own".into()),
        ("src/edge/mcp.rs", "fn f() { use super::*; }", "2: no glob import of our own".into()),
        ("src/edge/utils.rs", "", "1: `utils`: `util` says nothing".into()),
        ("src/edge/http.rs", "", "1: a module `http` shadows the crate".into()),
        (
            "src/edge/mcp.rs",
            "pub struct SessionManager;",
            "2: `SessionManager`: `manager` says nothing".into(),
        ),
        (
            "src/edge/mcp.rs",
            "const V: &str = \"2025-06-18\";",
            "2: 2025-06-18 is known to protocol/version.rs alone".into(),
        ),
        ("src/edge/mcp.rs", "// TODO: later", "2: `TODO`: do it, or write an issue".into()),
    ];
    for (path, text, rule) in cases {
        assert_eq!(said(path, text), [rule], "{path}: {text}");
    }
    let long = "fn f() {}\n".repeat(MAX_LINES);
    assert_eq!(said("src/seal.rs", &long), ["400: 401 lines without tests, more than 400: cut it"]);
    let headless = check(&Source::new("src/seal.rs", "use std::fmt;\n"));
    assert_eq!(
        headless[0].to_string(),
        "src/seal.rs:1: the file does not start with `//!`: say what it promises"
    );
}

#[test]
fn the_era_is_asked_where_the_road_divides_alone() {
    let not = |path: &str| format!("2: `{path}`: only where the road divides is the era asked");
    for (path, asked) in [
        ("src/edge/respond.rs", "crate::protocol::era::Era"),
        ("src/methods/mod.rs", "crate::protocol::era::Era::Modern"),
        ("src/backend/mcp/call.rs", "crate::protocol::version::Handshake"),
    ] {
        assert_eq!(said(path, &format!("use {asked};")), [not(asked)], "{path}");
    }
    let used = "use crate::legacy::shape::Shape;";
    assert_eq!(
        said("src/router/mod.rs", used),
        ["2: room `router` may not use `crate::legacy::shape::Shape`"]
    );
}

#[test]
fn what_is_allowed_passes() {
    let cases = [
        (
            "src/auth/jwt.rs",
            "use crate::auth::keys::Keys;\nuse crate::model::caller::Caller;\nuse crate::telemetry::metrics;",
        ),
        ("src/auth/bearer.rs", "use crate::protocol::headers::single;\nuse super::keys::Keys;"),
        ("src/edge/respond.rs", "use crate::auth::challenge::Challenge;\nuse crate::backend::BackendError;"),
        ("src/egress/tls.rs", "use rustls::crypto::aws_lc_rs;\nlet p = aws_lc_rs::default_provider();"),
        ("src/catalog/names.rs", "use aws_lc_rs::digest::digest;\nstruct Base64Text;\nlet tower = 1;"),
        ("src/backend/mcp.rs", "use http::StatusCode;"),
        (
            "src/seal.rs",
            "//! See [`crate::auth`] and `StatusCode`.\n/* crate::auth::x /* 2025-06-18 */ */ const A: &str = \"crate::auth::x { StatusCode\";",
        ),
        (
            "src/seal.rs",
            "const B: &str = r#\"crate::auth::\" StatusCode\"#; fn f<'a>(c: char) -> &'a str { ['\"', '\\'', '{']; g() }",
        ),
        (
            "src/seal.rs",
            "#[cfg(test)]\nmod tests {\n  use super::*;\n  use crate::auth::Keys;\n  const V: &str = \"2025-06-18 }\";\n}\nfn f() {}",
        ),
        (
            "src/auth/tests.rs",
            "use crate::pipeline::handle;\nuse jsonschema::Validator;\nlet s = StatusCode::OK;",
        ),
        ("src/protocol/version.rs", "const V: &str = \"2025-06-18\";"),
        ("src/backend/legacy/mod.rs", "use crate::protocol::version::Handshake;"),
        ("src/tenant/backend.rs", "use crate::model::tenant::BackendEra;\nlet era = BackendEra::Handshake;"),
        ("src/edge/respond.rs", "use crate::legacy::LegacyError;"),
        ("src/serve.rs", "use crate::edge::accept;\nuse crate::admin::api;"),
    ];
    for (path, text) in cases {
        assert_eq!(said(path, text), [""; 0], "{path}: {text}");
    }
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(MAX_LINES));
    assert_eq!(said("src/seal.rs", &tests), [""; 0]);
}

#[test]
fn production_code_after_a_test_module_is_still_read() {
    let text = "#[cfg(test)]\nmod tests;\nuse crate::auth::Keys;\n#[cfg(test)]\nmod more { fn f() {} }\nuse crate::edge::mcp;";
    assert_eq!(
        said("src/seal.rs", text),
        ["4: room `seal` may not use `crate::auth::Keys`", "7: room `seal` may not use `crate::edge::mcp`"],
    );
}
