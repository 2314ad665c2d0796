//! The schema's history, forward only. A migration that was released is never edited: a process
//! compares what was applied with what it knows.

use sqlx::SqlSafeStr;
use sqlx::migrate::Migration;
use sqlx::migrate::MigrationType;
use sqlx::migrate::Migrator;

/// Number and name of each, and its text for both engines.
const ALL: [(i64, &str, &str, &str); 1] = [(
    1,
    "tenants",
    include_str!("../../migrations/sqlite/0001_tenants.sql"),
    include_str!("../../migrations/postgres/0001_tenants.sql"),
)];

/// Those of SQLite.
pub(super) fn sqlite() -> Migrator {
    migrator(|(_, _, sqlite, _)| sqlite)
}

/// Those of PostgreSQL.
pub(super) fn postgres() -> Migrator {
    migrator(|(_, _, _, postgres)| postgres)
}

type Entry = (i64, &'static str, &'static str, &'static str);

fn migrator(text: fn(Entry) -> &'static str) -> Migrator {
    let migrations = ALL.map(|entry| {
        let (number, name, _, _) = entry;
        Migration::new(number, name.into(), MigrationType::Simple, text(entry).into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.into())
}
