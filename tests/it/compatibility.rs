//! Every client that we know of, in each of its modes, on the road to modern, handshake and mixed
//! tenants, through `fondaco serve`. What it shows is written down in `docs/compatibility.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::json;

use crate::harness::deployment;
use crate::harness::deployment::Deployment;
use crate::harness::process;
use crate::harness::process::Peers;
use crate::harness::process::Process;
use crate::harness::process::Runtime;
use crate::rmcp_client;
use crate::rmcp_client::Backend;
use crate::rmcp_client::Client;
use crate::rmcp_client::Mode;
use crate::rmcp_server;

const MODERN: &str = "2026-07-28";
const HANDSHAKE: &str = "2025-11-25";

/// Small, so that every list has pages.
const PAGE_SIZE: usize = 5;

/// How many clients are on the road at once, and how long one may take.
const AT_ONCE: usize = 4;
const TRIP_TIME: Duration = Duration::from_secs(300);

/// What drives a client.
#[derive(Clone, Copy)]
enum Driver {
    /// A script of `tests/clients`, and its `--mode`.
    Script(Runtime, &'static str, &'static str),
    /// This process.
    Rmcp(Mode),
}

/// A client in one of its modes: its name, its package, the mode in its own words, and the
/// revision that it has to negotiate with a gateway that serves both eras.
struct Traveller(&'static str, &'static str, &'static str, &'static str, Driver);

const TRAVELLERS: &[Traveller] = {
    use Driver::Rmcp;
    use Driver::Script;
    use Runtime::Fastmcp;
    use Runtime::Node;
    use Runtime::Python;
    use Runtime::Python1;
    const TS: &str = "TypeScript SDK 2";
    const TS_PACKAGE: &str = "@modelcontextprotocol/client";
    const INSPECTOR: &str = "Inspector, command line";
    const INSPECTOR_PACKAGE: &str = "@modelcontextprotocol/inspector";
    &[
        Traveller(TS, TS_PACKAGE, "`legacy` (default)", HANDSHAKE, Script(Node, "ts.mjs", "legacy")),
        Traveller(TS, TS_PACKAGE, "`auto`", MODERN, Script(Node, "ts.mjs", "auto")),
        Traveller(TS, TS_PACKAGE, "`pin`", MODERN, Script(Node, "ts.mjs", "pin")),
        Traveller(
            "TypeScript SDK 1",
            "@modelcontextprotocol/sdk",
            "its only one",
            HANDSHAKE,
            Script(Node, "ts_1.mjs", "legacy"),
        ),
        Traveller("Python SDK 2", "mcp", "`auto` (default)", MODERN, Script(Python, "python.py", "auto")),
        Traveller("Python SDK 2", "mcp", "`legacy`", HANDSHAKE, Script(Python, "python.py", "legacy")),
        Traveller("Python SDK 2", "mcp", "`2026-07-28`", MODERN, Script(Python, "python.py", "pin")),
        Traveller("Python SDK 1", "mcp", "its only one", HANDSHAKE, Script(Python1, "python_1.py", "legacy")),
        Traveller(
            "fastmcp",
            "fastmcp",
            "`auto` (default)",
            MODERN,
            Script(Fastmcp, "python_fastmcp.py", "auto"),
        ),
        Traveller(
            "fastmcp",
            "fastmcp",
            "`legacy`",
            HANDSHAKE,
            Script(Fastmcp, "python_fastmcp.py", "legacy"),
        ),
        Traveller("fastmcp", "fastmcp", "`2026-07-28`", MODERN, Script(Fastmcp, "python_fastmcp.py", "pin")),
        Traveller("rmcp", "rmcp", "`Initialize` (default)", HANDSHAKE, Rmcp(Mode::Initialize)),
        Traveller("rmcp", "rmcp", "`Auto`", MODERN, Rmcp(Mode::Auto)),
        Traveller("rmcp", "rmcp", "`Discover`", MODERN, Rmcp(Mode::Discover)),
        Traveller(
            INSPECTOR,
            INSPECTOR_PACKAGE,
            "`legacy` (default)",
            HANDSHAKE,
            Script(Node, "inspector.mjs", "legacy"),
        ),
        Traveller(INSPECTOR, INSPECTOR_PACKAGE, "`auto`", MODERN, Script(Node, "inspector.mjs", "auto")),
        Traveller(INSPECTOR, INSPECTOR_PACKAGE, "`modern`", MODERN, Script(Node, "inspector.mjs", "pin")),
    ]
};

/// A tenant: its name, where it is reached, and its backends.
struct Tenant(&'static str, &'static str, &'static [Backend]);

const TENANTS: [Tenant; 3] = [
    Tenant("modern", "/mcp", &[Backend { prefix: "", era: "modern" }]),
    Tenant("legacy", "/t/legacy/mcp", &[Backend { prefix: "", era: "legacy" }]),
    Tenant(
        "mixed",
        "/mcp",
        &[Backend { prefix: "new_", era: "modern" }, Backend { prefix: "old_", era: "legacy" }],
    ),
];

/// The three tenants and their backends.
async fn deploy() -> (Deployment, [Process; 4]) {
    let peers = Peers::find();
    let servers = [
        (Runtime::Node, "everything.mjs"),
        (Runtime::Python1, "server_1.py"),
        (Runtime::Node, "everything.mjs"),
        (Runtime::Node, "everything_1.mjs"),
    ];
    let mut backends = servers.map(|(runtime, script)| {
        Process::start(&mut peers.script(runtime, &format!("tests/fixtures/{script}")))
    });
    let urls = backends.each_mut().map(|backend| backend.line("listening "));
    let [modern, legacy, new, old] = &*join_all(urls).await else { unreachable!() };
    let only = |url: &str| format!("{{only: {}}}", deployment::backend(url, r#", prefix: "", era: auto"#));
    let (new, old) = (deployment::backend(new, ", era: modern"), deployment::backend(old, ", era: legacy"));
    let mixed = format!("{{new: {new}, old: {old}}}");
    let tenants = [("modern", &*only(modern)), ("legacy", &*only(legacy)), ("mixed", &*mixed)];
    let at = Deployment::start(peers, PAGE_SIZE, &tenants).await;
    (at, backends)
}

/// One client at one tenant: the lines of its steps, or what went wrong.
type Trip = Result<Vec<String>, String>;

async fn travel(at: &Deployment, driver: Driver, tenant: &Tenant, token: &str) -> Trip {
    let Tenant(_, path, backends) = tenant;
    let url = at.url(path);
    let (runtime, script, mode) = match driver {
        Driver::Script(runtime, script, mode) => (runtime, script, mode),
        Driver::Rmcp(mode) => {
            let trip = rmcp_client::take(&url, token, mode, backends, PAGE_SIZE);
            return Box::pin(trip).await.map_err(|error| format!("{error:#}"));
        }
    };
    let mut command = at.peers.script(runtime, &format!("tests/clients/{script}"));
    command.args(["--url", &url, "--token", token, "--mode", mode, "--page-size", &PAGE_SIZE.to_string()]);
    for Backend { prefix, era } in *backends {
        command.args([&format!("--prefix={prefix}"), "--backend", era]);
    }
    match process::listen(&mut command).await {
        (true, said) if said.contains("all steps passed") => Ok(said.lines().map(str::to_owned).collect()),
        (_, said) => Err(said),
    }
}

/// Every client at every tenant, in the order of `TRAVELLERS` and `TENANTS`.
async fn travel_all(at: &Deployment) -> Vec<Trip> {
    let mut tokens = Vec::new();
    for Tenant(name, path, _) in &TENANTS {
        tokens.push(at.token(name, &at.url(path)).await);
    }
    let tokens = &tokens;
    let trips = TRAVELLERS.iter().flat_map(|Traveller(.., driver)| {
        TENANTS.iter().zip(tokens).map(move |(tenant, token)| -> BoxFuture<'_, Trip> {
            // Its time begins when it does: most of them wait for others first.
            let trip =
                async move { tokio::time::timeout(TRIP_TIME, travel(at, *driver, tenant, token)).await };
            trip.map(|ended| ended.unwrap_or_else(|_| Err(format!("no end after {TRIP_TIME:?}")))).boxed()
        })
    });
    stream::iter(trips.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await
}

#[tokio::test]
async fn every_client_reaches_tenants_of_every_era() {
    let (at, _backends) = deploy().await;
    let trips = travel_all(&at).await;
    let mut wrong = String::new();
    for (number, trip) in trips.iter().enumerate() {
        let Traveller(client, _, mode, revision, _) = &TRAVELLERS[number / TENANTS.len()];
        let Tenant(tenant, ..) = &TENANTS[number % TENANTS.len()];
        match trip {
            Ok(lines) if lines[0].starts_with(&format!("ok connect ({revision}")) => {}
            Ok(lines) => _ = writeln!(wrong, "{client}, {mode}, {tenant}: not {revision}: {}", lines[0]),
            Err(error) => _ = writeln!(wrong, "{client}, {mode}, {tenant}: {error}"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}\n{}", at.serving.log());
    for (column, tenant) in TENANTS.iter().enumerate() {
        let at_tenant = trips.iter().skip(column).step_by(TENANTS.len()).flatten();
        check_cancellations(&at, tenant, &at_tenant.flatten().map(String::as_str).collect::<Vec<_>>()).await;
    }
    check_page(&trips.into_iter().map(Result::unwrap).collect::<Vec<_>>());
}

/// A client cannot tell its own cancellation from another's; together they are as many as the
/// backend has counted.
async fn check_cancellations(at: &Deployment, Tenant(name, path, backends): &Tenant, lines: &[&str]) {
    let url = at.url(path);
    let client = Client::connect(&url, &at.token(name, &url).await, Mode::Auto).await.unwrap();
    for Backend { prefix, .. } in *backends {
        let step =
            if backends.len() > 1 { format!("ok cancel of {prefix} ") } else { "ok cancel ".to_owned() };
        let sent = lines.iter().filter(|line| line.starts_with(&step)).count();
        let counted = client.call(&format!("{prefix}cancelled_count"), json!({})).await.unwrap();
        assert_eq!(counted.structured_content.unwrap()["count"], json!(sent), "{name}: {prefix}");
    }
}

// === the page ===

const BEGIN: &str = "<!-- written by tests/it/compatibility.rs -->\n";
const END: &str = "<!-- end -->\n";

/// Set `BLESS=1` to write the page anew.
fn check_page(trips: &[Vec<String>]) {
    let path = process::root().join("docs/compatibility.md");
    let current = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = current.split_once(BEGIN).expect("the page has a place for the tables");
    let (_, after) = rest.split_once(END).expect("the place for the tables ends");
    let page = format!("{before}{BEGIN}{}{END}{after}", tables(trips));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
        return;
    }
    assert_eq!(current, page, "run this test with BLESS=1");
}

fn tables(trips: &[Vec<String>]) -> String {
    let mut notes = Notes::default();
    let mut text = String::from("\n| client | version | mode | revision | modern | legacy | mixed |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for (Traveller(client, package, mode, revision, driver), row) in
        TRAVELLERS.iter().zip(trips.chunks(TENANTS.len()))
    {
        let version = version(package, matches!(driver, Driver::Script(Runtime::Python1, ..)));
        let cells = row.iter().map(|lines| notes.cell(lines)).collect::<Vec<_>>().join(" | ");
        let name = name(client, package);
        _ = writeln!(text, "| {name} | {version} | {mode} | {revision} | {cells} |");
    }
    text.push_str(&notes.text());
    text.push_str("\n| server | version | revision | where |\n|---|---|---|---|\n");
    for (server, package, old, revision, place) in SERVERS {
        let (name, version) = (name(server, package), version(package, *old));
        _ = writeln!(text, "| {name} | {version} | {revision} | {place} |");
    }
    text.push('\n');
    text
}

fn name(what: &str, package: &str) -> String {
    if what == package { format!("`{package}`") } else { format!("{what} (`{package}`)") }
}

/// Server, package, whether of an older version than the newest that is pinned, revision, place.
const SERVERS: &[(&str, &str, bool, &str, &str)] = &[
    ("TypeScript SDK 2", "@modelcontextprotocol/server", false, MODERN, "modern; mixed, as `era: modern`"),
    ("Python SDK 2", "mcp", false, MODERN, "a tenant of its own"),
    ("Python SDK 1", "mcp", true, HANDSHAKE, "legacy; with JSON answers: a tenant of its own"),
    ("TypeScript SDK 1", "@modelcontextprotocol/sdk", false, HANDSHAKE, "mixed, as `era: legacy`"),
    (
        "@modelcontextprotocol/server-everything",
        "@modelcontextprotocol/server-everything",
        false,
        HANDSHAKE,
        "a tenant of its own",
    ),
    ("rmcp", "rmcp", false, HANDSHAKE, "a tenant of its own"),
];

/// Why steps were not taken, each reason once.
#[derive(Default)]
struct Notes(Vec<(String, Vec<String>)>);

impl Notes {
    fn cell(&mut self, lines: &[String]) -> String {
        let mut reasons = BTreeMap::<&str, Vec<String>>::new();
        for line in lines.iter().filter_map(|line| line.strip_prefix("skip ")) {
            let (label, reason) = line.split_once(": ").expect("a reason");
            let step = format!("`{}`", label.split(' ').next().unwrap_or(label));
            let steps = reasons.entry(reason).or_default();
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        let numbers: Vec<String> =
            reasons.into_iter().map(|(reason, steps)| self.number(reason, steps).to_string()).collect();
        if numbers.is_empty() { "ok".to_owned() } else { format!("ok ({})", numbers.join(", ")) }
    }

    fn number(&mut self, reason: &str, steps: Vec<String>) -> usize {
        let note = (reason.to_owned(), steps);
        let known = self.0.iter().position(|known| *known == note);
        known.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        }) + 1
    }

    fn text(&self) -> String {
        let mut text = String::from("\nSteps that were not taken:\n\n");
        for (number, (reason, steps)) in self.0.iter().enumerate() {
            _ = writeln!(text, "{}. {}: {reason}", number + 1, steps.join(", "));
        }
        text
    }
}

/// The pinned version of a package; of those that are pinned twice the newest, or the oldest.
fn version(package: &str, oldest: bool) -> String {
    let read = |path: &str| std::fs::read_to_string(process::root().join(path)).unwrap();
    let (text, mark) = match package {
        "rmcp" => (read("Cargo.lock"), "name = \"rmcp\"\nversion = \"".to_owned()),
        package if package.starts_with('@') => (read("scripts/peers"), format!("  {package}@")),
        package => (read("scripts/peers"), format!("\"{package}==")),
    };
    let versions = text.split(&mark).skip(1).map(|rest| rest.split(['"', ' ', '\n']).next().unwrap());
    let found = if oldest { versions.last() } else { versions.into_iter().next() };
    found.unwrap_or_else(|| panic!("{package} is pinned nowhere")).to_owned()
}

// === servers that are no part of the matrix ===

/// A tenant on this backend alone, and how to call it.
async fn alone(url: &str, more: &str) -> (Deployment, String, String) {
    let backend = deployment::backend(url, &format!(r#", prefix: ""{more}"#));
    let at = Deployment::start(Peers::find(), PAGE_SIZE, &[("acme", &format!("{{only: {backend}}}"))]).await;
    let url = at.url("/mcp");
    let token = at.token("acme", &url).await;
    (at, url, token)
}

#[tokio::test]
async fn server_everything_is_a_backend() {
    let mut server = Process::start(&mut Peers::find().node("tests/fixtures/server_everything.mjs"));
    let (_at, url, token) = alone(&server.line("listening ").await, "").await;
    for mode in [Mode::Discover, Mode::Initialize] {
        let client = Client::connect(&url, &token, mode).await.unwrap();
        let tools = client.tools().await.unwrap().concat();
        assert!(tools.contains(&"get-structured-content".to_owned()), "{tools:?}");
        let text = client.call("echo", json!({"message": "hé"})).await.unwrap();
        assert_eq!(text.content[0].as_text().unwrap().text, "Echo: hé");
        let weather = client.call("get-structured-content", json!({"location": "Chicago"})).await.unwrap();
        assert_eq!(weather.structured_content.unwrap()["temperature"], 36);
        let work = json!({"duration": 0.5, "steps": 5});
        let progress = client.progress_of("trigger-long-running-operation", work).await.unwrap();
        assert!(progress.len() >= 2, "{progress:?}");
    }
}

#[tokio::test]
async fn a_server_on_rmcp_is_a_backend() {
    // Asked for server/discover it says -32022, as only a modern server does, and lists no modern
    // revision.
    let server = rmcp_server::start().await;
    let (_at, url, token) = alone(server.url(), "").await;
    for mode in [Mode::Discover, Mode::Initialize] {
        let backends = &[Backend { prefix: "", era: "legacy" }];
        let steps = Box::pin(rmcp_client::take(&url, &token, mode, backends, PAGE_SIZE)).await;
        steps.unwrap_or_else(|error| panic!("{mode:?}: {error:#}"));
    }
}

#[tokio::test]
async fn a_handshake_server_may_answer_with_json() {
    let mut command = Peers::find().script(Runtime::Python1, "tests/fixtures/server_1.py");
    let mut server = Process::start(command.arg("--json"));
    let (_at, url, token) = alone(&server.line("listening ").await, "").await;
    for mode in [Mode::Discover, Mode::Initialize] {
        let client = Client::connect(&url, &token, mode).await.unwrap();
        assert_eq!(client.tools().await.unwrap().concat().len(), 11);
        let text = client.call("echo", json!({"text": "hé"})).await.unwrap();
        assert_eq!(text.content[0].as_text().unwrap().text, "hé");
        assert_eq!(client.call("fail", json!({})).await.unwrap().is_error, Some(true));
        let seen = client.progress_of("slow", json!({"ms": 300})).await.unwrap();
        assert!(seen.len() >= 2, "it comes on the session's GET stream: {seen:?}");
    }
}

/// The servers of the tables send progress on the session's GET stream, as their SDK does.
#[tokio::test]
async fn progress_on_the_stream_of_its_call_is_carried_as_well() {
    let mut command = Peers::find().script(Runtime::Python1, "tests/fixtures/server_1.py");
    let mut server = Process::start(command.arg("--progress-in-call"));
    let (_at, url, token) = alone(&server.line("listening ").await, "").await;
    for mode in [Mode::Discover, Mode::Initialize] {
        let client = Client::connect(&url, &token, mode).await.unwrap();
        let steps: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(client.progress_of("slow", json!({"ms": 300})).await.unwrap(), steps);
    }
}
