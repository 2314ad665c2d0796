//! Strands, and a server that they are opened with.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::backend::Surroundings;
use crate::cache::Cache;
use crate::catalog::entry::Entry;
use crate::catalog::entry::Home;
use crate::egress::Egress;
use crate::egress::rules::Rules;
use crate::exchange::Notice;
use crate::exchange::Notices;
use crate::listen::hub::Hub;
use crate::listen::hub::Member;
use crate::listen::writer;
use crate::listen::writer::Audience;
use crate::listen::writer::Form;
use crate::listen::writer::Over;
use crate::model::caller::Caller;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::model::scope::Scopes;
use crate::model::tenant;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::protocol::subscription::Kinds;
use crate::telemetry::metrics::Metrics;

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn acme() -> TenantName {
    TenantName::new("acme").unwrap()
}

fn alice() -> Caller {
    Caller {
        tenant: acme(),
        issuer: "https://issuer.example".into(),
        subject: "alice".into(),
        client: None,
        scopes: Scopes::default(),
        expires_at: u64::MAX,
    }
}

pub(super) fn home(config: tenant::Backend) -> Arc<Home> {
    let rules = Rules { allow: vec!["127.0.0.0/8".parse().unwrap()] };
    let config = Arc::new(config);
    let around = Surroundings {
        egress: Egress::new(rules, Duration::from_secs(1), &[]).unwrap(),
        limits: Arc::new(Limits::default()),
        metrics: Arc::new(Metrics::new()),
        seats: Arc::default(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    };
    Arc::new(Home { live: Arc::new(Backend::new(config.clone(), acme(), around)), config, tasks: false })
}

fn hub(change: impl FnOnce(&mut Limits)) -> Arc<Hub> {
    let mut limits = Limits { notification_pause: Duration::ZERO, ..Limits::default() };
    change(&mut limits);
    let (limits, metrics) = (Arc::new(limits), Arc::new(Metrics::new()));
    let cache = Cache::new(&limits, metrics.clone());
    Hub::new(limits, metrics, TaskTracker::new(), cache)
}

fn want(member: &Member, home: &Arc<Home>, uri: &str) {
    member.want(&uri.into(), &Entry::unlisted(home, uri, uri, Scopes::default())).unwrap();
}

async fn honoured(member: &Member, uris: &[&str]) -> usize {
    member.honoured(uris.iter().map(|uri| (*uri).into()).collect()).await.len()
}

struct Anybody;

impl Audience for Anybody {
    async fn over(&self) -> Over {
        std::future::pending().await
    }

    async fn may_read(&self, _: &str) -> bool {
        true
    }
}

fn notices(member: &Arc<Member>) -> Notices {
    writer::write(member.clone(), Anybody, Form::Session)
}

async fn told(notices: &mut Notices, uri: &str) {
    match timeout(PATIENCE, notices.next()).await.expect("something is told") {
        Some(Notice::Message(message)) => assert!(message.text().contains(uri), "{}", message.text()),
        Some(Notice::End(_)) | None => panic!("the end"),
    }
}

/// A modern server that honours what it is asked for, unless it is told not to.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The URIs of every request, in order.
    asked: Vec<Vec<String>>,
    /// What is said on the answer to each of them that was honoured.
    said: Vec<mpsc::UnboundedSender<String>>,
    /// Nothing is honoured any more.
    is_mute: bool,
}

impl Server {
    async fn start() -> (Self, Arc<Home>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = Self::default();
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(socket));
            }
        });
        let kind = BackendKind::Mcp { url: url.parse().unwrap(), era: BackendEra::Modern };
        (server, home(tenant::Backend { kind, ..tenant::Backend::demo("up") }))
    }

    /// One request for each connection: one with `bad` among its URIs is refused as a whole.
    async fn serve(self, socket: TcpStream) -> Option<()> {
        let mut socket = BufReader::new(socket);
        let (mut length, mut line) = (0, String::new());
        while socket.read_line(&mut line).await.ok()? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        let request: Value = serde_json::from_slice(&body).ok()?;
        let uris = request["params"]["notifications"]["resourceSubscriptions"].as_array()?.clone();
        let uris: Vec<String> = uris.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let is_bad = uris.iter().any(|uri| uri.contains("bad"));
        let (say, mut said) = mpsc::unbounded_channel();
        let is_mute = {
            let mut state = self.0.lock().unwrap();
            state.asked.push(uris.clone());
            if !is_bad {
                state.said.push(say);
            }
            state.is_mute
        };
        if is_bad {
            let error =
                json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "No"}});
            let error = error.to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                error.len()
            );
            return socket.write_all((head + &error).as_bytes()).await.ok();
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        let agreed = if is_mute { json!({}) } else { json!({"resourceSubscriptions": uris}) };
        let acknowledgement = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": agreed}});
        socket.write_all(format!("{head}data: {acknowledgement}\n\n").as_bytes()).await.ok()?;
        while let Some(uri) = said.recv().await {
            let message = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                "params": {"uri": uri}});
            socket.write_all(format!("data: {message}\n\n").as_bytes()).await.ok()?;
        }
        Some(())
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Says on the answer to the request of this number that a resource has changed.
    fn say(&self, number: usize, uri: &str) {
        self.0.lock().unwrap().said[number].send(uri.to_owned()).unwrap();
    }

    async fn until(&self, what: impl Fn(&[Vec<String>]) -> bool) {
        let met = async {
            while !what(&self.asked()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(PATIENCE, met).await.is_ok(), "{:?}", self.asked());
    }
}

#[tokio::test]
async fn resources_of_many_bytes_are_subscribed_to_apart() {
    let hub = hub(|limits| limits.subscription_bytes = 1 << 20);
    let (home, member) = (home(tenant::Backend::demo("notes")), hub.join(&alice(), Kinds::NONE));
    for n in 0..32 {
        want(&member, &home, &format!("note:{n}{}", "x".repeat(2_000)));
    }
    // 16 of them are 32 KB and a bit less than 32 KiB.
    assert_eq!(hub.tasks(), 2);
}

#[tokio::test]
async fn one_resource_that_fails_its_subscription_takes_no_other_with_it() {
    let (server, home) = Server::start().await;
    let hub = hub(|limits| limits.open_pause = Duration::from_millis(1));
    let member = Arc::new(hub.join(&alice(), Kinds::NONE));
    let mut uris: Vec<String> = (0..20).map(|n| format!("note:{n}")).collect();
    uris.push("note:bad".to_owned());
    uris.iter().for_each(|uri| want(&member, &home, uri));
    let all = |asked: &[Vec<String>]| {
        asked.iter().any(|uris| uris.len() == 20 && uris.iter().all(|uri| !uri.contains("bad")))
    };
    server.until(all).await;
    assert_eq!(hub.tasks(), 1);
}

#[tokio::test]
async fn a_strand_is_reopened_a_few_times_at_once_and_then_once_a_second() {
    let (server, home) = Server::start().await;
    let hub = hub(|limits| limits.subscription_time = Duration::from_millis(60));
    let member = hub.join(&alice(), Kinds::NONE);
    let begun = Instant::now();
    for n in 0..12 {
        let uri = format!("note:{n}");
        want(&member, &home, &uri);
        assert_eq!(honoured(&member, &[&uri]).await, 1, "late or not");
    }
    let asked = server.asked().len() as u64;
    assert!(asked <= 4 + begun.elapsed().as_secs(), "{asked} in {:?}", begun.elapsed());
    server.until(|asked| asked.last().is_some_and(|uris| uris.len() == 12)).await;
}

#[tokio::test]
async fn what_is_on_its_way_when_a_subscription_is_replaced_is_told() {
    let (server, home) = Server::start().await;
    let hub = hub(|_| {});
    let member = Arc::new(hub.join(&alice(), Kinds::NONE));
    want(&member, &home, "note:a");
    assert_eq!(honoured(&member, &["note:a"]).await, 1);
    let notices = &mut notices(&member);
    assert!(notices.next().now_or_never().is_none());
    want(&member, &home, "note:b");
    assert_eq!(honoured(&member, &["note:b"]).await, 1);
    server.until(|asked| asked.len() == 2).await;
    server.say(0, "note:a");
    told(notices, "note:a").await;
}

#[tokio::test]
async fn who_was_promised_changes_that_are_refused_later_is_told_once() {
    let (server, home) = Server::start().await;
    let hub = hub(|_| {});
    let member = Arc::new(hub.join(&alice(), Kinds::NONE));
    want(&member, &home, "note:a");
    assert_eq!(honoured(&member, &["note:a"]).await, 1);
    let notices = &mut notices(&member);
    assert!(notices.next().now_or_never().is_none());
    server.0.lock().unwrap().is_mute = true;
    want(&member, &home, "note:b");
    assert_eq!(honoured(&member, &["note:b"]).await, 0);
    told(notices, "note:a").await;
    assert!(notices.next().now_or_never().is_none());
}
