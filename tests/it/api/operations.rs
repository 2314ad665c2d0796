//! Every operation of the table, as everybody: who may do what. An operation that has no case fails.

use std::collections::BTreeSet;

use fondaco::admin::api::openapi;
use fondaco::admin::api::operations::OPERATIONS;
use fondaco::admin::api::operations::Operation;
use http::Method;
use serde_json::Value;
use serde_json::json;

use crate::api::Deployment;
use crate::api::Operator;
use crate::api::refusal;
use crate::harness::process::root;
use crate::harness::wire;
use crate::harness::wire::Answer;

/// What an operation answers to those who may.
enum Case {
    /// With this status, to this path and, if it takes one, this body.
    Good(&'static str, u16, Value),
}

/// A request of each operation that is good, in an order in which they are good one after the other.
fn cases() -> Vec<(&'static str, Case)> {
    let demo = json!({"kind": "demo"});
    let shared = json!({"issuer": "https://login.example", "tenant_claim": "org"});
    let (name, issuer) = ("/tenants/new", "/issuers/https%3A%2F%2Flogin.example");
    let good = Case::Good;
    vec![
        ("getDescription", good("/openapi.json", 200, Value::Null)),
        ("listIssuers", good("/issuers", 200, Value::Null)),
        ("createIssuer", good("/issuers", 201, json!({"document": shared}))),
        ("getIssuer", good(issuer, 200, Value::Null)),
        ("replaceIssuer", good(issuer, 200, json!({"document": shared}))),
        ("listTenants", good("/tenants", 200, Value::Null)),
        ("createTenant", good("/tenants", 201, json!({"name": "new", "document": {}}))),
        ("getTenant", good(name, 200, Value::Null)),
        ("replaceTenant", good(name, 200, json!({"document": {"legacy": "off"}}))),
        ("listSecrets", good("/tenants/new/secrets", 200, Value::Null)),
        ("createSecret", good("/tenants/new/secrets", 201, json!({"name": "s", "value": "v"}))),
        ("getSecret", good("/tenants/new/secrets/s", 200, Value::Null)),
        ("replaceSecret", good("/tenants/new/secrets/s", 200, json!({"value": "w"}))),
        ("deleteSecret", good("/tenants/new/secrets/s", 204, Value::Null)),
        ("listBackends", good("/tenants/new/backends", 200, Value::Null)),
        ("createBackend", good("/tenants/new/backends", 201, json!({"name": "b", "document": demo}))),
        ("getBackend", good("/tenants/new/backends/b", 200, Value::Null)),
        ("replaceBackend", good("/tenants/new/backends/b", 200, json!({"document": demo}))),
        ("deleteBackend", good("/tenants/new/backends/b", 204, Value::Null)),
        ("listTenantAudit", good("/tenants/new/audit", 200, Value::Null)),
        ("deleteTenant", good(name, 204, Value::Null)),
        ("deleteIssuer", good(issuer, 204, Value::Null)),
        ("listAudit", good("/audit", 200, Value::Null)),
        ("listOperators", good("/operators", 200, Value::Null)),
        ("createOperator", good("/operators", 201, json!({"name": "n", "role": "auditor"}))),
        ("getOperator", good("/operators/{id}", 200, Value::Null)),
        ("deleteOperator", good("/operators/{id}", 204, Value::Null)),
    ]
}

/// Sends a good request of an operation as somebody.
async fn send(as_whom: &Operator, operation: &Operation, path: &str, body: &Value) -> Answer {
    let headers: &[(&str, &str)] = if operation.is_conditional() { &[("if-match", "*")] } else { &[] };
    let body = operation.has_body().then_some(body);
    as_whom.ask(operation.method.as_str(), path, headers, body).await
}

/// ADM-02, ADM-17: what nobody, or somebody else, is answered.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_for_those_who_may() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    root.make("/tenants", &json!({"name": "acme", "document": {}})).await;
    let manager = deployment.operator("manager", "operator", None).await;
    let auditor = deployment.operator("auditor", "auditor", None).await;
    let acme = deployment.operator("acme", "owner", Some("acme")).await;
    let missing = acme.get("/tenants/nobody").await;
    assert_eq!(refusal(&missing), (404, "not-found".into(), vec![]));
    let mut walked = BTreeSet::new();
    let mut id = String::new();
    for (name, Case::Good(path, status, body)) in cases() {
        let found = OPERATIONS.iter().find(|operation| operation.id == name);
        let operation = found.unwrap_or_else(|| panic!("{name} is no operation"));
        assert!(walked.insert(name), "{name} has two cases");
        let path = path.replace("{id}", &id);
        let path = path.as_str();
        let reads = operation.method == Method::GET;

        let (method, whole) = (operation.method.as_str(), format!("/api/v1{path}"));
        let nobody = wire::request(root.admin, method, &whole, &[], b"").await;
        assert_eq!((refusal(&nobody).0, nobody.header("www-authenticate")), (401, Some("Bearer")), "{name}");
        let read = send(&auditor, operation, path, &body).await;
        assert_eq!(read.status, if reads { status } else { 403 }, "{name} as an auditor: {}", read.text());
        let foreign = send(&acme, operation, path, &body).await;
        if operation.is_of_tenant() {
            assert_eq!((foreign.status, &foreign.body), (404, &missing.body), "{name} in another tenant");
        } else if name != "getDescription" {
            assert_eq!(refusal(&foreign).0, 403, "{name} in the deployment: {}", foreign.text());
        }
        if operation.path.starts_with("/operators") {
            let refused = send(&manager, operation, path, &body).await;
            assert_eq!(refusal(&refused).0, 403, "{name} as an operator");
        }
        let by = if operation.path.starts_with("/operators") { root } else { &manager };
        if operation.is_conditional() {
            let bare = by.ask(operation.method.as_str(), path, &[], Some(&body)).await;
            assert_eq!(refusal(&bare), (428, "no-if-match".into(), vec![]), "{name}");
            let stale =
                by.ask(operation.method.as_str(), path, &[("if-match", "\"999\"")], Some(&body)).await;
            assert_eq!(refusal(&stale), (412, "stale".into(), vec![]), "{name}");
        }
        if operation.has_body() {
            let text = [("content-type".to_owned(), "text/plain".to_owned()), bearer(by), any()];
            let text = wire::request(by.admin, method, &whole, &text, b"{}").await;
            assert_eq!(refusal(&text).0, 415, "{name}");
            let odd = json!({"tenant_id": "x", "created_by": 1});
            let odd = send(by, operation, path, &odd).await;
            let (status, _, paths) = refusal(&odd);
            assert_eq!(status, 422, "{name}");
            assert!(paths.len() >= 3 && paths[..2] == ["tenant_id", "created_by"], "{name}: {paths:?}");
        }
        let good = send(by, operation, path, &body).await;
        assert_eq!(good.status, status, "{name}: {}", good.text());
        for answer in [&nobody, &read, &foreign, &good] {
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{name}");
            assert_eq!(answer.header("set-cookie"), None, "{name}");
        }
        if name == "createOperator" {
            id = good.message()["id"].as_str().unwrap().to_owned();
            assert!(good.message()["key"].as_str().unwrap().starts_with("fdo_"));
            assert_eq!(good.header("location"), Some(&*format!("/api/v1/operators/{id}")));
        }
    }
    let all: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(walked, all, "an operation without a case");
    // In its own tenant it may do what its role says.
    let own = acme.post("/tenants/acme/secrets", &json!({"name": "s", "value": "v"})).await;
    assert_eq!(own.status, 201, "{}", own.text());
}

fn bearer(operator: &Operator) -> (String, String) {
    ("authorization".to_owned(), format!("Bearer {}", operator.key))
}

fn any() -> (String, String) {
    ("if-match".to_owned(), "*".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_whole_key_opens() {
    let deployment = Deployment::sqlite().await;
    let (admin, key) = (deployment.root.admin, deployment.root.key.clone());
    let other = format!("{}{}", &key[..key.len() - 1], if key.ends_with('0') { '1' } else { '0' });
    let forged = format!("fdo_{}_{}", "0".repeat(64), "60e05bd1");
    let values: [&[String]; 9] = [
        &["".to_owned()],
        &["Bearer ".to_owned()],
        std::slice::from_ref(&key),
        &[format!("Basic {key}")],
        &[format!("Bearer {key}x")],
        &[format!("Bearer {other}")],
        &[format!("Bearer {forged}")],
        &[format!("Bearer {}", &key[1..])],
        &[format!("Bearer {key}"), format!("Bearer {key}")],
    ];
    let mut bodies = BTreeSet::new();
    for value in values {
        let headers: Vec<_> = value.iter().map(|value| ("authorization".to_owned(), value.clone())).collect();
        let answer = wire::request(admin, "GET", "/api/v1/tenants", &headers, b"").await;
        assert_eq!(refusal(&answer).0, 401, "{value:?}");
        bodies.insert(answer.body);
    }
    assert_eq!(bodies.len(), 1);
    let revoked = deployment.operator("gone", "auditor", None).await;
    assert_eq!(revoked.get("/tenants").await.status, 200);
    let listed = deployment.root.get("/operators").await.message();
    let gone = listed["items"].as_array().unwrap().iter().find(|one| one["name"] == "gone").unwrap();
    let path = format!("/operators/{}", gone["id"].as_str().unwrap());
    assert_eq!(deployment.root.ask("DELETE", &path, &[], None).await.status, 204);
    assert_eq!(revoked.get("/tenants").await.status, 401);
    // ADM-16.
    let root = listed["items"].as_array().unwrap().iter().find(|one| one["name"] == "root").unwrap();
    let path = format!("/operators/{}", root["id"].as_str().unwrap());
    let last = deployment.root.ask("DELETE", &path, &[], None).await;
    assert_eq!(refusal(&last), (409, "last-owner".into(), vec![]));
}

/// ADM-12.
#[tokio::test(flavor = "multi_thread")]
async fn web_pages_and_other_names_are_refused() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    for (name, value, kind) in [
        ("origin", "https://evil.example", "origin"),
        ("origin", "null", "origin"),
        ("host", "evil.example", "host"),
    ] {
        let answer = root.ask("GET", "/tenants", &[(name, value)], None).await;
        assert_eq!(refusal(&answer), (403, kind.into(), vec![]), "{name}: {value}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let unknown = root.get("/nothing").await;
    assert_eq!(refusal(&unknown), (404, "not-found".into(), vec![]));
    let wrong = root.ask("PATCH", "/tenants", &[], None).await;
    assert_eq!((refusal(&wrong).0, wrong.header("allow")), (405, Some("GET, POST")));
    let head = root.ask("HEAD", "/tenants", &[], None).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}

/// The description is that of the table, and the copy in the documentation is the description.
#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_the_table() {
    let deployment = Deployment::sqlite().await;
    let served = deployment.root.get("/openapi.json").await.message();
    assert_eq!(served, openapi::description());
    let described: BTreeSet<_> = served["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(described, OPERATIONS.iter().map(|operation| operation.id.to_owned()).collect());
    let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
    let copy = root().join("docs/reference/openapi.json");
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&copy, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&copy).unwrap_or_default();
    assert!(kept == text, "docs/reference/openapi.json is not the description: run this test with BLESS=1");
}
