//! Addresses as programs print them.

use std::net::Ipv4Addr;

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
    use super::{host, host_and_port, ipv4};

    #[test]
    fn forms() {
        for address in ["(node0, 29500)", "[node0]:29500", "node0:29500"] {
            assert_eq!(host_and_port(address), Some(("node0", 29_500)), "{address}");
        }
        assert_eq!(
            (host("[fe80::1]:29500"), host("node0"), host("")),
            (Some("fe80::1"), Some("node0"), None)
        );
        assert!(ipv4("connect to 10.0.0.1<44444> returned").is_some() && ipv4("n1<4>").is_none());
    }
}
