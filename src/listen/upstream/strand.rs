//! One subscription with a backend: what is wanted of it, and what the backend says to that.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio::time::timeout_at;

use crate::backend::watch::Interest;
use crate::catalog::entry::Home;
use crate::listen::hub::Hub;
use crate::listen::task;
use crate::listen::upstream::bounds::escaped;
use crate::listen::upstream::bounds::fits;
use crate::listen::upstream::follow::Follower;
use crate::model::limits::Limits;
use crate::model::name::TenantName;

/// How long what is wanted is let settle before a strand is reopened for it.
pub(super) const SETTLE: Duration = Duration::from_millis(20);

/// One subscription with a backend.
pub(in crate::listen) struct Strand {
    tenant: TenantName,
    home: Arc<Home>,
    state: Mutex<State>,
    /// What is wanted is something else now.
    pub(super) changed: Notify,
    /// What is heard is something else now.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// By own URI.
    resources: HashMap<Arc<str>, Standing>,
    /// Of all of them in a list.
    bytes: usize,
    /// Whether they have changed since it was last opened.
    reopen: Reopen,
    /// Whether it could not be opened the last time.
    failing: bool,
}

/// When a strand has to be opened anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reopen {
    #[default]
    Never,
    /// Something is not wanted any more: when there is time.
    Later,
    /// Something more is wanted.
    Soon,
}

struct Standing {
    heard: Heard,
    /// Somebody listens to it already: it counts as changed when it is open.
    late: bool,
    /// How often nothing could be opened because of it.
    tries: u32,
}

/// What a strand is opened for.
pub(super) struct Plan {
    /// Everything that is asked for.
    pub(super) uris: Vec<Arc<str>>,
    /// What of that the backend has not answered before.
    pub(super) added: Vec<Arc<str>>,
}

/// What its backend says to the wish to hear of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::listen) enum Heard {
    /// Nothing yet.
    Nothing,
    /// It could not be asked.
    Failed,
    /// Changes will be told.
    Honoured,
    /// They will not.
    Refused,
}

impl Strand {
    pub(super) fn new(tenant: TenantName, home: Arc<Home>) -> Self {
        let (state, changed, settled) = (Mutex::default(), Notify::new(), Notify::new());
        Self { tenant, home, state, changed, settled }
    }

    /// Whose it is.
    pub(in crate::listen) fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// How many resources are wanted of it.
    pub(super) fn resources(&self) -> usize {
        self.state().resources.len()
    }

    /// Whether one resource more may be wanted of it.
    pub(super) fn has_room(&self, own: &str, limits: &Limits) -> bool {
        let state = self.state();
        fits(state.resources.len(), state.bytes, own, limits)
    }

    /// One resource more; where it is `late`, somebody listens to it already.
    pub(super) fn add(&self, own: &Arc<str>, late: bool) {
        let mut state = self.state();
        // Who comes while it is tried again does not wait for that.
        let heard = if state.failing { Heard::Failed } else { Heard::Nothing };
        let late = late || state.failing;
        if state.resources.insert(own.clone(), Standing { heard, late, tries: 0 }).is_none() {
            state.bytes += escaped(own);
        }
        state.reopen = Reopen::Soon;
        drop(state);
        self.changed.notify_one();
    }

    /// One resource less.
    pub(super) fn remove(&self, own: &str) {
        let mut state = self.state();
        if state.resources.remove(own).is_some() {
            state.bytes -= escaped(own);
        }
        state.reopen = state.reopen.max(Reopen::Later);
        drop(state);
        self.changed.notify_one();
    }

    /// What the backend says to this resource, by `deadline` at the latest; after that it is late.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(in crate::listen) async fn settled(&self, own: &str, deadline: Instant) -> Heard {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            match self.state().resources.get(own).map(|standing| standing.heard) {
                Some(Heard::Nothing) => {}
                Some(heard) => return heard,
                // It was moved elsewhere, where it counts as changed.
                None => return Heard::Nothing,
            }
            if timeout_at(deadline, settled).await.is_err() {
                let mut state = self.state();
                let Some(standing) = state.resources.get_mut(own) else { return Heard::Nothing };
                standing.late |= standing.heard == Heard::Nothing;
                return standing.heard;
            }
        }
    }

    /// What is to be asked for, now that it is: what is answered already, as long as it `is_open`, and at
    /// most so many others, of those that were least often in the way.
    pub(super) fn plan(&self, most: usize, is_open: bool) -> Plan {
        let mut state = self.state();
        state.reopen = Reopen::Never;
        let is_known = |standing: &Standing| match standing.heard {
            Heard::Honoured => true,
            Heard::Refused => is_open,
            Heard::Nothing | Heard::Failed => false,
        };
        let (known, others): (Vec<_>, Vec<_>) =
            state.resources.iter().partition(|(_, standing)| is_known(standing));
        let least = others.iter().map(|(_, standing)| standing.tries).min();
        let next = others.iter().filter(|(_, standing)| Some(standing.tries) == least).take(most);
        let added: Vec<Arc<str>> = next.map(|(own, _)| (*own).clone()).collect();
        let known = known.into_iter().map(|(own, _)| own.clone());
        Plan { uris: known.chain(added.iter().cloned()).collect(), added }
    }

    /// How often what is not answered yet was in the way, at least; `None` where everything is answered.
    pub(super) fn left(&self) -> Option<u32> {
        let state = self.state();
        let left = state
            .resources
            .values()
            .filter(|standing| matches!(standing.heard, Heard::Nothing | Heard::Failed));
        left.map(|standing| standing.tries).min()
    }

    /// Nothing could be opened, and that is because of this resource.
    pub(super) fn blame(&self, own: &str) {
        if let Some(standing) = self.state().resources.get_mut(own) {
            standing.tries = standing.tries.saturating_add(1);
        }
    }

    /// The backend was asked for `sent`: those who waited for it, and have heard nothing, hear of it now, and
    /// those whom it was promised hear that it is no more. Whether anything is refused.
    ///
    /// # Cancel safety
    /// Dropping the future leaves some of those untold.
    pub(super) async fn opened(&self, hub: &Hub, sent: &[Arc<str>], honoured: &Interest) -> bool {
        let (is_refused, missed) = self.take(sent, honoured);
        self.settled.notify_waiters();
        for own in missed {
            hub.missed(&self.tenant, &self.home, own).await;
        }
        is_refused
    }

    /// Notes what the backend said to `sent`: whether anything is refused, and what may have been missed.
    fn take<'s>(&self, sent: &'s [Arc<str>], honoured: &Interest) -> (bool, Vec<&'s Arc<str>>) {
        let honoured = task::honoured(&self.home.config.name, honoured);
        let (mut is_refused, mut missed) = (false, Vec::new());
        let mut state = self.state();
        state.failing = false;
        for own in sent {
            let Some(standing) = state.resources.get_mut(own) else { continue };
            let before = standing.heard;
            if honoured.contains(own) {
                (standing.heard, standing.tries) = (Heard::Honoured, 0);
                if std::mem::take(&mut standing.late) {
                    missed.push(own);
                }
                continue;
            }
            is_refused = true;
            let was_promised = match before {
                Heard::Honoured | Heard::Failed => true,
                Heard::Nothing => standing.late,
                Heard::Refused => false,
            };
            if was_promised {
                missed.push(own);
            }
            (standing.heard, standing.late) = (Heard::Refused, true);
        }
        (is_refused, missed)
    }

    /// It is not open, or not for all that is wanted: those who have heard nothing wait no longer, nor do
    /// those who come while it is `failing`. Where it is `lost`, nobody knows what changes from now on; what
    /// was refused stays refused.
    pub(super) fn failed(&self, lost: bool, failing: bool) {
        let mut state = self.state();
        state.failing = failing;
        for standing in state.resources.values_mut() {
            let is_open = standing.heard == Heard::Honoured;
            if standing.heard == Heard::Nothing || (is_open && lost) {
                (standing.heard, standing.late) = (Heard::Failed, true);
            }
        }
        drop(state);
        self.settled.notify_waiters();
    }

    /// When it is to be opened anew, for what has changed.
    pub(super) fn due(&self, limits: &Limits) -> Option<Instant> {
        match self.state().reopen {
            Reopen::Never => None,
            Reopen::Later => Some(Instant::now() + limits.watch_linger),
            Reopen::Soon => Some(Instant::now() + SETTLE),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one strand. Ends when nobody has wanted anything of it for `limits.watch_linger`.
///
/// # Cancel safety
/// Dropping the future ends the subscription.
pub(in crate::listen) async fn follow(hub: Arc<Hub>, strand: Arc<Strand>) {
    Follower::new(hub, strand).run().await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::Heard;
    use super::Strand;
    use crate::listen::upstream::tests::acme;
    use crate::listen::upstream::tests::home;
    use crate::model::tenant::Backend;

    #[tokio::test]
    async fn what_is_heard_at_the_last_moment_is_heard() {
        let own: Arc<str> = "x://a".into();
        for heard in [Heard::Nothing, Heard::Honoured, Heard::Refused] {
            let strand = Strand::new(acme(), home(Backend::demo("notes")));
            strand.add(&own, false);
            let mut settled = Box::pin(strand.settled(&own, Instant::now() + Duration::from_millis(100)));
            assert!(settled.as_mut().now_or_never().is_none());
            // Before whoever waits is told of it.
            strand.state().resources.get_mut(&own).unwrap().heard = heard;
            assert_eq!(settled.await, heard);
            assert_eq!(strand.state().resources[&own].late, heard == Heard::Nothing);
        }
    }
}
