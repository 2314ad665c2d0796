//! What SQLite has of its own: one process, and files that only their owner may read.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use fondaco::model::clock::Clock;
use fondaco::model::limits::Limits;
use fondaco::seal::KeyRing;
use fondaco::store::Store;
use fondaco::store::error::OpenError;
use fondaco::store::error::StoreError;

use crate::harness::database::Database;
use crate::harness::database::KEY;
use crate::store::backend;
use crate::store::now;
use crate::store::tenant;
use crate::store::write;

async fn open(database: &Database) -> Result<Store, OpenError> {
    let keys = Arc::new(KeyRing::parse(KEY).unwrap());
    Store::embedded(database.dir.path(), keys, Clock::default(), Arc::new(Limits::default())).await
}

#[tokio::test]
async fn one_process_has_it_at_a_time() {
    let database = Database::sqlite().await;
    let store = database.open().await;
    let refused = open(&database).await.unwrap_err();
    assert!(matches!(refused, OpenError::InUse(_)), "{refused:?}");
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
    store.close().await;
    drop(store);
    open(&database).await.unwrap();
}

#[tokio::test]
async fn its_files_are_its_owners_alone() {
    let database = Database::sqlite().await;
    let store = database.open().await;
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &BTreeSet::new()).await.unwrap());
    let mut seen = 0;
    for file in std::fs::read_dir(database.dir.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", file.path());
        seen += 1;
    }
    // The database, its log, its index and the lock.
    assert_eq!(seen, 4);
}

/// STO-10: an older program does not touch what a newer one made.
#[tokio::test]
async fn a_schema_that_is_not_known_is_refused() {
    for (edit, known) in [
        ("update _sqlx_migrations set version = 9999", false),
        ("update _sqlx_migrations set checksum = x'00'", false),
        ("select 1", true),
    ] {
        let database = Database::sqlite().await;
        let store = database.open().await;
        store.close().await;
        drop(store);
        database.sql(edit).await;
        match open(&database).await {
            Ok(_) => assert!(known, "{edit}"),
            Err(OpenError::Newer(9999) | OpenError::Changed(1)) => assert!(!known, "{edit}"),
            Err(other) => panic!("{edit}: {other:?}"),
        }
    }
}

/// STO-08.
#[tokio::test]
async fn a_writer_that_is_held_up_is_told_so() {
    let mut database = Database::sqlite().await;
    database.limits.statement_time = std::time::Duration::from_millis(100);
    let store = database.open().await;
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &BTreeSet::new()).await.unwrap());
    let mut other = sqlx::SqlitePool::connect_lazy_with(
        sqlx::sqlite::SqliteConnectOptions::new().filename(database.dir.path().join("fondaco.db")),
    )
    .acquire()
    .await
    .unwrap();
    sqlx::query("begin immediate").execute(&mut *other).await.unwrap();
    let busy = store.backends().create(&write(), &tenant("acme"), &backend("crm"), "{}").await;
    assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
    // Those who read go on.
    assert!(store.tenant(&tenant("acme")).await.unwrap().is_some());
    sqlx::query("rollback").execute(&mut *other).await.unwrap();
    now(store.backends().create(&write(), &tenant("acme"), &backend("crm"), "{}").await.unwrap());
    assert_eq!(database.count("select count(*) from audit").await, 2);
}
