//! TCP sockets as the kernel's own tables show them (`/proc/net/tcp`, `/proc/PID/net/tcp`): who listens, who is connected
//! to whom. Nothing is sent to anybody: a port of a job may be a store that takes any connection for a rank.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::sysfs::{names, text};
use crate::tcp;

/// Sockets of one table that are read.
const MAX_SOCKETS: usize = 262_144;

/// State of a socket, as far as it matters here (linux/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// 01.
    Established,
    /// 02: it has asked and was not answered.
    Asking,
    /// 0A.
    Listening,
    /// Any other.
    Other,
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// Own address and port.
    pub(crate) own: SocketAddr,
    /// The peer's; zeros if it listens.
    pub(crate) peer: SocketAddr,
    pub(crate) state: SocketState,
    /// By which a process has it open; 0 if none has.
    pub(crate) inode: u64,
}

impl Socket {
    /// A connection to this address that it listens for would reach it.
    pub(crate) fn listens_at(&self, addresses: &[IpAddr], port: u16) -> bool {
        let own = self.own.ip().to_canonical();
        self.state == SocketState::Listening
            && self.own.port() == port
            && (own.is_unspecified() || addresses.iter().any(|address| address.to_canonical() == own))
    }
}

/// All TCP sockets of a network namespace; `at` is /proc for that of this process, /proc/PID for that of another one.
pub(crate) fn all(at: &Path) -> Vec<Socket> {
    let mut sockets = Vec::new();
    for table in ["net/tcp", "net/tcp6"] {
        let text = text(&at.join(table)).unwrap_or_default();
        sockets.extend(text.lines().skip(1).take(MAX_SOCKETS).filter_map(line));
    }
    sockets
}

/// A line of such a table: `sl local remote state queues timer retransmits uid timeout inode …`.
pub(crate) fn line(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace().skip(1);
    let (own, peer) = (address(words.next()?)?, address(words.next()?)?);
    let state = match words.next()? {
        "01" => SocketState::Established,
        "02" => SocketState::Asking,
        "0A" => SocketState::Listening,
        _ => SocketState::Other,
    };
    let inode = words.nth(5)?.parse().ok()?;
    Some(Socket { own, peer, state, inode })
}

/// `0100007F:733C`: words of an address in the machine's byte order, and a port.
fn address(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.split_once(':')?;
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes())),
        32 => {
            // Four words, each in the machine's byte order.
            let mut bytes = [0_u8; 16];
            for (at, part) in bytes.chunks_mut(4).enumerate() {
                let word = u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?;
                part.copy_from_slice(&word.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Which of these processes hold which sockets: inode to pid, the first that has it.
pub(crate) fn holders(proc: &Path, pids: impl IntoIterator<Item = u32>) -> BTreeMap<u64, u32> {
    let mut holders = BTreeMap::new();
    for pid in pids {
        for inode in tcp::sockets(proc, pid) {
            holders.entry(u64::from(inode)).or_insert(pid);
        }
    }
    holders
}

/// Who holds these sockets, among all processes that may be looked into.
pub(crate) fn holders_of(proc: &Path, inodes: &BTreeSet<u64>) -> BTreeMap<u64, u32> {
    let mut pids: Vec<u32> = names(proc).iter().filter_map(|name| name.parse().ok()).collect();
    // A child inherits its parent's sockets: the parent, with the smaller number, is who opened it.
    pids.sort_unstable();
    let mut found = BTreeMap::new();
    for pid in pids {
        if found.len() == inodes.len() {
            break;
        }
        let held = tcp::sockets(proc, pid).into_iter().map(u64::from).filter(|inode| inodes.contains(inode));
        for inode in held {
            found.entry(inode).or_insert(pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn lines_of_both_families() {
        let v4 = line(
            "   0: 0100007F:733C 0200007F:0016 02 00000000:00000000 00:00000000 00000000     0        0 4242 1 0",
        )
        .unwrap();
        assert_eq!((v4.own, v4.peer), ("127.0.0.1:29500".parse().unwrap(), "127.0.0.2:22".parse().unwrap()));
        assert_eq!((v4.state, v4.inode), (SocketState::Asking, 4242));
        let v6 = "   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 \
                  00:00000000 00000000     0        0 99 1 0";
        let v6 = line(v6).unwrap();
        assert_eq!((v6.own, v6.state, v6.inode), ("[::1]:22".parse().unwrap(), SocketState::Listening, 99));
        assert!(v6.listens_at(&["::1".parse().unwrap()], 22));
        assert!(
            !v6.listens_at(&["::2".parse().unwrap()], 22) && !v6.listens_at(&["::1".parse().unwrap()], 23)
        );
        assert_eq!(line("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn who_listens_and_who_is_connected_on_this_machine() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let proc = Path::new("/proc");
        let all = all(proc);
        let listening = all.iter().find(|s| s.listens_at(&[at.ip()], at.port())).unwrap();
        let connected = all
            .iter()
            .find(|s| {
                s.state == SocketState::Established && s.own == stream.local_addr().unwrap() && s.peer == at
            })
            .unwrap();
        let own = std::process::id();
        let held = holders(proc, [own]);
        assert_eq!((held.get(&listening.inode), held.get(&connected.inode)), (Some(&own), Some(&own)));
        assert_eq!(holders_of(proc, &BTreeSet::from([listening.inode])).get(&listening.inode), Some(&own));
    }
}
