//! The two engines, behind transactions in which one text of SQL serves both.
//!
//! Parameters are `$1`, `$2`, …; text, integers and bytes are all that there is. What differs
//! between the engines is in [`sqlite`] and [`postgres`].

mod failure;
pub(in crate::store) mod postgres;
pub(in crate::store) mod sqlite;

use std::future::Future;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use tokio::time::timeout;

use crate::model::name::TenantName;
use crate::store::engine::postgres::Postgres;
use crate::store::engine::sqlite::Sqlite;

pub use crate::store::engine::failure::Cause;
pub(in crate::store) use crate::store::engine::failure::Failure;

/// The tenant of what belongs to the whole deployment. No tenant is called so.
pub(in crate::store) const DEPLOYMENT: &str = "-";

/// Whose rows a transaction is about.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Scope<'s> {
    /// One tenant's.
    Tenant(&'s TenantName),
    /// The deployment's own.
    Deployment,
    /// Everybody's, to be read alone.
    Everyone,
}

impl Scope<'_> {
    /// As rows and the engine's row-level security have it.
    pub(in crate::store) fn as_str(&self) -> &str {
        match self {
            Self::Tenant(name) => name.as_str(),
            Self::Deployment => DEPLOYMENT,
            Self::Everyone => "*",
        }
    }
}

/// One of the engines.
pub(in crate::store) enum Engine {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// A parameter of a statement.
#[derive(Clone, Copy)]
pub(in crate::store) enum Arg<'a> {
    Text(&'a str),
    Optional(Option<&'a str>),
    Integer(i64),
    Bytes(&'a [u8]),
}

impl Arg<'_> {
    /// A number that is never negative. None of ours comes near the end of what engines take.
    pub(in crate::store) fn count(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A row of an answer.
pub(in crate::store) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub(in crate::store) fn text(&self, column: &'static str) -> Result<String, Failure> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        found.map_err(|_| Failure::Corrupt(column))
    }

    pub(in crate::store) fn optional(&self, column: &'static str) -> Result<Option<String>, Failure> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        found.map_err(|_| Failure::Corrupt(column))
    }

    pub(in crate::store) fn integer(&self, column: &'static str) -> Result<i64, Failure> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        found.map_err(|_| Failure::Corrupt(column))
    }

    /// A number that is never negative.
    pub(in crate::store) fn count(&self, column: &'static str) -> Result<u64, Failure> {
        u64::try_from(self.integer(column)?).map_err(|_| Failure::Corrupt(column))
    }

    pub(in crate::store) fn bytes(&self, column: &'static str) -> Result<Vec<u8>, Failure> {
        let found = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        found.map_err(|_| Failure::Corrupt(column))
    }
}

/// A transaction. Dropped without a commit, it is rolled back with the connection that it had.
pub(in crate::store) struct Tx {
    connection: Connection,
    /// How long one statement may take.
    patience: Duration,
    open: bool,
}

enum Connection {
    Sqlite(PoolConnection<sqlx::Sqlite>),
    Postgres(PoolConnection<sqlx::Postgres>),
}

/// Binds every argument in turn.
macro_rules! bound {
    ($sql:expr, $args:expr) => {
        $args.iter().fold(sqlx::query($sql), |query, arg| match *arg {
            Arg::Text(text) => query.bind(text),
            Arg::Optional(text) => query.bind(text),
            Arg::Integer(number) => query.bind(number),
            Arg::Bytes(bytes) => query.bind(bytes),
        })
    };
}

impl Tx {
    /// Runs a statement; how many rows it touched.
    pub(in crate::store) async fn run(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, Failure> {
        let patience = self.patience;
        match &mut self.connection {
            Connection::Sqlite(connection) => {
                let done = within(patience, bound!(sql, args).execute(&mut **connection)).await?;
                Ok(done.rows_affected())
            }
            Connection::Postgres(connection) => {
                let done = within(patience, bound!(sql, args).execute(&mut **connection)).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Runs a statement; the rows that it gives.
    pub(in crate::store) async fn rows(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let patience = self.patience;
        match &mut self.connection {
            Connection::Sqlite(connection) => {
                let rows = within(patience, bound!(sql, args).fetch_all(&mut **connection)).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Connection::Postgres(connection) => {
                let rows = within(patience, bound!(sql, args).fetch_all(&mut **connection)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The first row that a statement gives, if any.
    pub(in crate::store) async fn row(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<Row>, Failure> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Waits until no other writer is between here and its end: what they number becomes visible in
    /// the numbers' order.
    pub(in crate::store) async fn queue(&mut self) -> Result<(), Failure> {
        match self.connection {
            // It has one writer.
            Connection::Sqlite(_) => Ok(()),
            Connection::Postgres(_) => self.rows(postgres::QUEUE, &[]).await.map(drop),
        }
    }

    /// Wakes the processes that listen, when the transaction is written.
    pub(in crate::store) async fn wake(&mut self) -> Result<(), Failure> {
        match self.connection {
            // It has one process.
            Connection::Sqlite(_) => Ok(()),
            Connection::Postgres(_) => self.rows(postgres::WAKE, &[]).await.map(drop),
        }
    }

    /// Ends the transaction for good.
    pub(in crate::store) async fn commit(mut self) -> Result<(), Failure> {
        self.run("commit", &[]).await.map_err(Failure::at_commit)?;
        self.open = false;
        Ok(())
    }

    /// Ends the transaction as if it had never been. Where that fails the connection goes, to the same end.
    pub(in crate::store) async fn rollback(mut self) {
        self.open = self.run("rollback", &[]).await.is_err();
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.open {
            match &mut self.connection {
                Connection::Sqlite(connection) => connection.close_on_drop(),
                Connection::Postgres(connection) => connection.close_on_drop(),
            }
        }
    }
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Failure> {
    match timeout(patience, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Failure::late()),
    }
}

impl Engine {
    /// A transaction that writes, about `scope`.
    pub(in crate::store) async fn write(&self, scope: Scope<'_>) -> Result<Tx, Failure> {
        match self {
            Self::Sqlite(sqlite) => sqlite.write().await,
            Self::Postgres(postgres) => postgres.begin("begin", scope).await,
        }
    }

    /// A transaction that reads `scope` as it was at one moment.
    pub(in crate::store) async fn read(&self, scope: Scope<'_>) -> Result<Tx, Failure> {
        match self {
            Self::Sqlite(sqlite) => sqlite.read().await,
            Self::Postgres(postgres) => {
                postgres.begin("begin isolation level repeatable read read only", scope).await
            }
        }
    }
}
