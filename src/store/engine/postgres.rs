//! PostgreSQL, 15 and later: many processes, row-level security, and a word to all of them when
//! something changes.

use std::str::FromStr;
use std::time::Duration;

use secrecy::ExposeSecret;
use sqlx::ConnectOptions as _;
use sqlx::Connection as _;
use sqlx::PgConnection;
use sqlx::PgPool;
use sqlx::migrate::Migrate as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::postgres::PgListener;
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

use crate::config::database::PostgresUrl;
use crate::model::limits::Limits;
use crate::store::OpenError;
use crate::store::engine::Arg;
use crate::store::engine::Connection;
use crate::store::engine::Failure;
use crate::store::engine::Scope;
use crate::store::engine::Tx;

/// Writers take numbers of changes one after another. The number is a lock's name, ours in this database.
pub(super) const QUEUE: &str = "select pg_advisory_xact_lock(7308324465910541668)";

/// Who migrates and grants waits for who does so already.
const ONE_BY_ONE: &str = "select pg_advisory_lock(7308324465910541669)";

/// Wakes those who listen, once the transaction is written.
pub(super) const WAKE: &str = "select pg_notify('fondaco', '')";

const CHANNEL: &str = "fondaco";

/// The table that says which migrations are applied.
const MIGRATIONS: &str = "_sqlx_migrations";

/// The connections to a server.
pub(in crate::store) struct Postgres {
    pool: PgPool,
    patience: Duration,
}

impl Postgres {
    /// Connections to the database at `url`, made when they are needed.
    pub(in crate::store) fn new(url: &PostgresUrl, limits: &Limits) -> Result<Self, OpenError> {
        let patience = limits.statement_time;
        let millis = patience.as_millis().to_string();
        let options = options(url)?.options([
            ("statement_timeout", millis.as_str()),
            ("lock_timeout", millis.as_str()),
            ("idle_in_transaction_session_timeout", millis.as_str()),
            // The server looks after clients that are gone without a word.
            ("tcp_keepalives_idle", "30"),
            ("tcp_keepalives_interval", "10"),
            ("tcp_keepalives_count", "3"),
        ]);
        let wait = limits.database_wait;
        // One more for the listener.
        let most = u32::try_from(limits.database_connections).unwrap_or(u32::MAX).saturating_add(1);
        let pool = PgPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(wait)
            .test_before_acquire(false)
            // The pool's own test waits for ever for a server that fell silent.
            .before_acquire(move |connection, _| {
                let pong = timeout(wait / 3, connection.ping());
                Box::pin(async move { Ok(pong.await.is_ok_and(|pong| pong.is_ok())) })
            })
            .connect_lazy_with(options);
        Ok(Self { pool, patience: patience + wait })
    }

    pub(super) async fn begin(&self, how: &'static str, scope: Scope<'_>) -> Result<Tx, Failure> {
        let connection = Connection::Postgres(self.pool.acquire().await?);
        let mut tx = Tx { connection, patience: self.patience, open: true };
        tx.run(how, &[]).await?;
        tx.rows("select set_config('fondaco.tenant', $1, true)", &[Arg::Text(scope.as_str())]).await?;
        Ok(tx)
    }

    /// Who hears of changes, from now on.
    pub(in crate::store) async fn listener(&self) -> Result<PgListener, Failure> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }

    /// Refuses a schema that is not the one that `migrator` makes.
    pub(in crate::store) async fn check(&self, migrator: &Migrator) -> Result<(), OpenError> {
        let mut connection = self.pool.acquire().await.map_err(|error| OpenError::away(&error))?;
        let there = sqlx::query("select to_regclass($1)::text")
            .bind(MIGRATIONS)
            .fetch_one(&mut *connection)
            .await
            .and_then(|row| sqlx::Row::try_get::<Option<String>, _>(&row, 0))
            .map_err(|error| OpenError::away(&error))?;
        let applied = match there {
            Some(_) => {
                connection.list_applied_migrations(MIGRATIONS).await.map_err(|error| OpenError::of(&error))?
            }
            None => Vec::new(),
        };
        for applied in &applied {
            match migrator.iter().find(|known| known.version == applied.version) {
                Some(known) if known.checksum == applied.checksum => {}
                Some(_) => return Err(OpenError::Changed(applied.version)),
                None => return Err(OpenError::Newer(applied.version)),
            }
        }
        if applied.len() < migrator.iter().count() { Err(OpenError::Older) } else { Ok(()) }
    }

    /// Brings the schema at `url` up to date, one process at a time, and lets `role` use it.
    pub(in crate::store) async fn migrate(
        url: &PostgresUrl,
        migrator: &Migrator,
        role: Option<&str>,
    ) -> Result<(), OpenError> {
        let mut connection =
            PgConnection::connect_with(&options(url)?).await.map_err(|error| OpenError::away(&error))?;
        sqlx::raw_sql(ONE_BY_ONE).execute(&mut connection).await.map_err(|error| OpenError::away(&error))?;
        let migrated = migrator.run(&mut connection).await.map_err(|error| OpenError::of(&error));
        let granted = match (&migrated, role) {
            (Ok(()), Some(role)) => {
                grant(&mut connection, role).await.map_err(|error| OpenError::away(&error))
            }
            _ => Ok(()),
        };
        // The lock goes with the connection, whatever happened.
        let _ = connection.close().await;
        migrated.and(granted)
    }

    /// Ends every connection.
    pub(in crate::store) async fn close(&self) {
        self.pool.close().await;
    }
}

fn options(url: &PostgresUrl) -> Result<PgConnectOptions, OpenError> {
    let options = PgConnectOptions::from_str(url.url.expose_secret()).map_err(|_| OpenError::Url)?;
    let options = options.application_name("fondaco").disable_statement_logging();
    Ok(match &url.password {
        Some(password) => options.password(password.expose_secret()),
        None => options,
    })
}

/// What a role that serves may do, and nothing else: what is recorded can only be added to.
const GRANTS: [&str; 4] = [
    "grant select, insert, update, delete on revisions, tenants, issuers, claims, backends, secrets, \
     operators, answers, changes to %1$I",
    "grant select, insert on audit to %1$I",
    "grant select on _sqlx_migrations to %1$I",
    "grant usage on schema %2$I to %1$I",
];

async fn grant(connection: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    for form in GRANTS {
        let written = sqlx::query("select format($1, $2, current_schema())").bind(form).bind(role);
        let row = written.fetch_one(&mut *connection).await?;
        let statement: String = sqlx::Row::try_get(&row, 0)?;
        // The server wrote the role's name as a name.
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}
