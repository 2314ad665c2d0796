//! `fondaco migrate`: brings the database's schema up to date.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::cli::BadInput;
use crate::cli::open_error;
use crate::config;
use crate::model::clock::Clock;
use crate::seal::KeyRing;
use crate::store::Store;

/// Bring the database's schema up to date.
///
/// With PostgreSQL this has to be done before a newer `fondaco serve` starts. Several at once are
/// safe, and so is one more. With SQLite it happens at the start by itself.
#[derive(Args)]
pub struct MigrateArgs {
    /// The configuration file; without it, `./fondaco.toml` where that exists
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The PostgreSQL role that `fondaco serve` connects with: it gets what it needs, and no more
    #[arg(long, value_name = "ROLE")]
    pub grant: Option<String>,
}

/// Migrates, and says so on `out`.
pub fn run(args: &MigrateArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = config::load(args.config.as_deref(), config::environment())
        .map_err(|report| BadInput(format!("the configuration cannot be used\n{report}")))?;
    super::block_on(async {
        match &settings.database.server {
            Some(url) => Store::migrate(url, args.grant.as_deref()).await.map_err(open_error)?,
            None if args.grant.is_some() => {
                return Err(BadInput("--grant: SQLite has no roles".to_owned()).into());
            }
            None => {
                let keys = Arc::new(KeyRing::open_or_create(&settings.data_dir)?);
                let limits = Arc::new(settings.limits.clone());
                let opened = Store::embedded(&settings.data_dir, keys, Clock::default(), limits).await;
                opened.map_err(open_error)?.close().await;
            }
        }
        Ok(())
    })?;
    writeln!(out, "the database's schema is up to date")?;
    Ok(())
}
