//! A client of the handshake era, by hand.
//!
//! ```ignore
//! let alice = gw.caller("acme", "alice", "crm.read");
//! let session = Session::open(&alice, "2025-11-25").await;
//! session.rpc("tools/list", json!({})).await.result();
//! session.end().await;
//! ```

use serde_json::Value;
use serde_json::json;

use crate::harness::gateway::Caller;
use crate::harness::wire;
use crate::harness::wire::Answer;
use crate::harness::wire::Connection;

/// The revisions of the era, newest first.
pub const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// A session, and who has it.
#[derive(Clone)]
pub struct Session {
    /// Whose.
    pub caller: Caller,
    /// Its id.
    pub id: String,
    /// The revision that was agreed on.
    pub revision: String,
    /// What `initialize` was answered with.
    pub opened: Value,
}

/// The text of an `initialize`.
pub fn initialize(revision: &str, capabilities: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": capabilities,
        "clientInfo": {"name": "old", "version": "1"}}})
    .to_string()
}

/// The text of a request.
pub fn request(id: &Value, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The text of a notification.
pub fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// The headers of somebody who has no session.
pub fn bare(caller: &Caller) -> Vec<(String, String)> {
    let headers = [
        ("Authorization", format!("Bearer {}", caller.token)),
        ("Content-Type", "application/json".to_owned()),
        ("Accept", "application/json, text/event-stream".to_owned()),
    ];
    headers.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

impl Session {
    /// Opens one as `caller`, and says `notifications/initialized`.
    pub async fn open(caller: &Caller, revision: &str) -> Self {
        Self::open_with(caller, revision, &json!({})).await
    }

    /// The same with these capabilities.
    pub async fn open_with(caller: &Caller, revision: &str, capabilities: &Value) -> Self {
        let answer = caller.post(&bare(caller), &initialize(revision, capabilities)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.header("mcp-session-id").expect("a session has an id").to_owned();
        let opened = answer.result();
        let revision = opened["protocolVersion"].as_str().unwrap().to_owned();
        let session = Self { caller: caller.clone(), id, revision, opened };
        let taken = session.notify("notifications/initialized", json!({})).await;
        assert_eq!((taken.status, taken.body.len()), (202, 0), "{}", taken.text());
        session
    }

    /// The headers of a right request.
    pub fn headers(&self) -> Vec<(String, String)> {
        let mut headers = bare(&self.caller);
        headers.push(("Mcp-Session-Id".to_owned(), self.id.clone()));
        // The first revision knows no such header.
        if self.revision != "2025-03-26" {
            headers.push(("MCP-Protocol-Version".to_owned(), self.revision.clone()));
        }
        headers
    }

    /// The headers of a right request with one replaced, or left out where it is empty.
    pub fn headers_with(&self, name: &str, value: &str) -> Vec<(String, String)> {
        let mut headers = self.headers();
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            headers.push((name.to_owned(), value.to_owned()));
        }
        headers
    }

    /// Sends this body.
    pub async fn post(&self, body: &str) -> Answer {
        self.caller.post(&self.headers(), body).await
    }

    /// Sends a right request.
    pub async fn rpc(&self, method: &str, params: Value) -> Answer {
        self.post(&request(&json!(1), method, &params)).await
    }

    /// Calls a tool.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> Answer {
        self.rpc("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) -> Answer {
        self.post(&notification(method, &params)).await
    }

    /// Begins a request on a connection of its own.
    pub async fn begin(&self, headers: &[(String, String)], body: &str) -> Connection {
        let mut open = Connection::open(self.caller.addr).await;
        open.post(&self.caller.path, headers, body).await;
        open
    }

    /// Begins a GET on a connection of its own.
    pub async fn listen(&self) -> Connection {
        let mut open = Connection::open(self.caller.addr).await;
        let headers: String = self
            .headers_with("Content-Type", "")
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let text =
            format!("GET {} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.caller.path, self.caller.addr);
        assert!(open.send(text).await);
        open
    }

    /// Sends a request without a body, and its headers as they are.
    pub async fn visit(&self, method: &str, headers: &[(String, String)]) -> Answer {
        wire::request(self.caller.addr, method, &self.caller.path, headers, b"").await
    }

    /// Ends the session.
    pub async fn end(&self) -> Answer {
        self.visit("DELETE", &self.headers_with("Content-Type", "")).await
    }
}
