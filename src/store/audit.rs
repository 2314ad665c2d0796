//! The record of every change: rows that are only added to, each with the digest of the one before
//! it, so that none can be edited, moved or taken out of the middle unnoticed.
//!
//! There is a chain for each tenant and one of the deployment. A chain says nothing of rows that
//! were cut off at its end: who wants to know that keeps the head that [`Audit::verify`] tells.

use aws_lc_rs::digest;

use crate::model::name::TenantName;
use crate::store::Store;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Row;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::write::Actor;
use crate::store::write::Change;

/// Who writes the chains that are here: the administration, whichever process it is done by.
const WRITER: &str = "admin";

/// How many rows are looked at in one transaction.
const PAGE: usize = 500;

/// What a chain begins with.
const NOTHING: [u8; digest::SHA256_OUTPUT_LEN] = [0; digest::SHA256_OUTPUT_LEN];

/// The record.
#[derive(Clone, Copy)]
pub struct Audit<'s>(&'s Store);

/// One change, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in its chain, from 1.
    pub number: u64,
    /// When it was, in seconds since the Unix epoch.
    pub at: u64,
    /// Who did it: an operator's id, or `cli`.
    pub actor: String,
    /// What was done, as `backend.create`.
    pub action: String,
    /// To what, as `backends/crm`.
    pub object: String,
    /// The document before; none where there was none, or it is a secret.
    pub was: Option<String>,
    /// The document after.
    pub became: Option<String>,
    /// The digest of the entry before; zeros in the first.
    pub previous: Vec<u8>,
    /// The digest of this entry, `previous` included.
    pub hash: Vec<u8>,
}

/// What looking through a chain found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every entry is what was written. How many there are, and the digest of the last.
    Whole {
        /// How many.
        entries: u64,
        /// The digest of the last one; zeros where there is none.
        head: Vec<u8>,
    },
    /// The first number that is missing, or whose entry is not what was written.
    Broken {
        /// That number.
        number: u64,
    },
}

impl Store {
    /// The record of changes.
    pub fn audit(&self) -> Audit<'_> {
        Audit(self)
    }
}

impl Audit<'_> {
    /// At most `limit` entries from behind the number `after` on, of a tenant or, where that is `None`, of
    /// the deployment. A tenant that was deleted has its entries still.
    pub async fn list(
        &self,
        tenant: Option<&TenantName>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let scope = scope(tenant);
        let mut tx = self.0.0.engine.read(scope).await?;
        let sql = "select number, at, actor, action, object, was, became, previous, hash from audit \
                   where tenant = $1 and writer = $2 and number > $3 order by number limit $4";
        let args = [
            Arg::Text(scope.as_str()),
            Arg::Text(WRITER),
            Arg::count(after.unwrap_or(0)),
            Arg::count(limit as u64),
        ];
        let rows = tx.rows(sql, &args).await?;
        tx.rollback().await;
        Ok(rows.iter().map(entry).collect::<Result<_, _>>()?)
    }

    /// Looks through a whole chain.
    pub async fn verify(&self, tenant: Option<&TenantName>) -> Result<Verdict, StoreError> {
        let scope = scope(tenant);
        let (mut entries, mut head) = (0, NOTHING.to_vec());
        loop {
            let page = self.list(tenant, Some(entries), PAGE).await?;
            let last = page.len() < PAGE;
            for entry in page {
                let follows = entry.number == entries + 1 && entry.previous == head;
                if !follows || entry.hash != entry.digest(scope) {
                    return Ok(Verdict::Broken { number: entries + 1 });
                }
                (entries, head) = (entry.number, entry.hash);
            }
            if last {
                return Ok(Verdict::Whole { entries, head });
            }
        }
    }
}

impl Entry {
    /// Every part behind its length, so that no two entries have the same text.
    fn digest(&self, scope: Scope<'_>) -> Vec<u8> {
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut part = |bytes: Option<&[u8]>| {
            // What is not there is no part of length nothing.
            let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
            hash.update(&length.to_be_bytes());
            hash.update(bytes.unwrap_or_default());
        };
        part(Some(&self.previous));
        part(Some(scope.as_str().as_bytes()));
        part(Some(WRITER.as_bytes()));
        part(Some(&self.number.to_be_bytes()));
        part(Some(&self.at.to_be_bytes()));
        for text in [&self.actor, &self.action, &self.object] {
            part(Some(text.as_bytes()));
        }
        part(self.was.as_deref().map(str::as_bytes));
        part(self.became.as_deref().map(str::as_bytes));
        hash.finish().as_ref().to_vec()
    }
}

/// Adds what was done to the chain of `scope`, whose lock the transaction has.
pub(super) async fn append(
    tx: &mut Tx,
    scope: Scope<'_>,
    actor: &Actor,
    change: &Change,
    now: u64,
) -> Result<(), Failure> {
    let chain = [Arg::Text(scope.as_str()), Arg::Text(WRITER)];
    let sql = "select number, hash from audit where tenant = $1 and writer = $2 order by number desc limit 1";
    let (number, previous) = match tx.row(sql, &chain).await? {
        Some(row) => (row.count("number")? + 1, row.bytes("hash")?),
        None => (1, NOTHING.to_vec()),
    };
    let mut entry = Entry {
        number,
        at: now,
        actor: actor.to_string(),
        action: change.action.to_owned(),
        object: change.object.clone(),
        was: change.was.clone(),
        became: change.became.clone(),
        previous,
        hash: Vec::new(),
    };
    entry.hash = entry.digest(scope);
    let sql = "insert into audit \
               (tenant, writer, number, at, actor, action, object, was, became, previous, hash) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let args = [
        chain[0],
        chain[1],
        Arg::count(entry.number),
        Arg::count(entry.at),
        Arg::Text(&entry.actor),
        Arg::Text(&entry.action),
        Arg::Text(&entry.object),
        Arg::Optional(entry.was.as_deref()),
        Arg::Optional(entry.became.as_deref()),
        Arg::Bytes(&entry.previous),
        Arg::Bytes(&entry.hash),
    ];
    tx.run(sql, &args).await?;
    Ok(())
}

fn scope(tenant: Option<&TenantName>) -> Scope<'_> {
    tenant.map_or(Scope::Deployment, Scope::Tenant)
}

fn entry(row: &Row) -> Result<Entry, Failure> {
    Ok(Entry {
        number: row.count("number")?,
        at: row.count("at")?,
        actor: row.text("actor")?,
        action: row.text("action")?,
        object: row.text("object")?,
        was: row.optional("was")?,
        became: row.optional("became")?,
        previous: row.bytes("previous")?,
        hash: row.bytes("hash")?,
    })
}
