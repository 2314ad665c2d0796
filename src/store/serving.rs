//! What serving reads: everything at the start, and tenants one by one as they change.

use std::collections::HashMap;

use secrecy::SecretString;

use crate::model::name::TenantName;
use crate::store::Revision;
use crate::store::Store;
use crate::store::Stored;
use crate::store::changes;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Row;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::issuers;
use crate::store::secrets;
use crate::store::tenants;

/// Everything that is served, as it was at one moment.
#[derive(Debug)]
pub struct Deployment {
    /// The last change that is in it: [`Store::changed_since`] goes on from there.
    pub seq: u64,
    /// The shared issuers, in the order of their URLs.
    pub issuers: Vec<Stored<String>>,
    /// The tenants, in the order of their names.
    pub tenants: Vec<Whole>,
}

/// A tenant with all that is its own.
#[derive(Debug)]
pub struct Whole {
    /// The tenant.
    pub tenant: Stored<TenantName>,
    /// Name and document of each backend, in their order.
    pub backends: Vec<(String, String)>,
    /// Its secrets.
    pub secrets: Vec<Value>,
}

/// A secret with its value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its name in the tenant.
    pub name: String,
    /// The state that has this value.
    pub revision: Revision,
    /// The value; none where the row does not open with the keys that there are, as a row that was
    /// moved here from elsewhere.
    pub value: Option<SecretString>,
}

impl Store {
    /// Reads everything that is served, in a few statements.
    pub async fn everything(&self) -> Result<Deployment, StoreError> {
        let mut tx = self.0.engine.read(Scope::Everyone).await?;
        let seq = changes::last(&mut tx).await?;
        let sql = "select url, document, revision, created, changed from issuers order by url";
        let shared = tx.rows(sql, &[]).await?;
        let sql = "select name, document, revision, created, changed from tenants order by name";
        let rows = tx.rows(sql, &[]).await?;
        let sql = "select tenant, name, document from backends order by tenant, place";
        let mut backends = by_tenant(tx.rows(sql, &[]).await?)?;
        let sql = "select tenant, name, sealed, revision from secrets order by tenant, name";
        let mut sealed = by_tenant(tx.rows(sql, &[]).await?)?;
        tx.rollback().await;
        let whole = |row: &Row| {
            let tenant = tenants::stored(row)?;
            let backends = backends.remove(tenant.name.as_str()).unwrap_or_default();
            let sealed = sealed.remove(tenant.name.as_str()).unwrap_or_default();
            self.whole(tenant, &backends, &sealed)
        };
        Ok(Deployment {
            seq,
            issuers: shared.iter().map(issuers::stored).collect::<Result<_, _>>()?,
            tenants: rows.iter().map(whole).collect::<Result<_, _>>()?,
        })
    }

    /// Reads one tenant with all that is its own, if there is one of this name.
    pub async fn tenant(&self, name: &TenantName) -> Result<Option<Whole>, StoreError> {
        let mut tx = self.0.engine.read(Scope::Tenant(name)).await?;
        let whole = self.read_whole(&mut tx, name).await?;
        tx.rollback().await;
        Ok(whole)
    }

    /// The same in a transaction of the tenant's.
    pub(super) async fn read_whole(&self, tx: &mut Tx, name: &TenantName) -> Result<Option<Whole>, Failure> {
        let whose = [Arg::Text(name.as_str())];
        let sql = "select name, document, revision, created, changed from tenants where name = $1";
        let Some(row) = tx.row(sql, &whose).await? else { return Ok(None) };
        let sql = "select name, document from backends where tenant = $1 order by place";
        let backends = tx.rows(sql, &whose).await?;
        let sql = "select name, sealed, revision from secrets where tenant = $1 order by name";
        let sealed = tx.rows(sql, &whose).await?;
        self.whole(tenants::stored(&row)?, &backends, &sealed).map(Some)
    }

    fn whole(&self, tenant: Stored<TenantName>, backends: &[Row], sealed: &[Row]) -> Result<Whole, Failure> {
        let backend = |row: &Row| Ok((row.text("name")?, row.text("document")?));
        let value = |row: &Row| {
            let name = row.text("name")?;
            let value = secrets::open(&self.0.keys, &tenant.name, &name, &row.text("sealed")?);
            Ok(Value { name, revision: Revision(row.count("revision")?), value })
        };
        let backends = backends.iter().map(backend).collect::<Result<_, Failure>>()?;
        let secrets = sealed.iter().map(value).collect::<Result<_, Failure>>()?;
        Ok(Whole { tenant, backends, secrets })
    }
}

/// The rows of each tenant, in their order.
fn by_tenant(rows: Vec<Row>) -> Result<HashMap<String, Vec<Row>>, Failure> {
    let mut found: HashMap<String, Vec<Row>> = HashMap::new();
    for row in rows {
        found.entry(row.text("tenant")?).or_default().push(row);
    }
    Ok(found)
}
