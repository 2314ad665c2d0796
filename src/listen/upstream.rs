//! Subscriptions with backends, one for all listeners who want the same.
//!
//! A backend of a tenant is a line; the resources that are wanted of it lie in strands, each of which is
//! one subscription.

mod bounds;
mod follow;
pub(super) mod strand;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::listen::hub::Hub;
use crate::listen::upstream::strand::Strand;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;

/// The lines of one tenant, by the address of the home that each of them keeps.
#[derive(Default)]
pub(super) struct Lines(HashMap<usize, Line>);

struct Line {
    home: Arc<Home>,
    strands: Vec<Arc<Strand>>,
    /// By own URI.
    resources: HashMap<Arc<str>, Wanted>,
}

struct Wanted {
    /// The public URI.
    topic: Arc<str>,
    strand: Arc<Strand>,
}

impl Lines {
    /// The public URIs that are subscribed to as `own` of a backend of this name.
    pub(super) fn topics<'a>(
        &'a self,
        backend: &'a BackendName,
        own: &'a str,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let lines = self.0.values().filter(move |line| line.home.config.name == *backend);
        lines.filter_map(move |line| Some(&line.resources.get(own)?.topic))
    }

    /// The same of one home.
    pub(super) fn topic(&self, home: &Arc<Home>, own: &str) -> Option<&Arc<str>> {
        Some(&self.0.get(&address(home))?.resources.get(own)?.topic)
    }

    /// One resource more, known as `topic`, and the strand that it is in. `None` where its backend has as
    /// many subscriptions as it may.
    pub(super) fn add(
        &mut self,
        hub: &Arc<Hub>,
        tenant: &TenantName,
        topic: &Arc<str>,
        entry: &Entry,
        late: bool,
    ) -> Option<Arc<Strand>> {
        let line = self.0.entry(address(&entry.home)).or_insert_with(|| Line {
            home: entry.home.clone(),
            strands: Vec::new(),
            resources: HashMap::new(),
        });
        let has_room = |strand: &&Arc<Strand>| strand.has_room(&entry.own, &hub.limits);
        let found = line.strands.iter().find(has_room).cloned();
        let strand = match found {
            Some(strand) => strand,
            None if line.strands.len() >= most(&hub.limits) => return None,
            None => {
                let strand = Arc::new(Strand::new(tenant.clone(), entry.home.clone()));
                line.strands.push(strand.clone());
                hub.follow(&strand);
                strand
            }
        };
        strand.add(&entry.own, late);
        line.resources.insert(entry.own.clone(), Wanted { topic: topic.clone(), strand: strand.clone() });
        Some(strand)
    }

    /// One resource less.
    pub(super) fn remove(&mut self, home: &Arc<Home>, own: &str) {
        let removed = self.0.get_mut(&address(home)).and_then(|line| line.resources.remove(own));
        if let Some(wanted) = removed {
            wanted.strand.remove(own);
        }
    }

    /// Forgets a strand in which nothing is. `false` if something is.
    pub(super) fn dismiss(&mut self, strand: &Arc<Strand>) -> bool {
        let address = address(strand.home());
        let Some(line) = self.0.get_mut(&address) else { return true };
        if strand.resources() > 0 {
            return false;
        }
        line.strands.retain(|other| !Arc::ptr_eq(other, strand));
        if line.strands.is_empty() {
            self.0.remove(&address);
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn address(home: &Arc<Home>) -> usize {
    Arc::as_ptr(home).addr()
}

/// Most strands of a line: each may be open twice while it is reopened, and lists need a subscription, too.
fn most(limits: &Limits) -> usize {
    (limits.upstream_watches / 2).max(1)
}
