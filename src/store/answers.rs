//! What was answered under an idempotency key, kept in the transaction of the write that it was
//! the answer to: one is there if and only if the other is.

use crate::store::Revision;
use crate::store::Store;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::write::Actor;
use crate::store::write::Stop;

/// A write that its client may ask for again.
#[derive(Clone, Copy)]
pub struct Once<'w> {
    /// The client's key. It counts for the actor and the tenant that is written to.
    pub key: &'w str,
    /// The request, so that another one under the same key is noticed: method, path and body. Only a
    /// keyed digest of it is kept, since it may hold a secret.
    pub request: &'w [u8],
    /// What is answered when the write made this state. Never a secret: it is kept as it is.
    pub answer: &'w (dyn Fn(Revision) -> Answer + Sync),
}

/// An answer as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The state that the write made.
    pub revision: Revision,
}

/// The answer that was given under this key, if it is young enough.
pub(super) async fn find(
    tx: &mut Tx,
    scope: Scope<'_>,
    actor: &Actor,
    once: &Once<'_>,
    store: &Store,
    now: u64,
) -> Result<Option<Answer>, Stop> {
    let tenant = Arg::Text(scope.as_str());
    let oldest = now.saturating_sub(store.0.limits.idempotency_time.as_secs());
    tx.run("delete from answers where tenant = $1 and at < $2", &[tenant, Arg::count(oldest)]).await?;
    let sql =
        "select mark, status, body, revision from answers where tenant = $1 and actor = $2 and key = $3";
    let actor = actor.to_string();
    let Some(row) = tx.row(sql, &[tenant, Arg::Text(&actor), Arg::Text(once.key)]).await? else {
        return Ok(None);
    };
    if !store.0.keys.is_mark(once.request, &row.bytes("mark")?) {
        return Err(StoreError::KeyReused.into());
    }
    let status = u16::try_from(row.integer("status")?).map_err(|_| Failure::Corrupt("status"))?;
    Ok(Some(Answer { status, body: row.text("body")?, revision: Revision(row.count("revision")?) }))
}

/// Keeps the answer to a write.
pub(super) async fn keep(
    tx: &mut Tx,
    scope: Scope<'_>,
    actor: &Actor,
    once: &Once<'_>,
    store: &Store,
    revision: Revision,
    now: u64,
) -> Result<(), Failure> {
    let answer = (once.answer)(revision);
    let (actor, mark) = (actor.to_string(), store.0.keys.mark(once.request));
    let sql = "insert into answers (tenant, actor, key, mark, status, body, revision, at) \
               values ($1, $2, $3, $4, $5, $6, $7, $8)";
    let args = [
        Arg::Text(scope.as_str()),
        Arg::Text(&actor),
        Arg::Text(once.key),
        Arg::Bytes(&mark),
        Arg::Integer(answer.status.into()),
        Arg::Text(&answer.body),
        Arg::count(answer.revision.0),
        Arg::count(now),
    ];
    tx.run(sql, &args).await?;
    Ok(())
}
