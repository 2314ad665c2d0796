//! URLs in configuration: those that the deployment is known under, and the rules for all others.
//! A URL that a parser would read differently from how it is written is refused.

use std::net::IpAddr;

use url::Host;
use url::Url;

use crate::config::reader::At;
use crate::model::link::shown;

/// Where clients reach the gateway. Each URL is a scheme and an authority, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrls {
    /// The URL that resources are named by.
    pub primary: Url,
    /// Further URLs that name the same resources.
    pub aliases: Vec<Url>,
    /// Browser origins that may call every endpoint, serialised.
    pub origins: Vec<String>,
}

impl PublicUrls {
    /// The primary URL and its aliases.
    pub fn all(&self) -> impl Iterator<Item = &Url> {
        std::iter::once(&self.primary).chain(&self.aliases)
    }
}

/// An `http` or `https` URL without userinfo or fragment, as it is written and as it is understood.
pub fn link<'a>(at: &At<'a>) -> Option<(&'a str, Url)> {
    let text = at.filled()?;
    let Ok(url) = Url::parse(text) else {
        return at.refuse_hint("found text that is no URL", "for example `https://host.example/mcp`");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return at.refuse(format!("found the scheme `{}`, expected `https` or `http`", url.scheme()));
    }
    // Never shown: it is a password.
    if !url.username().is_empty() || url.password().is_some() {
        return at.refuse_hint("the URL has a user name or a password", "use a secret and a `credential`");
    }
    if url.fragment().is_some() {
        return at.refuse("the URL has a fragment");
    }
    if url.port() == Some(0) {
        return at.refuse("the URL has port 0");
    }
    if url.domain().is_some_and(|name| !is_host_name(name)) {
        return at.refuse("the URL's host is no host name");
    }
    if !written_as(text, &url) {
        let (found, own) = (shown(text), shown(url.as_str()));
        return at.refuse_hint(format!("`{found}` is not how this URL is written"), format!("write `{own}`"));
    }
    Some((text, url))
}

/// [`link`], and `https` unless its host is loopback.
pub fn secure_link<'a>(at: &At<'a>) -> Option<(&'a str, Url)> {
    let (text, url) = link(at)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return at
            .refuse_hint("found an `http` URL, expected `https`", "only a loopback host may use `http`");
    }
    Some((text, url))
}

/// A scheme and an authority alone.
pub fn site(at: &At<'_>) -> Option<Url> {
    let (text, url) = link(at)?;
    if url.path() != "/" || url.query().is_some() {
        let base = url.origin().ascii_serialization();
        return at.refuse_hint(
            format!("`{}` has more than a scheme and an authority", shown(text)),
            format!("write `{base}`"),
        );
    }
    Some(url)
}

/// An origin as browsers write it.
// spec: RFC 6454, section 6.2
pub fn origin(at: &At<'_>) -> Option<String> {
    let text = at.filled()?;
    if text == "*" || text == "null" {
        return at.refuse_hint(format!("found `{text}`, expected an origin"), "list every origin");
    }
    let parsed = Url::parse(text).ok().filter(|url| url.host().is_some() && url.origin().is_tuple());
    match parsed.map(|url| url.origin().ascii_serialization()) {
        Some(origin) if origin == text => Some(origin),
        Some(origin) => at.refuse_hint(
            format!("`{}` is not how browsers write an origin", shown(text)),
            format!("write `{origin}`"),
        ),
        None => at.refuse_hint(
            format!("found `{}`, expected an origin", shown(text)),
            "for example `https://app.example.com`",
        ),
    }
}

/// The authorities that a request may name the site at `base` by, lower-case: with and without
/// the port where it is the scheme's default one.
pub fn authorities(base: &str) -> Vec<String> {
    let (scheme, authority) = base.split_once("://").unwrap_or(("https", base));
    let default = if scheme == "http" { "80" } else { "443" };
    let port = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    match port {
        None => vec![authority.to_owned(), format!("{authority}:{default}")],
        Some((host, port)) if port == default => vec![host.to_owned(), authority.to_owned()],
        Some(_) => vec![authority.to_owned()],
    }
}

/// Whether `text` is a lower-case host name, without a dot at its end.
pub fn is_host_name(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(legal)
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether a URL's host is this machine, by its name alone.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

/// Whether `text` is the URL's own form, give or take the slash of an empty path and the scheme's
/// default port.
fn written_as(text: &str, url: &Url) -> bool {
    let own = url.as_str();
    if text == own || format!("{text}/") == own {
        return true;
    }
    let default = if url.scheme() == "http" { ":80" } else { ":443" };
    let authority = url.host_str().unwrap_or_default();
    let rest = own.get(url.scheme().len() + 3 + authority.len()..).unwrap_or_default();
    let ported = format!("{}://{authority}{default}{rest}", url.scheme());
    url.port().is_none() && (text == ported || format!("{text}/") == ported)
}
