//! Modern clients before a server of both eras, with a real authorization server, through
//! `fondaco serve`. Every client and every era is in compatibility.rs.

use crate::harness::deployment;
use crate::harness::deployment::Deployment;
use crate::harness::gateway::Gateway;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::process::Runtime;

#[tokio::test]
async fn clients_of_both_sdks_call_a_python_server_with_a_real_token() {
    let peers = Peers::find();
    let mut server = Process::start(&mut peers.python("tests/fixtures/server.py"));
    let backend = deployment::backend(&server.line("listening ").await, "");
    let at = Deployment::start(peers, 5, &[("acme", &format!("{{py: {backend}}}"))]).await;
    for (runtime, script, path) in
        [(Runtime::Python, "python.py", "/t/acme/mcp"), (Runtime::Node, "ts.mjs", "/mcp")]
    {
        let url = at.url(path);
        let token = at.token("acme", &url).await;
        let mut command = at.peers.script(runtime, &format!("tests/clients/{script}"));
        command.args(["--url", &url, "--token", &token, "--mode", "pin", "--page-size", "5", "--prefix=py_"]);
        let said = process::run(&mut command).await;
        assert!(said.contains("all steps passed"), "{said}");
    }
}

// Row RU-1: the messages of an introduction, as a session sends them and as a modern client does.
#[tokio::test]
async fn the_messages_of_an_introduction_say_the_same_in_both_eras() {
    let gw = Gateway::start(
        r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants: {demo: {issuers: [{shared: "{issuer}"}], backends: {demo: {kind: demo, prefix: ""}}}}
"#,
    )
    .await;
    let alice = gw.caller("demo", "alice", "");
    let url = format!("http://{}{}", alice.addr, alice.path);
    let mut command = Peers::find().script(Runtime::Node, "tests/clients/messages.mjs");
    let said = process::run(command.args(["--url", &url, "--token", &alice.token])).await;
    assert!(said.contains("all 9 messages passed"), "{said}");
    gw.stop().await;
}
