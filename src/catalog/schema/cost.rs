//! How much work a schema makes of a value.
//!
//! A schema that applies itself twice to the same part doubles its work with every level of the
//! value. Such schemas are common (unions of expressions) and harmless for the values that they
//! are meant for, so not the schema is refused but the value that would take too long.

use serde_json::Value;

use crate::catalog::schema::SchemaProblem;
use crate::catalog::schema::graph::Graph;

/// The work that any arguments may make: some hundredths of a second.
const FREE: u64 = 200_000;

/// The work that each of their bytes may make beyond that.
const PER_BYTE: u64 = 2;

/// How many bytes of a string are looked at for the work of one.
const BYTES: usize = 32;

/// The work that one part of a value makes, by how deep it lies.
pub(super) struct Cost(Vec<u64>);

impl Cost {
    /// The costs of a schema down to `depth`. Refuses a schema that applies itself to the same
    /// value over and over.
    pub(super) fn new(graph: &Graph, depth: usize) -> Result<Self, SchemaProblem> {
        let order = order(graph)?;
        let mut above = vec![0u64; graph.nodes.len()];
        let mut by_depth = Vec::new();
        for level in 0..=depth {
            let mut costs = vec![0u64; graph.nodes.len()];
            for &node in &order {
                let at = &graph.nodes[node];
                let sum = |nodes: &[usize], of: &[u64]| {
                    nodes.iter().fold(0u64, |sum, next| sum.saturating_add(of[*next]))
                };
                let apart = at.apart.iter().map(|next| above[*next]).max().unwrap_or(0);
                let own = if level == 0 { at.effort } else { 0 };
                costs[node] = own
                    .saturating_add(sum(&at.here, &costs))
                    .saturating_add(sum(&at.parts, &above))
                    .saturating_add(apart);
            }
            by_depth.push(costs[0]);
            if costs.iter().all(|cost| *cost == 0) {
                break;
            }
            above = costs;
        }
        Ok(Self(by_depth))
    }

    /// Whether `value`, whose text has so many bytes, makes no more work than it may.
    pub(super) fn allows(&self, value: &Value, bytes: usize) -> bool {
        let mut left = FREE + PER_BYTE * bytes as u64;
        self.spend(value, 0, &mut left).is_some()
    }

    fn spend(&self, value: &Value, depth: usize, left: &mut u64) -> Option<()> {
        // What lies deeper than every subschema reaches costs nothing.
        let cost = *self.0.get(depth).unwrap_or(&0);
        let units = match value {
            Value::String(text) => 1 + (text.len() / BYTES) as u64,
            _ => 1,
        };
        *left = left.checked_sub(cost.saturating_mul(units))?;
        match value {
            Value::Array(elements) => elements.iter().try_for_each(|part| self.spend(part, depth + 1, left)),
            Value::Object(members) => members.values().try_for_each(|part| self.spend(part, depth + 1, left)),
            _ => Some(()),
        }
    }
}

/// The nodes, each behind those that it applies to the same value.
fn order(graph: &Graph) -> Result<Vec<usize>, SchemaProblem> {
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
