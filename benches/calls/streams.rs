//! Streams that are held open: many listeners of one server, how much memory each of them takes
//! there, what keeping them alive costs, and how long a change takes to reach all of them.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use memchr::memmem;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::REVISION;
use crate::client::Client;
use crate::process;

/// How many listeners are opened at a time.
const AT_ONCE: usize = 64;
/// A listener that is not acknowledged, or told, by then is an error of the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// The receive buffer of one who does not read.
const SMALL: usize = 2048;
/// How long nothing has to come until a stream is taken for read to its end.
const SILENCE: Duration = Duration::from_secs(2);
/// Text of a first event, and of one that tells of a change.
const FIRST: &[u8] = b"acknowledged";
const CHANGE: &[u8] = b"list_changed";

#[derive(clap::Args)]
pub struct Options {
    /// What the row is called.
    #[arg(long)]
    label: String,
    /// `URL[,TOKENS]`: an endpoint, and a file with its callers' tokens.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// Streams of each caller.
    #[arg(long, default_value_t = 50)]
    listens: usize,
    /// The server whose memory and CPU time are measured.
    #[arg(long)]
    pid: u32,
    /// Where a GET makes one change that every listener is to be told of.
    #[arg(long)]
    change: String,
    /// How long the streams are left alone, to see what keeping them alive costs.
    #[arg(long, default_value_t = 45)]
    quiet: u64,
}

#[derive(clap::Args)]
pub struct StallOptions {
    /// `URL,TOKENS`: the endpoint, and a file with one token.
    #[arg(long)]
    target: Target,
    /// The server whose memory is measured.
    #[arg(long)]
    pid: u32,
    /// Where a GET makes one change.
    #[arg(long)]
    change: String,
    /// How many changes are made while nobody reads.
    #[arg(long, default_value_t = 10_000)]
    changes: usize,
}

#[derive(Clone)]
struct Target {
    url: String,
    tokens: Option<PathBuf>,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (url, tokens) = match text.split_once(',') {
            Some((url, tokens)) => (url, Some(tokens.into())),
            None => (text, None),
        };
        if url.starts_with("http://") {
            Ok(Self { url: url.to_owned(), tokens })
        } else {
            Err("a target is `URL[,TOKENS]`")
        }
    }
}

impl Target {
    fn tokens(&self) -> anyhow::Result<Vec<String>> {
        let Some(file) = &self.tokens else { return Ok(vec![String::new()]) };
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }
}

/// Opens all streams, measures, and prints one row.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let before = process::resident_mib(options.pid)?;
    let told = Arc::new(AtomicU64::new(0));
    let mut places = Vec::new();
    for target in &options.targets {
        for token in target.tokens()? {
            places.extend((0..options.listens).map(|_| (target.url.clone(), token.clone())));
        }
    }
    let count = places.len();
    let mut readers = JoinSet::new();
    for some in places.chunks(AT_ONCE) {
        let opening = some.iter().map(|(url, token)| Stream::open(url, token, None));
        for stream in futures_util::future::try_join_all(opening).await? {
            readers.spawn(stream.read(Arc::clone(&told)));
        }
    }
    let after = process::resident_mib(options.pid)?;

    let used = process::cpu_seconds(options.pid)?;
    tokio::time::sleep(Duration::from_secs(options.quiet)).await;
    let used = process::cpu_seconds(options.pid)? - used;

    let mut client = Client::connect(&options.change).await?;
    let began = Instant::now();
    client.get().await?;
    let mut all = None;
    while all.is_none() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
        all = (told.load(Ordering::Relaxed) as usize >= count).then(|| began.elapsed());
    }
    let all = all.with_context(|| format!("{} of {count} were told", told.load(Ordering::Relaxed)))?;
    let lost = std::iter::from_fn(|| readers.try_join_next()).count();
    anyhow::ensure!(lost == 0, "{lost} streams ended");
    crate::print(&format!(
        "{}\t{count}\t{:.2}\t{:.2}\t{}\n",
        options.label,
        (after - before) * 1024.0 / count as f64,
        used * 100.0 / options.quiet as f64,
        all.as_millis(),
    ))
}

/// Somebody who does not read, while much changes; and somebody who does, to know when the last was told.
pub async fn stall(options: StallOptions) -> anyhow::Result<()> {
    let token = options.target.tokens()?.swap_remove(0);
    let url = &options.target.url;
    let mut stalled = Stream::open(url, &token, Some(SMALL)).await?;
    let heard = Arc::new(AtomicU64::new(0));
    let (last, last_heard) = watch::channel(Instant::now());
    let reader = Stream::open(url, &token, None).await?;
    let counted = Arc::clone(&heard);
    let _reading = tokio::spawn(async move {
        let (mut stream, mut found) = (reader, 0);
        while let Ok(more) = stream.more().await {
            found += more;
            if more > 0 {
                counted.store(found, Ordering::Relaxed);
                last.send_replace(Instant::now());
            }
        }
    });

    let before = process::resident_mib(options.pid)?;
    let mut client = Client::connect(&options.change).await?;
    for _ in 0..options.changes {
        client.get().await?;
    }
    let changed = Instant::now();
    let after = process::resident_mib(options.pid)?;
    tokio::time::sleep(SILENCE).await;
    anyhow::ensure!(*last_heard.borrow() > changed, "nothing was told after the last change");

    let mut found = 0;
    while let Ok(more) = timeout(SILENCE, stalled.more()).await {
        found += more?;
    }
    crate::print(&format!(
        "{} changes; one who reads heard of {}, one who did not of {found}; the last after the last change; memory {before:.1} MiB before, {after:.1} MiB after\n",
        options.changes,
        heard.load(Ordering::Relaxed),
    ))?;
    anyhow::ensure!((1..500).contains(&found), "{found} events");
    // The stream is as good as before.
    client.get().await?;
    let next = timeout(PATIENCE, async {
        while stalled.more().await? == 0 {}
        anyhow::Ok(())
    });
    next.await.context("the stream is dead")?
}

/// One stream, and what is left of its last read.
struct Stream {
    socket: TcpStream,
    tail: Vec<u8>,
}

impl Stream {
    /// Opens one and waits until it is acknowledged.
    async fn open(url: &str, token: &str, buffer: Option<usize>) -> anyhow::Result<Self> {
        let (authority, path) = url.trim_start_matches("http://").split_once('/').context("no path")?;
        let socket =
            TcpStream::connect(authority).await.with_context(|| format!("connecting to {authority}"))?;
        if let Some(bytes) = buffer {
            SockRef::from(&socket).set_recv_buffer_size(bytes)?;
        }
        let mut stream = Self { socket, tail: Vec::new() };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{REVISION}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        let authorization =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {authority}\r\n{authorization}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: {REVISION}\r\nMcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.socket.write_all(head.as_bytes()).await?;
        let mut seen = Vec::new();
        let acknowledged = async {
            while memmem::find(&seen, FIRST).is_none() {
                let read = stream.socket.read_buf(&mut seen).await?;
                anyhow::ensure!(read > 0, "no stream: {}", String::from_utf8_lossy(&seen));
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, acknowledged).await.context("not acknowledged in time")??;
        Ok(stream)
    }

    /// Reads on and says how many changes were told in what has come.
    async fn more(&mut self) -> anyhow::Result<u64> {
        let read = self.socket.read_buf(&mut self.tail).await?;
        anyhow::ensure!(read > 0, "the stream has ended");
        let found = memmem::find_iter(&self.tail, CHANGE).last();
        let count = memmem::find_iter(&self.tail, CHANGE).count() as u64;
        let keep = found.map_or(0, |at| at + CHANGE.len()).max(self.tail.len().saturating_sub(CHANGE.len()));
        self.tail.drain(..keep);
        self.tail.shrink_to(64);
        Ok(count)
    }

    /// Reads to the end; `told` counts streams that were told of a change.
    async fn read(mut self, told: Arc<AtomicU64>) {
        let mut first = true;
        while let Ok(found) = self.more().await {
            if found > 0 && std::mem::take(&mut first) {
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
