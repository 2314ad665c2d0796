//! Secrets of tenants: where their values come from, and how they follow their sources.

use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;

use http::HeaderValue;
use secrecy::ExposeSecret;
use secrecy::SecretString;

use crate::config::reader::At;
use crate::config::secret;
use crate::config::secret::SecretError;
use crate::model::name::TenantName;
use crate::model::tenant::SecretCell;
use crate::store::serving::Value;
use crate::tenant::source::Environment;

/// Every secret of every tenant, and those of the deployment.
#[derive(Clone, Debug, Default)]
pub struct Secrets(HashMap<Option<TenantName>, Vec<Secret>>);

/// One secret of one tenant.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Its name in the tenant.
    pub name: String,
    /// Where its value comes from.
    pub origin: Origin,
    /// Where the value is used from.
    pub cell: SecretCell,
    /// Whether the last reading failed, which is logged once.
    pub stale: bool,
}

/// Where a secret's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The content of a file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// The database, which tells of new values by itself.
    Stored,
}

/// Why a secret has no value.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// The file.
    #[error("the file {0}")]
    File(#[from] SecretError),
    /// The variable.
    #[error("the variable is not set")]
    Unset,
    /// The value.
    #[error("the value cannot be sent in a header")]
    NotAHeader,
}

impl Origin {
    /// The value; none where it is told and not read.
    fn read(&self, env: &Environment) -> Result<Option<SecretString>, OriginError> {
        let value = match self {
            Self::File(path) => SecretString::from(secret::read(path)?.as_str()),
            Self::Variable(name) => SecretString::from(env(name).ok_or(OriginError::Unset)?),
            Self::Stored => return Ok(None),
        };
        if is_sendable(value.expose_secret()) { Ok(Some(value)) } else { Err(OriginError::NotAHeader) }
    }
}

/// What secrets can be called, for messages.
pub const NAMES: &str = "a secret's name is 1 to 64 of `A-Z`, `a-z`, `0-9`, `-`, `_` and `.`";

/// Whether a secret can be called this.
pub fn is_name(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(legal)
}

/// Whether a value can be sent in a header.
pub fn is_sendable(text: &str) -> bool {
    let plain = HeaderValue::from_str(text).is_ok() && text.trim() == text;
    plain && !text.is_empty() && text.is_ascii()
}

impl Secrets {
    /// Adds secrets of a tenant, or of the deployment.
    pub fn add(&mut self, tenant: Option<&TenantName>, secrets: Vec<Secret>) {
        if !secrets.is_empty() {
            self.0.entry(tenant.cloned()).or_default().extend(secrets);
        }
    }

    /// The secrets of a tenant.
    pub(super) fn of(&self, tenant: &TenantName) -> &[Secret] {
        self.0.get(&Some(tenant.clone())).map_or(&[], Vec::as_slice)
    }

    /// Takes over what `known` has of `tenants` and this does not.
    pub(super) fn keep<'k>(&mut self, known: &Self, tenants: impl Iterator<Item = &'k TenantName>) {
        for name in tenants {
            let name = Some(name.clone());
            if let (false, Some(secrets)) = (self.0.contains_key(&name), known.0.get(&name)) {
                self.0.insert(name, secrets.clone());
            }
        }
    }

    /// The cell of a secret that is known already and comes from the same place: whoever holds it
    /// keeps seeing its value, and a secret that moves never reaches those who hold the old one.
    fn cell(&self, tenant: Option<&TenantName>, name: &str, origin: &Origin) -> Option<SecretCell> {
        let same = |secret: &&Secret| secret.name == name && secret.origin == *origin;
        self.0.get(&tenant.cloned())?.iter().find(same).map(|secret| secret.cell.clone())
    }

    /// Reads every value again. One that cannot be read stays what it was.
    pub fn reread(&mut self, env: &Environment) {
        let all =
            self.0.iter_mut().flat_map(|(tenant, secrets)| secrets.iter_mut().map(move |s| (tenant, s)));
        for (tenant, secret) in all {
            let (tenant, name) = (tenant.as_ref().map(TenantName::as_str), secret.name.as_str());
            match secret.origin.read(env) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    let old = secret.cell.get();
                    if old.as_ref().is_none_or(|old| old.value.expose_secret() != value.expose_secret()) {
                        secret.cell.set(value);
                        tracing::info!(tenant, secret = name, "a secret has a new value");
                    }
                    secret.stale = false;
                }
                Err(error) if !secret.stale => {
                    tracing::warn!(tenant, secret = name, %error, "a secret cannot be read again and keeps its value");
                    secret.stale = true;
                }
                Err(_) => {}
            }
        }
    }

    /// The files that hold values.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.values().flatten().filter_map(|secret| match &secret.origin {
            Origin::File(path) => Some(path),
            Origin::Variable(_) | Origin::Stored => None,
        })
    }
}

/// A stored secret of a tenant. One whose value does not open, or cannot be sent, has none: calls that
/// need it fail, and nothing else does.
pub(super) fn stored(tenant: &TenantName, stored: &Value, known: &Secrets) -> Secret {
    let (name, origin) = (stored.name.clone(), Origin::Stored);
    let cell = known.cell(Some(tenant), &name, &origin).unwrap_or_default();
    match stored.value.as_ref().filter(|value| is_sendable(value.expose_secret())) {
        Some(value) => cell.set(value.clone()),
        None => {
            tracing::error!(tenant = tenant.as_str(), secret = name, "a stored secret cannot be used");
            cell.clear();
        }
    }
    Secret { name, origin, cell, stale: false }
}

/// Whether `path` leads into `directory`, over whatever links.
fn is_within(path: &Path, directory: &Path) -> bool {
    match (path.canonicalize(), directory.canonicalize()) {
        (Ok(path), Ok(directory)) => path.starts_with(directory),
        _ => false,
    }
}

/// Reads one entry of a tenant's `secrets`.
pub(super) fn read(tenant: &TenantName, name: &str, at: &At<'_>, places: Places<'_>) -> Option<Secret> {
    if !is_name(name) {
        at.refuse::<()>(NAMES);
    }
    referred(Some(tenant), name, at, places)
}

/// Where secrets may come from.
#[derive(Clone, Copy)]
pub(super) struct Places<'p> {
    /// The environment.
    pub(super) env: &'p Environment,
    /// The secrets that are in use.
    pub(super) known: &'p Secrets,
    /// What lies here is the gateway's own.
    pub(super) own_dir: Option<&'p Path>,
}

/// Reads where the value of a secret is, of a tenant or of the deployment, and its value.
pub(super) fn referred(
    tenant: Option<&TenantName>,
    name: &str,
    at: &At<'_>,
    places: Places<'_>,
) -> Option<Secret> {
    let Places { env, known, own_dir } = places;
    let fields = at.map(&["file", "env"])?;
    let (place, origin) = match (fields.get("file"), fields.get("env")) {
        (Some(file), None) => {
            let path = file.path()?;
            if own_dir.is_some_and(|own| is_within(&path, own)) {
                return file.refuse("this file is the gateway's own: its keys are no tenant's secret");
            }
            (file.clone(), Origin::File(path))
        }
        (None, Some(env)) => {
            let variable = env.filled()?;
            if variable.starts_with("FONDACO_") {
                return env.refuse("this variable is the gateway's own setting, and no tenant's secret");
            }
            (env.clone(), Origin::Variable(variable.to_owned()))
        }
        _ => {
            return at
                .refuse_hint("expected either `file` or `env`", "a value is never written into this file");
        }
    };
    let cell = match known.cell(tenant, name, &origin) {
        Some(cell) => cell,
        None => {
            let cell = SecretCell::default();
            match origin.read(env) {
                Ok(value) => value.into_iter().for_each(|value| cell.set(value)),
                Err(error) => return place.refuse(error.to_string()),
            }
            cell
        }
    };
    Some(Secret { name: name.to_owned(), origin, cell, stale: false })
}
