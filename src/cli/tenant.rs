//! `fondaco tenant`: the tenants of a running gateway's database.

use std::io::Write;

use clap::Args;
use clap::Subcommand;

use crate::cli::BadInput;
use crate::cli::client;
use crate::cli::client::Access;
use crate::cli::client::path;

/// List, show and delete tenants of a running gateway.
#[derive(Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand)]
enum What {
    /// List the tenants
    List,
    /// Show a tenant's document
    Get {
        /// Its name
        name: String,
    },
    /// Delete a tenant with its backends and secrets
    Delete {
        /// Its name
        name: String,
    },
}

/// Does it, and says what came of it on `out`.
pub fn run(args: &TenantArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let client = args.access.open()?;
    super::block_on(async {
        match &args.what {
            What::List => {
                let all = client.list("/tenants").await?.unwrap_or_default();
                client::listed(out, all, args.access.json, &["name", "hosts", "issuers", "revision"], |one| {
                    let (hosts, issuers) = (&one["document"]["hosts"], &one["document"]["issuers"]);
                    let urls = issuers.as_array().into_iter().flatten();
                    let urls = urls.filter_map(|one| one["shared"].as_str().or(one["issuer"].as_str()));
                    let hosts = hosts.as_array().into_iter().flatten().filter_map(|host| host.as_str());
                    vec![
                        client::cell(&one["name"]),
                        client::joined(hosts),
                        client::joined(urls),
                        client::cell(&one["revision"]),
                    ]
                })
            }
            What::Get { name } => match client.get(&path(&["tenants", name])).await? {
                Some(one) => client::print(out, if args.access.json { &one } else { &one["document"] }),
                None => Err(BadInput(format!("there is no tenant `{name}`")).into()),
            },
            What::Delete { name } => {
                client.delete(&path(&["tenants", name]), None).await?.good()?;
                writeln!(out, "tenant {name} is deleted")?;
                Ok(())
            }
        }
    })
}
