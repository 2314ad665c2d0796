//! `[egress]`: what outbound connections may reach.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::config::public;
use crate::config::reader::At;

/// Exceptions from the rule that private addresses are not connected to, and extra trust anchors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// CIDRs, addresses and host names.
    pub allow: Vec<String>,
    /// PEM files with certificate authorities, beside the system's.
    pub ca: Vec<PathBuf>,
}

impl Egress {
    /// The keys of this section.
    pub const NAMES: &[&str] = &["allow", "ca"];

    pub(crate) fn read(at: &At<'_>) -> Option<Self> {
        let fields = at.map(Self::NAMES)?;
        let allow = fields.need("allow")?.list().iter().filter_map(allowed).collect();
        let ca = fields.need("ca")?.list().iter().filter_map(bundle).collect();
        Some(Self { allow, ca })
    }
}

/// A CIDR, an address or a host name.
fn allowed(at: &At<'_>) -> Option<String> {
    let text = at.filled()?;
    if text.parse::<IpAddr>().is_ok() {
        return Some(text.to_owned());
    }
    if text.contains('/') {
        return match text.parse::<ipnet::IpNet>() {
            Ok(net) if net.trunc() == net => Some(text.to_owned()),
            Ok(net) => at.refuse_hint(
                format!("found `{text}`, whose host bits are set"),
                format!("write `{}`", net.trunc()),
            ),
            Err(_) => at.refuse_hint(format!("found `{text}`, expected a CIDR"), "for example `10.0.0.0/8`"),
        };
    }
    // A last label of digits is an address in one of its odd forms, which no rule would match.
    let numeric = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    if public::is_host_name(text) && !numeric {
        return Some(text.to_owned());
    }
    let expected = format!("found `{text}`, expected a CIDR, an address or a lower-case host name");
    at.refuse_hint(expected, "for example `10.0.0.0/8`, `127.0.0.1` or `crm.internal`")
}

fn bundle(at: &At<'_>) -> Option<PathBuf> {
    let path = at.path()?;
    match std::fs::read_to_string(&path) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => Some(path),
        Ok(_) => at.refuse(format!("`{}` has no certificate in PEM form", path.display())),
        Err(error) => at.refuse(format!("`{}` cannot be read: {error}", path.display())),
    }
}
