//! Inside an operation, as the rings show it: which ranks' kernels run, and between which ranks no data passes.

use ringleader_model::{
    Case, Cite, Evidence, Rank, RingOp, RingPhase, RingRecord, RingStage, RingWait, SourceKind,
};

use crate::operation::{clock, operation, state};
use crate::prepare::rings::rings;
use crate::track::{Group, Origin};
use crate::waits::graph::{Front, FrontKind};
use crate::who::roster::Roster;

/// One member of a front, with its own record of the operation.
#[derive(Clone, Copy)]
pub struct Inside<'a> {
    /// Place within the group.
    pub member: usize,
    /// Its ring.
    pub ring: &'a RingRecord,
    /// Index of the operation.
    pub at: u32,
    /// The operation.
    pub op: &'a RingOp,
}

impl<'a> Inside<'a> {
    /// What its proxies wait for in it.
    pub fn waits(&self) -> impl Iterator<Item = &'a RingWait> + use<'a> {
        let (ring, at) = (self.ring, self.at);
        ring.waits.iter().filter(move |w| w.op == at)
    }
}

/// The members that wait in a front, with what their rings say of the operation.
pub fn members<'a>(group: &Group<'a>, front: &Front) -> Vec<Inside<'a>> {
    let of_member = |member: usize| {
        let track = group.tracks.get(member)?.as_ref()?;
        let Origin::Ring(ring) = track.origin else { return None };
        let at = match front.what {
            FrontKind::Collective(seq) => track.op(seq)?,
            FrontKind::P2p { from, to, .. } => {
                let peer = if from as usize == member { to } else { from };
                track.p2p.iter().find(|p| p.peer == peer && p.done == Some(false))?.op
            }
            FrontKind::Count(..) => return None,
        };
        Some(Inside { member, ring, at, op: ring.ops.get(at as usize)? })
    };
    front.waiting.iter().filter_map(|m| of_member(*m)).collect()
}

/// A pair of members between which data does not pass: one has handed it to the network, or may not, and at the other
/// nothing has arrived.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Sender, within the group.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// For how long both sides have waited when their rings were read, ns.
    pub silent_ns: i64,
    /// Both sides.
    pub evidence: Vec<Evidence>,
}

/// The pairs of a front between which nothing passes: the sender has handed data to the network that has not left, or
/// has sent more steps than have come. Where an earlier link of the chain is broken, a sender has no data yet and says
/// so: such pairs are whole.
pub fn broken_pairs(group: &Group<'_>, front: &Front) -> Vec<Broken> {
    let inside = members(group, front);
    let mut found: Vec<Broken> = Vec::new();
    for sender in &inside {
        for send in sender.waits().filter(|w| w.is_send) {
            let Some(receiver) = inside.iter().find(|i| i.member == send.peer as usize) else { continue };
            let awaits = |w: &&RingWait| {
                !w.is_send
                    && w.peer as usize == sender.member
                    && w.channel == send.channel
                    && w.phase == RingPhase::RecvNet
            };
            let Some(receive) = receiver.waits().find(awaits) else { continue };
            let is_on_its_way = match send.phase {
                RingPhase::SendNet | RingPhase::SendPeer => true,
                RingPhase::SendGpu => send.steps.1 == receive.steps.1 && send.steps.0 > receive.steps.0,
                _ => false,
            };
            if !is_on_its_way {
                continue;
            }
            let (from, to) = (sender.member, receiver.member);
            if found.iter().any(|b| b.from == from && b.to == to) {
                continue;
            }
            let evidence = [(sender, send), (receiver, receive)].map(|(i, w)| wait_evidence(group, i, w));
            let silent_ns =
                (sender.ring.taken_ns - send.since_ns).min(receiver.ring.taken_ns - receive.since_ns);
            found.push(Broken { from, to, silent_ns, evidence: evidence.into_iter().flatten().collect() });
        }
    }
    found
}

fn wait_evidence(group: &Group<'_>, inside: &Inside<'_>, wait: &RingWait) -> Option<Evidence> {
    let track = group.tracks.get(inside.member)?.as_ref()?;
    let text = format!("{} #{}: {}", name(group, inside.member), inside.op.number, wait_text(group, wait));
    Some(Evidence { cite: track.cite_op(inside.at), text, kind: SourceKind::Ring })
}

fn wait_text(group: &Group<'_>, wait: &RingWait) -> String {
    let (verb, peer) = (if wait.is_send { "sends to" } else { "receives from" }, wait.peer as usize);
    let (done, wanted) = wait.steps;
    format!(
        "{verb} {} on channel {}, {done} of {wanted} steps done, since {} {}",
        name(group, peer),
        wait.channel,
        clock(wait.since_ns),
        wait.phase.meaning()
    )
}

fn name(group: &Group<'_>, member: usize) -> String {
    group.rank(member).map_or_else(|| format!("member {member}"), |r| format!("rank {}", r.0))
}

/// What one process had in flight last.
#[derive(Clone, Debug)]
pub struct Last {
    /// Rank in the job, if known.
    pub rank: Option<Rank>,
    /// Without the rank and the time, so that ranks in the same state can be counted together.
    pub brief: String,
    /// In full, cited.
    pub evidence: Evidence,
}

/// The last state of every process that has not ended in order: what it had in flight, oldest first.
pub fn last_states(case: &Case, roster: &Roster) -> Vec<Last> {
    let mut states = Vec::new();
    for (observation, ring) in rings(case) {
        if ring.is_ended {
            continue;
        }
        let rank = roster.rank_of_ring(observation);
        let who = match (rank, observation.who.pid) {
            (Some(rank), _) => format!("rank {}", rank.0),
            (None, Some(pid)) => format!("process {}", pid.0),
            (None, None) => "a process".to_owned(),
        };
        let open: Vec<(u32, &RingOp)> = (0..)
            .zip(&ring.ops)
            .filter(|(_, op)| op.ended_ns == 0 && (op.is_open() || !op.is_captured))
            .collect();
        let n_more = open.len().saturating_sub(1);
        let (brief, full, span) = if let Some((at, op)) = open.first() {
            let what = operation(ring, op);
            let more = if n_more > 0 { format!(" and {n_more} more") } else { String::new() };
            let stage = if op.stage() == RingStage::Started { "running" } else { "not started" };
            (format!("{what} {stage}"), format!("{what}{}{more}", state(ring, *at)), op.span)
        } else {
            let last = ring.ops.last().map_or_else(
                || "nothing was called yet".to_owned(),
                |op| format!("last was {}", operation(ring, op)),
            );
            ("nothing in flight".to_owned(), format!("nothing in flight; {last}"), (0, 0))
        };
        let cite = Cite { start: span.0, end: span.1, ..observation.cite };
        let evidence = Evidence { cite, text: format!("{who}: {full}"), kind: SourceKind::Ring };
        states.push(Last { rank, brief, evidence });
    }
    states.sort_by_key(|s| (s.rank.is_none(), s.rank));
    states
}
