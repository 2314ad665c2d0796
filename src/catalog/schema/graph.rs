//! A schema as a graph: its subschemas, and which of them apply to the same value or to a part.

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::Map;
use serde_json::Value;

use crate::catalog::schema::SchemaProblem;

/// How many subschemas a pattern weighs.
pub(super) const PATTERN_WEIGHT: usize = 100;

/// Longest text of a schema that is shown.
const SHOWN: usize = 100;

/// The subschemas that the root leads to. Node 0 is the root.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
}

/// One subschema.
#[derive(Default)]
pub(super) struct Node {
    /// What it applies to the same value.
    pub(super) here: Vec<usize>,
    /// What it applies to parts of the value; several may apply to one part.
    pub(super) parts: Vec<usize>,
    /// What it applies to parts of the value, each to another part.
    pub(super) apart: Vec<usize>,
    /// Patterns that it matches the value with.
    pub(super) patterns: Vec<String>,
    /// Patterns that it matches the value's keys with.
    pub(super) key_patterns: Vec<String>,
    /// How much one look at a value costs.
    pub(super) effort: u64,
}

impl Node {
    fn patterns(&self) -> usize {
        self.patterns.len() + self.key_patterns.len()
    }
}

/// How a keyword's value applies.
enum Shape {
    Here,
    Part,
    HereList,
    PartList,
    HereMap,
    PartMap,
    ApartMap,
    Reference,
    Nothing,
}

fn shape(keyword: &str, value: &Value) -> Shape {
    match keyword {
        "$ref" | "$dynamicRef" | "$recursiveRef" => Shape::Reference,
        "not" | "if" | "then" | "else" => Shape::Here,
        "allOf" | "anyOf" | "oneOf" => Shape::HereList,
        "dependentSchemas" | "dependencies" => Shape::HereMap,
        "properties" => Shape::ApartMap,
        "patternProperties" => Shape::PartMap,
        "items" if value.is_array() => Shape::PartList,
        "prefixItems" => Shape::PartList,
        "items"
        | "additionalItems"
        | "contains"
        | "additionalProperties"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Shape::Part,
        _ => Shape::Nothing,
    }
}

/// The dialect that a schema says it has, among those that are known here.
pub(super) fn dialect(schema: &Value) -> Result<Draft, SchemaProblem> {
    let Some(uri) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let unknown = || SchemaProblem::Dialect(uri.to_string().chars().take(SHOWN).collect());
    let text = uri.as_str().ok_or_else(unknown)?;
    match text.strip_suffix('#').unwrap_or(text) {
        "https://json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "https://json-schema.org/draft/2019-09/schema" => Ok(Draft::Draft201909),
        "http://json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        "http://json-schema.org/draft-06/schema" => Ok(Draft::Draft6),
        "http://json-schema.org/draft-04/schema" => Ok(Draft::Draft4),
        _ => Err(unknown()),
    }
}

impl Graph {
    /// The graph of `schema`, if all its references stay inside.
    pub(super) fn new(schema: &Value, dialect: Draft) -> Result<Self, SchemaProblem> {
        let mut anchors = HashMap::new();
        scan(schema, true, dialect, &mut anchors)?;
        let mut builder = Builder { root: schema, anchors, index: HashMap::new(), found: Vec::new() };
        builder.node(schema);
        let mut nodes = Vec::new();
        while let Some(found) = builder.found.get(nodes.len()) {
            let node = builder.build(found)?;
            nodes.push(node);
        }
        Ok(Self { nodes })
    }

    /// What the schema weighs with its references expanded, as far as they do not lead back to
    /// where they are in. Stops at `most`; nothing is expanded in memory.
    pub(super) fn weigh(&self, most: usize, depth: usize) -> Result<usize, SchemaProblem> {
        let mut walk = Walk { graph: self, on_path: vec![false; self.nodes.len()], left: most, most, depth };
        walk.visit(0, 0)?;
        Ok(most - walk.left)
    }
}

/// Notes the anchors, and refuses what would move the base of references: with one base, `#/…`
/// means the same to everybody who reads the schema.
fn scan<'s>(
    value: &'s Value,
    root: bool,
    dialect: Draft,
    anchors: &mut HashMap<&'s str, &'s Value>,
) -> Result<(), SchemaProblem> {
    match value {
        Value::Object(members) => {
            // Another dialect below the root is the compiler's business, but for the one that
            // calls its identifiers otherwise.
            let id = if dialect == Draft::Draft4 { "id" } else { "$id" };
            let older = dialect != Draft::Draft4 && self::dialect(value) == Ok(Draft::Draft4);
            if !root && (older || members.get(id).is_some_and(Value::is_string)) {
                return Err(SchemaProblem::Nested);
            }
            for key in ["$anchor", "$dynamicAnchor"] {
                let Some(name) = members.get(key).and_then(Value::as_str) else { continue };
                let other = anchors.insert(name, value);
                if other.is_some_and(|other| !std::ptr::eq(other, value)) {
                    return Err(SchemaProblem::Nested);
                }
            }
            members.values().try_for_each(|member| scan(member, false, dialect, anchors))
        }
        Value::Array(elements) => {
            elements.iter().try_for_each(|element| scan(element, false, dialect, anchors))
        }
        _ => Ok(()),
    }
}

/// Finds the subschemas. One is known by its address: the document does not move.
struct Builder<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
    index: HashMap<*const Value, usize>,
    found: Vec<&'s Value>,
}

impl<'s> Builder<'s> {
    fn node(&mut self, schema: &'s Value) -> usize {
        let next = self.found.len();
        let node = *self.index.entry(std::ptr::from_ref(schema)).or_insert(next);
        if node == next {
            self.found.push(schema);
        }
        node
    }

    fn build(&mut self, schema: &'s Value) -> Result<Node, SchemaProblem> {
        let mut node = Node { effort: 1, ..Node::default() };
        let Value::Object(members) = schema else { return Ok(node) };
        for (keyword, value) in members {
            let (into, targets) = match shape(keyword, value) {
                Shape::Nothing => continue,
                Shape::Reference => (&mut node.here, vec![self.resolve(value)?]),
                Shape::Here => (&mut node.here, vec![value]),
                Shape::Part => (&mut node.parts, vec![value]),
                Shape::HereList => (&mut node.here, elements(value)),
                Shape::PartList => (&mut node.parts, elements(value)),
                Shape::HereMap => (&mut node.here, schemas(value)),
                Shape::PartMap => (&mut node.parts, schemas(value)),
                Shape::ApartMap => (&mut node.apart, schemas(value)),
            };
            into.extend(targets.into_iter().map(|target| self.node(target)));
        }
        node.patterns =
            members.get("pattern").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
        let named = members.get("patternProperties").and_then(Value::as_object);
        node.key_patterns = named.into_iter().flat_map(Map::keys).cloned().collect();
        node.effort += effort(members) + node.patterns() as u64;
        Ok(node)
    }

    fn resolve(&self, reference: &Value) -> Result<&'s Value, SchemaProblem> {
        let text = reference.as_str().unwrap_or_default();
        let shown = || text.chars().take(SHOWN).collect::<String>();
        let fragment = text.strip_prefix('#').ok_or_else(|| SchemaProblem::External(shown()))?;
        let fragment = decode(fragment).ok_or_else(|| SchemaProblem::Dangling(shown()))?;
        let target = match fragment.is_empty() || fragment.starts_with('/') {
            true => self.root.pointer(&fragment),
            false => self.anchors.get(&*fragment).copied(),
        };
        target
            .filter(|target| target.is_object() || target.is_boolean())
            .ok_or_else(|| SchemaProblem::Dangling(shown()))
    }
}

fn elements(value: &Value) -> Vec<&Value> {
    value.as_array().into_iter().flatten().collect()
}

/// The schemas of a map of them; `dependencies` has lists of names, too.
fn schemas(value: &Value) -> Vec<&Value> {
    value.as_object().into_iter().flat_map(Map::values).filter(|value| !value.is_array()).collect()
}

/// The lists that are looked through for every value, and the data that it is compared with.
fn effort(members: &Map<String, Value>) -> u64 {
    let lists =
        ["required", "properties", "dependentRequired"].iter().map(|keyword| match members.get(*keyword) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        });
    let data = ["enum", "const"].iter().filter_map(|keyword| members.get(*keyword)).map(values);
    lists.chain(data).sum::<usize>() as u64
}

/// How many values and keys `value` has in it, itself included.
pub(super) fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(elements) => elements.iter().map(values).sum(),
        Value::Object(members) => members.values().map(|member| 1 + values(member)).sum(),
        _ => 0,
    }
}

/// The fragment of a URI without its `%` escapes.
fn decode(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_owned());
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (escape, behind) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(escape).ok().filter(|text| !text.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// The walk over the expanded schema that counts and gives up.
struct Walk<'g> {
    graph: &'g Graph,
    on_path: Vec<bool>,
    left: usize,
    most: usize,
    depth: usize,
}

impl Walk<'_> {
    fn visit(&mut self, node: usize, depth: usize) -> Result<(), SchemaProblem> {
        let at = &self.graph.nodes[node];
        let weight = 1 + at.patterns() * PATTERN_WEIGHT;
        self.left = self.left.checked_sub(weight).ok_or(SchemaProblem::Many(self.most))?;
        if self.on_path[node] {
            return Ok(());
        }
        if depth > self.depth {
            return Err(SchemaProblem::Deep(self.depth));
        }
        self.on_path[node] = true;
        for next in at.here.iter().chain(&at.parts).chain(&at.apart) {
            self.visit(*next, depth + 1)?;
        }
        self.on_path[node] = false;
        Ok(())
    }
}
