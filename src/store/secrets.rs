//! A tenant's secrets: written, referred to by name, and never given back but to who serves them.
//!
//! A value is sealed by the key ring, with its tenant and its name in the associated data: a row
//! that is moved elsewhere does not open, and neither does one whose key is not in the ring.

use secrecy::ExposeSecret;
use secrecy::SecretString;
use zeroize::Zeroizing;

use crate::model::name::TenantName;
use crate::seal::Binding;
use crate::seal::KeyRing;
use crate::seal::Purpose;
use crate::store::Revision;
use crate::store::Store;
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

/// The secrets of tenants.
#[derive(Clone, Copy)]
pub struct Secrets<'s>(&'s Store);

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name in the tenant.
    pub name: String,
    /// Its state.
    pub revision: Revision,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
    /// When it got its value.
    pub changed: u64,
}

impl Store {
    /// The secrets.
    pub fn secrets(&self) -> Secrets<'_> {
        Secrets(self)
    }
}

impl Secrets<'_> {
    /// At most `limit` secrets in the order of their names, from behind `after` on.
    pub async fn list(
        &self,
        tenant: &TenantName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Secret>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Tenant(tenant)).await?;
        let sql = "select name, revision, created, changed from secrets \
                   where tenant = $1 and name > $2 order by name limit $3";
        let args = [Arg::Text(tenant.as_str()), Arg::Text(after.unwrap_or("")), Arg::count(limit as u64)];
        let rows = tx.rows(sql, &args).await?;
        tx.rollback().await;
        Ok(rows.iter().map(secret).collect::<Result<_, _>>()?)
    }

    /// The secret of this name, if the tenant has one.
    pub async fn get(&self, tenant: &TenantName, name: &str) -> Result<Option<Secret>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Tenant(tenant)).await?;
        let found = find(&mut tx, tenant, name).await?;
        tx.rollback().await;
        Ok(found)
    }

    /// Makes a secret.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such tenant, [`StoreError::Exists`],
    /// [`StoreError::TooLong`], and those of any write.
    pub async fn create(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &str,
        value: &SecretString,
    ) -> Result<Written, StoreError> {
        let sealed = self.seal(tenant, name, value)?;
        self.0.write(Scope::Tenant(tenant), write, &Create { tenant, name, sealed }).await
    }

    /// Gives a secret another value.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], [`StoreError::TooLong`], and those of any write.
    pub async fn replace(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &str,
        value: &SecretString,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        let sealed = self.seal(tenant, name, value)?;
        self.0.write(Scope::Tenant(tenant), write, &Replace { tenant, name, sealed, expected }).await
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], and those of any write.
    pub async fn delete(
        &self,
        write: &Write<'_>,
        tenant: &TenantName,
        name: &str,
        expected: Option<Revision>,
    ) -> Result<Written, StoreError> {
        self.0.write(Scope::Tenant(tenant), write, &Delete { tenant, name, expected }).await
    }

    fn seal(&self, tenant: &TenantName, name: &str, value: &SecretString) -> Result<String, StoreError> {
        let value = value.expose_secret();
        if value.len() > self.0.0.limits.secret_bytes {
            return Err(StoreError::TooLong);
        }
        Ok(self.0.0.keys.seal(&binding(tenant, name), u64::MAX, value.as_bytes()))
    }
}

fn binding<'b>(tenant: &'b TenantName, name: &'b str) -> Binding<'b> {
    Binding { purpose: Purpose::Secret, tenant, principal: name, digest: b"" }
}

/// The value in a row of this tenant and name; none where it does not open.
pub(super) fn open(keys: &KeyRing, tenant: &TenantName, name: &str, sealed: &str) -> Option<SecretString> {
    let value = Zeroizing::new(keys.open(&binding(tenant, name), sealed, 0).ok()?);
    std::str::from_utf8(&value).ok().map(SecretString::from)
}

struct Create<'w> {
    tenant: &'w TenantName,
    name: &'w str,
    sealed: String,
}

impl Work for Create<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        tenants::need(tx, self.tenant).await?;
        let sql = "insert into secrets (tenant, name, sealed, revision, created, changed) \
                   values ($1, $2, $3, $4, $5, $5) on conflict do nothing";
        let tenant = Arg::Text(self.tenant.as_str());
        let args =
            [tenant, Arg::Text(self.name), Arg::Text(&self.sealed), Arg::count(revision.0), Arg::count(now)];
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Exists.into());
        }
        Ok(change("secret.create", self.name))
    }
}

struct Replace<'w> {
    tenant: &'w TenantName,
    name: &'w str,
    sealed: String,
    expected: Option<Revision>,
}

impl Work for Replace<'_> {
    async fn run(&self, tx: &mut Tx, revision: Revision, now: u64) -> Result<Change, Stop> {
        let old = find(tx, self.tenant, self.name).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        let sql =
            "update secrets set sealed = $3, revision = $4, changed = $5 where tenant = $1 and name = $2";
        let tenant = Arg::Text(self.tenant.as_str());
        let args =
            [tenant, Arg::Text(self.name), Arg::Text(&self.sealed), Arg::count(revision.0), Arg::count(now)];
        tx.run(sql, &args).await?;
        Ok(change("secret.replace", self.name))
    }
}

struct Delete<'w> {
    tenant: &'w TenantName,
    name: &'w str,
    expected: Option<Revision>,
}

impl Work for Delete<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, _: u64) -> Result<Change, Stop> {
        let old = find(tx, self.tenant, self.name).await?.ok_or(StoreError::NotFound)?;
        expect(old.revision, self.expected)?;
        let args = [Arg::Text(self.tenant.as_str()), Arg::Text(self.name)];
        tx.run("delete from secrets where tenant = $1 and name = $2", &args).await?;
        Ok(change("secret.delete", self.name))
    }
}

/// That it was written is recorded, and nothing of what.
fn change(action: &'static str, name: &str) -> Change {
    Change { action, object: format!("secrets/{name}"), was: None, became: None, concerns: Concerns::Tenant }
}

async fn find(tx: &mut Tx, tenant: &TenantName, name: &str) -> Result<Option<Secret>, Failure> {
    let sql = "select name, revision, created, changed from secrets where tenant = $1 and name = $2";
    let args = [Arg::Text(tenant.as_str()), Arg::Text(name)];
    tx.row(sql, &args).await?.as_ref().map(secret).transpose()
}

fn secret(row: &Row) -> Result<Secret, Failure> {
    Ok(Secret {
        name: row.text("name")?,
        revision: Revision(row.count("revision")?),
        created: row.count("created")?,
        changed: row.count("changed")?,
    })
}
