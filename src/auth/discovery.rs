//! Where an issuer's keys are, and getting them: an explicit `jwks_uri`, or metadata that says
//! byte for byte that it is this issuer's.

use serde_json::Value;
use url::Host;
use url::Url;

use crate::auth::jwks::KeySet;
use crate::egress::Egress;
use crate::egress::error::EgressError;
use crate::model::endpoint::Issuer;
use crate::model::limits::Limits;
use crate::model::link::shown;

/// Longest URL that is asked.
const URL_BYTES: usize = 2048;

/// Why an issuer's keys were not had. For the log: it names URLs, without what may be
/// secrets in them, and what they answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A URL that we do not ask.
    #[error("`{0}` is neither `https:` nor on this machine")]
    Url(String),
    /// No answer, or none that counts.
    #[error("`{url}`: {cause}")]
    Fetch {
        /// What was asked.
        url: String,
        /// What went wrong.
        #[source]
        cause: EgressError,
    },
    /// A document without what it is for.
    #[error("`{url}` is not an issuer's metadata with a `jwks_uri`")]
    Metadata {
        /// What was asked.
        url: String,
    },
    /// Metadata of somebody else.
    #[error("`{url}` is the metadata of another issuer than the configured one, byte for byte")]
    OtherIssuer {
        /// What was asked.
        url: String,
    },
    /// A document that is no set of keys. An empty set is one.
    #[error("`{url}` is no JWK set")]
    NoKeys {
        /// What was asked.
        url: String,
    },
    /// All documents together took too long.
    #[error("the issuer's documents took too long")]
    TooSlow,
}

impl DiscoveryError {
    /// Whether there was no answer in time.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::TooSlow | Self::Fetch { cause: EgressError::TooSlow(_), .. })
    }
}

/// Gets the keys of `issuer`: two documents' time, whatever has to be tried.
pub(super) async fn keys(
    egress: &Egress,
    issuer: &Issuer,
    limits: &Limits,
) -> Result<KeySet, DiscoveryError> {
    let time = limits.issuer_time * 2;
    tokio::time::timeout(time, discover(egress, issuer, limits)).await.unwrap_or(Err(DiscoveryError::TooSlow))
}

async fn discover(egress: &Egress, issuer: &Issuer, limits: &Limits) -> Result<KeySet, DiscoveryError> {
    let url = match &issuer.jwks_uri {
        Some(uri) => trusted(uri)?,
        None => keys_url(egress, issuer, limits).await?,
    };
    let document = fetch(egress, &url, limits).await?;
    KeySet::parse(&document, limits.issuer_keys).ok_or(DiscoveryError::NoKeys { url: shown(url.as_str()) })
}

/// Asks the places where metadata may be, in order; the first that is this issuer's counts, and
/// if none is, the first failure is told.
async fn keys_url(egress: &Egress, issuer: &Issuer, limits: &Limits) -> Result<Url, DiscoveryError> {
    let mut failure = None;
    for place in places(&trusted(&issuer.url)?) {
        let found = match fetch(egress, &place, limits).await {
            Ok(document) => read(&document, issuer, place),
            // Nobody answers there, so nobody will at the other places of the same authority.
            Err(error @ DiscoveryError::Fetch { cause: EgressError::Refused { .. }, .. }) => {
                return Err(error);
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(url) => return Ok(url),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.expect("there is always a place to ask"))
}

/// RFC 8414's place, then OpenID Connect's with the path inserted, then with the path in front.
// spec: authorization, Authorization Server Metadata Discovery
fn places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/').to_owned();
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let place = |path: &String| {
        let mut url = issuer.clone();
        url.set_path(path);
        url.set_query(None);
        url
    };
    paths.iter().map(place).collect()
}

fn read(document: &[u8], issuer: &Issuer, url: Url) -> Result<Url, DiscoveryError> {
    let metadata: Value = serde_json::from_slice(document).unwrap_or_default();
    let Some(named) = metadata.get("issuer").and_then(Value::as_str) else {
        return Err(DiscoveryError::Metadata { url: shown(url.as_str()) });
    };
    // RFC 8414, section 3.3: else whoever serves one path could speak for another issuer.
    if named != &*issuer.url {
        return Err(DiscoveryError::OtherIssuer { url: shown(url.as_str()) });
    }
    let uri = metadata.get("jwks_uri").and_then(Value::as_str);
    let keys = trusted(uri.ok_or_else(|| DiscoveryError::Metadata { url: shown(url.as_str()) })?)?;
    // An issuer elsewhere does not send us to this machine in clear text.
    if keys.scheme() == "http" && url.scheme() != "http" {
        return Err(DiscoveryError::Url(shown(keys.as_str())));
    }
    Ok(keys)
}

/// Reads a URL that may be asked: `https:`, or `http:` on this machine, for development.
fn trusted(text: &str) -> Result<Url, DiscoveryError> {
    // An issuer's document may say anything: what is logged of it is short and printable.
    let wrong = || DiscoveryError::Url(shown(text).escape_debug().take(200).collect());
    let url = Url::parse(text).map_err(|_| wrong())?;
    let local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let fits = url.scheme() == "https" || (url.scheme() == "http" && local);
    if fits
        && text.len() <= URL_BYTES
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
    {
        Ok(url)
    } else {
        Err(wrong())
    }
}

async fn fetch(egress: &Egress, url: &Url, limits: &Limits) -> Result<bytes::Bytes, DiscoveryError> {
    let fetched = egress.fetch(url, limits.issuer_bytes, limits.issuer_time).await;
    fetched.map_err(|cause| DiscoveryError::Fetch { url: shown(url.as_str()), cause })
}

#[cfg(test)]
mod tests {
    use super::places;
    use super::trusted;

    #[test]
    fn metadata_is_asked_for_at_the_places_of_the_specification() {
        let asked =
            |issuer| places(&trusted(issuer).unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>();
        let root = [
            "https://as.example/.well-known/oauth-authorization-server",
            "https://as.example/.well-known/openid-configuration",
        ];
        assert_eq!(asked("https://as.example"), root);
        assert_eq!(asked("https://as.example/"), root);
        let deep = [
            "https://as.example:8443/.well-known/oauth-authorization-server/a/b",
            "https://as.example:8443/.well-known/openid-configuration/a/b",
            "https://as.example:8443/a/b/.well-known/openid-configuration",
        ];
        assert_eq!(asked("https://as.example:8443/a/b"), deep);
        assert_eq!(asked("https://as.example:8443/a/b/"), deep);
    }

    #[test]
    fn issuers_are_asked_over_https_or_on_this_machine() {
        for good in ["https://as.example/x", "http://127.0.0.1:8/x", "http://[::1]:8", "http://localhost:8/x"]
        {
            assert!(trusted(good).is_ok(), "{good}");
        }
        let bad = [
            "http://as.example",
            "http://10.0.0.1",
            "http://localhost.evil.example",
            "https://u:p@as.example",
            "https://u@as.example",
            "https://as.example/#x",
            "file:///etc/passwd",
            "as.example",
            "",
        ];
        for url in bad {
            assert!(trusted(url).is_err(), "{url}");
        }
    }
}
