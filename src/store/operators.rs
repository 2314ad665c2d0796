//! Operators: who may use the admin API, by a key that is shown once and kept as a digest.

use std::fmt;

use aws_lc_rs::digest;
use secrecy::ExposeSecret;
use secrecy::SecretString;

use crate::model::name::TenantName;
use crate::seal;
use crate::store::Revision;
use crate::store::Store;
use crate::store::engine::Arg;
use crate::store::engine::Failure;
use crate::store::engine::Row;
use crate::store::engine::Scope;
use crate::store::engine::Tx;
use crate::store::error::StoreError;
use crate::store::tenants;
use crate::store::write::Actor;
use crate::store::write::Change;
use crate::store::write::Concerns;
use crate::store::write::Stop;
use crate::store::write::Work;
use crate::store::write::Write;

/// What operators' keys begin with.
const PREFIX: &str = "fdo_";

/// The longest name of an operator.
pub const NAME_BYTES: usize = 100;

/// Hexadecimal digits of a key's checksum.
const CHECKSUM: usize = 8;

/// The operators.
#[derive(Clone, Copy)]
pub struct Operators<'s>(&'s Store);

/// An operator's id, which no later one has: `op-` and 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(String);

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything, other operators included.
    Owner,
    /// Everything but operators.
    Operator,
    /// Reading.
    Auditor,
}

/// An operator, without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The id.
    pub id: OperatorId,
    /// What people call it; unique in the deployment.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The one tenant that it is for; `None` is the whole deployment.
    pub tenant: Option<TenantName>,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
}

/// Whether an operator can be called this: not blank, at most [`NAME_BYTES`], no control characters.
pub fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= NAME_BYTES && !text.chars().any(char::is_control)
}

impl OperatorId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Any text may be asked for; only those that were made are found.
impl From<&str> for OperatorId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Owner, Role::Operator, Role::Auditor];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
            Self::Auditor => "auditor",
        }
    }
}

impl Store {
    /// The operators.
    pub fn operators(&self) -> Operators<'_> {
        Operators(self)
    }
}

impl Operators<'_> {
    /// Makes an operator. Its key is given back here and never again.
    ///
    /// # Errors
    /// [`StoreError::Exists`] where the name is taken, [`StoreError::NotFound`] where there is no such
    /// tenant, and those of any write.
    pub async fn create(
        &self,
        actor: &Actor,
        name: &str,
        role: Role,
        tenant: Option<&TenantName>,
    ) -> Result<(Operator, SecretString), StoreError> {
        let id = OperatorId(format!("op-{}", hex(&seal::random::<8>())));
        let key = new_key();
        let created = self.0.0.clock.now();
        let operator = Operator { id, name: name.to_owned(), role, tenant: tenant.cloned(), created };
        let work = Create { operator: &operator, digest: digest_of(key.expose_secret()) };
        // Never under an idempotency key: the answer, which would be kept, holds the key.
        self.0.write(scope(tenant), &Write::by(actor), &work).await?;
        Ok((operator, key))
    }

    /// At most `limit` operators in the order of their ids, from behind `after` on; of one tenant, or all.
    pub async fn list(
        &self,
        tenant: Option<&TenantName>,
        after: Option<&OperatorId>,
        limit: usize,
    ) -> Result<Vec<Operator>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let after = Arg::Text(after.map_or("", OperatorId::as_str));
        let limit = Arg::count(limit as u64);
        let rows = match tenant {
            Some(tenant) => {
                let sql = "select id, name, role, tenant, created from operators \
                           where tenant = $1 and id > $2 order by id limit $3";
                tx.rows(sql, &[Arg::Text(tenant.as_str()), after, limit]).await?
            }
            None => {
                let sql = "select id, name, role, tenant, created from operators \
                           where id > $1 order by id limit $2";
                tx.rows(sql, &[after, limit]).await?
            }
        };
        tx.rollback().await;
        Ok(rows.iter().map(operator).collect::<Result<_, _>>()?)
    }

    /// The operator of this id, if there is one.
    pub async fn get(&self, id: &OperatorId) -> Result<Option<Operator>, StoreError> {
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let found = by_id(&mut tx, id).await?;
        tx.rollback().await;
        Ok(found)
    }

    /// The operator whose key this is, if it is one's. A text that cannot be a key costs no query.
    pub async fn find(&self, key: &str) -> Result<Option<Operator>, StoreError> {
        if !is_key(key) {
            return Ok(None);
        }
        let digest = digest_of(key);
        let mut tx = self.0.0.engine.read(Scope::Deployment).await?;
        let sql = "select id, name, role, tenant, created, digest from operators where digest = $1";
        let found = tx.row(sql, &[Arg::Bytes(&digest)]).await?;
        tx.rollback().await;
        let Some(row) = found else { return Ok(None) };
        if !seal::is_same(&row.bytes("digest")?, &digest) {
            return Ok(None);
        }
        Ok(Some(operator(&row)?))
    }

    /// Takes an operator's rights away, at once. With `tenant`, only one of that tenant's.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LastOwner`], and those of any write.
    pub async fn revoke(
        &self,
        actor: &Actor,
        id: &OperatorId,
        tenant: Option<&TenantName>,
    ) -> Result<(), StoreError> {
        let found = self.get(id).await?;
        let found = found.filter(|found| tenant.is_none() || found.tenant.as_ref() == tenant);
        let found = found.ok_or(StoreError::NotFound)?;
        self.0.write(scope(found.tenant.as_ref()), &Write::by(actor), &Revoke { id }).await?;
        Ok(())
    }
}

struct Create<'w> {
    operator: &'w Operator,
    digest: Vec<u8>,
}

impl Work for Create<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, now: u64) -> Result<Change, Stop> {
        let Operator { id, name, role, tenant, created: _ } = self.operator;
        if let Some(tenant) = tenant {
            tenants::need(tx, tenant).await?;
        }
        let sql = "insert into operators (id, name, role, tenant, digest, created) \
                   values ($1, $2, $3, $4, $5, $6) on conflict do nothing";
        let args = [
            Arg::Text(id.as_str()),
            Arg::Text(name),
            Arg::Text(role.as_str()),
            Arg::Optional(tenant.as_ref().map(TenantName::as_str)),
            Arg::Bytes(&self.digest),
            Arg::count(now),
        ];
        if tx.run(sql, &args).await? == 0 {
            return Err(StoreError::Exists.into());
        }
        Ok(change("operator.create", id, None, Some(document(self.operator))))
    }
}

struct Revoke<'w> {
    id: &'w OperatorId,
}

impl Work for Revoke<'_> {
    async fn run(&self, tx: &mut Tx, _: Revision, _: u64) -> Result<Change, Stop> {
        let operator = by_id(tx, self.id).await?.ok_or(StoreError::NotFound)?;
        // The deployment's lock is ours: two owners cannot remove each other at once.
        if operator.role == Role::Owner && operator.tenant.is_none() {
            let sql = "select id from operators where role = 'owner' and tenant is null limit 2";
            if tx.rows(sql, &[]).await?.len() < 2 {
                return Err(StoreError::LastOwner.into());
            }
        }
        tx.run("delete from operators where id = $1", &[Arg::Text(self.id.as_str())]).await?;
        Ok(change("operator.revoke", self.id, Some(document(&operator)), None))
    }
}

fn change(action: &'static str, id: &OperatorId, was: Option<String>, became: Option<String>) -> Change {
    Change { action, object: format!("operators/{id}"), was, became, concerns: Concerns::Nobody }
}

/// As it is recorded.
fn document(operator: &Operator) -> String {
    let tenant = operator.tenant.as_ref().map(TenantName::as_str);
    serde_json::json!({"name": operator.name, "role": operator.role.as_str(), "tenant": tenant}).to_string()
}

fn scope(tenant: Option<&TenantName>) -> Scope<'_> {
    tenant.map_or(Scope::Deployment, Scope::Tenant)
}

async fn by_id(tx: &mut Tx, id: &OperatorId) -> Result<Option<Operator>, Failure> {
    let sql = "select id, name, role, tenant, created from operators where id = $1";
    tx.row(sql, &[Arg::Text(id.as_str())]).await?.as_ref().map(operator).transpose()
}

fn operator(row: &Row) -> Result<Operator, Failure> {
    let word = row.text("role")?;
    let role = Role::ALL.into_iter().find(|role| role.as_str() == word).ok_or(Failure::Corrupt("role"))?;
    let tenant = row.optional("tenant")?.map(|name| TenantName::new(&name)).transpose();
    Ok(Operator {
        id: OperatorId(row.text("id")?),
        name: row.text("name")?,
        role,
        tenant: tenant.map_err(|_| Failure::Corrupt("tenant"))?,
        created: row.count("created")?,
    })
}

/// A key that nobody can guess, and whose misprints are noticed.
fn new_key() -> SecretString {
    let random = hex(&seal::random::<32>());
    SecretString::from(format!("{PREFIX}{random}_{}", checksum(&random)))
}

/// Whether a text can be a key: right in form, and with the right checksum.
fn is_key(text: &str) -> bool {
    let parts = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(random, sum)| random.len() == 64 && checksum(random) == sum)
}

fn checksum(random: &str) -> String {
    let digest = digest::digest(&digest::SHA256, random.as_bytes());
    hex(digest.as_ref())[..CHECKSUM].to_owned()
}

/// What is kept of a key. It has 256 random bits: no guessing gets from here to there.
fn digest_of(key: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, key.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
