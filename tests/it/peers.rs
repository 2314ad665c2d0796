//! Clients, backends and an authorization server that none of us wrote, through `fondaco serve`:
//! what compatibility.rs does not show.

use crate::harness::deployment;
use crate::harness::deployment::Deployment;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::process::Runtime;

/// One tenant, on a backend that this script serves.
async fn deploy(runtime: Runtime, script: &str, more: &str, page_size: usize) -> (Deployment, Process) {
    let peers = Peers::find();
    let mut running = Process::start(&mut peers.script(runtime, script));
    let backend = deployment::backend(&running.line("listening ").await, more);
    let at = Deployment::start(peers, page_size, &[("acme", &format!("{{py: {backend}}}"))]).await;
    (at, running)
}

#[tokio::test]
async fn clients_of_both_sdks_call_a_python_server_with_a_real_token() {
    let (at, _running) = deploy(Runtime::Python, "tests/fixtures/server.py", "", 5).await;
    for (runtime, script, path) in
        [(Runtime::Python, "python.py", "/t/acme/mcp"), (Runtime::Node, "ts.mjs", "/mcp")]
    {
        let url = at.url(path);
        let token = at.token("acme", &url).await;
        let mut command = at.peers.script(runtime, &format!("tests/clients/{script}"));
        command.args(["--url", &url, "--token", &token, "--page-size", "5", "--prefix", "py_"]);
        let said = process::run(&mut command).await;
        assert!(said.contains("ok connect (2026-07-28)") && said.contains("all steps passed"), "{said}");
    }
}

#[tokio::test]
async fn the_conformance_scenarios_of_what_is_served_pass() {
    let (at, _running) = deploy(Runtime::Node, "tests/fixtures/everything.mjs", r#", prefix: """#, 500).await;
    let url = at.url("/mcp").replace("127.0.0.1", "localhost");
    let token = at.token("acme", &at.url("/mcp")).await;
    let mut command = tokio::process::Command::new(process::root().join("tests/conformance/run"));
    command.args(["--url", &url, "--token", &token]);
    command.env("FONDACO_PEERS_DIR", Peers::dir());
    let said = process::run(&mut command).await;
    assert!(!said.is_empty());
}
