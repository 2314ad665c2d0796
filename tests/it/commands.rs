//! The program as a person and a script meet it: what it prints, what it refuses, how it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::serving::Serving;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Connection;

/// The line that `dev` prints last.
const LAST: &str = "{\"mcpServers\"";

/// `fondaco dev` in this directory, on free ports, with more arguments.
fn dev(dir: &Path, more: &[&str]) -> Process {
    let mut command = process::fondaco();
    command.args(["dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).args(more).current_dir(dir);
    // Later arguments must not repeat earlier ones.
    if let Some(at) = more.iter().position(|argument| *argument == "--listen") {
        command = process::fondaco();
        command.args(["dev", "--admin", "127.0.0.1:0", "--listen", more[at + 1]]);
        command.args(&more[..at]).args(&more[at + 2..]).current_dir(dir);
    }
    command.stderr(std::fs::File::create(dir.join("log")).unwrap());
    Process::start(&mut command)
}

/// Runs `fondaco` to its end.
async fn run(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = process::fondaco();
    command.args(arguments).envs(variables.iter().copied()).current_dir(dir).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(20), command.output()).await;
    let Output { status, stdout, stderr } = ended.expect("it does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Pastes this into a shell.
async fn paste(dir: &Path, script: &str) -> String {
    process::run(Command::new("bash").args(["-e", "-c", script]).current_dir(dir)).await
}

fn field<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

fn caller(endpoint: &str, token: &str) -> Caller {
    let (addr, path) = endpoint.strip_prefix("http://").unwrap().split_once('/').unwrap();
    Caller { addr: addr.parse().unwrap(), path: format!("/{path}"), token: token.to_owned() }
}

#[tokio::test]
async fn dev_prints_a_working_call_and_a_refused_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut dev = dev(dir.path(), &["--env-file", "env"]);
    let said = dev.until(LAST).await;
    let first: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(first["result"]["supportedVersions"], serde_json::json!(["2026-07-28"]), "{first}");
    assert!(first["result"]["capabilities"]["tools"].is_object(), "{first}");

    let (_, pasted) = said.split_once("Call a tool:\n\n").unwrap();
    let mut blocks = pasted.split("\n\n").filter(|block| block.contains("curl "));
    let (call, refused) = (blocks.next().unwrap(), blocks.next().unwrap());
    assert!(call.starts_with("TOKEN=") && refused.starts_with("curl "), "{said}");
    let both = paste(dir.path(), &format!("{call}\necho\n{refused}\necho")).await;
    let answers: Vec<Value> = both.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["result"]["structuredContent"]["result"], 5, "{both}");
    assert_eq!(answers[1]["error"]["code"], -32602, "{both}");
    assert!(answers[1]["error"]["message"].as_str().unwrap().contains("_meta"), "{both}");

    let host: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let server = &host["mcpServers"]["fondaco"];
    assert_eq!(server["url"], field(&said, "endpoint:"));
    assert_eq!(server["headers"]["Authorization"], format!("Bearer {}", field(&said, "token:")));

    let from_file = call.replace("http://", "x").split_once('\n').unwrap().1.replacen(
        &format!("x{}", field(&said, "endpoint:").trim_start_matches("http://")),
        "\"$FONDACO_URL\"",
        1,
    );
    let script = format!(". ./env\n{}", from_file.replace("$TOKEN", "$FONDACO_TOKEN"));
    let answer: Value = serde_json::from_str(&paste(dir.path(), &script).await).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["result"], 5);
    let mode = std::fs::metadata(dir.path().join("env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    dev.signal("INT");
    assert!(dev.end().await.success());
    // Lines are written in batches; at its end all of them are.
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(!log.contains(field(&said, "token:")) && log.contains("tools/call"), "{log}");
}

#[tokio::test]
async fn dev_is_reached_where_it_listens() {
    let dir = tempfile::tempdir().unwrap();
    let mut dev = dev(dir.path(), &["--listen", "[::1]:0"]);
    let said = dev.until(LAST).await;
    let endpoint = field(&said, "endpoint:");
    assert!(endpoint.starts_with("http://[::1]:"), "{endpoint}");
    let alice = caller(endpoint, field(&said, "token:"));
    assert_eq!(alice.tools().await.len(), 8);
    // What `token` mints for the printed endpoint is of the same issuer.
    let (code, token, _) = run(dir.path(), &["token", "--aud", endpoint], &[]).await;
    assert_eq!(code, Some(0));
    let minted = Caller { token: token.trim().to_owned(), ..alice };
    assert_eq!(minted.tools().await.len(), 8);
    dev.signal("INT");
    assert!(dev.end().await.success());
}

#[tokio::test]
async fn real_clients_call_the_demo() {
    let peers = Peers::find();
    let dir = tempfile::tempdir().unwrap();
    let mut dev = dev(dir.path(), &[]);
    let said = dev.until(LAST).await;
    let (url, token) = (field(&said, "endpoint:"), field(&said, "token:"));
    for mut client in [peers.python("tests/clients/python.py"), peers.node("tests/clients/ts.mjs")] {
        client.args(["--url", url, "--token", token, "--expect", "demo"]);
        let steps = process::run(&mut client).await;
        assert!(steps.contains("all steps passed"), "{steps}");
    }
    dev.signal("INT");
    assert!(dev.end().await.success());
}

#[tokio::test]
async fn the_example_goes_all_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut dev = dev(dir.path(), &["--env-file", "env"]);
    dev.until(LAST).await;
    let example = process::root().join("examples/e2e.sh");
    let script = format!("set -a; . ./env; '{}'", example.display());
    let said = paste(dir.path(), &script).await;
    assert!(said.ends_with("all of it went well\n"), "{said}");
    let wrong = Command::new("bash")
        .args(["-c", &format!("set -a; . ./env; FONDACO_TOKEN=none '{}'", example.display())])
        .current_dir(dir.path())
        .output()
        .await
        .unwrap();
    assert!(!wrong.status.success(), "it notices what is wrong");
    dev.signal("INT");
    assert!(dev.end().await.success());
}

#[tokio::test]
async fn dev_keeps_its_keys_between_runs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("env"), "old").unwrap();
    std::fs::set_permissions(dir.path().join("env"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut first = dev(dir.path(), &["--env-file", "env"]);
    let said = first.until(LAST).await;
    let mode = std::fs::metadata(dir.path().join("env")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "of a file that was there");
    for name in ["dev-issuer.pem", "keyring"] {
        let mode =
            std::fs::metadata(dir.path().join("fondaco-data").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let (endpoint, token) = (field(&said, "endpoint:"), field(&said, "token:"));
    let started = Instant::now();
    first.signal("INT");
    assert!(first.end().await.success());
    assert!(started.elapsed() < Duration::from_secs(3), "Ctrl-C ends `dev` at once");

    let alice = caller(endpoint, token);
    let mut second = dev(dir.path(), &["--listen", &alice.addr.to_string()]);
    second.until(LAST).await;
    assert_eq!(alice.tools().await.len(), 8, "by the first run's token");
    second.signal("INT");
    second.end().await;
}

#[tokio::test]
async fn sigterm_drains() {
    let dir = tempfile::tempdir().unwrap();
    let mut dev = dev(dir.path(), &[]);
    let said = dev.until(LAST).await;
    let alice = caller(field(&said, "endpoint:"), field(&said, "token:"));
    let slow = alice.clone();
    let arguments = serde_json::json!({"steps": 2, "delay_ms": 1000});
    let call = tokio::spawn(async move { slow.call_tool("slow", arguments).await });
    let log = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    dev.signal("TERM");
    eventually("it drains", async || log().contains("draining")).await;
    // A load balancer may not have heard of it yet.
    assert_eq!(alice.tools().await.len(), 8);
    assert_eq!(call.await.unwrap().result()["structuredContent"]["steps"], 2);
    assert!(dev.end().await.success());
    assert!(log().contains("stopped"), "{}", log());
    assert!(!log().contains("were cut"), "{}", log());
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let tenants = "tenants: {acme: {backends: {demo: {kind: demo}}}}";
    let mut serving = Serving::start(tenants, &[("FONDACO_LIMITS__DRAIN_ACCEPT", "20s")]).await;
    serving.process.signal("TERM");
    eventually("it drains", async || serving.log().contains("draining")).await;
    let started = Instant::now();
    serving.process.signal("TERM");
    assert_eq!(serving.process.end().await.code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn dev_serves_tenants_beside_the_demo() {
    let dir = tempfile::tempdir().unwrap();
    // The demo's issuer is known to the file; its port is known before the start, for once.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let acme = format!(
        "tenants: {{acme: {{issuers: [{{shared: 'http://{listen}/dev-issuer'}}], backends: {{d: {{kind: demo}}}}}}}}"
    );
    std::fs::write(dir.path().join("tenants.yaml"), acme).unwrap();
    let mut dev = dev(dir.path(), &["--listen", &listen, "--tenants", "tenants.yaml"]);
    let said = dev.until(LAST).await;
    let alice = caller(field(&said, "endpoint:"), field(&said, "token:"));
    assert_eq!(alice.tools().await.len(), 8);
    let url = format!("http://{listen}");
    let minted = ["token", "--tenant", "acme", "--public-url", &url, "--scope", ""];
    let (code, token, _) = run(dir.path(), &minted, &[]).await;
    assert_eq!(code, Some(0));
    let bob = Caller { token: token.trim().to_owned(), ..alice };
    assert!(bob.tools().await.contains(&"d_echo".to_owned()));
    dev.signal("INT");
    dev.end().await;

    std::fs::write(dir.path().join("tenants.yaml"), "tenants:\n  demo: {}\n").unwrap();
    let (code, out, error) = run(
        dir.path(),
        &["dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--tenants", "tenants.yaml"],
        &[],
    )
    .await;
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let expected = "error: the tenants cannot be used\n\
                    tenants.yaml:2: tenants.demo: the tenant is declared in another file already\n";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn dev_listens_on_loopback_alone_and_says_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, code, said) in [
        (&["--listen", "0.0.0.0:0"][..], 2, "error: `fondaco dev` listens on loopback addresses only"),
        (&["--admin", "[::]:0"], 2, "error: `fondaco dev` listens on loopback addresses only"),
        (&["--listen", "8080"], 2, "error: invalid value '8080' for '--listen <ADDRESS>'"),
        (
            &["--env-file", "no/such/file"],
            1,
            "error: cannot write the environment file no/such/file: No such file",
        ),
        (
            &["--data-dir", "/dev/null"],
            1,
            "error: the development issuer's key `/dev/null/dev-issuer.pem` cannot be read or written",
        ),
        (
            &["--tenants", "none.yaml"],
            2,
            "error: the tenants cannot be used\nnone.yaml: cannot be read: No such file",
        ),
        (&["--port", "1"], 2, "error: unexpected argument '--port' found"),
    ] {
        let mut all = vec!["dev"];
        for (option, value) in [("--listen", "127.0.0.1:0"), ("--admin", "127.0.0.1:0")] {
            if !arguments.contains(&option) {
                all.extend([option, value]);
            }
        }
        all.extend(arguments);
        let (found, out, error) = run(dir.path(), &all, &[]).await;
        assert_eq!((found, out.as_str()), (Some(code), ""), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    std::fs::write(dir.path().join("t.yaml"), "tenants: {}").unwrap();
    let expected = format!("error: cannot listen on {taken}: Address already in use (os error 98)\n  hint: ");
    let dev = ["dev", "--listen", &taken, "--admin", "127.0.0.1:0"];
    let serve = ["serve", "--tenants", "t.yaml"];
    let variables = [("FONDACO_LISTEN", "127.0.0.1:0"), ("FONDACO_ADMIN__LISTEN", taken.as_str())];
    for (arguments, variables, named) in [
        (&dev[..], &[][..], ["`--listen`", "`--admin`"]),
        (&serve, &variables, ["`FONDACO_LISTEN`", "`FONDACO_ADMIN__LISTEN`"]),
    ] {
        let (code, out, error) = run(dir.path(), arguments, variables).await;
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(error.starts_with(&expected) && named.iter().all(|name| error.contains(name)), "{error}");
    }
}

#[tokio::test]
async fn serve_takes_its_settings_from_variables() {
    let tenants =
        "tenants: {acme: {issuers: [{issuer: 'https://as.example'}], backends: {demo: {kind: demo}}}}";
    let variables =
        [("FONDACO_PUBLIC_URL", "https://mcp.example.com"), ("FONDACO_LIMITS__TARGET_BYTES", "256B")];
    let serving = Serving::start(tenants, &variables).await;
    let host = [("Host".to_owned(), "mcp.example.com".to_owned())];
    let path = "/.well-known/oauth-protected-resource/t/acme/mcp";
    let document = wire::request(serving.addr, "GET", path, &host, b"").await.message();
    assert_eq!(document["resource"], "https://mcp.example.com/t/acme/mcp");
    let long = format!("/{}", "x".repeat(256));
    assert_eq!(wire::request(serving.addr, "GET", &long, &host, b"").await.status, 414);
    assert_eq!(wire::request(serving.addr, "GET", path, &[], b"").await.status, 403, "by its address");
    let ready = wire::request(serving.admin, "GET", "/readyz", &[], b"").await;
    assert_eq!((ready.status, ready.text()), (200, "ready\n".to_owned()));
    // An idle connection does not hold up the end.
    let _idle = Connection::open(serving.addr).await;
    assert!(serving.process.terminate().await.success());
}

#[tokio::test]
async fn serve_refuses_what_is_not_safe_or_not_right() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good.yaml"), "tenants: {}").unwrap();
    std::fs::write(dir.path().join("bad.yaml"), "tenants:\n  acme:\n    hosts: [A]\n  b: {x: 1}\n").unwrap();
    let (good, bad) = (["serve", "--tenants", "good.yaml"], ["serve", "--tenants", "bad.yaml"]);
    let any = [("FONDACO_LISTEN", "127.0.0.1:0"), ("FONDACO_ADMIN__LISTEN", "127.0.0.1:0")];
    let open = [("FONDACO_LISTEN", "0.0.0.0:0"), ("FONDACO_ADMIN__LISTEN", "0.0.0.0:0")];
    let no_keys = "error: `keys.ring` is empty: processes that share a database need the same keys\n  hint: ";
    let server = [any[0], any[1], ("FONDACO_DATABASE__URL", "postgres://x@127.0.0.1:1/x")];
    let unsafe_listeners = "error: the configuration cannot be used\n\
        FONDACO_LISTEN: listen: `0.0.0.0:0` is not loopback, and `public_url` is missing\n  \
          hint: set `public_url`, for example to `https://mcp.example.com`\n\
        FONDACO_ADMIN__LISTEN: admin.listen: `0.0.0.0:0` is not loopback\n  \
          hint: set `admin.allow_remote = true` where only operators can reach this address\n";
    let broken = "error: the tenants cannot be used\n\
        bad.yaml:3: tenants.acme.hosts[0]: `A` is not how this host is written\n  hint: write `a`\n\
        bad.yaml:4: tenants.b.x: unknown key\n  hint: known here: ";
    for (arguments, variables, said) in
        [(&["serve"][..], &server[..], no_keys), (&good, &open, unsafe_listeners), (&bad, &any, broken)]
    {
        let (code, out, error) = run(dir.path(), arguments, variables).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.ends_with('\n') && error.contains(said), "{error}");
    }
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/keyring"), "x").unwrap();
    for (data, said) in [
        (
            "/dev/null",
            "error: the key ring /dev/null/keyring cannot be used: Not a directory (os error 20)\n",
        ),
        ("data", "error: data/keyring can be read by others; `chmod 600` it\n"),
    ] {
        let (code, _, error) = run(dir.path(), &good, &[any[0], any[1], ("FONDACO_DATA_DIR", data)]).await;
        assert_eq!((code, error.as_str()), (Some(1), said));
    }
    let clear = [any[1], open[0], ("FONDACO_PUBLIC_URL", "http://mcp.example.com")];
    let (code, _, error) = run(dir.path(), &good, &clear).await;
    assert!(code == Some(2) && error.contains("clear text"), "{error}");
    let unknown = [any[0], any[1], ("FONDACO_LIMITS__BODY_SIZE", "1MiB"), ("FONDACO_PUBLIC_ULR", "x")];
    let (code, _, error) = run(dir.path(), &good, &unknown).await;
    assert_eq!(code, Some(2));
    assert!(error.contains("limits.body_size: unknown key"), "{error}");
    assert!(error.contains("did you mean `FONDACO_PUBLIC_URL`?"), "{error}");
}

#[tokio::test]
async fn check_tells_every_problem_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("fondaco.toml", "tenants = \"t.yaml\"\n\n[limits]\nbody_bytes = \"4 parsecs\"\n");
    write(
        "t.yaml",
        "tenants:\n  acme:\n    backends:\n      crm: {kind: mcp, url: ftp://x}\n      b: {kind: stdio}\n",
    );
    let (code, out, error) = run(dir.path(), &["check"], &[("FONDACO_LIMITS__CONNECTIONS", "-1")]).await;
    assert_eq!((code, error.as_str()), (Some(2), ""));
    let places = [
        "fondaco.toml:4: limits.body_bytes: ",
        "FONDACO_LIMITS__CONNECTIONS: limits.connections: ",
        "t.yaml:4: tenants.acme.backends.crm.url: ",
        "t.yaml:5: tenants.acme.backends.b.kind: ",
    ];
    // Without settings the configured tenants file is not known.
    for place in &places[..2] {
        assert!(out.contains(place), "{place} {out}");
    }
    let (code, out, _) =
        run(dir.path(), &["check", "--tenants", "t.yaml"], &[("FONDACO_LIMITS__CONNECTIONS", "-1")]).await;
    assert_eq!(code, Some(2));
    for place in places {
        assert!(out.lines().any(|line| line.starts_with(place)), "{place} {out}");
    }
    assert!(out.contains("found `stdio`, expected one of `mcp`, `demo`\n"), "{out}");

    write("fondaco.toml", "tenants = \"t.yaml\"\n");
    write(
        "t.yaml",
        "tenants:\n  acme:\n    backends:\n      crm: {kind: mcp, url: 'http://crm.svc/mcp?key=s3cret'}\n      \
         own: {kind: mcp, url: 'https://own.example/mcp', era: legacy, catalog: per_caller}\n",
    );
    let (code, out, error) = run(dir.path(), &["check"], &[]).await;
    let expected = "\
warning: t.yaml:2: tenants.acme: the tenant's endpoints accept no issuer
  hint: list a `{shared: …}` issuer or its own; until then only `/mcp`, if served, leads here
ok
source: the file t.yaml
tenants: 1, endpoints: 1
  acme crm: mcp http://crm.svc/mcp
  acme own: mcp https://own.example/mcp, era legacy, catalog per_caller
internal addresses and clear text need, in the configuration,
  [egress]
  allow = [\"crm.svc\"]
";
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), expected, ""));
    std::fs::remove_file(dir.path().join("fondaco.toml")).unwrap();
    let (code, out, _) = run(dir.path(), &["check"], &[]).await;
    let expected =
        "ok\nsource: the database, SQLite in the data directory: its tenants are not looked at here\n";
    assert_eq!((code, out.as_str()), (Some(0), expected));
    let server = [("FONDACO_DATABASE__URL", "postgres://u:hidden@db/x")];
    let (code, out, _) = run(dir.path(), &["check"], &server).await;
    assert_eq!(code, Some(2), "what `serve` refuses is not well: {out}");
    assert!(out.starts_with("configuration: keys.ring: missing: ") && !out.contains("hidden"), "{out}");
    let (code, out, _) = run(dir.path(), &["check", "--config", "none.toml"], &[]).await;
    assert_eq!(code, Some(2));
    assert!(out.starts_with("none.toml: cannot be read: No such file"), "{out}");
}

#[tokio::test]
async fn check_refuses_what_serve_would() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("t.yaml"), "tenants: {}").unwrap();
    let check = ["check", "--tenants", "t.yaml"];
    let any = [("FONDACO_LISTEN", "127.0.0.1:0"), ("FONDACO_ADMIN__LISTEN", "127.0.0.1:0")];
    let (code, out, _) = run(dir.path(), &check, &[]).await;
    assert_eq!((code, out.as_str()), (Some(0), "ok\nsource: the file t.yaml\ntenants: 0, endpoints: 0\n"));
    assert!(!dir.path().join("fondaco-data").exists(), "it only looks");

    let keyring = dir.path().join("fondaco-data/keyring");
    std::fs::create_dir(dir.path().join("fondaco-data")).unwrap();
    let used = "the key ring ./fondaco-data/keyring cannot be used: ";
    for (text, mode, said) in [
        ("", 0o600, format!("{used}there is no key in it")),
        ("garbage", 0o600, format!("{used}its line 1 is not 32 bytes in base64")),
        ("QUJD", 0o600, format!("{used}its line 1 is not 32 bytes in base64")),
        ("", 0o644, "./fondaco-data/keyring can be read by others; `chmod 600` it".to_owned()),
    ] {
        std::fs::write(&keyring, text).unwrap();
        std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, out, _) = run(dir.path(), &check, &[]).await;
        assert_eq!((code, out), (Some(2), format!("configuration: data_dir: {said}\n")));
        let (code, _, error) = run(dir.path(), &["serve", "--tenants", "t.yaml"], &any).await;
        assert!(code == Some(1) && error == format!("error: {said}\n"), "{error}");
    }
    for (name, value, said) in [
        ("FONDACO_DATA_DIR", "/dev/null", "the key ring /dev/null/keyring cannot be used: Not a directory"),
        ("FONDACO_ADMIN__LISTEN", "127.0.0.1:8080", "`127.0.0.1:8080` is taken by the public listener"),
    ] {
        let (code, out, _) = run(dir.path(), &check, &[(name, value)]).await;
        assert!(code == Some(2) && out.contains(said), "{out}");
    }
}

#[tokio::test]
async fn token_mints_what_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let claims = |token: &str| -> Value {
        let body = token.split('.').nth(1).unwrap();
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        serde_json::from_slice(&base64::Engine::decode(&engine, body).unwrap()).unwrap()
    };
    let (code, out, error) = run(dir.path(), &["token"], &[]).await;
    assert_eq!((code, out.lines().count()), (Some(0), 1));
    assert!(error.starts_with("note: made a new issuer key, ./fondaco-data/dev-issuer.pem: "), "{error}");
    let (code, out, error) = run(dir.path(), &["token"], &[]).await;
    assert_eq!((code, error.as_str(), out.lines().count()), (Some(0), "", 1), "its key is there now");
    let plain = claims(out.trim());
    for (name, value) in [
        ("iss", "http://127.0.0.1:8080/dev-issuer"),
        ("aud", "http://127.0.0.1:8080/mcp"),
        ("sub", "alice"),
        ("client_id", "fondaco-cli"),
        ("tenant", "demo"),
        ("scope", "demo.use"),
    ] {
        assert_eq!(plain[name], value);
    }
    assert_eq!(plain["exp"].as_u64().unwrap() - plain["iat"].as_u64().unwrap(), 3600);
    let asked = "token --tenant acme --sub bob --client app --ttl 5m --count 3 --public-url https://gw.example:8443/ \
                 --aud https://gw.example:8443/t/acme/mcp --scope";
    let mut arguments: Vec<&str> = asked.split_whitespace().collect();
    arguments.push("a b");
    let (_, out, _) = run(dir.path(), &arguments, &[]).await;
    let all: Vec<Value> = out.lines().map(claims).collect();
    let subjects: Vec<_> = all.iter().map(|claims| claims["sub"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["bob", "bob-2", "bob-3"]);
    assert_eq!(all[2]["iss"], "https://gw.example:8443/dev-issuer");
    assert_eq!(all[2]["aud"], "https://gw.example:8443/t/acme/mcp");
    assert_eq!((&all[2]["scope"], &all[2]["client_id"]), (&"a b".into(), &"app".into()));
    for (audience, issuer) in [
        ("https://gw.example:8443/t/acme/mcp", "https://gw.example:8443/dev-issuer"),
        ("urn:gate", "http://127.0.0.1:8080/dev-issuer"),
        ("gate", "http://127.0.0.1:8080/dev-issuer"),
    ] {
        let (_, out, _) = run(dir.path(), &["token", "--aud", audience], &[]).await;
        assert_eq!((&claims(&out)["aud"], &claims(&out)["iss"]), (&audience.into(), &issuer.into()));
    }
    for (arguments, said) in [
        (["--tenant", "No One"], "error: --tenant: a name starts with a lower-case letter"),
        (["--public-url", "http://x/y"], "error: --public-url: expected a scheme and an authority"),
        (["--public-url", "mailto:x@y"], "error: --public-url: expected a scheme and an authority"),
        (["--public-url", "x"], "error: invalid value 'x' for '--public-url <URL>'"),
        (["--ttl", "0s"], "error: invalid value '0s' for '--ttl <TIME>': expected a time such as `30s`"),
        (
            ["--scope", "a\"b"],
            "error: invalid value 'a\"b' for '--scope <SCOPES>': expected scopes of visible",
        ),
        (["--scope", "a\\b"], "error: invalid value 'a\\b' for '--scope <SCOPES>'"),
        (["--scope", "a  b"], "error: invalid value 'a  b' for '--scope <SCOPES>'"),
        (["--scope", "a\tb"], "error: invalid value 'a"),
        (["--scope", "é"], "error: invalid value 'é' for '--scope <SCOPES>'"),
        (["--count", "0"], "error: invalid value '0' for '--count <NUMBER>'"),
        (["--ttl", "soon"], "error: invalid value 'soon' for '--ttl <TIME>'"),
    ] {
        let (code, out, error) = run(dir.path(), &["token", arguments[0], arguments[1]], &[]).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(error.starts_with(said), "{arguments:?}: {error}");
    }
    std::fs::write(dir.path().join("fondaco-data/dev-issuer.pem"), "no key").unwrap();
    let (code, _, error) = run(dir.path(), &["token"], &[]).await;
    assert_eq!(code, Some(1));
    let expected = "error: `./fondaco-data/dev-issuer.pem` is not an ES256 key in PEM form; remove it and a new one is made\n";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn help_names_every_command_and_option() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--help"][..], &["dev", "serve", "check", "apply", "secret", "token", "--version"][..]),
        (
            &["dev", "--help"],
            &[
                "--listen <ADDRESS>",
                "--admin <ADDRESS>",
                "--data-dir <DIR>",
                "--tenants <FILE>",
                "--env-file <FILE>",
            ],
        ),
        (&["serve", "--help"], &["--config <FILE>", "--tenants <FILE>", "FONDACO_CONFIG"]),
        (&["check", "--help"], &["--config <FILE>", "--tenants <FILE>"]),
        (
            &["token", "--help"],
            &[
                "--tenant <NAME>",
                "--scope <SCOPES>",
                "--aud <URL>",
                "--ttl <TIME>",
                "--count <NUMBER>",
                "--public-url <URL>",
                "--data-dir <DIR>",
            ],
        ),
        (
            &["apply", "--help"],
            &["-f, --file <FILE>", "--prune", "--dry-run", "--url <URL>", "--key-file <FILE>", "--json"],
        ),
        (&["tenant", "--help"], &["list", "get", "delete", "--url <URL>"]),
        (&["backend", "--help"], &["list", "get", "delete", "FONDACO_ADMIN_URL"]),
        (&["secret", "set", "--help"], &["<TENANT> <NAME>", "--file <FILE>", "--key-file <FILE>"]),
    ] {
        let (code, out, error) = run(dir.path(), arguments, &[]).await;
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
        for word in words {
            assert!(out.contains(word), "{arguments:?}: {word}\n{out}");
        }
        assert!(out.lines().all(|line| line.len() <= 120), "{out}");
    }
    let (code, out, error) = run(dir.path(), &[], &[]).await;
    assert!(code == Some(2) && out.is_empty() && error.contains("Usage: fondaco <COMMAND>"), "{error}");
    let (code, _, error) = run(dir.path(), &["serve", "--tenant", "x"], &[]).await;
    assert!(code == Some(2) && error.contains("tip: a similar argument exists: '--tenants'"), "{error}");
    let (code, _, error) = run(dir.path(), &["sevre"], &[]).await;
    assert!(code == Some(2) && error.contains("similar subcommands exist: 'secret', 'serve'"), "{error}");
}
