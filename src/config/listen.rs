//! Listeners and the names that they are reached under, and which combinations are not safe.

use std::collections::HashMap;
use std::net::SocketAddr;

use url::Url;

use crate::config::public;
use crate::config::reader::At;
use crate::config::reader::Fields;

/// The admin listener: its API, metrics, health and console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it binds.
    pub listen: SocketAddr,
    /// Whether it may bind outside of loopback.
    pub allow_remote: bool,
}

/// The public listener and its names.
pub(crate) struct Front {
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<Url>,
    pub(crate) public_aliases: Vec<Url>,
    pub(crate) allowed_origins: Vec<String>,
}

impl Front {
    /// The keys of this section, which has no name.
    pub(crate) const NAMES: &[&str] = &["listen", "public_url", "public_aliases", "allowed_origins"];

    pub(crate) fn read(root: &Fields<'_>) -> Option<Self> {
        let listen = root.need("listen").and_then(|at| socket(&at));
        let public_url = root.get("public_url").map(|at| (public::site(&at), at));
        let aliases = root.need("public_aliases")?.list();
        let aliases: Vec<_> = aliases.into_iter().map(|at| (public::site(&at), at)).collect();
        let origins = root.need("allowed_origins")?.list();
        let allowed_origins = origins.iter().filter_map(public::origin).collect();
        if let Some(listen) = listen {
            if public_url.is_none() && !listen.ip().is_loopback() {
                let at = root.need("listen")?;
                let hint = "set `public_url`, for example to `https://mcp.example.com`";
                at.refuse_hint::<()>(
                    format!("`{listen}` is not loopback, and `public_url` is missing"),
                    hint,
                );
            }
            if public_url.is_none() && !aliases.is_empty() {
                root.need("public_aliases")?.refuse::<()>("there are aliases, but no `public_url`");
            }
            names_are_safe(listen, public_url.iter().chain(&aliases));
        }
        let public_url = match public_url {
            Some((url, _)) => Some(url?),
            None => None,
        };
        let public_aliases = aliases.into_iter().filter_map(|(url, _)| url).collect();
        Some(Self { listen: listen?, public_url, public_aliases, allowed_origins })
    }
}

impl Admin {
    /// The keys of this section.
    pub const NAMES: &[&str] = &["listen", "allow_remote"];

    /// Reads the section; `public` is where the public listener binds.
    pub(crate) fn read(at: &At<'_>, public: Option<SocketAddr>) -> Option<Self> {
        let fields = at.map(Self::NAMES)?;
        let allow_remote = fields.need("allow_remote").and_then(|at| at.flag());
        let at = fields.need("listen")?;
        let listen = socket(&at)?;
        if allow_remote == Some(false) && !listen.ip().is_loopback() {
            let hint = "set `admin.allow_remote = true` where only operators can reach this address";
            at.refuse_hint::<()>(format!("`{listen}` is not loopback"), hint);
        }
        if public.is_some_and(|public| collide(public, listen)) {
            let problem = format!("`{listen}` is taken by the public listener");
            at.refuse_hint::<()>(problem, "give `listen` and `admin.listen` ports of their own");
        }
        Some(Self { listen, allow_remote: allow_remote? })
    }
}

fn socket(at: &At<'_>) -> Option<SocketAddr> {
    let text = at.filled()?;
    text.parse().ok().or_else(|| {
        at.refuse_hint(
            format!("found `{text}`, expected an address and a port"),
            "for example `0.0.0.0:8080` or `[::]:8080`",
        )
    })
}

/// Whether two sockets cannot be bound at once. Port 0 is any.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let same_family = a.is_ipv4() == b.is_ipv4();
    let meet = a.ip() == b.ip() || same_family && (a.ip().is_unspecified() || b.ip().is_unspecified());
    a.port() != 0 && a.port() == b.port() && meet
}

/// Clear text is for this machine alone, and one authority is one site.
fn names_are_safe<'a>(listen: SocketAddr, names: impl Iterator<Item = &'a (Option<Url>, At<'a>)>) {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (url, at) in names {
        let Some(url) = url else { continue };
        if url.scheme() == "http" && !public::is_loopback(url) && !listen.ip().is_loopback() {
            let hint = "use the `https` URL that clients see; TLS may end at a proxy in front";
            at.refuse_hint::<()>(format!("`{url}` is clear text for a host that is not loopback"), hint);
        }
        for authority in public::authorities(&url.origin().ascii_serialization()) {
            if seen.insert(authority.clone(), &at.key).is_some_and(|other| other != at.key) {
                at.refuse::<()>(format!("`{authority}` is named twice"));
                break;
            }
        }
    }
}
