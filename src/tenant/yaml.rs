//! YAML as a tree that knows its lines. The parser tells a place only with an error, so a key, and
//! a leaf in a list, is put aside and *refused*; whoever asked for it takes it, and the line that
//! came with the error, and goes on. Everything else has the place of a key.

use std::cell::Cell;
use std::fmt;
use std::fmt::Display;
use std::sync::Arc;

use serde::de::DeserializeSeed;
use serde::de::Deserializer;
use serde::de::Error;
use serde::de::MapAccess;
use serde::de::SeqAccess;
use serde::de::Visitor;

use crate::config::node::Field;
use crate::config::node::Node;
use crate::config::node::Place;
use crate::config::node::Value;
use crate::config::report::Problem;
use crate::tenant::nesting;

/// Reads a file's text.
pub fn parse(text: &str, source: &str) -> Result<Node, Problem> {
    nesting::check(text, source)?;
    let source = source.into();
    let place = Place { source: Arc::clone(&source), line: Some(1) };
    let walk = Walk { place: &place, aside: &Cell::new(None), wanted: Wanted::Value };
    walk.deserialize(yaml_serde::Deserializer::from_str(text)).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        // What is YAML and not for us says so by itself.
        let ours = message.starts_with("found ");
        let message = if ours { message.to_owned() } else { format!("not YAML: {message}") };
        let line = error.location().map(|location| location.line());
        Problem { line, ..Problem::new(&source, "", message) }
    })
}

/// The line that the error of something put aside tells. Inside of a visitor, its type is not ours
/// to know, but its text ends in the place, unless that is the very start.
fn line(error: &impl Display) -> usize {
    let text = error.to_string();
    let place = text.rsplit_once(" at line ").map_or("", |(_, place)| place);
    place.split(' ').next().and_then(|line| line.parse().ok()).unwrap_or(1)
}

/// The reading of one node.
#[derive(Clone, Copy)]
struct Walk<'w> {
    /// The place of what the node is in, or of its key.
    place: &'w Place,
    /// A leaf that was refused for its place.
    aside: &'w Cell<Option<Value>>,
    wanted: Wanted,
}

/// What a node is for.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    /// A key, which is text.
    Key,
    /// An item of a list.
    Item,
    /// The value at a key, or the root.
    Value,
}

impl Walk<'_> {
    fn leaf<E: Error>(self, value: Value) -> Result<Node, E> {
        match self.wanted {
            Wanted::Key if !matches!(value, Value::Text(_)) => Err(not_a_key(&value)),
            Wanted::Key | Wanted::Item => {
                self.aside.set(Some(value));
                Err(E::custom("put aside"))
            }
            Wanted::Value => Ok(Node { value, place: self.place.clone() }),
        }
    }

    /// A list or a map: at its key, or where its first entry is.
    fn inner(self, first: Option<Place>, value: Value) -> Node {
        let own = first.filter(|_| self.wanted == Wanted::Item);
        Node { value, place: own.unwrap_or_else(|| self.place.clone()) }
    }

    /// What was put aside, and where it is, if that is what `error` is about.
    fn take<E: Error>(self, error: E) -> Result<Node, E> {
        let Some(value) = self.aside.take() else { return Err(error) };
        Ok(Node { value, place: Place { line: Some(line(&error)), ..self.place.clone() } })
    }
}

fn not_a_key<E: Error>(value: &Value) -> E {
    E::custom(format_args!("found {} as a key, expected text: put it in quotes", value.kind()))
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, a list, text, a number, true or false")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.leaf(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.leaf(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Node, E> {
        self.leaf(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        self.leaf(Value::Number(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        self.leaf(Value::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        self.leaf(Value::Number(number.to_string()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.leaf(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        if self.wanted == Wanted::Key {
            return Err(not_a_key(&Value::List(Vec::new())));
        }
        let item = Self { wanted: Wanted::Item, ..self };
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element_seed(item).or_else(|error| self.take(error).map(Some))? {
            nodes.push(node);
        }
        Ok(self.inner(nodes.first().map(|node| node.place.clone()), Value::List(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        if self.wanted == Wanted::Key {
            return Err(not_a_key(&Value::Map(Vec::new())));
        }
        let key = Self { wanted: Wanted::Key, ..self };
        let mut fields: Vec<Field> = Vec::new();
        while let Some(key) = entries.next_key_seed(key).or_else(|error| self.take(error).map(Some))? {
            let value = Walk { place: &key.place, aside: self.aside, wanted: Wanted::Value };
            let node = entries.next_value_seed(value)?;
            let Value::Text(text) = key.value else { return Err(not_a_key(&key.value)) };
            fields.push(Field { key: text, place: key.place, node });
        }
        Ok(self.inner(fields.first().map(|field| field.place.clone()), Value::Map(fields)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(node: &Node, found: &mut Vec<(String, usize)>) {
        match &node.value {
            Value::Map(fields) => {
                for field in fields {
                    found.push((field.key.clone(), field.place.line.unwrap()));
                    lines(&field.node, found);
                }
            }
            Value::List(nodes) => {
                for node in nodes {
                    found.push((node.value.kind().to_owned(), node.place.line.unwrap()));
                    lines(node, found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_node_knows_its_line() {
        let text = "# a comment\na:\n  b: &x\n    - c: 1\n      d: {e: on, f: [\n        true]}\n\n    - text\ng: *x\n\"h\": >\n  long\n  text\ni: ~\n";
        let mut found = Vec::new();
        lines(&parse(text, "f").unwrap(), &mut found);
        let found: Vec<_> = found.iter().map(|(key, line)| (key.as_str(), *line)).collect();
        let shared =
            [("a map", 4), ("c", 4), ("d", 5), ("e", 5), ("f", 5), ("true or false", 6), ("text", 8)];
        let mut expected = vec![("a", 2), ("b", 3)];
        expected.extend(shared);
        expected.push(("g", 9));
        expected.extend(shared);
        expected.extend([("h", 10), ("i", 13)]);
        assert_eq!(found, expected);
    }

    #[test]
    fn deep_nesting_is_refused_before_it_costs_time() {
        let started = tokio::time::Instant::now();
        for text in ["[".repeat(100_000), "a: {b: ".repeat(100_000), "[\n".repeat(100_000)] {
            let problem = parse(&text, "f").unwrap_err();
            let message = "lists and maps in brackets are nested deeper than 64";
            assert!(problem.message == message && problem.hint.is_some(), "{problem}");
        }
        assert!(started.elapsed() < std::time::Duration::from_millis(500), "{:?}", started.elapsed());
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        for (text, expected) in
            [("a: 1\n\tb: 2\n", 2), ("a: [1\n", 2), ("a: 1\n2: x\n", 2), ("a: !x {b: 1}\n", 1)]
        {
            assert_eq!(parse(text, "f").unwrap_err().line, Some(expected), "{text}");
        }
    }
}
