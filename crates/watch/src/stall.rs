//! Which communicators have stalled, and what holds them up.

use std::collections::BTreeSet;

use crate::digest::ProcessState;
use crate::event::{MAX_STATES, RankState, Shape, Stall, StalledOp, seconds};
use crate::ledger::{Group, Ledger, Stage, Track, stage_of};
use crate::standing::{called, called_op, detail, job_rank, standing};
use crate::waits::{Partner, WaitNode, Waits, awaited, partner};
use crate::words::{are, has, list, who_waits};

/// Others of whom one rank waits for at most this share of them made a call too many, rather than that all are late.
const FEW: usize = 4;
/// Suspects that a stall names.
const MAX_SUSPECTS: usize = 32;
/// Communicators that a stall lists as victims.
const MAX_VICTIMS: usize = 32;

/// A communicator without progress for too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Still {
    pub(crate) group: usize,
    pub(crate) moved_ns: i64,
    pub(crate) patience_ns: i64,
}

/// Stalls: communicators with a common cause are one.
pub(crate) fn stalls(ledger: &Ledger<'_>, waits: &Waits, still: &[Still]) -> Vec<Stall> {
    let mut causes: Vec<(BTreeSet<u32>, Vec<Still>)> = Vec::new();
    for one in still {
        let mut roots: BTreeSet<u32> = waits.roots(one.group).iter().copied().collect();
        let mut stills = vec![*one];
        causes.retain_mut(|(other, list)| {
            let apart = other.is_disjoint(&roots);
            if !apart {
                roots.append(other);
                stills.append(list);
            }
            apart
        });
        causes.push((roots, stills));
    }
    let mut out: Vec<Stall> =
        causes.iter().filter_map(|(roots, list)| stall(ledger, waits, roots, list)).collect();
    out.sort_by(|a, b| a.since.total_cmp(&b.since).then_with(|| a.comm.cmp(&b.comm)));
    out
}

fn stall(ledger: &Ledger<'_>, waits: &Waits, roots: &BTreeSet<u32>, list: &[Still]) -> Option<Stall> {
    // The communicator next to the cause of the stall is the most informative: of several, the one that waits longest.
    let direct = |group: usize| roots.iter().any(|root| waits.leads_to(group, *root));
    let inside = (0..ledger.groups.len()).filter(|c| {
        ledger.groups.get(*c).is_some_and(|c| c.is_inside)
            && waits.roots(*c).iter().any(|root| roots.contains(root))
    });
    let waiting: Vec<usize> = inside.collect();
    let since = |c: usize| ledger.groups.get(c).and_then(|c| c.front).map_or(i64::MAX, |f| f.since_ns);
    let odd =
        |c: usize| ledger.groups.get(c).is_some_and(|c| c.tracks.iter().any(|c| c.stage == Stage::Different));
    let tripped = |c: usize| list.iter().any(|s| s.group == c);
    // If some of the ranks it waits for wait elsewhere, that other place is more informative.
    let passes_on = |c: usize| awaits_others(ledger, waits, c, roots);
    let at = waiting
        .iter()
        .copied()
        .filter(|c| direct(*c))
        .min_by_key(|c| (!odd(*c), !tripped(*c), passes_on(*c), since(*c), *c));
    let at = at.or_else(|| list.iter().map(|s| s.group).min())?;
    let group = ledger.groups.get(at)?;
    let own = list
        .iter()
        .find(|s| s.group == at)
        .or_else(|| list.iter().max_by_key(|s| ledger.known_ns - s.moved_ns - s.patience_ns))?;
    let cause = cause(ledger, waits, roots, at, group);
    let op = group.front.map(|f| StalledOp {
        kind: f.op.map(|op| op.function.clone()).unwrap_or_default(),
        number: f.number,
    });
    let pair = || {
        let op = group.tracks.iter().find_map(|c| c.pairs().next());
        op.map(|op| StalledOp { kind: op.function.clone(), number: op.number })
    };
    let (states, n_states) = states(ledger, group, &cause.suspects);
    let victims =
        waiting.iter().filter(|c| **c != at).filter_map(|c| ledger.groups.get(*c).map(|c| c.id.clone()));
    Some(Stall {
        comm: group.id.clone(),
        comm_name: group.name.to_owned(),
        op: op.or_else(pair).unwrap_or_default(),
        since: seconds(own.moved_ns),
        after_s: seconds(ledger.now_ns - own.moved_ns),
        expected_s: seconds(own.patience_ns),
        shape: cause.shape,
        text: cause.text,
        states,
        n_states,
        suspects: cause.suspects,
        victims: victims.take(MAX_VICTIMS).collect(),
    })
}

/// Whether a communicator also waits for ranks that are not what holds all up.
fn awaits_others(ledger: &Ledger<'_>, waits: &Waits, group: usize, roots: &BTreeSet<u32>) -> bool {
    let awaited = ledger.groups.get(group).map(|c| awaited(ledger, c)).unwrap_or_default();
    awaited.iter().any(|c| !roots.contains(&waits.component_of_member(c.member)))
}

struct StallReason {
    shape: Shape,
    suspects: Vec<u32>,
    text: String,
}

/// Rank of a member: in the job, else in the communicator, else in any.
fn rank_of_member(ledger: &Ledger<'_>, group: &Group<'_>, member: usize) -> u32 {
    let word = ledger.members.get(member);
    let track = group.tracks.iter().find(|c| c.member == member).map(|c| c.rank);
    let any = || word.and_then(|r| r.word.digest.comms.first()?.rank);
    word.and_then(|r| r.word.digest.rank).or(track).or_else(any).unwrap_or_default()
}

fn cause(
    ledger: &Ledger<'_>,
    waits: &Waits,
    roots: &BTreeSet<u32>,
    at: usize,
    group: &Group<'_>,
) -> StallReason {
    let members: Vec<usize> = roots
        .iter()
        .filter(|root| waits.components.get(**root as usize).is_some_and(|k| k.len() == 1))
        .flat_map(|root| waits.nodes(*root))
        .filter_map(|node| if let WaitNode::Member(member) = node { Some(member) } else { None })
        .collect();
    let ranks = |members: &[usize]| -> Vec<u32> {
        let set: BTreeSet<u32> = members.iter().map(|r| rank_of_member(ledger, group, *r)).collect();
        set.into_iter().collect()
    };
    let state = |member: usize| ledger.members.get(member).map(|r| r.word.state);
    let pick = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
        members.iter().copied().filter(|r| keep(*r)).collect()
    };
    let track_of = |member: usize| group.tracks.iter().find(|c| c.member == member);
    let stands = |member: usize, stage: Stage| track_of(member).is_some_and(|c| c.stage == stage);
    let op = called_op(group);

    let broken = pick(&|r| {
        ledger.members.get(r).is_some_and(|member| !member.is_silent && member.is_broken(ledger.now_ns))
    });
    if let Some(first) = broken.first() {
        let how = match state(*first) {
            Some(ProcessState::Stopped) => "stopped",
            Some(ProcessState::Zombie) => "a zombie",
            Some(ProcessState::Uninterruptible) => "hanging in the kernel",
            _ => "gone",
        };
        let suspects = ranks(&broken);
        let text = format!("{} {how}; the others wait in {op}", are(&suspects));
        return StallReason { shape: Shape::Process, suspects, text };
    }
    let odd: Vec<&Track<'_>> = group.tracks.iter().filter(|c| c.stage == Stage::Different).collect();
    if !odd.is_empty() {
        return mismatch(ledger, group, &odd);
    }
    let is_silent = |r: usize| ledger.members.get(r).is_some_and(|member| member.is_silent);
    // A rank that reports and has not arrived is known to delay the others; about a silent rank nothing is known.
    let never_heard = pick(&|r| stands(r, Stage::Never) && !is_silent(r));
    if !never_heard.is_empty() {
        return missing(ledger, group, &ranks(&never_heard), &op);
    }
    let silent = pick(&is_silent);
    if !silent.is_empty() {
        let suspects = ranks(&silent);
        let hosts: BTreeSet<&str> = silent
            .iter()
            .filter_map(|r| Some(ledger.nodes.get(ledger.members.get(*r)?.node)?.name))
            .collect();
        let hosts: Vec<&str> = hosts.into_iter().take(8).collect();
        let text =
            format!("no agent reports {}, on {}; the others wait in {op}", list(&suspects), hosts.join(", "));
        return StallReason { shape: Shape::Silent, suspects, text };
    }
    let never = pick(&|r| stands(r, Stage::Never));
    if !never.is_empty() {
        return missing(ledger, group, &ranks(&never), &op);
    }
    let waits_for_gpu = |r: usize| {
        let pair = |c: &Track<'_>| c.pairs().any(|op| stage_of(op) == Stage::NotStarted);
        stands(r, Stage::NotStarted) || track_of(r).is_some_and(pair)
    };
    let absent = pick(&|r| !waits_for_gpu(r));
    if !absent.is_empty() {
        let suspects = ranks(&absent);
        let text = format!("{} not at the other end of {op}", are(&suspects));
        return StallReason { shape: Shape::MissingPeer, suspects, text };
    }
    let component =
        roots.iter().find(|root| waits.components.get(**root as usize).is_some_and(|k| k.len() > 1));
    if let Some(component) = component {
        return around(ledger, waits, group, *component);
    }
    if !members.is_empty() {
        let suspects = ranks(&members);
        let text = format!(
            "the kernel of {op} does not start on {}: something earlier is stuck on the GPU",
            list(&suspects)
        );
        return StallReason { shape: Shape::NotStarted, suspects, text };
    }
    // The end is a communicator in which all that are seen have come.
    let root = roots.iter().flat_map(|root| waits.nodes(*root)).find_map(|n| match n {
        WaitNode::Group(c) => ledger.groups.get(c),
        WaitNode::Member(_) => None,
    });
    crate::network::cause(ledger, root.unwrap_or(ledger.groups.get(at).unwrap_or(group)))
}

impl From<(Shape, Vec<u32>, String)> for StallReason {
    fn from((shape, mut suspects, text): (Shape, Vec<u32>, String)) -> Self {
        suspects.truncate(MAX_SUSPECTS);
        Self { shape, suspects, text }
    }
}

fn missing(ledger: &Ledger<'_>, group: &Group<'_>, never: &[u32], op: &str) -> StallReason {
    let entered: BTreeSet<u32> =
        group.tracks.iter().filter(|c| c.stage.is_inside()).map(|c| ledger.rank_of(c)).collect();
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
    let text = format!("{} {has} not entered {op}, in which {}", list(never), who_waits(&entered));
    (Shape::NeverEntered, never.to_vec(), text).into()
}

fn mismatch(ledger: &Ledger<'_>, group: &Group<'_>, odd: &[&Track<'_>]) -> StallReason {
    let number = group.front.map_or(0, |f| f.number);
    let usual: Vec<u32> = group
        .tracks
        .iter()
        .filter(|c| c.stage.is_inside() && c.stage != Stage::Different)
        .map(|c| ledger.rank_of(c))
        .collect();
    let mut suspects: Vec<u32> = odd.iter().map(|c| ledger.rank_of(c)).collect();
    let first = odd.first().and_then(|c| c.call(number)).map(crate::standing::call).unwrap_or_default();
    let others = group.front.and_then(|f| f.op).map(crate::standing::call).unwrap_or_default();
    let text = format!("call {number}: {} called {first}, {} called {others}", list(&suspects), list(&usual));
    // One against one: either may be wrong.
    if usual.len() <= odd.len() {
        suspects.extend(usual);
    }
    suspects.sort_unstable();
    (Shape::Mismatch, suspects, text).into()
}

/// Ranks that wait for each other in a cycle.
fn around(ledger: &Ledger<'_>, waits: &Waits, group: &Group<'_>, component: u32) -> StallReason {
    let mut members = BTreeSet::new();
    let mut groups = BTreeSet::new();
    for node in waits.nodes(component) {
        match node {
            WaitNode::Member(member) => members.insert(member),
            WaitNode::Group(c) => groups.insert(c),
        };
    }
    // A send or receive without its other side, while the one who owes it waits for something later.
    let (mut owing, mut waiting) = (BTreeSet::new(), BTreeSet::new());
    for c in groups.iter().filter_map(|c| ledger.groups.get(*c)) {
        for track in &c.tracks {
            for op in track.pairs() {
                if let Partner::Missing(member) = partner(c, track, op) {
                    owing.insert(member);
                    waiting.insert(track.member);
                }
            }
        }
    }
    // Who waits in vain itself passes on what it suffers.
    owing.retain(|member| members.contains(member) && !waiting.contains(member));
    let of = |members: &BTreeSet<usize>| -> Vec<u32> {
        let set: BTreeSet<u32> = members.iter().map(|r| rank_of_member(ledger, group, *r)).collect();
        set.into_iter().collect()
    };
    let mut names: Vec<String> =
        groups.iter().filter_map(|c| ledger.groups.get(*c)).map(called).take(4).collect();
    // Sends and receives are between ranks, not of a group as a whole.
    if names.is_empty() {
        names.push(called(group));
    }
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
    if members.len() == 1 {
        // One process with several GPUs: some of its ranks wait for others of its own.
        let awaited = awaited(ledger, group);
        let ranks = |stage: Stage| -> Vec<u32> {
            awaited.iter().filter(|c| c.stage == stage).map(|c| c.rank).collect()
        };
        let never = ranks(Stage::Never);
        if !never.is_empty() {
            return missing(ledger, group, &never, &called_op(group));
        }
        let stuck = ranks(Stage::NotStarted);
        if !stuck.is_empty() {
            let text = format!("the kernel of {} does not start on {}", called_op(group), list(&stuck));
            return (Shape::NotStarted, stuck, text).into();
        }
    }
    let suspects = of(&members);
    if suspects.len() < 2 {
        let text = format!("it is unknown for whom {} in {}", who_waits(&suspects), names.join(" and "));
        return (Shape::Unclear, suspects, text).into();
    }
    let text = format!(
        "each of {} waits for another of them, across {}: a skipped or an extra call, or calls in different orders",
        list(&suspects),
        names.join(" and ")
    );
    (Shape::Cycle, suspects, text).into()
}

fn states(ledger: &Ledger<'_>, group: &Group<'_>, suspects: &[u32]) -> (Vec<RankState>, Vec<(String, u32)>) {
    let awaited: BTreeSet<(u32, usize)> = awaited(ledger, group).iter().map(|c| (c.rank, c.member)).collect();
    let mut counts: std::collections::BTreeMap<&'static str, u32> = std::collections::BTreeMap::new();
    let mut tracks: Vec<(u8, u32, &Track<'_>)> = Vec::new();
    for track in &group.tracks {
        *counts.entry(standing(ledger, group, track, false).name()).or_insert(0) += 1;
        let rank = ledger.rank_of(track);
        let order = if suspects.contains(&rank) {
            0
        } else {
            u8::from(!awaited.contains(&(track.rank, track.member))) + 1
        };
        tracks.push((order, rank, track));
    }
    tracks.sort_by_key(|(order, rank, _)| (*order, *rank));
    let state = |rank: u32, track: &Track<'_>, group: &Group<'_>| {
        let at = standing(ledger, group, track, true);
        let member = ledger.members.get(track.member);
        RankState {
            rank,
            host: member.and_then(|r| ledger.nodes.get(r.node)).map_or("", |n| n.name).to_owned(),
            pid: member.map_or(0, |r| r.word.digest.pid),
            state: at.name().to_owned(),
            detail: detail(&at),
        }
    };
    let mut out: Vec<RankState> = Vec::new();
    // Suspects of another communicator, as they stand there.
    let here: BTreeSet<u32> = tracks.iter().map(|(_, rank, _)| *rank).collect();
    for rank in suspects.iter().filter(|r| !here.contains(r)) {
        let member = ledger.members.iter().find(|r| r.word.digest.rank == Some(*rank));
        let track = member.and_then(|r| {
            let all = r
                .tracks
                .iter()
                .filter_map(|(c, i)| Some((ledger.groups.get(*c)?, ledger.groups.get(*c)?.tracks.get(*i)?)));
            all.max_by_key(|(c, track)| (track.stage.is_inside(), c.size))
        });
        out.extend(track.map(|(group, track)| state(*rank, track, group)));
    }
    out.extend(
        tracks.iter().take(MAX_STATES.saturating_sub(out.len())).map(|(_, rank, c)| state(*rank, c, group)),
    );
    (out, counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect())
}

/// For the view: ranks of the job that a communicator's front waits for.
pub(crate) fn waiting_for(ledger: &Ledger<'_>, group: &Group<'_>, most: usize) -> Vec<u32> {
    let mut out: BTreeSet<u32> = awaited(ledger, group).iter().map(|c| ledger.rank_of(c)).collect();
    if group.front.is_none() && group.is_inside {
        let peers = group.tracks.iter().flat_map(|c| c.pairs().filter_map(|op| op.peer));
        out.extend(peers.map(|p| job_rank(ledger, group, p)));
    }
    out.into_iter().take(most).collect()
}
