//! SQLite: one file in the data directory, one process, one writer and a few readers.

use std::fs;
use std::fs::File;
use std::fs::TryLockError;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use sqlx::ConnectOptions as _;
use sqlx::Connection as _;
use sqlx::SqlitePool;
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::sqlite::SqliteJournalMode;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::sqlite::SqliteSynchronous;

use crate::model::limits::Limits;
use crate::store::OpenError;
use crate::store::engine::Connection;
use crate::store::engine::Failure;
use crate::store::engine::Tx;

/// The database's name in the data directory.
const FILE: &str = "fondaco.db";

/// What the process that has it open holds locked.
const LOCK: &str = "fondaco.db.lock";

/// The database file of this process.
pub(in crate::store) struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
    patience: std::time::Duration,
    /// Held for as long as the database is open.
    _lock: File,
}

impl Sqlite {
    /// Opens the database in `data_dir`, both made where they are not there, for this process
    /// alone, and brings it up to date.
    pub(in crate::store) async fn open(
        data_dir: &Path,
        migrator: &Migrator,
        limits: &Limits,
    ) -> Result<Self, OpenError> {
        let path = data_dir.join(FILE);
        let failed = |error| OpenError::File(path.clone(), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
        let lock = lock(&data_dir.join(LOCK))?;
        // SQLite gives the files beside it the mode of this one.
        drop(private().open(&path).map_err(failed)?);
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(limits.statement_time)
            .disable_statement_logging();
        let pool =
            |most| SqlitePoolOptions::new().max_connections(most).acquire_timeout(limits.database_wait);
        let writer = pool(1).connect_lazy_with(options.clone());
        let migrated = async {
            let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
            let done = migrator.run(&mut connection).await;
            connection.close().await?;
            done
        };
        migrated.await.map_err(|error| OpenError::of(&error))?;
        let most = u32::try_from(limits.database_connections).unwrap_or(u32::MAX);
        let readers = pool(most).connect_lazy_with(options.read_only(true));
        Ok(Self { writer, readers, patience: limits.statement_time, _lock: lock })
    }

    pub(super) async fn write(&self) -> Result<Tx, Failure> {
        self.begin(&self.writer, "begin immediate").await
    }

    pub(super) async fn read(&self) -> Result<Tx, Failure> {
        self.begin(&self.readers, "begin").await
    }

    async fn begin(&self, pool: &SqlitePool, how: &'static str) -> Result<Tx, Failure> {
        let connection = Connection::Sqlite(pool.acquire().await?);
        let mut tx = Tx { connection, patience: self.patience, open: true };
        tx.run(how, &[]).await?;
        Ok(tx)
    }

    /// Ends every connection, so that the file is whole by itself.
    pub(in crate::store) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Takes the lock, or says that another process has it.
fn lock(path: &PathBuf) -> Result<File, OpenError> {
    let file = private().open(path).map_err(|error| OpenError::File(path.clone(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.clone())),
        Err(TryLockError::Error(error)) => Err(OpenError::File(path.clone(), error)),
    }
}
