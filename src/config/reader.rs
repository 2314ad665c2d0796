//! Reads a tree of configuration: every method takes what is right and writes down what is not,
//! so that one reading finds every problem.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::node::Field;
use crate::config::node::Node;
use crate::config::node::Place;
use crate::config::node::Value;
use crate::config::report::Problem;
use crate::config::units;

/// What one reading found wrong.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// Adds a problem.
    pub fn add(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Everything that was added.
    pub fn into_inner(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// A value under reading: the node, its key's path, and where problems go.
#[derive(Clone, Debug)]
pub struct At<'a> {
    /// The value.
    pub node: &'a Node,
    /// Its path from the root, as messages name it.
    pub key: String,
    problems: &'a Problems,
}

/// A map whose keys are known names.
pub struct Fields<'a> {
    at: At<'a>,
    fields: &'a [Field],
}

impl<'a> At<'a> {
    /// The root of a tree.
    pub fn root(node: &'a Node, problems: &'a Problems) -> Self {
        Self { node, key: String::new(), problems }
    }

    /// Where the value is written.
    pub fn place(&self) -> &'a Place {
        &self.node.place
    }

    /// Writes down what is wrong with this value; always `None`, so that a reader can return it.
    pub fn refuse<T>(&self, message: impl Into<String>) -> Option<T> {
        self.add(self.problem(message));
        None
    }

    /// The same with advice.
    pub fn refuse_hint<T>(&self, message: impl Into<String>, hint: impl Into<String>) -> Option<T> {
        self.add(self.problem(message).hint(hint));
        None
    }

    /// A problem of this value, not yet written down.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        problem(self.place(), &self.key, message)
    }

    /// The file's text.
    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::Bool(_) => self.wrong_hint("text", "put it in quotes"),
            _ => self.wrong("text"),
        }
    }

    /// Text that is not empty.
    pub fn filled(&self) -> Option<&'a str> {
        match self.text()? {
            "" => self.refuse("found empty text"),
            text => Some(text),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        match self.node.value {
            Value::Bool(flag) => Some(flag),
            _ => self.wrong("true or false"),
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).or_else(|| {
            let names: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.refuse(format!("found `{text}`, expected one of {}", names.join(", ")))
        })
    }

    /// A path; a relative one is relative to the directory of the file that it is written in.
    pub fn path(&self) -> Option<PathBuf> {
        let path = PathBuf::from(self.filled()?);
        let directory = self.place().line.and_then(|_| std::path::Path::new(&*self.place().source).parent());
        Some(directory.map_or(path.clone(), |directory| directory.join(path)))
    }

    /// A whole number.
    pub fn count(&self, range: &RangeInclusive<u64>) -> Option<usize> {
        let Value::Number(text) = &self.node.value else { return self.wrong("a whole number") };
        self.ranged(text.parse().ok(), text, range, "a whole number", |n| n.to_string())
    }

    /// A size in bytes, with its unit.
    pub fn size(&self, range: &RangeInclusive<u64>) -> Option<usize> {
        let Value::Text(text) = &self.node.value else {
            return self.wrong_hint("a size with its unit", "for example \"64KiB\" or \"4MB\"");
        };
        self.ranged(units::size(text), text, range, "a size such as `64KiB` or `4MB`", units::show_size)
    }

    /// A duration with its unit.
    pub fn duration(&self, range: &RangeInclusive<u64>) -> Option<Duration> {
        let Value::Text(text) = &self.node.value else {
            return self.wrong_hint("a duration with its unit", "for example \"30s\" or \"500ms\"");
        };
        let expected = "a duration such as `30s`, `500ms` or `5m`";
        self.ranged(units::millis(text), text, range, expected, units::show_millis)
            .map(|millis| Duration::from_millis(millis as u64))
    }

    /// The items of a list.
    pub fn list(&self) -> Vec<At<'a>> {
        let Value::List(nodes) = &self.node.value else {
            self.wrong::<()>("a list");
            return Vec::new();
        };
        let items = nodes.iter().enumerate();
        items
            .map(|(i, node)| At { node, key: format!("{}[{i}]", self.key), problems: self.problems })
            .collect()
    }

    /// The entries of a map whose keys are the user's; none twice.
    pub fn entries(&self) -> Vec<(&'a str, At<'a>)> {
        let fields = self.unique();
        fields.iter().map(|field| (field.key.as_str(), self.child(field))).collect()
    }

    /// The map, whose keys are all among `known`.
    pub fn map(&self, known: &[&str]) -> Option<Fields<'a>> {
        match self.node.value {
            Value::Map(_) => {}
            Value::Null => return self.wrong_hint("a map", "write `{}` where nothing is to be said"),
            _ => return self.wrong("a map"),
        }
        let fields = self.unique();
        for field in fields.iter().filter(|field| !known.contains(&field.key.as_str())) {
            let hint = match closest(&field.key, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.add(problem(&field.place, &self.join(&field.key), "unknown key").hint(hint));
        }
        Some(Fields { at: self.clone(), fields })
    }

    fn unique(&self) -> &'a [Field] {
        let Value::Map(fields) = &self.node.value else {
            self.wrong::<()>("a map");
            return &[];
        };
        let mut seen = std::collections::HashMap::new();
        for field in fields {
            if let Some(first) = seen.insert(field.key.as_str(), field) {
                let second = problem(&field.place, &self.join(&field.key), "the key is there twice");
                self.add(second.hint("remove one of them"));
                seen.insert(first.key.as_str(), first);
            }
        }
        fields
    }

    fn child(&self, field: &'a Field) -> At<'a> {
        At { node: &field.node, key: self.join(&field.key), problems: self.problems }
    }

    fn join(&self, key: &str) -> String {
        if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) }
    }

    fn wrong<T>(&self, expected: &str) -> Option<T> {
        self.refuse(format!("found {}, expected {expected}", self.node.value.kind()))
    }

    fn wrong_hint<T>(&self, expected: &str, hint: &str) -> Option<T> {
        self.refuse_hint(format!("found {}, expected {expected}", self.node.value.kind()), hint)
    }

    fn ranged(
        &self,
        value: Option<u64>,
        text: &str,
        range: &RangeInclusive<u64>,
        expected: &str,
        show: fn(u64) -> String,
    ) -> Option<usize> {
        match value {
            Some(value) if range.contains(&value) => usize::try_from(value).ok(),
            Some(_) => {
                let (least, most) = (show(*range.start()), show(*range.end()));
                self.refuse(format!("found `{text}`, expected {least} to {most}"))
            }
            None => self.refuse(format!("found `{text}`, expected {expected}")),
        }
    }

    fn add(&self, problem: Problem) {
        self.problems.add(problem);
    }
}

impl<'a> Fields<'a> {
    /// The map itself.
    pub fn at(&self) -> &At<'a> {
        &self.at
    }

    /// The value at `key`, where there is one.
    pub fn get(&self, key: &str) -> Option<At<'a>> {
        self.fields.iter().find(|field| field.key == key).map(|field| self.at.child(field))
    }

    /// The value at `key`, which must be there.
    pub fn need(&self, key: &str) -> Option<At<'a>> {
        self.get(key).or_else(|| {
            self.at.add(problem(self.at.place(), &self.at.join(key), "missing"));
            None
        })
    }
}

fn problem(place: &Place, key: &str, message: impl Into<String>) -> Problem {
    Problem { line: place.line, ..Problem::new(&place.source, key, message) }
}

/// The name in `known` that `word` is probably meant to be.
pub(crate) fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let scored = known.iter().map(|name| (distance(word, name), *name));
    scored.filter(|(distance, name)| *distance <= 2 && *distance * 2 < name.len()).min().map(|(_, name)| name)
}

/// The number of single-character edits between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
