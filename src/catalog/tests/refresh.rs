//! Catalogs over backends that answer, fail, hang and change.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::backend;
use super::caller;
use super::egress;
use super::limits;
use super::tenant;
use crate::catalog::herald::Changed;
use crate::catalog::herald::Herald;
use crate::catalog::refresh::Catalogs;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::source;
use crate::catalog::ui::Host;
use crate::model::limits::Limits;
use crate::model::name::BackendName;
use crate::model::name::TenantName;
use crate::model::tenant::Backend;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::model::tenant::Tenant;
use crate::protocol::methods::List;

/// An MCP server that lists what it is told to.
struct Upstream {
    url: url::Url,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    tools: Vec<&'static str>,
    prompts: Vec<&'static str>,
    /// Answers 500.
    broken: bool,
    /// Answers `tools/list` with 500.
    half: bool,
    /// Does not answer.
    silent: bool,
    lists: usize,
    /// When lists were asked for.
    asked: Vec<Instant>,
    /// What is said to those who listen; nobody may where there is none.
    said: Option<broadcast::Sender<&'static str>>,
    listens: usize,
}

impl Upstream {
    async fn start(tools: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let state = Arc::new(Mutex::new(State { tools: tools.to_vec(), ..State::default() }));
        let served = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, served.clone()));
            }
        });
        Self { url, state, task }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Lets subscriptions be open from now on, and ends those that are.
    fn tells(&self) {
        self.set(|state| state.said = Some(broadcast::channel(4096).0));
    }

    /// Says that a kind of list has changed; to how many.
    fn say(&self, kind: &'static str) -> usize {
        let said = self.state.lock().unwrap().said.clone();
        said.and_then(|said| said.send(kind).ok()).unwrap_or(0)
    }

    /// Waits until somebody listens, and the refresh that follows is over.
    async fn is_heard(&self, catalogs: &Catalogs) {
        eventually(async || {
            let refreshes: usize = catalogs
                .metrics()
                .lines()
                .filter_map(refreshes)
                .filter_map(|count| count.parse::<usize>().ok())
                .sum();
            let state = self.state.lock().unwrap();
            let listens = state.said.as_ref().map_or(0, broadcast::Sender::receiver_count);
            listens > 0 && state.lists > state.listens && state.lists == refreshes
        })
        .await;
    }

    fn lists(&self) -> usize {
        self.state.lock().unwrap().lists
    }

    fn backend(&self, name: &str, prefix: &str) -> Arc<Backend> {
        let config = backend(name, prefix, &[]);
        Arc::new(Backend {
            kind: BackendKind::Mcp { url: self.url.clone(), era: BackendEra::Modern },
            ..(*config).clone()
        })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: tokio::net::TcpStream, state: Arc<Mutex<State>>) {
    let mut bytes = Vec::new();
    let request: Value = loop {
        let mut part = [0; 4096];
        match stream.read(&mut part).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&part[..read]),
            _ => return,
        }
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(body) = head.and_then(|at| serde_json::from_slice(&bytes[at + 4..]).ok()) {
            break body;
        }
    };
    let listing = request["method"] == "tools/list";
    let (status, silent, tools, prompts) = {
        let mut state = state.lock().unwrap();
        state.lists += usize::from(listing);
        state.asked.extend(listing.then(Instant::now));
        let tools: Vec<_> =
            state.tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
        let broken = state.broken || state.half && listing;
        let prompts: Vec<_> = state.prompts.iter().map(|name| json!({"name": name})).collect();
        (if broken { "500 Oops" } else { "200 OK" }, state.silent, tools, prompts)
    };
    if silent {
        return std::future::pending().await;
    }
    if request["method"] == "subscriptions/listen" && status.starts_with("200") {
        let said = {
            let mut state = state.lock().unwrap();
            state.listens += 1;
            state.said.as_ref().map(broadcast::Sender::subscribe)
        };
        if let Some(said) = said {
            return listened(stream, said).await;
        }
    }
    let result = match request["method"].as_str() {
        Some("tools/list") => json!({"resultType": "complete", "tools": tools, "ttlMs": 0}),
        Some("prompts/list") => json!({"resultType": "complete", "prompts": prompts, "ttlMs": 0}),
        _ => {
            json!({"resultType": "complete", "instructions": "Be kind.", "supportedVersions": ["2026-07-28"],
                        "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {"name": "u", "version": "1"}, "ttlMs": 0, "cacheScope": "private"})
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// What a line of metrics says of refreshes.
fn refreshes(line: &str) -> Option<&str> {
    Some(line.strip_prefix("fondaco_catalog_refreshes_total")?.split_once(' ')?.1)
}

/// A subscription to everything.
async fn listened(mut stream: tokio::net::TcpStream, mut said: broadcast::Receiver<&'static str>) {
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let params = json!({"notifications": all});
    let event = |method: &str, params: Value| {
        format!("data: {}\n\n", json!({"jsonrpc": "2.0", "method": method, "params": params}))
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let begins = head.to_owned() + &event("notifications/subscriptions/acknowledged", params);
    let mut text = begins;
    loop {
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        let Ok(kind) = said.recv().await else { return };
        text = event(&format!("notifications/{kind}/list_changed"), json!({}));
    }
}

/// Who is told, and the tools that there were when it was.
#[derive(Default)]
struct Told {
    log: Mutex<Vec<(Changed, Vec<String>)>>,
    catalogs: OnceLock<(Catalogs, Arc<Tenant>)>,
}

impl Herald for Told {
    fn changed(&self, tenant: &TenantName, what: Changed) {
        assert_eq!(tenant.as_str(), "acme");
        let now = self.catalogs.get().and_then(|(catalogs, acme)| catalogs.shared(acme).now_or_never());
        self.log.lock().unwrap().push((what, now.as_deref().map(seen).unwrap_or_default()));
    }
}

impl Told {
    fn take(&self) -> Vec<(Changed, Vec<String>)> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// What is told from now on, as soon as there is something.
    async fn next(&self) -> Vec<(Changed, Vec<String>)> {
        eventually(async || !self.log.lock().unwrap().is_empty()).await;
        self.take()
    }
}

const TOOLS: Changed = Changed { tools: true, ..Changed::NOTHING };

/// Catalogs that tell, after the first build for `acme`.
async fn told(limits: Limits, acme: &Arc<Tenant>) -> (Arc<Told>, Catalogs) {
    let told = Arc::new(Told::default());
    let limits = Limits { open_pause: Duration::from_millis(20), ..limits };
    let catalogs = Catalogs::new(egress(), Arc::new(limits), Arc::default(), told.clone());
    let _ = told.catalogs.set((catalogs.clone(), acme.clone()));
    catalogs.retain(std::slice::from_ref(acme));
    catalogs.shared(acme).await;
    (told, catalogs)
}

/// The tools that a caller of `acme` sees.
fn seen(snapshot: &Snapshot) -> Vec<String> {
    let page = snapshot.view(List::Tools, &tenant(vec![], 0), &caller("acme", ""), Host::Plain).page(None);
    page.entries.elements().map(|tool| tool.member("name").unwrap().string().unwrap()).collect()
}

fn catalogs(limits: Limits) -> Catalogs {
    Catalogs::new(egress(), Arc::new(limits), Arc::default(), Arc::new(()))
}

fn names() -> (TenantName, BackendName) {
    (TenantName::new("acme").unwrap(), BackendName::new("one").unwrap())
}

#[tokio::test]
async fn the_demo_backend_is_in_the_catalog_at_once() {
    let catalogs = catalogs(limits());
    let acme = tenant(vec![backend("demo", "", &[])], 1);
    let snapshot = catalogs.shared(&acme).await;
    assert!(seen(&snapshot).contains(&"echo".to_owned()), "{:?}", seen(&snapshot));
    assert_eq!(snapshot.left_out, []);
    assert_eq!(snapshot.tools.find("region_lookup").unwrap().header_params[0].header, "Mcp-Param-Region");
    assert!(catalogs.backend(&acme.name, &acme.backends[0].name).is_some());
    assert!(Arc::ptr_eq(&snapshot, &catalogs.shared(&acme).await), "nothing changed");
    catalogs.shutdown().await;
}

#[tokio::test]
async fn the_first_build_is_shared_and_waits_for_no_hanging_backend() {
    let (one, two) = (Upstream::start(&["a"]).await, Upstream::start(&["b"]).await);
    two.set(|state| state.silent = true);
    let catalogs = catalogs(Limits { first_catalog_time: Duration::from_millis(500), ..limits() });
    let acme = tenant(vec![one.backend("one", ""), two.backend("two", "")], 1);
    let started = Instant::now();
    let both = tokio::join!(catalogs.shared(&acme), catalogs.shared(&acme));
    assert!((500..5_000).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    assert_eq!((seen(&both.0), seen(&both.1)), (vec!["a".into()], vec!["a".into()]));
    assert_eq!(both.0.instructions.as_deref(), Some("Acme's tools.\n\nBe kind."));
    assert_eq!(one.lists(), 1);
    let started = Instant::now();
    catalogs.shared(&acme).await;
    assert!(started.elapsed() < Duration::from_millis(400), "only the first requests wait");
    catalogs.shutdown().await;
}

#[tokio::test]
async fn of_many_first_requests_one_records_the_owners_and_nobody_waits_for_it() {
    let upstream = Upstream::start(&["a"]).await;
    upstream.set(|state| state.silent = true);
    let catalogs = catalogs(Limits { first_catalog_time: Duration::from_millis(100), ..limits() });
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let (go_on, until) = std::sync::mpsc::channel();
    catalogs.hold_up(&acme, until);
    let mut asked: FuturesUnordered<_> = (0..20).map(|_| catalogs.shared(&acme)).collect();
    for n in 0..19 {
        let answered = tokio::time::timeout(Duration::from_secs(10), asked.next()).await;
        assert!(answered.is_ok(), "only {n} of 20 did not wait");
    }
    assert!(asked.next().now_or_never().is_none(), "one does what has to be done");
    go_on.send(()).unwrap();
    asked.next().await.unwrap();
    catalogs.shutdown().await;
}

#[tokio::test]
async fn a_failing_backend_keeps_its_last_list() {
    let upstream = Upstream::start(&["a", "b"]).await;
    let catalogs = catalogs(Limits { refresh_time: Duration::from_millis(20), ..limits() });
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let first = catalogs.shared(&acme).await;
    assert_eq!(seen(&first), ["a", "b"]);
    let lists = upstream.lists();
    upstream.set(|state| state.broken = true);
    eventually(async || upstream.lists() > lists + 2).await;
    assert!(Arc::ptr_eq(&first, &catalogs.shared(&acme).await));
    upstream.set(|state| (state.broken, state.tools) = (false, vec!["c"]));
    eventually(async || seen(&*catalogs.shared(&acme).await) == ["c"]).await;
    assert!(catalogs.shared(&acme).await.revision > first.revision);
    catalogs.shutdown().await;
    let lists = upstream.lists();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(upstream.lists(), lists, "nothing is asked after the end");
}

#[tokio::test]
async fn a_list_that_fails_keeps_its_last_entries_beside_fresh_ones() {
    let upstream = Upstream::start(&["a"]).await;
    let catalogs = catalogs(Limits { refresh_time: Duration::from_millis(20), ..limits() });
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let first = catalogs.shared(&acme).await;
    assert_eq!((seen(&first), first.prompts.len(), first.complete), (vec!["a".into()], 0, true));
    upstream.set(|state| (state.half, state.tools, state.prompts) = (true, vec!["b"], vec!["p"]));
    eventually(async || catalogs.shared(&acme).await.prompts.find("p").is_some()).await;
    let half = catalogs.shared(&acme).await;
    assert_eq!((seen(&half), half.complete), (vec!["a".into()], true));
    upstream.set(|state| state.half = false);
    eventually(async || seen(&*catalogs.shared(&acme).await) == ["b"]).await;
    catalogs.shutdown().await;
    // Where it never came, everything else is there, and is not for long.
    let upstream = Upstream::start(&["a"]).await;
    upstream.set(|state| (state.half, state.prompts) = (true, vec!["p"]));
    let catalogs = super::refresh::catalogs(limits());
    let snapshot = catalogs.shared(&tenant(vec![upstream.backend("one", "")], 1)).await;
    assert_eq!((seen(&snapshot).len(), snapshot.prompts.len(), snapshot.complete), (0, 1, false));
    catalogs.shutdown().await;
}

#[tokio::test]
async fn a_new_configuration_takes_over_the_last_list() {
    let upstream = Upstream::start(&["a"]).await;
    let catalogs = catalogs(limits());
    catalogs.shared(&tenant(vec![upstream.backend("one", "")], 1)).await;
    upstream.set(|state| state.silent = true);
    let started = Instant::now();
    let newer = tenant(vec![upstream.backend("one", "x_")], 2);
    assert_eq!(seen(&*catalogs.shared(&newer).await), ["x_a"]);
    assert!(started.elapsed() < Duration::from_secs(4));
    // Another place has another list.
    let elsewhere = Upstream::start(&["b"]).await;
    let newest = tenant(vec![elsewhere.backend("one", "")], 3);
    assert_eq!(seen(&*catalogs.shared(&newest).await), ["b"]);
    // A request that was on its way when the configuration changed does not bring it back.
    catalogs.retain(std::slice::from_ref(&newest));
    assert_eq!(seen(&*catalogs.shared(&newer).await), ["b"]);
    catalogs.retain(&[]);
    assert!(catalogs.backend(&newest.name, &newest.backends[0].name).is_none());
    catalogs.shutdown().await;
}

#[tokio::test]
async fn what_is_gone_is_not_asked_any_more() {
    let (old, new) = (Upstream::start(&["a"]).await, Upstream::start(&["b"]).await);
    let catalogs = catalogs(Limits { refresh_time: Duration::from_millis(20), ..limits() });
    let (tenant_name, backend_name) = names();
    let first = tenant(vec![old.backend("one", "")], 1);
    let second = tenant(vec![new.backend("one", "")], 2);
    catalogs.retain(std::slice::from_ref(&first));
    assert_eq!(seen(&*catalogs.shared(&first).await), ["a"]);
    // Replaced: nobody refreshes it, and its successor begins at once.
    catalogs.retain(std::slice::from_ref(&second));
    eventually(async || new.lists() > 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lists = old.lists();
    assert_eq!(seen(&*catalogs.shared(&second).await), ["b"]);
    assert_eq!(seen(&*catalogs.shared(&first).await), ["b"]);
    // Removed: who still holds it finds nothing, and makes nothing.
    catalogs.retain(&[]);
    assert!(seen(&*catalogs.shared(&second).await).is_empty());
    assert!(seen(&*catalogs.shared(&first).await).is_empty());
    assert!(catalogs.backend(&tenant_name, &backend_name).is_none());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let newer = new.lists();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((old.lists(), new.lists()), (lists, newer));
    // A request may be faster than the news of its tenant.
    let third = tenant(vec![new.backend("one", "")], 3);
    assert_eq!(seen(&*catalogs.shared(&third).await), ["b"]);
    catalogs.retain(std::slice::from_ref(&third));
    assert_eq!(seen(&*catalogs.shared(&third).await), ["b"]);
    catalogs.shutdown().await;
}

#[tokio::test]
async fn a_nudge_refreshes_early_but_not_twice_in_a_moment() {
    let upstream = Upstream::start(&["a"]).await;
    let catalogs = catalogs(limits());
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let (tenant, backend) = names();
    assert!(!catalogs.refreshed(&tenant, &backend).await, "nobody asked for it yet");
    catalogs.shared(&acme).await;
    upstream.set(|state| state.tools = vec!["b"]);
    let both = tokio::join!(catalogs.refreshed(&tenant, &backend), catalogs.refreshed(&tenant, &backend));
    assert_eq!(both, (true, true), "they share one, also right after one of the schedule");
    assert_eq!(seen(&*catalogs.shared(&acme).await), ["b"]);
    assert!(!catalogs.refreshed(&tenant, &backend).await, "it was asked for a moment ago");
    catalogs.nudge(&tenant, &backend);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(upstream.lists(), 2, "one refresh for all");
    catalogs.shutdown().await;
}

// spec: row LT-07
#[tokio::test]
async fn what_a_backend_says_has_changed_is_told_once_the_catalog_has_it() {
    let upstream = Upstream::start(&["a"]).await;
    upstream.tells();
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let (told, catalogs) = told(limits(), &acme).await;
    upstream.is_heard(&catalogs).await;
    assert_eq!(told.take(), [], "nobody saw another one");
    for tools in [vec!["b"], vec!["b", "c"]] {
        upstream.set(|state| state.tools = tools.clone());
        let began = Instant::now();
        assert_eq!(upstream.say("tools"), 1);
        let log = told.next().await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(log, [(TOOLS, tools.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())]);
    }
    // Also where nothing differs, and of the kind that was said.
    upstream.say("prompts");
    let log = told.next().await;
    assert_eq!(log, [(Changed { prompts: true, ..Changed::NOTHING }, vec!["b".into(), "c".into()])]);
    // A refresh that fails serves nothing: it is told when one has not.
    upstream.set(|state| (state.broken, state.tools) = (true, vec!["d"]));
    let lists = upstream.lists();
    upstream.say("tools");
    eventually(async || upstream.lists() > lists).await;
    assert_eq!(told.take(), []);
    upstream.set(|state| state.broken = false);
    assert_eq!(told.next().await, [(TOOLS, vec!["d".into()])]);
    catalogs.shutdown().await;
}

#[tokio::test]
async fn a_thousand_notifications_are_a_few_refreshes_and_the_last_one_comes_after_all() {
    let upstream = Upstream::start(&["a"]).await;
    upstream.tells();
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let (told, catalogs) = told(limits(), &acme).await;
    upstream.is_heard(&catalogs).await;
    let before = upstream.lists();
    for n in 0..1_000 {
        upstream.set(|state| state.tools = if n % 2 == 0 { vec!["b"] } else { vec!["c", "d"] });
        assert_eq!(upstream.say("tools"), 1);
        if n % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let last = Instant::now();
    eventually(async || upstream.state.lock().unwrap().asked.last().is_some_and(|at| *at > last)).await;
    eventually(async || seen(&*catalogs.shared(&acme).await) == ["c", "d"]).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(upstream.lists() - before <= 5, "{}", upstream.lists() - before);
    let log = told.take();
    assert!((1..=5).contains(&log.len()), "{log:?}");
    assert_eq!(log.last().unwrap().1, ["c", "d"]);
    catalogs.shutdown().await;
}

// spec: rows SB-06, RL-07
#[tokio::test]
async fn after_a_gap_there_is_one_refresh_and_a_backend_that_was_away_is_told_of_once() {
    let upstream = Upstream::start(&["a"]).await;
    upstream.tells();
    let acme = tenant(vec![upstream.backend("one", "")], 1);
    let (told, catalogs) = told(limits(), &acme).await;
    upstream.is_heard(&catalogs).await;
    // Cut and open again at once: what changed between is found.
    upstream.set(|state| state.tools = vec!["b"]);
    upstream.tells();
    assert_eq!(told.next().await, [(TOOLS, vec!["b".into()])]);
    upstream.tells();
    upstream.is_heard(&catalogs).await;
    assert_eq!(told.take(), [], "nothing differs");
    // Away for a while.
    upstream.set(|state| (state.broken, state.said) = (true, None));
    let lists = upstream.lists();
    eventually(async || upstream.lists() > lists).await;
    upstream.tells();
    upstream.set(|state| state.broken = false);
    let log = told.next().await;
    let all = Changed { tools: true, prompts: true, resources: true };
    assert_eq!(log, [(all, vec!["b".into()])]);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(told.take(), []);
    catalogs.shutdown().await;
}

#[tokio::test]
async fn what_differs_is_told_though_nobody_said_it() {
    let (one, two) = (Upstream::start(&["a"]).await, Upstream::start(&["b"]).await);
    let limits = Limits {
        refresh_time: Duration::from_millis(20),
        first_catalog_time: Duration::from_millis(300),
        list_time: Duration::from_secs(2),
        ..limits()
    };
    two.set(|state| state.silent = true);
    let acme = tenant(vec![one.backend("one", ""), two.backend("two", "")], 1);
    let (told, catalogs) = told(limits, &acme).await;
    assert_eq!(seen(&*catalogs.shared(&acme).await), ["a"]);
    assert_eq!(told.take(), []);
    // Who had the short list is told of the whole one.
    two.set(|state| state.silent = false);
    assert_eq!(told.next().await, [(TOOLS, vec!["a".into(), "b".into()])]);
    // Found by the schedule.
    one.set(|state| state.tools = vec!["c"]);
    assert_eq!(told.next().await, [(TOOLS, vec!["b".into(), "c".into()])]);
    // Of our own making: a backend that is not configured any more, without anybody asking.
    catalogs.retain(&[tenant(vec![one.backend("one", "")], 2)]);
    assert_eq!(told.next().await, [(TOOLS, vec!["c".into()])]);
    catalogs.retain(&[tenant(vec![], 3)]);
    assert_eq!(told.next().await, [(TOOLS, vec![])]);
    // The same in other words is no change.
    catalogs.retain(&[tenant(vec![one.backend("one", "")], 4)]);
    assert_eq!(told.next().await, [(TOOLS, vec!["c".into()])]);
    catalogs.retain(&[tenant(vec![one.backend("one", "")], 5)]);
    let lists = one.lists();
    eventually(async || one.lists() > lists + 3).await;
    assert_eq!(told.take(), []);
    catalogs.shutdown().await;
}

// spec: row GW-12
#[tokio::test]
async fn a_backend_that_stays_away_leaves_the_catalog_and_comes_back() {
    let (one, two) = (Upstream::start(&["a"]).await, Upstream::start(&["b"]).await);
    let grace = Duration::from_millis(1_500);
    let limits = Limits { refresh_time: Duration::from_millis(20), catalog_grace: grace, ..limits() };
    let acme = tenant(vec![one.backend("one", ""), two.backend("two", "")], 1);
    let (told, catalogs) = told(limits, &acme).await;
    let stale = || catalogs.metrics().contains("fondaco_catalogs_stale 1");
    assert!(!stale());
    let away = Instant::now();
    two.set(|state| state.broken = true);
    eventually(async || stale()).await;
    assert_eq!(seen(&*catalogs.shared(&acme).await), ["a", "b"]);
    assert_eq!(told.next().await, [(TOOLS, vec!["a".into()])]);
    assert!(away.elapsed() >= grace);
    let snapshot = catalogs.shared(&acme).await;
    assert!(snapshot.complete, "what is known to be away is no reason to ask again every second");
    two.set(|state| state.broken = false);
    assert_eq!(told.next().await, [(TOOLS, vec!["a".into(), "b".into()])]);
    eventually(async || !stale()).await;
    catalogs.shutdown().await;
}

#[test]
fn waits_follow_the_ttl_within_bounds() {
    let limits = limits();
    for (ttl, least, most) in [
        (None, 270, 330),
        (Some(0), 270, 330),
        (Some(1), 30, 33),
        (Some(60_000), 60, 66),
        (Some(u64::MAX), 3600, 3600),
    ] {
        for _ in 0..20 {
            let wait = source::until_next(ttl, &limits);
            assert!(
                (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&wait),
                "{ttl:?} {wait:?}"
            );
        }
    }
    for (failures, most) in [(1, 1), (2, 2), (3, 4), (7, 60), (u32::MAX, 60)] {
        let wait = source::back_off(failures);
        assert!(
            wait >= Duration::from_secs(most) / 2 && wait <= Duration::from_secs(most),
            "{failures} {wait:?}"
        );
    }
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < Duration::from_secs(10), "it never happened");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
