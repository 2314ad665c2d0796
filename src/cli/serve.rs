//! `fondaco serve`

use std::path::PathBuf;

use clap::Args;

use crate::cli::BadInput;
use crate::config;
use crate::config::Settings;
use crate::serve::Listeners;
use crate::serve::Server;
use crate::serve::StartError;
use crate::telemetry;

/// Serve tenants to clients.
#[derive(Args)]
pub struct ServeArgs {
    /// The process configuration; without it, `./fondaco.toml` where that exists.
    #[arg(long, env = "FONDACO_CONFIG")]
    pub config: Option<PathBuf>,
    /// The tenants file, in place of the configured one.
    #[arg(long)]
    pub tenants: Option<PathBuf>,
}

/// Runs until SIGTERM.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let mut settings = config::load(args.config.as_deref(), config::environment())
        .map_err(|report| BadInput(report.to_string()))?;
    if args.tenants.is_some() {
        settings.tenants.clone_from(&args.tenants);
    }
    if settings.tenants.is_none() {
        return Err(BadInput(
            "no tenants: name a tenants file with `--tenants` or the `tenants` key".to_owned(),
        )
        .into());
    }
    let _telemetry = telemetry::init(&settings.telemetry)?;
    super::block_on(serve(settings))
}

async fn serve(mut settings: Settings) -> anyhow::Result<()> {
    let listeners = Listeners::bind(settings.listen, settings.admin.listen).await?;
    // Port 0 is any: what is bound is what URLs name.
    settings.listen = listeners.public.local_addr()?;
    settings.admin.listen = listeners.admin.local_addr()?;
    let public_url = settings.public_urls().primary;
    let (listen, admin) = (settings.listen, settings.admin.listen);
    let server = Server::build(settings, listeners, None).await.map_err(|error| match error {
        StartError::Tenants(report) => anyhow::Error::from(BadInput(report.to_string())),
        other => other.into(),
    })?;
    let tenants = server.app().tenants.current().tenants().count();
    tracing::info!(%listen, %admin, %public_url, tenants, "serving");
    server.run(super::stop_signal()).await;
    Ok(())
}
