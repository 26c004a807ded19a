//! RDMA devices as /sys/class/infiniband shows them: state of ports, identifiers, counters at two looks.
//!
//! The active MTU of a port is not in sysfs; over Ethernet it follows from that of the interface.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_node::{Gid, RdmaPort};

use crate::request::{ReadingError, Request};
use crate::sysfs::{link_name, names, number, text};

/// Ports that are read: eight cards of two ports, with a hundred virtual functions, fit.
const MAX_PORTS: usize = 256;
/// Entries of one table of identifiers that are looked at; mlx5 has 256, nearly all empty.
const MAX_GIDS: usize = 1024;
/// An entry that is not set.
const EMPTY_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

pub(super) fn take(request: &Request) -> Result<Vec<RdmaPort>, ReadingError> {
    let class = request.roots.sys.join("class/infiniband");
    let devices = names(&class);
    if devices.is_empty() {
        return Err(ReadingError::Absent("no RDMA device".to_owned()));
    }
    let mut found = Vec::new();
    for device in devices {
        let folder = class.join(&device);
        for port in names(&folder.join("ports")) {
            let Ok(port) = port.parse() else { continue };
            if found.len() < MAX_PORTS {
                found.push(read(&folder, &device, port));
            }
        }
    }
    if found.is_empty() {
        return Err(ReadingError::Failed(format!("{}: devices without any port", class.display())));
    }
    let first_look = Instant::now();
    let folder = |port: &RdmaPort| class.join(&port.device).join("ports").join(port.port.to_string());
    for port in &mut found {
        port.counters = look(&folder(port)).into_iter().map(|(name, value)| (name, (value, None))).collect();
    }
    if request.window_ms > 0 {
        thread::sleep(Duration::from_millis(request.window_ms));
        for port in &mut found {
            for (name, second) in look(&folder(port)) {
                if let Some(values) = port.counters.get_mut(&name) {
                    values.1 = Some(second);
                }
            }
            port.window_ms = first_look.elapsed().as_millis() as u64;
        }
    }
    Ok(found)
}

fn read(device_folder: &Path, device: &str, port: u32) -> RdmaPort {
    let folder = device_folder.join("ports").join(port.to_string());
    let of_device = |name: &str| text(&device_folder.join(name)).unwrap_or_default().trim().to_owned();
    let of_port = |name: &str| text(&folder.join(name)).unwrap_or_default().trim().to_owned();
    // `4: ACTIVE`, `5: LinkUp`
    let word = |name: &str| {
        let value = of_port(name);
        value.split_once(": ").map_or(value.clone(), |(_, word)| word.to_owned())
    };
    let rate = of_port("rate");
    let pci = device_folder.join("device");
    let link = |name: &str| text(&pci.join(name))?.split_whitespace().next()?.parse().ok();
    let netdevs = names(&pci.join("net"));
    let gids = gids(&folder);
    let netdev = gids
        .iter()
        .find_map(|gid| gid.netdev.clone())
        // With several ports per card, each interface reports its own port number, counted from 0.
        .or_else(|| {
            let is_mine = |name: &&String| {
                number::<u32>(&pci.join("net").join(name).join("dev_port")).is_none_or(|n| n + 1 == port)
            };
            if netdevs.len() > 1 { netdevs.iter().find(is_mine).cloned() } else { netdevs.first().cloned() }
        });
    RdmaPort {
        device: device.to_owned(),
        port,
        state: word("state"),
        phys_state: word("phys_state"),
        // `100 Gb/sec (4X EDR)`
        rate_gbps: rate.split_whitespace().next().and_then(|number| number.parse().ok()),
        rate_text: rate
            .split_once('(')
            .map(|(_, rest)| rest.trim_end_matches(')').to_owned())
            .unwrap_or_default(),
        link_layer: of_port("link_layer"),
        lid: hex(&of_port("lid")),
        sm_lid: hex(&of_port("sm_lid")),
        firmware: of_device("fw_ver"),
        board: of_device("board_id"),
        model: of_device("hca_type"),
        pci: link_name(&pci),
        netdev,
        pcie_gt_s: link("current_link_speed"),
        pcie_gt_s_max: link("max_link_speed"),
        pcie_width: number(&pci.join("current_link_width")),
        pcie_width_max: number(&pci.join("max_link_width")),
        is_virtual: pci.join("physfn").exists(),
        gids,
        ..RdmaPort::default()
    }
}

/// `0x1a`.
fn hex(word: &str) -> Option<u32> {
    u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Entries that are set. The type of an entry that is not cannot even be read (EINVAL).
fn gids(port: &Path) -> Vec<Gid> {
    let mut gids: Vec<Gid> = names(&port.join("gids"))
        .into_iter()
        .take(MAX_GIDS)
        .filter_map(|name| {
            let gid = text(&port.join("gids").join(&name))?.trim().to_owned();
            let attribute = |kind: &str| text(&port.join("gid_attrs").join(kind).join(&name));
            (gid != EMPTY_GID && gid != "fe80:0000:0000:0000:0000:0000:0000:0000" && !gid.is_empty()).then(
                || Gid {
                    index: name.parse().unwrap_or(u32::MAX),
                    gid,
                    kind: attribute("types").unwrap_or_default().trim().to_owned(),
                    netdev: attribute("ndevs")
                        .map(|name| name.trim().to_owned())
                        .filter(|name| !name.is_empty()),
                },
            )
        })
        .collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

/// All counters of a port now.
fn look(port: &Path) -> BTreeMap<String, u64> {
    ["counters", "hw_counters"]
        .iter()
        .flat_map(|folder| {
            let folder = port.join(folder);
            names(&folder).into_iter().map(move |name| (folder.join(&name), name))
        })
        // How long the driver may keep a value, milliseconds; no counter.
        .filter(|(_, name)| name != "lifespan")
        .filter_map(|(path, name)| Some((name, number(&path)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;
    use crate::captured::put;
    use crate::request::Roots;

    /// What mlx5 shows of a ConnectX-6 Dx over Ethernet, cut to what is read.
    fn roce(root: &Path) {
        let pci = "sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0";
        put(
            &root.join(pci),
            &[
                ("current_link_speed", "16.0 GT/s PCIe"),
                ("max_link_speed", "16.0 GT/s PCIe"),
                ("current_link_width", "8"),
                ("max_link_width", "16"),
                ("net/ens1f0np0/dev_port", "0"),
                ("infiniband/mlx5_0/fw_ver", "22.36.1010"),
                ("infiniband/mlx5_0/board_id", "MT_0000000436"),
                ("infiniband/mlx5_0/hca_type", "MT4125"),
                ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
                ("infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp"),
                ("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
                ("infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
                ("infiniband/mlx5_0/ports/1/lid", "0x0"),
                ("infiniband/mlx5_0/ports/1/sm_lid", "0x0"),
                ("infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:bace:f6ff:fe12:3456"),
                ("infiniband/mlx5_0/ports/1/gids/1", "fe80:0000:0000:0000:bace:f6ff:fe12:3456"),
                ("infiniband/mlx5_0/ports/1/gids/10", EMPTY_GID),
                ("infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0007"),
                ("infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"),
                ("infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2"),
                ("infiniband/mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2"),
                ("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens1f0np0"),
                ("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "ens1f0np0"),
                ("infiniband/mlx5_0/ports/1/counters/symbol_error", "12"),
                ("infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err", "3"),
                ("infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10"),
            ],
        );
        let class = root.join("sys/class/infiniband");
        fs::create_dir_all(&class).unwrap();
        let device = root.join(pci).join("infiniband/mlx5_0");
        std::os::unix::fs::symlink(&device, class.join("mlx5_0")).unwrap();
        std::os::unix::fs::symlink(root.join(pci), device.join("device")).unwrap();
    }

    #[test]
    fn a_port_is_read_with_its_identifiers_and_the_card_behind_it() {
        let root = tempfile::tempdir().unwrap();
        roce(root.path());
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let ports = take(&request).unwrap();
        let [port] = ports.as_slice() else { panic!("{ports:?}") };
        assert_eq!((port.device.as_str(), port.port, port.state.as_str()), ("mlx5_0", 1, "ACTIVE"));
        assert_eq!((port.rate_gbps, port.rate_text.as_str()), (Some(100.0), "4X EDR"));
        assert_eq!((port.phys_state.as_str(), port.sm_lid), ("LinkUp", Some(0)));
        assert_eq!((port.pci.as_deref(), port.netdev.as_deref()), (Some("0000:17:00.0"), Some("ens1f0np0")));
        assert_eq!((port.pcie_gt_s, port.pcie_width, port.pcie_width_max), (Some(16.0), Some(8), Some(16)));
        let gids: Vec<(u32, &str)> = port.gids.iter().map(|g| (g.index, g.kind.as_str())).collect();
        assert_eq!(gids, [(0, "IB/RoCE v1"), (1, "RoCE v2"), (3, "RoCE v2")]);
        let names: Vec<&str> = port.counters.keys().map(String::as_str).collect();
        assert_eq!(names, ["local_ack_timeout_err", "symbol_error"]);
        assert_eq!(port.counters["symbol_error"], (12, None), "one look was asked for");
    }

    #[test]
    fn a_counter_that_grows_between_two_looks_shows_both_values() {
        let root = tempfile::tempdir().unwrap();
        roce(root.path());
        let request = Request { roots: Roots::under(root.path()), window_ms: 400, ..Request::default() };
        let counter = root.path().join(
            "sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/infiniband/mlx5_0/ports/1/counters/symbol_error",
        );
        let ports = thread::scope(|scope| {
            let taking = scope.spawn(|| take(&request).unwrap());
            thread::sleep(Duration::from_millis(150));
            fs::write(&counter, "40\n").unwrap();
            taking.join().unwrap()
        });
        assert_eq!(ports[0].counters["symbol_error"], (12, Some(40)));
        assert_eq!(ports[0].counters["local_ack_timeout_err"], (3, Some(3)));
        assert!(ports[0].window_ms >= 400);
    }

    #[test]
    fn a_node_without_rdma_says_so() {
        let root = tempfile::tempdir().unwrap();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        assert_eq!(take(&request), Err(ReadingError::Absent("no RDMA device".to_owned())));
    }
}
