//! Names that are looked up, connections that are tried, and how large a packet gets through.
//!
//! The master that this node's ranks name is looked up, and its port is looked for in the kernel's tables: who listens
//! there, and which rank is connected to it. Nothing connects to it: a store of somebody's own may take any connection for
//! a rank, and end the job.
//!
//! Peers that the caller names are tried: TCP connections that are closed at once, and at most six UDP packets to an unused
//! port of a host that answered (as traceroute does), for each interface it is tried from. A connection is tried as the
//! kernel routes it, and again from the address of the interface that NCCL would take: an answer to that address proves
//! that the peers can reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_node::{Network, PortSeen, Reach, ReachFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::network;
use crate::request::{Peer, ReadingError, Request};
use crate::sockets::{self, Socket, SocketState};
use crate::sysfs::{names, text};

/// Deadline where the caller set none, milliseconds.
const DEADLINE_MS: u64 = 2_000;
/// What is kept of the deadline to hand the answer over, milliseconds.
const MARGIN_MS: u64 = 150;
/// Connections tried at once.
const MAX_AT_ONCE: usize = 128;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Names that are looked up.
const MAX_NAMES: usize = 512;
/// Processes whose environment is read.
const MAX_PROCESSES: usize = 65_536;
/// Pids kept of those that name one target.
const MAX_ASKERS: usize = 64;
const MAX_ENVIRON: u64 = 256 << 10;
/// Tried where no port is given: nearly every host answers or refuses there.
const ANY_PORT: u16 = 22;
/// First of traceroute's ports, where nothing listens.
const UNUSED_PORT: u16 = 33_434;
/// Longest wait for the report that nothing listens for a packet of the path test, milliseconds.
const PATH_MS: u64 = 120;
/// Smallest packet that every path of IPv4 carries.
const SMALL: u32 = 576;
/// Between two looks at a connection that is being made: far longer than any way there and back.
const ASKING: Duration = Duration::from_millis(400);
/// What a master's port is looked for by.
const MASTER: &str = "master-address";

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    purpose: String,
    host: String,
    port: Option<u16>,
    /// Interface whose address it is sent from.
    interface: Option<String>,
    /// From another network namespace than ours: cannot be tried from here.
    is_elsewhere: bool,
}

pub(super) fn take(request: &Request) -> Result<Vec<Reach>, ReadingError> {
    let started = Instant::now();
    let deadline_ms = if request.deadline_ms == 0 { DEADLINE_MS } else { request.deadline_ms };
    let until = started + Duration::from_millis(deadline_ms.saturating_sub(MARGIN_MS));
    let patience =
        Duration::from_millis(if request.connect_ms == 0 { Request::CONNECT_MS } else { request.connect_ms });
    let (interfaces, routes) = network::interfaces_and_routes(request);
    let net = Network { interfaces, routes, ..Network::default() };
    let wishes: Vec<(Wish, Vec<u32>)> = wishes(request, &net).into_iter().collect();
    if wishes.is_empty() {
        return Err(ReadingError::Absent("no peer was given, and no rank here names a master".to_owned()));
    }
    let hosts: BTreeSet<&str> =
        wishes.iter().filter(|(wish, _)| !wish.is_elsewhere).map(|(wish, _)| wish.host.as_str()).collect();
    // Half of the time at most: a name service that hangs must leave the addresses their chance.
    let lookup = patience.min(until.saturating_duration_since(started) / 2);
    let looked_up = look_up(&hosts, lookup);
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<(usize, Reach)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..wishes.len().min(MAX_AT_ONCE) {
            scope.spawn(|| {
                while let Some((at, (wish, asked_by))) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    wishes.get(at).map(|wish| (at, wish))
                } {
                    let mut reach = blank(wish, asked_by);
                    if let Some(addresses) =
                        resolved(wish, looked_up.get(wish.host.as_str()), &net, &mut reach)
                    {
                        if wish.purpose == MASTER {
                            look_for(wish, addresses, &request.roots.proc, until, &mut reach);
                        } else {
                            attempt(wish, addresses, &net, patience, until, &mut reach);
                        }
                    }
                    if let Ok(mut answers) = answers.lock() {
                        answers.push((at, reach));
                    }
                }
            });
        }
    });
    let mut answers =
        answers.into_inner().map_err(|_| ReadingError::Failed("a thread panicked".to_owned()))?;
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, reach)| reach).collect())
}

fn blank(wish: &Wish, asked_by: &[u32]) -> Reach {
    let target = match wish.port {
        Some(port) if wish.host.contains(':') => format!("[{}]:{port}", wish.host),
        Some(port) => format!("{}:{port}", wish.host),
        None => wish.host.clone(),
    };
    Reach {
        purpose: wish.purpose.clone(),
        target,
        host: wish.host.clone(),
        port: wish.port,
        interface: wish.interface.clone(),
        asked_by: asked_by.to_vec(),
        ..Reach::default()
    }
}

/// What to try, and which processes ask for it.
fn wishes(request: &Request, net: &Network) -> BTreeMap<Wish, Vec<u32>> {
    let mut wishes: BTreeMap<Wish, Vec<u32>> = BTreeMap::new();
    let mut chosen: BTreeSet<String> = BTreeSet::new();
    for rank in ranks(request) {
        let is_elsewhere = rank.is_elsewhere;
        let chosen_here = net
            .nccl_interfaces(rank.value("NCCL_SOCKET_IFNAME"), rank.value("NCCL_SOCKET_FAMILY"))
            .first()
            .filter(|interface| !interface.is_loopback && !is_elsewhere)
            .map(|interface| interface.name.clone());
        if let Some(host) = rank.value("MASTER_ADDR").map(str::trim).filter(|host| !host.is_empty()) {
            let port = rank.value("MASTER_PORT").and_then(|port| port.trim().parse().ok());
            let (purpose, host) = (MASTER.to_owned(), host.to_owned());
            let wish = Wish { purpose, host, port, is_elsewhere, interface: None };
            let asked_by = wishes.entry(wish).or_default();
            if asked_by.len() < MAX_ASKERS && asked_by.last() != Some(&rank.pid) {
                asked_by.push(rank.pid);
            }
        }
        chosen.extend(chosen_here);
    }
    for Peer { host, port, purpose, interface } in &request.peers {
        let mut add = |interface: Option<String>| {
            let purpose = if purpose.is_empty() { "peer" } else { purpose.as_str() }.to_owned();
            let wish = Wish { purpose, host: host.clone(), port: *port, interface, is_elsewhere: false };
            wishes.entry(wish).or_default();
        };
        add(interface.clone());
        if interface.is_none() {
            for interface in &chosen {
                add(Some(interface.clone()));
            }
        }
    }
    wishes
}

/// What a rank's environment says of the network, by allow-list.
struct RankVariables {
    pid: u32,
    variables: Vec<(&'static str, String)>,
    is_elsewhere: bool,
}

impl RankVariables {
    fn value(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }
}

const WANTED: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"];
const RANKS: [&str; 6] =
    ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID", "SLURM_PROCID"];

/// Processes that carry a rank, of those the caller means.
fn ranks(request: &Request) -> Vec<RankVariables> {
    let proc = &request.roots.proc;
    let own = network::namespace(&proc.join("self/ns/net"));
    let mut pids: Vec<u32> = names(proc).iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids.truncate(MAX_PROCESSES);
    if !request.target.pids.is_empty() {
        let parents: BTreeMap<u32, u32> = pids
            .iter()
            .filter_map(|pid| {
                let stat = text(&proc.join(pid.to_string()).join("stat"))?;
                // `pid (name) state ppid …`; the name may hold anything.
                let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
                Some((*pid, parent))
            })
            .collect();
        pids.retain(|pid| {
            let mut line = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied()).take(64);
            line.any(|pid| request.target.pids.contains(&pid))
        });
    }
    pids.into_iter()
        .filter_map(|pid| {
            let folder = proc.join(pid.to_string());
            let mut bytes = Vec::new();
            File::open(folder.join("environ")).ok()?.take(MAX_ENVIRON).read_to_end(&mut bytes).ok()?;
            let pairs = || {
                bytes
                    .split(|byte| *byte == 0)
                    .filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='))
            };
            let is_rank = pairs().any(|(name, _)| RANKS.contains(&name));
            let is_of_job = request.target.slurm_job.as_ref().is_none_or(|job| {
                pairs().any(|(name, value)| ["SLURM_JOB_ID", "SLURM_JOBID"].contains(&name) && value == job)
            });
            (is_rank && is_of_job).then(|| RankVariables {
                pid,
                variables: WANTED
                    .iter()
                    .filter_map(|wanted| {
                        let (_, value) = pairs().find(|(name, _)| name == wanted)?;
                        Some((*wanted, value.to_owned()))
                    })
                    .collect(),
                is_elsewhere: own.is_some_and(|own| {
                    network::namespace(&folder.join("ns/net")).is_some_and(|namespace| namespace != own)
                }),
            })
        })
        .collect()
}

/// What a name resolves to, and how long that took; or what the resolver said.
type LookedUp = Result<(Vec<IpAddr>, Duration), (String, ReachFailure)>;

/// Looks all names up at once, each by a thread of its own: the resolver cannot be interrupted. One that hangs is left
/// behind, and ends with the process.
fn look_up<'a>(hosts: &BTreeSet<&'a str>, limit: Duration) -> BTreeMap<&'a str, LookedUp> {
    let started = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let mut answers: BTreeMap<&str, LookedUp> = BTreeMap::new();
    let mut n_asked = 0;
    for host in hosts {
        if let Ok(address) = host.parse::<IpAddr>() {
            answers.insert(host, Ok((vec![address], Duration::ZERO)));
            continue;
        }
        let is_full = n_asked >= MAX_NAMES;
        let (sender, name) = (sender.clone(), (*host).to_owned());
        let asking = move || {
            let found = (name.as_str(), 0).to_socket_addrs().map(|found| {
                let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
                let mut seen = BTreeSet::new();
                addresses.retain(|address| seen.insert(*address));
                addresses
            });
            // Nobody may wait any more.
            let _ = sender.send((name, found, started.elapsed()));
        };
        if is_full || thread::Builder::new().stack_size(512 << 10).spawn(asking).is_err() {
            let why = format!("not looked up: more than {MAX_NAMES} names");
            answers.insert(host, Err((why, ReachFailure::NotTried)));
        } else {
            n_asked += 1;
        }
    }
    while n_asked > 0 {
        let Ok((name, found, took)) = receiver.recv_timeout(limit.saturating_sub(started.elapsed())) else {
            break;
        };
        n_asked -= 1;
        let Some(host) = hosts.get(name.as_str()) else { continue };
        let answer = match found {
            Ok(addresses) if !addresses.is_empty() => Ok((addresses, took)),
            Ok(_) => Err(("the name has no address".to_owned(), ReachFailure::Unresolved)),
            Err(error) => {
                let said = error.to_string();
                let said = said.rsplit(": ").next().unwrap_or(&said).to_owned();
                Err((format!("the name does not resolve: {said}"), ReachFailure::Unresolved))
            }
        };
        answers.insert(host, answer);
    }
    for host in hosts {
        answers.entry(host).or_insert_with(|| {
            let why = format!("the name service did not answer within {} ms", limit.as_millis());
            Err((why, ReachFailure::LookupTimedOut))
        });
    }
    answers
}

/// The addresses of a name; None, with the reason, if there are none.
fn resolved<'l>(
    wish: &Wish,
    looked_up: Option<&'l LookedUp>,
    net: &Network,
    reach: &mut Reach,
) -> Option<&'l [IpAddr]> {
    let addresses = match looked_up {
        _ if wish.is_elsewhere => None,
        Some(Ok((addresses, took))) => {
            reach.resolved_ms = Some(took.as_secs_f64() * 1e3);
            Some(addresses)
        }
        Some(Err((why, kind))) => {
            fail(reach, why.clone(), *kind);
            return None;
        }
        None => None,
    };
    let Some(addresses) = addresses else {
        let why = "the process that names it is in another network namespace (a container)".to_owned();
        fail(reach, why, ReachFailure::NotTried);
        return None;
    };
    reach.addresses = addresses.iter().map(ToString::to_string).collect();
    reach.is_local =
        addresses.iter().any(|address| address.is_loopback() || net.owner_of(*address).is_some());
    Some(addresses)
}

/// What the kernel shows of a master's port: who listens, where it is of this node, and which of the ranks that name it
/// are connected to it. Nothing is sent there.
fn look_for(wish: &Wish, addresses: &[IpAddr], proc: &Path, until: Instant, reach: &mut Reach) {
    let ways: Vec<Option<Errno>> = addresses.iter().map(|address| no_route(*address)).collect();
    if let (Some(Some(error)), true) = (ways.first(), ways.iter().all(Option::is_some)) {
        return fail(reach, format!("no route to {}: {error}", wish.host), ReachFailure::NoRoute);
    }
    let Some(port) = wish.port else {
        let why = "no rank that names it also names its port".to_owned();
        return fail(reach, why, ReachFailure::NotTried);
    };
    let sockets = sockets::all(proc);
    if reach.is_local && sockets.iter().any(|socket| socket.listens_at(addresses, port)) {
        reach.seen = Some(PortSeen::Listening);
        return;
    }
    let held = sockets::holders(proc, reach.asked_by.iter().copied());
    let leads_there = |socket: &&Socket| {
        let peer = (socket.peer.ip().to_canonical(), socket.peer.port());
        held.contains_key(&socket.inode)
            && addresses.iter().any(|address| (address.to_canonical(), port) == peer)
    };
    let mut theirs = sockets.iter().filter(leads_there);
    if let Some(socket) = theirs.clone().find(|socket| socket.state == SocketState::Established) {
        reach.seen = Some(PortSeen::Connected);
        reach.from = Some(socket.own.ip().to_canonical().to_string());
        return;
    }
    if let Some(asking) = theirs.find(|socket| socket.state == SocketState::Asking) {
        thread::sleep(ASKING.min(until.saturating_duration_since(Instant::now())));
        let still = |socket: &Socket| socket.state == SocketState::Asking && socket.own == asking.own;
        if sockets::all(proc).iter().any(still) {
            let pid = held.get(&asking.inode).copied().unwrap_or_default();
            let why = format!(
                "pid {pid} connects to {} and has no answer yet: it would have timed out by now",
                asking.peer
            );
            return fail(reach, why, ReachFailure::TimedOut);
        }
    }
    if reach.is_local {
        reach.is_refused = true;
        return;
    }
    let why = "no rank of this node is connected to it, and a job's port is not probed (--peer probes it)";
    fail(reach, why.to_owned(), ReachFailure::NotTried);
}

/// Why the kernel knows no way to an address; None if it does. A UDP socket is given its peer, and nothing is sent.
fn no_route(to: IpAddr) -> Option<Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    match connect(&socket, &SocketAddr::new(to, UNUSED_PORT)) {
        Err(error @ (Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN)) => Some(error),
        _ => None,
    }
}

fn attempt(
    wish: &Wish,
    addresses: &[IpAddr],
    net: &Network,
    patience: Duration,
    until: Instant,
    reach: &mut Reach,
) {
    if wish.interface.is_some() && reach.is_local {
        // The kernel answers itself, on any interface.
        return fail(
            reach,
            "the target is this node: that proves nothing about the interface".to_owned(),
            ReachFailure::NotTried,
        );
    }
    let port = wish.port.unwrap_or(ANY_PORT);
    for (at, address) in addresses.iter().take(MAX_ADDRESSES).enumerate() {
        let from = match &wish.interface {
            None => None,
            Some(name) => {
                let same_family = |own: &IpAddr| own.is_ipv4() == address.is_ipv4();
                let own = net.interface(name).and_then(|own| own.usable_addresses().find(same_family));
                if own.is_none() {
                    let why = format!("{name} has no address of the same family as {address}");
                    fail(reach, why, ReachFailure::Other);
                    continue;
                }
                own
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(20) {
            if at == 0 {
                fail(reach, "no time was left to try it".to_owned(), ReachFailure::NotTried);
            }
            return;
        }
        let started = Instant::now();
        // The last address may use up what is left.
        let n_left = (addresses.len().min(MAX_ADDRESSES) - at) as u32;
        let limit = patience.min(left) / n_left;
        match connected(SocketAddr::new(*address, port), from, limit) {
            Ok(local) => {
                reach.answered_ms = Some(started.elapsed().as_secs_f64() * 1e3);
                reach.from = local.map(|local| local.to_string());
            }
            Err(Errno::CONNREFUSED | Errno::CONNRESET) => {
                reach.answered_ms = Some(started.elapsed().as_secs_f64() * 1e3);
                reach.is_refused = true;
                reach.from = from.map(|from| from.to_string());
            }
            Err(Errno::TIMEDOUT) => {
                fail(
                    reach,
                    format!("no answer from {address} within {} ms", limit.as_millis()),
                    ReachFailure::TimedOut,
                );
                continue;
            }
            Err(error @ (Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN)) => {
                fail(reach, format!("no route to {address}: {error}"), ReachFailure::NoRoute);
                continue;
            }
            Err(error) => {
                fail(reach, format!("connect to {address}: {error}"), ReachFailure::Other);
                continue;
            }
        }
        reach.failure = None;
        reach.failure_kind = None;
        if !reach.is_local
            && let Ok((path_mtu, large_vanish)) = path_mtu(*address, from, until)
        {
            reach.path_mtu = path_mtu;
            reach.large_vanish = large_vanish;
        }
        return;
    }
}

fn fail(reach: &mut Reach, why: String, kind: ReachFailure) {
    reach.failure = Some(why);
    reach.failure_kind = Some(kind);
}

fn milliseconds(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Connects and hangs up; the address the kernel sent from.
fn connected(to: SocketAddr, from: Option<IpAddr>, limit: Duration) -> Result<Option<IpAddr>, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
            if poll(&mut waiting, Some(&milliseconds(limit)))? == 0 {
                return Err(Errno::TIMEDOUT);
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from(socket).local_addr().ok().map(|address| address.ip()))
}

/// What became of one packet.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    /// The host says that nothing listens: the packet arrived whole.
    Arrived,
    /// The kernel or a router says that it is too large.
    TooLarge,
    /// Nothing came back.
    Silence,
}

/// Largest packet that gets through to a host, and whether larger ones vanish without a word, as they do where a switch
/// or the host itself takes no jumbo frames. None where the host says nothing (a firewall).
fn path_mtu(to: IpAddr, from: Option<IpAddr>, until: Instant) -> std::io::Result<(Option<u32>, bool)> {
    let any: IpAddr = if to.is_ipv4() { [0_u8; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((from.unwrap_or(any), 0))?;
    let known = || if to.is_ipv4() { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
    let header: u32 = if to.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DO)?;
        28
    } else {
        sockopt::set_ipv6_mtu_discover(&socket, sockopt::Ipv6PathMtuDiscovery::DO)?;
        48
    };
    socket.connect((to, UNUSED_PORT))?;
    let send = |size: u32| -> std::io::Result<Sent> {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(PATH_MS));
        if left.is_zero() {
            return Err(Errno::TIMEDOUT.into());
        }
        socket.set_read_timeout(Some(left))?;
        let outcome = socket
            .send(&vec![0; size.saturating_sub(header) as usize])
            .and_then(|_| socket.recv(&mut [0; 16]));
        // Also an answer: a process listens there.
        let Err(error) = outcome else { return Ok(Sent::Arrived) };
        match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => Ok(Sent::Arrived),
            Some(Errno::MSGSIZE) => Ok(Sent::TooLarge),
            Some(Errno::AGAIN) => Ok(Sent::Silence),
            _ => Err(error),
        }
    };
    let first = known()?;
    let mut size = first;
    for _ in 0..3 {
        match send(size)? {
            Sent::Arrived => return Ok((Some(size), false)),
            Sent::TooLarge => {
                let smaller = known()?;
                if smaller >= size {
                    return Ok((None, false));
                }
                size = smaller;
            }
            Sent::Silence => break,
        }
    }
    let whole = size;
    // A host that answers none of these, or is slow to, says nothing of the large ones.
    let least = if to.is_ipv4() { SMALL } else { 1_280 };
    if whole <= least || send(least)? != Sent::Arrived {
        return Ok(((whole < first).then_some(whole), false));
    }
    // Once more: one lost packet is no rule.
    if send(whole)? == Sent::Arrived {
        return Ok((Some(whole), false));
    }
    let ethernet = 1_500;
    let passed = if whole > ethernet && send(ethernet)? == Sent::Arrived { ethernet } else { least };
    Ok((Some(passed), true))
}
