//! JSON as a tree of configuration: a stored document is read by the same reader as a file.

use std::fmt;

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

/// Reads a document's text; `source` is its name in messages.
pub(super) fn parse(text: &str, source: &str) -> Result<Node, Problem> {
    let place = Place { source: source.into(), line: None };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let node = Walk(&place).deserialize(&mut deserializer);
    let node = node.and_then(|node| deserializer.end().map(|()| node));
    // The parser's own words may have some of the text in them.
    node.map_err(|error| {
        Problem::new(source, "", format!("not JSON, in line {} column {}", error.line(), error.column()))
    })
}

/// The reading of one node.
#[derive(Clone, Copy)]
struct Walk<'w>(&'w Place);

impl Walk<'_> {
    fn node<E>(self, value: Value) -> Result<Node, E> {
        Ok(Node { value, place: self.0.clone() })
    }
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
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.node(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Node, E> {
        self.node(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        self.node(Value::Number(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        self.node(Value::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        self.node(Value::Number(number.to_string()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.node(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element_seed(self)? {
            nodes.push(node);
        }
        self.node(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = entries.next_key()? {
            let node = entries.next_value_seed(self)?;
            fields.push(Field { key, place: self.0.clone(), node });
        }
        self.node(Value::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::config::node::Value;

    #[test]
    fn a_document_is_the_tree_that_it_says() {
        let node = parse(r#"{"a":[1,"x",null,true,1.5],"a":{"b":-2}}"#, "d").unwrap();
        let Value::Map(fields) = node.value else { panic!() };
        // Both are there: the reader refuses them.
        assert_eq!(fields.iter().map(|field| field.key.as_str()).collect::<Vec<_>>(), ["a", "a"]);
        let Value::List(items) = &fields[0].node.value else { panic!() };
        let kinds: Vec<_> = items.iter().map(|item| item.value.kind()).collect();
        assert_eq!(kinds, ["a number", "text", "nothing", "true or false", "a number"]);
    }

    #[test]
    fn what_is_no_json_is_told_without_it() {
        for text in ["{hidden", "[1] hidden", "", "{\"a\":hidden}", &"[".repeat(100_000)] {
            let problem = parse(text, "d").unwrap_err().to_string();
            assert!(
                problem.starts_with("d: not JSON, in line 1") && !problem.contains("hidden"),
                "{problem}"
            );
        }
    }
}
