//! Clients, backends and an authorization server that none of us wrote, through `fondaco serve`.

use std::net::TcpListener;
use std::path::Path;

use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::rmcp_client;

/// Two tenants, one on the TypeScript SDK's server and one on Python's, in front of a real
/// authorization server.
struct Deployment {
    peers: Peers,
    base: String,
    issuer: String,
    page_size: usize,
    _state: tempfile::TempDir,
    _running: Vec<Process>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Deployment {
    async fn start(page_size: usize) -> Self {
        let peers = Peers::find();
        let state = tempfile::tempdir().unwrap();
        let mut issuer = peers.node("tests/fixtures/issuer.mjs");
        issuer.args([
            "--config",
            r#"{"clients": {"ts": {"secret": "for-tests-1", "tenant": "ts"},
            "py": {"secret": "for-tests-2", "tenant": "py"}}, "resources": {"*": ["tools.use"]},
            "tenant_claim": "org"}"#,
        ]);
        let mut issuer = Process::start(&mut issuer);
        let mut ts = Process::start(&mut peers.node("tests/fixtures/everything.mjs"));
        let mut py = Process::start(&mut peers.python("tests/fixtures/server.py"));
        let issuer_url = issuer.line("listening ").await;
        let tenants = format!(
            r#"
issuers: [{{issuer: "{issuer_url}", tenant_claim: org}}]
tenants:
  ts:
    issuers: [{{shared: "{issuer_url}"}}]
    backends: {{everything: {{kind: mcp, url: "{}", prefix: "", scopes: {{"*": [tools.use]}}}}}}
  py:
    issuers: [{{shared: "{issuer_url}"}}]
    backends: {{py: {{kind: mcp, url: "{}", scopes: {{"*": [tools.use]}}}}}}
"#,
            ts.line("listening ").await,
            py.line("listening ").await,
        );
        std::fs::write(state.path().join("tenants.yaml"), tenants).unwrap();
        let base = format!("http://127.0.0.1:{}", free_port());
        let gateway = Self::serve(state.path(), &base, page_size).await;
        let running = vec![issuer, ts, py, gateway];
        Self { peers, base, issuer: issuer_url, page_size, _state: state, _running: running }
    }

    async fn serve(state: &Path, base: &str, page_size: usize) -> Process {
        let authority = base.strip_prefix("http://").unwrap();
        let port = authority.rsplit(':').next().unwrap();
        let settings = format!(
            r#"
listen = "{authority}"
public_url = "{base}"
public_aliases = ["http://localhost:{port}"]
allowed_origins = ["{base}", "http://localhost:{port}"]
data_dir = "data"
tenants = "tenants.yaml"
[admin]
listen = "127.0.0.1:0"
[egress]
allow = ["127.0.0.0/8"]
[limits]
page_size = {page_size}
"#
        );
        std::fs::write(state.join("fondaco.toml"), settings).unwrap();
        let mut command = process::fondaco();
        command.arg("serve").arg("--config").arg(state.join("fondaco.toml"));
        let gateway = Process::start(&mut command);
        for _ in 0..100 {
            if tokio::net::TcpStream::connect(authority).await.is_ok() {
                return gateway;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the gateway does not listen on {authority}");
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A token that the authorization server issues for `resource`.
    async fn token(&self, client: &str, resource: &str) -> String {
        let secret = if client == "ts" { "for-tests-1" } else { "for-tests-2" };
        let mut command = self.peers.node("tests/fixtures/token.mjs");
        command.args(["--issuer", &self.issuer, "--resource", resource, "--scope", "tools.use"]);
        command.args(["--client", client, "--secret", secret]);
        process::run(&mut command).await.trim().to_owned()
    }
}

/// Runs a client script against an endpoint and shows what it said.
async fn drive(at: &Deployment, script: &str, client: &str, path: &str, prefix: &str) {
    let url = at.url(path);
    let token = at.token(client, &url).await;
    let mut command = match script {
        "python.py" => at.peers.python("tests/clients/python.py"),
        script => at.peers.node(&format!("tests/clients/{script}")),
    };
    command.args(["--url", &url, "--token", &token, "--page-size", &at.page_size.to_string()]);
    command.args([format!("--prefix={prefix}")]);
    let said = process::run(&mut command).await;
    assert!(said.contains("all steps passed"), "{said}");
}

#[tokio::test]
async fn a_python_client_calls_a_typescript_server_with_a_real_token() {
    let at = Deployment::start(5).await;
    drive(&at, "python.py", "ts", "/mcp", "").await;
    drive(&at, "python.py", "py", "/t/py/mcp", "py_").await;
}

#[tokio::test]
async fn a_typescript_client_calls_servers_of_both_sdks() {
    let at = Deployment::start(5).await;
    drive(&at, "ts.mjs", "ts", "/t/ts/mcp", "").await;
    drive(&at, "ts.mjs", "py", "/mcp", "py_").await;
}

#[tokio::test]
async fn rmcp_calls_a_typescript_server() {
    let at = Deployment::start(5).await;
    let url = at.url("/mcp");
    let token = at.token("ts", &url).await;
    let steps = rmcp_client::drive(&url, &token, "", 5).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(steps.len(), 7, "{steps:?}");
}
