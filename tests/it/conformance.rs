//! The official conformance suites: through the gateway before the fixture server in each era, and
//! at that server itself, which has to pass whatever is asked of the gateway.
//!
//! `tests/conformance` holds what is expected, scenario by scenario and in both directions.

use fondaco::config::Settings;
use tokio::process::Command;

use crate::harness::gateway::Gateway;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;

/// Starts the fixture server in an era and says where it is.
async fn fixture(era: &str) -> (Process, String) {
    let mut command = Peers::find().node("tests/fixtures/everything.mjs");
    let mut server = Process::start(command.args(["--era", era]));
    let url = server.line("listening ").await;
    (server, url)
}

/// Judges a suite at a URL; panics with what differs.
async fn judge(suite: &str, url: &str, how: &[&str]) {
    let mut command = Command::new(process::root().join("tests/conformance/run"));
    command.args(["--suite", suite, "--url", url]).args(how);
    command.env("FONDACO_PEERS_DIR", Peers::dir());
    let said = process::run(&mut command).await;
    assert!(said.contains(" 0 differ"), "{said}");
}

async fn through_the_gateway(suite: &str, era: &str) {
    let (_server, backend) = fixture(era).await;
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  acme:
    issuers: [{{shared: "{{issuer}}"}}]
    backends: {{everything: {{kind: mcp, url: "{backend}", prefix: ""}}}}
"#
    );
    // The suites send the gateway's own origin and expect to be let in.
    let own_origin =
        |settings: &mut Settings| settings.allowed_origins = vec![format!("http://{}", settings.listen)];
    let gw = Gateway::start_with(&tenants, own_origin).await;
    let caller = gw.caller("acme", "alice", "");
    let url = format!("http://{}{}", caller.addr, caller.path);
    judge(suite, &url, &["--before", era, "--token", &caller.token]).await;
    gw.stop().await;
}

#[tokio::test]
async fn the_fixture_server_passes_what_the_gateway_has_to() {
    let (_server, url) = fixture("both").await;
    for suite in ["2026-07-28", "2025-11-25", "0.1.16"] {
        judge(suite, &url, &["--direct"]).await;
    }
}

#[tokio::test]
async fn the_fixture_server_passes_in_the_handshake_era_alone() {
    let (_server, url) = fixture("legacy").await;
    for suite in ["2025-11-25", "0.1.16"] {
        judge(suite, &url, &["--direct"]).await;
    }
}

#[tokio::test]
async fn the_suite_of_2026_07_28_before_a_server_of_its_time() {
    through_the_gateway("2026-07-28", "modern").await;
}

#[tokio::test]
async fn the_suite_of_2026_07_28_before_a_server_of_the_handshake_era() {
    through_the_gateway("2026-07-28", "legacy").await;
}

#[tokio::test]
async fn the_suite_of_2025_11_25_before_a_server_of_its_time() {
    through_the_gateway("2025-11-25", "legacy").await;
}

#[tokio::test]
async fn the_suite_of_2025_11_25_before_a_server_of_2026_07_28() {
    through_the_gateway("2025-11-25", "modern").await;
}

#[tokio::test]
async fn the_older_suite_before_a_server_of_its_time() {
    through_the_gateway("0.1.16", "legacy").await;
}

#[tokio::test]
async fn the_older_suite_before_a_server_of_2026_07_28() {
    through_the_gateway("0.1.16", "modern").await;
}
