//! The admin API and the commands that are its clients, through the front door.

mod check;
mod commands;
mod operations;
mod thread;

use std::net::SocketAddr;

use fondaco::model::clock::Clock;
use fondaco::store::operators::Role;
use fondaco::store::write::Actor;
use secrecy::ExposeSecret;
use serde_json::Value;
use serde_json::json;

use crate::harness::database::Database;
use crate::harness::gateway::Caller;
use crate::harness::issuer::Issuer;
use crate::harness::serving::Serving;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Answer;

/// The media type of refusals.
const PROBLEM: &str = "application/problem+json";

/// An operator with a key, at an admin listener.
#[derive(Clone)]
struct Operator {
    admin: SocketAddr,
    key: String,
}

/// `fondaco serve` on a database, and its first operator.
struct Deployment {
    database: Database,
    serving: Serving,
    root: Operator,
}

impl Deployment {
    /// One on SQLite.
    async fn sqlite() -> Self {
        Self::on(Database::sqlite().await).await
    }

    /// One on this database.
    async fn on(database: Database) -> Self {
        Self::on_with(database, &[]).await
    }

    /// The same with other variables than the usual.
    async fn on_with(database: Database, more: &[(&str, &str)]) -> Self {
        let store = database.open().await;
        let made = store.operators().create(&Actor::Cli, "root", Role::Owner, None).await;
        let key = made.unwrap().1.expose_secret().to_owned();
        store.close().await;
        drop(store);
        let variables = database.variables();
        let mut variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        variables.push(("FONDACO_TENANTS", ""));
        variables.extend(more);
        let serving = Serving::start("", &variables).await;
        let root = Operator { admin: serving.admin, key };
        let ready = async || wire::request(root.admin, "GET", "/readyz", &[], b"").await.status == 200;
        eventually("it is ready", ready).await;
        Self { database, serving, root }
    }

    /// Another operator, of the deployment or of one tenant.
    async fn operator(&self, name: &str, role: &str, tenant: Option<&str>) -> Operator {
        let body = json!({"name": name, "role": role, "tenant": tenant});
        let answer = self.root.post("/operators", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let key = answer.message()["key"].as_str().unwrap().to_owned();
        Operator { key, ..self.root.clone() }
    }

    /// A caller of a tenant's endpoint, with a token of `issuer`.
    fn caller(&self, issuer: &Issuer, tenant: &str) -> Caller {
        let (addr, path) = (self.serving.addr, format!("/t/{tenant}/mcp"));
        let token = issuer.token(&format!("http://{addr}{path}"), Clock::default().now());
        Caller { addr, path, token }
    }
}

impl Operator {
    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], Some(body)).await
    }

    async fn put(&self, path: &str, state: &str, body: &Value) -> Answer {
        self.ask("PUT", path, &[("if-match", state)], Some(body)).await
    }

    async fn delete(&self, path: &str, state: &str) -> Answer {
        self.ask("DELETE", path, &[("if-match", state)], None).await
    }

    /// Asks for something below `/api/v1`.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let mut all = vec![("authorization".to_owned(), format!("Bearer {}", self.key))];
        all.extend(body.map(|_| ("content-type".to_owned(), "application/json".to_owned())));
        all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let body = body.map(Value::to_string).unwrap_or_default();
        wire::request(self.admin, method, &format!("/api/v1{path}"), &all, body.as_bytes()).await
    }

    /// Makes something, and returns its state as `ETag` has it.
    async fn make(&self, path: &str, body: &Value) -> String {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
        answer.header("etag").unwrap().to_owned()
    }
}

/// A tenant that accepts an issuer of its own.
fn tenant(name: &str, issuer: &Issuer) -> Value {
    let own = json!({"issuer": issuer.url(), "algorithms": ["ES256", "RS256"]});
    json!({"name": name, "document": {"issuers": [own]}})
}

/// What a refusal says: its status, its kind, and the paths of its errors.
fn refusal(answer: &Answer) -> (u16, String, Vec<String>) {
    assert_eq!(answer.header("content-type"), Some(PROBLEM), "{} {}", answer.status, answer.text());
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["status"], answer.status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    let kind = problem["type"].as_str().unwrap().strip_prefix("urn:fondaco:problem:").unwrap().to_owned();
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    (answer.status, kind, errors.iter().map(|error| error["path"].as_str().unwrap().to_owned()).collect())
}
