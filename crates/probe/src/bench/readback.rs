//! What NCCL chose, from its log: algorithm and protocol of each call, and how ranks are connected.
//!
//! The log is written by processes of their own, before the measurement: a line for each call would slow the calls that
//! are measured. Sample lines (NCCL 2.28.9, NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,P2P,NET,TUNING,…):
//!
//! ```text
//! vm:812:830 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}
//! vm:812:830 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
//! ```
//!
//! 2.21 prints `1048576 Bytes -> Algo 1 proto 2 time 21.0` without a function. Source: NVIDIA/nccl src/enqueue.cc,
//! src/transport/*.cc.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collective::Collective;

/// What the log says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ways {
    /// By NCCL's name of the function (empty before 2.22) and bytes.
    pub ways: BTreeMap<(String, u64), String>,
    /// Connections between ranks.
    pub connections: Vec<Connection>,
    /// Why something is missing.
    pub notes: Vec<String>,
}

/// How one rank reaches another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
    /// NCCL's words, as `P2P/CUMEM`, `SHM/direct/direct` or `NET/IB/0/GDRDMA`.
    pub via: String,
    /// Channels.
    pub n_channels: usize,
}

const ALGORITHMS: [&str; 7] = ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];

/// Variables that make NCCL write that log to a file.
pub fn variables(file: &str) -> [(&'static str, String); 3] {
    [
        ("NCCL_DEBUG", "INFO".to_owned()),
        ("NCCL_DEBUG_SUBSYS", "INIT,ENV,P2P,SHM,NET,GRAPH,COLL,TUNING".to_owned()),
        ("NCCL_DEBUG_FILE", file.to_owned()),
    ]
}

/// Reads the log of one process.
pub fn parse(log: &str) -> Ways {
    let mut out = Ways::default();
    let mut connections: BTreeMap<(usize, usize, String), usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((_, text)) = line.split_once("NCCL INFO ") else { continue };
        if let Some((what, way)) = text.split_once(" Bytes -> ") {
            let (function, bytes) = what.rsplit_once(": ").unwrap_or(("", what));
            let function = function.split_whitespace().next().unwrap_or_default();
            let Ok(bytes) = bytes.trim().parse::<u64>() else { continue };
            out.ways.insert((function.to_owned(), bytes), readable(way));
        } else if let Some((place, via)) = text.split_once(" via ")
            && let Some(ends) = place.strip_prefix("Channel ").and_then(|rest| rest.split_once(" : "))
            && let Some((from, to)) = ends.1.split_once(" -> ")
        {
            let rank = |text: &str| text.split('[').next().and_then(|rank| rank.trim().parse::<usize>().ok());
            if let (Some(from), Some(to)) = (rank(from), rank(to)) {
                let via = via.split_whitespace().next().unwrap_or_default().to_owned();
                *connections.entry((from, to, via)).or_default() += 1;
            }
        }
    }
    out.connections = connections
        .into_iter()
        .map(|((from, to, via), n_channels)| Connection { from, to, via, n_channels })
        .collect();
    out
}

/// `Algo 1 proto 2 time 21.0` and `Algo RING proto SIMPLE channel{Lo..Hi}={0..15}` in one form: `RING/SIMPLE 16`.
fn readable(way: &str) -> String {
    let mut words = way.split_whitespace();
    let mut after = |name: &str, names: &[&str]| {
        words.by_ref().find(|word| *word == name)?;
        let value = words.next()?;
        Some(match value.parse::<usize>() {
            Ok(number) => names.get(number).copied().unwrap_or(value).to_owned(),
            Err(_) => value.to_owned(),
        })
    };
    let (Some(algorithm), Some(protocol)) = (after("Algo", &ALGORITHMS), after("proto", &PROTOCOLS)) else {
        // A symmetric kernel, or the copy engines.
        return way.trim().to_owned();
    };
    let channels = way.split_once("={").and_then(|(_, rest)| rest.split_once('}')).and_then(|(range, _)| {
        let (low, high) = range.split_once("..")?;
        Some(high.parse::<usize>().ok()? + 1 - low.parse::<usize>().ok()?)
    });
    let channels = channels.map_or_else(String::new, |n| format!(" x{n}"));
    format!("{algorithm}/{protocol}{channels}")
}

impl Ways {
    /// What was chosen for a collective (nccl-tests' name) and size.
    pub fn of(&self, collective: &str, size_bytes: u64) -> Option<String> {
        let function = match Collective::by_name(collective)? {
            Collective::AllReduce => "AllReduce",
            Collective::AllGather => "AllGather",
            Collective::ReduceScatter => "ReduceScatter",
            Collective::Broadcast => "Broadcast",
            Collective::Reduce => "Reduce",
            _ => return None,
        };
        let key = |function: &str| (function.to_owned(), size_bytes);
        self.ways.get(&key(function)).or_else(|| self.ways.get(&key(""))).cloned()
    }

    /// Adds what another process's log says.
    pub fn merge(&mut self, other: Self) {
        self.ways.extend(other.ways);
        self.connections.extend(other.connections);
        self.connections.sort();
        self.connections.dedup();
        self.notes.extend(other.notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_the_log_are_read() {
        let log = "vm:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}\n\
                   vm:1:2 [0] NCCL INFO AllGather: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n\
                   vm:1:2 [0] NCCL INFO 2048 Bytes -> Algo 0 proto 1 time 21.000000\n\
                   vm:1:2 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1\n\
                   vm:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
                   vm:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
                   vm:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct\n\
                   vm:1:2 [0] NCCL INFO Channel 00/02 : 0 1\nvia -> : nonsense\n";
        let ways = parse(log);
        assert_eq!(ways.of("all_reduce", 1 << 20).as_deref(), Some("RING/SIMPLE x16"));
        assert_eq!(ways.of("all_gather", 64).as_deref(), Some("RING/LL x1"));
        assert_eq!(ways.of("broadcast", 2048).as_deref(), Some("TREE/LL128"));
        assert_eq!(ways.of("all_reduce", 4096).as_deref(), Some("Kernel AllReduce_AGxLL_R nchannels 1"));
        assert_eq!(ways.of("sendrecv", 64), None);
        let via = |from, to, via: &str, n_channels| Connection { from, to, via: via.to_owned(), n_channels };
        assert_eq!(ways.connections, [via(0, 1, "P2P/CUMEM/read", 2), via(1, 0, "SHM/direct/direct", 1)]);
    }

    proptest::proptest! {
        #[test]
        fn no_log_makes_it_panic(text in "(NCCL INFO |Bytes -> |Algo |proto |Channel |via |[0-9:{}.=\\[\\] ->\n]|.)*") {
            parse(&text);
        }
    }
}
