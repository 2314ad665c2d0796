//! `fondaco backend`: the backends of a tenant in a running gateway's database.

use std::io::Write;

use clap::Args;
use clap::Subcommand;

use crate::cli::BadInput;
use crate::cli::client;
use crate::cli::client::Access;
use crate::cli::client::path;

/// List, show and delete a tenant's backends in a running gateway.
#[derive(Args)]
pub struct BackendArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand)]
enum What {
    /// List a tenant's backends, in their order
    List {
        /// The tenant
        tenant: String,
    },
    /// Show a backend's document
    Get {
        /// The tenant
        tenant: String,
        /// Its name
        name: String,
    },
    /// Delete a backend
    Delete {
        /// The tenant
        tenant: String,
        /// Its name
        name: String,
    },
}

/// Does it, and says what came of it on `out`.
pub fn run(args: &BackendArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let client = args.access.open()?;
    super::block_on(async {
        match &args.what {
            What::List { tenant } => {
                let all = client.list(&path(&["tenants", tenant, "backends"])).await?;
                let all = all.ok_or_else(|| BadInput(format!("there is no tenant `{tenant}`")))?;
                client::listed(out, all, args.access.json, &["name", "kind", "url", "revision"], |one| {
                    let document = &one["document"];
                    [&one["name"], &document["kind"], &document["url"], &one["revision"]]
                        .map(client::cell)
                        .into()
                })
            }
            What::Get { tenant, name } => {
                match client.get(&path(&["tenants", tenant, "backends", name])).await? {
                    Some(one) => client::print(out, if args.access.json { &one } else { &one["document"] }),
                    None => Err(BadInput(format!("the tenant `{tenant}` has no backend `{name}`")).into()),
                }
            }
            What::Delete { tenant, name } => {
                client.delete(&path(&["tenants", tenant, "backends", name]), None).await?.good()?;
                writeln!(out, "backend {tenant}/{name} is deleted")?;
                Ok(())
            }
        }
    })
}
