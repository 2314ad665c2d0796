//! The command line: one file per command.

pub mod apply;
pub mod backend;
pub mod check;
pub mod client;
pub mod dev;
pub mod migrate;
pub mod operator;
pub mod secret;
pub mod serve;
pub mod tenant;
pub mod token;

use std::future::Future;
use std::io::ErrorKind;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

use crate::serve::Listeners;
use crate::serve::StartError;
use crate::store::Store;
use crate::store::error::OpenError;

/// A multi-tenant Streamable HTTP MCP gateway.
#[derive(Parser)]
#[command(name = "fondaco", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run with everything embedded: demo tenants, a development issuer, a token and a ready curl.
    Dev(dev::DevArgs),
    /// Serve tenants to clients.
    Serve(serve::ServeArgs),
    /// Check the configuration and the tenants file, and say everything that is wrong.
    Check(check::CheckArgs),
    /// Bring the database's schema up to date.
    Migrate(migrate::MigrateArgs),
    /// Make, list and revoke operators: who may use the admin API.
    Operator(operator::OperatorArgs),
    /// Bring a tenants file into the database of a running gateway.
    Apply(apply::ApplyArgs),
    /// List, show and delete tenants of a running gateway.
    Tenant(tenant::TenantArgs),
    /// List, show and delete a tenant's backends in a running gateway.
    Backend(backend::BackendArgs),
    /// Set, list and delete a tenant's secrets in a running gateway.
    Secret(secret::SecretArgs),
    /// Mint a token of the development issuer.
    Token(token::TokenArgs),
}

/// What a command found wrong before it did anything: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Runs the program.
pub fn run() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Dev(args) => dev::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Migrate(args) => migrate::run(&args, &mut std::io::stdout()),
        Command::Operator(args) => operator::run(&args, &mut std::io::stdout()),
        Command::Apply(args) => apply::run(&args, &mut std::io::stdout()),
        Command::Tenant(args) => tenant::run(&args, &mut std::io::stdout()),
        Command::Backend(args) => backend::run(&args, &mut std::io::stdout()),
        Command::Secret(args) => secret::run(&args, &mut std::io::stdout()),
        Command::Token(args) => token::run(&args, &mut std::io::stdout()),
        Command::Check(args) => match check::check(&args, &mut std::io::stdout()) {
            Ok(true) => return ExitCode::SUCCESS,
            Ok(false) => return ExitCode::from(2),
            Err(error) => Err(error.into()),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr();
            // Nobody is left to tell if this fails.
            let _ = writeln!(stderr, "error: {error:#}");
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}

/// Why a gateway did not start: problems of the tenants file are the operator's input.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Tenants(report) => BadInput(format!("the tenants cannot be used\n{report}")).into(),
        StartError::NoRing => {
            let hint =
                "make a key with `openssl rand -base64 32`, and name its file or variable in `keys.ring`";
            BadInput(format!("{error}\n  hint: {hint}")).into()
        }
        StartError::Database(error) => open_error(error),
        other => other.into(),
    }
}

/// Why a database was not opened: what only the operator can mend is the operator's input.
fn open_error(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Url
        | OpenError::InUse(_)
        | OpenError::Older
        | OpenError::Newer(_)
        | OpenError::Changed(_)
        | OpenError::NotOwner => BadInput(error.to_string()).into(),
        OpenError::File(..) | OpenError::Away(_) | OpenError::Migration(_) => error.into(),
    }
}

/// Binds both listeners; where one address is in use, `hint` says how to choose another.
async fn listen(public: SocketAddr, admin: SocketAddr, hint: &str) -> anyhow::Result<Listeners> {
    Listeners::bind(public, admin).await.map_err(|error| match &error {
        StartError::Listen(_, cause) if cause.kind() == ErrorKind::AddrInUse => {
            anyhow::anyhow!("{error}\n  hint: {hint}")
        }
        _ => error.into(),
    })
}

/// Where tenants come from, for a message.
fn source(store: Option<&Store>) -> &'static str {
    match store {
        None => "file",
        Some(store) if store.is_embedded() => "SQLite",
        Some(_) => "PostgreSQL",
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(command);
    runtime.shutdown_background();
    ended
}

/// Resolves at the first SIGTERM or Ctrl-C; a second one ends the process at once.
pub async fn stop_signal() {
    first_signal().await;
    tokio::spawn(async {
        first_signal().await;
        tracing::warn!("second signal: exiting at once");
        std::process::exit(130);
    });
}

async fn first_signal() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
