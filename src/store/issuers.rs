//! The issuers that the deployment shares, by their URLs. Every tenant may be concerned by one.

use crate::store::Revision;
use crate::store::Store;
use crate::store::Stored;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Row;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::write::Change;
use crate::store::write::Concerns;
use crate::store::write::Stop;
use crate::store::write::Work;
use crate::store::write::Write;
use crate::store::write::Written;
use crate::store::write::expect;

/// The shared issuers.
#[derive(Clone, Copy)]
pub struct Issuers<'s>(&'s Store);

impl Store {
    /// The shared issuers.
    pub fn issuers(&self) -> Issuers<'_> {
        Issuers(self)
    }
}

impl Issuers<'_> {
    /// At most `limit` issuers in the order of their URLs, from behind `after` on.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Stored<String>>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let sql = "select url, document, revision, created, changed from issuers \
                   where url > $1 order by url limit $2";
        let rows = tx.rows(sql, &[Arg::Text(after.unwrap_or("")), Arg::count(limit as u64)]).await?;
        tx.rollback().await;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// The issuer of this URL, if there is one.
    pub async fn get(&self, url: &str) -> Result<Option<Stored<String>>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let found = find(&mut tx, url).await?;
        tx.rollback().await;
        Ok(found)
    }

    /// Makes a shared issuer.
    ///
    /// # Errors
    /// [`StoreError::Exists`], and those of any write.
    pub async fn create(&self, write: &Write<'_>, url: &str, document: &str) -> Result<Written, StoreError> {
        self.0.write(Scope::Deployment, write, &Create { url, document }).await
    }

    /// Puts `document` in the place of what the issuer was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn replace(
        &self,
        write: &Write<'_>,
        url: &str,
        document: &str,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Deployment, write, &Replace { url, document, expected }).await
    }

    /// Removes a shared issuer. Tenants that name it keep what they were until they are written again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn delete(
        &self,
        write: &Write<'_>,
        url: &str,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Deployment, write, &Delete { url, expected }).await
    }
}

struct Create<'w> {
    url: &'w str,
    document: &'w str,
}

impl Work for Create<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let sql = "insert into issuers (url, document, revision, created, changed) \
                   values ($1, $2, $3, $4, $4) on conflict do nothing";
        let args = [Arg::Text(self.url), Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Exists.into());
        }
        Ok(change("issuer.create", self.url, None, Some(self.document.to_owned())))
    }
}

struct Replace<'w> {
    url: &'w str,
    document: &'w str,
    expected: Option<Revision>,
}

impl Work for Replace<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let old = find(tx, self.url).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        let sql = "update issuers set document = $2, revision = $3, changed = $4 where url = $1";
        let args = [Arg::Text(self.url), Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        tx.run(sql, &args).await?;
        Ok(change("issuer.replace", self.url, Some(old.document), Some(self.document.to_owned())))
    }
}

struct Delete<'w> {
    url: &'w str,
    expected: Option<Revision>,
}

impl Work for Delete<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, _: u64) -> Result<Change, Stop> {
        let old = find(tx, self.url).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        tx.run("delete from issuers where url = $1", &[Arg::Text(self.url)]).await?;
        Ok(change("issuer.delete", self.url, Some(old.document), None))
    }
}

fn change(action: &'static str, url: &str, was: Option<String>, became: Option<String>) -> Change {
    Change { action, object: format!("issuers/{url}"), was, became, concerns: Concerns::Everyone }
}

async fn find(tx: &mut Tx, url: &str) -> Result<Option<Stored<String>>, Failure> {
    let sql = "select url, document, revision, created, changed from issuers where url = $1";
    tx.row(sql, &[Arg::Text(url)]).await?.as_ref().map(stored).transpose()
}

/// A row as it is stored.
pub(super) fn stored(row: &Row) -> Result<Stored<String>, Failure> {
    Ok(Stored {
        name: row.text("url")?,
        document: row.text("document")?,
        revision: Revision(row.count("revision")?),
        created: row.count("created")?,
        changed: row.count("changed")?,
    })
}
