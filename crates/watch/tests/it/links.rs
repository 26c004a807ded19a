//! A slow link, by what TCP counts.

use std::collections::BTreeMap;

use ringleader_watch::digest::{Digest, TcpDigest, TcpFlow};
use ringleader_watch::event::{Confidence, Event, Lag, Straggler, What};

use crate::jobs::{Habits, engine, first_stall, job};
use crate::sim::{MS, S, START};

/// Milliseconds of 6000 for which the way between two addresses was busy, and what it carried.
type Flows = BTreeMap<(u32, u32), (u32, u64)>;

fn address(host: u32) -> String {
    format!("10.0.0.{host}")
}

/// What the digests of a job say of TCP, from the ways between its hosts; `per` ranks are on each.
fn say(digest: &mut Digest, per: u32, flows: &Flows) {
    for rank in &mut digest.ranks {
        let host = rank.rank.unwrap() / per;
        let own = flows.iter().filter(|((from, _), _)| *from == host);
        let flow = |(&(from, to), &(busy_ms, bytes)): (&(u32, u32), &(u32, u64))| TcpFlow {
            from: address(from),
            to: address(to),
            busy_ms,
            bytes,
        };
        rank.tcp = Some(TcpDigest {
            span_ms: 6000,
            addresses: vec![address(host)],
            flows: own
                .map(flow)
                // An object store, which is nobody's rank.
                .chain([TcpFlow {
                    from: address(host),
                    to: "10.9.9.9".to_owned(),
                    busy_ms: 5900,
                    bytes: 1000,
                }])
                .collect(),
        });
    }
}

/// A ring of so many hosts in which each way is busy for so long and carries 20 MB.
fn ring(hosts: u32, busy_ms: impl Fn(u32, u32) -> u32) -> Flows {
    (0..hosts).map(|h| ((h, (h + 1) % hosts), (busy_ms(h, (h + 1) % hosts), 20_000_000))).collect()
}

/// A job of four ranks on as many hosts whose collectives take `times` as long from 20 s on; what is said of stragglers.
fn told(ranks: usize, times: i64, flows: &Flows) -> Vec<(i64, Straggler)> {
    let habits = Habits { ranks, nodes: ranks, jitter: 0.05, ..Habits::plain() };
    let mut sim = job(&habits, 3, |_, _, _| {});
    let mut engine = engine();
    let mut events: Vec<(i64, Event)> = Vec::new();
    let onset = 20 * S;
    let mut t = 0;
    let mut sequence = 0;
    while t < 50 * S {
        t += 500 * MS;
        if t == onset {
            sim.groups[0].takes_ns *= times;
        }
        sim.advance(t);
        sequence += 1;
        for node in 0..sim.n_nodes {
            let mut digest = sim.digest(node, t, sequence);
            // Through the hub of a large job they come now and then.
            if t > onset + 3 * S {
                if t % (4 * S) == 0 {
                    say(&mut digest, 1, flows);
                }
            } else {
                say(&mut digest, 1, &ring(ranks as u32, |_, _| 100));
            }
            engine.take(digest, START + t + 20 * MS);
        }
        events.extend(engine.look(START + t + 30 * MS).into_iter().map(|e| (t, e)));
    }
    assert_eq!(first_stall(&events), None);
    let is_told = events.iter().any(|(_, e)| matches!(e.what, What::Straggler(_)));
    assert_eq!(engine.slow_link().is_some(), is_told, "what a bundle says of it");
    let straggler = |(t, e): (i64, Event)| match e.what {
        What::Straggler(s) => Some((t - onset, s)),
        _ => None,
    };
    events.into_iter().filter_map(straggler).collect()
}

#[test]
fn the_link_of_one_host() {
    for slow in 0..4 {
        let flows = ring(4, |a, b| if a == slow || b == slow { 5200 } else { 90 });
        let (after, late) = told(4, 10, &flows).remove(0);
        assert_eq!((late.rank, late.peer, late.of), (slow, None, Lag::Network), "{late:?}");
        assert_eq!((late.confidence, late.persistent), (Confidence::High, true), "{late:?}");
        assert!(after <= 10 * S && late.late_ms > 5.0, "{after} {late:?}");
        assert!(late.text.contains(&address(slow)) && late.text.contains("3.8 MB/s"), "{}", late.text);
    }
}

#[test]
fn the_way_between_two_hosts() {
    let flows = ring(4, |a, _| if a == 1 { 5200 } else { 90 });
    let late = told(4, 10, &flows).remove(0).1;
    assert_eq!((late.rank, late.peer, late.of), (1, Some(2), Lag::Network), "{late:?}");
    assert_eq!(late.confidence, Confidence::Medium);
    // Of two hosts nothing shows which end it is.
    let late = told(2, 10, &ring(2, |_, _| 5200)).remove(0).1;
    assert_eq!((late.rank, late.peer, late.of), (0, Some(1), Lag::Network), "{late:?}");
}

#[test]
fn what_is_no_slow_link() {
    let slow = |a: u32, b: u32| if a == 2 || b == 2 { 5200 } else { 90 };
    // Collectives take no longer than they did.
    assert_eq!(told(4, 1, &ring(4, slow)), []);
    // All are busy alike: the network is slow, not a link.
    assert_eq!(told(4, 10, &ring(4, |_, _| 5200)), []);
    assert_eq!(told(4, 10, &ring(4, |a, _| 3000 + 500 * a)), []);
    // Two that are not neighbours.
    assert_eq!(told(6, 10, &ring(6, |a, _| if a == 1 || a == 4 { 5200 } else { 90 })), []);
    // Nobody is busy for long.
    assert_eq!(told(4, 10, &ring(4, |a, b| if a == 2 || b == 2 { 300 } else { 20 })), []);
    assert_eq!(told(4, 10, &Flows::new()), []);
    // A host that carries far more is busier, and its link as fast as others.
    let mut flows = ring(4, |_, _| 90);
    flows.insert((2, 0), (5200, 1_100_000_000));
    flows.insert((2, 3), (5200, 1_100_000_000));
    assert_eq!(told(4, 10, &flows), []);
}

/// A digest of a version that knew nothing of TCP is read, and one that says more than is known too.
#[test]
fn digests_of_other_versions() {
    let mut sim = job(&Habits::plain(), 3, |_, _, _| {});
    sim.advance(5 * S);
    let digest = sim.digest(0, 5 * S, 1);
    let text = serde_json::to_string(&digest).unwrap();
    assert!(!text.contains("\"tcp\""));
    assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
    let mut newer = digest.clone();
    say(&mut newer, 2, &ring(2, |_, _| 10));
    let text = serde_json::to_string(&newer).unwrap().replacen("\"tcp\":{", "\"tcp\":{\"new\":1,", 1);
    assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), newer);
}
