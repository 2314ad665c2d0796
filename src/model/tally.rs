//! How many of something each holder has now.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Counts by holder. A holder who has none is forgotten.
pub struct Tally<K>(Mutex<Counts<K>>);

struct Counts<K> {
    all: usize,
    each: HashMap<K, usize>,
}

/// One more, until it is dropped.
pub struct Counted<K: Eq + Hash> {
    tally: Arc<Tally<K>>,
    holder: K,
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self(Mutex::new(Counts { all: 0, each: HashMap::new() }))
    }
}

impl<K: Eq + Hash> Tally<K> {
    /// Counts one more for `holder`, unless it has `most` or there are `most_of_all` together.
    pub fn take(self: &Arc<Self>, holder: K, most: usize, most_of_all: usize) -> Option<Counted<K>>
    where
        K: Clone,
    {
        let mut counts = self.counts();
        let own = counts.each.get(&holder).copied().unwrap_or(0);
        if own >= most || counts.all >= most_of_all {
            return None;
        }
        counts.each.insert(holder.clone(), own + 1);
        counts.all += 1;
        Some(Counted { tally: self.clone(), holder })
    }

    fn counts(&self) -> MutexGuard<'_, Counts<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = self.tally.counts();
        counts.all -= 1;
        if let Some(own) = counts.each.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                counts.each.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Tally;

    #[test]
    fn a_holder_has_its_part_and_leaves_nothing_behind() {
        let tally = Arc::new(Tally::default());
        let one = tally.take("acme", 2, 3).unwrap();
        let two = tally.take("acme", 2, 3).unwrap();
        assert!(tally.take("acme", 2, 3).is_none());
        let other = tally.take("globex", 2, 3).unwrap();
        assert!(tally.take("globex", 2, 3).is_none(), "three are all that there may be");
        drop(one);
        let again = tally.take("globex", 2, 3).unwrap();
        drop((two, other, again));
        assert!(tally.counts().each.is_empty());
        assert_eq!(tally.counts().all, 0);
    }
}
