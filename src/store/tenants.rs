//! Tenants: each a document in the grammar of the tenants file, without its backends and secrets.

use std::collections::BTreeSet;

use crate::model::name::TenantName;
use crate::store::Revision;
use crate::store::Store;
use crate::store::Stored;
use crate::store::claims;
use crate::store::claims::Claim;
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

/// The tenants of the deployment.
#[derive(Clone, Copy)]
pub struct Tenants<'s>(&'s Store);

impl Store {
    /// The tenants.
    pub fn tenants(&self) -> Tenants<'_> {
        Tenants(self)
    }
}

impl Tenants<'_> {
    /// At most `limit` tenants in the order of their names, from behind `after` on.
    pub async fn list(
        &self,
        after: Option<&TenantName>,
        limit: usize,
    ) -> Result<Vec<Stored<TenantName>>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let sql = "select name, document, revision, created, changed from tenants \
                   where name > $1 order by name limit $2";
        let after = after.map_or("", TenantName::as_str);
        let rows = tx.rows(sql, &[Arg::Text(after), Arg::count(limit as u64)]).await?;
        tx.rollback().await;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// The tenant of this name, if there is one.
    pub async fn get(&self, name: &TenantName) -> Result<Option<Stored<TenantName>>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let found = find(&mut tx, name).await?;
        tx.rollback().await;
        Ok(found)
    }

    /// Makes the tenant `name`, which has `claims` for itself alone.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Claimed`], and those of any write.
    pub async fn create(
        &self,
        write: &Write<'_>,
        name: &TenantName,
        document: &str,
        claims: &BTreeSet<Claim>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(name), write, &Create { name, document, claims }).await
    }

    /// Puts `document` and `claims` in the place of what the tenant had. With `expected`, only where the
    /// tenant itself is in that state; its backends and secrets have states of their own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], [`StoreError::Claimed`], and those of any write.
    pub async fn replace(
        &self,
        write: &Write<'_>,
        name: &TenantName,
        document: &str,
        claims: &BTreeSet<Claim>,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(name), write, &Replace { name, document, claims, expected }).await
    }

    /// Removes the tenant with everything that is its own; its audit rows stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn delete(
        &self,
        write: &Write<'_>,
        name: &TenantName,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(name), write, &Delete { name, expected }).await
    }
}

struct Create<'w> {
    name: &'w TenantName,
    document: &'w str,
    claims: &'w BTreeSet<Claim>,
}

impl Work for Create<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let sql = "insert into tenants (name, document, revision, created, changed) \
                   values ($1, $2, $3, $4, $4) on conflict do nothing";
        let name = Arg::Text(self.name.as_str());
        let args = [name, Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Exists.into());
        }
        claims::replace(tx, self.name, self.claims).await?;
        Ok(change("tenant.create", self.name, None, Some(self.document.to_owned())))
    }
}

struct Replace<'w> {
    name: &'w TenantName,
    document: &'w str,
    claims: &'w BTreeSet<Claim>,
    expected: Option<Revision>,
}

impl Work for Replace<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let old = find(tx, self.name).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        let sql = "update tenants set document = $2, revision = $3, changed = $4 where name = $1";
        let name = Arg::Text(self.name.as_str());
        let args = [name, Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        tx.run(sql, &args).await?;
        claims::replace(tx, self.name, self.claims).await?;
        Ok(change("tenant.replace", self.name, Some(old.document), Some(self.document.to_owned())))
    }
}

struct Delete<'w> {
    name: &'w TenantName,
    expected: Option<Revision>,
}

impl Work for Delete<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, _: u64) -> Result<Change, Stop> {
        let old = find(tx, self.name).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        tx.run("delete from tenants where name = $1", &[Arg::Text(self.name.as_str())]).await?;
        Ok(change("tenant.delete", self.name, Some(old.document), None))
    }
}

fn change(action: &'static str, name: &TenantName, was: Option<String>, became: Option<String>) -> Change {
    Change { action, object: format!("tenants/{name}"), was, became, concerns: Concerns::Tenant }
}

async fn find(tx: &mut Tx, name: &TenantName) -> Result<Option<Stored<TenantName>>, Failure> {
    let sql = "select name, document, revision, created, changed from tenants where name = $1";
    tx.row(sql, &[Arg::Text(name.as_str())]).await?.as_ref().map(stored).transpose()
}

/// Whether there is a tenant of this name, for those who write what belongs to it.
pub(super) async fn need(tx: &mut Tx, name: &TenantName) -> Result<(), Stop> {
    let found = tx.row("select name from tenants where name = $1", &[Arg::Text(name.as_str())]).await?;
    if found.is_some() { Ok(()) } else { Err(StoreError::NotFound.into()) }
}

/// A row as it is stored.
pub(super) fn stored(row: &Row) -> Result<Stored<TenantName>, Failure> {
    Ok(Stored {
        name: TenantName::new(&row.text("name")?).map_err(|_| Failure::Corrupt("name"))?,
        document: row.text("document")?,
        revision: Revision(row.count("revision")?),
        created: row.count("created")?,
        changed: row.count("changed")?,
    })
}
