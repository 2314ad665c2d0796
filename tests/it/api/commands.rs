//! The commands that are clients of the API: a file is applied, once and again.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::api::Deployment;
use crate::harness::issuer::Issuer;
use crate::harness::process;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;

/// Runs `fondaco` as the first operator, with this on its standard input; its exit code and what it said.
async fn fondaco(deployment: &Deployment, arguments: &[&str], input: &str) -> (i32, String) {
    let mut command = process::fondaco();
    command.args(arguments).args(["--url", &format!("http://{}", deployment.root.admin)]);
    command.env("FONDACO_ADMIN_KEY", &deployment.root.key).env("CRM_TOKEN", "canary-one");
    command.current_dir(deployment.serving.dir.path()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!said.contains(&deployment.root.key) && !said.contains("canary"), "{said}");
    (output.status.code().unwrap(), said)
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn file(issuer: &Issuer, upstream: &Upstream, prefix: &str) -> String {
    format!(
        r#"issuers:
  - {{issuer: "https://login.example", tenant_claim: org}}
tenants:
  acme:
    hosts: [acme.example]
    issuers:
      - {{issuer: "{}", algorithms: [ES256, RS256]}}
    secrets:
      crm-token: {{env: CRM_TOKEN}}
      other: {{file: value.txt}}
    backends:
      crm: {{kind: mcp, url: "{}", era: modern, credential: {{kind: bearer, secret: crm-token}}}}
      demo: {{kind: demo, prefix: "{prefix}", scopes: {{"tool:add": []}}}}
  beta:
    legacy: off
    issuers: [{{shared: "https://login.example"}}]
"#,
        issuer.url(),
        upstream.url(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_applied_and_then_there_is_nothing_to_do() {
    let (issuer, upstream) = (Issuer::start("").await, Upstream::start().await);
    let deployment = Deployment::sqlite().await;
    let dir = deployment.serving.dir.path().to_owned();
    write(&dir.join("value.txt"), "canary-file\n");
    write(&dir.join("new.yaml"), &file(&issuer, &upstream, ""));
    let apply = async |more: &[&str]| {
        fondaco(&deployment, &[&["apply", "-f", "new.yaml"][..], more].concat(), "").await
    };
    let whole = [
        "issuers/https://login.example",
        "tenants/acme",
        "tenants/acme/secrets/crm-token",
        "tenants/acme/secrets/other",
        "tenants/acme/backends/crm",
        "tenants/acme/backends/demo",
        "tenants/beta",
    ];
    let lines = |verb: &str| whole.map(|name| format!("{verb} {name}\n")).concat();
    let (code, said) = apply(&["--dry-run"]).await;
    let sum = "would be created 7, replaced 0, deleted 0; left as they are 0\n";
    assert_eq!((code, said), (0, format!("{}{sum}", lines("would create"))));
    assert_eq!(deployment.root.get("/tenants").await.message(), json!({"items": []}));
    let (code, said) = apply(&[]).await;
    let sum = "created 7, replaced 0, deleted 0; left as they are 0\n";
    assert_eq!((code, said), (0, format!("{}{sum}", lines("created"))));
    let alice = deployment.caller(&issuer, "acme");
    let sent = async || {
        let answer = alice.call_tool("crm_echo", json!({})).await;
        let requests = upstream.requests();
        let last = requests.last().map(|last| last.header("authorization").join(","));
        (answer.status, last.unwrap_or_default())
    };
    eventually("the tool is called", async || sent().await == (200, "Bearer canary-one".to_owned())).await;

    let recorded = deployment.root.get("/tenants/acme/audit").await.text();
    for more in [&[][..], &["--prune"]] {
        let (code, said) = apply(more).await;
        assert_eq!((code, &*said), (0, "nothing to change: 7 as in the file\n"));
    }
    assert_eq!(deployment.root.get("/tenants/acme/audit").await.text(), recorded);

    write(&dir.join("value.txt"), "canary-other");
    let changed = file(&issuer, &upstream, "d_").replace("  beta:\n    legacy: off\n", "  gamma:\n");
    write(&dir.join("new.yaml"), &changed);
    let (code, said) = apply(&["--json"]).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, 0);
    assert_eq!(said["created"], json!(["tenants/gamma"]));
    assert_eq!(said["replaced"], json!(["tenants/acme/secrets/other", "tenants/acme/backends/demo"]));
    assert_eq!((&said["kept"], &said["deleted"]), (&json!(["tenants/beta"]), &json!([])));
    let (_, said) = apply(&[]).await;
    let sum = "not in the file: tenants/beta (`--prune` deletes it)\nnothing to change: 7 as in the file\n";
    assert_eq!(said, sum);
    let less = "tenants: {acme: {backends: {demo: {kind: demo}}}}";
    write(&dir.join("new.yaml"), less);
    let (code, said) = apply(&["--prune"]).await;
    assert_eq!(code, 0, "{said}");
    let all = said.lines().filter(|line| line.starts_with("deleted ")).count();
    assert_eq!(all, 6, "{said}");
    assert_eq!(deployment.root.get("/issuers").await.message(), json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_before_anything_is_written() {
    let deployment = Deployment::sqlite().await;
    let dir = deployment.serving.dir.path().to_owned();
    write(&dir.join("bad.yaml"), "tenants:\n  acme:\n    hosts: [Odd.example]\n    extra: 1\n");
    let (code, said) = fondaco(&deployment, &["apply", "-f", "bad.yaml"], "").await;
    assert_eq!(code, 2);
    assert!(said.contains("bad.yaml:3: tenants.acme.hosts[0]: "), "{said}");
    assert!(said.contains("bad.yaml:4: tenants.acme.extra: unknown key"), "{said}");
    let (code, said) = fondaco(&deployment, &["apply", "-f", "none.yaml"], "").await;
    assert!(code == 2 && said.starts_with("error: none.yaml: "), "{said}");
    // What only the gateway knows.
    write(
        &dir.join("bad.yaml"),
        "tenants: {acme: {backends: {b: {kind: mcp, url: \"https://169.254.169.254/\"}}}}",
    );
    let (code, said) = fondaco(&deployment, &["apply", "-f", "bad.yaml"], "").await;
    assert_eq!(code, 1);
    assert!(said.contains("error: tenants/acme/backends/b cannot be made"), "{said}");
    assert!(said.contains("document.url: the address 169.254.169.254"), "{said}");
    // Without a key, or with another, nothing happens.
    for (key, words) in [("", "there is no operator's key"), ("fdo_x", "needs `Authorization: Bearer`")] {
        let mut command = process::fondaco();
        command.args(["tenant", "list", "--url", &format!("http://{}", deployment.root.admin)]);
        command.env("FONDACO_ADMIN_KEY", key);
        let (succeeded, said) = process::listen(&mut command).await;
        assert!(!succeeded && said.contains(words), "{said}");
    }
    // What the clients are told by is nothing to the gateway.
    let mut command = process::fondaco();
    command.args(["check"]).current_dir(&dir).env("FONDACO_ADMIN_KEY", "fdo_x");
    command.env("FONDACO_ADMIN_URL", "http://127.0.0.1:1");
    let (succeeded, said) = process::listen(&mut command).await;
    assert!(succeeded, "{said}");
    let mut command = process::fondaco();
    command.args(["tenant", "list", "--url", "http://127.0.0.1:1"]).env("FONDACO_ADMIN_KEY", "fdo_x");
    let (succeeded, said) = process::listen(&mut command).await;
    assert!(
        !succeeded && said.contains("the admin API at http://127.0.0.1:1/api/v1 does not answer"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_backends_and_secrets_are_listed_and_deleted() {
    let deployment = Deployment::sqlite().await;
    let root = &deployment.root;
    let document = json!({"hosts": ["acme.example"], "issuers": [{"issuer": "https://own.example"}]});
    root.make("/tenants", &json!({"name": "acme", "document": document})).await;
    root.make("/tenants", &json!({"name": "b", "document": {}})).await;
    let ask = async |arguments: &[&str], input: &str| fondaco(&deployment, arguments, input).await;
    let set = ["secret", "set", "acme", "token"];
    assert_eq!(ask(&set, "canary-one\n").await, (0, "secret acme/token is made\n".into()));
    assert_eq!(ask(&set, "canary-one").await, (0, "secret acme/token has this value already\n".into()));
    assert_eq!(ask(&set, "canary-two").await, (0, "secret acme/token has a new value\n".into()));
    let (code, said) = ask(&["secret", "set", "nobody", "token"], "canary").await;
    assert_eq!((code, &*said), (1, "error: there is no such object\n"));
    let (code, said) = ask(&set, "canary\nthree").await;
    assert_eq!(
        (code, &*said),
        (1, "error: the request cannot be taken as it is\n  value: cannot be sent in a header\n")
    );
    let listed = "name   hosts         issuers              revision\n\
                  acme   acme.example  https://own.example  1\n\
                  b      -             -                    1\n"
        .replace("name   ", "name  ")
        .replace("acme   acme", "acme  acme")
        .replace("b      -", "b     -");
    assert_eq!(ask(&["tenant", "list"], "").await, (0, listed));
    let demo = json!({"name": "demo", "document": {"kind": "demo"}});
    root.make("/tenants/acme/backends", &demo).await;
    let listed = "name  kind  url  revision\ndemo  demo  -    4\n";
    assert_eq!(ask(&["backend", "list", "acme"], "").await, (0, listed.into()));
    assert_eq!(
        ask(&["backend", "get", "acme", "demo"], "").await,
        (0, "{\n  \"kind\": \"demo\"\n}\n".into())
    );
    let (_, said) = ask(&["tenant", "get", "acme", "--json"], "").await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["document"], document);
    assert_eq!(ask(&["secret", "list", "acme"], "").await, (0, "name   revision\ntoken  3\n".into()));
    assert_eq!(
        ask(&["backend", "delete", "acme", "demo"], "").await,
        (0, "backend acme/demo is deleted\n".into())
    );
    assert_eq!(
        ask(&["secret", "delete", "acme", "token"], "").await,
        (0, "secret acme/token is deleted\n".into())
    );
    assert_eq!(ask(&["tenant", "delete", "b"], "").await, (0, "tenant b is deleted\n".into()));
    assert_eq!(ask(&["tenant", "get", "b"], "").await, (2, "error: there is no tenant `b`\n".into()));
    let (code, said) = ask(&["backend", "list", "b"], "").await;
    assert_eq!((code, &*said), (2, "error: there is no tenant `b`\n"));
}
