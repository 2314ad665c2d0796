//! `fondaco dev`: everything embedded, and a working call printed.

use std::fs::OpenOptions;
use std::fs::Permissions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http::Request;
use http_body_util::BodyExt;
use http_body_util::Full;
use http_body_util::Limited;

use crate::auth::dev_issuer::DevIssuer;
use crate::auth::dev_issuer::Grant;
use crate::cli::BadInput;
use crate::config::Settings;
use crate::config::telemetry::Telemetry;
use crate::egress::Egress;
use crate::egress::rules::Allow;
use crate::egress::rules::Rules;
use crate::model::clock::Clock;
use crate::protocol::version;
use crate::serve::Development;
use crate::serve::Server;
use crate::telemetry;

/// How long the printed token is good for, in seconds.
const TOKEN_TTL: u64 = 8 * 3600;

/// The browser origin of the MCP Inspector, beside the gateway's own.
const INSPECTOR: &str = "http://localhost:6274";

/// Run with everything embedded: demo tenants, a development issuer, a token and a ready curl.
#[derive(Args)]
pub struct DevArgs {
    /// Where clients connect; a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where health and metrics are; a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub admin: SocketAddr,
    /// Where keys are kept between runs
    #[arg(long, value_name = "DIR", default_value = "./fondaco-data")]
    pub data_dir: PathBuf,
    /// A tenants file, served beside the demo tenants
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Write `FONDACO_URL` and `FONDACO_TOKEN` into this file, for scripts
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
}

/// Runs until SIGTERM, which drains, or Ctrl-C, which does not.
pub fn run(args: DevArgs) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() || !args.admin.ip().is_loopback() {
        let problem = "`fondaco dev` listens on loopback addresses only: its issuer vouches for anybody";
        return Err(BadInput(problem.to_owned()).into());
    }
    let _telemetry = telemetry::init(&Telemetry::default())?;
    super::block_on(serve(args))
}

async fn serve(args: DevArgs) -> anyhow::Result<()> {
    let hint = "choose other addresses with `--listen` and `--admin`; port 0 is any that is free";
    let listeners = super::listen(args.listen, args.admin, hint).await?;
    let mut settings = Settings::dev(listeners.public.local_addr()?, args.data_dir.clone());
    settings.admin.listen = listeners.admin.local_addr()?;
    settings.tenants = args.tenants.clone();
    settings.egress.allow = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
    let urls = settings.public_urls();
    settings.allowed_origins = urls.all().map(|url| url.origin().ascii_serialization()).collect();
    settings.allowed_origins.push(INSPECTOR.to_owned());

    let base = urls.primary.as_str().trim_end_matches('/').to_owned();
    let issuer_url = format!("{base}/dev-issuer");
    let issuer = DevIssuer::open(&args.data_dir, &issuer_url)?;
    let endpoint = format!("{base}/mcp");
    let now = Clock::default().now();
    let token = issuer.token(Grant {
        subject: "alice",
        client: "fondaco-dev",
        tenant: "demo",
        scope: "demo.use",
        audience: &endpoint,
        ttl: TOKEN_TTL,
        now,
    });

    let development = Development { tenants: demo_tenants(&issuer_url), issuer };
    let server = Server::build(settings, listeners, Some(development)).await.map_err(super::not_started)?;
    // Written last: who waits for the file may call.
    if let Some(path) = &args.env_file {
        let written = write_env(path, &endpoint, &token);
        written.with_context(|| format!("cannot write the environment file {}", path.display()))?;
    }
    let running = server.run(super::stop_signal());
    let shown = async {
        show(&mut std::io::stdout(), &endpoint, &token).await?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        () = running => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
        failed = shown => failed,
    }
}

/// The demo tenants, as a tenants file.
fn demo_tenants(issuer: &str) -> String {
    format!(
        r#"issuers:
  - {{issuer: "{issuer}", tenant_claim: tenant}}
tenants:
  demo:
    instructions: "A demonstration tenant: every tool runs inside the gateway."
    scope_implies: {{demo.admin: [demo.use]}}
    issuers: [{{shared: "{issuer}"}}]
    backends:
      demo:
        kind: demo
        prefix: ""
        scopes: {{"*": [demo.use]}}
  other:
    issuers: [{{shared: "{issuer}"}}]
"#
    )
}

fn write_env(path: &Path, endpoint: &str, token: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // A file that was there keeps its mode, which may let others read the token.
    file.set_permissions(Permissions::from_mode(0o600))?;
    writeln!(file, "FONDACO_URL={endpoint}\nFONDACO_TOKEN={token}")
}

/// Prints what a newcomer needs; the first line is an answer that came through the gate.
async fn show(out: &mut impl Write, endpoint: &str, token: &str) -> anyhow::Result<()> {
    let discovered = discover(endpoint, token).await?;
    let headers = |method: &str| {
        format!(
            "curl -s {endpoint} -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n  \
             -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: {}' -H 'Mcp-Method: {method}'",
            version::LATEST
        )
    };
    let meta = meta();
    writeln!(
        out,
        "{discovered}\n\n\
         endpoint: {endpoint}\n\
         token:    {token}\n          \
         (tenant demo, scope demo.use, {} hours; `fondaco token --help` mints others)\n\n\
         Call a tool:\n\nTOKEN={token}\n{} -H 'Mcp-Name: add' \\\n  \
         -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"add\",\"arguments\":{{\"a\":2,\"b\":3}},\"_meta\":{meta}}}}}'\n\n\
         The same gate refuses a request without `_meta`:\n\n{} \\\n  \
         -d '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\",\"params\":{{}}}}'\n\n\
         For an MCP host's configuration:\n\n\
         {{\"mcpServers\": {{\"fondaco\": {{\"type\": \"http\", \"url\": \"{endpoint}\", \
         \"headers\": {{\"Authorization\": \"Bearer {token}\"}}}}}}}}\n",
        TOKEN_TTL / 3600,
        headers("tools/call"),
        headers("tools/list"),
    )?;
    out.flush()?;
    Ok(())
}

fn meta() -> String {
    format!(
        "{{\"io.modelcontextprotocol/protocolVersion\":\"{}\",\"io.modelcontextprotocol/clientCapabilities\":{{}}}}",
        version::LATEST
    )
}

/// The answer of the gate to `server/discover`, asked as any client would.
async fn discover(endpoint: &str, token: &str) -> anyhow::Result<String> {
    let rules = Rules { allow: vec!["127.0.0.0/8".parse::<Allow>()?, "::1/128".parse::<Allow>()?] };
    let egress = Egress::new(rules, std::time::Duration::from_secs(3), &[])?;
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"dev\",\"method\":\"server/discover\",\"params\":{{\"_meta\":{}}}}}",
        meta()
    );
    let request = Request::post(endpoint)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", version::LATEST)
        .header("mcp-method", "server/discover")
        .body(Full::new(Bytes::from(body)))?;
    let response = egress.send(request).await?;
    let status = response.status();
    let text = Limited::new(response.into_body(), 1 << 20).collect().await;
    let text = text.map_err(|_| anyhow::anyhow!("the gate's answer was cut"))?.to_bytes();
    anyhow::ensure!(status.is_success(), "the gate answered its own discovery with {status}");
    Ok(String::from_utf8_lossy(&text).into_owned())
}
