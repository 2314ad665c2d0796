//! A configuration file as a tree whose every value knows where it is written. Both kinds of file
//! become one, so that both are read, and complained about, in the same way.

use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

/// A value and where it is written.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it is.
    pub place: Place,
}

/// The values that configuration is made of.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing, written out.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as text.
    Number(String),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the file. Keys may repeat: the reader refuses that with its place.
    Map(Vec<Field>),
}

/// One entry of a map.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub place: Place,
    /// The value.
    pub node: Node,
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or the variable's name.
    pub source: Arc<str>,
    /// The line from 1; none where it is no file, or not known.
    pub line: Option<usize>,
}

impl Value {
    /// What kind of value it is, for a message. The value itself may be a secret in the wrong place.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Places are left out: the same content is the same, wherever it is written.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Bool(flag) => flag.hash(state),
            Self::Number(text) | Self::Text(text) => text.hash(state),
            Self::List(nodes) => {
                nodes.len().hash(state);
                nodes.iter().for_each(|node| node.value.hash(state));
            }
            Self::Map(fields) => {
                fields.len().hash(state);
                for field in fields {
                    field.key.hash(state);
                    field.node.value.hash(state);
                }
            }
        }
    }
}
