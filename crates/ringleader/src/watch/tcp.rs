//! What TCP counted of the ranks' connections in the last few seconds: which ways between hosts are busy, and how much passes.
//! The kernel is asked now and then, in a thread: a host may have very many connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_collect::tcp::{self, Connection};
use ringleader_watch::digest::{MAX_ADDRESSES, MAX_FLOWS, TcpDigest, TcpFlow};

/// Between two looks, at least.
const EVERY: Duration = Duration::from_millis(1500);
/// And this many times as long as one look takes: half a percent of a processor.
const REST: u32 = 200;
/// Counts are over about so long.
const WINDOW: Duration = Duration::from_secs(6);
/// A flow that carries less than this, and is busy for less, is not reported: no rank waits for it.
const LEAST_BYTES: u64 = 64 << 10;
const LEAST_BUSY_US: u64 = 5_000;

/// Each rank's connections at one moment, by pid and the kernel's number of the connection.
struct Sample {
    at: Instant,
    took: Duration,
    ranks: BTreeMap<u32, BTreeMap<u64, Connection>>,
}

/// Follows the connections of this node's ranks.
#[derive(Default)]
pub(crate) struct Tcp {
    under_way: Option<Receiver<Sample>>,
    next: Option<Instant>,
    samples: VecDeque<Sample>,
}

impl Tcp {
    /// Takes what has come, and asks again when it is time. Nothing is asked where no rank has others on other hosts.
    pub(crate) fn look(&mut self, proc: &Path, pids: Vec<u32>) {
        match self.under_way.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(sample)) => self.take(sample),
            Some(Err(TryRecvError::Disconnected)) | None => {}
        }
        self.under_way = None;
        if pids.is_empty() {
            self.samples.clear();
            return;
        }
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        self.next = Some(Instant::now() + EVERY);
        let (sender, receiver) = mpsc::channel();
        let proc: PathBuf = proc.to_owned();
        thread::spawn(move || {
            // The watcher may have ended.
            let _ = sender.send(sample(&proc, &pids));
        });
        self.under_way = Some(receiver);
    }

    fn take(&mut self, sample: Sample) {
        self.next = Some(sample.at + EVERY.max(sample.took * REST));
        let old = sample.at.checked_sub(WINDOW);
        self.samples.push_back(sample);
        // One that is older than the window is kept: from it the window begins.
        while self.samples.len() > 2
            && self.samples.get(1).is_some_and(|s| old.is_some_and(|old| s.at <= old))
        {
            self.samples.pop_front();
        }
    }

    /// What a process's connections did; none before there is something to compare with.
    pub(crate) fn of(&self, pid: u32) -> Option<TcpDigest> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let (before, now) = (first.ranks.get(&pid)?, last.ranks.get(&pid)?);
        let span = last.at.saturating_duration_since(first.at);
        (!span.is_zero() && !now.is_empty()).then(|| between(before, now, span))
    }
}

/// Asks the kernel.
fn sample(proc: &Path, pids: &[u32]) -> Sample {
    let at = Instant::now();
    let mut by_namespace: BTreeMap<u64, Vec<Connection>> = BTreeMap::new();
    let mut ranks = BTreeMap::new();
    for pid in pids {
        let Some(namespace) = tcp::namespace(proc, *pid) else { continue };
        // A kernel without sock_diag, or a container that we may not look into: no counts.
        let all =
            by_namespace.entry(namespace).or_insert_with(|| tcp::connections(proc, *pid).unwrap_or_default());
        if all.is_empty() {
            continue;
        }
        let own = tcp::sockets(proc, *pid);
        let is_meant = |c: &&Connection| own.contains(&c.inode) && c.from != c.to && !is_here(c.to);
        let meant = all.iter().filter(is_meant).map(|c| (c.cookie, c.clone()));
        ranks.insert(*pid, meant.collect());
    }
    Sample { at, took: at.elapsed(), ranks }
}

fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

fn between(before: &BTreeMap<u64, Connection>, now: &BTreeMap<u64, Connection>, span: Duration) -> TcpDigest {
    let mut addresses: BTreeMap<IpAddr, u64> = BTreeMap::new();
    let mut flows: BTreeMap<(IpAddr, IpAddr), (u64, u64)> = BTreeMap::new();
    for (cookie, new) in now {
        let (busy_us, receiver_us, acked) =
            before.get(cookie).map_or((0, 0, 0), |old| (old.busy_us, old.receiver_us, old.acked));
        let receiver_us = new.receiver_us.saturating_sub(receiver_us);
        let busy_us = new.busy_us.saturating_sub(busy_us).saturating_sub(receiver_us);
        let bytes = new.acked.saturating_sub(acked);
        *addresses.entry(new.from).or_default() += bytes;
        let flow = flows.entry((new.from, new.to)).or_default();
        *flow = (flow.0.max(busy_us), flow.1 + bytes);
    }
    let mut addresses: Vec<(IpAddr, u64)> = addresses.into_iter().collect();
    addresses.sort_by_key(|(address, bytes)| (std::cmp::Reverse(*bytes), *address));
    let mut flows: Vec<_> = flows
        .into_iter()
        .filter(|(_, (busy_us, bytes))| *busy_us >= LEAST_BUSY_US || *bytes >= LEAST_BYTES)
        .collect();
    flows.sort_by_key(|(flow, (busy_us, bytes))| (std::cmp::Reverse((*busy_us, *bytes)), *flow));
    TcpDigest {
        span_ms: span.as_millis() as u32,
        addresses: addresses
            .into_iter()
            .take(MAX_ADDRESSES)
            .map(|(address, _)| address.to_string())
            .collect(),
        flows: flows
            .into_iter()
            .take(MAX_FLOWS)
            .map(|((from, to), (busy_us, bytes))| TcpFlow {
                from: from.to_string(),
                to: to.to_string(),
                // A connection that was busy before it was first seen.
                busy_ms: (busy_us / 1000).min(span.as_millis() as u64) as u32,
                bytes,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn connection(cookie: u64, to: u8, busy_us: u64, receiver_us: u64, acked: u64) -> (u64, Connection) {
        let address = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        let inode = cookie as u32;
        (cookie, Connection { from: address(1), to: address(to), inode, cookie, busy_us, receiver_us, acked })
    }

    #[test]
    fn what_was_counted_since() {
        let before = [connection(1, 2, 10_000, 0, 100), connection(2, 2, 9_000_000, 0, 100)].into();
        // 3 is new; 4's receiver does not read; 5 carries next to nothing.
        let now = [
            connection(1, 2, 2_010_000, 500_000, 1_000_100),
            connection(2, 2, 9_100_000, 0, 1_000_100),
            connection(3, 3, 4_000, 0, 70_000),
            connection(4, 4, 3_000_000, 2_999_000, 10),
            connection(5, 5, 4_000, 0, 10),
        ]
        .into();
        let said = between(&before, &now, Duration::from_secs(6));
        let flows: Vec<(&str, u32, u64)> =
            said.flows.iter().map(|flow| (&*flow.to, flow.busy_ms, flow.bytes)).collect();
        assert_eq!(flows, [("10.0.0.2", 1500, 2_000_000), ("10.0.0.3", 4, 70_000)]);
        assert_eq!((said.span_ms, said.addresses), (6000, vec!["10.0.0.1".to_owned()]));
    }

    #[test]
    fn the_window_moves() {
        let mut tcp = Tcp::default();
        let begin = Instant::now();
        for n in 0..20_u32 {
            let ranks = [(7, [connection(1, 2, u64::from(n) * 500_000, 0, u64::from(n) * 1_000_000)].into())];
            tcp.take(Sample { at: begin + EVERY * n, took: Duration::ZERO, ranks: ranks.into() });
        }
        let said = tcp.of(7).map(|said| (said.span_ms, said.flows[0].busy_ms, said.flows[0].bytes));
        assert_eq!(said, Some((6000, 2000, 4_000_000)));
        assert_eq!(tcp.samples.len(), 5);
        assert_eq!(tcp.of(8), None);
        // No rank has others on other hosts any more.
        tcp.look(Path::new("/nonexistent"), Vec::new());
        assert_eq!(tcp.of(7), None);
    }
}
