//! Which addresses lead out into the Internet, and which lead inside.
//!
//! The lists are IANA's special-purpose registries; what is not plainly globally routable
//! is not, so that a block assigned tomorrow is refused until somebody allows it.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;

/// What kind of address `address` is, if it is not globally routable.
pub fn special(address: IpAddr) -> Option<&'static str> {
    match plain(address) {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

/// The IPv4 address that an IPv6 address only wraps: mapped (`::ffff:0:0/96`), or through the
/// well-known NAT64 prefix (`64:ff9b::/96`), where public IPv4 hosts live on IPv6-only networks.
pub fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [a, b, c, d, e, f, high, low] = v6.segments();
    if matches!([a, b, c, d, e, f], [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0]) {
        let [[w, x], [y, z]] = [high.to_be_bytes(), low.to_be_bytes()];
        return IpAddr::V4(Ipv4Addr::new(w, x, y, z));
    }
    address
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "it is of `this network`",
        [127, ..] => "it is a loopback address",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "it is a private address",
        [100, 64..=127, ..] => "it is a shared (carrier) address",
        [169, 254, ..] => "it is a link-local address, where clouds keep their metadata",
        [192, 0, 0, _] | [192, 88, 99, _] => "it is a protocol's address",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "it is a documentation address",
        [198, 18..=19, ..] => "it is a benchmarking address",
        [224..=239, ..] => "it is a multicast address",
        [240..=255, ..] => "it is a reserved address",
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = address.segments();
    Some(match (a, b) {
        _ if address.is_unspecified() => "it is the unspecified address",
        _ if address.is_loopback() => "it is a loopback address",
        (0xfc00..=0xfdff, _) => "it is a private (unique local) address",
        (0xfe80..=0xfebf, _) => "it is a link-local address",
        (0xfec0..=0xfeff, _) => "it is a site-local address",
        (0xff00..=0xffff, _) => "it is a multicast address",
        (0x2001, 0x0000..=0x01ff) => "it is a protocol's or a tunnel's address",
        (0x2001, 0x0db8) | (0x3fff, 0x0000..=0x0fff) => "it is a documentation address",
        (0x2002, _) => "it is a 6to4 tunnel's address",
        (0x2000..=0x3fff, _) => return None,
        _ => "it is not a global unicast address",
    })
}

#[cfg(test)]
mod tests {
    use super::special;

    #[test]
    fn only_globally_routable_addresses_are_ordinary() {
        let inside = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ];
        for address in inside {
            assert!(special(address.parse().unwrap()).is_some(), "{address}");
        }
        let outside = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00::1",
        ];
        for address in outside {
            assert_eq!(special(address.parse().unwrap()), None, "{address}");
        }
    }
}
