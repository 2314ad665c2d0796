//! `[database]`: where tenants live that no file declares.

use secrecy::SecretString;
use url::Url;

use crate::config::reader::At;
use crate::config::secret;

/// The database's place.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// The server. Without one it is a file in `data_dir`.
    pub server: Option<PostgresUrl>,
}

/// How a PostgreSQL database is reached. Never shown: the URL may hold a password.
#[derive(Clone, Debug)]
pub struct PostgresUrl {
    /// The whole URL.
    pub url: SecretString,
    /// The password, where it is not in the URL.
    pub password: Option<SecretString>,
}

impl Database {
    /// The keys of this section.
    pub const NAMES: &[&str] = &["url", "password_file"];

    /// Reads the section, and the file with the password.
    pub(crate) fn read(at: &At<'_>) -> Option<Self> {
        let fields = at.map(Self::NAMES)?;
        let url = fields.get("url").map(|at| server(&at));
        let password = fields.get("password_file").map(|at| {
            let text = secret::read(&at.path()?);
            text.map_or_else(
                |error| at.refuse(format!("the file {error}")),
                |text| Some(SecretString::from(text.as_str())),
            )
        });
        if let (Some(at), None) = (fields.get("password_file"), &url) {
            return at.refuse_hint("there is a password, but no `database.url`", "set both or none");
        }
        let password = match password {
            Some(password) => Some(password?),
            None => None,
        };
        let server = match url {
            Some(url) => Some(PostgresUrl { url: url?, password }),
            None => None,
        };
        Some(Self { server })
    }
}

/// A URL of PostgreSQL. What is wrong with it is told without it.
fn server(at: &At<'_>) -> Option<SecretString> {
    let text = at.filled()?;
    let known = |url: &Url| matches!(url.scheme(), "postgres" | "postgresql") && url.path().len() > 1;
    if !Url::parse(text).is_ok_and(|url| known(&url)) {
        let hint = "without a URL, the database is a file in `data_dir`";
        return at.refuse_hint("expected `postgres://user@host/database`", hint);
    }
    Some(SecretString::from(text))
}
