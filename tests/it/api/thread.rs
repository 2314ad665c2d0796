//! From nothing to a call, by an operator's key alone; and that a secret's value is nowhere to be seen.

use serde_json::json;

use crate::api::Deployment;
use crate::api::Operator;
use crate::api::refusal;
use crate::api::tenant;
use crate::harness::database::Database;
use crate::harness::database::Outage;
use crate::harness::issuer::Issuer;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_writes_is_called_from_sqlite() {
    Box::pin(what_an_operator_writes_is_called(Database::sqlite().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_writes_is_called_from_postgres() {
    Box::pin(what_an_operator_writes_is_called(Database::postgres().await)).await;
}

/// ADM-11.
async fn what_an_operator_writes_is_called(database: Database) {
    let (issuer, upstream) = (Issuer::start("").await, Upstream::start().await);
    let deployment = Deployment::on(database).await;
    let root = &deployment.root;
    let mut answers = Vec::new();
    let made = root.post("/tenants", &tenant("acme", &issuer)).await;
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/tenants/acme")));
    answers.push(made);
    let secret = json!({"name": "crm-token", "value": "canary-one"});
    let made = root.post("/tenants/acme/secrets", &secret).await;
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/tenants/acme/secrets/crm-token")));
    answers.push(made);
    let document = json!({
        "kind": "mcp", "url": upstream.url(), "era": "modern",
        "credential": {"kind": "bearer", "secret": "crm-token"},
    });
    let made = root.post("/tenants/acme/backends", &json!({"name": "crm", "document": document})).await;
    assert_eq!((made.status, made.header("etag")), (201, Some("\"3\"")), "{}", made.text());
    answers.push(made);
    let alice = deployment.caller(&issuer, "acme");
    let sent = async || {
        let answer = alice.call_tool("crm_echo", json!({})).await;
        let requests = upstream.requests();
        let last = requests.last().map(|last| last.header("authorization").join(","));
        (answer.status, last.unwrap_or_default())
    };
    eventually("the tool is called", async || sent().await == (200, "Bearer canary-one".to_owned())).await;

    let path = "/tenants/acme/secrets/crm-token";
    let state = answers[1].header("etag").unwrap().to_owned();
    let same = root.put(path, &state, &json!({"value": "canary-one"})).await;
    assert_eq!((same.status, same.header("etag")), (200, Some(&*state)), "{}", same.text());
    let other = root.put(path, &state, &json!({"value": "canary-two"})).await;
    assert_eq!((other.status, other.header("etag")), (200, Some("\"4\"")), "{}", other.text());
    eventually("the new value is sent", async || sent().await.1 == "Bearer canary-two").await;
    answers.extend([same, other]);
    // Whatever is wrong with a value, the value is not what is told.
    for value in [json!("canary\nthree"), json!(["canary"]), json!("canary".repeat(5000))] {
        let refused = root.put(path, "*", &json!({"value": value})).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        answers.push(refused);
    }
    let in_use = root.delete(path, "*").await;
    assert_eq!(in_use.status, 409, "{}", in_use.text());
    assert_eq!(in_use.message()["errors"][0]["path"], "backends/crm");
    answers.push(in_use);
    for path in ["/tenants/acme/secrets", path, "/tenants/acme/audit", "/audit", "/tenants/acme/backends"] {
        let answer = root.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answers.push(answer);
    }
    let said = answers.iter().map(|answer| answer.text()).collect::<String>();
    assert!(!said.contains("canary"), "{said}");
    assert!(!deployment.serving.log().contains("canary"), "{}", deployment.serving.log());
    let everything = deployment.database.everything().await;
    assert!(!everything.windows(6).any(|bytes| bytes == b"canary"));
    // The search would find it: names are there as they are.
    assert!(everything.windows(9).any(|bytes| bytes == b"crm-token"));
    assert!(deployment.serving.process.terminate().await.success());
}

/// F21, STO-03: what the API says while its database is away.
#[tokio::test(flavor = "multi_thread")]
async fn writes_are_refused_while_the_database_is_away() {
    let database = Database::postgres().await;
    let outage = Outage::of(&database).await;
    let url = database.through(outage.port());
    let variables = [("FONDACO_DATABASE__URL", url.as_str()), ("FONDACO_LIMITS__DATABASE_WAIT", "300ms")];
    let deployment = Deployment::on_with(database, &variables).await;
    let root = &deployment.root;
    let body = json!({"name": "acme", "document": {}});
    outage.begin();
    let key = [("idempotency-key", "one")];
    let answers = [
        root.get("/tenants").await,
        root.ask("POST", "/tenants", &key, Some(&body)).await,
        root.delete("/tenants/acme", "*").await,
    ];
    for answer in answers {
        assert_eq!(refusal(&answer), (503, "away".into(), vec![]));
        assert_eq!(answer.header("retry-after"), Some("1"));
        let said = [answer.text(), deployment.serving.log()].concat();
        assert!(!said.contains("postgres://") && !said.contains(&outage.port().to_string()), "{said}");
    }
    // A key that cannot be one asks nothing of the database, and is refused all the same.
    let nobody = Operator { key: "fdo_x".to_owned(), ..root.clone() };
    assert_eq!(nobody.get("/tenants").await.status, 401);
    outage.end();
    let made = async || root.ask("POST", "/tenants", &key, Some(&body)).await.status == 201;
    eventually("it is made", made).await;
    assert!(made().await);
    assert_eq!(root.get("/tenants/acme/audit").await.message()["items"].as_array().unwrap().len(), 1);
}
