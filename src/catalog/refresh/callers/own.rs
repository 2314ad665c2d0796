//! The catalog of one caller: what each backend lists for it, and how that is had.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::backend::Account;
use crate::backend::listing::Listed;
use crate::backend::listing::Listing;
use crate::catalog::entry::Home;
use crate::catalog::part::Part;
use crate::catalog::refresh::Inner;
use crate::catalog::refresh::LINES;
use crate::catalog::refresh::State;
use crate::catalog::refresh::callers::Desk;
use crate::catalog::refresh::callers::Key;
use crate::catalog::refresh::callers::plan::Plan;
use crate::catalog::refresh::keeping;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::source::Answer;
use crate::catalog::source::Source;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::tenant;
use crate::protocol::able::Able;
use crate::protocol::json::Json;
use crate::protocol::methods::List;
use crate::telemetry::metrics::Outcome;

/// What an entry weighs for every byte that it has, with what is compiled of it, and beside them.
const TIMES: usize = 8;
const OVERHEAD: usize = 2 << 10;

/// The catalog of one caller.
pub(super) struct Own {
    slots: Vec<Slot>,
    /// Grows with everything that is taken.
    version: AtomicU64,
    /// What it comes to with what all share.
    composed: Mutex<Option<Composed>>,
    /// Cancelled when it is not kept any more: nothing is asked for it then.
    left: CancellationToken,
}

/// What one backend lists for it.
struct Slot {
    /// The backend, as all callers know it.
    desk: Arc<Desk>,
    account: Account,
    own: Source,
    plan: Mutex<Plan>,
    /// By the estimate.
    bytes: AtomicUsize,
}

struct Composed {
    /// The revision of what all share, and the version of what is over it.
    of: (u64, u64),
    snapshot: Arc<Snapshot>,
}

/// An asking that goes on. Whatever becomes of it, nobody waits for it after that.
struct Asking {
    own: Arc<Own>,
    /// Which slot's.
    at: usize,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(slot) = self.own.slots.get(self.at) {
            // Counted before the next one gets its number.
            let mut plan = slot.plan();
            plan.over(Instant::now());
            slot.own.attempted();
        }
    }
}

impl Own {
    /// Nothing was asked yet. A backend is told of the extensions that `declared` says, and what it may ask.
    pub(super) fn new(
        caller: &Arc<Caller>,
        desks: &[Arc<Desk>],
        declared: impl Fn(&tenant::Backend) -> (BTreeSet<String>, Able),
    ) -> Self {
        let slot = |desk: &Arc<Desk>| {
            let (extensions, able) = declared(&desk.source.home.config);
            Slot {
                desk: desk.clone(),
                account: Account::Caller { caller: caller.clone(), extensions, able },
                own: Source::new(Home::clone(&desk.source.home), None),
                plan: Mutex::default(),
                bytes: AtomicUsize::new(0),
            }
        };
        let slots = desks.iter().map(slot).collect();
        Self { slots, version: AtomicU64::new(0), composed: Mutex::default(), left: CancellationToken::new() }
    }

    /// Has what is missing, old or out of date asked for, and waits for what is worth it.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: what is asked for is had all the same.
    pub(super) async fn renew(self: &Arc<Self>, inner: &Arc<Inner>, state: &Arc<State>, key: &Key) {
        let most = inner.limits.caller_catalog_time.min(inner.limits.first_catalog_time);
        let deadline = Instant::now() + most;
        loop {
            let mut awaited = Vec::new();
            for (at, slot) in self.slots.iter().enumerate() {
                let next = slot.plan().next(slot.desk.source.edition(), slot.own.attempts(), Instant::now());
                if next.begin {
                    let asking = Asking { own: self.clone(), at };
                    let load = asking.load(inner.clone(), state.clone(), key.clone());
                    let load = self.left.clone().run_until_cancelled_owned(load);
                    inner.tasks.spawn(state.stop.clone().run_until_cancelled_owned(load));
                }
                awaited.extend(next.wait.map(|attempt| slot.own.attempt(attempt)));
            }
            if awaited.is_empty() {
                return;
            }
            let waiting = state.stop.run_until_cancelled(join_all(awaited));
            match timeout_at(deadline, waiting).await {
                // What changed meanwhile is asked for once more.
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => return self.slots.iter().for_each(|slot| slot.plan().is_late()),
            }
        }
    }

    /// It, over what all share.
    pub(super) fn over(&self, shared: &Snapshot, state: &State, limits: &Limits) -> Arc<Snapshot> {
        let mut composed = self.composed();
        let of = (shared.revision, self.version.load(Ordering::SeqCst));
        if let Some(kept) = composed.as_ref().filter(|kept| kept.of == of) {
            return kept.snapshot.clone();
        }
        let parts: Vec<_> = self.slots.iter().filter_map(|slot| slot.own.part()).collect();
        let complete = parts.len() == self.slots.len();
        let snapshot = Arc::new(shared.with(&state.tenant, &parts, &state.record.owners(), complete, limits));
        *composed = Some(Composed { of, snapshot: snapshot.clone() });
        snapshot
    }

    /// Does not hold what all share any more.
    pub(super) fn let_go(&self) {
        *self.composed() = None;
    }

    /// It is not kept any more.
    pub(super) fn leave(&self) {
        self.left.cancel();
    }

    /// What it weighs.
    fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.bytes.load(Ordering::SeqCst)).sum()
    }

    /// Takes what a backend has listed, on a blocking thread.
    async fn take(
        &self,
        inner: &Arc<Inner>,
        state: &Arc<State>,
        slot: &Slot,
        answer: Answer,
        edition: u64,
    ) -> Result<(), String> {
        let whole = answer.failed.is_empty();
        let (tenant, backend) = (&state.tenant.name, &slot.own.home.config.name);
        for (list, reason) in &answer.failed {
            let list = list.method().name();
            tracing::debug!(%tenant, %backend, list, reason, "a backend did not give a caller one of its lists");
        }
        if let Some(listing) = answer.listing {
            let listing = Arc::new(alone(&listing));
            let weight = weight(&listing);
            let others = self.bytes() - slot.bytes.load(Ordering::SeqCst);
            let fits = |weight: usize| match others + weight > state.callers.room.share() {
                true => Err("it lists more than is kept for callers".to_owned()),
                false => Ok(()),
            };
            fits(weight)?;
            let changed = keeping::resources_change(&slot.own, &listing);
            let part = self.compile(inner, state, slot, listing.clone()).await?;
            let weight = weight + part.admission.pattern_bytes;
            fits(weight)?;
            slot.own.put(listing, part);
            slot.bytes.store(weight, Ordering::SeqCst);
            self.version.fetch_add(1, Ordering::SeqCst);
            if changed {
                inner.cache.purge(tenant, backend, None);
            }
            report(inner, state, slot);
        }
        slot.own.is_back();
        slot.plan().listed(edition, answer.wait, whole, Instant::now());
        Ok(())
    }

    /// Compiles schemas in the tenant's turn.
    async fn compile(
        &self,
        inner: &Arc<Inner>,
        state: &Arc<State>,
        slot: &Slot,
        listing: Arc<Listing>,
    ) -> Result<Part, String> {
        let turn = state.turns.next().await;
        let (limits, home) = (inner.limits.clone(), slot.own.place());
        let job = move || {
            let _until_done = turn;
            Part::of(&home, &listing, &limits)
        };
        let part = tokio::task::spawn_blocking(job).await;
        part.map_err(|_| "what it lists could not be compiled".to_owned())
    }

    /// A backend is away. What it had stays for a while, and then it leaves.
    fn bear(&self, slot: &Slot, limits: &Limits) {
        let has_something = slot.own.part().is_some();
        if has_something && slot.own.is_away(limits.catalog_grace).is_some_and(|left| left.is_zero()) {
            slot.own.take(Arc::new(Listing::gone()), limits);
            slot.own.has_left();
            slot.bytes.store(0, Ordering::SeqCst);
            self.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn composed(&self) -> MutexGuard<'_, Option<Composed>> {
        self.composed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// Asks the backend and takes what it lists.
    async fn load(self, inner: Arc<Inner>, state: Arc<State>, key: Key) {
        let own = &self.own;
        let Some(slot) = own.slots.get(self.at) else { return };
        // Never closed.
        let _one_of_few = slot.desk.loads.acquire().await;
        let edition = slot.desk.source.edition();
        let mut partly = None;
        let had = match slot.own.list(&slot.account, &inner.limits).await {
            Ok(answer) => {
                partly = answer.failed.first().map(|(list, reason)| format!("{}: {reason}", list.noun()));
                own.take(&inner, &state, slot, answer, edition).await
            }
            Err(reason) => Err(reason),
        };
        let fails = had.is_err() || partly.is_some();
        inner.metrics.callers.loaded(if fails { Outcome::Failed } else { Outcome::Ok });
        let first = slot.desk.fails(fails);
        let (tenant, backend) = (&state.tenant.name, &slot.own.home.config.name);
        if let Some(reason) = partly.filter(|_| first) {
            tracing::warn!(%tenant, %backend, reason, "a backend did not give a caller one of its lists");
        }
        if let Err(reason) = had {
            match first {
                true => {
                    tracing::warn!(%tenant, %backend, reason, "a backend did not list for a caller; what it had stays for a while");
                }
                false => tracing::debug!(%tenant, %backend, reason, "a backend did not list for a caller"),
            }
            slot.plan().failed(Instant::now());
            own.bear(slot, &inner.limits);
        }
        state.callers.room.weigh(&key, own, own.bytes());
    }
}

impl Slot {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts what was left out of what a backend lists for one caller.
fn report(inner: &Inner, state: &State, slot: &Slot) {
    let Some(part) = slot.own.part() else { return };
    let (tenant, left_out) = (&state.tenant.name, &part.admission.left_out);
    inner.metrics.entries_left_out(left_out.len() as u64);
    for remark in left_out.iter().take(LINES) {
        let (backend, name, reason) = (&remark.backend, &remark.name, &remark.reason);
        tracing::debug!(%tenant, %backend, kind = remark.list.noun(), name, reason, "left out of a caller's catalog");
    }
}

/// The same lists, which hold nothing else of the answers that they came in.
fn alone(listing: &Listing) -> Listing {
    let mut alone = Listing {
        instructions: listing.instructions.clone(),
        extensions: listing.extensions.clone(),
        tasks: listing.tasks,
        ttl_ms: listing.ttl_ms,
        ..Listing::default()
    };
    for list in List::ALL {
        *alone.of_mut(list) = match listing.of(list) {
            Listed::Known { entries, truncated } => {
                Listed::Known { entries: entries.iter().map(Json::alone).collect(), truncated: *truncated }
            }
            other @ (Listed::Unknown | Listed::Absent) => other.clone(),
        };
    }
    alone
}

/// What lists may come to weigh in memory with all that is made of them, by an estimate.
fn weight(listing: &Listing) -> usize {
    let of = |list: &List| -> usize {
        let entries = listing.of(*list).entries().iter();
        entries.map(|entry| entry.bytes().len() * TIMES + OVERHEAD).sum()
    };
    let lists: usize = List::ALL.iter().map(of).sum();
    let extensions: usize = listing.extensions.iter().map(|(_, said)| said.bytes().len()).sum();
    let said = listing.instructions.as_ref().map_or(0, String::len) + extensions;
    lists + said * 2 + OVERHEAD
}
