//! Looks for answers that went to the wrong client: tenants with the same tool names, clients
//! that all use `id: 1`, and a backend that holds calls and answers them in reverse.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use http::HeaderValue;
use http::StatusCode;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::client::credentials;

#[derive(clap::Args)]
pub struct Options {
    /// `LABEL,URL[,TOKENS]`: an endpoint, and the first path segment of its tenant's backend.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// The tool to call, of the same name everywhere.
    #[arg(long, default_value = "echo_100")]
    tool: String,
    /// Clients, spread over the targets.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Calls in all.
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
}

#[derive(Clone)]
struct Target {
    label: String,
    url: String,
    tokens: Option<PathBuf>,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, ',').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(label), Some(url), tokens) => Ok(Self { label, url, tokens: tokens.map(Into::into) }),
            _ => Err("a target is `LABEL,URL[,TOKENS]`"),
        }
    }
}

/// What every client shares.
struct Plan {
    tool: String,
    calls: u64,
    next: AtomicU64,
}

#[derive(Default)]
struct Tally {
    right: u64,
    wrong: u64,
    first: Option<String>,
}

#[derive(serde::Deserialize)]
struct Answer {
    id: serde_json::Value,
    result: Echo,
}

#[derive(serde::Deserialize)]
struct Echo {
    content: Vec<Text>,
}

#[derive(serde::Deserialize)]
struct Text {
    text: String,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Arc::new(Plan { tool: options.tool, calls: options.calls, next: AtomicU64::new(0) });
    let mut clients = JoinSet::new();
    for (number, target) in options.targets.iter().cycle().take(options.clients).enumerate() {
        let client = Client::connect(&target.url).await?;
        let mut credentials = credentials(target.tokens.as_deref())?;
        let credential = credentials.swap_remove(number % credentials.len());
        clients.spawn(work(Arc::clone(&plan), client, target.label.clone(), credential));
    }
    let mut all = Tally::default();
    while let Some(client) = clients.join_next().await {
        let tally = client??;
        all.right += tally.right;
        all.wrong += tally.wrong;
        all.first = all.first.or(tally.first);
    }
    crate::print(&format!("{} answers to their own caller, {} to a foreign one\n", all.right, all.wrong))?;
    anyhow::ensure!(all.wrong == 0, "the first: {}", all.first.unwrap_or_default());
    anyhow::ensure!(all.right == options.calls, "{} calls were planned", options.calls);
    Ok(())
}

async fn work(
    plan: Arc<Plan>,
    mut client: Client,
    label: String,
    credential: Option<HeaderValue>,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    loop {
        let number = plan.next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.calls {
            return Ok(tally);
        }
        let text = format!("for {label} call {number}");
        let (status, body) = client.call(credential.as_ref(), &plan.tool, 1, &text).await?;
        let shown = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        anyhow::ensure!(status == StatusCode::OK, "call {number} was answered {status}: {shown}");
        let answer: Answer = serde_json::from_slice(&body).with_context(|| format!("reading {shown}"))?;
        let echoed = answer.result.content.iter().map(|part| &*part.text).collect::<String>();
        if answer.id == 1 && echoed == format!("{label}:{text}") {
            tally.right += 1;
        } else {
            tally.wrong += 1;
            tally.first.get_or_insert_with(|| format!("`{text}` was answered with `{shown}`"));
        }
    }
}
