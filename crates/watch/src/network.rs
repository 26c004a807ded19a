//! What holds up a communicator in which all have come: the network between two hosts, ranks that nobody sees, or nothing
//! that shows.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Shape;
use crate::places::job_rank;
use crate::stall::{called_op, list};
use crate::table::{Circle, Stand, Table};

/// Ranks that are named as not seen, at most.
const MAX_UNSEEN: usize = 8;

/// What the proxies of one direction between two ranks wait for, since when.
#[derive(Default)]
struct Way {
    /// The sender handed data to the network, which has not confirmed it.
    sending: Option<i64>,
    /// The receiver gets nothing.
    receiving: Option<i64>,
    /// The sender has nothing to send yet.
    starved: bool,
}

pub(crate) fn cause<C: From<(Shape, Vec<u32>, String)>>(table: &Table<'_>, circle: &Circle<'_>) -> C {
    let op = called_op(circle);
    let mut ways: BTreeMap<(u32, u32), Way> = BTreeMap::new();
    for chair in &circle.chairs {
        let front = circle.front.map(|f| f.number);
        let call = front.and_then(|n| chair.call(n));
        for wait in call.into_iter().chain(chair.pairs()).flat_map(|op| &op.waits) {
            let key = if wait.is_send { (chair.rank, wait.peer) } else { (wait.peer, chair.rank) };
            let way = ways.entry(key).or_default();
            let since = chair.here(wait.since_ns);
            match wait.phase.as_str() {
                "send-net" => way.sending = Some(way.sending.map_or(since, |s| s.min(since))),
                "recv-net" => way.receiving = Some(way.receiving.map_or(since, |s| s.min(since))),
                "send-gpu" => way.starved = true,
                _ => {}
            }
        }
    }
    // Downstream of a cut the senders have nothing to send; at the cut they have.
    let mut cut: Vec<(u32, u32)> =
        ways.iter().filter(|(_, w)| w.sending.is_some()).map(|(k, _)| *k).collect();
    if cut.is_empty() {
        cut = ways.iter().filter(|(_, w)| w.receiving.is_some() && !w.starved).map(|(k, _)| *k).collect();
    }
    if cut.is_empty() {
        let first = ways.iter().filter_map(|(k, w)| Some((w.receiving?, *k))).min();
        cut.extend(first.map(|(_, k)| k));
    }
    if !cut.is_empty() {
        return network(table, circle, &cut, &op).into();
    }
    let seen = circle.chairs.iter().filter(|c| c.stand != Stand::Unseen).count();
    if (seen as u32) < circle.size && circle.front.is_some() {
        let known: BTreeSet<u32> = circle.chairs.iter().map(|c| c.rank).collect();
        let unseen: Vec<u32> = (0..circle.size).filter(|r| !known.contains(r)).take(MAX_UNSEEN).collect();
        let text = format!(
            "all {seen} ranks that are seen wait in {op}; nothing is seen of {}{}",
            list(&unseen),
            if circle.size as usize - seen > unseen.len() { " and others" } else { "" }
        );
        return (Shape::NeverEntered, unseen, text).into();
    }
    // Some channels of a kernel run and others do not.
    let part: Vec<u32> = circle
        .chairs
        .iter()
        .filter(|c| {
            let call = circle.front.and_then(|f| c.call(f.number));
            call.is_some_and(|op| {
                op.started_ns.is_some() && op.channels[2] > 0 && op.channels[0] < op.channels[2]
            })
        })
        .map(|c| table.rank_of(c))
        .collect();
    if !part.is_empty() && part.len() * 2 <= circle.chairs.len() {
        let text = format!("all are in {op}; on {} not all channels of the kernel have started", list(&part));
        return (Shape::NotStarted, part, text).into();
    }
    let text = format!("all {seen} ranks are in {op} and it does not move");
    (Shape::Running, Vec::new(), text).into()
}

fn network(
    table: &Table<'_>,
    circle: &Circle<'_>,
    cut: &[(u32, u32)],
    op: &str,
) -> (Shape, Vec<u32>, String) {
    let host = |rank: u32| {
        let at = circle.chairs.binary_search_by_key(&rank, |c| c.rank).ok()?;
        let row = table.rows.get(circle.chairs.get(at)?.row)?;
        table.nodes.get(row.node).map(|n| n.name)
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
        .map(|r| job_rank(table, circle, r))
        .collect();
    let (from, to) = cut.first().copied().unwrap_or_default();
    let text = if let ([one], true) = (common.as_slice(), pairs.len() > 1) {
        format!("in {op} nothing passes between {one} and {} other hosts", pairs.len())
    } else {
        format!(
            "in {op} nothing passes from rank {} on {} to rank {} on {}",
            job_rank(table, circle, from),
            host(from).unwrap_or("?"),
            job_rank(table, circle, to),
            host(to).unwrap_or("?"),
        )
    };
    (Shape::Network, ranks.into_iter().collect(), text)
}
