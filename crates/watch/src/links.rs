//! Whose link is slow, by what TCP counts of the connections between ranks.
//!
//! Where all ranks of a ring wait for each other, so that each looks as slow as the next, two kinds of connection
//! differ: those over the slow link have data to send all the time and get little of it through, and the others are
//! idle between quick bursts, though they carry as much. A receiver that does not read, because its rank is late, is
//! not counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::digest::TcpFlow;
use crate::event::{Confidence, Lag, Straggler};
use crate::ledger::Ledger;

/// A flow that is busy for less than this share of the time holds up no rank.
const BUSY: f64 = 0.1;
/// Of two hosts alone nothing shows what is usual: they must be busy with each other most of the time.
const BUSY_ALONE: f64 = 0.4;
/// The flows of the slow link are busy this many times as long as any other.
const TIMES: f64 = 3.0;
/// And while they are busy, the others carry this many times as much per second.
const RATE_TIMES: f64 = 2.0;
/// A way that carries less than this share of what the slow one carries says nothing of how fast others are.
const COMPARABLE: f64 = 0.2;
/// So many times as much, and to more than one other host: no chance.
const CLEAR_TIMES: f64 = 5.0;
/// Counts over less time than this say little, milliseconds.
const LEAST_SPAN_MS: u32 = 1000;

/// A link of one host, or the way between two.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlowLink {
    /// The first rank behind it; or the one that sends most.
    pub(crate) rank: u32,
    /// The rank at the other end, where nothing shows which end is slow.
    pub(crate) peer: Option<u32>,
    /// The address of that rank.
    pub(crate) address: String,
    /// Other hosts to or from which it is slow.
    pub(crate) n_peers: usize,
    /// Share of the time for which data waited.
    pub(crate) busy: f64,
    /// Bytes a second while data waited: there, and between the others.
    pub(crate) rate: f64,
    pub(crate) other_rate: Option<f64>,
}

impl SlowLink {
    /// Whether both tell of the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.rank, self.peer) == (other.rank, other.peer)
    }

    /// As an event of a communicator whose collectives take so long now, and took so long at best, milliseconds.
    pub(crate) fn straggler(&self, comm: &str, (now_ms, best_ms): (f64, f64)) -> Straggler {
        let is_clear =
            self.n_peers > 1 && self.other_rate.is_some_and(|other| other >= CLEAR_TIMES * self.rate);
        let megabytes = |rate: f64| format!("{:.1} MB/s", rate / 1e6);
        let what = match self.peer {
            Some(peer) => {
                format!("the network between rank {} ({}) and rank {peer} is slow", self.rank, self.address)
            }
            None => format!("the link of rank {} ({}) is slow", self.rank, self.address),
        };
        let others = self
            .other_rate
            .map(|rate| format!(" ({} between the others)", megabytes(rate)))
            .unwrap_or_default();
        Straggler {
            rank: self.rank,
            late_ms: now_ms - best_ms,
            share: self.busy,
            cost: None,
            over_s: None,
            persistent: true,
            of: Lag::Network,
            confidence: if is_clear { Confidence::High } else { Confidence::Medium },
            comm: comm.to_owned(),
            peer: self.peer,
            text: format!(
                "{what}: data waits to be sent {:.0} % of the time and passes at {}{others}; collectives take {now_ms:.0} ms, \
                 {best_ms:.0} ms at best",
                self.busy * 100.0,
                megabytes(self.rate)
            ),
        }
    }
}

/// All connections from one address to another.
#[derive(Clone, Copy, Debug, Default)]
struct Flow<'a> {
    from: &'a str,
    to: &'a str,
    /// Share of the time.
    busy: f64,
    busy_s: f64,
    bytes: f64,
}

/// What may be slow.
#[derive(Clone, Copy)]
enum SuspectLink<'a> {
    Host(&'a str),
    Between(&'a str, &'a str),
}

impl SuspectLink<'_> {
    fn is_on(self, flow: &Flow<'_>) -> bool {
        match self {
            Self::Host(host) => flow.from == host || flow.to == host,
            Self::Between(a, b) => (flow.from, flow.to) == (a, b) || (flow.from, flow.to) == (b, a),
        }
    }
}

/// The first rank of each address, and the ways between addresses of ranks.
fn flows<'a>(ledger: &Ledger<'a>) -> (BTreeMap<&'a str, u32>, Vec<Flow<'a>>) {
    let told = ledger.members.iter().filter(|member| !member.is_silent).filter_map(|member| {
        let word = member.word;
        let tcp = word.digest.tcp.as_ref().filter(|tcp| tcp.span_ms >= LEAST_SPAN_MS)?;
        Some((word.digest.rank?, tcp))
    });
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    for (rank, tcp) in told.clone() {
        for address in &tcp.addresses {
            let owner = owners.entry(address).or_insert(rank);
            *owner = rank.min(*owner);
        }
    }
    let mut flows: BTreeMap<(&str, &str), Flow<'_>> = BTreeMap::new();
    for (_, tcp) in told {
        // Storage and other connections of a rank are not the job's network.
        let is_between = |flow: &&TcpFlow| {
            flow.from != flow.to && owners.contains_key(&*flow.from) && owners.contains_key(&*flow.to)
        };
        for flow in tcp.flows.iter().filter(is_between) {
            let new = Flow { from: &flow.from, to: &flow.to, ..Flow::default() };
            let sum = flows.entry((new.from, new.to)).or_insert(new);
            sum.busy = sum.busy.max(f64::from(flow.busy_ms) / f64::from(tcp.span_ms));
            sum.busy_s = sum.busy_s.max(f64::from(flow.busy_ms) / 1e3);
            sum.bytes += flow.bytes as f64;
        }
    }
    (owners, flows.into_values().collect())
}

/// Bytes a second while busy; none where nothing was carried.
fn rate<'a>(flows: impl Iterator<Item = &'a Flow<'a>>) -> Option<f64> {
    let (bytes, busy_s) = flows.fold((0.0, 0.0), |(n, s), flow| (n + flow.bytes, s + flow.busy_s.max(1e-3)));
    (bytes > 0.0).then(|| bytes / busy_s)
}

/// The link that is slow, if one is, and not all alike.
pub(crate) fn slow_link(ledger: &Ledger<'_>) -> Option<SlowLink> {
    let (owners, flows) = flows(ledger);
    let hosts: BTreeSet<&str> = flows.iter().flat_map(|flow| [flow.from, flow.to]).collect();
    let most = flows.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))?;
    let is_alone = hosts.len() <= 2;
    if most.busy < if is_alone { BUSY_ALONE } else { BUSY } {
        return None;
    }
    // It is the link of an end of the busiest way if nothing is as busy away from that end. If that holds for both ends, only
    // the way between them is slow; if for none, it is not one link.
    let is_quiet_without = |host: &&str| {
        flows
            .iter()
            .filter(|flow| !SuspectLink::Host(host).is_on(flow))
            .all(|flow| flow.busy * TIMES <= most.busy)
    };
    let link = match [most.from, most.to].into_iter().filter(is_quiet_without).collect::<Vec<_>>()[..] {
        [] => return None,
        [host] => SuspectLink::Host(host),
        _ => SuspectLink::Between(most.from, most.to),
    };
    let slow = flows.iter().filter(|flow| link.is_on(flow) && flow.busy * TIMES > most.busy);
    let others = flows.iter().filter(|flow| !link.is_on(flow) && flow.bytes >= COMPARABLE * most.bytes);
    let (own_rate, other_rate) = (rate(slow.clone())?, rate(others));
    // One that carries more than all others is busier without being slower.
    if !is_alone && other_rate.is_none_or(|other| other < RATE_TIMES * own_rate) {
        return None;
    }
    let (host, peer) = match link {
        SuspectLink::Host(host) => (host, None),
        // In both directions: the same one first at every look.
        SuspectLink::Between(a, b) if slow.clone().count() > 1 => (a.min(b), owners.get(a.max(b)).copied()),
        SuspectLink::Between(from, to) => (from, owners.get(to).copied()),
    };
    let peers: BTreeSet<&str> =
        slow.flat_map(|flow| [flow.from, flow.to]).filter(|other| *other != host).collect();
    Some(SlowLink {
        rank: *owners.get(host)?,
        peer,
        address: host.to_owned(),
        n_peers: peers.len(),
        busy: most.busy.min(1.0),
        rate: own_rate,
        other_rate,
    })
}
