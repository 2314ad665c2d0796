//! `fondaco apply`: a tenants file, brought into the database through the admin API.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use secrecy::ExposeSecret;
use serde_json::Value;
use serde_json::json;

use crate::cli::BadInput;
use crate::cli::client;
use crate::cli::client::Access;
use crate::cli::client::Client;
use crate::cli::client::path;
use crate::tenant::parts;
use crate::tenant::parts::Part;
use crate::tenant::parts::Parts;
use crate::tenant::source::Environment;

/// Bring a tenants file into the database of a running gateway.
///
/// What is there as the file says it is left alone; the rest is made or replaced, and told. Secrets are
/// read here, from the files and variables that the tenants file names, and are sent as values.
#[derive(Args)]
pub struct ApplyArgs {
    /// The tenants file
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Delete what is there and not in the file
    #[arg(long)]
    pub prune: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    access: Access,
}

/// What was done to something, or would be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Created,
    Replaced,
    Deleted,
    /// A secret whose value only the gateway can compare.
    Compared,
    Left,
    /// It is not in the file.
    Kept,
}

/// One application of a file.
struct Apply<'a, W> {
    client: &'a Client,
    args: &'a ApplyArgs,
    out: &'a mut W,
    done: Vec<(Done, String)>,
}

/// Does it, and says what came of it on `out`.
pub fn run(args: &ApplyArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let source = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).map_err(|error| BadInput(format!("{source}: {error}")))?;
    let env: Environment = Arc::new(|name| std::env::var(name).ok());
    let parts = parts::cut(&text, &source, &env)
        .map_err(|report| BadInput(format!("the tenants file cannot be used\n{report}")))?;
    let client = args.access.open()?;
    super::block_on(async {
        let mut apply = Apply { client: &client, args, out, done: Vec::new() };
        let ended = apply.all(&parts).await;
        apply.sum(&parts)?;
        ended
    })
}

impl<W: Write> Apply<'_, W> {
    async fn all(&mut self, parts: &Parts) -> anyhow::Result<()> {
        let issuers = self.there("/issuers").await?;
        let tenants = self.there("/tenants").await?;
        let named = |name: &str| parts.tenants.iter().any(|part| part.name.as_str() == name);
        self.prune("/tenants", &tenants, named).await?;
        for (url, document) in &parts.issuers {
            self.document("/issuers", url, document, &issuers).await?;
        }
        // What one tenant gives up may be what a new one claims.
        let is_new = |part: &&Part| find(&tenants, part.name.as_str()).is_none();
        let (new, old): (Vec<_>, Vec<_>) = parts.tenants.iter().partition(is_new);
        for part in old.into_iter().chain(new) {
            self.document("/tenants", part.name.as_str(), &part.document, &tenants).await?;
            self.tenant(part, find(&tenants, part.name.as_str()).is_some()).await?;
        }
        self.prune("/issuers", &issuers, |url| parts.issuers.iter().any(|(own, _)| own == url)).await
    }

    /// What is a tenant's own.
    async fn tenant(&mut self, part: &Part, exists: bool) -> anyhow::Result<()> {
        let tenant = path(&["tenants", part.name.as_str()]);
        let (secrets, backends) = (format!("{tenant}/secrets"), format!("{tenant}/backends"));
        let there = if exists { self.there(&secrets).await? } else { Vec::new() };
        let running = if exists { self.there(&backends).await? } else { Vec::new() };
        for (name, value) in &part.secrets {
            self.secret(&secrets, name, value.expose_secret(), find(&there, name)).await?;
        }
        for (name, document) in &part.backends {
            self.document(&backends, name, document, &running).await?;
        }
        self.prune(&backends, &running, |name| part.backends.iter().any(|(own, _)| own == name)).await?;
        self.prune(&secrets, &there, |name| part.secrets.iter().any(|(own, _)| own == name)).await
    }

    /// Everything in a list.
    async fn there(&self, list: &str) -> anyhow::Result<Vec<Value>> {
        Ok(self.client.list(list).await?.unwrap_or_default())
    }

    /// Makes something as the file has it, unless it is so.
    async fn document(
        &mut self,
        list: &str,
        name: &str,
        document: &Value,
        there: &[Value],
    ) -> anyhow::Result<()> {
        let at = format!("{list}{}", path(&[name]));
        let done = match find(there, name) {
            Some(old) if old["document"] == *document => Done::Left,
            Some(old) => {
                if !self.args.dry_run {
                    let body = json!({"document": document});
                    let answer = self.client.replace(&at, old["revision"].as_u64(), &body).await?;
                    answer.good().with_context(|| format!("{} cannot be replaced", shown(list, name)))?;
                }
                Done::Replaced
            }
            None => {
                if !self.args.dry_run {
                    let body = match list {
                        "/issuers" => json!({"document": document}),
                        _ => json!({"name": name, "document": document}),
                    };
                    let made = self.client.create(list, &body).await;
                    made.with_context(|| format!("{} cannot be made", shown(list, name)))?;
                }
                Done::Created
            }
        };
        self.note(done, list, name)
    }

    /// Gives a secret its value. Whether that is another one, the gateway says.
    async fn secret(
        &mut self,
        list: &str,
        name: &str,
        value: &str,
        old: Option<&Value>,
    ) -> anyhow::Result<()> {
        let at = format!("{list}{}", path(&[name]));
        let done = match old {
            Some(_) if self.args.dry_run => Done::Compared,
            None if self.args.dry_run => Done::Created,
            Some(old) => {
                let revision = old["revision"].as_u64();
                let answer = self.client.replace(&at, revision, &json!({"value": value})).await?;
                let new = answer.good().with_context(|| format!("{} cannot be set", shown(list, name)))?;
                if new["revision"].as_u64() == revision { Done::Left } else { Done::Replaced }
            }
            None => {
                let made = self.client.create(list, &json!({"name": name, "value": value})).await;
                made.with_context(|| format!("{} cannot be made", shown(list, name)))?;
                Done::Created
            }
        };
        self.note(done, list, name)
    }

    /// Deletes what is there and not in the file, where that was asked for.
    async fn prune(
        &mut self,
        list: &str,
        there: &[Value],
        named: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        for old in there {
            let name = old["name"].as_str().unwrap_or_default();
            if named(name) {
                continue;
            }
            if !self.args.prune {
                self.note(Done::Kept, list, name)?;
                continue;
            }
            if !self.args.dry_run {
                let at = format!("{list}{}", path(&[name]));
                let answer = self.client.delete(&at, old["revision"].as_u64()).await?;
                answer.good().with_context(|| format!("{} cannot be deleted", shown(list, name)))?;
            }
            self.note(Done::Deleted, list, name)?;
        }
        Ok(())
    }

    fn note(&mut self, done: Done, list: &str, name: &str) -> anyhow::Result<()> {
        let name = shown(list, name);
        if !self.args.access.json {
            match (done, self.args.dry_run) {
                (Done::Left, _) => {}
                (Done::Kept, _) => writeln!(self.out, "not in the file: {name} (`--prune` deletes it)")?,
                (Done::Compared, _) => writeln!(self.out, "would replace {name}, if its value is another")?,
                (Done::Created, false) => writeln!(self.out, "created {name}")?,
                (Done::Replaced, false) => writeln!(self.out, "replaced {name}")?,
                (Done::Deleted, false) => writeln!(self.out, "deleted {name}")?,
                (Done::Created, true) => writeln!(self.out, "would create {name}")?,
                (Done::Replaced, true) => writeln!(self.out, "would replace {name}")?,
                (Done::Deleted, true) => writeln!(self.out, "would delete {name}")?,
            }
        }
        self.done.push((done, name));
        Ok(())
    }

    /// Says what was done in all, also where it ended early.
    fn sum(&mut self, parts: &Parts) -> anyhow::Result<()> {
        let names = |wanted: Done| {
            let of = self.done.iter().filter(|(done, _)| *done == wanted);
            of.map(|(_, name)| name.as_str()).collect::<Vec<_>>()
        };
        let [created, replaced, deleted] = [Done::Created, Done::Replaced, Done::Deleted].map(names);
        let [compared, left, kept] = [Done::Compared, Done::Left, Done::Kept].map(names);
        if self.args.access.json {
            let value = json!({
                "dry_run": self.args.dry_run, "created": created, "replaced": replaced, "deleted": deleted,
                "compared": compared, "left": left, "kept": kept,
                "warnings": parts.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            });
            return client::print(self.out, &value);
        }
        for warning in &parts.warnings {
            writeln!(self.out, "warning: {warning}")?;
        }
        let would = if self.args.dry_run { "would be " } else { "" };
        match created.len() + replaced.len() + deleted.len() + compared.len() {
            0 => writeln!(self.out, "nothing to change: {} as in the file", left.len())?,
            _ => writeln!(
                self.out,
                "{would}created {}, replaced {}, deleted {}; left as they are {}",
                created.len(),
                replaced.len(),
                deleted.len(),
                left.len()
            )?,
        }
        Ok(())
    }
}

fn find<'v>(there: &'v [Value], name: &str) -> Option<&'v Value> {
    there.iter().find(|one| one["name"] == name)
}

/// What something is called in messages.
fn shown(list: &str, name: &str) -> String {
    format!("{}/{name}", list.trim_start_matches('/'))
}
