//! A whole deployment of programs: a real authorization server, `fondaco serve`, and the backends
//! that a test has started.
//!
//! ```ignore
//! let peers = Peers::find();
//! let mut tools = Process::start(&mut peers.node("tests/fixtures/everything.mjs"));
//! let backends = format!("{{tools: {}}}", deployment::backend(&tools.line("listening ").await, ""));
//! let at = Deployment::start(peers, 5, &[("acme", &backends)]).await;
//! let url = at.url("/t/acme/mcp");
//! let token = at.token("acme", &url).await;
//! ```

use std::net::TcpListener;

use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::serving::Serving;

/// A running deployment.
pub struct Deployment {
    /// How to run more peers.
    pub peers: Peers,
    /// The gateway.
    pub serving: Serving,
    base: String,
    issuer: String,
    _issuing: Process,
}

/// A backend of a tenant, as the tenants file has it; `more` are further members, each with a
/// comma in front.
pub fn backend(url: &str, more: &str) -> String {
    format!(r#"{{kind: mcp, url: "{url}", scopes: {{"*": [tools.use]}}{more}}}"#)
}

impl Deployment {
    /// Starts one whose pages hold so many tools, for these tenants: each one's name, and its backends by name in YAML.
    pub async fn start(peers: Peers, page_size: usize, tenants: &[(&str, &str)]) -> Self {
        let clients = tenants.iter().map(|(tenant, _)| {
            format!(r#""{tenant}": {{"secret": "{}", "tenant": "{tenant}"}}"#, secret(tenant))
        });
        let clients = clients.collect::<Vec<_>>().join(", ");
        let config = format!(
            r#"{{"clients": {{{clients}}}, "resources": {{"*": ["tools.use"]}}, "tenant_claim": "org"}}"#
        );
        let mut issuing = Process::start(peers.node("tests/fixtures/issuer.mjs").args(["--config", &config]));
        let issuer = issuing.line("listening ").await;
        let mut file = format!("issuers: [{{issuer: \"{issuer}\", tenant_claim: org}}]\ntenants:\n");
        for (tenant, backends) in tenants {
            file.push_str(&format!("  {tenant}:\n    legacy: on\n    issuers: [{{shared: \"{issuer}\"}}]\n"));
            file.push_str(&format!("    backends: {backends}\n"));
        }
        // The public URL names the port, so it is chosen before it is bound.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (base, alias) = (format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}"));
        let variables = [
            ("FONDACO_LISTEN", base.strip_prefix("http://").unwrap()),
            ("FONDACO_PUBLIC_URL", &base),
            ("FONDACO_PUBLIC_ALIASES", &alias),
            ("FONDACO_ALLOWED_ORIGINS", &format!("{base},{alias}")),
            ("FONDACO_LIMITS__PAGE_SIZE", &page_size.to_string()),
        ];
        let serving = Serving::start(&file, &variables).await;
        Self { peers, serving, base, issuer, _issuing: issuing }
    }

    /// An endpoint of the gateway.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A token of this tenant that the authorization server issues for `resource`.
    pub async fn token(&self, tenant: &str, resource: &str) -> String {
        let mut command = self.peers.node("tests/fixtures/token.mjs");
        command.args(["--issuer", &self.issuer, "--resource", resource, "--scope", "tools.use"]);
        command.args(["--client", tenant, "--secret", &secret(tenant)]);
        process::run(&mut command).await.trim().to_owned()
    }
}

fn secret(tenant: &str) -> String {
    format!("for-tests-{tenant}")
}
