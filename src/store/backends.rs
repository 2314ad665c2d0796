//! A tenant's backends, in an order: the earlier one owns a name that two of them have.

use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::store::Revision;
use crate::store::Store;
use crate::store::Stored;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Row;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::tenants;
use crate::store::write::Change;
use crate::store::write::Concerns;
use crate::store::write::Stop;
use crate::store::write::Work;
use crate::store::write::Write;
use crate::store::write::Written;
use crate::store::write::expect;

/// The backends of tenants. Every method says whose; another tenant's is not there.
#[derive(Clone, Copy)]
pub struct Backends<'s>(&'s Store);

/// A backend and where it stands among its tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The backend.
    pub backend: Stored<BackendName>,
    /// Its place, which it keeps. The lower one owns a name that two have.
    pub place: u64,
}

impl Store {
    /// The backends.
    pub fn backends(&self) -> Backends<'_> {
        Backends(self)
    }
}

impl Backends<'_> {
    /// At most `limit` backends in the order of their places, from behind the place `after` on.
    pub async fn list(
        &self,
        tenant: &TenantName,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Placed>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Tenant(tenant)).await?;
        let sql = "select name, place, document, revision, created, changed from backends \
                   where tenant = $1 and place > $2 order by place limit $3";
        let args = [Arg::Text(tenant.as_str()), Arg::count(after.unwrap_or(0)), Arg::count(limit as u64)];
        let rows = tx.rows(sql, &args).await?;
        tx.rollback().await;
        Ok(rows.iter().map(placed).collect::<Result<_, _>>()?)
    }

    /// The backend of this name, if the tenant has one.
    pub async fn get(&self, tenant: &TenantName, name: &BackendName) -> Result<Option<Placed>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Tenant(tenant)).await?;
        let found = find(&mut tx, tenant, name).await?;
        tx.rollback().await;
        Ok(found)
    }

    /// Makes a backend, behind those that the tenant has.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such tenant, [`StoreError::Exists`], and those of any write.
    pub async fn create(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &BackendName,
        document: &str,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(tenant), write, &Create { tenant, name, document }).await
    }

    /// Puts `document` in the place of what the backend was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn replace(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &BackendName,
        document: &str,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(tenant), write, &Replace { tenant, name, document, expected }).await
    }

    /// Removes a backend.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn delete(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &BackendName,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(tenant), write, &Delete { tenant, name, expected }).await
    }
}

struct Create<'w> {
    tenant: &'w TenantName,
    name: &'w BackendName,
    document: &'w str,
}

impl Work for Create<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        tenants::need(tx, self.tenant).await?;
        // The tenant's lock is ours: nobody takes the same place.
        let sql = "insert into backends (tenant, name, place, document, revision, created, changed) \
                   select $1, $2, coalesce(max(place), 0) + 1, $3, $4, $5, $5 from backends where tenant = $1 \
                   on conflict (tenant, name) do nothing";
        let (tenant, name) = (Arg::Text(self.tenant.as_str()), Arg::Text(self.name.as_str()));
        let args = [tenant, name, Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Exists.into());
        }
        Ok(change("backend.create", self.name, None, Some(self.document.to_owned())))
    }
}

struct Replace<'w> {
    tenant: &'w TenantName,
    name: &'w BackendName,
    document: &'w str,
    expected: Option<Revision>,
}

impl Work for Replace<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let old = find(tx, self.tenant, self.name).await?.ok_or(StoreError::NotFound)?.backend;
        expect(old.revision, self.expected)?;
        let sql = "update backends set document = $3, revision = $4, changed = $5 \
                   where tenant = $1 and name = $2";
        let (tenant, name) = (Arg::Text(self.tenant.as_str()), Arg::Text(self.name.as_str()));
        let args = [tenant, name, Arg::Text(self.document), Arg::count(revision.0), Arg::count(now)];
        tx.run(sql, &args).await?;
        Ok(change("backend.replace", self.name, Some(old.document), Some(self.document.to_owned())))
    }
}

struct Delete<'w> {
    tenant: &'w TenantName,
    name: &'w BackendName,
    expected: Option<Revision>,
}

impl Work for Delete<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, _: u64) -> Result<Change, Stop> {
        let old = find(tx, self.tenant, self.name).await?.ok_or(StoreError::NotFound)?.backend;
        expect(old.revision, self.expected)?;
        let args = [Arg::Text(self.tenant.as_str()), Arg::Text(self.name.as_str())];
        tx.run("delete from backends where tenant = $1 and name = $2", &args).await?;
        Ok(change("backend.delete", self.name, Some(old.document), None))
    }
}

fn change(action: &'static str, name: &BackendName, was: Option<String>, became: Option<String>) -> Change {
    Change { action, object: format!("backends/{name}"), was, became, concerns: Concerns::Tenant }
}

async fn find(tx: &mut Tx, tenant: &TenantName, name: &BackendName) -> Result<Option<Placed>, Failure> {
    let sql = "select name, place, document, revision, created, changed from backends \
               where tenant = $1 and name = $2";
    let args = [Arg::Text(tenant.as_str()), Arg::Text(name.as_str())];
    tx.row(sql, &args).await?.as_ref().map(placed).transpose()
}

fn placed(row: &Row) -> Result<Placed, Failure> {
    let backend = Stored {
        name: BackendName::new(&row.text("name")?).map_err(|_| Failure::Corrupt("name"))?,
        document: row.text("document")?,
        revision: Revision(row.count("revision")?),
        created: row.count("created")?,
        changed: row.count("changed")?,
    };
    Ok(Placed { backend, place: row.count("place")? })
}
