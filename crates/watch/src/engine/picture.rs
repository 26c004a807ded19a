//! The table as a view, and what shows in it without any operation.

use std::collections::{BTreeMap, BTreeSet};

use super::{sees_operations, unseen};
use crate::digest::{CommDigest, ProcessState, SeenBy};
use crate::event::{RankState, Shape, Stall, seconds};
use crate::graph::Graph;
use crate::outside;
use crate::places::place;
use crate::stall::{list, waiting_for};
use crate::table::{Circle, Row, Stand, Table};
use crate::track::Track;
use crate::view::{Comm, Front, JobState, MAX_WAITING_FOR, Member, Node, Process, Sees, View};

/// Of processes alone: whether anybody waits cannot be seen, so that a job must have had time to end.
const BROKEN_ALONE_NS: i64 = 15_000_000_000;
/// Before the first operation of a job whose operations would show.
const BROKEN_AT_START_NS: i64 = 5_000_000_000;
/// As above, in the kernel without a break: loading of large files is not one such wait, a driver that hangs is.
const HANGS_AT_START_NS: i64 = 60_000_000_000;
/// Sentences on what cannot be seen.
const MAX_SENTENCES: usize = 16;

type Tracks = BTreeMap<(String, u32), Track>;

pub(super) fn view(table: &Table<'_>, graph: &Graph, tracks: &Tracks, stalls: &[Stall]) -> View {
    let nodes = table.nodes.iter().map(|n| Node {
        name: n.name.to_owned(),
        age_ns: n.age_ns,
        is_silent: n.is_silent,
        n_processes: n.n_processes,
        notes: n.notes.to_vec(),
    });
    let mut processes: Vec<Process> = table.rows.iter().map(process).collect();
    let all_ended = table.circles.iter().all(|c| c.is_ended);
    let shown = table.circles.iter().enumerate().filter(|(_, c)| all_ended || !c.is_ended);
    let comms: Vec<Comm> = shown
        .map(|(index, circle)| {
            let track = tracks.get(&(circle.id.clone(), circle.size));
            let mut comm = comm(table, graph, index, circle, track);
            comm.is_stalled = stalls.iter().any(|s| s.comm == comm.id || s.victims.contains(&comm.id));
            for member in &comm.members {
                if let (Some(late), Some(process)) = (member.late_ms, processes.get_mut(member.process)) {
                    process.late_ms = Some(process.late_ms.map_or(late, |l| l.max(late)));
                }
            }
            comm
        })
        .collect();
    let sees = table.rows.iter().map(|r| r.seat.digest.seen_by).max().map_or(Sees::Processes, |s| match s {
        SeenBy::Process => Sees::Processes,
        SeenBy::Ras => Sees::Ras,
        SeenBy::Ring => Sees::Plugin,
    });
    let is_running = tracks.values().any(|t| t.rhythm.is_ready());
    View {
        at_ns: table.now_ns,
        job: match (table.rows.is_empty(), is_running) {
            (true, _) => JobState::Unseen,
            (false, false) => JobState::Starting,
            (false, true) => JobState::Running,
        },
        sees,
        cannot_see: cannot_see(table, sees),
        nodes: nodes.collect(),
        processes,
        comms,
        slowest: None,
        stalls: Vec::new(),
    }
}

fn process(row: &Row<'_>) -> Process {
    let digest = &row.seat.digest;
    Process {
        rank: digest.rank,
        local_rank: digest.local_rank,
        node: row.node,
        pid: digest.pid,
        state: row.seat.state,
        state_since_ns: row.seat.state_since_ns,
        wchan: digest.wchan.clone(),
        cpu: row.seat.cpu,
        seen_by: digest.seen_by,
        is_silent: row.is_silent,
        is_ended: digest.is_ended,
        lost: digest.lost,
        late_ms: None,
        outside: outside::outside(&digest.stack, digest.wchan.as_deref()),
    }
}

fn comm(table: &Table<'_>, graph: &Graph, index: usize, circle: &Circle<'_>, track: Option<&Track>) -> Comm {
    let (ops_per_s, bytes_per_s) = track.map_or((0.0, 0.0), Track::rates);
    let inside = |c: &&crate::table::Chair<'_>| c.stand.is_inside() || c.stand == Stand::Finished;
    let has_front = circle.front.is_some();
    let pair = circle.chairs.iter().find_map(|c| Some((c, c.pairs().next()?))).filter(|_| !has_front);
    let front = circle.front.map(|f| Front {
        number: f.number,
        function: f.op.map(|op| op.function.clone()).unwrap_or_default(),
        count: f.op.map_or(0, |op| op.count),
        datatype: f.op.map(|op| op.datatype.clone()).unwrap_or_default(),
        root: f.op.and_then(|op| op.root),
        is_p2p: false,
        since_ns: f.since_ns,
        entered: circle.chairs.iter().filter(inside).count() as u32,
        started: circle.chairs.iter().filter(|c| matches!(c.stand, Stand::Started | Stand::Finished)).count()
            as u32,
        finished: circle.chairs.iter().filter(|c| c.stand == Stand::Finished).count() as u32,
    });
    let pair = pair.map(|(chair, op)| Front {
        number: op.number,
        function: op.function.clone(),
        count: op.count,
        datatype: op.datatype.clone(),
        root: None,
        is_p2p: true,
        since_ns: chair.here(op.enqueued_ns),
        entered: circle.chairs.iter().filter(|c| c.pairs().next().is_some()).count() as u32,
        started: 0,
        finished: 0,
    });
    let moved_ns = if circle.is_inside { graph.moved_ns(index) } else { circle.moved_ns };
    let members = circle.chairs.iter().map(|c| {
        let late = track.and_then(|t| t.late.of(c.rank));
        Member {
            rank: c.rank,
            process: c.row,
            collectives: c.digest.collectives,
            done: c.digest.collectives_done,
            p2p: c.digest.p2p,
            place: place(table, circle, c, false),
            late_ms: late.map(|(ms, _)| ms),
            late_share: late.map(|(_, share)| share),
        }
    });
    Comm {
        id: circle.id.clone(),
        name: circle.name.to_owned(),
        size: if circle.size == 0 { circle.chairs.len() as u32 } else { circle.size },
        ranks_seen: circle.chairs.len() as u32,
        is_ended: circle.is_ended,
        members: members.collect(),
        ops_done: track.map_or(0, |t| t.ops_done),
        ops_per_s,
        bytes_per_s,
        busbw_gbs: track.and_then(|t| t.late.busbw_gbs()),
        front: front.or(pair),
        in_flight: circle.chairs.iter().map(|c| c.digest.n_in_flight).max().unwrap_or(0),
        waiting_for: waiting_for(table, circle, MAX_WAITING_FOR),
        still_ns: (table.known_ns - moved_ns).max(0),
        patience_ns: track
            .map_or(0, |t| if circle.is_inside { t.patience.inside_ns } else { t.patience.outside_ns }),
        usual_ns: track.and_then(|t| t.rhythm.usual_ns()),
        is_stalled: false,
    }
}

fn cannot_see(table: &Table<'_>, sees: Sees) -> Vec<String> {
    let mut out = Vec::new();
    let live = || table.rows.iter().filter(|r| r.seat.state != ProcessState::Dead);
    match sees {
        Sees::Plugin => {}
        Sees::Ras => out.push(
            "no plugin: ends of operations, sends and receives, kernels and proxies are not seen".to_owned(),
        ),
        Sees::Processes => out.push("neither plugin nor RAS: no operation is seen".to_owned()),
    }
    if sees == Sees::Plugin {
        let without: BTreeSet<u32> = live()
            .filter(|r| r.seat.digest.seen_by != SeenBy::Ring)
            .filter_map(|r| r.seat.digest.rank)
            .collect();
        if !without.is_empty() {
            let without: Vec<u32> = without.into_iter().collect();
            out.push(format!("no ring is read of {}", list(&without)));
        }
    }
    let wanted = live().filter_map(|r| r.seat.digest.world_size).max().unwrap_or(0);
    let seen: BTreeSet<u32> = table.rows.iter().filter_map(|r| r.seat.digest.rank).collect();
    if wanted > 0 && (seen.len() as u32) < wanted && wanted <= 1 << 20 {
        let missing: Vec<u32> = (0..wanted).filter(|r| !seen.contains(r)).collect();
        out.push(format!("no agent tells of {}", list(&missing)));
    }
    let lost = live().filter(|r| r.seat.digest.lost > 0).count();
    if lost > 0 {
        out.push(format!("the rings of {lost} processes have lost something"));
    }
    for node in &table.nodes {
        if node.is_silent {
            out.push(format!("the agent of {} is silent", node.name));
        }
    }
    out.truncate(MAX_SENTENCES);
    out
}

/// Nobody waits, and nobody comes back, for longer than ever.
pub(super) fn all_outside(table: &Table<'_>, tracks: &Tracks) -> Option<Stall> {
    let live = || table.circles.iter().filter(|c| !c.is_ended);
    let ready = || {
        live().filter_map(|c| {
            let track = tracks.get(&(c.id.clone(), c.size))?;
            track.rhythm.is_ready().then_some((c, track))
        })
    };
    let patience_ns = ready().map(|(_, t)| t.patience.outside_ns).max()?;
    let moved_ns = live().map(|c| c.moved_ns).max()?;
    if table.known_ns - moved_ns <= patience_ns {
        return None;
    }
    let (circle, _) = ready().max_by_key(|(c, _)| c.size)?;
    let text =
        format!("all ranks are outside of any operation, for {:.0} s", seconds(table.known_ns - moved_ns));
    Some(Stall {
        comm: circle.id.clone(),
        comm_name: circle.name.to_owned(),
        since: seconds(moved_ns),
        after_s: seconds(table.now_ns - moved_ns),
        expected_s: seconds(patience_ns),
        ..unseen(Shape::Outside, text)
    })
}

/// Where no operation can be seen, or none has been yet, a process that is stopped or gone is all that shows.
pub(super) fn broken_alone(table: &Table<'_>) -> Option<Stall> {
    let has_begun = |c: &CommDigest| c.collectives > 0 || c.p2p > 0 || !c.in_flight.is_empty();
    let sees = table.rows.iter().any(|r| sees_operations(r.seat.digest.seen_by));
    let would_show = sees || table.rows.iter().any(|r| r.seat.digest.would_show);
    let has_begun = table.rows.iter().any(|r| r.seat.digest.comms.iter().any(has_begun));
    if sees && has_begun {
        return None;
    }
    // What would show and does not has not come to its first operation: it has nothing to end from. Its files may well take
    // their time.
    let is_at_start = would_show && !has_begun;
    let after_ns = |row: &Row<'_>| match row.seat.state {
        _ if !is_at_start => BROKEN_ALONE_NS,
        ProcessState::Uninterruptible => HANGS_AT_START_NS,
        _ => BROKEN_AT_START_NS,
    };
    let is_stuck = |r: &&Row<'_>| {
        r.is_broken(table.now_ns) && !r.is_silent && table.now_ns - r.seat.state_since_ns > after_ns(r)
    };
    let broken: Vec<&Row<'_>> =
        table.rows.iter().filter(is_stuck).filter(|r| r.seat.digest.rank.is_some()).collect();
    let since = broken.iter().map(|r| r.seat.state_since_ns).min()?;
    let after_ns = broken.iter().map(|r| after_ns(r)).min()?;
    if broken.len() == table.rows.len() {
        return None;
    }
    let suspects: BTreeSet<u32> = broken.iter().filter_map(|r| r.seat.digest.rank).collect();
    let suspects: Vec<u32> = suspects.into_iter().collect();
    let text = format!("{}: stopped, gone or stuck in the kernel, while others live", list(&suspects));
    let states: Vec<RankState> = broken
        .iter()
        .map(|r| {
            let state = match r.seat.state {
                ProcessState::Stopped => crate::places::Place::Stopped,
                ProcessState::Zombie => crate::places::Place::Zombie,
                ProcessState::Dead => crate::places::Place::Dead,
                _ => crate::places::Place::Uninterruptible { wchan: r.seat.digest.wchan.clone() },
            };
            RankState {
                rank: r.seat.digest.rank.unwrap_or_default(),
                host: table.nodes.get(r.node).map_or("", |n| n.name).to_owned(),
                pid: r.seat.digest.pid,
                state: state.name().to_owned(),
                detail: crate::places::detail(&state),
            }
        })
        .take(crate::event::MAX_STATES)
        .collect();
    Some(Stall {
        since: seconds(since),
        after_s: seconds(table.now_ns - since),
        expected_s: seconds(after_ns),
        states,
        suspects,
        ..unseen(Shape::Process, text)
    })
}

/// In words.
pub(super) fn how_ended(view: &View) -> String {
    let n = view.processes.len();
    let orderly = view.processes.iter().filter(|p| p.is_ended).count();
    if orderly == n {
        return format!("all {n} ranks ended their communicators in good order");
    }
    if !view.processes.iter().any(|p| sees_operations(p.seen_by)) {
        return format!("all {n} processes are gone");
    }
    let left: Vec<u32> = view.processes.iter().filter(|p| !p.is_ended).filter_map(|p| p.rank).collect();
    format!("all {n} ranks are gone; {} did not end their communicators", list(&left))
}
