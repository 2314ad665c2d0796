//! Process configuration: what one process needs to boot. `defaults.toml` documents every key and
//! is the source of every default; a file and `FONDACO_SECTION__KEY` variables lie over it.

pub mod database;
pub mod egress;
pub mod keys;
pub mod layers;
pub mod limits;
pub mod listen;
pub mod node;
pub mod public;
pub mod reader;
pub mod reference;
pub mod report;
pub mod secret;
pub mod telemetry;
pub mod units;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::path::PathBuf;

use url::Url;

use crate::config::database::Database;
use crate::config::egress::Egress;
use crate::config::keys::Keys;
use crate::config::listen::Admin;
use crate::config::listen::Front;
use crate::config::public::PublicUrls;
use crate::config::reader::At;
use crate::config::reader::Fields;
use crate::config::reader::Problems;
use crate::config::report::Problem;
use crate::config::report::Report;
use crate::config::telemetry::Telemetry;
use crate::model::limits::Limits;

/// The process configuration, checked: nothing in it needs a second look.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the public listener binds.
    pub listen: SocketAddr,
    /// The URL that clients reach the gateway under; a scheme and an authority, no path.
    pub public_url: Option<Url>,
    /// Further URLs that it is reached under.
    pub public_aliases: Vec<Url>,
    /// Browser origins that may call every endpoint, serialised.
    pub allowed_origins: Vec<String>,
    /// The admin listener.
    pub admin: Admin,
    /// Where the embedded state lives.
    pub data_dir: PathBuf,
    /// The file that owns the tenants, where one does.
    pub tenants: Option<PathBuf>,
    /// The keys that seal handles.
    pub keys: Keys,
    /// Where tenants live that no file declares.
    pub database: Database,
    /// What outbound connections may reach.
    pub egress: Egress,
    /// Every limit.
    pub limits: Limits,
    /// Logs and traces.
    pub telemetry: Telemetry,
}

impl Settings {
    /// The settings of the embedded mode, which listens on `listen` (already bound: its port is
    /// the one that URLs name) and keeps its state in `data_dir`. Its URL is the address that was
    /// bound, since nothing may listen on the others; the other names of loopback are aliases.
    pub fn dev(listen: SocketAddr, data_dir: PathBuf) -> Self {
        let url = |authority: &str| {
            Url::parse(&format!("http://{authority}")).expect("a loopback URL is well-formed")
        };
        let own = url(&listen.to_string());
        let names = ["127.0.0.1", "localhost", "[::1]"].map(|host| url(&format!("{host}:{}", listen.port())));
        Self {
            listen,
            public_aliases: names.into_iter().filter(|name| *name != own).collect(),
            public_url: Some(own),
            allowed_origins: Vec::new(),
            admin: Admin { listen: SocketAddr::from(([127, 0, 0, 1], 8081)), allow_remote: false },
            data_dir,
            tenants: None,
            keys: Keys::default(),
            database: Database::default(),
            egress: Egress::default(),
            limits: Limits::default(),
            telemetry: Telemetry::default(),
        }
    }

    /// The URLs that the gateway is reached under. Without a `public_url` it is the listener's
    /// own, which is loopback then.
    pub fn public_urls(&self) -> PublicUrls {
        let own =
            || Url::parse(&format!("http://{}", self.listen)).expect("a socket address is an authority");
        PublicUrls {
            primary: self.public_url.clone().unwrap_or_else(own),
            aliases: self.public_aliases.clone(),
            origins: self.allowed_origins.clone(),
        }
    }
}

/// Loads the settings from `path` (`./fondaco.toml` where there is none and it exists) and from
/// the `FONDACO_…` variables of `env`, or says everything that is wrong with them.
pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, OsString)>) -> Result<Settings, Report> {
    let problems = Problems::default();
    let env: BTreeMap<String, String> = env.filter_map(|variable| text(variable, &problems)).collect();
    let named = env.get("FONDACO_CONFIG").filter(|name| !name.is_empty()).map(Path::new);
    let path = path.filter(|path| !path.as_os_str().is_empty());
    let root = layers::read(path.or(named), env.iter(), &problems);
    let settings = settings(&At::root(&root, &problems), &env.into_iter().collect());
    let report = Report(problems.into_inner());
    match settings {
        Some(settings) => report.into_result().map(|()| settings),
        None => Err(report),
    }
}

/// The process's environment, for [`load`]. A name that is not text is nobody's setting.
pub fn environment() -> impl Iterator<Item = (String, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
}

/// A variable whose value is text. One that is not is a problem where it is meant for us.
fn text((name, value): (String, OsString), problems: &Problems) -> Option<(String, String)> {
    match value.into_string() {
        Ok(value) => Some((name, value)),
        Err(_) => {
            if name.starts_with(layers::PREFIX) {
                problems.add(Problem::new(&name, "", "the value is not UTF-8"));
            }
            None
        }
    }
}

/// The sections, which have readers of their own, and the keys of each.
const SECTIONS: [(&str, &[&str]); 6] = [
    ("admin", Admin::NAMES),
    ("keys", Keys::NAMES),
    ("database", Database::NAMES),
    ("egress", Egress::NAMES),
    ("limits", limits::NAMES),
    ("telemetry", Telemetry::NAMES),
];

fn settings(root: &At<'_>, env: &HashMap<String, String>) -> Option<Settings> {
    let sections = SECTIONS.map(|(name, _)| name);
    let known: Vec<&str> =
        Front::NAMES.iter().copied().chain(["data_dir", "tenants"]).chain(sections).collect();
    let fields = root.map(&known)?;
    let front = Front::read(&fields);
    let data_dir = fields.need("data_dir").and_then(|at| at.path());
    let tenants = fields.get("tenants").map(|at| at.path());
    let listen = front.as_ref().map(|front| front.listen);
    let admin = section(&fields, "admin", |at| Admin::read(at, listen));
    let keys = section(&fields, "keys", |at| Keys::read(at, env));
    let database = section(&fields, "database", Database::read);
    let egress = section(&fields, "egress", Egress::read);
    let limits = section(&fields, "limits", limits::read);
    let telemetry = section(&fields, "telemetry", Telemetry::read);
    let front = front?;
    Some(Settings {
        listen: front.listen,
        public_url: front.public_url,
        public_aliases: front.public_aliases,
        allowed_origins: front.allowed_origins,
        admin: admin?,
        data_dir: data_dir?,
        tenants: match tenants {
            Some(path) => Some(path?),
            None => None,
        },
        keys: keys?,
        database: database?,
        egress: egress?,
        limits: limits?,
        telemetry: telemetry?,
    })
}

fn section<'a, T>(fields: &Fields<'a>, name: &str, read: impl FnOnce(&At<'a>) -> Option<T>) -> Option<T> {
    read(&fields.need(name)?)
}
