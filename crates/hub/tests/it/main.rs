//! The hub as agents see it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod both;
mod directory;
mod etcd;
mod job;
mod server;

use std::time::{Duration, Instant};

use ringleader_hub::{Change, Feed, Hub, HubOptions};
use ringleader_watch::digest::{
    CommDigest, Digest, DoneDigest, OpDigest, ProcessState, RankDigest, SCHEMA, SeenBy,
};

/// Time to silence: long enough for a busy machine, and longer than a feed holds back what it finds at first.
pub(crate) fn ttl(address: &str) -> Duration {
    Duration::from_millis(if address.starts_with("dir:") { 4000 } else { 5000 })
}

pub(crate) fn options(address: &str, node: &str) -> HubOptions {
    HubOptions {
        ttl: ttl(address),
        deadline: Duration::from_secs(5),
        gap: Duration::from_millis(50),
        beat: Duration::from_millis(500),
        ..HubOptions::new(node)
    }
}

/// A digest of one node with this many ranks.
pub(crate) fn digest(node: &str, sequence: u64, n_ranks: u32) -> Digest {
    let comm = |id: &str| CommDigest {
        id: id.to_owned(),
        name: "default_pg".to_owned(),
        size: n_ranks,
        rank: Some(0),
        collectives: sequence,
        collectives_done: Some(sequence),
        in_flight: vec![OpDigest {
            function: "AllReduce".to_owned(),
            number: sequence,
            ..OpDigest::default()
        }],
        n_in_flight: 1,
        recent: vec![DoneDigest { number: sequence, ran_ns: 1_234_567, ..DoneDigest::default() }],
        ..CommDigest::default()
    };
    Digest {
        schema: SCHEMA.to_owned(),
        node: node.to_owned(),
        sequence,
        agent: "test".to_owned(),
        at_ns: 1_700_000_000_000_000_000 + sequence as i64,
        ranks: (0..n_ranks)
            .map(|rank| RankDigest {
                rank: Some(rank),
                pid: 1000 + rank,
                process: ProcessState::Alive,
                seen_by: SeenBy::Ring,
                comms: vec![comm("0x1"), comm("0x2")],
                ..RankDigest::default()
            })
            .collect(),
        notes: Vec::new(),
    }
}

/// Reads a feed until `holds` returns true, and returns all changes seen.
pub(crate) fn until(feed: &mut Feed, what: &str, mut holds: impl FnMut(&Change) -> bool) -> Vec<Change> {
    let mut all = Vec::new();
    let end = Instant::now() + Duration::from_mins(1);
    while Instant::now() < end {
        for change in feed.next(Duration::from_millis(200)) {
            let is_it = holds(&change);
            all.push(change);
            if is_it {
                return all;
            }
        }
    }
    panic!("{what} never came: {all:#?}");
}

pub(crate) fn is_digest(change: &Change, node: &str, sequence: u64) -> bool {
    matches!(change, Change::Digest(digest) if digest.node == node && digest.sequence == sequence)
}

/// Waits until `holds` returns true.
pub(crate) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < end, "{what} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn open(address: &str, node: &str) -> Hub {
    Hub::open(address, options(address, node)).unwrap()
}
