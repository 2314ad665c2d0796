//! The bench: one program that is backend, load and judge. `scripts/bench` runs it.
//!
//! `echo-backend` serves 200 tools that echo; `load` calls one of them, or lists them, over and
//! over and prints a row; `misroute` looks for answers that went to the wrong client;
//! `streams` holds thousands of listeners open, `stall` is one that does not read; `table` turns rows into
//! Markdown.

#[path = "calls/backend.rs"]
mod backend;
#[path = "calls/client.rs"]
mod client;
#[path = "calls/load.rs"]
mod load;
#[path = "calls/misroute.rs"]
mod misroute;
#[path = "calls/plain.rs"]
mod plain;
#[path = "calls/process.rs"]
mod process;
#[path = "calls/streams.rs"]
mod streams;
#[path = "calls/table.rs"]
mod table;

use std::io::Write;

use clap::Parser;

/// The gateway's own, so that what is plain differs in nothing else.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The revision that is spoken.
const REVISION: &str = "2026-07-28";

#[derive(Parser)]
enum Command {
    /// Serve the echo backend until killed.
    EchoBackend(backend::Options),
    /// Call, measure, print one row.
    Load(load::Options),
    /// Let many clients use the same id, and look for foreign answers.
    Misroute(misroute::Options),
    /// Serve plain hyper streams until killed.
    PlainStreams(plain::Options),
    /// Hold many streams, measure, print one row.
    Streams(streams::Options),
    /// Do not read one while much changes.
    Stall(streams::StallOptions),
    /// Print a process's resident memory in MiB.
    Rss {
        /// Its id.
        pid: u32,
    },
    /// Turn rows into the table of docs/performance.md.
    Table(table::Options),
}

fn main() -> anyhow::Result<()> {
    // `cargo bench` passes `--bench`; there is nothing to run without servers.
    let arguments: Vec<_> = std::env::args_os().filter(|argument| argument != "--bench").collect();
    if arguments.len() == 1 {
        return print("run `scripts/bench calls`, `lists`, `streams` or `misroute`\n");
    }
    let command = Command::parse_from(arguments);
    // One thread each: what is measured is the server between backend and load.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::EchoBackend(options) => backend::serve(options).await,
            Command::Load(options) => load::run(options).await,
            Command::Misroute(options) => misroute::run(options).await,
            Command::PlainStreams(options) => plain::serve(options).await,
            Command::Streams(options) => streams::run(options).await,
            Command::Stall(options) => streams::stall(options).await,
            Command::Rss { pid } => print(&format!("{:.1}\n", process::resident_mib(pid)?)),
            Command::Table(options) => table::run(&options),
        }
    })
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
