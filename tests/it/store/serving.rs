//! Serving from the database, through the front door.

use std::collections::BTreeSet;
use std::time::Duration;

use fondaco::config::Settings;
use fondaco::model::clock::Clock;
use fondaco::serve::Listeners;
use fondaco::serve::Server;
use fondaco::store::Store;
use fondaco::store::error::StoreError;
use secrecy::SecretString;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::database::Database;
use crate::harness::database::Outage;
use crate::harness::gateway::Caller;
use crate::harness::issuer::Issuer;
use crate::harness::serving::Serving;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::store::backend;
use crate::store::now;
use crate::store::tenant;
use crate::store::write;

/// A backend of ours, under its name.
fn demo(prefix: &str) -> String {
    json!({"kind": "demo", "prefix": prefix}).to_string()
}

/// Writes a shared issuer, and tenant `acme` with one backend, whose tool is `add`.
async fn fill(store: &Store, issuer: &Issuer) {
    let shared = json!({"issuer": issuer.url(), "tenant_claim": "tenant"}).to_string();
    now(store.issuers().create(&write(), issuer.url(), &shared).await.unwrap());
    let document = json!({"issuers": [{"shared": issuer.url()}]}).to_string();
    now(store.tenants().create(&write(), &tenant("acme"), &document, &BTreeSet::new()).await.unwrap());
    now(store.backends().create(&write(), &tenant("acme"), &backend("demo"), &demo("")).await.unwrap());
}

/// `fondaco serve` on the database.
async fn serving(database: &Database, more: &[(&str, &str)]) -> Serving {
    let variables = database.variables();
    let mut variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    variables.push(("FONDACO_TENANTS", ""));
    variables.extend(more);
    Serving::start("", &variables).await
}

fn alice(serving: &Serving, issuer: &Issuer) -> Caller {
    let audience = format!("http://{}/mcp", serving.addr);
    let token = issuer.token(&audience, Clock::default().now());
    Caller { addr: serving.addr, path: "/mcp".to_owned(), token }
}

/// Whether a call of this tool has the right result.
async fn adds(caller: &Caller, tool: &str) -> bool {
    let answer = caller.call_tool(tool, json!({"a": 2, "b": 3})).await;
    answer.status == 200 && answer.message()["result"]["structuredContent"]["result"] == 5
}

async fn status(serving: &Serving, path: &str) -> u16 {
    wire::request(serving.admin, "GET", path, &[], b"").await.status
}

async fn is_ready(serving: &Serving) {
    eventually("it is ready", async || status(serving, "/readyz").await == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_tenants_tool_is_called_from_sqlite() {
    let (database, issuer) = (Database::sqlite().await, Issuer::start("").await);
    let store = database.open().await;
    fill(&store, &issuer).await;
    store.close().await;
    drop(store);
    let serving = serving(&database, &[]).await;
    is_ready(&serving).await;
    assert!(adds(&alice(&serving, &issuer), "add").await);
    assert!(serving.log().contains("\"source\":\"SQLite\""), "{}", serving.log());
    // The database is this process's alone.
    let mut command = crate::harness::process::fondaco();
    command.args(["operator", "list"]).envs(database.variables()).current_dir(serving.dir.path());
    let (succeeded, said) = crate::harness::process::listen(&mut command).await;
    assert!(!succeeded && said.contains("in use by another process"), "{said}");
    assert!(serving.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_sqlite_is_served_at_once() {
    let (database, issuer) = (Database::sqlite().await, Issuer::start("").await);
    let listeners = Listeners::bind(([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = listeners.public.local_addr().unwrap();
    let mut settings = Settings::dev(addr, database.dir.path().to_owned());
    settings.egress.allow = vec!["127.0.0.0/8".to_owned()];
    settings.limits.drain_accept = Duration::ZERO;
    let server = Server::build(settings, listeners, None).await.unwrap();
    let app = server.app().clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async { drop(stopped.await) }));
    let store = app.store.clone().unwrap();
    fill(&store, &issuer).await;
    let token = issuer.token(&format!("http://{addr}/mcp"), Clock::default().now());
    let alice = Caller { addr, path: "/mcp".to_owned(), token };
    eventually("the tool is called", async || adds(&alice, "add").await).await;
    now(store.backends().create(&write(), &tenant("acme"), &backend("more"), &demo("x_")).await.unwrap());
    let begun = Instant::now();
    eventually("the later tool is called", async || adds(&alice, "x_add").await).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    now(store.tenants().delete(&write(), &tenant("acme"), None).await.unwrap());
    eventually("nobody is there", async || alice.rpc("tools/list", json!({})).await.status == 401).await;
    stop.send(()).unwrap();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_backend_is_called_through_another_replica() {
    let (database, issuer) = (Database::postgres().await, Issuer::start("").await);
    let store = database.open().await;
    fill(&store, &issuer).await;
    let (one, two) = (serving(&database, &[]).await, serving(&database, &[]).await);
    is_ready(&one).await;
    is_ready(&two).await;
    let (by_one, by_two) = (alice(&one, &issuer), alice(&two, &issuer));
    assert!(adds(&by_one, "add").await && adds(&by_two, "add").await);
    let mut times = Vec::new();
    for round in 0..20 {
        let (name, tool) = (backend(&format!("b{round}")), format!("p{round}_add"));
        let begun = Instant::now();
        now(store
            .backends()
            .create(&write(), &tenant("acme"), &name, &demo(&format!("p{round}_")))
            .await
            .unwrap());
        for caller in [&by_one, &by_two] {
            eventually("the later tool is called", async || adds(caller, &tool).await).await;
        }
        times.push(begun.elapsed());
    }
    times.sort();
    assert!(times[19] < Duration::from_secs(2), "{times:?}");
    assert_eq!(by_one.tools().await, by_two.tools().await);
}

/// F21, STO-01.
#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_while_the_database_is_away() {
    let (mut database, issuer) = (Database::postgres().await, Issuer::start("").await);
    database.limits.database_wait = Duration::from_millis(300);
    let store = database.open().await;
    fill(&store, &issuer).await;
    let outage = Outage::of(&database).await;
    let url = database.through(outage.port());
    let variables = [("FONDACO_DATABASE__URL", url.as_str()), ("FONDACO_LIMITS__DATABASE_WAIT", "300ms")];

    // It starts without one, and says that nobody should come yet.
    outage.begin();
    let serving = serving(&database, &variables).await;
    assert_eq!((status(&serving, "/livez").await, status(&serving, "/readyz").await), (200, 503));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(status(&serving, "/readyz").await, 503);
    outage.end();
    is_ready(&serving).await;
    let alice = alice(&serving, &issuer);
    assert!(adds(&alice, "add").await);

    outage.begin();
    let told = || serving.log().matches("in the database cannot be read").count();
    eventually("the log tells of the outage", async || {
        assert!(adds(&alice, "add").await);
        told() == 2
    })
    .await;
    assert_eq!(status(&serving, "/readyz").await, 200);
    let metrics = wire::request(serving.admin, "GET", "/metrics", &[], b"").await.text();
    assert!(!metrics.contains("fondaco_tenant_reads_total{outcome=\"failed\"} 0"), "{metrics}");
    // What is written meanwhile, elsewhere, is served soon after its return.
    now(store.backends().create(&write(), &tenant("acme"), &backend("more"), &demo("x_")).await.unwrap());
    assert!(!adds(&alice, "x_add").await);
    outage.end();
    let begun = Instant::now();
    eventually("the later tool is called", async || adds(&alice, "x_add").await).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let log = serving.log();
    assert_eq!(log.matches("the database is there again").count(), 2, "{log}");
    // Neither the URL nor a password is told.
    assert!(!log.contains("postgres://") && !log.contains(&outage.port().to_string()), "{log}");
    assert!(serving.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_are_told_that_the_database_is_away() {
    let (mut database, issuer) = (Database::postgres().await, Issuer::start("").await);
    database.limits.database_wait = Duration::from_millis(300);
    let outage = Outage::of(&database).await;
    let store = database.open_at(&database.through(outage.port()));
    fill(&store, &issuer).await;
    outage.begin();
    let busy = store.tenants().create(&write(), &tenant("beta"), "{}", &BTreeSet::new()).await;
    assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
    let busy = store.tenants().get(&tenant("acme")).await;
    assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
    outage.end();
    now(store.tenants().create(&write(), &tenant("beta"), "{}", &BTreeSet::new()).await.unwrap());
    // A server that takes what is sent and says nothing.
    outage.silence();
    let begun = Instant::now();
    let silent = store.tenants().create(&write(), &tenant("gamma"), "{}", &BTreeSet::new()).await;
    assert!(matches!(silent, Err(StoreError::Busy(_) | StoreError::Unknown(_))), "{silent:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    outage.end();
    now(store.tenants().create(&write(), &tenant("delta"), "{}", &BTreeSet::new()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_does_not_load_stays_what_it_was() {
    let (database, issuer) = (Database::postgres().await, Issuer::start("").await);
    let store = database.open().await;
    fill(&store, &issuer).await;
    now(store.tenants().create(&write(), &tenant("beta"), "{\"x\":1}", &BTreeSet::new()).await.unwrap());
    let serving = serving(&database, &[]).await;
    is_ready(&serving).await;
    let alice = alice(&serving, &issuer);
    assert!(adds(&alice, "add").await);
    assert!(serving.log().contains("tenant `beta` in the database: x: unknown key"), "{}", serving.log());
    let document = json!({"kind": "stdio", "url": "hidden"}).to_string();
    let mut state =
        now(store.backends().create(&write(), &tenant("acme"), &backend("odd"), &document).await.unwrap());
    eventually("the log says what is wrong", async || {
        serving.log().contains("tenant `acme` in the database: backends.odd.kind: found `stdio`")
    })
    .await;
    assert!(adds(&alice, "add").await);
    let metrics = wire::request(serving.admin, "GET", "/metrics", &[], b"").await.text();
    assert!(metrics.contains("fondaco_tenants_refused 2"), "{metrics}");
    state = now(store
        .backends()
        .replace(&write(), &tenant("acme"), &backend("odd"), &demo("o_"), Some(state))
        .await
        .unwrap());
    eventually("it is called", async || adds(&alice, "o_add").await).await;
    now(store.backends().delete(&write(), &tenant("acme"), &backend("odd"), Some(state)).await.unwrap());
    eventually("it is gone", async || !adds(&alice, "o_add").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secrets_value_is_followed_and_stays_where_it_belongs() {
    let (database, issuer) = (Database::postgres().await, Issuer::start("").await);
    let upstream = Upstream::start().await;
    let store = database.open().await;
    fill(&store, &issuer).await;
    let acme = tenant("acme");
    now(store.secrets().create(&write(), &acme, "token", &SecretString::from("canary-one")).await.unwrap());
    let document = json!({
        "kind": "mcp", "url": upstream.url(), "era": "modern",
        "credential": {"kind": "bearer", "secret": "token"},
    });
    now(store.backends().create(&write(), &acme, &backend("crm"), &document.to_string()).await.unwrap());
    let serving = serving(&database, &[]).await;
    is_ready(&serving).await;
    let alice = alice(&serving, &issuer);
    let sent = async || {
        let answer = alice.call_tool("crm_echo", json!({})).await;
        let requests = upstream.requests();
        (
            answer.status,
            requests.last().map(|last| last.header("authorization").join(",")).unwrap_or_default(),
        )
    };
    eventually("the value is sent", async || sent().await == (200, "Bearer canary-one".to_owned())).await;
    now(store.secrets().replace(&write(), &acme, "token", &"canary-two".into(), None).await.unwrap());
    eventually("the new value is sent", async || sent().await.1 == "Bearer canary-two").await;

    // Another tenant's row in its place does not open: the call fails, and no other does.
    now(store.tenants().create(&write(), &tenant("beta"), "{}", &BTreeSet::new()).await.unwrap());
    now(store.secrets().create(&write(), &tenant("beta"), "token", &"canary-three".into()).await.unwrap());
    database
        .sql("update secrets set sealed = (select s.sealed from secrets s where s.tenant = 'beta') where tenant = 'acme'")
        .await;
    now(store.backends().replace(&write(), &acme, &backend("demo"), &demo("d_"), None).await.unwrap());
    eventually("the others are served", async || adds(&alice, "d_add").await).await;
    let before = upstream.requests().len();
    let answer = alice.call_tool("crm_echo", json!({})).await;
    assert_ne!(answer.status, 200, "{}", answer.text());
    assert!(!upstream.requests()[before..].iter().any(|request| request.json()["method"] == "tools/call"));
    assert!(serving.log().contains("a stored secret cannot be used"), "{}", serving.log());
    assert!(!serving.log().contains("canary"), "{}", serving.log());
}
