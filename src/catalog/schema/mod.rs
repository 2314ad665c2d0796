//! Step 21: input schemas, judged and compiled off the road, and arguments checked against them.
//!
//! A schema comes from a stranger. Before `jsonschema` sees it, `graph` has proven that it
//! refers to nothing outside itself and how much it grows when its references are expanded, and
//! `cost` how much work it can make of a deep value. Nothing here opens a connection or a file.

mod cost;
mod graph;
mod instance;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonschema::PatternCache;
use jsonschema::PatternOptions;
use jsonschema::Retrieve;
use jsonschema::Uri;
use serde_json::Value;

use crate::catalog::schema::cost::Cost;
use crate::catalog::schema::graph::Graph;
use crate::catalog::text;
use crate::model::limits::Limits;
use crate::protocol::json::Json;

/// Largest compiled pattern. With it, a pattern weighs as much as [`graph::PATTERN_WEIGHT`] subschemas.
const PATTERN_BYTES: usize = 256 << 10;

/// Longest message about invalid arguments.
const MESSAGE_BYTES: usize = 500;

/// Why a schema was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// Not an object, or not of type `object` where it has to be.
    #[error("is not an object of `\"type\": \"object\"`")]
    NotObject,
    /// Over the size limit.
    #[error("is larger than {0} bytes")]
    Large(usize),
    /// Over the depth limit, references followed.
    #[error("is nested deeper than {0} levels")]
    Deep(usize),
    /// Too much in it, references expanded.
    #[error("has more than {0} subschemas, references expanded")]
    Many(usize),
    /// Numbers that cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// A `$schema` that is not known.
    #[error("has a `$schema` that is not supported: {0:?}")]
    Dialect(String),
    /// A reference out of the schema.
    #[error("refers to something outside itself: {0:?}")]
    External(String),
    /// A reference to nothing, or to no schema.
    #[error("has a reference that leads nowhere: {0:?}")]
    Dangling(String),
    /// A reference that leads back to itself without going into a value.
    #[error("has a reference that leads back to itself")]
    Endless,
    /// Identifiers that move the base of references.
    #[error("has an `$id` or a repeated anchor inside")]
    Nested,
    /// Not a schema of its dialect, or a pattern that is not supported.
    #[error("is not a valid schema: {0}")]
    Invalid(String),
}

/// A compiled input schema.
pub struct Validator {
    compiled: jsonschema::Validator,
    cost: Cost,
}

/// A schema that was judged and can be compiled within `weight` subschemas.
pub struct Judged {
    schema: Value,
    dialect: jsonschema::Draft,
    cost: Cost,
    /// What it weighs: its subschemas, references expanded, and its patterns.
    pub weight: usize,
}

impl Judged {
    /// Judges the text of a schema. Takes time in proportion to the limits, whatever is in it.
    pub fn new(text: &Json, limits: &Limits) -> Result<Self, SchemaProblem> {
        if text.bytes().len() > limits.schema_bytes {
            return Err(SchemaProblem::Large(limits.schema_bytes));
        }
        Json::parse(text.bytes().clone(), limits.json_depth)
            .map_err(|_| SchemaProblem::Deep(limits.json_depth))?;
        let schema: Value = serde_json::from_slice(text.bytes())
            .map_err(|error| SchemaProblem::Unreadable(error.to_string()))?;
        if !schema.is_object() {
            return Err(SchemaProblem::NotObject);
        }
        let dialect = graph::dialect(&schema)?;
        let graph = Graph::new(&schema, dialect)?;
        let weight = graph.weigh(limits.subschemas, limits.json_depth)?;
        let cost = Cost::new(&graph, limits.json_depth)?;
        Ok(Self { schema, dialect, cost, weight })
    }

    /// The schema.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Compiles it. `patterns` are shared by all that are compiled with it.
    pub fn compile(self, patterns: &PatternCache) -> Result<Validator, SchemaProblem> {
        let compiled = jsonschema::options()
            .with_draft(self.dialect)
            .with_retriever(Refusing)
            .with_pattern_options(
                PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES),
            )
            .with_pattern_cache(patterns.clone())
            .should_validate_formats(false)
            .build(&self.schema)
            .map_err(|error| SchemaProblem::Invalid(message(&error)))?;
        Ok(Validator { compiled, cost: self.cost })
    }
}

impl Validator {
    /// Step 21: checks the arguments of a call; none are an empty object. The message says where
    /// and what, and shows nothing but the client's own input and the tool's schema.
    ///
    /// Numbers beyond what a double holds are clamped, in a copy that is only checked.
    pub fn check(&self, arguments: Option<&Json>) -> Result<(), String> {
        let value = arguments.map_or_else(|| Value::Object(serde_json::Map::new()), instance::value_of);
        let bytes = arguments.map_or(0, |arguments| arguments.bytes().len());
        if !self.cost.allows(&value, bytes) {
            return Err(
                "the arguments are too large or too deep to be checked against the tool's schema".into()
            );
        }
        self.compiled.validate(&value).map_err(|error| message(&error))
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Validator(…)")
    }
}

/// Where it went wrong and what, bounded whatever the value and the schema are.
fn message(error: &jsonschema::ValidationError<'_>) -> String {
    use fmt::Write;
    let mut bounded = Bounded(String::new());
    let place = error.instance_path().as_str();
    // An overflow only ends the text.
    let _ = match place {
        "" => write!(bounded, "{error}"),
        place => write!(bounded, "{place}: {error}"),
    };
    text::clean(&bounded.0, MESSAGE_BYTES).into_owned()
}

/// Takes text until it is full.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // More than is shown, so that `clean` sees the overflow and marks it.
        let room = (2 * MESSAGE_BYTES).saturating_sub(self.0.len());
        if part.len() <= room {
            self.0.push_str(part);
            return Ok(());
        }
        self.0.push_str(&part[..part.ceil_char_boundary(room)]);
        Err(fmt::Error)
    }
}

/// Fetches nothing.
struct Refusing;

impl Retrieve for Refusing {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references out of a schema are not followed".into())
    }
}
