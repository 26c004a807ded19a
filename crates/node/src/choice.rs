//! Which interfaces and ports a list of NCCL's selects, and which route a packet takes: as in NVIDIA/nccl
//! src/misc/socket.cc, src/misc/utils.cc and src/os/linux.cc (2.30), and as the kernel routes.

use std::net::IpAddr;

use crate::net::{Interface, Network, RdmaPort, Route};

/// A list as NCCL parses it: a leading `^` excludes, `=` makes names exact; otherwise a name is a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    /// The named ones are excluded.
    pub is_exclusion: bool,
    /// Names must match completely.
    pub is_exact: bool,
    /// Names, each with its port if it has one.
    pub names: Vec<(String, Option<u32>)>,
}

impl NameList {
    /// Parses a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA.
    pub fn new(value: &str) -> Self {
        let (is_exclusion, value) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
        let (is_exact, value) = value.strip_prefix('=').map_or((false, value), |rest| (true, rest));
        let names = value
            .split(',')
            .filter_map(|entry| {
                // name[:port[:rail[:plane]]]
                let mut parts = entry.split(':');
                let name = parts.next().filter(|name| !name.is_empty())?;
                Some((name.to_owned(), parts.next().and_then(|port| port.parse().ok())))
            })
            .collect();
        Self { is_exclusion, is_exact, names }
    }

    /// Whether an entry matches this name and port.
    pub fn means(&self, entry: &(String, Option<u32>), name: &str, port: Option<u32>) -> bool {
        let is_name = if self.is_exact { name == entry.0 } else { name.starts_with(&entry.0) };
        is_name && (port.is_none() || entry.1.is_none() || port == entry.1)
    }

    /// Whether NCCL accepts this name and port. An empty list accepts everything.
    pub fn takes(&self, name: &str, port: Option<u32>) -> bool {
        let is_named = self.names.is_empty() || self.names.iter().any(|entry| self.means(entry, name, port));
        is_named != self.is_exclusion
    }
}

impl RdmaPort {
    /// Device and port, `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }

    /// Whether the port runs over Ethernet.
    pub fn is_roce(&self) -> bool {
        self.link_layer == "Ethernet"
    }
}

impl Interface {
    /// Whether it is up with a carrier, as far as the kernel reports it (IFF_RUNNING): programs skip one that is not.
    pub fn is_running(&self) -> bool {
        self.is_up && matches!(self.operstate.as_str(), "up" | "unknown")
    }

    /// Its addresses without prefix lengths, except loopback's IPv6 address, which NCCL skips.
    pub fn usable_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses
            .iter()
            .filter_map(|address| address.split('/').next()?.parse::<IpAddr>().ok())
            .filter(|address| !(address.is_ipv6() && address.is_loopback()))
    }
}

impl Network {
    /// The interface with this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The interface that has this address.
    pub fn owner_of(&self, address: IpAddr) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| {
            interface
                .addresses
                .iter()
                .any(|own| own.split('/').next().and_then(|own| own.parse().ok()) == Some(address))
        })
    }

    /// The interfaces that an NCCL process would find, in its order; its bootstrap takes the first. `names`:
    /// NCCL_SOCKET_IFNAME; `family`: NCCL_SOCKET_FAMILY (`AF_INET`, `AF_INET6`).
    ///
    /// Without a list: names that begin with `ib`; else all but docker, lo and virbr; else docker; else lo; else virbr.
    /// The hint of NCCL_COMM_ID is ignored: torch's launchers do not set it.
    pub fn nccl_interfaces(&self, names: Option<&str>, family: Option<&str>) -> Vec<&Interface> {
        // NCCL ignores a value of one character.
        if let Some(names) = names.filter(|names| names.len() > 1) {
            return self.matching(&NameList::new(names), family);
        }
        ["ib", "^docker,lo,virbr", "docker", "lo", "virbr"]
            .iter()
            .map(|list| self.matching(&NameList::new(list), family))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// Running interfaces that match the list and have an address of the family, in the order of getifaddrs, IPv4
    /// first.
    fn matching(&self, list: &NameList, family: Option<&str>) -> Vec<&Interface> {
        let mut found: Vec<(bool, u32, &Interface)> = self
            .interfaces
            .iter()
            .filter(|interface| interface.is_running() && list.takes(&interface.name, None))
            .filter_map(|interface| {
                let v4 = interface.usable_addresses().any(|address| address.is_ipv4());
                let v6 = interface.usable_addresses().any(|address| address.is_ipv6());
                let fits = match family {
                    Some("AF_INET") => v4,
                    Some("AF_INET6") => v6,
                    _ => v4 || v6,
                };
                fits.then_some((!v4, interface.index, interface))
            })
            .collect();
        found.sort_by_key(|(is_v6_only, index, _)| (*is_v6_only, *index));
        found.into_iter().map(|(_, _, interface)| interface).collect()
    }

    /// The route of a packet to this address: longest prefix, then lowest metric.
    pub fn route_to(&self, address: IpAddr) -> Option<&Route> {
        self.routes
            .iter()
            .filter_map(|route| Some((route.prefix_for(address)?, route)))
            .max_by_key(|(prefix, route)| (*prefix, std::cmp::Reverse(route.metric)))
            .map(|(_, route)| route)
    }
}

impl Route {
    /// Length of its prefix if it leads to this address, else None.
    fn prefix_for(&self, address: IpAddr) -> Option<u32> {
        if self.to == "default" {
            return address.is_ipv4().then_some(0);
        }
        let (net, prefix) = self.to.split_once('/')?;
        let prefix: u32 = prefix.parse().ok()?;
        is_within(address, net.parse().ok()?, prefix).then_some(prefix)
    }
}

/// Whether the first `prefix` bits agree.
fn is_within(address: IpAddr, net: IpAddr, prefix: u32) -> bool {
    let (a, b, width) = match (address, net) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    prefix == 0 || (prefix <= width && (a ^ b) >> (width - prefix) == 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn interface(index: u32, name: &str, operstate: &str, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            is_up: operstate != "down",
            operstate: operstate.to_owned(),
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
            ..Interface::default()
        }
    }

    fn names(found: Vec<&Interface>) -> Vec<&str> {
        found.into_iter().map(|i| i.name.as_str()).collect()
    }

    #[test]
    fn nccl_looks_for_ib_then_for_others_then_for_docker_and_lo() {
        let mut net = Network {
            interfaces: vec![
                interface(1, "lo", "unknown", &["127.0.0.1/8", "::1/128"]),
                interface(2, "docker0", "up", &["172.17.0.1/16"]),
                interface(4, "eth1", "up", &["10.0.1.7/24"]),
                interface(3, "eth0", "up", &["10.0.0.7/24"]),
                interface(5, "eth2", "up", &["fe80::1/64"]),
                interface(6, "eth3", "down", &["10.0.3.7/24"]),
            ],
            ..Network::default()
        };
        assert_eq!(names(net.nccl_interfaces(None, None)), ["eth0", "eth1", "eth2"]);
        assert_eq!(names(net.nccl_interfaces(Some("e"), None)), ["eth0", "eth1", "eth2"], "one character");
        assert_eq!(names(net.nccl_interfaces(Some("eth1"), None)), ["eth1"]);
        assert_eq!(names(net.nccl_interfaces(Some("=eth"), None)), Vec::<&str>::new());
        assert_eq!(names(net.nccl_interfaces(Some("^eth,docker"), None)), ["lo"]);
        assert_eq!(names(net.nccl_interfaces(None, Some("AF_INET6"))), ["eth2"]);
        net.interfaces.push(interface(7, "ib0", "up", &["192.168.0.1/24"]));
        assert_eq!(names(net.nccl_interfaces(None, None)), ["ib0"]);
        net.interfaces.retain(|i| ["lo", "docker0"].contains(&i.name.as_str()));
        assert_eq!(names(net.nccl_interfaces(None, None)), ["docker0"]);
    }

    #[test]
    fn a_list_of_devices_has_prefixes_ports_and_exclusions() {
        assert!(NameList::new("mlx5_1").takes("mlx5_10", Some(1)));
        assert!(!NameList::new("=mlx5_1").takes("mlx5_10", Some(1)));
        assert!(!NameList::new("mlx5_0:2").takes("mlx5_0", Some(1)));
        assert!(NameList::new("mlx5_0:1:0:1,mlx5_3").takes("mlx5_0", Some(1)));
        assert!(NameList::new("^=mlx5_1").takes("mlx5_0", Some(1)));
        assert!(!NameList::new("^mlx5_1,mlx5_2").takes("mlx5_2", Some(1)));
        assert!(NameList::new("").takes("mlx5_2", Some(1)));
    }

    #[test]
    fn the_longest_prefix_wins() {
        let route = |to: &str, interface: &str, metric| Route {
            to: to.to_owned(),
            interface: interface.to_owned(),
            metric,
            ..Route::default()
        };
        let net = Network {
            routes: vec![
                route("default", "eth1", 200),
                route("default", "eth0", 100),
                route("10.0.0.0/8", "eth2", 0),
                route("10.1.0.0/16", "eth3", 0),
                route("::/0", "eth4", 0),
            ],
            ..Network::default()
        };
        let by = |address: &str| net.route_to(address.parse().unwrap()).map(|r| r.interface.as_str());
        assert_eq!(by("192.0.2.1"), Some("eth0"));
        assert_eq!(by("10.2.3.4"), Some("eth2"));
        assert_eq!(by("10.1.3.4"), Some("eth3"));
        assert_eq!(by("2001:db8::1"), Some("eth4"));
    }
}
