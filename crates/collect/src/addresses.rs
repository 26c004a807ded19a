//! Addresses of the interfaces: from the kernel by netlink (rtnetlink(7)), or worked out from a captured /proc.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ringleader_node::Route;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::sysfs::text;

/// Which interface has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// By the kernel's number.
    Index(u32),
    /// By name.
    Name(String),
}

/// Where, what, and the length of the prefix.
pub(crate) type Address = (At, IpAddr, u8);

const RTM_GETADDR: u16 = 22;
const RTM_NEWADDR: u16 = 20;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Answers of the kernel that are read: each holds up to 32 KiB, some four hundred addresses.
const MAX_ANSWERS: usize = 256;

/// Addresses of this process's network namespace, in the kernel's order; None if the kernel does not tell.
pub(crate) fn live() -> Option<Vec<Address>> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).ok()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(std::time::Duration::from_millis(300))).ok()?;
    // nlmsghdr: length, type, flags, sequence, port; ifaddrmsg: family and three more bytes, index.
    let mut ask = Vec::with_capacity(24);
    ask.extend(24_u32.to_ne_bytes());
    ask.extend(RTM_GETADDR.to_ne_bytes());
    ask.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    ask.extend([0; 16]);
    sendto(&socket, &ask, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut found = Vec::new();
    let mut answer = vec![0_u8; 64 << 10];
    for _ in 0..MAX_ANSWERS {
        let (n, _) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty()).ok()?;
        if messages(answer.get(..n)?, &mut found)? {
            return Some(found);
        }
    }
    None
}

/// Reads the messages of one answer; true once the last one came. None if the kernel answers with an error.
fn messages(mut bytes: &[u8], found: &mut Vec<Address>) -> Option<bool> {
    while bytes.len() >= 16 {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        if kind == NLMSG_DONE {
            return Some(true);
        }
        // NLMSG_ERROR, or nonsense.
        let message = bytes.get(16..length).filter(|_| kind >= 16)?;
        if kind == RTM_NEWADDR {
            found.extend(address(message));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

/// `ifaddrmsg` (family, prefix, flags, scope, index) and its attributes (length, type, value).
fn address(message: &[u8]) -> Option<Address> {
    let (prefix, index) = (*message.get(1)?, u32_at(message, 4)?);
    let mut attributes = message.get(8..)?;
    let (mut local, mut any) = (None, None);
    while attributes.len() >= 4 {
        let length = u16_at(attributes, 0)? as usize;
        let value = attributes.get(4..length)?;
        let address = match *value {
            [a, b, c, d] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            _ => <[u8; 16]>::try_from(value).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))),
        };
        match u16_at(attributes, 2)? {
            // On a point-to-point link IFA_ADDRESS is the peer's.
            IFA_LOCAL => local = address,
            IFA_ADDRESS => any = address,
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((At::Index(index), local.or(any)?, prefix))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Addresses in a captured /proc: net/if_inet6 lists those of IPv6; net/fib_trie shows which IPv4 addresses are local,
/// and the route to their network on which interface. Two interfaces in one network cannot be distinguished: the first
/// route has it.
pub(crate) fn recorded(proc: &Path, routes: &[Route]) -> Vec<Address> {
    let mut found = Vec::new();
    let trie = text(&proc.join("net/fib_trie")).unwrap_or_default();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
        {
            let at = if address.is_loopback() {
                Some(("lo", 8))
            } else {
                let of_net = |route: &&Route| route.via.is_none() && route.to != "default";
                routes.iter().filter(of_net).find_map(|route| {
                    let (net, prefix) = route.to.split_once('/')?;
                    let (net, prefix): (Ipv4Addr, u8) = (net.parse().ok()?, prefix.parse().ok()?);
                    let shift = 32_u32.checked_sub(u32::from(prefix)).filter(|shift| *shift < 32)?;
                    (u32::from(net) >> shift == u32::from(address) >> shift)
                        .then_some((route.interface.as_str(), prefix))
                })
            };
            if let Some((name, prefix)) = at {
                let entry = (At::Name(name.to_owned()), IpAddr::V4(address), prefix);
                if !found.contains(&entry) {
                    found.push(entry);
                }
            }
        }
    }
    // Address, index, prefix, scope, flags, name.
    for line in text(&proc.join("net/if_inet6")).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, prefix, _, _, name] = words.as_slice() else { continue };
        let (Ok(address), Ok(prefix)) = (u128::from_str_radix(address, 16), u8::from_str_radix(prefix, 16))
        else {
            continue;
        };
        found.push((At::Name((*name).to_owned()), IpAddr::V6(Ipv6Addr::from(address)), prefix));
    }
    found
}
