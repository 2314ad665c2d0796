//! The layers of the process configuration: the defaults, the file over them, and the environment
//! over both.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use crate::config::SECTIONS;
use crate::config::node::Field;
use crate::config::node::Node;
use crate::config::node::Place;
use crate::config::node::Value;
use crate::config::reader::Problems;
use crate::config::reader::closest;
use crate::config::report::Problem;

/// The defaults, which are the documentation too.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The configuration file where none is named.
pub const FILE: &str = "fondaco.toml";

/// What the names of our variables begin with.
pub(super) const PREFIX: &str = "FONDACO_";

/// The settings whose variables have no section, so that their names may be meant for others.
const TOP: [&str; 6] = ["listen", "public_url", "public_aliases", "allowed_origins", "data_dir", "tenants"];

/// Every layer as one tree.
pub fn read<'e>(
    path: Option<&Path>,
    env: impl Iterator<Item = (&'e String, &'e String)>,
    problems: &Problems,
) -> Node {
    let mut root = parse(DEFAULTS, "defaults.toml", problems);
    if let Some(path) = path.or_else(|| Some(Path::new(FILE)).filter(|path| path.exists())) {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => merge(&mut root, parse(&text, &name, problems)),
            Err(error) => problems.add(Problem::new(&name, "", format!("cannot be read: {error}"))),
        }
    }
    for (name, value) in env {
        if let Some(variable) = Variable::of(name, value, problems) {
            variable.lay_over(&mut root);
        }
    }
    root
}

/// The variable that `key` is meant to be, if it is that of a section's key short of an underscore.
fn with_section(key: &str) -> Option<String> {
    let (section, rest) = key.split_once('_')?;
    let known = SECTIONS.iter().any(|(name, keys)| *name == section && keys.contains(&rest));
    known.then(|| format!("{section}__{rest}").to_ascii_uppercase())
}

/// A variable that sets something.
struct Variable<'e> {
    path: Vec<String>,
    text: &'e str,
    place: Place,
}

impl<'e> Variable<'e> {
    /// Takes a variable that is meant for us. Kubernetes adds its own, such as `FONDACO_PORT`, and
    /// secrets have names too: without `__`, only near misses are complained about.
    fn of(name: &str, text: &'e str, problems: &Problems) -> Option<Self> {
        let key = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
        // An orchestrator that has no value often sets an empty one.
        if text.is_empty() {
            return None;
        }
        let path: Vec<String> = key.split("__").map(str::to_owned).collect();
        if path.len() == 1 && !TOP.contains(&key.as_str()) {
            if let Some(meant) = with_section(&key) {
                let hint = format!("two underscores follow a section: `{PREFIX}{meant}`");
                problems.add(Problem::new(name, &key, "unknown key").hint(hint));
            } else if let Some(near) = closest(&key, &TOP) {
                let hint = format!("did you mean `{PREFIX}{}`?", near.to_ascii_uppercase());
                problems.add(Problem::new(name, &key, "unknown key").hint(hint));
            }
            return None;
        }
        Some(Self { path, text, place: Place { source: name.into(), line: None } })
    }

    fn lay_over(&self, root: &mut Node) {
        let mut node = root;
        for part in &self.path {
            node = self.entry(node, part);
        }
        node.value = self.value(&node.value);
        node.place = self.place.clone();
    }

    /// The value at `key` of `node`, made where it is not there.
    fn entry<'n>(&self, node: &'n mut Node, key: &str) -> &'n mut Node {
        if !matches!(node.value, Value::Map(_)) {
            *node = Node { value: Value::Map(Vec::new()), place: self.place.clone() };
        }
        let Value::Map(fields) = &mut node.value else { unreachable!("it was made a map above") };
        let at = fields.iter().position(|field| field.key == key).unwrap_or_else(|| {
            let node = Node { value: Value::Null, place: self.place.clone() };
            fields.push(Field { key: key.to_owned(), place: self.place.clone(), node });
            fields.len() - 1
        });
        fields[at].place = self.place.clone();
        &mut fields[at].node
    }

    /// The text as the kind of value that it replaces.
    fn value(&self, old: &Value) -> Value {
        let text = self.text.trim();
        let node = |value| Node { value, place: self.place.clone() };
        match old {
            Value::Bool(_) => text.parse().map_or(Value::Text(text.to_owned()), Value::Bool),
            Value::Number(_) => Value::Number(text.to_owned()),
            Value::List(_) if text.starts_with('[') => match DeValue::parse(text) {
                Ok(list) => strip(convert(list, text, &self.place.source), &self.place).value,
                Err(_) => Value::Text(text.to_owned()),
            },
            Value::List(_) => {
                Value::List(text.split(',').map(|item| node(Value::Text(item.trim().to_owned()))).collect())
            }
            _ => Value::Text(text.to_owned()),
        }
    }
}

/// Puts `over` on top of `under`: maps are merged, everything else is replaced.
fn merge(under: &mut Node, over: Node) {
    let (Value::Map(fields), true) = (&mut under.value, matches!(over.value, Value::Map(_))) else {
        *under = over;
        return;
    };
    let Value::Map(news) = over.value else { return };
    for new in news {
        match fields.iter_mut().find(|field| field.key == new.key) {
            Some(field) => {
                field.place = new.place;
                merge(&mut field.node, new.node);
            }
            None => fields.push(new),
        }
    }
    under.place = over.place;
}

fn parse(text: &str, source: &str, problems: &Problems) -> Node {
    let source: Arc<str> = source.into();
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = error.span().map(|span| line(text, span.start));
        problems.add(Problem { line, ..Problem::new(&source, "", error.message()) });
    }
    let span = table.span();
    convert(Spanned::new(span, DeValue::Table(table.into_inner())), text, &source)
}

fn convert(value: Spanned<DeValue<'_>>, text: &str, source: &Arc<str>) -> Node {
    let place = |at: usize| Place { source: Arc::clone(source), line: Some(line(text, at)) };
    let start = value.span().start;
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => Value::Number(number.to_string()),
        DeValue::Float(number) => Value::Number(number.to_string()),
        DeValue::Boolean(flag) => Value::Bool(flag),
        DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
        DeValue::Array(items) => {
            Value::List(items.into_iter().map(|item| convert(item, text, source)).collect())
        }
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.into_iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            let fields = entries.into_iter().map(|(key, value)| {
                let place = place(key.span().start);
                let node = Node { place: place.clone(), ..convert(value, text, source) };
                Field { key: key.into_inner().into_owned(), place, node }
            });
            Value::Map(fields.collect())
        }
    };
    Node { value, place: place(start) }
}

/// The same tree, all of it at `place`.
fn strip(mut node: Node, place: &Place) -> Node {
    node.place = place.clone();
    match &mut node.value {
        Value::List(nodes) => nodes.iter_mut().for_each(|node| *node = strip(node.clone(), place)),
        Value::Map(fields) => {
            for field in fields {
                field.place = place.clone();
                field.node = strip(field.node.clone(), place);
            }
        }
        _ => {}
    }
    node
}

fn line(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}
