//! The ledger as a view, and what shows in it without any operation.

use std::collections::{BTreeMap, BTreeSet};

use super::{sees_operations, unseen};
use crate::digest::{CommDigest, ProcessState, SeenBy};
use crate::event::{RankState, Shape, Stall, seconds};
use crate::history::History;
use crate::ledger::{Group, Ledger, Member, Stage};
use crate::outside;
use crate::stall::waiting_for;
use crate::standing::standing;
use crate::view::{Comm, CommRank, Front, JobState, MAX_WAITING_FOR, Node, Process, Sees, View};
use crate::waits::Waits;
use crate::words::list;

/// From processes alone it is not visible whether a rank waits, so a job must have had time to end.
const BROKEN_ALONE_NS: i64 = 15_000_000_000;
/// A process may have been seen so much earlier than the end of the one that it follows.
const FOLLOWED_NS: i64 = 2_000_000_000;
/// Before the first operation of a job whose operations would show.
const BROKEN_AT_START_NS: i64 = 5_000_000_000;
/// As above, in the kernel without a break: loading of large files is not one such wait, a driver that hangs is.
const HANGS_AT_START_NS: i64 = 60_000_000_000;
/// Sentences on what cannot be seen.
const MAX_SENTENCES: usize = 16;

type Histories = BTreeMap<(String, u32), History>;

pub(super) fn view(ledger: &Ledger<'_>, waits: &Waits, histories: &Histories, stalls: &[Stall]) -> View {
    let nodes = ledger.nodes.iter().map(|n| Node {
        name: n.name.to_owned(),
        age_ns: n.age_ns,
        is_silent: n.is_silent,
        n_processes: n.n_processes,
        notes: n.notes.to_vec(),
    });
    let mut processes: Vec<Process> = ledger.members.iter().map(process).collect();
    let all_ended = ledger.groups.iter().all(|c| c.is_ended);
    let shown = ledger.groups.iter().enumerate().filter(|(_, c)| all_ended || !c.is_ended);
    let comms: Vec<Comm> = shown
        .map(|(index, group)| {
            let history = histories.get(&(group.id.clone(), group.size));
            let mut comm = comm(ledger, waits, index, group, history);
            comm.is_stalled = stalls.iter().any(|s| s.comm == comm.id || s.victims.contains(&comm.id));
            for member in &comm.members {
                if let (Some(late), Some(process)) = (member.late_ms, processes.get_mut(member.process)) {
                    process.late_ms = Some(process.late_ms.map_or(late, |l| l.max(late)));
                }
            }
            comm
        })
        .collect();
    let sees =
        ledger.members.iter().map(|r| r.word.digest.seen_by).max().map_or(Sees::Processes, |s| match s {
            SeenBy::Process => Sees::Processes,
            SeenBy::Ras => Sees::Ras,
            SeenBy::Ring => Sees::Plugin,
        });
    let is_running = histories.values().any(|t| t.rhythm.is_ready());
    View {
        at_ns: ledger.now_ns,
        job: match (ledger.members.is_empty(), is_running) {
            (true, _) => JobState::Unseen,
            (false, false) => JobState::Starting,
            (false, true) => JobState::Running,
        },
        sees,
        cannot_see: cannot_see(ledger, sees),
        nodes: nodes.collect(),
        processes,
        comms,
        slowest: None,
        stalls: Vec::new(),
        differing: histories.values().find_map(|history| history.differing.text().map(str::to_owned)),
    }
}

fn process(member: &Member<'_>) -> Process {
    let digest = &member.word.digest;
    Process {
        rank: digest.rank,
        local_rank: digest.local_rank,
        node: member.node,
        pid: digest.pid,
        state: member.word.state,
        state_since_ns: member.word.state_since_ns,
        wchan: digest.wchan.clone(),
        cpu: member.word.cpu,
        seen_by: digest.seen_by,
        is_silent: member.is_silent,
        is_ended: digest.is_ended,
        lost: digest.lost,
        late_ms: None,
        outside: outside::outside(&digest.stack, digest.wchan.as_deref()),
    }
}

fn comm(
    ledger: &Ledger<'_>,
    waits: &Waits,
    index: usize,
    group: &Group<'_>,
    history: Option<&History>,
) -> Comm {
    let (ops_per_s, bytes_per_s) = history.map_or((0.0, 0.0), History::rates);
    let inside = |c: &&crate::ledger::Track<'_>| c.stage.is_inside() || c.stage == Stage::Finished;
    let has_front = group.front.is_some();
    let pair = group.tracks.iter().find_map(|c| Some((c, c.pairs().next()?))).filter(|_| !has_front);
    let front = group.front.map(|f| Front {
        number: f.number,
        function: f.op.map(|op| op.function.clone()).unwrap_or_default(),
        count: f.op.map_or(0, |op| op.count),
        datatype: f.op.map(|op| op.datatype.clone()).unwrap_or_default(),
        root: f.op.and_then(|op| op.root),
        is_p2p: false,
        since_ns: f.since_ns,
        entered: group.tracks.iter().filter(inside).count() as u32,
        started: group.tracks.iter().filter(|c| matches!(c.stage, Stage::Started | Stage::Finished)).count()
            as u32,
        finished: group.tracks.iter().filter(|c| c.stage == Stage::Finished).count() as u32,
    });
    let pair = pair.map(|(track, op)| Front {
        number: op.number,
        function: op.function.clone(),
        count: op.count,
        datatype: op.datatype.clone(),
        root: None,
        is_p2p: true,
        since_ns: track.here(op.enqueued_ns),
        entered: group.tracks.iter().filter(|c| c.pairs().next().is_some()).count() as u32,
        started: 0,
        finished: 0,
    });
    let moved_ns = if group.is_inside { waits.moved_ns(index) } else { group.moved_ns };
    let members = group.tracks.iter().map(|c| {
        let late = history.and_then(|t| t.late.of(c.rank));
        CommRank {
            rank: c.rank,
            process: c.member,
            collectives: c.digest.collectives,
            done: c.digest.collectives_done,
            p2p: c.digest.p2p,
            standing: standing(ledger, group, c, false),
            late_ms: late.map(|(ms, _)| ms),
            late_share: late.map(|(_, share)| share),
        }
    });
    Comm {
        id: group.id.clone(),
        name: group.name.to_owned(),
        size: if group.size == 0 { group.tracks.len() as u32 } else { group.size },
        ranks_seen: group.tracks.len() as u32,
        is_ended: group.is_ended,
        members: members.collect(),
        ops_done: history.map_or(0, |t| t.ops_done),
        ops_per_s,
        bytes_per_s,
        busbw_gbs: history.and_then(|t| t.late.busbw_gbs()),
        front: front.or(pair),
        in_flight: group.tracks.iter().map(|c| c.digest.n_in_flight).max().unwrap_or(0),
        waiting_for: waiting_for(ledger, group, MAX_WAITING_FOR),
        still_ns: (ledger.known_ns - moved_ns).max(0),
        patience_ns: history
            .map_or(0, |t| if group.is_inside { t.patience.inside_ns } else { t.patience.outside_ns }),
        usual_ns: history.and_then(|t| t.rhythm.usual_ns()),
        is_stalled: false,
    }
}

fn cannot_see(ledger: &Ledger<'_>, sees: Sees) -> Vec<String> {
    let mut out = Vec::new();
    let live = || ledger.members.iter().filter(|r| r.word.state != ProcessState::Dead);
    match sees {
        Sees::Plugin => {}
        Sees::Ras => out.push(
            "no plugin: ends of operations, sends, receives, kernels and proxies are not visible".to_owned(),
        ),
        Sees::Processes => out.push("neither plugin nor RAS: no operation is visible".to_owned()),
    }
    if sees == Sees::Plugin {
        let without: BTreeSet<u32> = live()
            .filter(|r| r.word.digest.seen_by != SeenBy::Ring)
            .filter_map(|r| r.word.digest.rank)
            .collect();
        if !without.is_empty() {
            let without: Vec<u32> = without.into_iter().collect();
            out.push(format!("no ring of {} is read", list(&without)));
        }
    }
    let wanted = live().filter_map(|r| r.word.digest.world_size).max().unwrap_or(0);
    let seen: BTreeSet<u32> = ledger.members.iter().filter_map(|r| r.word.digest.rank).collect();
    if wanted > 0 && (seen.len() as u32) < wanted && wanted <= 1 << 20 {
        let missing: Vec<u32> = (0..wanted).filter(|r| !seen.contains(r)).collect();
        out.push(format!("no agent reports {}", list(&missing)));
    }
    let lost = live().filter(|r| r.word.digest.lost > 0).count();
    if lost > 0 {
        out.push(format!("the rings of {lost} processes have lost records"));
    }
    for node in &ledger.nodes {
        if node.is_silent {
            out.push(format!("the agent of {} is silent", node.name));
        }
    }
    out.truncate(MAX_SENTENCES);
    out
}

/// No rank waits, and none comes back, for longer than ever before.
pub(super) fn all_outside(ledger: &Ledger<'_>, histories: &Histories) -> Option<Stall> {
    let live = || ledger.groups.iter().filter(|c| !c.is_ended);
    let ready = || {
        live().filter_map(|c| {
            let history = histories.get(&(c.id.clone(), c.size))?;
            history.rhythm.is_ready().then_some((c, history))
        })
    };
    let patience_ns = ready().map(|(_, t)| t.patience.outside_ns).max()?;
    let moved_ns = live().map(|c| c.moved_ns).max()?;
    if ledger.known_ns - moved_ns <= patience_ns {
        return None;
    }
    let (group, _) = ready().max_by_key(|(c, _)| c.size)?;
    let text =
        format!("all ranks are outside of any operation, for {:.0} s", seconds(ledger.known_ns - moved_ns));
    Some(Stall {
        comm: group.id.clone(),
        comm_name: group.name.to_owned(),
        since: seconds(moved_ns),
        after_s: seconds(ledger.now_ns - moved_ns),
        expected_s: seconds(patience_ns),
        ..unseen(Shape::Outside, text)
    })
}

/// Where no operation can be seen, or none has been yet, a process that is stopped or gone is all that shows.
pub(super) fn broken_alone(ledger: &Ledger<'_>) -> Option<Stall> {
    let has_begun = |c: &CommDigest| c.collectives > 0 || c.p2p > 0 || !c.in_flight.is_empty();
    let sees = ledger.members.iter().any(|r| sees_operations(r.word.digest.seen_by));
    let would_show = sees || ledger.members.iter().any(|r| r.word.digest.would_show);
    let has_begun = ledger.members.iter().any(|r| r.word.digest.comms.iter().any(has_begun));
    if sees && has_begun {
        return None;
    }
    // What would show and does not has not come to its first operation: it has nothing to end from. Its files may well take
    // their time.
    let is_at_start = would_show && !has_begun;
    let after_ns = |member: &Member<'_>| match member.word.state {
        _ if !is_at_start => BROKEN_ALONE_NS,
        ProcessState::Uninterruptible => HANGS_AT_START_NS,
        _ => BROKEN_AT_START_NS,
    };
    let is_stuck = |r: &&Member<'_>| {
        r.is_broken(ledger.now_ns) && !r.is_silent && ledger.now_ns - r.word.state_since_ns > after_ns(r)
    };
    // A loop around the job started it again: the new process of the rank came when the old one had ended.
    let is_followed = |r: &&Member<'_>| {
        let is_next = |other: &Member<'_>| {
            other.word.digest.rank == r.word.digest.rank
                && other.node == r.node
                && other.word.state == ProcessState::Alive
                && other.word.state_since_ns + FOLLOWED_NS >= r.word.state_since_ns
        };
        r.is_over() && ledger.members.iter().any(is_next)
    };
    let broken: Vec<&Member<'_>> = ledger
        .members
        .iter()
        .filter(is_stuck)
        .filter(|r| r.word.digest.rank.is_some() && !is_followed(r))
        .collect();
    let since = broken.iter().map(|r| r.word.state_since_ns).min()?;
    if broken.len() == ledger.members.len() {
        return None;
    }
    let suspects: BTreeSet<u32> = broken.iter().filter_map(|r| r.word.digest.rank).collect();
    let suspects: Vec<u32> = suspects.into_iter().collect();
    let text = format!("{}, while the others live", how_broken(&broken));
    let states: Vec<RankState> = broken
        .iter()
        .map(|r| {
            let state = match r.word.state {
                ProcessState::Stopped => crate::standing::Standing::Stopped,
                ProcessState::Zombie => crate::standing::Standing::Zombie,
                ProcessState::Dead => crate::standing::Standing::Dead,
                _ => crate::standing::Standing::Uninterruptible { wchan: r.word.digest.wchan.clone() },
            };
            RankState {
                rank: r.word.digest.rank.unwrap_or_default(),
                host: ledger.nodes.get(r.node).map_or("", |n| n.name).to_owned(),
                pid: r.word.digest.pid,
                state: state.name().to_owned(),
                detail: crate::standing::detail(&state),
            }
        })
        .take(crate::event::MAX_STATES)
        .collect();
    Some(Stall {
        since: seconds(since),
        after_s: seconds(ledger.now_ns - since),
        states,
        suspects,
        ..unseen(Shape::Process, text)
    })
}

/// `rank 1 is stopped and ranks 2-3 are gone`.
fn how_broken(broken: &[&Member<'_>]) -> String {
    let mut by_state: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for member in broken {
        let how = match member.word.state {
            ProcessState::Stopped => "stopped",
            ProcessState::Zombie => "a zombie",
            ProcessState::Dead => "gone",
            _ => "hanging in the kernel",
        };
        by_state.entry(how).or_default().extend(member.word.digest.rank);
    }
    let told = by_state.iter().map(|(how, ranks)| {
        format!("{} {how}", crate::words::are(&ranks.iter().copied().collect::<Vec<_>>()))
    });
    told.collect::<Vec<_>>().join(" and ")
}

/// In words.
pub(super) fn how_ended(view: &View) -> String {
    let n = view.processes.len();
    let orderly = view.processes.iter().filter(|p| p.is_ended).count();
    if orderly == n {
        return format!("all {n} ranks closed their communicators normally");
    }
    if !view.processes.iter().any(|p| sees_operations(p.seen_by)) {
        return format!("all {n} processes are gone");
    }
    let left: Vec<u32> = view.processes.iter().filter(|p| !p.is_ended).filter_map(|p| p.rank).collect();
    format!("all {n} ranks are gone; {} did not close their communicators", list(&left))
}
