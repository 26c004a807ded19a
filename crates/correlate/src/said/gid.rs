//! Global identifiers of RDMA ports, and whether two of them are in one subnet.

use std::net::Ipv6Addr;

/// Bits of a subnet of a RoCE rail, as NCCL assumes by default (`NCCL_IB_SUBNET_PREFIX_LEN`).
const IPV4_PREFIX: u32 = 24;

/// Whether the two are in different subnets. Link-local GIDs do not show it; nor do two families, of which one was chosen by a
/// wrong index.
pub fn apart(a: Ipv6Addr, b: Ipv6Addr) -> bool {
    match (a.to_ipv4_mapped(), b.to_ipv4_mapped()) {
        (Some(a), Some(b)) => u32::from(a) >> (32 - IPV4_PREFIX) != u32::from(b) >> (32 - IPV4_PREFIX),
        (None, None) => {
            let prefix = |g: Ipv6Addr| g.segments().into_iter().take(4).collect::<Vec<u16>>();
            let link_local = |g: Ipv6Addr| g.segments()[0] == 0xfe80;
            !link_local(a) && !link_local(b) && prefix(a) != prefix(b)
        }
        _ => false,
    }
}

/// In the usual notation.
pub fn shown(gid: Ipv6Addr) -> String {
    gid.to_ipv4_mapped().map_or_else(|| gid.to_string(), |v4| v4.to_string())
}

#[cfg(test)]
mod tests {
    use super::{apart, shown};

    #[test]
    fn subnets_of_gids() {
        for (a, b, is_apart) in [
            ("::ffff:10.20.5.13", "::ffff:10.20.2.11", true),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
            ("fd00:5:4::22", "fd00:5:4::1f", false),
            ("fe80::1", "fe80::2", false),
            ("fe80::4ebb:47ff:fe2c:91d3", "::ffff:10.0.0.1", false),
        ] {
            let pair = a.parse().ok().zip(b.parse().ok());
            assert_eq!(pair.map(|(a, b)| apart(a, b)), Some(is_apart), "{a} {b}");
        }
        assert_eq!("::ffff:10.20.5.13".parse().ok().map(shown).as_deref(), Some("10.20.5.13"));
    }
}
