//! What an operator allows beyond the public Internet: the setting `egress.allow`.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use url::Host;
use url::Url;

use crate::egress::address;
use crate::egress::error::EgressError;

/// What may be dialled beyond globally routable addresses over TLS.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The entries of `egress.allow`, any of which permits.
    pub allow: Vec<Allow>,
}

/// One entry of `egress.allow`: a network, an address, or a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// These addresses, whatever name leads to them.
    Net(IpNet),
    /// Whatever addresses this host name, as URLs write it, leads to. Lower case.
    Host(String),
}

/// Why an entry of `egress.allow` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither a network (`10.0.0.0/8`), nor an address, nor a host name without port or wildcard")]
pub struct AllowError;

impl FromStr for Allow {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net(net));
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Net(address.into()));
        }
        let host = host_name(text);
        let label = |l: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            (1..=63).contains(&l.len()) && l.bytes().all(fits)
        };
        // A last label of digits is an address in an old notation (`127.1`), never a name.
        let numeric = host.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if host.len() <= 253 && host.split('.').all(label) && !numeric {
            Ok(Self::Host(host))
        } else {
            Err(AllowError)
        }
    }
}

impl Rules {
    /// Why `url` will never be dialled, as far as its text tells: its host is an address, or this
    /// machine, that these rules do not permit. Any other name is resolved, and checked, when it is dialled.
    pub fn refuses(&self, url: &Url) -> Option<EgressError> {
        let address = match url.host()? {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(name) => {
                let name = name.trim_end_matches('.');
                if name != "localhost" && !name.ends_with(".localhost") {
                    return None;
                }
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            }
        };
        self.check(&url.host_str()?.into(), address, url.scheme() == "https").err()
    }

    /// Whether `address`, which the URL's `host` led to, may be dialled; `secure` is with TLS.
    /// In clear text only allowed addresses are: there nobody else is on the way.
    pub(super) fn check(&self, host: &Arc<str>, address: IpAddr, secure: bool) -> Result<(), EgressError> {
        if self.allows(host, address) {
            return Ok(());
        }
        let clear = (!secure).then_some("`http:` in clear text is for allowed addresses only");
        match address::special(address).or(clear) {
            None => Ok(()),
            Some(reason) => Err(EgressError::Refused { host: host.clone(), address, reason }),
        }
    }

    fn allows(&self, host: &str, address: IpAddr) -> bool {
        let plain = address::plain(address);
        let host = host_name(host);
        self.allow.iter().any(|allow| match allow {
            Allow::Net(net) => net.contains(&address) || net.contains(&plain),
            Allow::Host(name) => *name == host,
        })
    }
}

fn host_name(text: &str) -> String {
    text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::Allow;
    use super::Rules;

    fn rules(allow: &[&str]) -> Rules {
        Rules { allow: allow.iter().map(|a| a.parse().unwrap()).collect() }
    }

    #[test]
    fn entries_are_networks_addresses_or_host_names() {
        for good in ["10.0.0.0/8", "fd00::/8", "127.0.0.1", "::1", "[::1]", "crm.internal", "Redis", "a_b.c."]
        {
            assert!(good.parse::<Allow>().is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "*",
            "*.internal",
            "10.0.0.0/40",
            "127.1",
            "2130706433",
            "a:80",
            "http://a",
            "a b",
            "a..b",
        ] {
            assert!(bad.parse::<Allow>().is_err(), "{bad}");
        }
        assert_eq!("CRM.Internal.".parse(), Ok(Allow::Host("crm.internal".into())));
    }

    #[test]
    fn an_address_is_permitted_by_network_or_by_the_exact_host() {
        let cases: [(&[&str], &str, &str, bool, bool); 14] = [
            (&[], "a.example", "8.8.8.8", true, true),
            (&[], "a.example", "8.8.8.8", false, false),
            (&[], "a.example", "10.1.2.3", true, false),
            (&["10.0.0.0/8"], "a.example", "10.1.2.3", true, true),
            (&["10.0.0.0/8"], "a.example", "10.1.2.3", false, true),
            (&["10.0.0.0/8"], "a.example", "::ffff:10.1.2.3", true, true),
            (&["10.0.0.0/8"], "a.example", "11.1.2.3", true, true),
            (&["10.0.0.0/8"], "a.example", "192.168.0.1", true, false),
            (&["127.0.0.1"], "a.example", "127.0.0.2", true, false),
            (&["a.example"], "a.example", "10.1.2.3", false, true),
            (&["a.example"], "A.Example.", "10.1.2.3", true, true),
            (&["a.example"], "b.a.example", "10.1.2.3", true, false),
            (&["a.example"], "a.example.evil.example", "10.1.2.3", true, false),
            (&["8.8.8.0/24"], "a.example", "8.8.8.8", false, true),
        ];
        for (allow, host, address, secure, permitted) in cases {
            let checked = rules(allow).check(&host.into(), address.parse().unwrap(), secure);
            assert_eq!(checked.is_ok(), permitted, "{allow:?} {host} {address} {secure}");
        }
    }

    #[test]
    fn a_refusal_names_the_address_and_the_setting() {
        let refused =
            rules(&[]).check(&"crm.internal".into(), "10.0.0.5".parse().unwrap(), true).unwrap_err();
        let said = refused.to_string();
        assert!(
            ["10.0.0.5", "crm.internal", "egress.allow"].iter().all(|part| said.contains(part)),
            "{said}"
        );
        assert!(!refused.was_sent());
    }
}
