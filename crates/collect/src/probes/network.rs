//! Interfaces with their addresses and counters at two looks, routes, and who listens on TCP ports.
//!
//! Addresses come from the kernel by netlink; of a captured tree they are worked out from its tables, as far as those
//! tell.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_node::{Interface, Listener, Network, Route};

use crate::addresses;
use crate::request::{ReadingError, Request};
use crate::sockets;
use crate::sysfs::{link_name, names, number, text};

/// Interfaces that are read: a Kubernetes node has one for each pod.
const MAX_INTERFACES: usize = 512;
const MAX_ROUTES: usize = 4096;
const MAX_LISTENERS: usize = 4096;
/// Links under /proc/PID/fd that are read in search of listening sockets.
const MAX_FDS: usize = 300_000;
/// Time for that search, milliseconds.
const SEARCH_MS: u64 = 600;

/// Counters of /sys/class/net/X/statistics that tell of errors, and the packets they are measured against.
const COUNTERS: &[&str] = &[
    "rx_packets",
    "tx_packets",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_over_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_aborted_errors",
    "tx_heartbeat_errors",
];

pub(super) fn take(request: &Request) -> Result<Network, ReadingError> {
    let class = request.roots.sys.join("class/net");
    let proc = &request.roots.proc;
    let (mut interfaces, routes) = interfaces_and_routes(request);
    if interfaces.is_empty() {
        return Err(ReadingError::Failed(format!("{} has no interface", class.display())));
    }
    let first_look = Instant::now();
    for interface in &mut interfaces {
        let values = look(&class.join(&interface.name));
        interface.counters = values.into_iter().map(|(name, value)| (name, (value, None))).collect();
    }
    let mut notes = Vec::new();
    let listeners = listeners(proc, &mut notes);
    if request.window_ms > 0 {
        thread::sleep(Duration::from_millis(request.window_ms).saturating_sub(first_look.elapsed()));
        for interface in &mut interfaces {
            for (name, second) in look(&class.join(&interface.name)) {
                if let Some(values) = interface.counters.get_mut(&name) {
                    values.1 = Some(second);
                }
            }
            interface.window_ms = first_look.elapsed().as_millis() as u64;
        }
    }
    let namespace = namespace(&proc.join("self/ns/net"));
    Ok(Network { interfaces, routes, listeners, namespace, notes })
}

/// Interfaces with their addresses, without counters; and the routes.
pub(super) fn interfaces_and_routes(request: &Request) -> (Vec<Interface>, Vec<Route>) {
    let proc = &request.roots.proc;
    let mut routes = routes_v4(&text(&proc.join("net/route")).unwrap_or_default());
    routes.extend(routes_v6(&text(&proc.join("net/ipv6_route")).unwrap_or_default()));
    routes.truncate(MAX_ROUTES);
    let own = if proc == Path::new("/proc") { addresses::live() } else { None };
    let own = own.unwrap_or_else(|| addresses::recorded(proc, &routes));
    let mut interfaces = interfaces(&request.roots.sys.join("class/net"));
    for interface in &mut interfaces {
        interface.addresses = own
            .iter()
            .filter(|(at, _, _)| match at {
                addresses::At::Index(index) => *index == interface.index,
                addresses::At::Name(name) => *name == interface.name,
            })
            .map(|(_, address, prefix)| format!("{address}/{prefix}"))
            .collect();
    }
    (interfaces, routes)
}

/// Number of the namespace behind a link of /proc/PID/ns, `net:[4026531840]`.
pub(super) fn namespace(link: &Path) -> Option<u64> {
    let name = fs::read_link(link).ok()?;
    name.to_str()?.split_once('[')?.1.trim_end_matches(']').parse().ok()
}

/// All interfaces, without addresses and counters.
fn interfaces(class: &Path) -> Vec<Interface> {
    names(class)
        .into_iter()
        .filter_map(|name| {
            let folder = class.join(&name);
            // /sys/class/net also has files of its own (bonding_masters).
            let index = number(&folder.join("ifindex"))?;
            let flags = text(&folder.join("flags"))
                .and_then(|f| u32::from_str_radix(f.trim().trim_start_matches("0x"), 16).ok())
                .unwrap_or(0);
            let device = folder.join("device");
            Some(Interface {
                index,
                is_up: flags & 1 != 0,
                operstate: text(&folder.join("operstate")).unwrap_or_default(),
                is_loopback: flags & 8 != 0,
                is_physical: device.exists(),
                mtu: number(&folder.join("mtu")).unwrap_or(0),
                // -1 where it is not known, an error where the card is down.
                speed_mbps: number::<i64>(&folder.join("speed"))
                    .filter(|speed| *speed > 0)
                    .and_then(|s| s.try_into().ok()),
                pci: link_name(&device).filter(|name| name.matches(':').count() == 2),
                driver: link_name(&device.join("driver")),
                master: link_name(&folder.join("master")),
                carrier_changes: number(&folder.join("carrier_changes")),
                name,
                ..Interface::default()
            })
        })
        .take(MAX_INTERFACES)
        .collect()
}

fn look(interface: &Path) -> BTreeMap<String, u64> {
    let statistics = interface.join("statistics");
    let mut values: BTreeMap<String, u64> = COUNTERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), number(&statistics.join(name))?)))
        .collect();
    if let Some(changes) = number(&interface.join("carrier_changes")) {
        values.insert("carrier_changes".to_owned(), changes);
    }
    values
}

/// /proc/net/route: interface, destination, gateway, flags, references, use, metric, mask, in hexadecimal digits of
/// the machine's byte order.
fn routes_v4(table: &str) -> Vec<Route> {
    let address = |word: &str| Some(Ipv4Addr::from(u32::from_str_radix(word, 16).ok()?.to_ne_bytes()));
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [interface, to, via, flags, _, _, metric, mask, ..] = words.as_slice() else { return None };
            let flags = u32::from_str_radix(flags, 16).ok()?;
            // Up, and not one that rejects.
            if flags & 1 == 0 || flags & 0x200 != 0 {
                return None;
            }
            let (to, mask) = (address(to)?, address(mask)?);
            let prefix = u32::from(mask).leading_ones();
            Some(Route {
                to: if prefix == 0 { "default".to_owned() } else { format!("{to}/{prefix}") },
                via: address(via).filter(|via| !via.is_unspecified()).map(|via| via.to_string()),
                interface: (*interface).to_owned(),
                metric: metric.parse().unwrap_or(0),
            })
        })
        .collect()
}

/// /proc/net/ipv6_route: destination, prefix, source, prefix, next hop, metric, references, use, flags, interface.
fn routes_v6(table: &str) -> Vec<Route> {
    table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [to, prefix, _, _, via, metric, _, _, flags, interface] = words.as_slice() else {
                return None;
            };
            let address = |word: &str| u128::from_str_radix(word, 16).ok().map(Ipv6Addr::from);
            let flags = u32::from_str_radix(flags, 16).ok()?;
            let (to, prefix) = (address(to)?, u32::from_str_radix(prefix, 16).ok()?);
            // Up; not rejecting, not to ourselves; groups and loopback lead nowhere.
            let is_way = flags & 1 != 0 && flags & 0x200 == 0 && flags & 0x8000_0000 == 0;
            (is_way && !to.is_multicast() && *interface != "lo").then(|| Route {
                to: format!("{to}/{prefix}"),
                via: address(via).filter(|via| !via.is_unspecified()).map(|via| via.to_string()),
                interface: (*interface).to_owned(),
                metric: u32::from_str_radix(metric, 16).unwrap_or(0),
            })
        })
        .collect()
}

/// Sockets that listen, with the processes that hold them.
fn listeners(proc: &Path, notes: &mut Vec<String>) -> Vec<Listener> {
    let mut sockets: Vec<(IpAddr, u16, u64)> = Vec::new();
    for table in ["net/tcp", "net/tcp6"] {
        let text = text(&proc.join(table)).unwrap_or_default();
        sockets.extend(text.lines().skip(1).filter_map(listening).take(MAX_LISTENERS));
    }
    if sockets.is_empty() {
        return Vec::new();
    }
    let wanted: HashMap<u64, usize> =
        sockets.iter().enumerate().map(|(at, (_, _, inode))| (*inode, at)).collect();
    let mut holders: Vec<Option<u32>> = vec![None; sockets.len()];
    let started = Instant::now();
    let (mut n_fds, mut n_hidden, mut n_held) = (0, 0, 0);
    let mut pids: Vec<u32> = names(proc).iter().filter_map(|name| name.parse().ok()).collect();
    // A child inherits its parent's sockets: the parent, with the smaller number, is who opened it.
    pids.sort_unstable();
    for pid in pids {
        if n_held == sockets.len() {
            break;
        }
        if n_fds > MAX_FDS || started.elapsed() > Duration::from_millis(SEARCH_MS) {
            notes.push(format!("the search for listening processes stopped after {n_fds} open files"));
            break;
        }
        let folder = proc.join(pid.to_string()).join("fd");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                n_hidden += u32::from(error.kind() == std::io::ErrorKind::PermissionDenied);
                continue;
            }
        };
        for entry in entries.flatten() {
            n_fds += 1;
            let Some(inode) = socket_inode(&entry.path()) else { continue };
            if let Some(holder) = wanted.get(&inode).and_then(|at| holders.get_mut(*at))
                && holder.is_none()
            {
                *holder = Some(pid);
                n_held += 1;
            }
        }
    }
    if n_hidden > 0 && n_held < sockets.len() {
        notes.push(format!(
            "{n_hidden} processes of other users could not be inspected: the listener of {} ports is unknown",
            sockets.len() - n_held
        ));
    }
    let mut listeners: Vec<Listener> = sockets
        .iter()
        .zip(&holders)
        .map(|((address, port, _), pid)| Listener {
            address: address.to_string(),
            port: *port,
            pid: *pid,
            command: pid.and_then(|pid| text(&proc.join(pid.to_string()).join("comm"))),
        })
        .collect();
    listeners.sort_by(|a, b| (a.port, &a.address, a.pid).cmp(&(b.port, &b.address, b.pid)));
    listeners.dedup();
    listeners
}

/// The inode of a socket behind a link of /proc/PID/fd, `socket:[12345]`.
fn socket_inode(link: &Path) -> Option<u64> {
    let target = fs::read_link(link).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').parse().ok()
}

/// A line of /proc/net/tcp or tcp6 in state 0A (listen): address, port, inode.
fn listening(line: &str) -> Option<(IpAddr, u16, u64)> {
    let socket = sockets::line(line).filter(|socket| socket.state == sockets::SocketState::Listening)?;
    Some((socket.own.ip(), socket.own.port(), socket.inode))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;
    use crate::captured::put;
    use crate::request::Roots;

    fn captured(root: &Path) {
        put(
            root,
            &[
                ("sys/class/net/bonding_masters", "bond0\n"),
                ("sys/class/net/eth0/ifindex", "2\n"),
                ("sys/class/net/eth0/flags", "0x1003\n"),
                ("sys/class/net/eth0/operstate", "up\n"),
                ("sys/class/net/eth0/mtu", "9000\n"),
                ("sys/class/net/eth0/speed", "100000\n"),
                ("sys/class/net/eth0/carrier_changes", "2\n"),
                ("sys/class/net/eth0/device/vendor", "0x15b3\n"),
                ("sys/class/net/eth0/statistics/rx_errors", "7\n"),
                ("sys/class/net/eth0/statistics/rx_packets", "1000\n"),
                ("sys/class/net/lo/ifindex", "1\n"),
                ("sys/class/net/lo/flags", "0x9\n"),
                ("sys/class/net/lo/operstate", "unknown\n"),
                ("sys/class/net/lo/mtu", "65536\n"),
                ("sys/class/net/veth1/ifindex", "3\n"),
                ("sys/class/net/veth1/flags", "0x1002\n"),
                ("sys/class/net/veth1/operstate", "down\n"),
                ("sys/class/net/veth1/speed", "-1\n"),
                (
                    "proc/net/route",
                    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n",
                ),
                (
                    "proc/net/ipv6_route",
                    "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n\
                     ff000000000000000000000000000000 08 00000000000000000000000000000000 00 \
                     00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n",
                ),
                (
                    "proc/net/fib_trie",
                    "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n",
                ),
                ("proc/net/if_inet6", "fe80000000000000bacef6fffe123456 02 40 20 80     eth0\n"),
                (
                    "proc/net/tcp",
                    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 555 1\n   \
                     1: 0700000A:1F90 0800000A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 556 1\n",
                ),
                ("proc/4711/comm", "python3\n"),
                ("proc/4712/comm", "python3\n"),
            ],
        );
        for pid in ["4711", "4712"] {
            fs::create_dir_all(root.join("proc").join(pid).join("fd")).unwrap();
            std::os::unix::fs::symlink("socket:[555]", root.join("proc").join(pid).join("fd/3")).unwrap();
        }
    }

    #[test]
    fn interfaces_routes_and_listeners_of_a_captured_node() {
        let root = tempfile::tempdir().unwrap();
        captured(root.path());
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let net = take(&request).unwrap();
        let names: Vec<&str> = net.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth0", "lo", "veth1"]);
        let eth0 = net.interface("eth0").unwrap();
        assert!(eth0.is_up && eth0.is_physical && !eth0.is_loopback);
        assert_eq!((eth0.index, eth0.mtu, eth0.speed_mbps), (2, 9000, Some(100_000)));
        assert_eq!(eth0.addresses, ["10.0.0.7/24", "fe80::bace:f6ff:fe12:3456/64"]);
        assert_eq!(eth0.counters["rx_errors"], (7, None));
        assert_eq!(eth0.counters["carrier_changes"], (2, None));
        let veth = net.interface("veth1").unwrap();
        assert!(!veth.is_up && !veth.is_physical && veth.speed_mbps.is_none());
        assert!(net.interface("lo").unwrap().is_loopback);
        let routes: Vec<(&str, Option<&str>)> =
            net.routes.iter().map(|r| (r.to.as_str(), r.via.as_deref())).collect();
        assert_eq!(routes, [("default", Some("10.0.0.1")), ("10.0.0.0/24", None), ("2001:db8::/64", None)]);
        let [listener] = net.listeners.as_slice() else { panic!("{:?}", net.listeners) };
        assert_eq!((listener.address.as_str(), listener.port), ("0.0.0.0", 29_500));
        assert_eq!((listener.pid, listener.command.as_deref()), (Some(4711), Some("python3")));
    }

    #[test]
    fn this_machine_has_loopback_and_the_port_that_this_test_listens_on() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let net = take(&Request::default()).unwrap();
        let lo = net.interface("lo").unwrap();
        assert!(lo.addresses.contains(&"127.0.0.1/8".to_owned()), "{lo:?}");
        let port = listening.local_addr().unwrap().port();
        let mine = net.listeners.iter().find(|l| l.port == port && l.address == "127.0.0.1").unwrap();
        assert_eq!(mine.pid, Some(std::process::id()));
        assert!(net.namespace.is_some());
    }

    #[test]
    fn a_listener_of_ipv6_has_its_address() {
        let line = "   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A \
                    00000000:00000000 00:00000000 00000000     0        0 99 1";
        assert_eq!(listening(line), Some(("::1".parse().unwrap(), 22, 99)));
    }
}
