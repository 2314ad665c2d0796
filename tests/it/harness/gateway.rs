//! A real gateway on free ports, and callers of it.
//!
//! ```ignore
//! let gw = Gateway::start(&tenants).await;        // tenants file text; `{issuer}` is the gateway's own
//! let alice = gw.caller("acme", "alice", "crm.read");
//! alice.call_tool("forecast", r#"{"city":"Graz"}"#).await.result();
//! gw.stop().await;                                // drains, and fails if anything is left running
//! ```

use std::net::SocketAddr;
use std::sync::Arc;

use fondaco::app::App;
use fondaco::auth::dev_issuer::DevIssuer;
use fondaco::auth::dev_issuer::Grant;
use fondaco::config::Settings;
use fondaco::serve::Development;
use fondaco::serve::Listeners;
use fondaco::serve::Server;
use serde_json::Value;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::wire;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

/// A running gateway.
pub struct Gateway {
    /// Its public address.
    pub addr: SocketAddr,
    /// Its admin address.
    pub admin: SocketAddr,
    /// Its shared parts.
    pub app: Arc<App>,
    issuer: DevIssuer,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    _state: tempfile::TempDir,
}

impl Gateway {
    /// Starts a gateway for these tenants.
    pub async fn start(tenants: &str) -> Self {
        Self::start_with(tenants, |_| {}).await
    }

    /// Starts a gateway with other settings than the usual.
    pub async fn start_with(tenants: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = Listeners::bind(any, any).await.unwrap();
        let addr = listeners.public.local_addr().unwrap();
        let admin = listeners.admin.local_addr().unwrap();
        let mut settings = Settings::dev(addr, state.path().to_owned());
        settings.egress.allow = vec!["127.0.0.0/8".to_owned()];
        settings.limits.drain_accept = std::time::Duration::ZERO;
        change(&mut settings);
        let issuer_url = format!("http://{addr}/dev-issuer");
        let open = || DevIssuer::open(state.path(), &issuer_url).unwrap();
        let development = Development { tenants: tenants.replace("{issuer}", &issuer_url), issuer: open() };
        let server = Server::build(settings, listeners, Some(development)).await.unwrap_or_else(|error| {
            panic!("the gateway does not start: {error}");
        });
        let app = server.app().clone();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { addr, admin, app, issuer: open(), stop, running, _state: state }
    }

    /// A caller of the shared endpoint, by a token with these scopes.
    pub fn caller(&self, tenant: &str, subject: &str, scopes: &str) -> Caller {
        self.caller_at("/mcp", tenant, subject, scopes)
    }

    /// A caller of the endpoint at `path`.
    pub fn caller_at(&self, path: &str, tenant: &str, subject: &str, scopes: &str) -> Caller {
        let audience = format!("http://{}{path}", self.addr);
        let now = self.app.clock.now();
        let token = self.issuer.token(Grant {
            subject,
            client: "test-client",
            tenant,
            scope: scopes,
            audience: &audience,
            ttl: 3600,
            now,
        });
        Caller { addr: self.addr, path: path.to_owned(), token }
    }

    /// Asks for what anybody may read, under the authority `host`.
    pub async fn get(&self, host: &str, path: &str) -> Answer {
        wire::request(self.addr, "GET", path, &[("Host".to_owned(), host.to_owned())], b"").await
    }

    /// Drains the gateway and waits for its end.
    pub async fn stop(self) {
        let app = self.leave().await;
        assert!(app.tasks.is_empty(), "a stream's reader outlived the gateway");
    }

    /// The same, whatever it leaves behind.
    pub async fn leave(self) -> Arc<App> {
        let _ = self.stop.send(());
        let ended = tokio::time::timeout(std::time::Duration::from_secs(10), self.running).await;
        ended.expect("the gateway did not stop within 10 s").unwrap();
        self.app
    }
}

/// Waits until `what` holds.
pub async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..100 {
        if what() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it did not come within a second");
}

/// Somebody with a token.
#[derive(Clone)]
pub struct Caller {
    /// Where it connects.
    pub addr: SocketAddr,
    /// The endpoint's path.
    pub path: String,
    /// Its bearer token.
    pub token: String,
}

/// The `_meta` of a plain modern client.
pub fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A tenants file with these backends of tenant `acme`, in YAML's flow style, and the tenant `other`,
/// which has none.
pub fn acme_and_other(backends: &[String]) -> String {
    format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  acme:
    issuers: [{{shared: "{{issuer}}"}}]
    scope_implies: {{crm.admin: [crm.read, crm.secret]}}
    backends: {{{}}}
  other:
    issuers: [{{shared: "{{issuer}}"}}]
"#,
        backends.join(", ")
    )
}

/// The text of a right request: `params` and `meta` are members to add there, each with a comma
/// in front.
pub fn text(id: &str, method: &str, params: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}{meta}}}{params}}}}}"#
    )
}

/// The text of a call without arguments, with more members of `_meta`.
pub fn call_text(name: &str, meta: &str) -> String {
    text("1", "tools/call", &format!(r#","name":"{name}""#), meta)
}

impl Caller {
    /// The headers of a right request, to be changed by tests that send wrong ones.
    pub fn headers(&self, method: &str, name: Option<&str>) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Authorization", format!("Bearer {}", self.token)),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", "2026-07-28".to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        headers.extend(name.map(|name| ("Mcp-Name", name.to_owned())));
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Sends these headers and this body.
    pub async fn post(&self, headers: &[(String, String)], body: &str) -> Answer {
        wire::request(self.addr, "POST", &self.path, headers, body.as_bytes()).await
    }

    /// The headers of a right call, with another `Accept`.
    pub fn accepting(&self, accept: &str, name: &str) -> Vec<(String, String)> {
        let mut headers = self.headers("tools/call", Some(name));
        headers.retain(|(name, _)| name != "Accept");
        headers.push(("Accept".to_owned(), accept.to_owned()));
        headers
    }

    /// Begins a call on a connection of its own, with more members of `_meta`.
    pub async fn open(&self, name: &str, meta: &str) -> Connection {
        let mut open = Connection::open(self.addr).await;
        open.post(&self.path, &self.headers("tools/call", Some(name)), &call_text(name, meta)).await;
        open
    }

    /// Sends a right request.
    pub async fn rpc(&self, method: &str, mut params: Value) -> Answer {
        let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        params["_meta"] = meta();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(&self.headers(method, name.as_deref()), &body.to_string()).await
    }

    /// Calls a tool.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Answer {
        self.rpc("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// Reads a resource.
    pub async fn read(&self, uri: &str) -> Answer {
        self.rpc("resources/read", json!({"uri": uri})).await
    }

    /// Gets a prompt.
    pub async fn prompt(&self, name: &str, arguments: Value) -> Answer {
        self.rpc("prompts/get", json!({"name": name, "arguments": arguments})).await
    }

    /// The names of all tools, page by page.
    pub async fn tools(&self) -> Vec<String> {
        self.names("tools/list", "tools", "name").await
    }

    /// The names of all prompts, page by page.
    pub async fn prompts(&self) -> Vec<String> {
        self.names("prompts/list", "prompts", "name").await
    }

    /// The URIs of all resources, page by page.
    pub async fn resources(&self) -> Vec<String> {
        self.names("resources/list", "resources", "uri").await
    }

    /// The texts of all resource templates, page by page.
    pub async fn templates(&self) -> Vec<String> {
        self.names("resources/templates/list", "resourceTemplates", "uriTemplate").await
    }

    async fn names(&self, method: &str, member: &str, key: &str) -> Vec<String> {
        let (mut names, mut params) = (Vec::new(), json!({}));
        loop {
            let page = self.rpc(method, params.clone()).await.result();
            let entries = page[member].as_array().unwrap();
            names.extend(entries.iter().map(|entry| entry[key].as_str().unwrap().to_owned()));
            match page.get("nextCursor") {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return names,
            }
        }
    }
}
