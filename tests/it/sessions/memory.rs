//! A session costs nothing: what is opened and left leaves no trace in the process. Nor does a batch
//! hold more than its bound.

use futures_util::future::join_all;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use serde_json::json;

use super::Served;
use crate::harness::gateway::Caller;
use crate::harness::session::Session;
use crate::harness::session::bare;
use crate::harness::session::initialize;
use crate::harness::session::request;
use crate::harness::upstream::Behaviour;
use crate::harness::upstream::Upstream;

/// Messages of a batch, and what a backend says to each of them.
const BATCH: usize = 100;
const ANSWER: usize = 1_500_000;
const CONNECTIONS: usize = 8;
/// Requests that are on their way on one connection.
const PIPELINED: usize = 50;
const SESSIONS: usize = 100_000;
const SLICES: usize = 10;
/// What the second half may add: the allocator moves by some of it. Sessions that left two hundred
/// bytes each would add ten.
const GROWTH: usize = 6 << 20;

/// The memory that the process holds, in bytes.
fn resident(process: u32) -> usize {
    status(process, "VmRSS:")
}

fn status(process: u32, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Opens this many sessions on one connection, and reads every answer.
async fn open(caller: &Caller, sessions: usize) {
    let body = initialize("2025-11-25", &json!({"elicitation": {}}));
    let headers: String = bare(caller).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let one = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        caller.path,
        caller.addr,
        body.len()
    );
    let many = one.repeat(PIPELINED);
    let mut stream = TcpStream::connect(caller.addr).await.unwrap();
    let mut text = Vec::new();
    for _ in 0..sessions / PIPELINED {
        stream.write_all(many.as_bytes()).await.unwrap();
        text.clear();
        let mut opened = 0;
        while opened < PIPELINED {
            assert!(stream.read_buf(&mut text).await.unwrap() > 0, "{}", String::from_utf8_lossy(&text));
            opened = count(&text, b"\"serverInfo\"");
        }
        assert_eq!(count(&text, b"mcp-session-id: "), PIPELINED);
    }
}

fn count(text: &[u8], wanted: &[u8]) -> usize {
    text.windows(wanted.len()).filter(|window| *window == wanted).count()
}

// spec: row LG-04
#[tokio::test]
async fn a_hundred_thousand_sessions_leave_no_memory_behind() {
    let process = Served::start("info,request=off").await;
    let mut sizes = Vec::new();
    for _ in 0..SLICES {
        let each = SESSIONS / SLICES / CONNECTIONS;
        join_all((0..CONNECTIONS).map(|_| open(&process.alice, each))).await;
        sizes.push(resident(process.serving.process.id()));
    }
    // The least of some: what is in use for a moment only is not what was left.
    let least = |sizes: &[usize]| sizes.iter().copied().min().unwrap();
    let (early, late) = (least(&sizes[SLICES / 2 - 3..SLICES / 2]), least(&sizes[SLICES - 3..]));
    assert!(late < early + GROWTH, "{sizes:?}");
}

#[tokio::test]
async fn a_batch_holds_no_more_than_its_bound_whatever_its_answers_are() {
    let upstream = Upstream::start().await;
    let more = [("FONDACO_LIMITS__BATCH_BYTES", "1MiB"), ("FONDACO_LIMITS__BATCH_CALLS", "2")];
    let process = Served::before(&upstream, &more).await;
    let session = Session::open(&process.alice, "2025-03-26").await;
    let call = |id: usize| request(&json!(id), "tools/call", &json!({"name": "echo"}));
    let batch = format!("[{}]", (0..BATCH).map(call).collect::<Vec<_>>().join(","));
    let large = "x".repeat(ANSWER);
    let before = resident(process.serving.process.id());
    // What is large is what is said, what comes with it, and what the era has no place for.
    let beside = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"x":"{large}","error":{{"code":7,"message":"m","data":[1]}}}}"#
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    for behaviour in [
        Behaviour::Error(200, format!(r#"{{"code":7,"message":"m","data":"{large}"}}"#)),
        Behaviour::Error(200, format!(r#"{{"code":7,"message":"{large}"}}"#)),
        Behaviour::Raw(format!("{head}{beside}")),
        Behaviour::Result(format!(r#"{{"content":[{{"type":"a"}}],"structuredContent":["{large}"]}}"#)),
    ] {
        upstream.behave("echo", behaviour);
        let answer = session.post(&batch).await;
        assert_eq!(answer.message().as_array().unwrap().len(), BATCH);
        assert!(answer.body.len() < 2 << 20, "{}", answer.body.len());
        let most = status(process.serving.process.id(), "VmHWM:");
        assert!(most < before + BATCH * ANSWER / 2, "{before} {most}");
    }
}
