//! Bytes on real sockets against the loop, with limits small enough to wait for.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http::Response;
use hyper::body::Incoming;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;

use super::Drain;
use super::serve;
use crate::edge::EdgeError;
use crate::edge::framing;
use crate::edge::origin;
use crate::model::limits::Limits;
use crate::model::name::TenantName;
use crate::stream::body;
use crate::stream::body::BodyError;
use crate::stream::budget::Budget;
use crate::telemetry::metrics::Open;

const PATIENCE: Duration = Duration::from_secs(5);

struct Server {
    address: SocketAddr,
    drain: Drain,
    open: Gauge,
    // Handlers and bodies that are still alive.
    alive: Gauge,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

fn small() -> Limits {
    let millis = Duration::from_millis;
    Limits {
        head_time: millis(300),
        idle_time: millis(800),
        body_time: millis(400),
        body_bytes: 1 << 20,
        write_time: millis(300),
        drain_accept: millis(300),
        drain_total: millis(2000),
        ..Limits::default()
    }
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (drain, open, alive) = (Drain::new(), Gauge::default(), Gauge::default());
        let (limits, served) = (Arc::new(limits), Arc::new(AtomicUsize::new(0)));
        let service = tower::service_fn({
            let (limits, alive, served) = (limits.clone(), alive.clone(), served.clone());
            move |request| {
                served.fetch_add(1, Ordering::Relaxed);
                let (limits, alive) = (limits.clone(), Open::new(&alive));
                async move { Ok::<_, Infallible>(handle(request, &limits, alive).await) }
            }
        });
        let task = tokio::spawn(serve(listener, limits, service, drain.clone(), open.clone()));
        Self { address, drain, open, alive, served, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn send(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = self.connect().await;
        // The server may answer and close before it has everything.
        let _ = stream.write_all(bytes.as_ref()).await;
        stream
    }

    async fn eventually_alive(&self, count: i64) {
        let reached = async {
            while self.alive.get() != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{} alive", self.alive.get()));
    }
}

async fn handle(request: Request<Incoming>, limits: &Limits, alive: Open) -> Response<Body> {
    match request.uri().path() {
        "/hold" => std::future::pending().await,
        "/slow" => {
            sleep(Duration::from_millis(1000)).await;
            Response::new(Body::from("done"))
        }
        "/flood" => {
            let chunk = Bytes::from(vec![b'x'; 64 << 10]);
            let chunks = stream::repeat_with(move || {
                let _held = &alive;
                Ok::<_, Infallible>(chunk.clone())
            });
            Response::new(Body::from_stream(chunks))
        }
        _ => {
            let status = climb(request, limits).await.err().unwrap_or(200);
            Response::builder().status(status).body(Body::empty()).unwrap()
        }
    }
}

/// The status of the first refusal.
async fn climb(request: Request<Incoming>, limits: &Limits) -> Result<(), u16> {
    let (parts, content) = request.into_parts();
    let refused = |error: EdgeError| -> u16 {
        match error {
            EdgeError::BadFraming(_) | EdgeError::BadHost(_) => 400,
            EdgeError::UnknownHost | EdgeError::ForbiddenOrigin => 403,
            EdgeError::NotFound => 404,
            EdgeError::MethodNotAllowed { .. } => 405,
            EdgeError::TargetTooLong => 414,
            EdgeError::HeadTooLarge => 431,
            EdgeError::HttpVersion => 505,
        }
    };
    framing::check(&parts, limits).map_err(refused)?;
    origin::admit(&parts, |host| host == "gate", |_, origin| origin == "https://app").map_err(refused)?;
    if parts.uri.path() != "/mcp" {
        return Err(404);
    }
    if parts.method != http::Method::POST {
        return Err(405);
    }
    let budget = Budget::new(limits.bodies_bytes);
    let tenant = TenantName::new("acme").expect("a slug");
    let read = body::read(content, limits, &mut budget.open(&tenant)).await;
    read.map(drop).map_err(|error| match error {
        BodyError::TooLarge => 413,
        BodyError::Timeout => 408,
        BodyError::Broken => 400,
        BodyError::Overloaded => 503,
    })
}

/// Everything until the server closes, or `None` if it does not within `time`.
async fn rest(stream: &mut TcpStream, time: Duration) -> Option<String> {
    let mut all = Vec::new();
    let read = timeout(time, stream.read_to_end(&mut all)).await.ok()?;
    // A reset is a close too.
    drop(read);
    Some(String::from_utf8_lossy(&all).into_owned())
}

/// The next answer's head; an answer without a body is all there is.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
    };
    timeout(PATIENCE, read).await.expect("an answer");
    String::from_utf8(head).unwrap()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: gate\r\n{fields}\r\n{body}")
}

fn status(answer: &str) -> u16 {
    answer.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_late_head_is_closed_without_an_answer() {
    let server = Server::start(small()).await;
    let started = Instant::now();
    let mut silent = server.connect().await;
    let mut half = server.send("POST /mcp HTTP/1.1\r\nHost: ga").await;
    let (mut reader, mut writer) = server.send("POST /mcp HTTP/1.1\r\nX-A: ").await.into_split();
    let drip = tokio::spawn(async move {
        while writer.write_all(b"a").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(rest(&mut silent, PATIENCE).await.as_deref(), Some(""));
    assert_eq!(rest(&mut half, PATIENCE).await.as_deref(), Some(""));
    let mut dripped = Vec::new();
    let _ = timeout(PATIENCE, reader.read_to_end(&mut dripped)).await.expect("closed");
    assert!(dripped.is_empty());
    assert!(started.elapsed() >= Duration::from_millis(300));
    drip.abort();
}

#[tokio::test]
async fn a_later_head_has_the_same_time_from_its_first_byte() {
    let server = Server::start(Limits { idle_time: PATIENCE * 10, ..small() }).await;
    let mut stream = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert_eq!(status(&head(&mut stream).await), 200);
    sleep(Duration::from_millis(400)).await;
    stream.write_all(b"POST /mcp").await.unwrap();
    assert_eq!(rest(&mut stream, PATIENCE).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_kept_alive_connection_may_idle_for_its_time() {
    let server = Server::start(small()).await;
    let mut stream = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert_eq!(status(&head(&mut stream).await), 200);
    sleep(Duration::from_millis(400)).await;
    stream.write_all(post("Content-Length: 2\r\n", "{}").as_bytes()).await.unwrap();
    assert_eq!(status(&head(&mut stream).await), 200);
    let idle = Instant::now();
    assert_eq!(rest(&mut stream, PATIENCE).await.as_deref(), Some(""));
    assert!(idle.elapsed() >= Duration::from_millis(700), "{:?}", idle.elapsed());
}

#[tokio::test]
async fn a_request_that_is_being_answered_is_not_idle() {
    let server = Server::start(small()).await;
    let slow = "GET /slow HTTP/1.1\r\nHost: gate\r\n\r\n";
    let mut stream = server.send(format!("{slow}{slow}")).await;
    for _ in 0..2 {
        assert_eq!(status(&head(&mut stream).await), 200);
        stream.read_exact(&mut [0; 4]).await.unwrap();
    }
}

#[tokio::test]
async fn a_dripped_body_is_late() {
    let server = Server::start(small()).await;
    let mut stream = server.send(post("Content-Length: 1000\r\n", "{")).await;
    assert_eq!(status(&head(&mut stream).await), 408);
    assert!(rest(&mut stream, PATIENCE).await.is_some());
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut() {
    let server = Server::start(small()).await;
    let _unread = server.send("GET /flood HTTP/1.1\r\nHost: gate\r\n\r\n").await;
    server.eventually_alive(1).await;
    server.eventually_alive(0).await;
    assert_eq!(server.open.get(), 0);
}

#[tokio::test]
async fn a_handler_ends_when_its_client_leaves() {
    let hold = "GET /hold HTTP/1.1\r\nHost: gate\r\n\r\n";
    let unread = "POST /hold HTTP/1.1\r\nHost: gate\r\nContent-Length: 100\r\n\r\nabc";
    let server = Server::start(small()).await;
    for bytes in [hold.to_owned(), format!("{hold}{hold}"), unread.to_owned()] {
        for half_closed in [false, true] {
            let mut stream = server.send(&bytes).await;
            server.eventually_alive(1).await;
            sleep(Duration::from_millis(20)).await;
            let kept = if half_closed {
                stream.shutdown().await.unwrap();
                Some(stream)
            } else {
                drop(stream);
                None
            };
            server.eventually_alive(0).await;
            drop(kept);
        }
    }
    assert_eq!(server.served.load(Ordering::Relaxed), 6, "a request behind a left client was served");
}

#[tokio::test]
async fn connections_over_the_limit_wait() {
    let server = Server::start(Limits { connections: 1, ..small() }).await;
    let first = server.send("GET /hold HTTP/1.1\r\nHost: gate\r\n\r\n").await;
    server.eventually_alive(1).await;
    let mut second = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert!(timeout(Duration::from_millis(100), second.read_u8()).await.is_err());
    drop(first);
    assert_eq!(status(&head(&mut second).await), 200);
}

#[tokio::test]
async fn a_connection_at_rest_makes_room_and_the_one_that_rested_longest_goes_first() {
    let patient = Limits { connections: 20, idle_time: PATIENCE * 10, head_time: PATIENCE * 10, ..small() };
    let server = Server::start(patient).await;
    let ask = || post("Content-Length: 2\r\n", "{}");
    let mut strangers = Vec::new();
    for _ in 0..20 {
        let mut stream = server.send(ask()).await;
        assert_eq!(status(&head(&mut stream).await), 200);
        strangers.push(stream);
    }
    // The first one is not idle for the longest time any more.
    strangers[0].write_all(ask().as_bytes()).await.unwrap();
    assert_eq!(status(&head(&mut strangers[0]).await), 200);
    let started = Instant::now();
    let mut client = server.send(ask()).await;
    assert_eq!(status(&head(&mut client).await), 200);
    assert!(started.elapsed() < Duration::from_millis(250), "{:?}", started.elapsed());
    for (n, stranger) in strangers.iter_mut().enumerate() {
        let cut = rest(stranger, Duration::from_millis(20)).await.is_some();
        assert_eq!(cut, n == 1, "stranger {n}");
    }
    assert_eq!(server.open.get(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_crowd_every_request_that_came_in_is_answered() {
    let server = Arc::new(Server::start(Limits { connections: 4, ..small() }).await);
    let crowd = (0..16).map(|_| {
        let server = server.clone();
        tokio::spawn(async move {
            // The one before is left open, at rest.
            let mut kept = None;
            for n in 0..25 {
                let mut stream = server.send(post("Content-Length: 2\r\n", "{}")).await;
                assert_eq!(status(&head(&mut stream).await), 200, "request {n}");
                drop(kept.replace(stream));
            }
        })
    });
    for client in crowd.collect::<Vec<_>>() {
        timeout(PATIENCE * 2, client).await.expect("all are answered").unwrap();
    }
}

#[tokio::test]
async fn a_busy_connection_makes_no_room_until_it_rests() {
    let server = Server::start(Limits { connections: 20, idle_time: PATIENCE * 10, ..small() }).await;
    let mut busy = Vec::new();
    for n in 0..20 {
        let path = if n == 7 { "slow" } else { "hold" };
        busy.push(server.send(format!("GET /{path} HTTP/1.1\r\nHost: gate\r\n\r\n")).await);
    }
    server.eventually_alive(20).await;
    let started = Instant::now();
    let mut client = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert!(timeout(Duration::from_millis(300), client.read_u8()).await.is_err());
    assert_eq!(server.alive.get(), 20);
    // The slow one is answered whole before it goes.
    let answer = rest(&mut busy[7], PATIENCE).await.expect("closed");
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(status(&head(&mut client).await), 200);
    assert!(started.elapsed() < Duration::from_millis(1300), "{:?}", started.elapsed());
    assert_eq!(server.alive.get(), 19);
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let patient = Limits { connections: 20, head_time: PATIENCE * 10, ..small() };
    let server = Server::start(patient).await;
    let mut strangers = Vec::new();
    for n in 0..20 {
        strangers.push(server.send(&b"POST /mcp HTTP/1.1\r\nX-A: "[..n % 25]).await);
    }
    let mut client = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert_eq!(status(&head(&mut client).await), 200);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn vanished_clients_are_noticed_and_unsent_bytes_are_few() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    super::fit_out(&listener, &small());
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
    assert_eq!(socket.tcp_keepalive_time().unwrap() + probes, Duration::from_secs(120));
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(120)));
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), 128 << 10);
}

#[tokio::test]
async fn draining_finishes_what_runs_and_closes_what_idles() {
    let server = Server::start(Limits { idle_time: PATIENCE * 10, ..small() }).await;
    let mut idle = server.send(post("Content-Length: 2\r\n", "{}")).await;
    assert!(!head(&mut idle).await.contains("connection: close"));
    let mut running = server.send("GET /slow HTTP/1.1\r\nHost: gate\r\n\r\n").await;
    server.eventually_alive(1).await;
    let begun = Instant::now();
    server.drain.begin();
    let mut late = server.send(post("Content-Length: 2\r\n", "{}")).await;
    let answer = head(&mut late).await;
    assert_eq!((status(&answer), answer.contains("connection: close")), (200, true), "{answer}");
    drop(late);
    assert_eq!(rest(&mut idle, PATIENCE).await.as_deref(), Some(""));
    assert!(begun.elapsed() < Duration::from_millis(1500), "an idle connection waited for the cut");
    assert!(TcpStream::connect(server.address).await.is_err(), "nothing is accepted any more");
    let answer = head(&mut running).await;
    assert_eq!((status(&answer), answer.contains("connection: close")), (200, true), "{answer}");
    drop((idle, running));
    timeout(PATIENCE, server.task).await.expect("ended").unwrap();
    assert_eq!(server.open.get(), 0);
}

#[tokio::test]
async fn a_drain_ends_in_time_and_a_cut_at_once() {
    for second_signal in [false, true] {
        let server = Server::start(small()).await;
        let mut held = server.send("GET /hold HTTP/1.1\r\nHost: gate\r\n\r\n").await;
        server.eventually_alive(1).await;
        let started = Instant::now();
        server.drain.begin();
        if second_signal {
            server.drain.cut();
        }
        timeout(PATIENCE, server.task).await.expect("ended").unwrap();
        assert_eq!(started.elapsed() < Duration::from_millis(1900), second_signal);
        assert_eq!(server.alive.get(), 0);
        assert!(rest(&mut held, PATIENCE).await.is_some());
    }
}

#[tokio::test]
async fn dropping_the_loop_cuts_its_connections() {
    let server = Server::start(small()).await;
    let mut held = server.send("GET /hold HTTP/1.1\r\nHost: gate\r\n\r\n").await;
    server.eventually_alive(1).await;
    server.task.abort();
    server.eventually_alive(0).await;
    assert!(rest(&mut held, PATIENCE).await.is_some());
}

#[tokio::test]
async fn a_body_is_asked_for_only_if_it_will_be_read() {
    let server = Server::start(small()).await;
    let mut refused = server.send(post("Content-Length: 52428800\r\nExpect: 100-continue\r\n", "")).await;
    assert_eq!(status(&head(&mut refused).await), 413);
    assert!(rest(&mut refused, PATIENCE).await.is_some());
    let mut taken = server.send(post("Content-Length: 2\r\nExpect: 100-continue\r\n", "")).await;
    assert_eq!(status(&head(&mut taken).await), 100);
    taken.write_all(b"{}").await.unwrap();
    assert_eq!(status(&head(&mut taken).await), 200);
}

#[tokio::test]
async fn an_answer_reaches_a_client_that_is_still_sending() {
    let server = Server::start(small()).await;
    let mut stream = server.connect().await;
    stream.write_all(post("Content-Length: 8000000\r\n", "").as_bytes()).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    stream.write_all(&vec![b' '; 8_000_000]).await.expect("no reset while the body is sent");
    assert_eq!(status(&head(&mut stream).await), 413);
}

/// The raw cases of the wire corpus that need no MCP: bytes, the right statuses, and whether
/// the connection has to be closed. 0 is no answer.
#[tokio::test]
async fn wrong_bytes_have_one_right_answer() {
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    const TWO: &str = "Content-Length: 2\r\n";
    let many = (0..100).map(|i| format!("X-{i}: 1\r\n")).collect::<String>();
    let big = |n: usize| format!("{TWO}X-Big: {}\r\n", "a".repeat(n));
    let line = |line: &str| format!("{line}\r\nHost: gate\r\n{TWO}\r\n{{}}");
    let cases: Vec<(&str, String, &[u16], bool)> = vec![
        ("good", post(TWO, "{}"), &[200], false),
        ("no Host", format!("POST /mcp HTTP/1.1\r\n{TWO}\r\n{{}}"), &[400], false),
        ("two Hosts", post(&format!("{TWO}Host: evil\r\n"), "{}"), &[400], false),
        ("empty Host", format!("POST /mcp HTTP/1.1\r\nHost: \r\n{TWO}\r\n{{}}"), &[400], false),
        ("unknown Host", format!("POST /mcp HTTP/1.1\r\nHost: evil\r\n{TWO}\r\n{{}}"), &[403], false),
        ("absolute target", line("POST http://gate/mcp HTTP/1.1"), &[200], false),
        ("absolute target of another", line("POST http://evil/mcp HTTP/1.1"), &[400], false),
        ("known Origin", post(&format!("{TWO}Origin: https://app\r\n"), "{}"), &[200], false),
        ("Origin null", post(&format!("{TWO}Origin: null\r\n"), "{}"), &[403], false),
        ("HTTP/1.0", line("POST /mcp HTTP/1.0"), &[505], true),
        ("HTTP/2.0 in the line", line("POST /mcp HTTP/2.0"), &[400], true),
        ("both framings", post(&format!("{CHUNKED}{TWO}"), "2\r\n{}\r\n0\r\n\r\n"), &[200, 400], true),
        ("both, other order", post(&format!("{TWO}{CHUNKED}"), "2\r\n{}\r\n0\r\n\r\n"), &[200, 400], true),
        ("two lengths", post("Content-Length: 2\r\nContent-Length: 1\r\n", "{}"), &[400], true),
        ("length +2", post("Content-Length: +2\r\n", "{}"), &[400], true),
        ("gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), &[400], true),
        ("xchunked", post("Transfer-Encoding: xchunked\r\n", "{}"), &[400], true),
        ("chunk size overflow", post(CHUNKED, "f0000000000000003\r\nabc\r\n0\r\n\r\n"), &[400], true),
        (
            "long chunk extension",
            post(CHUNKED, &format!("1;{}\r\n{{\r\n0\r\n\r\n", "x".repeat(64_000))),
            &[400],
            true,
        ),
        ("trailer", post(CHUNKED, "2\r\n{}\r\n0\r\nMcp-Method: tools/call\r\n\r\n"), &[200], true),
        ("folded line", post(&format!("{TWO}Mcp-Name: ec\r\n ho\r\n"), "{}"), &[400], true),
        ("bare CR", post(&format!("{TWO}X-A: a\rb\r\n"), "{}"), &[400], true),
        ("NUL", post(&format!("{TWO}X-A: a\0b\r\n"), "{}"), &[400], true),
        ("space before the colon", post(&format!("{TWO}Mcp-Name : echo\r\n"), "{}"), &[400], true),
        ("LF alone", post(TWO, "{}").replace('\r', ""), &[200, 400], false),
        ("fragment", line("POST /mcp#x HTTP/1.1"), &[200], false),
        ("CONNECT", "CONNECT evil:443 HTTP/1.1\r\nHost: gate\r\n\r\n".into(), &[400], false),
        ("TRACE", "TRACE /mcp HTTP/1.1\r\nHost: gate\r\n\r\n".into(), &[405], false),
        ("h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &[0, 400], true),
        ("TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\u{7f}\x03\x03".into(), &[0, 400], true),
        ("garbage behind", post(TWO, "{}GARBAGE\r\n\r\n"), &[200], true),
        ("101 fields", post(&format!("{TWO}{many}"), "{}"), &[431], false),
        ("70 kB of head", post(&big(70_000), "{}"), &[431], false),
        ("500 kB of head", post(&big(500_000), "{}"), &[431], true),
        ("long target", line(&format!("POST /mcp?{} HTTP/1.1", "a".repeat(9_000))), &[414], false),
        ("large body", post("Content-Length: 2000000\r\n", "{}"), &[413], true),
        ("large chunked body", post(CHUNKED, &format!("200000\r\n{}", "a".repeat(0x20_0000))), &[413], true),
    ];
    let server = Server::start(Limits { idle_time: PATIENCE * 10, ..small() }).await;
    let mut wrong = Vec::new();
    for (name, bytes, statuses, closes) in cases {
        let mut stream = server.send(&bytes).await;
        let answer = head(&mut stream).await;
        if !statuses.contains(&status(&answer)) {
            wrong.push(format!("{name}: {answer:?}"));
        } else if closes && rest(&mut stream, Duration::from_secs(2)).await.is_none() {
            wrong.push(format!("{name} is left open: {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_body_that_ends_early_is_broken() {
    let server = Server::start(small()).await;
    let mut stream = server.send(post("Content-Length: 400\r\n", "{\"jsonrpc\"")).await;
    stream.shutdown().await.unwrap();
    let answer = rest(&mut stream, PATIENCE).await.expect("closed");
    assert!([0, 400].contains(&status(&answer)), "{answer}");
}

/// Asks over connections of its own until one is refused; the number of answers, or what was
/// wrong with one.
async fn ask_until_refused(address: SocketAddr) -> Result<usize, String> {
    let ask = post("Content-Length: 2\r\n", "{}");
    for answered in 0.. {
        let Ok(mut stream) = TcpStream::connect(address).await else { return Ok(answered) };
        stream.write_all(ask.as_bytes()).await.map_err(|error| format!("write: {error}"))?;
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        if status(&answer) != 200 || !answer.contains("connection: close") {
            return Err(format!("after {answered} answers: {answer:?}, {read:?}"));
        }
    }
    unreachable!("the process never stopped accepting")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_could_connect_before_the_end_of_accepting_is_answered() {
    // With few slots, some have to wait for one when accepting stops.
    for connections in [1000, 4] {
        let server = Server::start(Limits { connections, head_time: PATIENCE, ..small() }).await;
        server.drain.begin();
        let clients: Vec<_> = (0..48).map(|_| tokio::spawn(ask_until_refused(server.address))).collect();
        let mut lost = Vec::new();
        for client in clients {
            let asked = timeout(PATIENCE, client).await.expect("refused at last").unwrap();
            lost.extend(asked.err());
        }
        assert!(lost.is_empty(), "{connections} slots: {lost:#?}");
        timeout(PATIENCE, server.task).await.expect("ended").unwrap();
    }
}

#[tokio::test]
async fn a_first_head_has_a_grace_when_accepting_stops_and_a_begun_one_its_time() {
    let server = Server::start(Limits { head_time: PATIENCE, idle_time: PATIENCE, ..small() }).await;
    let ask = post("Content-Length: 2\r\n", "{}");
    let (begin, end) = ask.split_at(20);
    let mut kept = server.send(&ask).await;
    assert_eq!(status(&head(&mut kept).await), 200);
    let (mut late, mut silent) = (server.connect().await, server.connect().await);
    server.drain.begin();
    sleep(Duration::from_millis(200)).await;
    kept.write_all(begin.as_bytes()).await.unwrap();
    timeout(PATIENCE, server.drain.stopped()).await.expect("stopped");
    let stopped = Instant::now();
    sleep(Duration::from_millis(300)).await;
    kept.write_all(end.as_bytes()).await.unwrap();
    late.write_all(ask.as_bytes()).await.unwrap();
    for (name, stream) in [("kept", &mut kept), ("late", &mut late)] {
        let answer = rest(stream, PATIENCE).await.expect("closed");
        assert_eq!((status(&answer), answer.contains("connection: close")), (200, true), "{name}: {answer}");
    }
    assert_eq!(rest(&mut silent, PATIENCE).await.as_deref(), Some(""));
    assert!(stopped.elapsed() < Duration::from_millis(1500), "the silent waited for the cut");
    drop((kept, late, silent));
    timeout(PATIENCE, server.task).await.expect("ended").unwrap();
}
