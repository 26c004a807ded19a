//! Global identifiers of RDMA ports in NCCL's messages, and whether two of them are in one subnet.

use std::net::Ipv6Addr;

/// Bits of a subnet of a RoCE rail, as NCCL assumes by default (`NCCL_IB_SUBNET_PREFIX_LEN`).
const IPV4_PREFIX: u32 = 24;

/// Local and remote GID of a message; None unless it has both.
pub fn pair(text: &str) -> Option<(Ipv6Addr, Ipv6Addr)> {
    // `local GID index 3` comes before `local GID ::ffff:…`: the first word that is an address counts.
    let after = |keys: [&str; 2]| {
        keys.iter().find_map(|key| {
            text.match_indices(key).find_map(|(at, _)| {
                let rest = text.get(at + key.len()..)?;
                rest.trim_start().split([',', ' ', ')']).next()?.parse::<Ipv6Addr>().ok()
            })
        })
    };
    Some((after(["local GID ", "localGid "])?, after(["remote GID ", "remoteGids"])?))
}

/// Whether the two are in different subnets. Link-local GIDs do not show it.
pub fn apart(a: Ipv6Addr, b: Ipv6Addr) -> bool {
    match (a.to_ipv4_mapped(), b.to_ipv4_mapped()) {
        (Some(a), Some(b)) => u32::from(a) >> (32 - IPV4_PREFIX) != u32::from(b) >> (32 - IPV4_PREFIX),
        (None, None) => {
            let prefix = |g: Ipv6Addr| g.segments().into_iter().take(4).collect::<Vec<u16>>();
            let link_local = |g: Ipv6Addr| g.segments()[0] == 0xfe80;
            !link_local(a) && !link_local(b) && prefix(a) != prefix(b)
        }
        _ => true,
    }
}

/// In the usual notation.
pub fn shown(gid: Ipv6Addr) -> String {
    gid.to_ipv4_mapped().map_or_else(|| gid.to_string(), |v4| v4.to_string())
}

#[cfg(test)]
mod tests {
    use super::{apart, pair, shown};

    #[test]
    fn gids_are_read_from_both_forms() {
        let check = |text: &str, expected: Option<(&str, &str, bool)>| {
            let got = pair(text).map(|(a, b)| (shown(a), shown(b), apart(a, b)));
            assert_eq!(got, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c)), "{text}");
        };
        check(
            "dev mlx5_5:1, local GID index 3, local GID ::ffff:10.20.5.13, remote GID ::ffff:10.20.2.11",
            Some(("10.20.5.13", "10.20.2.11", true)),
        );
        check(
            "vendor err 129 (Send) localGid ::ffff:10.0.0.1 remoteGids ::ffff:10.0.0.2 hca mlx5_0",
            Some(("10.0.0.1", "10.0.0.2", false)),
        );
        // NCCL prints no blank here.
        check(
            "(Recv) localGid fd00:5:4::22 remoteGidsfd00:5:4::1f",
            Some(("fd00:5:4::22", "fd00:5:4::1f", false)),
        );
        check("localGid fe80::1 remoteGids fe80::2", Some(("fe80::1", "fe80::2", false)));
        check("local GID index 3 of no other", None);
    }
}
