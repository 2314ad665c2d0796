//! `fondaco serve`

use std::path::PathBuf;

use clap::Args;

use crate::cli::BadInput;
use crate::config;
use crate::config::Settings;
use crate::serve::Server;
use crate::telemetry;

/// Serve tenants to clients.
#[derive(Args)]
pub struct ServeArgs {
    /// The configuration file; without it, `./fondaco.toml` where that exists
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The tenants file, in place of the configured one; with neither, tenants are in the database
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
}

/// Runs until SIGTERM.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let mut settings = config::load(args.config.as_deref(), config::environment())
        .map_err(|report| BadInput(format!("the configuration cannot be used\n{report}")))?;
    if args.tenants.is_some() {
        settings.tenants.clone_from(&args.tenants);
    }
    let _telemetry = telemetry::init(&settings.telemetry)?;
    super::block_on(serve(settings))
}

async fn serve(mut settings: Settings) -> anyhow::Result<()> {
    let hint = "choose other addresses with `listen` (`FONDACO_LISTEN`) and `admin.listen` (`FONDACO_ADMIN__LISTEN`)";
    let listeners = super::listen(settings.listen, settings.admin.listen, hint).await?;
    // Port 0 is any: what is bound is what URLs name.
    settings.listen = listeners.public.local_addr()?;
    settings.admin.listen = listeners.admin.local_addr()?;
    let public_url = settings.public_urls().primary;
    let (listen, admin) = (settings.listen, settings.admin.listen);
    let server = Server::build(settings, listeners, None).await.map_err(super::not_started)?;
    let source = super::source(server.app().store.as_ref());
    let tenants = server.app().tenants.current().tenants().count();
    tracing::info!(%listen, %admin, %public_url, tenants, source, "serving");
    server.run(super::stop_signal()).await;
    Ok(())
}
