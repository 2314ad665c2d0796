//! The official conformance suite's scenarios of the tasks extension: through the gateway before a server
//! that has tasks, and at that server itself.
//!
//! `tests/conformance/tasks.json` names what has to pass and what waits, and holds in both directions.

use fondaco::config::Settings;

use crate::harness::gateway::Gateway;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;

async fn fixture() -> (Process, String) {
    let mut server = Process::start(&mut Peers::find().node("tests/fixtures/tasks.mjs"));
    let url = server.line("listening ").await;
    (server, url)
}

async fn judge(url: &str, how: &[&str]) {
    let mut command = Peers::find().node("tests/conformance/tasks.mjs");
    let said = process::listen(command.args(["--url", url]).args(how)).await;
    assert!(said.0 && said.1.contains(" 0 differ"), "{}", said.1);
}

#[tokio::test]
async fn the_fixture_server_passes_every_tasks_scenario() {
    let (_server, url) = fixture().await;
    judge(&url, &["--direct"]).await;
}

// spec: rows EX-01, EX-02, EX-03, EX-04, EX-05, EX-11
#[tokio::test]
async fn the_tasks_scenarios_before_a_server_that_has_tasks() {
    let (_server, backend) = fixture().await;
    let tenants = format!(
        r#"
issuers: [{{issuer: "{{issuer}}", tenant_claim: tenant}}]
tenants:
  acme:
    issuers: [{{shared: "{{issuer}}"}}]
    backends: {{tasks: {{kind: mcp, url: "{backend}", prefix: ""}}}}
"#
    );
    // The suite sends the gateway's own origin and expects to be let in.
    let own_origin =
        |settings: &mut Settings| settings.allowed_origins = vec![format!("http://{}", settings.listen)];
    let gw = Gateway::start_with(&tenants, own_origin).await;
    let caller = gw.caller("acme", "alice", "");
    judge(&format!("http://{}{}", caller.addr, caller.path), &["--token", &caller.token]).await;
    gw.stop().await;
}
