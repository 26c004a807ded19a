//! 10,240 ranks on 1,280 nodes.

use std::time::Instant;

use ringleader_watch::digest::{CommDigest, Digest, DoneDigest, OpDigest, ProcessState, RankDigest, SeenBy};
use ringleader_watch::event::{Shape, What};

use crate::jobs::engine;
use crate::sim::{MS, S, START};

const NODES: u32 = 1280;
const PER_NODE: u32 = 8;
const RANKS: u32 = NODES * PER_NODE;

/// A rank of a job with tensor groups within a node, data groups across, and the world. `steps` are done; in the next
/// step `bad` does not call the data group's collective.
fn rank(rank: u32, steps: u64, now: i64, bad: Option<u32>) -> RankDigest {
    let local = rank % PER_NODE;
    let comm = |id: String, size: u32, own: u32, calls: u64, waits: bool, function: &str| CommDigest {
        id,
        name: function.to_owned(),
        size,
        rank: Some(own),
        collectives: calls + u64::from(waits),
        collectives_done: Some(calls),
        bytes_done: calls << 20,
        moved_ns: now,
        n_in_flight: u32::from(waits),
        in_flight: waits
            .then(|| OpDigest {
                number: calls,
                function: function.to_owned(),
                count: 1 << 18,
                datatype: "ncclFloat32".to_owned(),
                enqueued_ns: now,
                started_ns: Some(now),
                is_start_visible: true,
                ..OpDigest::default()
            })
            .into_iter()
            .collect(),
        recent: (calls.saturating_sub(16)..calls)
            .map(|number| DoneDigest {
                number,
                bytes: 1 << 20,
                queued_ns: 1000,
                ran_ns: 3_000_000 - u64::from(rank == 77) * 2_000_000,
                gap_ns: 100_000 + u64::from(rank == 77) * 2_000_000,
                period_ns: 3_101_000,
                function: function.to_owned(),
                ..DoneDigest::default()
            })
            .collect(),
        period: Some(ringleader_watch::digest::PeriodDigest {
            ops: 1,
            repeats: 100,
            step_ns: S / 2,
            span_ns: 50 * S,
            is_training: true,
        }),
        ..CommDigest::default()
    };
    // The group with the bad rank waits; its node's other ranks wait in the tensor group; all others of the world next.
    let in_group = bad.is_some_and(|b| b % PER_NODE == local);
    let is_bad = bad == Some(rank);
    RankDigest {
        rank: Some(rank),
        local_rank: Some(local),
        pid: 4000 + rank,
        process: ProcessState::Alive,
        seen_by: SeenBy::Ring,
        comms: vec![
            comm("f0".to_owned(), RANKS, rank, steps, bad.is_some() && !in_group, "AllReduce"),
            comm(format!("a{}", rank / PER_NODE), PER_NODE, local, steps * 8, false, "AllGather"),
            comm(
                format!("d{local}"),
                NODES,
                rank / PER_NODE,
                steps * 2,
                in_group && !is_bad,
                "ReduceScatter",
            ),
        ],
        ..RankDigest::default()
    }
}

fn digest(node: u32, sequence: u64, steps: u64, now: i64, at: i64, bad: Option<u32>) -> Digest {
    Digest {
        node: format!("node{node:04}"),
        agent: "a".to_owned(),
        sequence,
        at_ns: at,
        ranks: (node * PER_NODE..(node + 1) * PER_NODE).map(|r| rank(r, steps, now, bad)).collect(),
        ..Digest::default()
    }
}

#[test]
fn ten_thousand_ranks() {
    let mut engine = engine();
    let bad = 4321;
    let mut slowest_take = 0.0_f64;
    let mut slowest_look = 0.0_f64;
    let mut told = None;
    let mut late = Vec::new();
    for round in 0..14_u64 {
        // Twice a second, and once a second from the 6th round on, when nothing moves.
        let at = START + (round.min(6) * 500 + round.saturating_sub(6) * 1000) as i64 * MS;
        let (steps, moved) = if round < 6 { (100 + round, at) } else { (106, START + 3 * S) };
        let fault = (round >= 6).then_some(bad);
        let digests: Vec<Digest> =
            (0..NODES).map(|n| digest(n, round + 1, steps, moved, at, fault)).collect();
        let begun = Instant::now();
        for digest in digests {
            engine.take(digest, at);
        }
        slowest_take = slowest_take.max(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let events = engine.look(at);
        slowest_look = slowest_look.max(begun.elapsed().as_secs_f64());
        for event in events {
            match event.what {
                What::Stall(stall) => told = told.or(Some((round, stall))),
                What::Straggler(s) => late.push((s.rank, s.of)),
                _ => {}
            }
        }
    }
    let size = serde_json::to_vec(&digest(0, 1, 100, START, START, None)).unwrap().len();
    eprintln!(
        "{RANKS} ranks, {NODES} digests of {size} bytes as JSON: taken in {slowest_take:.3} s, joined and judged in {slowest_look:.3} s at most"
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    eprintln!("{}", status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default());
    let (round, stall) = told.unwrap();
    assert_eq!(
        (stall.shape, &*stall.suspects, &*stall.comm),
        (Shape::NeverEntered, &[bad][..], "d1"),
        "{}",
        stall.text
    );
    // The floor is 5 s.
    assert!((11..14).contains(&round), "{round}");
    assert!(late.iter().all(|(r, _)| *r == 77) && !late.is_empty(), "{late:?}");
    let view = engine.view();
    assert_eq!((view.nodes.len(), view.processes.len(), view.comms.len()), (1280, 10240, 1 + 1280 + 8));
    // Bounds with room for a busy machine and a build without full optimisation.
    assert!(slowest_look < 2.0 && slowest_take < 2.0, "{slowest_take} {slowest_look}");
}
