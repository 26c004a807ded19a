//! Network interfaces by their names.

/// Beginnings of the names of interfaces that lead nowhere beyond the host: bridges and pairs of containers and virtual
/// machines.
const OF_CONTAINERS: [&str; 8] = ["docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "podman"];

/// Whether an interface of this name is a bridge or link of containers or virtual machines.
pub fn is_of_containers(name: &str) -> bool {
    OF_CONTAINERS.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether an interface of this name, or of the name before a colon, leads nowhere beyond the host.
pub fn is_of_host(name: &str) -> bool {
    name.split(':').next() == Some("lo") || is_of_containers(name)
}

/// Whether it carries no traffic between nodes: one of the host alone, or a tunnel.
pub fn is_virtual(name: &str) -> bool {
    is_of_host(name) || name.starts_with("tun")
}

#[cfg(test)]
mod tests {
    use super::{is_of_host, is_virtual};

    #[test]
    fn names_of_interfaces() {
        for name in ["lo", "lo:1", "docker0", "br-1f2e", "cali0a"] {
            assert!(is_of_host(name) && is_virtual(name), "{name}");
        }
        for name in ["eth0", "lom0", "ib0", "bond0.2973"] {
            assert!(!is_of_host(name) && !is_virtual(name), "{name}");
        }
        assert!(is_virtual("tun0") && !is_of_host("tun0"));
    }
}
