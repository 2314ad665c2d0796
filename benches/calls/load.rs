//! The load: calls or lists over some connections, each answer checked, one row printed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use http::HeaderValue;
use http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::client::credentials;
use crate::process;
use crate::table::Row;

#[derive(clap::Args)]
pub struct Options {
    /// The endpoint to call.
    #[arg(long)]
    url: String,
    /// What the row is called.
    #[arg(long, default_value = "load")]
    label: String,
    /// Tokens to take in turn, one a line.
    #[arg(long)]
    tokens: Option<PathBuf>,
    /// The tool to call; it echoes `text`.
    #[arg(long, default_value = "echo_100")]
    tool: String,
    /// Connections, each with one call at a time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Calls in all.
    #[arg(long, default_value_t = 20_000)]
    calls: u64,
    /// Bytes of `text`.
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// What is asked for, over and over.
    #[arg(long, value_enum, default_value_t = Ask::Call)]
    ask: Ask,
    /// Where to keep the last answer.
    #[arg(long)]
    save: Option<PathBuf>,
    /// The server whose CPU time is measured, its child processes included.
    #[arg(long)]
    pid: Option<u32>,
}

/// What a connection asks for.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Ask {
    /// A tool's call.
    Call,
    /// The list of tools, all on one page.
    List,
    /// The same list, as a file.
    File,
}

/// What every connection shares.
struct Plan {
    options: Options,
    credentials: Vec<Option<HeaderValue>>,
    next: AtomicU64,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Arc::new(Plan {
        credentials: credentials(options.tokens.as_deref())?,
        options,
        next: AtomicU64::new(0),
    });
    let mut clients = Vec::new();
    for _ in 0..plan.options.connections {
        clients.push(Client::connect(&plan.options.url).await?);
    }

    let used_before = plan.options.pid.map(process::cpu_seconds).transpose()?;
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for client in clients {
        workers.spawn(work(Arc::clone(&plan), client));
    }
    let mut latencies = Vec::new();
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    let took = began.elapsed().as_secs_f64();
    let used_after = plan.options.pid.map(process::cpu_seconds).transpose()?;

    latencies.sort_unstable();
    let calls = latencies.len();
    anyhow::ensure!(calls > 0, "nothing was called");
    let row = Row {
        label: plan.options.label.clone(),
        calls_per_second: calls as f64 / took,
        p50_ms: latencies[calls / 2] as f64 / 1000.0,
        p99_ms: latencies[calls * 99 / 100] as f64 / 1000.0,
        cpu_seconds: used_before.zip(used_after).map(|(before, after)| (after - before) * 1e4 / calls as f64),
    };
    crate::print(&row.line())
}

/// Asks until the plan is done; returns each request's microseconds.
async fn work(plan: Arc<Plan>, mut client: Client) -> anyhow::Result<Vec<u64>> {
    let mut latencies = Vec::new();
    loop {
        let number = plan.next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.options.calls {
            return Ok(latencies);
        }
        let credential = plan.credentials[number as usize % plan.credentials.len()].as_ref();
        let text = format!("call {number:08} {:.<width$}", "", width = plan.options.bytes.saturating_sub(14));
        let began = Instant::now();
        let (status, body) = match plan.options.ask {
            Ask::Call => client.call(credential, &plan.options.tool, number, &text).await?,
            Ask::List => client.list(credential, number).await?,
            Ask::File => client.get().await?,
        };
        latencies.push(began.elapsed().as_micros() as u64);
        let expected = match plan.options.ask {
            Ask::Call => &*text,
            Ask::List | Ask::File => r#""name":"echo_199""#,
        };
        anyhow::ensure!(
            status == StatusCode::OK && memchr::memmem::find(&body, expected.as_bytes()).is_some(),
            "request {number} was answered {status}: {}",
            String::from_utf8_lossy(&body[..body.len().min(500)]),
        );
        if let Some(file) = plan.options.save.as_ref().filter(|_| number + 1 == plan.options.calls) {
            std::fs::write(file, &body)?;
        }
        // A file has the id of whoever it was made for.
        if !matches!(plan.options.ask, Ask::File) {
            let id = format!(r#""id":{number}"#);
            memchr::memmem::find(&body, id.as_bytes()).context("the answer has another id")?;
        }
    }
}
