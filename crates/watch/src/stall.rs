//! Which communicators have stalled, and what holds them up.

use std::collections::BTreeSet;

use crate::digest::ProcessState;
use crate::event::{MAX_STATES, RankState, Shape, Stall, StalledOp, seconds};
use crate::graph::{Graph, Node, Partner, awaited, partner};
use crate::places::{called, detail, job_rank, place};
use crate::table::{Chair, Circle, Stand, Table, stand_of};

/// Others of whom one rank waits for at most this share of them made a call too many, rather than that all are late.
const FEW: usize = 4;
/// Suspects that a stall names.
const MAX_SUSPECTS: usize = 32;
/// Communicators that a stall lists as victims.
const MAX_VICTIMS: usize = 32;

/// A communicator that stands still for too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Still {
    pub(crate) circle: usize,
    pub(crate) moved_ns: i64,
    pub(crate) patience_ns: i64,
}

/// Stalls: communicators with a common cause are one.
pub(crate) fn stalls(table: &Table<'_>, graph: &Graph, still: &[Still]) -> Vec<Stall> {
    let mut groups: Vec<(BTreeSet<u32>, Vec<Still>)> = Vec::new();
    for one in still {
        let mut ends: BTreeSet<u32> = graph.ends(one.circle).iter().copied().collect();
        let mut members = vec![*one];
        groups.retain_mut(|(other, list)| {
            let apart = other.is_disjoint(&ends);
            if !apart {
                ends.append(other);
                members.append(list);
            }
            apart
        });
        groups.push((ends, members));
    }
    let mut out: Vec<Stall> =
        groups.iter().filter_map(|(ends, list)| stall(table, graph, ends, list)).collect();
    out.sort_by(|a, b| a.since.total_cmp(&b.since).then_with(|| a.comm.cmp(&b.comm)));
    out
}

fn stall(table: &Table<'_>, graph: &Graph, ends: &BTreeSet<u32>, list: &[Still]) -> Option<Stall> {
    // The communicator next to what holds all up tells most of it: of several, the one that waits longest.
    let direct = |circle: usize| ends.iter().any(|end| graph.leads_to(circle, *end));
    let inside = (0..table.circles.len()).filter(|c| {
        table.circles.get(*c).is_some_and(|c| c.is_inside)
            && graph.ends(*c).iter().any(|end| ends.contains(end))
    });
    let waiting: Vec<usize> = inside.collect();
    let since = |c: usize| table.circles.get(c).and_then(|c| c.front).map_or(i64::MAX, |f| f.since_ns);
    let odd =
        |c: usize| table.circles.get(c).is_some_and(|c| c.chairs.iter().any(|c| c.stand == Stand::Different));
    let tripped = |c: usize| list.iter().any(|s| s.circle == c);
    // Where some of those that it waits for wait elsewhere, elsewhere tells more.
    let passes_on = |c: usize| awaits_others(table, graph, c, ends);
    let at = waiting
        .iter()
        .copied()
        .filter(|c| direct(*c))
        .min_by_key(|c| (!odd(*c), !tripped(*c), passes_on(*c), since(*c), *c));
    let at = at.or_else(|| list.iter().map(|s| s.circle).min())?;
    let circle = table.circles.get(at)?;
    let own = list
        .iter()
        .find(|s| s.circle == at)
        .or_else(|| list.iter().max_by_key(|s| table.known_ns - s.moved_ns - s.patience_ns))?;
    let cause = cause(table, graph, ends, at, circle);
    let op = circle.front.map(|f| StalledOp {
        kind: f.op.map(|op| op.function.clone()).unwrap_or_default(),
        number: f.number,
    });
    let pair = || {
        let op = circle.chairs.iter().find_map(|c| c.pairs().next());
        op.map(|op| StalledOp { kind: op.function.clone(), number: op.number })
    };
    let (states, n_states) = states(table, circle, &cause.suspects);
    let victims =
        waiting.iter().filter(|c| **c != at).filter_map(|c| table.circles.get(*c).map(|c| c.id.clone()));
    Some(Stall {
        comm: circle.id.clone(),
        comm_name: circle.name.to_owned(),
        op: op.or_else(pair).unwrap_or_default(),
        since: seconds(own.moved_ns),
        after_s: seconds(table.now_ns - own.moved_ns),
        expected_s: seconds(own.patience_ns),
        shape: cause.shape,
        text: cause.text,
        states,
        n_states,
        suspects: cause.suspects,
        victims: victims.take(MAX_VICTIMS).collect(),
    })
}

/// Whether a circle also waits for ranks that are not what holds all up.
fn awaits_others(table: &Table<'_>, graph: &Graph, circle: usize, ends: &BTreeSet<u32>) -> bool {
    let awaited = table.circles.get(circle).map(|c| awaited(table, c)).unwrap_or_default();
    awaited.iter().any(|c| !ends.contains(&graph.knot_of_row(c.row)))
}

struct Cause {
    shape: Shape,
    suspects: Vec<u32>,
    text: String,
}

/// Rank of a row: in the job, else in the circle, else in any.
fn rank_of_row(table: &Table<'_>, circle: &Circle<'_>, row: usize) -> u32 {
    let seat = table.rows.get(row);
    let chair = circle.chairs.iter().find(|c| c.row == row).map(|c| c.rank);
    let any = || seat.and_then(|r| r.seat.digest.comms.first()?.rank);
    seat.and_then(|r| r.seat.digest.rank).or(chair).or_else(any).unwrap_or_default()
}

fn cause(table: &Table<'_>, graph: &Graph, ends: &BTreeSet<u32>, at: usize, circle: &Circle<'_>) -> Cause {
    let rows: Vec<usize> = ends
        .iter()
        .filter(|end| graph.knots.get(**end as usize).is_some_and(|k| k.len() == 1))
        .flat_map(|end| graph.members(*end))
        .filter_map(|node| if let Node::Row(row) = node { Some(row) } else { None })
        .collect();
    let ranks = |rows: &[usize]| -> Vec<u32> {
        let set: BTreeSet<u32> = rows.iter().map(|r| rank_of_row(table, circle, *r)).collect();
        set.into_iter().collect()
    };
    let state = |row: usize| table.rows.get(row).map(|r| r.seat.state);
    let pick =
        |keep: &dyn Fn(usize) -> bool| -> Vec<usize> { rows.iter().copied().filter(|r| keep(*r)).collect() };
    let chair_of = |row: usize| circle.chairs.iter().find(|c| c.row == row);
    let stands = |row: usize, stand: Stand| chair_of(row).is_some_and(|c| c.stand == stand);
    let op = called_op(circle);

    let broken =
        pick(&|r| table.rows.get(r).is_some_and(|row| !row.is_silent && row.is_broken(table.now_ns)));
    if let Some(first) = broken.first() {
        let how = match state(*first) {
            Some(ProcessState::Stopped) => "stopped",
            Some(ProcessState::Zombie) => "a zombie",
            Some(ProcessState::Uninterruptible) => "hanging in the kernel",
            _ => "gone",
        };
        let suspects = ranks(&broken);
        let text = format!("{} {how}; the others wait in {op}", are(&suspects));
        return Cause { shape: Shape::Process, suspects, text };
    }
    let odd: Vec<&Chair<'_>> = circle.chairs.iter().filter(|c| c.stand == Stand::Different).collect();
    if !odd.is_empty() {
        return mismatch(table, circle, &odd);
    }
    let is_silent = |r: usize| table.rows.get(r).is_some_and(|row| row.is_silent);
    // Whoever is heard and has not come is known to hold the others up; of one that is not heard nothing is known.
    let never_heard = pick(&|r| stands(r, Stand::Never) && !is_silent(r));
    if !never_heard.is_empty() {
        return missing(table, circle, &ranks(&never_heard), &op);
    }
    let silent = pick(&is_silent);
    if !silent.is_empty() {
        let suspects = ranks(&silent);
        let hosts: BTreeSet<&str> =
            silent.iter().filter_map(|r| Some(table.nodes.get(table.rows.get(*r)?.node)?.name)).collect();
        let hosts: Vec<&str> = hosts.into_iter().take(8).collect();
        let text = format!(
            "nothing is heard of {}, on {}; the others wait in {op}",
            list(&suspects),
            hosts.join(", ")
        );
        return Cause { shape: Shape::Silent, suspects, text };
    }
    let never = pick(&|r| stands(r, Stand::Never));
    if !never.is_empty() {
        return missing(table, circle, &ranks(&never), &op);
    }
    let waits_for_gpu = |r: usize| {
        let pair = |c: &Chair<'_>| c.pairs().any(|op| stand_of(op) == Stand::NotStarted);
        stands(r, Stand::NotStarted) || chair_of(r).is_some_and(pair)
    };
    let absent = pick(&|r| !waits_for_gpu(r));
    if !absent.is_empty() {
        let suspects = ranks(&absent);
        let text = format!("{} not at the other end of {op}", are(&suspects));
        return Cause { shape: Shape::MissingPeer, suspects, text };
    }
    let knot = ends.iter().find(|end| graph.knots.get(**end as usize).is_some_and(|k| k.len() > 1));
    if let Some(knot) = knot {
        return around(table, graph, circle, *knot);
    }
    if !rows.is_empty() {
        let suspects = ranks(&rows);
        let text = format!(
            "the kernel of {op} does not start on {}: something earlier is stuck on the GPU",
            list(&suspects)
        );
        return Cause { shape: Shape::NotStarted, suspects, text };
    }
    // The end is a communicator in which all that are seen have come.
    let end = ends.iter().flat_map(|end| graph.members(*end)).find_map(|n| match n {
        Node::Circle(c) => table.circles.get(c),
        Node::Row(_) => None,
    });
    crate::network::cause(table, end.unwrap_or(table.circles.get(at).unwrap_or(circle)))
}

impl From<(Shape, Vec<u32>, String)> for Cause {
    fn from((shape, mut suspects, text): (Shape, Vec<u32>, String)) -> Self {
        suspects.truncate(MAX_SUSPECTS);
        Self { shape, suspects, text }
    }
}

fn missing(table: &Table<'_>, circle: &Circle<'_>, never: &[u32], op: &str) -> Cause {
    let entered: BTreeSet<u32> =
        circle.chairs.iter().filter(|c| c.stand.is_inside()).map(|c| table.rank_of(c)).collect();
    let entered: Vec<u32> = entered.into_iter().collect();
    if entered.len() * FEW <= never.len() && !entered.is_empty() {
        let text = format!(
            "only {} {op}: a call too many, or all others are held up ({})",
            if entered.len() == 1 {
                format!("rank {} has entered", entered.first().copied().unwrap_or(0))
            } else {
                format!("{} have entered", list(&entered))
            },
            list(never)
        );
        return (Shape::NeverEntered, entered, text).into();
    }
    let has = if never.len() == 1 { "has" } else { "have" };
    let text = format!("{} {has} not entered {op}, in which {}", list(never), waits(&entered));
    (Shape::NeverEntered, never.to_vec(), text).into()
}

fn mismatch(table: &Table<'_>, circle: &Circle<'_>, odd: &[&Chair<'_>]) -> Cause {
    let number = circle.front.map_or(0, |f| f.number);
    let usual: Vec<u32> = circle
        .chairs
        .iter()
        .filter(|c| c.stand.is_inside() && c.stand != Stand::Different)
        .map(|c| table.rank_of(c))
        .collect();
    let mut suspects: Vec<u32> = odd.iter().map(|c| table.rank_of(c)).collect();
    let first = odd.first().and_then(|c| c.call(number)).map(crate::places::call).unwrap_or_default();
    let others = circle.front.and_then(|f| f.op).map(crate::places::call).unwrap_or_default();
    let text = format!("call {number}: {} called {first}, {} called {others}", list(&suspects), list(&usual));
    // One against one: either may be wrong.
    if usual.len() <= odd.len() {
        suspects.extend(usual);
    }
    suspects.sort_unstable();
    (Shape::Mismatch, suspects, text).into()
}

/// Ranks that wait for each other around a circle.
fn around(table: &Table<'_>, graph: &Graph, circle: &Circle<'_>, knot: u32) -> Cause {
    let mut rows = BTreeSet::new();
    let mut circles = BTreeSet::new();
    for node in graph.members(knot) {
        match node {
            Node::Row(row) => rows.insert(row),
            Node::Circle(c) => circles.insert(c),
        };
    }
    // A send or receive without its other side, while the one who owes it waits for something later.
    let (mut owing, mut waiting) = (BTreeSet::new(), BTreeSet::new());
    for c in circles.iter().filter_map(|c| table.circles.get(*c)) {
        for chair in &c.chairs {
            for op in chair.pairs() {
                if let Partner::Missing(row) = partner(c, chair, op) {
                    owing.insert(row);
                    waiting.insert(chair.row);
                }
            }
        }
    }
    // Who waits in vain itself passes on what it suffers.
    owing.retain(|row| rows.contains(row) && !waiting.contains(row));
    let of = |rows: &BTreeSet<usize>| -> Vec<u32> {
        let set: BTreeSet<u32> = rows.iter().map(|r| rank_of_row(table, circle, *r)).collect();
        set.into_iter().collect()
    };
    let names: Vec<String> =
        circles.iter().filter_map(|c| table.circles.get(*c)).map(called).take(4).collect();
    if !owing.is_empty() {
        let suspects = of(&owing);
        let text = format!(
            "{} gone on without {} side of a send or receive, and {} in {}",
            has(&suspects),
            if suspects.len() == 1 { "its" } else { "their" },
            if suspects.len() == 1 { "waits" } else { "wait" },
            names.join(" and ")
        );
        return (Shape::UnmatchedP2p, suspects, text).into();
    }
    if rows.len() == 1 {
        // One process with several GPUs: some of its ranks wait for others of its own.
        let awaited = awaited(table, circle);
        let ranks = |stand: Stand| -> Vec<u32> {
            awaited.iter().filter(|c| c.stand == stand).map(|c| c.rank).collect()
        };
        let never = ranks(Stand::Never);
        if !never.is_empty() {
            return missing(table, circle, &never, &called_op(circle));
        }
        let stuck = ranks(Stand::NotStarted);
        if !stuck.is_empty() {
            let text = format!("the kernel of {} does not start on {}", called_op(circle), list(&stuck));
            return (Shape::NotStarted, stuck, text).into();
        }
    }
    let suspects = of(&rows);
    if suspects.len() < 2 {
        let text = format!("for whom {} in {} does not show", waits(&suspects), names.join(" and "));
        return (Shape::Unclear, suspects, text).into();
    }
    let text = format!(
        "each of {} waits for another of them, across {}: a call left out or made too many, or calls in different orders",
        list(&suspects),
        names.join(" and ")
    );
    (Shape::Knot, suspects, text).into()
}

/// The operation that a circle stands at, in words.
pub(crate) fn called_op(circle: &Circle<'_>) -> String {
    if let Some(front) = circle.front {
        let kind = front.op.map_or("call", |op| &*op.function);
        return format!("{kind} {} of {}", front.number, called(circle));
    }
    let op = circle.chairs.iter().find_map(|c| c.pairs().next());
    op.map_or_else(|| called(circle), |op| format!("{} {} of {}", op.function, op.number, called(circle)))
}

fn has(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "has" } else { "have" })
}

fn are(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "is" } else { "are" })
}

/// The verb for one or for several.
pub(crate) fn verb(ranks: &[u32], one: &'static str, several: &'static str) -> &'static str {
    if ranks.len() == 1 { one } else { several }
}

fn waits(ranks: &[u32]) -> String {
    format!("{} {}", list(ranks), if ranks.len() == 1 { "waits" } else { "wait" })
}

/// `rank 3`, `ranks 0-2,5`.
pub(crate) fn list(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, crate::tree::ranges(ranks))
}

fn states(table: &Table<'_>, circle: &Circle<'_>, suspects: &[u32]) -> (Vec<RankState>, Vec<(String, u32)>) {
    let awaited: BTreeSet<(u32, usize)> = awaited(table, circle).iter().map(|c| (c.rank, c.row)).collect();
    let mut counts: std::collections::BTreeMap<&'static str, u32> = std::collections::BTreeMap::new();
    let mut chairs: Vec<(u8, u32, &Chair<'_>)> = Vec::new();
    for chair in &circle.chairs {
        *counts.entry(place(table, circle, chair, false).name()).or_insert(0) += 1;
        let rank = table.rank_of(chair);
        let order = if suspects.contains(&rank) {
            0
        } else {
            u8::from(!awaited.contains(&(chair.rank, chair.row))) + 1
        };
        chairs.push((order, rank, chair));
    }
    chairs.sort_by_key(|(order, rank, _)| (*order, *rank));
    let state = |rank: u32, chair: &Chair<'_>, circle: &Circle<'_>| {
        let at = place(table, circle, chair, true);
        let row = table.rows.get(chair.row);
        RankState {
            rank,
            host: row.and_then(|r| table.nodes.get(r.node)).map_or("", |n| n.name).to_owned(),
            pid: row.map_or(0, |r| r.seat.digest.pid),
            state: at.name().to_owned(),
            detail: detail(&at),
        }
    };
    let mut out: Vec<RankState> = Vec::new();
    // Suspects of another communicator, as they stand there.
    let here: BTreeSet<u32> = chairs.iter().map(|(_, rank, _)| *rank).collect();
    for rank in suspects.iter().filter(|r| !here.contains(r)) {
        let row = table.rows.iter().find(|r| r.seat.digest.rank == Some(*rank));
        let chair = row.and_then(|r| {
            let all = r
                .chairs
                .iter()
                .filter_map(|(c, i)| Some((table.circles.get(*c)?, table.circles.get(*c)?.chairs.get(*i)?)));
            all.max_by_key(|(c, chair)| (chair.stand.is_inside(), c.size))
        });
        out.extend(chair.map(|(circle, chair)| state(*rank, chair, circle)));
    }
    out.extend(
        chairs.iter().take(MAX_STATES.saturating_sub(out.len())).map(|(_, rank, c)| state(*rank, c, circle)),
    );
    (out, counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect())
}

/// For the view: ranks of the job that a circle's front waits for.
pub(crate) fn waiting_for(table: &Table<'_>, circle: &Circle<'_>, most: usize) -> Vec<u32> {
    let mut out: BTreeSet<u32> = awaited(table, circle).iter().map(|c| table.rank_of(c)).collect();
    if circle.front.is_none() && circle.is_inside {
        let peers = circle.chairs.iter().flat_map(|c| c.pairs().filter_map(|op| op.peer));
        out.extend(peers.map(|p| job_rank(table, circle, p)));
    }
    out.into_iter().take(most).collect()
}
