//! What TCP itself counts of a process's connections, asked of the kernel by netlink (sock_diag(7)): for how long each had
//! data to send, how much of that the receiver held up, and what was acknowledged. Nothing of the process is touched.
//!
//! The kernel keeps these counts since 4.10 (`tcpi_busy_time`, include/uapi/linux/tcp.h). A connection that is held up by
//! the way between two hosts is busy and not limited by its receiver.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;
use std::{io, thread};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::addresses::{u16_at, u32_at};
use crate::sysfs::names;

/// linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const INET_DIAG_INFO: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// linux/tcp_states.h; as a bit.
const ESTABLISHED: u32 = 1 << 1;
/// Bytes of `inet_diag_msg`.
const HEAD: usize = 72;
/// Places in `tcp_info`.
const BYTES_ACKED: usize = 120;
const BUSY_TIME: usize = 168;
const RWND_LIMITED: usize = 176;
/// The kernel answers at once, or not.
const PATIENCE: Duration = Duration::from_millis(300);
/// Answers that are read: each holds up to 32 KiB, about a hundred connections.
const MAX_ANSWERS: usize = 1024;
/// Open files of one process that are looked at.
const MAX_FILES: usize = 65_536;

/// An established connection, and its counts since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Own address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// By which its process has it open.
    pub inode: u32,
    /// The kernel's own number of it, never used twice.
    pub cookie: u64,
    /// Microseconds for which it had data that was not acknowledged.
    pub busy_us: u64,
    /// Of these, those for which the receiver had no room.
    pub receiver_us: u64,
    /// Bytes that the peer has acknowledged.
    pub acked: u64,
}

/// A network namespace: by its number, and a process in it.
pub fn namespace(proc: &Path, pid: u32) -> Option<u64> {
    fs::metadata(proc.join(pid.to_string()).join("ns/net")).ok().map(|meta| meta.ino())
}

/// Established connections of the network namespace that this process is in.
///
/// # Errors
/// Those of the kernel: it may lack sock_diag, or not let us into that namespace.
pub fn connections(proc: &Path, pid: u32) -> io::Result<Vec<Connection>> {
    let socket = if namespace(proc, pid) == namespace(proc, std::process::id()) {
        ask_socket()?
    } else {
        // A socket belongs to the namespace it was made in. The namespace is that of one thread, which ends at once.
        let file = File::open(proc.join(pid.to_string()).join("ns/net"))?;
        let there = thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            ask_socket()
        });
        there.join().map_err(|_| io::Error::other("a thread ended"))??
    };
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        ask(&socket, family, &mut found)?;
    }
    Ok(found)
}

/// Sockets that a process has open. Empty where that may not be read.
pub fn sockets(proc: &Path, pid: u32) -> BTreeSet<u32> {
    let folder = proc.join(pid.to_string()).join("fd");
    let inode = |name: &String| {
        let target = fs::read_link(folder.join(name)).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    names(&folder).iter().take(MAX_FILES).filter_map(inode).collect()
}

fn ask_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn ask(socket: &OwnedFd, family: u8, found: &mut Vec<Connection>) -> io::Result<()> {
    // nlmsghdr: length, type, flags, sequence, port; inet_diag_req_v2: family, protocol, extensions, states, and an
    // identity that a dump does not use.
    let mut request = Vec::with_capacity(HEAD);
    request.extend((HEAD as u32).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    request.extend(ESTABLISHED.to_ne_bytes());
    request.resize(HEAD, 0);
    sendto(socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0_u8; 64 << 10];
    for _ in 0..MAX_ANSWERS {
        let (n, _) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
        match answer.get(..n).and_then(|bytes| messages(bytes, found)) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => return Err(io::Error::other("no sock_diag")),
        }
    }
    Err(io::Error::other("more connections than the limit"))
}

/// Reads the messages of one answer; true once the last one came. None if the kernel answers with an error.
fn messages(mut bytes: &[u8], found: &mut Vec<Connection>) -> Option<bool> {
    while bytes.len() >= 16 {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        if kind == NLMSG_DONE {
            return Some(true);
        }
        let message = bytes.get(16..length).filter(|_| kind == SOCK_DIAG_BY_FAMILY)?;
        found.extend(connection(message));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

/// `inet_diag_msg` (family, state, timer, retransmits; ports; addresses; interface; cookie; times and queues; user; inode)
/// and its attributes. None without counts: an old kernel's.
fn connection(message: &[u8]) -> Option<Connection> {
    let family = *message.first()?;
    let mut attributes = message.get(HEAD..)?;
    let mut info = None;
    while attributes.len() >= 4 {
        let length = u16_at(attributes, 0)? as usize;
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == INET_DIAG_INFO {
            info = Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let info = info?;
    Some(Connection {
        from: ip(family, message.get(8..24)?)?,
        to: ip(family, message.get(24..40)?)?,
        inode: u32_at(message, 68)?,
        cookie: u64_at(message, 44)?,
        busy_us: u64_at(info, BUSY_TIME)?,
        receiver_us: u64_at(info, RWND_LIMITED)?,
        acked: u64_at(info, BYTES_ACKED)?,
    })
}

/// IPv4 within IPv6 is IPv4: the other end may have it so.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    if family == AF_INET {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into())
    } else {
        Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical())
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn a_connection_of_our_own() {
        let proc = Path::new("/proc");
        let pid = std::process::id();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let bytes = vec![7; 100_000];
        stream.write_all(&bytes).unwrap();
        peer.read_exact(&mut bytes.clone()).unwrap();
        // The last acknowledgement may be on its way.
        thread::sleep(Duration::from_millis(100));
        let found = match connections(proc, pid) {
            Ok(found) => found,
            // A kernel, or a sandbox, without it.
            Err(error) => return println!("SKIPPED: {error}"),
        };
        let own = sockets(proc, pid);
        let inode = |file: &TcpStream| {
            fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))).unwrap().ino()
                as u32
        };
        let of = |file: &TcpStream| found.iter().find(|c| c.inode == inode(file)).unwrap();
        assert!(own.contains(&inode(&stream)) && own.contains(&inode(&peer)));
        assert!((100_000..=100_001).contains(&of(&stream).acked), "{:?}", of(&stream));
        assert!(of(&peer).acked <= 1 && of(&peer).cookie != of(&stream).cookie);
        assert_eq!(
            (of(&stream).from, of(&stream).to),
            (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into())
        );
        // A receiver that does not read.
        stream.set_nonblocking(true).unwrap();
        while stream.write(&bytes).is_ok() {}
        thread::sleep(Duration::from_millis(400));
        let found = connections(proc, pid).unwrap();
        let of = |file: &TcpStream| found.iter().find(|c| c.inode == inode(file)).unwrap();
        let (busy, receiver) = (of(&stream).busy_us, of(&stream).receiver_us);
        assert!((300_000..10_000_000).contains(&busy) && receiver > busy / 2, "{busy} {receiver}");
        assert_eq!(of(&peer).busy_us, 0);
    }

    #[test]
    fn nonsense_is_no_connection() {
        let mut found = Vec::new();
        assert_eq!(messages(&[1; 40], &mut found), None);
        assert_eq!(messages(&[], &mut found), Some(false));
        let mut short = Vec::new();
        short.extend(60_u32.to_ne_bytes());
        short.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        short.resize(60, 0);
        assert_eq!((messages(&short, &mut found), found.len()), (Some(false), 0));
    }
}
