//! `fondaco operator`: who may use the admin API. It works on the database itself: the first
//! operator cannot come through the API.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;
use secrecy::ExposeSecret;

use crate::cli::BadInput;
use crate::config;
use crate::model::clock::Clock;
use crate::model::name::TenantName;
use crate::serve;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::operators;
use crate::store::operators::NAME_BYTES;
use crate::store::operators::Operator;
use crate::store::operators::OperatorId;
use crate::store::operators::Role;
use crate::store::write::Actor;

/// How many are read at a time.
const PAGE: usize = 500;

/// Make, list and revoke operators: who may use the admin API.
///
/// It works on the database itself. With SQLite, `fondaco serve` must not run meanwhile.
#[derive(Args)]
pub struct OperatorArgs {
    /// The configuration file; without it, `./fondaco.toml` where that exists
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make an operator, and print its key: it is shown this once
    Create {
        /// What people call it
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value = "owner")]
        role: RoleName,
        /// The one tenant that it is for; without it, the whole deployment
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
    /// List the operators: id, role, tenant and name
    List,
    /// Take an operator's rights away, at once
    Revoke {
        /// Its id, as `operator list` says it
        id: String,
    },
}

/// What an operator may do.
#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Everything, other operators included
    Owner,
    /// Everything but operators
    Operator,
    /// Reading
    Auditor,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Owner => Self::Owner,
            RoleName::Operator => Self::Operator,
            RoleName::Auditor => Self::Auditor,
        }
    }
}

/// Does it, and says what came of it on `out`.
pub fn run(args: &OperatorArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let settings = config::load(args.config.as_deref(), config::environment())
        .map_err(|report| BadInput(format!("the configuration cannot be used\n{report}")))?;
    super::block_on(async {
        let (_, store) = serve::open_store(&settings, &Clock::default()).await.map_err(super::not_started)?;
        let done = work(&store, &args.what, out).await;
        store.close().await;
        done
    })
}

async fn work(store: &Store, what: &What, out: &mut impl Write) -> anyhow::Result<()> {
    match what {
        What::Create { name, role, tenant } => {
            create(store, name, (*role).into(), tenant.as_deref(), out).await
        }
        What::List => list(store, out).await,
        What::Revoke { id } => {
            let revoked = store.operators().revoke(&Actor::Cli, &OperatorId::from(id.as_str()), None).await;
            match revoked {
                Ok(()) => writeln!(out, "{id} is revoked")?,
                Err(StoreError::NotFound) => {
                    let message =
                        format!("there is no operator `{id}`: `fondaco operator list` says which there are");
                    return Err(BadInput(message).into());
                }
                Err(error) => return Err(error.into()),
            }
            Ok(())
        }
    }
}

async fn create(
    store: &Store,
    name: &str,
    role: Role,
    tenant: Option<&str>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if !operators::is_name(name) {
        return Err(BadInput(format!(
            "expected a name of at most {NAME_BYTES} bytes, without control characters"
        ))
        .into());
    }
    let tenant = tenant.map(TenantName::new).transpose();
    let tenant = tenant.map_err(|error| BadInput(format!("--tenant: {error}")))?;
    match store.operators().create(&Actor::Cli, name, role, tenant.as_ref()).await {
        Ok((operator, key)) => {
            writeln!(out, "operator: {}", operator.id)?;
            writeln!(out, "key:      {}", key.expose_secret())?;
            writeln!(out, "The key is shown this once. Keep it where secrets are kept.")?;
            Ok(())
        }
        Err(StoreError::Exists) => Err(BadInput(format!("there is an operator `{name}` already")).into()),
        Err(StoreError::NotFound) => Err(BadInput("--tenant: there is no such tenant".to_owned()).into()),
        Err(error) => Err(error.into()),
    }
}

async fn list(store: &Store, out: &mut impl Write) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = store.operators().list(None, after.as_ref(), PAGE).await?;
        for Operator { id, name, role, tenant, created: _ } in &page {
            let tenant = tenant.as_ref().map_or("-", TenantName::as_str);
            writeln!(out, "{id}  {:<8}  {tenant}  {name}", role.as_str())?;
        }
        match page.into_iter().next_back() {
            Some(last) => after = Some(last.id),
            None => return Ok(()),
        }
    }
}
