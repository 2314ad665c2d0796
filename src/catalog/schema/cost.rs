//! How much work a schema makes of a value.
//!
//! A schema that applies itself twice to the same part doubles its work with every level of the
//! value. Such schemas are common (unions of expressions) and harmless for the values that they
//! are meant for, so not the schema is refused but the value that would take too long. So it is
//! with patterns: at worst, each byte of a text costs a walk over all of a compiled pattern.

use serde_json::Value;

use crate::catalog::schema::SchemaProblem;
use crate::catalog::schema::graph::Graph;
use crate::catalog::schema::patterns::Patterns;

/// The work that any arguments may make: some hundredths of a second.
const FREE: u64 = 200_000;

/// The work that each of their bytes may make beyond that.
const PER_BYTE: u64 = 2;

/// How many bytes of a string are looked at for the work of one.
const BYTES: usize = 32;

/// How much matching any arguments may make, in bytes of compiled patterns times bytes of text: at
/// worst about a tenth of a second.
const MATCHING: u64 = 1 << 30;

/// What of it takes so little time that other requests may wait for it.
const FAST: u64 = MATCHING / 32;

/// The work that one part of a value makes, by how deep it lies.
pub(super) struct Cost {
    /// For each value.
    looks: Vec<u64>,
    /// For each byte of a text or a key.
    matching: Vec<u64>,
}

/// What makes a value cost more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooCostly {
    Looks,
    Matching,
}

impl TooCostly {
    /// What the client reads of a value that is called so, and of its schema.
    pub(super) fn tell(self, value: &str, schema: &str) -> String {
        match self {
            Self::Looks => format!("{value} are too large or too deep to be checked against {schema}"),
            Self::Matching => {
                format!("{value} have too much text to be matched with the patterns of {schema}")
            }
        }
    }
}

/// What a value may still cost.
struct Left {
    looks: u64,
    matching: u64,
}

impl Cost {
    /// The costs of a schema down to `depth`. Refuses a schema that applies itself to the same
    /// value over and over, and one whose patterns are too much for its backend.
    pub(super) fn new(graph: &Graph, depth: usize, patterns: &mut Patterns) -> Result<Self, SchemaProblem> {
        let order = order(graph)?;
        let mut weigh = |texts: &[String]| {
            texts.iter().try_fold(0u64, |sum, text| Ok::<_, SchemaProblem>(sum + patterns.weigh(text)?))
        };
        let mut weights = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            weights.push((weigh(&node.patterns)?, weigh(&node.key_patterns)?));
        }
        let looks = by_depth(graph, &order, depth, |at, below| match below {
            0 => graph.nodes[at].effort,
            _ => 0,
        });
        let matching = by_depth(graph, &order, depth, |at, below| match below {
            0 => weights[at].0,
            1 => weights[at].1,
            _ => 0,
        });
        Ok(Self { looks, matching })
    }

    /// The work that `value` makes, whose text has so many bytes, if it is no more than it may.
    pub(super) fn of(&self, value: &Value, bytes: usize) -> Result<u64, TooCostly> {
        let most = FREE + PER_BYTE * bytes as u64;
        let mut left = Left { looks: most, matching: MATCHING };
        self.spend(value, 0, &mut left)?;
        Ok(most - left.looks)
    }

    /// Whether matching a text of so many bytes takes no more than some thousandths of a second,
    /// wherever in the value it lies.
    pub(super) fn matches_fast(&self, bytes: usize) -> bool {
        let worst = self.matching.iter().max().unwrap_or(&0);
        worst.saturating_mul(bytes as u64) <= FAST
    }

    fn spend(&self, value: &Value, depth: usize, left: &mut Left) -> Result<(), TooCostly> {
        // What lies deeper than every subschema reaches costs nothing.
        let cost = *self.looks.get(depth).unwrap_or(&0);
        let units = match value {
            Value::String(text) => 1 + (text.len() / BYTES) as u64,
            _ => 1,
        };
        left.looks = left.looks.checked_sub(cost.saturating_mul(units)).ok_or(TooCostly::Looks)?;
        match value {
            Value::String(text) => self.spend_text(text, depth, left),
            Value::Array(elements) => elements.iter().try_for_each(|part| self.spend(part, depth + 1, left)),
            Value::Object(members) => members.iter().try_for_each(|(key, part)| {
                self.spend_text(key, depth + 1, left)?;
                self.spend(part, depth + 1, left)
            }),
            _ => Ok(()),
        }
    }

    fn spend_text(&self, text: &str, depth: usize, left: &mut Left) -> Result<(), TooCostly> {
        let cost = self.matching.get(depth).unwrap_or(&0).saturating_mul(text.len() as u64);
        left.matching = left.matching.checked_sub(cost).ok_or(TooCostly::Matching)?;
        Ok(())
    }
}

/// What the root costs a part at each depth, if `own` is what a node alone costs the parts of its
/// value that lie so many levels below it.
fn by_depth(graph: &Graph, order: &[usize], depth: usize, own: impl Fn(usize, usize) -> u64) -> Vec<u64> {
    let mut above = vec![0u64; graph.nodes.len()];
    let mut by_depth = Vec::new();
    for level in 0..=depth {
        let mut costs = vec![0u64; graph.nodes.len()];
        for &node in order {
            let at = &graph.nodes[node];
            let sum = |nodes: &[usize], of: &[u64]| {
                nodes.iter().fold(0u64, |sum, next| sum.saturating_add(of[*next]))
            };
            let apart = at.apart.iter().map(|next| above[*next]).max().unwrap_or(0);
            costs[node] = own(node, level)
                .saturating_add(sum(&at.here, &costs))
                .saturating_add(sum(&at.parts, &above))
                .saturating_add(apart);
        }
        by_depth.push(costs[0]);
        // The first level may be free where the next one is not.
        if level > 0 && costs.iter().all(|cost| *cost == 0) {
            break;
        }
        above = costs;
    }
    by_depth
}

/// The nodes, each behind those that it applies to the same value.
pub(super) fn order(graph: &Graph) -> Result<Vec<usize>, SchemaProblem> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; graph.nodes.len()];
    let mut order = Vec::with_capacity(graph.nodes.len());
    for start in 0..graph.nodes.len() {
        let mut stack = vec![(start, 0)];
        while let Some((node, next)) = stack.pop() {
            if next == 0 {
                match seen[node] {
                    Seen::Done => continue,
                    Seen::Open => return Err(SchemaProblem::Endless),
                    Seen::No => seen[node] = Seen::Open,
                }
            }
            match graph.nodes[node].here.get(next) {
                Some(&inner) => stack.extend([(node, next + 1), (inner, 0)]),
                None => {
                    seen[node] = Seen::Done;
                    order.push(node);
                }
            }
        }
    }
    Ok(order)
}
