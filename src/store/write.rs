//! What every write has in common: one transaction of the change, its audit row, the answer that
//! is kept for its idempotency key, and the word to other processes.
//!
//! The order is the same for all: the tenant's row in `revisions`, which is the tenant's lock; the
//! rows themselves; audit; answer; the lock of the feed; the feed. A write that the engine could
//! not do is tried three times.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

use crate::model::chance;
use crate::store::Revision;
use crate::store::Store;
use crate::store::answers;
use crate::store::answers::Answer;
use crate::store::answers::Once;
use crate::store::audit;
use crate::store::changes;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::operators::OperatorId;
use crate::store::serving::Whole;

/// How often a transaction is tried.
const TRIES: u32 = 3;

/// Between two tries, at least; jittered.
const PAUSE: Duration = Duration::from_millis(20);

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// An operator, through the admin API.
    Operator(OperatorId),
    /// Whoever runs `fondaco` on the machine that has the database.
    Cli,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(id) => f.write_str(id.as_str()),
            Self::Cli => f.write_str("cli"),
        }
    }
}

/// Who asks for a write, and whether it may have been asked for before.
#[derive(Clone, Copy)]
pub struct Write<'w> {
    /// Who.
    pub actor: &'w Actor,
    /// The request's idempotency key, if it has one.
    pub once: Option<Once<'w>>,
    /// What has to hold of the tenant as it would be afterwards; it is asked before anything is
    /// committed, while nobody else writes to the tenant.
    pub check: Option<Check<'w>>,
}

/// Whether a tenant may be written as it would be.
pub type Check<'w> = &'w (dyn Fn(&Whole) -> bool + Sync);

impl<'w> Write<'w> {
    /// A write that is not looked for among earlier ones.
    pub fn by(actor: &'w Actor) -> Self {
        Self { actor, once: None, check: None }
    }
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It happened, and this is the state that it made.
    Now(Revision),
    /// It had happened before under the same idempotency key, and this was the answer.
    Before(Answer),
}

/// What one transaction did.
pub(super) struct Change {
    /// What was done, as `tenant.create`.
    pub(super) action: &'static str,
    /// To what, by its name.
    pub(super) object: String,
    /// The document before; none where there was none or it is not to be told.
    pub(super) was: Option<String>,
    /// The document after.
    pub(super) became: Option<String>,
    /// Who has to read again.
    pub(super) concerns: Concerns,
}

/// Whom a change concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Concerns {
    /// Those who serve the tenant that was written.
    Tenant,
    /// Those who serve any.
    Everyone,
    /// Nobody who serves.
    Nobody,
}

/// The middle of a transaction: the statements of one write. It may run more than once.
pub(super) trait Work: Sync {
    /// Writes rows, whose state will be `revision`.
    fn run(
        &self,
        tx: &mut Tx,
        revision: Revision,
        now: u64,
    ) -> impl Future<Output = Result<Change, Stop>> + Send;
}

/// Why a transaction went no further.
pub(super) enum Stop {
    /// The engine could not; it may be able to if all of it is tried again.
    Again(StoreError),
    /// That was the answer.
    For(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::For(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing(_) => Self::Again(failure.into()),
            Failure::Away(_)
            | Failure::Unknown(_)
            | Failure::Taken
            | Failure::Corrupt(_)
            | Failure::Fault(_) => Self::For(failure.into()),
        }
    }
}

impl Store {
    /// Does `work` in a transaction of its own.
    ///
    /// # Cancel safety
    /// Dropped before its last statement was sent, nothing is written; after that it may be.
    pub(super) async fn write(
        &self,
        scope: Scope<'_>,
        write: &Write<'_>,
        work: &impl Work,
    ) -> Result<Written, StoreError> {
        let mut tries = 1;
        loop {
            match self.attempt(scope, write, work).await {
                Ok(written) => return Ok(written),
                Err(Stop::For(error)) => return Err(error),
                Err(Stop::Again(error)) if tries == TRIES => return Err(error),
                Err(Stop::Again(_)) => {
                    sleep(PAUSE.mul_f64(f64::from(tries) * (1.0 + chance::fraction()))).await;
                    tries += 1;
                }
            }
        }
    }

    async fn attempt(&self, scope: Scope<'_>, write: &Write<'_>, work: &impl Work) -> Result<Written, Stop> {
        let mut tx = self.0.engine.write(scope).await?;
        match self.inside(&mut tx, scope, write, work).await {
            Ok((Written::Now(revision), seq)) => {
                tx.commit().await?;
                seq.into_iter().for_each(|seq| self.note(seq));
                Ok(Written::Now(revision))
            }
            Ok((before, _)) => {
                tx.rollback().await;
                Ok(before)
            }
            Err(stop) => {
                tx.rollback().await;
                Err(stop)
            }
        }
    }

    /// Everything between the beginning and the end of a transaction; the change's number, if the
    /// feed has one.
    async fn inside(
        &self,
        tx: &mut Tx,
        scope: Scope<'_>,
        write: &Write<'_>,
        work: &impl Work,
    ) -> Result<(Written, Option<u64>), Stop> {
        let now = self.0.clock.now();
        let revision = next_revision(tx, scope).await?;
        if let Some(once) = &write.once
            && let Some(answer) = answers::find(tx, scope, write.actor, once, self, now).await?
        {
            return Ok((Written::Before(answer), None));
        }
        let change = work.run(tx, revision, now).await?;
        if let (Some(check), Scope::Tenant(name)) = (write.check, scope)
            && let Some(whole) = self.read_whole(tx, name).await?
            && !check(&whole)
        {
            return Err(StoreError::Refused.into());
        }
        audit::append(tx, scope, write.actor, &change, now).await?;
        if let Some(once) = &write.once {
            answers::keep(tx, scope, write.actor, once, self, revision, now).await?;
        }
        let seq = match change.concerns {
            Concerns::Tenant => Some(changes::append(tx, Some(scope.as_str())).await?),
            Concerns::Everyone => Some(changes::append(tx, None).await?),
            Concerns::Nobody => None,
        };
        Ok((Written::Now(revision), seq))
    }
}

/// Takes the lock of whoever is written to, and the state that the write makes.
async fn next_revision(tx: &mut Tx, scope: Scope<'_>) -> Result<Revision, Failure> {
    let sql = "insert into revisions (tenant, value) values ($1, 1) \
               on conflict (tenant) do update set value = revisions.value + 1 returning value";
    let row = tx.row(sql, &[Arg::Text(scope.as_str())]).await?;
    Ok(Revision(row.ok_or(Failure::Corrupt("value"))?.count("value")?))
}

/// Refuses a write of what is not in the state that its writer knows.
pub(super) fn expect(current: Revision, expected: Option<Revision>) -> Result<(), StoreError> {
    match expected {
        Some(expected) if expected != current => Err(StoreError::Conflict { current }),
        Some(_) | None => Ok(()),
    }
}
