//! `fondaco check`: loads everything that a start would load, and says what it found.

use std::collections::BTreeSet;
use std::io;
use std::io::Write;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::IpNet;
use url::Host;
use url::Url;

use crate::config;
use crate::config::Settings;
use crate::config::public;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::model::tenant::BackendEra;
use crate::model::tenant::BackendKind;
use crate::model::tenant::Catalog;
use crate::seal::KeyRing;
use crate::tenant::file::Loaded;
use crate::tenant::index::Directory;
use crate::tenant::secret::Secrets;
use crate::tenant::source::Sources;

/// How names end that are given to internal addresses.
const INNER: [&str; 6] = [".localhost", ".svc", ".cluster.local", ".local", ".internal", ".lan"];

/// Checks the configuration and the tenants file without starting anything.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CheckArgs {
    /// The configuration file; without it, `./fondaco.toml` where that exists
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The tenants file, in place of the configured one
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
}

/// Writes every problem, or a summary, to `out`; whether all is well.
pub fn check(args: &CheckArgs, out: &mut impl Write) -> io::Result<bool> {
    let settings = config::load(args.config.as_deref(), config::environment());
    let (settings, mut report) = match settings {
        Ok(settings) => (Some(settings), Report::default()),
        Err(report) => (None, report),
    };
    // Without settings, a tenants file that was named can be checked all the same.
    let fallback = || Settings::dev(([127, 0, 0, 1], 8080).into(), PathBuf::new());
    let mut sources = Sources::of(&settings.clone().unwrap_or_else(fallback));
    sources.file = args.tenants.clone().or(sources.file);
    let stored = sources.file.is_none();
    report.0.extend(settings.as_ref().and_then(|settings| own_keys(settings, stored)));
    let loaded = sources.load(&Secrets::default()).map_err(|more| report.0.extend(more.0));
    match (settings, loaded) {
        (Some(settings), Ok(loaded)) if report.0.is_empty() => {
            summary(&settings, &sources, loaded, out).map(|()| true)
        }
        _ => writeln!(out, "{report}").map(|()| false),
    }
}

/// Why a start would fail on its own keys, where they are not in the configuration.
fn own_keys(settings: &Settings, stored: bool) -> Option<Problem> {
    if stored && settings.database.server.is_some() && settings.keys.ring.is_empty() {
        let hint = "make a key with `openssl rand -base64 32`, and name its file or variable";
        let message = "missing: processes that share a database need the same keys";
        return Some(Problem::new("configuration", "keys.ring", message).hint(hint));
    }
    let looked = if settings.keys.ring.is_empty() { KeyRing::look(&settings.data_dir) } else { Ok(()) };
    let error = anyhow::Error::from(looked.err()?);
    Some(Problem::new("configuration", "data_dir", format!("{error:#}")))
}

fn summary(settings: &Settings, sources: &Sources, loaded: Loaded, out: &mut impl Write) -> io::Result<()> {
    for warning in &loaded.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let directory = Directory::build(&sources.public, loaded, 1);
    let endpoints = directory.endpoints().count();
    writeln!(out, "ok")?;
    match (&sources.file, &settings.database.server) {
        (Some(file), _) => writeln!(out, "source: the file {}", file.display())?,
        // Nothing is connected to, or locked: a gateway may be running.
        (None, server) => {
            let place = if server.is_some() { "PostgreSQL" } else { "SQLite in the data directory" };
            return writeln!(out, "source: the database, {place}: its tenants are not looked at here");
        }
    }
    writeln!(out, "tenants: {}, endpoints: {endpoints}", directory.tenants().count())?;
    let mut internal = BTreeSet::new();
    for tenant in directory.tenants() {
        for backend in &tenant.backends {
            let place = match &backend.kind {
                BackendKind::Mcp { url, era } => {
                    internal.extend(needs_leave(url, settings));
                    let era = match era {
                        BackendEra::Auto => "",
                        BackendEra::Modern => ", era modern",
                        BackendEra::Handshake => ", era legacy",
                    };
                    // Without its query, which may be a key.
                    format!("mcp {}{}{era}", url.origin().ascii_serialization(), url.path())
                }
                BackendKind::Demo => "demo".to_owned(),
            };
            let catalog = match backend.catalog {
                Catalog::Shared => "",
                Catalog::PerCaller => ", catalog per_caller",
            };
            writeln!(out, "  {} {}: {place}{catalog}", tenant.name, backend.name)?;
        }
    }
    for trust in directory.endpoints().flat_map(|endpoint| endpoint.trust.iter()) {
        let urls = [Some(&trust.issuer.url), trust.issuer.jwks_uri.as_ref()];
        let urls = urls.into_iter().flatten().filter_map(|url| Url::parse(url).ok());
        internal.extend(urls.filter_map(|url| needs_leave(&url, settings)));
    }
    if !internal.is_empty() {
        let all: Vec<_> =
            settings.egress.allow.iter().chain(&internal).map(|item| format!("{item:?}")).collect();
        writeln!(out, "internal addresses and clear text need, in the configuration,")?;
        writeln!(out, "  [egress]\n  allow = [{}]", all.join(", "))?;
    }
    Ok(())
}

/// What `egress.allow` must have for `url`, where its address is internal or its text is clear, and
/// the list does not have it. Names are not looked up: those that look internal count, unless the
/// list has networks that they may be in.
fn needs_leave(url: &Url, settings: &Settings) -> Option<String> {
    let allow = &settings.egress.allow;
    let clear = url.scheme() == "http";
    let address = match url.host()? {
        Host::Domain(name) => {
            let known = match public::is_loopback(url) {
                true => covered(allow, IpAddr::V4(Ipv4Addr::LOCALHOST)),
                false => networks(allow).next().is_some(),
            };
            let inner = !name.contains('.') || INNER.iter().any(|end| name.ends_with(end));
            let wanted = (clear || inner) && !known && !allow.iter().any(|item| item == name);
            return wanted.then(|| name.to_owned());
        }
        Host::Ipv4(address) => IpAddr::V4(address),
        Host::Ipv6(address) => IpAddr::V6(address).to_canonical(),
    };
    ((clear || is_internal(address)) && !covered(allow, address)).then(|| address.to_string())
}

fn covered(allow: &[String], address: IpAddr) -> bool {
    networks(allow).any(|net| net.contains(&address))
}

fn networks(allow: &[String]) -> impl Iterator<Item = IpNet> {
    let net =
        |item: &String| item.parse::<IpNet>().ok().or_else(|| item.parse::<IpAddr>().ok().map(IpNet::from));
    allow.iter().filter_map(net)
}

fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.octets()[0] == 0 || shared
        }
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(toml: &str, yaml: &str) -> (bool, String) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("fondaco.toml"), toml).unwrap();
        std::fs::write(dir.path().join("tenants.yaml"), yaml).unwrap();
        let args = CheckArgs {
            config: Some(dir.path().join("fondaco.toml")),
            tenants: Some(dir.path().join("tenants.yaml")),
        };
        let mut out = Vec::new();
        let good = check(&args, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace(&format!("{}/", dir.path().display()), "");
        (good, text)
    }

    const TENANTS: &str = "\
issuers:
  - {issuer: http://localhost:9000, tenant_claim: org}
tenants:
  acme:
    issuers: [{shared: http://localhost:9000}]
    backends:
      crm: {kind: mcp, url: http://10.0.0.7/mcp?key=s3cret}
      wiki: {kind: mcp, url: https://wiki.example/mcp, era: legacy}
      demo: {kind: demo}
";

    #[test]
    fn a_good_configuration_is_summed_up() {
        let (good, text) = run("[egress]\nallow = [\"10.1.0.0/16\"]\n", TENANTS);
        let expected = "\
ok
source: the file tenants.yaml
tenants: 1, endpoints: 2
  acme crm: mcp http://10.0.0.7/mcp
  acme wiki: mcp https://wiki.example/mcp, era legacy
  acme demo: demo
internal addresses and clear text need, in the configuration,
  [egress]
  allow = [\"10.1.0.0/16\", \"10.0.0.7\", \"localhost\"]
";
        assert_eq!((good, text.as_str()), (true, expected));
    }

    #[test]
    fn services_that_look_internal_need_leave() {
        let text = |url: &str| {
            let yaml = format!("tenants: {{acme: {{backends: {{b: {{kind: mcp, url: '{url}'}}}}}}}}");
            run("", &yaml).1
        };
        for (url, needed) in [
            ("http://crm.tools.svc:8080/mcp", Some("crm.tools.svc")),
            ("https://crm/mcp", Some("crm")),
            ("https://crm.internal/mcp", Some("crm.internal")),
            ("http://crm.example/mcp", Some("crm.example")),
            ("http://192.0.2.1/mcp", Some("192.0.2.1")),
            ("https://169.254.169.254/mcp", Some("169.254.169.254")),
            ("https://[fd00::1]/mcp", Some("fd00::1")),
            ("https://[::ffff:a00:1]/mcp", Some("10.0.0.1")),
            ("https://100.64.0.1/mcp", Some("100.64.0.1")),
            ("https://100.128.0.1/mcp", None),
            ("https://crm.example/mcp", None),
        ] {
            let text = text(url);
            match needed {
                Some(item) => assert!(text.ends_with(&format!("allow = [\"{item}\"]\n")), "{url}: {text}"),
                None => assert!(!text.contains("allow"), "{url}: {text}"),
            }
        }
    }

    #[test]
    fn addresses_that_are_allowed_need_nothing() {
        let (good, text) = run("[egress]\nallow = [\"10.0.0.0/8\", \"127.0.0.0/8\"]\n", TENANTS);
        assert!(good && !text.contains("[egress]"), "{text}");
    }

    #[test]
    fn problems_of_both_files_are_told_together() {
        let (good, text) = run("listne = \"x\"\n", "tenants:\n  acme:\n    host: x\n");
        let expected = "\
fondaco.toml:1: listne: unknown key
  hint: did you mean `listen`?
tenants.yaml:3: tenants.acme.host: unknown key
  hint: did you mean `hosts`?
";
        assert_eq!((good, text.as_str()), (false, expected));
    }
}
