//! `fondaco secret`: the secrets of a tenant in a running gateway's database. Values go in and never
//! come out.

use std::io::Read;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use serde_json::json;
use zeroize::Zeroizing;

use crate::cli::BadInput;
use crate::cli::client;
use crate::cli::client::Access;
use crate::cli::client::Client;
use crate::cli::client::path;
use crate::config::secret;

/// The longest value that is read.
const LONGEST: u64 = 64 << 10;

/// Set, list and delete a tenant's secrets in a running gateway.
#[derive(Args)]
pub struct SecretArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    access: Access,
}

#[derive(Subcommand)]
enum What {
    /// Give a secret its value, which is read from standard input or a file
    Set {
        /// The tenant
        tenant: String,
        /// The secret's name
        name: String,
        /// The file that holds the value; without it, standard input does
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List a tenant's secrets, without their values
    List {
        /// The tenant
        tenant: String,
    },
    /// Delete a secret that no backend uses
    Delete {
        /// The tenant
        tenant: String,
        /// The secret's name
        name: String,
    },
}

/// Does it, and says what came of it on `out`.
pub fn run(args: &SecretArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let client = args.access.open()?;
    super::block_on(async {
        match &args.what {
            What::Set { tenant, name, file } => {
                let value = value(file.as_ref())?;
                let said = set(&client, tenant, name, &value).await?;
                writeln!(out, "secret {tenant}/{name} {said}")?;
                Ok(())
            }
            What::List { tenant } => {
                let all = client.list(&path(&["tenants", tenant, "secrets"])).await?;
                let all = all.ok_or_else(|| BadInput(format!("there is no tenant `{tenant}`")))?;
                client::listed(out, all, args.access.json, &["name", "revision"], |one| {
                    [&one["name"], &one["revision"]].map(client::cell).into()
                })
            }
            What::Delete { tenant, name } => {
                client.delete(&path(&["tenants", tenant, "secrets", name]), None).await?.good()?;
                writeln!(out, "secret {tenant}/{name} is deleted")?;
                Ok(())
            }
        }
    })
}

/// Replaces the value, or makes the secret.
async fn set(client: &Client, tenant: &str, name: &str, value: &str) -> anyhow::Result<&'static str> {
    let at = path(&["tenants", tenant, "secrets", name]);
    let old = client.get(&at).await?;
    let Some(old) = old else {
        let body = json!({"name": name, "value": value});
        client.create(&path(&["tenants", tenant, "secrets"]), &body).await?;
        return Ok("is made");
    };
    let new = client.replace(&at, None, &json!({"value": value})).await?.good()?;
    Ok(if new["revision"] == old["revision"] { "has this value already" } else { "has a new value" })
}

/// The value, without one newline at its end.
fn value(file: Option<&PathBuf>) -> anyhow::Result<Zeroizing<String>> {
    let Some(file) = file else {
        let mut text = Zeroizing::new(String::new());
        let read = std::io::stdin().take(LONGEST).read_to_string(&mut text);
        read.map_err(|error| BadInput(format!("the value cannot be read from standard input: {error}")))?;
        let value =
            text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        return Ok(Zeroizing::new(value.to_owned()));
    };
    secret::read(file).map_err(|error| BadInput(format!("--file: {} {error}", file.display())).into())
}
