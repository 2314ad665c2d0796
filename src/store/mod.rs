//! Where tenants live when no file declares them: one database, embedded or a server.
//!
//! [`Store`] is the whole of it; each aggregate has a file, and methods behind an accessor
//! ([`Store::tenants`], [`Store::backends`], …). A write is one transaction with its audit row
//! (`write.rs`), a read is one transaction. Documents are kept as the JSON text that they came
//! as: who writes them has checked them. docs/internals/store.md walks through it.

pub mod answers;
pub mod audit;
pub mod backends;
pub mod changes;
pub mod claims;
mod engine;
pub mod error;
pub mod issuers;
mod migrations;
pub mod operators;
pub mod secrets;
pub mod serving;
pub mod tenants;
pub mod write;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::database::PostgresUrl;
use crate::model::clock::Clock;
use crate::model::limits::Limits;
use crate::seal::KeyRing;
use crate::store::engine::Engine;
use crate::store::engine::postgres::Postgres;
use crate::store::engine::sqlite::Sqlite;
use crate::store::error::OpenError;

/// The state of a row. It grows with every write in a tenant, and is never used a second time, also
/// where the row, or the tenant, is deleted and made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A document, as it is stored under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<N> {
    /// What it is called.
    pub name: N,
    /// Its JSON text, as it was written.
    pub document: String,
    /// Its state.
    pub revision: Revision,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
    /// When it was written last.
    pub changed: u64,
}

/// The database; clones share it.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    engine: Engine,
    keys: Arc<KeyRing>,
    clock: Clock,
    limits: Arc<Limits>,
    /// The last change that this process knows of.
    changes: watch::Sender<u64>,
}

impl Store {
    /// The embedded database in `data_dir`, made and migrated as needed. One process has it open at
    /// a time: the next is refused with [`OpenError::InUse`].
    pub async fn embedded(
        data_dir: &Path,
        keys: Arc<KeyRing>,
        clock: Clock,
        limits: Arc<Limits>,
    ) -> Result<Self, OpenError> {
        let engine = Sqlite::open(data_dir, &migrations::sqlite(), &limits).await?;
        Ok(Self::of(Engine::Sqlite(engine), keys, clock, limits))
    }

    /// The PostgreSQL database at `url`. Nothing is connected to yet: [`Store::check`] does that.
    pub fn server(
        url: &PostgresUrl,
        keys: Arc<KeyRing>,
        clock: Clock,
        limits: Arc<Limits>,
    ) -> Result<Self, OpenError> {
        let engine = Postgres::new(url, &limits)?;
        Ok(Self::of(Engine::Postgres(engine), keys, clock, limits))
    }

    /// Brings the schema of the PostgreSQL database at `url` up to date; of several processes that do
    /// so at once, one does. A `role` gets what `serve` needs there, and no more.
    pub async fn migrate(url: &PostgresUrl, role: Option<&str>) -> Result<(), OpenError> {
        Postgres::migrate(url, &migrations::postgres(), role).await
    }

    /// Whether the database is there and has the schema that this program knows.
    /// [`OpenError::Away`] may pass; the others need somebody.
    pub async fn check(&self) -> Result<(), OpenError> {
        match &self.0.engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(postgres) => postgres.check(&migrations::postgres()).await,
        }
    }

    /// Ends all connections. What is written is written.
    pub async fn close(&self) {
        match &self.0.engine {
            Engine::Sqlite(sqlite) => sqlite.close().await,
            Engine::Postgres(postgres) => postgres.close().await,
        }
    }

    /// Whether it is the embedded one, which has one process.
    pub fn is_embedded(&self) -> bool {
        matches!(self.0.engine, Engine::Sqlite(_))
    }

    fn of(engine: Engine, keys: Arc<KeyRing>, clock: Clock, limits: Arc<Limits>) -> Self {
        Self(Arc::new(Inner { engine, keys, clock, limits, changes: watch::Sender::new(0) }))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.engine {
            Engine::Sqlite(_) => f.write_str("Store(SQLite)"),
            Engine::Postgres(_) => f.write_str("Store(PostgreSQL)"),
        }
    }
}
