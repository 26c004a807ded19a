//! Addresses and names of hosts as programs print them.

use std::net::IpAddr;
use std::net::Ipv4Addr;

/// Names that mean the host itself on every host.
const LOOPBACK: &[&str] = &["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"];

fn ip(name: &str) -> Option<IpAddr> {
    name.split('%').next()?.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Whether a name or an address, without a port, means the host itself on every host: it identifies none.
pub fn is_loopback_name(name: &str) -> bool {
    LOOPBACK.contains(&name) || ip(name).is_some_and(|address| address.is_loopback())
}

/// A host's name up to its first dot; an address whole.
pub fn short_name(name: &str) -> &str {
    if ip(name).is_some() { name } else { name.split('.').next().unwrap_or(name) }
}

/// Whether two names are of one host: `node7` and `node7.cluster.example` are. Logs, schedulers and reports shorten names,
/// so domains say nothing. Addresses are compared whole.
pub fn same_host(one: &str, other: &str) -> bool {
    short_name(one).eq_ignore_ascii_case(short_name(other))
}

/// Host and port of `(node0, 29500)`, `[node0]:29500`, `node0:29500`.
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let inner = address.trim_matches(['(', ')']);
    let (host, port) = inner.rsplit_once([',', ':'])?;
    let host = host.trim().trim_matches(['[', ']']);
    (!host.is_empty()).then_some((host, port.trim().parse().ok()?))
}

/// The host alone; None if there is none.
pub fn host(address: &str) -> Option<&str> {
    let alone = address.trim_matches(['(', ')', '[', ']', ' ']);
    Some(host_and_port(address).map_or(alone, |(host, _)| host)).filter(|host| !host.is_empty())
}

/// The first IPv4 address of a text: `[10.0.0.1]:29500`, `connect to 10.0.0.1<44444> returned …`.
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut words = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    words.find_map(|w| w.trim_matches('.').parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{host, host_and_port, ipv4, is_loopback_name, same_host};

    #[test]
    fn forms() {
        for address in ["(node0, 29500)", "[node0]:29500", "node0:29500"] {
            assert_eq!(host_and_port(address), Some(("node0", 29_500)), "{address}");
        }
        assert_eq!(
            (host("[fe80::1]:29500"), host("node0"), host("")),
            (Some("fe80::1"), Some("node0"), None)
        );
        for name in ["localhost", "127.0.0.1", "127.0.0.53%lo", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "node0", "localhost7", "10.0.0.1", "0.0.0.0"] {
            assert!(!is_loopback_name(name), "{name}");
        }
        for (one, other, expected) in [
            ("node1", "node1.cluster", true),
            ("Node1.a", "node1.b", true),
            ("node1", "node10", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.10", false),
            ("10.0.0.1", "10", false),
        ] {
            assert_eq!(same_host(one, other), expected, "{one} {other}");
        }
        assert!(ipv4("connect to 10.0.0.1<44444> returned").is_some() && ipv4("n1<4>").is_none());
    }
}
