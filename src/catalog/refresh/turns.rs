//! Whose lists are compiled next.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::sync::SemaphorePermit;

/// One list is compiled at a time: it takes memory and a core, and no request waits for it.
static COMPILING: Semaphore = Semaphore::const_new(1);

/// The turns of one tenant. Its backends wait for each other first: however many of them have something
/// new, and however often, it has one place in the line, and other tenants get the next. Clones are the
/// same tenant's.
#[derive(Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// A turn, until it is dropped.
pub(super) struct Turn<'l> {
    _of_all: Option<SemaphorePermit<'l>>,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits for the next turn.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the line.
    pub(super) async fn next(&self) -> Turn<'static> {
        self.next_in(&COMPILING).await
    }

    async fn next_in<'l>(&self, line: &'l Semaphore) -> Turn<'l> {
        // Neither is ever closed.
        let of_tenant = self.0.clone().acquire_owned().await.ok();
        Turn { _of_all: line.acquire().await.ok(), _of_tenant: of_tenant }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use futures_util::stream::FuturesUnordered;
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::Turns;

    #[tokio::test]
    async fn the_backends_of_a_tenant_wait_for_each_other_and_not_others_for_them() {
        let line = Semaphore::new(1);
        let (acme, globex) = (Turns::default(), Turns::default());
        let held = line.acquire().await.unwrap();
        let all = [("acme", &acme); 20].into_iter().chain([("globex", &globex)]);
        let turns = all.map(async |(name, turns)| {
            let _turn = turns.clone().next_in(&line).await;
            yield_now().await;
            name
        });
        let mut turns: FuturesUnordered<_> = turns.collect();
        // All are in the line before it moves.
        assert!(futures_util::poll!(turns.next()).is_pending());
        drop(held);
        let ended: Vec<_> = turns.collect().await;
        // In the order of arrival it would be the last.
        assert!(ended[..3].contains(&"globex"), "{ended:?}");
    }
}
