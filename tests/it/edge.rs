//! Bytes through the real gateway: names and targets, kept connections, bodies and their limits.

use std::time::Duration;

use fondaco::config::Settings;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::time::Instant;

use crate::harness::gateway::Caller;
use crate::harness::gateway::Gateway;
use crate::harness::gateway::meta;
use crate::harness::issuer::Issuer;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;
use crate::harness::wait::eventually;
use crate::harness::wire;
use crate::harness::wire::Connection;

const DEMO: &str = r#"
issuers: [{issuer: "{issuer}", tenant_claim: tenant}]
tenants:
  demo:
    backends: {demo: {kind: demo, prefix: "", scopes: {"*": [demo.use]}}}
"#;

async fn start(change: impl FnOnce(&mut Settings)) -> (Gateway, Caller) {
    let gw = Gateway::start_with(DEMO, change).await;
    let alice = gw.caller("demo", "alice", "demo.use");
    (gw, alice)
}

/// A right body of exactly this many bytes, or of its own length.
fn body(id: u64, length: Option<usize>) -> String {
    let params = json!({"name": "add", "arguments": {"a": id, "b": 1}, "_meta": meta()});
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
    let spaces = length.map_or(0, |length| length - body.len());
    body + &" ".repeat(spaces)
}

/// A request line and the headers of a right call, some replaced or (`""`) left out, without the
/// last empty line.
fn head(caller: &Caller, line: &str, changes: &[(&str, &str)]) -> String {
    let mut headers = caller.headers("tools/call", Some("add"));
    headers.push(("Host".to_owned(), caller.addr.to_string()));
    for (name, value) in changes {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            headers.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
    let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{line} HTTP/1.1\r\n{fields}")
}

fn call(caller: &Caller, id: u64, changes: &[(&str, &str)]) -> String {
    let body = body(id, None);
    format!("{}Content-Length: {}\r\n\r\n{body}", head(caller, "POST /mcp", changes), body.len())
}

fn chunked(body: &str) -> String {
    let chunks = body.as_bytes().chunks(60_000);
    let chunks = chunks.map(|c| format!("{:x}\r\n{}\r\n", c.len(), String::from_utf8_lossy(c)));
    chunks.collect::<String>() + "0\r\n\r\n"
}

fn sum(answer: &wire::Answer) -> (Value, Value) {
    let message = answer.message();
    (message["id"].clone(), message["result"]["structuredContent"]["result"].clone())
}

#[tokio::test]
async fn a_request_is_for_one_known_authority() {
    let (gw, alice) = start(|_| {}).await;
    let (own, port) = (gw.addr.to_string(), gw.addr.port());
    let local = format!("localhost:{port}");
    let six = format!("[::1]:{port}");
    let (at, evil_port) = (format!("user@{own}"), format!("127.0.0.1:{}", port ^ 1));
    let (dotted, spaced) = (format!("localhost.:{port}"), format!("{own} evil.example"));
    for (host, status) in [
        (own.as_str(), 200),
        (&local, 200),
        (&local.to_uppercase(), 200),
        (&six, 200),
        ("127.0.0.1", 403),
        (&evil_port, 403),
        ("localhost", 403),
        (&dotted, 403),
        ("127.1", 403),
        ("0x7f000001", 403),
        ("evil.example", 403),
        ("demo.127.0.0.1.nip.io", 403),
        (&at, 400),
        (&spaced, 400),
        ("a/b?c", 400),
        ("127.0.0.1:", 400),
        ("127.0.0.1:99999", 400),
        ("[::1", 400),
    ] {
        let bytes = call(&alice, 1, &[("Host", host), ("Connection", "close")]);
        assert_eq!(wire::raw(gw.addr, bytes.as_bytes()).await.status, status, "{host}");
    }
    let close = ("Connection", "close");
    let without = wire::raw(gw.addr, call(&alice, 1, &[("Host", ""), close]).as_bytes()).await;
    assert_eq!(without.status, 400);
    let twice = call(&alice, 1, &[close]).replacen("\r\n", &format!("\r\nHost: {own}\r\n"), 1);
    assert_eq!(wire::raw(gw.addr, twice.as_bytes()).await.status, 400);
    let same = [("Host", own.as_str()), close];
    for (target, status) in [
        (format!("http://{own}/mcp"), 200),
        (format!("HTTP://{own}/mcp"), 200),
        (format!("http://{local}/mcp"), 400),
        ("http://evil.example/mcp".to_owned(), 400),
        (format!("http://evil@{own}/mcp"), 400),
        (format!("http://{own}"), 404),
        (own.clone(), 400),
        ("*".to_owned(), 400),
        ("mcp".to_owned(), 400),
    ] {
        let body = body(1, None);
        let head = head(&alice, &format!("POST {target}"), &same);
        let bytes = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let answer = wire::raw(gw.addr, bytes.as_bytes()).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
    }
    gw.stop().await;
}

#[tokio::test]
async fn one_connection_carries_right_and_wrong_requests() {
    let (gw, alice) = start(|_| {}).await;
    let mut connection = Connection::open(gw.addr).await;
    let text = ("Content-Type", "text/plain");
    for round in 0..20 {
        let requests = [
            (200, call(&alice, round, &[])),
            (401, call(&alice, round, &[("Authorization", "")])),
            (401, call(&alice, round, &[("Authorization", "Bearer x")])),
            (415, call(&alice, round, &[text])),
            (403, call(&alice, round, &[("Origin", "https://evil.example")])),
            (403, call(&alice, round, &[("Host", "evil.example")])),
            (400, call(&alice, round, &[("Mcp-Name", "other")])),
            (400, call(&alice, round, &[]).replace("{\"a\"", "{\"a!")),
            (404, call(&alice, round, &[]).replace("/mcp", "/other")),
            (405, call(&alice, round, &[]).replace("POST", "PUT")),
            (
                202,
                call(&alice, round, &[])
                    .replace(&format!("\"id\":{round},"), &" ".repeat(6 + round.to_string().len())),
            ),
        ];
        for (status, request) in requests {
            assert!(connection.send(request).await, "the connection is kept before {status}");
            let answer = connection.answer().await;
            assert_eq!(answer.status, status, "{}", answer.text());
            assert_eq!(answer.header("connection"), None, "{status}");
            if status == 200 {
                assert_eq!(sum(&answer), (json!(round), json!(round + 1)));
            }
        }
    }
    gw.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (gw, alice) = start(|_| {}).await;
    let mut connection = Connection::open(gw.addr).await;
    let mut all: String = (0..50).map(|id| call(&alice, id, &[])).collect();
    all.push_str(&call(&alice, 50, &[("Authorization", "")]));
    all.push_str(&call(&alice, 51, &[]));
    connection.send(all).await;
    for id in 0..50 {
        let answer = connection.answer().await;
        assert_eq!((answer.status, sum(&answer)), (200, (json!(id), json!(id + 1))));
    }
    assert_eq!(connection.answer().await.status, 401);
    assert_eq!(sum(&connection.answer().await), (json!(51), json!(52)));
    // What follows a request whose end is in doubt is not a request.
    let smuggled = format!("{}{}", call(&alice, 1, &[("Transfer-Encoding", "gzip")]), call(&alice, 2, &[]));
    connection.send(smuggled).await;
    assert_eq!(connection.answer().await.status, 400);
    assert!(connection.is_closed().await);
    gw.stop().await;
}

#[tokio::test]
async fn a_body_is_asked_for_only_if_it_will_be_read() {
    let (gw, alice) = start(|_| {}).await;
    let expect = ("Expect", "100-continue");
    let body = body(3, None);
    let length = format!("Content-Length: {}\r\n\r\n", body.len());
    let mut connection = Connection::open(gw.addr).await;
    connection.send(head(&alice, "POST /mcp", &[expect]) + &length).await;
    assert_eq!(connection.head().await.status, 100);
    connection.send(&body).await;
    assert_eq!(sum(&connection.answer().await), (json!(3), json!(4)));
    let too_long = format!("Content-Length: {}\r\n\r\n", (4 << 20) + 1);
    for (changes, length, status) in [
        (&[expect, ("Authorization", "")][..], &length, 401),
        (&[expect, ("Authorization", "Bearer x")], &length, 401),
        (&[expect, ("Content-Type", "text/plain")], &length, 415),
        (&[expect, ("Accept", "text/html")], &length, 406),
        (&[expect, ("Origin", "null")], &length, 403),
        (&[expect], &too_long, 413),
    ] {
        let mut connection = Connection::open(gw.addr).await;
        connection.send(head(&alice, "POST /mcp", changes) + length).await;
        let first = connection.answer().await;
        assert_eq!(first.status, status, "{changes:?}");
        // Whoever did not send the body, which was announced, cannot send another request.
        assert!(connection.is_closed().await, "{status}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_body_has_four_mebibytes_and_not_one_byte_more() {
    const MOST: usize = 4 << 20;
    let (gw, alice) = start(|_| {}).await;
    for (length, status) in [(MOST, 200), (MOST + 1, 413)] {
        let body = body(1, Some(length));
        let plain = format!("{}Content-Length: {length}\r\n\r\n{body}", head(&alice, "POST /mcp", &[]));
        let coded = [("Transfer-Encoding", "chunked")];
        let coded = format!("{}\r\n{}", head(&alice, "POST /mcp", &coded), chunked(&body));
        for (framing, bytes) in [("Content-Length", plain), ("chunked", coded)] {
            let mut connection = Connection::open(gw.addr).await;
            connection.send(bytes).await;
            let answer = connection.answer().await;
            assert_eq!(answer.status, status, "{framing} {length}");
            match status {
                200 => assert_eq!(sum(&answer), (json!(1), json!(2))),
                _ => {
                    assert_eq!(answer.refusal(), (413, -32600));
                    assert_eq!(answer.header("connection"), Some("close"));
                }
            }
        }
    }
    // A claim is enough, and the stranger's is not even looked at.
    let claim = format!("Content-Length: {}\r\n\r\n", 1u64 << 40);
    for (token, status) in [("", 401), (alice.headers("", None)[0].1.as_str(), 413)] {
        let mut connection = Connection::open(gw.addr).await;
        connection.send(head(&alice, "POST /mcp", &[("Authorization", token)]) + &claim).await;
        assert_eq!(connection.answer().await.status, status);
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_chunked_body_is_read_whole_and_its_trailers_ignored() {
    let (gw, alice) = start(|_| {}).await;
    let coded = [("Transfer-Encoding", "chunked"), ("Trailer", "Mcp-Name, Authorization")];
    let start = head(&alice, "POST /mcp", &coded) + "\r\n";
    let mut connection = Connection::open(gw.addr).await;
    connection.send(&start).await;
    for byte in body(5, None).bytes() {
        connection.send([b"1;x=\"y\"\r\n", &[byte][..], b"\r\n"].concat()).await;
    }
    connection.send("0\r\nMcp-Name: other\r\nAuthorization: Bearer x\r\n\r\n").await;
    let answer = connection.answer().await;
    assert_eq!(sum(&answer), (json!(5), json!(6)));
    for broken in ["zz\r\n", "5\r\nab", "-1\r\n\r\n", "ffffffffffffffffff\r\n"] {
        let mut connection = Connection::open(gw.addr).await;
        connection.send(format!("{start}{broken}\r\n\r\n\r\n")).await;
        assert_eq!(connection.answer().await.status, 400, "{broken:?}");
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_late() {
    let (gw, alice) = start(|settings| settings.limits.body_time = Duration::from_millis(600)).await;
    let started = Instant::now();
    let mut connection = Connection::open(gw.addr).await;
    let body = body(1, None);
    connection
        .send(format!("{}Content-Length: {}\r\n\r\n", head(&alice, "POST /mcp", &[]), body.len()))
        .await;
    connection.send(&body[..10]).await;
    let answer = connection.answer().await;
    assert_eq!(answer.refusal(), (408, -32600), "{}", answer.text());
    assert_eq!(answer.header("connection"), Some("close"));
    assert!((600..3000).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    assert!(connection.is_closed().await);
    // One that is cut short is broken, and harms nobody.
    let mut connection = Connection::open(gw.addr).await;
    connection.send(head(&alice, "POST /mcp", &[]) + "Content-Length: 500\r\n\r\n{").await;
    drop(connection);
    let other = wire::raw(gw.addr, call(&alice, 1, &[("Connection", "close")]).as_bytes()).await;
    assert_eq!(other.status, 200);
    gw.stop().await;
}

#[tokio::test]
async fn over_the_limit_the_connection_that_rested_longest_makes_room() {
    // Not the gateway's own issuer, whose keys are fetched through the same listener.
    let issuer = Issuer::start("").await;
    let tenants = DEMO.replace("{issuer}", issuer.url()).replace("demo:\n    b", "acme:\n    b");
    let gw = Gateway::start_with(&tenants, |settings| settings.limits.connections = 2).await;
    let token = issuer.token(&format!("http://{}/mcp", gw.addr), gw.app.clock.now());
    let alice = Caller { addr: gw.addr, path: "/mcp".to_owned(), token };
    let (mut one, mut two) = (Connection::open(gw.addr).await, Connection::open(gw.addr).await);
    for connection in [&mut one, &mut two] {
        connection.send(call(&alice, 1, &[])).await;
        assert_eq!(connection.answer().await.status, 200);
    }
    let mut three = Connection::open(gw.addr).await;
    three.send(call(&alice, 3, &[])).await;
    assert_eq!(sum(&three.answer().await), (json!(3), json!(4)));
    assert!(one.is_closed().await);
    two.send(call(&alice, 1, &[])).await;
    assert_eq!(two.answer().await.status, 200, "the others go on");
    gw.stop().await;
}

#[tokio::test]
async fn other_methods_are_answered_as_http_says() {
    let (gw, alice) = start(|_| {}).await;
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    for (method, path, status, allow) in [
        ("HEAD", "/mcp", 405, Some("POST, GET, DELETE")),
        ("GET", "/mcp", 405, Some("POST, GET, DELETE")),
        ("DELETE", "/mcp", 405, Some("POST, GET, DELETE")),
        ("PUT", "/t/demo/mcp", 405, Some("POST, GET, DELETE")),
        ("PATCH", "/t/nobody/mcp", 405, Some("POST, GET, DELETE")),
        ("OPTIONS", "/mcp", 405, Some("POST, GET, DELETE")),
        ("TRACE", "/mcp", 405, Some("POST")),
        ("BREW", "/mcp", 405, Some("POST, GET, DELETE")),
        ("post", "/mcp", 405, Some("POST, GET, DELETE")),
        ("POST", metadata, 405, Some("GET, HEAD")),
        ("HEAD", metadata, 200, None),
        ("GET", "/", 404, None),
        ("OPTIONS", "*", 404, None),
        ("CONNECT", "evil.example:443", 400, None),
    ] {
        let mut connection = Connection::open(gw.addr).await;
        connection.send(head(&alice, &format!("{method} {path}"), &[]) + "Content-Length: 0\r\n\r\n").await;
        let answer = connection.head().await;
        assert_eq!((answer.status, answer.header("allow")), (status, allow), "{method} {path}");
        assert!(answer.header("content-length").is_some_and(|length| length != "0"), "{method} {path}");
        if method == "HEAD" {
            assert!(connection.is_silent(Duration::from_millis(50)).await, "no body after HEAD {path}");
        }
    }
    for (bytes, statuses) in [
        ("POST /mcp HTTP/1.0\r\nHost: x\r\n\r\n", [505, 505]),
        ("POST /mcp HTTP/2.0\r\nHost: x\r\n\r\n", [400, 505]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [0, 400]),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03", [0, 400]),
        ("GET /mcp\r\n\r\n", [0, 400]),
    ] {
        let answer = wire::raw(gw.addr, format!("{bytes}\r\n\r\n").as_bytes()).await;
        assert!(statuses.contains(&answer.status), "{bytes:?}: {}", answer.status);
    }
    gw.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_its_stream_is_cut() {
    const LENGTH: usize = 24 << 20;
    let upstream = Upstream::start().await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":1}}"#;
    upstream.behave("echo", Behaviour::Events(vec![progress.to_owned()]));
    let tenants = format!(
        "issuers: [{{issuer: '{{issuer}}', tenant_claim: tenant}}]\n\
         tenants: {{acme: {{backends: {{b: {{kind: mcp, url: '{}'}}}}}}}}",
        upstream.url()
    );
    let change = |settings: &mut Settings| {
        settings.limits.body_bytes = 32 << 20;
        settings.limits.upstream_bytes = 32 << 20;
        settings.limits.write_time = Duration::from_millis(500);
    };
    let gw = Gateway::start_with(&tenants, change).await;
    let alice = gw.caller("acme", "alice", "");
    let mut meta = meta();
    meta["progressToken"] = json!("t");
    let params = json!({"name": "b_echo", "arguments": {"x": "x".repeat(LENGTH)}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let names = [("Mcp-Name", "b_echo")];
    let head = format!("{}Content-Length: {}\r\n\r\n", head(&alice, "POST /mcp", &names), body.len());

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(gw.addr).await.unwrap();
    deaf.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let metric = async |name: &str| {
        let metrics = wire::request(gw.admin, "GET", "/metrics", &[], b"").await.text();
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    eventually("the stream is open", async || metric("fondaco_streams_open").await == 1).await;
    eventually("the stream is cut", async || metric("fondaco_streams_open").await == 0).await;
    eventually("its connection is closed", async || metric("fondaco_connections_open").await == 0).await;
    assert_eq!(metric("fondaco_requests_in_flight").await, 0);
    drop(deaf);

    // Whoever reads gets all of it.
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let answer = wire::raw(gw.addr, format!("{head}{body}").as_bytes()).await;
    assert_eq!(answer.events().len(), 2);
    assert_eq!(answer.result()["structuredContent"]["x"].as_str().unwrap().len(), LENGTH);
    gw.stop().await;
}
