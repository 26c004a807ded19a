//! What holds up a communicator that all ranks have entered: the network between two hosts, ranks that no agent sees,
//! or nothing that shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Shape;
use crate::ledger::{Group, Ledger, Stage};
use crate::standing::{called_op, job_rank};
use crate::words::list;

/// Ranks that are named as not seen, at most.
const MAX_UNSEEN: usize = 8;

/// What the proxies of one direction between two ranks wait for, since when.
#[derive(Default)]
struct Direction {
    /// The sender handed data to the network, which has not confirmed it.
    sending: Option<i64>,
    /// The receiver gets nothing.
    receiving: Option<i64>,
    /// The sender has nothing to send yet.
    starved: bool,
}

pub(crate) fn cause<C: From<(Shape, Vec<u32>, String)>>(ledger: &Ledger<'_>, group: &Group<'_>) -> C {
    let op = called_op(group);
    let mut directions: BTreeMap<(u32, u32), Direction> = BTreeMap::new();
    for track in &group.tracks {
        let front = group.front.map(|f| f.number);
        let call = front.and_then(|n| track.call(n));
        for wait in call.into_iter().chain(track.pairs()).flat_map(|op| &op.waits) {
            let key = if wait.is_send { (track.rank, wait.peer) } else { (wait.peer, track.rank) };
            let direction = directions.entry(key).or_default();
            let since = track.here(wait.since_ns);
            match wait.phase.as_str() {
                "send-net" => direction.sending = Some(direction.sending.map_or(since, |s| s.min(since))),
                "recv-net" => direction.receiving = Some(direction.receiving.map_or(since, |s| s.min(since))),
                "send-gpu" => direction.starved = true,
                _ => {}
            }
        }
    }
    // Downstream of a cut the senders have nothing to send; at the cut they have.
    let mut cut: Vec<(u32, u32)> =
        directions.iter().filter(|(_, w)| w.sending.is_some()).map(|(k, _)| *k).collect();
    if cut.is_empty() {
        cut =
            directions.iter().filter(|(_, w)| w.receiving.is_some() && !w.starved).map(|(k, _)| *k).collect();
    }
    if cut.is_empty() {
        let first = directions.iter().filter_map(|(k, w)| Some((w.receiving?, *k))).min();
        cut.extend(first.map(|(_, k)| k));
    }
    if !cut.is_empty() {
        return network(ledger, group, &cut, &op).into();
    }
    let seen = group.tracks.iter().filter(|c| c.stage != Stage::Unseen).count();
    if (seen as u32) < group.size && group.front.is_some() {
        let known: BTreeSet<u32> = group.tracks.iter().map(|c| c.rank).collect();
        let unseen: Vec<u32> = (0..group.size).filter(|r| !known.contains(r)).take(MAX_UNSEEN).collect();
        let text = format!(
            "all {seen} visible ranks wait in {op}; {}{} cannot be seen",
            list(&unseen),
            if group.size as usize - seen > unseen.len() { " and others" } else { "" }
        );
        return (Shape::NeverEntered, unseen, text).into();
    }
    // Some channels of a kernel run and others do not.
    let part: Vec<u32> = group
        .tracks
        .iter()
        .filter(|c| {
            let call = group.front.and_then(|f| c.call(f.number));
            call.is_some_and(|op| {
                op.started_ns.is_some() && op.channels[2] > 0 && op.channels[0] < op.channels[2]
            })
        })
        .map(|c| ledger.rank_of(c))
        .collect();
    if !part.is_empty() && part.len() * 2 <= group.tracks.len() {
        let text = format!("all are in {op}; on {} not all channels of the kernel have started", list(&part));
        return (Shape::NotStarted, part, text).into();
    }
    let text = format!("all {seen} ranks are in {op} and it makes no progress");
    (Shape::Running, Vec::new(), text).into()
}

fn network(
    ledger: &Ledger<'_>,
    group: &Group<'_>,
    cut: &[(u32, u32)],
    op: &str,
) -> (Shape, Vec<u32>, String) {
    let host = |rank: u32| {
        let at = group.tracks.binary_search_by_key(&rank, |c| c.rank).ok()?;
        let member = ledger.members.get(group.tracks.get(at)?.member)?;
        ledger.nodes.get(member.node).map(|n| n.name)
    };
    let pairs: BTreeSet<(&str, &str)> = cut
        .iter()
        .map(|(a, b)| (host(*a).unwrap_or("?"), host(*b).unwrap_or("?")))
        .map(|(a, b)| if a <= b { (a, b) } else { (b, a) })
        .collect();
    // A host that is in every silent pair, where there are several pairs, is the one that is cut off.
    let common: Vec<&str> = pairs
        .iter()
        .flat_map(|(a, b)| [*a, *b])
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|h| pairs.iter().all(|(a, b)| a == h || b == h))
        .collect();
    let ranks: BTreeSet<u32> = cut
        .iter()
        .flat_map(|(a, b)| [*a, *b])
        .filter(|r| pairs.len() == 1 || common.len() != 1 || host(*r) == common.first().copied())
        .map(|r| job_rank(ledger, group, r))
        .collect();
    let (from, to) = cut.first().copied().unwrap_or_default();
    let text = if let ([one], true) = (common.as_slice(), pairs.len() > 1) {
        format!("in {op} no data passes between {one} and {} other hosts", pairs.len())
    } else {
        format!(
            "in {op} no data passes from rank {} on {} to rank {} on {}",
            job_rank(ledger, group, from),
            host(from).unwrap_or("?"),
            job_rank(ledger, group, to),
            host(to).unwrap_or("?"),
        )
    };
    (Shape::Network, ranks.into_iter().collect(), text)
}
