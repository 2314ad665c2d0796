//! What PostgreSQL has of its own: row-level security, several processes, and connections that go.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco::store::Store;
use fondaco::store::answers::Answer;
use fondaco::store::answers::Once;
use fondaco::store::changes::What;
use fondaco::store::error::OpenError;
use fondaco::store::error::StoreError;
use fondaco::store::write::Write;
use sqlx::Connection;
use sqlx::Row;
use tokio_util::sync::CancellationToken;

use crate::harness::database::Database;
use crate::store::backend;
use crate::store::now;
use crate::store::tenant;
use crate::store::write;

/// Every table that has rows of tenants, by its name.
const GUARDED: [&str; 4] = ["answers", "audit", "backends", "secrets"];

async fn seen(connection: &mut sqlx::PgConnection, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query(sql).fetch_one(connection).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_tenant_there_are_no_rows() {
    let database = Database::postgres().await;
    let store = database.open().await;
    for name in ["acme", "beta"] {
        now(store.tenants().create(&write(), &tenant(name), "{}", &BTreeSet::new()).await.unwrap());
        now(store.backends().create(&write(), &tenant(name), &backend("crm"), "{}").await.unwrap());
        now(store.secrets().create(&write(), &tenant(name), "token", &"v".into()).await.unwrap());
    }
    let mut serve = database.as_serve().await;
    let set = |name: &str| sqlx::query("select set_config('fondaco.tenant', $1, true)").bind(name.to_owned());
    for guarded in ["backends", "secrets", "audit"] {
        assert_eq!(seen(&mut serve, guarded).await, 0, "{guarded}");
        let mut tx = serve.begin().await.unwrap();
        set("acme").execute(&mut *tx).await.unwrap();
        let own = if guarded == "audit" { 3 } else { 1 };
        assert_eq!(seen(&mut tx, guarded).await, own, "{guarded}");
        let sql = sqlx::AssertSqlSafe(format!("select count(*) from {guarded} where tenant = 'beta'"));
        let foreign: i64 = sqlx::query(sql).fetch_one(&mut *tx).await.unwrap().get(0);
        assert_eq!(foreign, 0, "{guarded}");
        tx.commit().await.unwrap();
        // What a transaction said does not stay behind in its session.
        assert_eq!(seen(&mut serve, guarded).await, 0, "{guarded}");
    }
    // Rows of another cannot be made, changed or taken.
    for sql in [
        "insert into secrets (tenant, name, sealed, revision, created, changed) values ('beta', 'x', '', 1, 1, 1)",
        "update secrets set tenant = 'beta'",
    ] {
        let mut tx = serve.begin().await.unwrap();
        set("acme").execute(&mut *tx).await.unwrap();
        let refused = sqlx::raw_sql(sql).execute(&mut *tx).await.unwrap_err();
        assert!(refused.to_string().contains("row-level security"), "{refused}");
    }
    for (scope, sql) in [("acme", "delete from secrets where tenant = 'beta'"), ("*", "delete from secrets")]
    {
        let mut tx = serve.begin().await.unwrap();
        set(scope).execute(&mut *tx).await.unwrap();
        assert_eq!(sqlx::raw_sql(sql).execute(&mut *tx).await.unwrap().rows_affected(), 0, "{sql}");
    }
    // What is recorded can only be added to.
    for sql in ["update audit set actor = 'x'", "delete from audit", "truncate audit"] {
        let refused = sqlx::raw_sql(sql).execute(&mut serve).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_is_guarded() {
    let database = Database::postgres().await;
    let mut serve = database.as_serve().await;
    let sql = "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace \
               where n.nspname = 'public' and c.relkind = 'r' and c.relrowsecurity and c.relforcerowsecurity \
               order by 1";
    let rows = sqlx::query(sql).fetch_all(&mut serve).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>(), GUARDED);
    // The others with such a column are the deployment's own registry.
    let sql = "select table_name::text from information_schema.columns \
               where table_schema = 'public' and column_name = 'tenant' order by 1";
    let rows = sqlx::query(sql).fetch_all(&mut serve).await.unwrap();
    let all: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let registry = ["changes", "claims", "operators", "revisions"];
    let expected: BTreeSet<&str> = GUARDED.into_iter().chain(registry).collect();
    assert_eq!(all.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    let sql = "select rolsuper or rolbypassrls from pg_roles where rolname = current_user";
    assert!(!sqlx::query(sql).fetch_one(&mut serve).await.unwrap().get::<bool, _>(0));
}

/// STO-10.
#[tokio::test(flavor = "multi_thread")]
async fn two_may_migrate_at_once() {
    let database = Database::empty().await;
    let store = database.open().await;
    assert!(matches!(store.check().await, Err(OpenError::Older)));
    let url = database.owner();
    let ends =
        futures_util::future::join_all((0..4).map(|_| Store::migrate(&url, Some("fondaco_test_serve"))))
            .await;
    ends.into_iter().for_each(|end| end.unwrap());
    store.check().await.unwrap();
    assert_eq!(database.count("select count(*) from _sqlx_migrations").await, 1);
    for (edit, newer) in [("version = 2", true), ("version = 1, checksum = '\\x00'", false)] {
        database.sql(&format!("update _sqlx_migrations set {edit}")).await;
        let refused = store.check().await.unwrap_err();
        match refused {
            OpenError::Newer(2) => assert!(newer),
            OpenError::Changed(1) => assert!(!newer),
            other => panic!("{other:?}"),
        }
    }
}

/// STO-02: a connection that is ended in the midst of a write.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_connection_is_ended_is_tried_again() {
    let database = Database::postgres().await;
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    let end_all = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and usename = 'fondaco_test_serve'";
    // Its first statement waits for the tenant's lock, which somebody else has.
    let mut holder = database.as_serve().await;
    sqlx::raw_sql("begin; select * from revisions for update").execute(&mut holder).await.unwrap();
    let waiting = tokio::spawn({
        let (store, acme) = (store.clone(), acme.clone());
        async move { store.backends().create(&write(), &acme, &backend("crm"), "{}").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(database.count(end_all).await >= 2);
    now(waiting.await.unwrap().unwrap());
    assert_eq!(store.audit().list(Some(&acme), None, 9).await.unwrap().len(), 2);

    // Under fire: what is acknowledged is there, once; what is not is told as busy or unknown.
    let mut acknowledged = 0;
    let mut unknown = 0;
    for round in 0..60 {
        let name = backend(&format!("b{round}"));
        let killed = database.count(end_all);
        let (backends, by) = (store.backends(), write());
        let (_, written) = tokio::join!(killed, backends.create(&by, &acme, &name, "{}"));
        let there = store.backends().get(&acme, &name).await;
        let there = match there {
            Ok(there) => there.is_some(),
            Err(_) => store.backends().get(&acme, &name).await.unwrap().is_some(),
        };
        match written {
            Ok(_) => {
                assert!(there, "round {round}");
                acknowledged += 1;
            }
            Err(StoreError::Busy(_)) => assert!(!there, "round {round}"),
            Err(StoreError::Unknown(_)) => unknown += 1,
            Err(other) => panic!("round {round}: {other:?}"),
        }
    }
    assert!(acknowledged > 0);
    let rows = database.count("select count(*) from backends where name like 'b%'").await;
    assert!(rows >= acknowledged && rows <= acknowledged + unknown, "{rows} {acknowledged} {unknown}");
    let recorded = database.count("select count(*) from audit where object like 'backends/b%'").await;
    assert_eq!(recorded, rows);
}

/// F22, STO-03: who asks again under the same key writes once.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_asked_for_again_is_written_once() {
    let database = Database::postgres().await;
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    let end_all = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and usename = 'fondaco_test_serve'";
    let answer = |revision| Answer { status: 201, body: String::new(), revision };
    for round in 0..40 {
        let (key, name) = (format!("k{round}"), backend(&format!("b{round}")));
        let once = Once { key: &key, request: b"r", answer: &answer };
        let (backends, by) = (store.backends(), Write { once: Some(once), ..write() });
        for attempt in 0.. {
            let killed = database.count(end_all);
            let (_, written) = tokio::join!(killed, backends.create(&by, &acme, &name, "{}"));
            match written {
                Ok(_) => break,
                Err(StoreError::Busy(_) | StoreError::Unknown(_)) => assert!(attempt < 50, "round {round}"),
                Err(other) => panic!("round {round}: {other:?}"),
            }
        }
    }
    assert_eq!(database.count("select count(*) from backends").await, 40);
    assert_eq!(database.count("select count(*) from audit where action = 'backend.create'").await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_in_time_is_told_as_busy() {
    let mut database = Database::postgres().await;
    database.limits.statement_time = Duration::from_millis(100);
    let store = database.open().await;
    let acme = tenant("acme");
    now(store.tenants().create(&write(), &acme, "{}", &BTreeSet::new()).await.unwrap());
    let mut holder = database.as_serve().await;
    sqlx::raw_sql("begin; select * from revisions for update").execute(&mut holder).await.unwrap();
    let busy = store.backends().create(&write(), &acme, &backend("crm"), "{}").await;
    assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
    let said = format!("{busy:?} {}", busy.as_ref().unwrap_err());
    assert!(!said.contains("insert") && !said.contains("revisions") && !said.contains("postgres:"), "{said}");
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    now(store.backends().create(&write(), &acme, &backend("crm"), "{}").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_hears_of_a_change() {
    let mut database = Database::postgres().await;
    // So long that only the word itself can be in time.
    database.limits.changes_time = Duration::from_secs(30);
    let (writer, reader) = (database.open().await, database.open().await);
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (reader, stop) = (reader.clone(), stop.clone());
        async move { reader.follow(stop).await }
    });
    let mut told = reader.changes();
    // It listens once its connection is there.
    crate::harness::wait::eventually("somebody listens", async || {
        database.count("select count(*) from pg_stat_activity where query like 'LISTEN%'").await > 0
    })
    .await;
    for round in 0..20 {
        let name = tenant(&format!("t{round}"));
        told.mark_unchanged();
        now(writer.tenants().create(&write(), &name, "{}", &BTreeSet::new()).await.unwrap());
        tokio::time::timeout(Duration::from_secs(2), told.changed())
            .await
            .expect("it heard nothing")
            .unwrap();
    }
    let all = reader.changed_since(0).await.unwrap();
    assert!(matches!(&all.what, What::Tenants(names) if names.len() == 20), "{all:?}");
    stop.cancel();
    following.await.unwrap();
}
