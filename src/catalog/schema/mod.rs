//! Step 21: schemas, judged and compiled off the road, and arguments and results checked against them.
//!
//! A schema comes from a stranger. Before `jsonschema` sees it, `graph` has proven that it
//! refers to nothing outside itself and how much it grows when its references are expanded, and
//! `cost` how much work it can make of a deep value. Nothing here opens a connection or a file.

mod cost;
mod graph;
mod instance;
mod patterns;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonschema::Retrieve;
use jsonschema::Uri;
use serde_json::Value;

use crate::catalog::schema::cost::Cost;
use crate::catalog::schema::graph::Graph;
pub use crate::catalog::schema::patterns::Patterns;
use crate::catalog::text;
use crate::model::limits::Limits;
use crate::protocol::json::Json;

/// Longest message about invalid arguments.
const MESSAGE_BYTES: usize = 500;

/// Arguments from this size on may take long to check.
const LARGE_BYTES: usize = 64 << 10;

/// Most values, and most work, of a value for which it is said what is wrong with it: to say
/// it, every complaint of every alternative is written down, one for each part of the value.
const TOLD: (usize, u64) = (10_000, 50_000);

/// What a value is called in the messages about it, and the schema that it has to fit.
#[derive(Clone, Copy)]
struct Words {
    value: &'static str,
    schema: &'static str,
}

const ARGUMENTS: Words = Words { value: "the arguments", schema: "the tool's input schema" };
const CONTENT: Words = Words { value: "the structured contents", schema: "the tool's output schema" };

/// Why a schema was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// No object.
    #[error("is not an object")]
    NotSchema,
    /// Not of type `object` where it has to be.
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
    /// A pattern that is longer than any may be.
    #[error("has a pattern longer than {0} bytes")]
    Pattern(usize),
    /// Too many or too large patterns, with those of its siblings.
    #[error("has more patterns than a backend's tools may have together")]
    Patterns,
    /// Not a schema of its dialect, or a pattern that is not supported.
    #[error("is not a valid schema: {0}")]
    Invalid(String),
}

/// A compiled schema.
pub struct Validator {
    compiled: jsonschema::Validator,
    cost: Cost,
    /// Most values in what is checked.
    values: usize,
}

/// A schema that was judged and can be compiled within `weight` subschemas.
pub struct Judged {
    schema: Value,
    dialect: jsonschema::Draft,
    graph: Graph,
    /// What it weighs: its values and keys, its subschemas, references expanded, and its patterns.
    pub weight: usize,
    depth: usize,
    values: usize,
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
            return Err(SchemaProblem::NotSchema);
        }
        let dialect = graph::dialect(&schema)?;
        let graph = Graph::new(&schema, dialect)?;
        let weight = graph.weigh(limits.subschemas, limits.json_depth)? + graph::values(&schema);
        cost::order(&graph)?;
        let (depth, values) = (limits.json_depth, limits.argument_values);
        Ok(Self { schema, dialect, graph, weight, depth, values })
    }

    /// The schema.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Whether it is what its dialect calls a schema. Patterns are not looked into.
    pub fn is_schema(&self) -> Result<(), SchemaProblem> {
        jsonschema::meta::validate(&self.schema).map_err(|error| SchemaProblem::Invalid(message(&error)))
    }

    /// Compiles it. `patterns` are shared by all that are compiled with it.
    pub fn compile(self, patterns: &mut Patterns) -> Result<Validator, SchemaProblem> {
        let cost = Cost::new(&self.graph, self.depth, patterns)?;
        let compiled = jsonschema::options()
            .with_draft(self.dialect)
            .with_retriever(Refusing)
            .with_pattern_options(patterns::options())
            .with_pattern_cache(patterns.compiled.clone())
            .should_validate_formats(false)
            .build(&self.schema)
            .map_err(|error| SchemaProblem::Invalid(message(&error)))?;
        Ok(Validator { compiled, cost, values: self.values })
    }
}

impl Validator {
    /// Whether checking `value` may take long enough to hold others up.
    pub fn is_slow(&self, value: &Json) -> bool {
        let bytes = value.bytes().len();
        bytes >= LARGE_BYTES || !self.cost.matches_fast(bytes)
    }

    /// Step 21: checks the arguments of a call; none are an empty object. The message says where
    /// and what, and shows nothing but the client's own input and the tool's schema.
    ///
    /// Numbers beyond what a double holds are clamped, in a copy that is only checked.
    pub fn check(&self, arguments: Option<&Json>) -> Result<(), String> {
        match arguments {
            None => self.judge(&Value::Object(serde_json::Map::new()), 0, 0, ARGUMENTS, message),
            Some(arguments) => self.judge_text(arguments, ARGUMENTS, message),
        }
    }

    /// Checks the structured content of a result, in the same way. The message shows nothing of it but
    /// keys: its client was not meant to get it.
    pub fn check_content(&self, content: &Json) -> Result<(), String> {
        self.judge_text(content, CONTENT, masked)
    }

    fn judge_text(&self, text: &Json, words: Words, tell: Tell) -> Result<(), String> {
        // Counted before they are read: each becomes many times as large as its text.
        let values = text.values();
        if values > self.values {
            let (of, most) = (words.value, self.values);
            return Err(format!("{of} have more than {most} values, which is the most that is taken"));
        }
        self.judge(&instance::value_of(text), values, text.bytes().len(), words, tell)
    }

    fn judge(
        &self,
        value: &Value,
        values: usize,
        bytes: usize,
        words: Words,
        tell: Tell,
    ) -> Result<(), String> {
        let Words { value: of, schema } = words;
        let work = self.cost.of(value, bytes).map_err(|problem| problem.tell(of, schema))?;
        if self.compiled.is_valid(value) {
            return Ok(());
        }
        if values > TOLD.0 || work > TOLD.1 {
            return Err(format!("{of} do not match {schema}, and are too large to say where"));
        }
        self.compiled.validate(value).map_err(|error| tell(&error))
    }
}

/// How it is said what is wrong.
type Tell = fn(&jsonschema::ValidationError<'_>) -> String;

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Validator(…)")
    }
}

/// Where it went wrong and what, bounded whatever the value and the schema are.
fn message(error: &jsonschema::ValidationError<'_>) -> String {
    placed(error, error)
}

/// The same without the value.
fn masked(error: &jsonschema::ValidationError<'_>) -> String {
    placed(error, &error.masked())
}

fn placed(error: &jsonschema::ValidationError<'_>, said: &dyn fmt::Display) -> String {
    use fmt::Write;
    let mut bounded = Bounded(String::new());
    let place = error.instance_path().as_str();
    // An overflow only ends the text.
    let _ = match place {
        "" => write!(bounded, "{said}"),
        place => write!(bounded, "{place}: {said}"),
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
