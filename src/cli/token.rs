//! `fondaco token`: tokens of the development issuer.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::value_parser;
use url::Url;

use crate::auth::dev_issuer;
use crate::auth::dev_issuer::DevIssuer;
use crate::auth::dev_issuer::Grant;
use crate::cli::BadInput;
use crate::config::units;
use crate::model::clock::Clock;
use crate::model::name::TenantName;
use crate::tenant::backend;

/// The longest life of a token, in seconds: ten years.
const LONGEST: u64 = 10 * 365 * 24 * 3600;

/// Mint a token of the development issuer.
#[derive(Args)]
pub struct TokenArgs {
    /// The tenant that the token names
    #[arg(long, value_name = "NAME", default_value = "demo")]
    pub tenant: String,
    /// Its subject
    #[arg(long, value_name = "TEXT", default_value = "alice")]
    pub sub: String,
    /// Its OAuth client
    #[arg(long, value_name = "TEXT", default_value = "fondaco-cli")]
    pub client: String,
    /// Its scopes, separated by spaces
    #[arg(long, value_name = "SCOPES", default_value = "demo.use", value_parser = scopes)]
    pub scope: String,
    /// Its audience; without it, the endpoint `/mcp` of the gateway
    #[arg(long, value_name = "URL")]
    pub aud: Option<String>,
    /// How long it is good for, as in `30s`, `15m` or `2h`
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = whole_seconds)]
    pub ttl: u64,
    /// How many to print, one a line; from the second on the subject gets a number
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub count: u32,
    /// The gateway that `fondaco dev` runs [default: that of `--aud`, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub public_url: Option<Url>,
    /// Where that gateway keeps its keys
    #[arg(long, value_name = "DIR", default_value = "./fondaco-data")]
    pub data_dir: PathBuf,
}

/// The gateway's URL, without a slash behind it.
fn base(args: &TokenArgs) -> anyhow::Result<String> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.host().is_some();
    if let Some(url) = &args.public_url {
        if !is_web(url) || url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            let problem = "--public-url: expected a scheme and an authority, as `http://127.0.0.1:8080`";
            return Err(BadInput(problem.to_owned()).into());
        }
        return Ok(url.origin().ascii_serialization());
    }
    // An audience may also be a name that is no URL.
    let named = args.aud.as_ref().and_then(|audience| Url::parse(audience).ok()).filter(is_web);
    Ok(named.map_or_else(|| "http://127.0.0.1:8080".to_owned(), |url| url.origin().ascii_serialization()))
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    let seconds = units::millis(text).map(|millis| millis / 1000);
    seconds
        .filter(|seconds| (1..=LONGEST).contains(seconds))
        .ok_or_else(|| "expected a time such as `30s`, `15m` or `2h`, ten years at most".to_owned())
}

/// Scopes, one space between each two, or none at all.
// spec: RFC 6749, section 3.3
fn scopes(text: &str) -> Result<String, String> {
    if text.is_empty() || text.split(' ').all(backend::is_scope) {
        return Ok(text.to_owned());
    }
    Err("expected scopes of visible ASCII without `\"` and `\\`, one space between each two".to_owned())
}

/// The issuer, whose key is made if there is none; `told` hears of that.
fn issuer(args: &TokenArgs, base: &str, told: &mut impl Write) -> anyhow::Result<DevIssuer> {
    let key = args.data_dir.join(dev_issuer::FILE);
    let was_there = key.exists();
    let issuer = DevIssuer::open(&args.data_dir, &format!("{base}/dev-issuer"))?;
    if !was_there {
        let whose = "only a `fondaco dev` with this `--data-dir` takes its tokens";
        writeln!(told, "note: made a new issuer key, {}: {whose}", key.display())?;
    }
    Ok(issuer)
}

/// Prints the tokens to `out`.
pub fn run(args: &TokenArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let tenant = TenantName::new(&args.tenant).map_err(|error| BadInput(format!("--tenant: {error}")))?;
    let base = base(args)?;
    let issuer = issuer(args, &base, &mut std::io::stderr())?;
    let audience = args.aud.clone().unwrap_or_else(|| format!("{base}/mcp"));
    let now = Clock::default().now();
    for number in 1..=args.count {
        let subject = if number == 1 { args.sub.clone() } else { format!("{}-{number}", args.sub) };
        let token = issuer.token(Grant {
            subject: &subject,
            client: &args.client,
            tenant: tenant.as_str(),
            scope: &args.scope,
            audience: &audience,
            ttl: args.ttl,
            now,
        });
        writeln!(out, "{token}")?;
    }
    Ok(())
}
