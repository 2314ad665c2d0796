//! A process that is killed while it writes: what it acknowledged is there (F18, STO-03).
//!
//! The test starts itself again as the writer, which says each write when it was acknowledged.
//! FONDACO_TEST_WRITES is how many are acknowledged before the test is content.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use fondaco::config::database::PostgresUrl;
use fondaco::model::chance;
use fondaco::model::clock::Clock;
use fondaco::model::limits::Limits;
use fondaco::seal::KeyRing;
use fondaco::store::Store;
use fondaco::store::audit::Verdict;
use tokio::process::Command;

use crate::harness::database::Database;
use crate::harness::database::KEY;
use crate::harness::process::Process;
use crate::store::backend;
use crate::store::now;
use crate::store::tenant;
use crate::store::write;

/// Names the database to the test as a writer.
const WRITER: &str = "FONDACO_TEST_WRITER";

/// Writes backends from this number on.
const FIRST: &str = "FONDACO_TEST_FIRST";

/// Acknowledged writes of one run.
const WRITES: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_has_every_acknowledged_write() {
    has_every_acknowledged_write(async || Database::sqlite().await, "store::killing::sqlite_has").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_has_every_acknowledged_write() {
    has_every_acknowledged_write(async || Database::postgres().await, "store::killing::postgres_has").await;
}

async fn has_every_acknowledged_write(make: impl AsyncFn() -> Database, test: &str) {
    let test = format!("{test}_every_acknowledged_write");
    if let Ok(place) = std::env::var(WRITER) {
        return write_on(&place).await;
    }
    let database = make().await;
    let store = database.open().await;
    now(store.tenants().create(&write(), &tenant("acme"), "{}", &BTreeSet::new()).await.unwrap());
    store.close().await;
    drop(store);
    let wanted = std::env::var("FONDACO_TEST_WRITES").map_or(WRITES, |text| text.parse().unwrap());
    let mut acknowledged: Vec<u64> = Vec::new();
    while acknowledged.len() < wanted {
        let first = acknowledged.last().map_or(0, |last| last + 100);
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args([&test, "--exact", "--nocapture"]).stderr(Stdio::null());
        writer.env(WRITER, database.writer()).env(FIRST, first.to_string());
        let mut writer = Process::start(&mut writer);
        let some = 20 + chance::word() % (wanted as u64 / 4).max(1);
        for _ in 0..some {
            acknowledged.push(writer.line("acknowledged ").await.parse().unwrap());
        }
        // At any moment of the writes after that.
        tokio::time::sleep(std::time::Duration::from_micros(chance::word() % 3000)).await;
        writer.signal("KILL");
        // What it said until then counts, too.
        acknowledged
            .extend(writer.rest("acknowledged ").await.iter().map(|text| text.parse::<u64>().unwrap()));
    }
    let store = database.open().await;
    let mut there = BTreeSet::new();
    let mut after = None;
    loop {
        let page = store.backends().list(&tenant("acme"), after, 500).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        there.extend(page.iter().map(|placed| placed.backend.name.as_str()[1..].parse::<u64>().unwrap()));
    }
    let lost: Vec<_> = acknowledged.iter().filter(|number| !there.contains(number)).collect();
    assert!(lost.is_empty(), "{lost:?} of {}", acknowledged.len());
    // Each that is there is recorded, once, and nothing else is.
    let sql = "select count(*) from audit a join backends b on a.object = 'backends/' || b.name";
    assert_eq!(database.count(sql).await, there.len() as i64);
    let verdict = store.audit().verify(Some(&tenant("acme"))).await.unwrap();
    assert!(
        matches!(verdict, Verdict::Whole { entries, .. } if entries == 1 + there.len() as u64),
        "{verdict:?}"
    );
    if store.is_embedded() {
        let sql = "select count(*) from pragma_integrity_check where integrity_check = 'ok'";
        assert_eq!(database.count(sql).await, 1);
    }
}

/// Writes until it is killed.
async fn write_on(place: &str) {
    let (keys, limits) = (Arc::new(KeyRing::parse(KEY).unwrap()), Arc::new(Limits::default()));
    let store = match place.strip_prefix("file:") {
        Some(dir) => Store::embedded(Path::new(dir), keys, Clock::default(), limits).await.unwrap(),
        None => {
            let url = PostgresUrl { url: place.to_owned().into(), password: None };
            Store::server(&url, keys, Clock::default(), limits).unwrap()
        }
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    for number in first.. {
        let name = backend(&format!("b{number}"));
        now(store.backends().create(&write(), &tenant("acme"), &name, "{}").await.unwrap());
        say(number);
    }
}

#[expect(clippy::print_stdout, reason = "the test that started it reads this")]
fn say(number: u64) {
    println!("acknowledged {number}");
}
