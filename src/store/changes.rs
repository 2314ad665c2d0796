//! The feed: every change that concerns who serves, numbered in the order in which it became
//! visible. A word from PostgreSQL only wakes; the rows are the truth.

use std::collections::BTreeSet;
use std::future::pending;

use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::model::chance;
use crate::model::name::TenantName;
use crate::store::Store;
use crate::store::engine::Arg;
use crate::store::engine::Engine;
use crate::store::engine::Failure;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::engine::postgres::Postgres;
use crate::store::error::StoreError;

/// How many changes are kept for those who read on. Who is further behind reads everything anew.
const KEPT: u64 = 10_000;

/// What changed from some number on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The number to read on from.
    pub seq: u64,
    /// What has to be read again.
    pub what: What,
}

/// What has to be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// These tenants, which may be gone; none where nothing changed.
    Tenants(BTreeSet<TenantName>),
    /// Everything.
    Everything,
}

impl Store {
    /// Tells the number of the last change, as soon as this process knows of it. What it is says
    /// [`Store::changed_since`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// What changed after the change number `seq`.
    pub async fn changed_since(&self, seq: u64) -> Result<Changed, StoreError> {
        let mut tx = self.0.engine.read(Scope::Deployment).await?;
        let sql = "select seq, tenant from changes where seq > $1 order by seq";
        let rows = tx.rows(sql, &[Arg::count(seq)]).await?;
        let last = last(&mut tx).await?;
        tx.rollback().await;
        // Numbers have gaps where a write was given up, so a gap says nothing. What was put away does.
        let behind = last > seq.saturating_add(KEPT);
        // A database that was set back to an earlier state counts from there.
        if behind || last < seq {
            return Ok(Changed { seq: last, what: What::Everything });
        }
        let mut tenants = BTreeSet::new();
        for row in &rows {
            let Some(name) = row.optional("tenant")? else {
                return Ok(Changed { seq: last, what: What::Everything });
            };
            tenants.insert(TenantName::new(&name).map_err(|_| Failure::Corrupt("tenant"))?);
        }
        Ok(Changed { seq: last, what: What::Tenants(tenants) })
    }

    /// Listens to what other processes change, until `stop`: by their word where the database
    /// passes it on, and by looking every `limits.changes_time` at most. With SQLite there are none.
    ///
    /// # Cancel safety
    /// Dropping the future stops listening; nothing is lost, since numbers are looked at.
    pub async fn follow(&self, stop: CancellationToken) {
        let Engine::Postgres(postgres) = &self.0.engine else { return stop.cancelled().await };
        let mut listener = None;
        let every = self.0.limits.changes_time;
        while !stop.is_cancelled() {
            // Failures are told by whoever needs the database next.
            if let Some(Ok(seq)) = stop.run_until_cancelled(self.look()).await {
                self.note(seq);
            }
            // Jittered, so that replicas do not look at the same time.
            let pause = every.mul_f64(0.5 + chance::fraction() / 2.0);
            let woken = timeout(pause, wait(postgres, &mut listener));
            stop.run_until_cancelled(woken).await;
        }
    }

    /// The number of the last change.
    async fn look(&self) -> Result<u64, Failure> {
        let mut tx = self.0.engine.read(Scope::Deployment).await?;
        let seq = last(&mut tx).await?;
        tx.rollback().await;
        Ok(seq)
    }

    /// Tells this process that there is a change of this number.
    pub(super) fn note(&self, seq: u64) {
        self.0.changes.send_if_modified(|last| {
            let news = *last != seq;
            *last = seq;
            news
        });
    }
}

/// Returns when there may be news. A listener that is lost is made anew.
async fn wait(postgres: &Postgres, listener: &mut Option<PgListener>) {
    let Some(listening) = listener else {
        match postgres.listener().await {
            // What was changed before it listened is looked for once more.
            Ok(made) => *listener = Some(made),
            Err(_) => pending().await,
        }
        return;
    };
    // `None` is a connection that was lost and is there again: something may have been missed.
    if listening.try_recv().await.is_err() {
        *listener = None;
        pending().await
    }
}

/// The highest number that there is, also of changes that were put away.
pub(super) async fn last(tx: &mut Tx) -> Result<u64, Failure> {
    let row = tx.row("select coalesce(max(seq), 0) as seq from changes", &[]).await?;
    row.ok_or(Failure::Corrupt("seq"))?.count("seq")
}

/// Numbers a change of `tenant`, or of everything, for every process. It has to be the last that a
/// transaction does: from here to the end, writers wait for each other.
pub(super) async fn append(tx: &mut Tx, tenant: Option<&str>) -> Result<u64, Failure> {
    tx.queue().await?;
    let sql = "insert into changes (tenant) values ($1) returning seq";
    let row = tx.row(sql, &[Arg::Optional(tenant)]).await?;
    let seq = row.ok_or(Failure::Corrupt("seq"))?.count("seq")?;
    // Nobody reads on from there any more.
    tx.run("delete from changes where seq <= $1", &[Arg::count(seq.saturating_sub(KEPT))]).await?;
    tx.wake().await?;
    Ok(seq)
}
