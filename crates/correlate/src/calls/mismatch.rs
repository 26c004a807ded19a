//! Divergences joined over views: what Flight Recorder, NCCL's own lines and the watchdogs say of the same fault is
//! one mismatch with several proofs.

use std::fmt::Write as _;

use ringleader_model::{Evidence, Frame, OpState, RankSet, SourceKind, user_frame};

use crate::calls::align::{CallFault, Divergence};
use crate::calls::ledger::Ledger;
use crate::operation;
use crate::process::condition::Conditions;
use crate::said::watchdog::WatchdogLines;
use crate::track::{GroupRecorder, Origin, RankOrSource, Track, node};

/// One fault of collective logic.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// How the odd ranks differ.
    pub fault: CallFault,
    /// Ranks that differ.
    pub odd: Vec<RankOrSource>,
    /// Ranks that agree.
    pub usual: RankSet,
    /// Everyone else in the group.
    pub victims: RankSet,
    /// Both sides are equal in number.
    pub halves: bool,
    /// Group, for people.
    pub group: String,
    /// Number of the first differing call.
    pub seq: u32,
    /// What the odd ranks called.
    pub odd_call: String,
    /// What the others called.
    pub usual_call: String,
    /// Place of the odd ranks' first differing call.
    pub place: Option<Frame>,
    /// Proofs.
    pub evidence: Vec<Evidence>,
    /// When, ns.
    pub at_ns: Option<i64>,
    /// Calls after the difference that confirm the explanation.
    pub n_confirmed: usize,
    /// All have gone on since, and made many calls together: a stall now has another reason.
    pub is_bygone: bool,
    /// Views that saw it.
    pub views: Vec<GroupRecorder>,
    /// Of a skipped call: where the others make the call that the odd rank makes here.
    pub shifted: Option<Evidence>,
}

/// What a proof is made of: the calls, and where in the program they were made.
#[derive(Clone, Copy)]
pub struct Proof<'s, 'a> {
    /// The calls.
    pub ledger: &'s Ledger<'a>,
    /// Where each rank's program is.
    pub conditions: &'s Conditions,
    /// Stacks that the watchdogs printed.
    pub watchdog: &'s WatchdogLines,
}

/// Joins the divergences of all views. The first in time comes first: what happens in other groups afterwards follows.
pub fn mismatches(proof: Proof<'_, '_>, divergences: &[Divergence]) -> Vec<Mismatch> {
    let mut found: Vec<Mismatch> = Vec::new();
    for divergence in divergences {
        let Some(fresh) = describe(proof, divergence) else { continue };
        // The same odd ranks, seen by another recorder: one fault.
        let is_known = |m: &&mut Mismatch| {
            // Views that see nothing end do not show what is bygone.
            let same_time = m.is_bygone == fresh.is_bygone || !fresh.views[0].knows_ends();
            m.odd == fresh.odd && same_time && !m.views.contains(&fresh.views[0])
        };
        let known = found.iter_mut().find(is_known);
        match known {
            Some(known) => {
                known.evidence.extend(fresh.evidence);
                known.views.extend(fresh.views);
                known.shifted = known.shifted.take().or(fresh.shifted);
                // Records keep more than lines do: the explanation that more calls confirm wins.
                if fresh.n_confirmed > known.n_confirmed && class(fresh.fault) != class(known.fault) {
                    known.fault = fresh.fault;
                    known.n_confirmed = fresh.n_confirmed;
                    known.odd_call = fresh.odd_call;
                    known.usual_call = fresh.usual_call;
                }
                known.place = known.place.take().or(fresh.place);
                known.at_ns = known.at_ns.or(fresh.at_ns);
            }
            None => found.push(fresh),
        }
    }
    found.sort_by_key(|m| (m.at_ns.is_none(), m.at_ns, m.seq));
    for one in &mut found {
        // Behind the two calls that differ.
        let at = one.evidence.len().min(2);
        let shifted = one.shifted.take().filter(|_| matches!(one.fault, CallFault::Skipped(_)));
        one.evidence.splice(at..at, shifted);
    }
    found
}

fn class(fault: CallFault) -> u8 {
    match fault {
        CallFault::Skipped(_) => 0,
        CallFault::Extra(_) => 1,
        CallFault::LeftEarly => 2,
        CallFault::Operation(_) => 3,
        CallFault::Size => 4,
        CallFault::Type => 5,
        CallFault::Order => 6,
        CallFault::Parted => 7,
    }
}

fn describe(proof: Proof<'_, '_>, divergence: &Divergence) -> Option<Mismatch> {
    let group = proof.ledger.groups().get(divergence.group)?;
    let track = |at: usize| group.tracks.get(at).and_then(Option::as_ref);
    let call = |at: usize| {
        let call = track(at)?.call(divergence.seq)?;
        Some(proof.ledger.get(call)?.describe())
    };
    let first_odd = *divergence.odd.first()?;
    let mut evidence = Vec::new();
    for at in divergence.odd.iter().take(2).chain([&divergence.reference]) {
        if let Some(track) = track(*at) {
            evidence.extend(proof.evidence_of(track, divergence.seq));
        }
    }
    if divergence.fault == CallFault::Order
        && let (Some(odd), Some(usual)) = (track(first_odd), track(divergence.reference))
    {
        // Where the odd rank makes the call that the others make here.
        let is_it = |seq: &u32| {
            let calls = odd.call(*seq).zip(usual.call(divergence.seq));
            let calls = calls.and_then(|(a, b)| Some((proof.ledger.get(a)?, proof.ledger.get(b)?)));
            calls.is_some_and(|(a, b)| a.fits(b))
        };
        let later = (divergence.seq..=odd.last_seq()).skip(1).find(is_it);
        evidence.extend(later.and_then(|seq| proof.evidence_of(odd, seq)));
    }
    // Rings keep no stacks: there it is where the rank is now, unless it has gone on.
    let place = |at: usize| {
        let track = track(at)?;
        let is_in_it = || track.finished.is_none_or(|f| f < divergence.seq);
        proof
            .place_near(track, &group.name, divergence.seq)
            .or_else(|| proof.standing(track).filter(|_| is_in_it()).cloned())
    };
    let place = divergence.odd.iter().find_map(|at| place(*at));
    let odd: Vec<RankOrSource> = divergence.odd.iter().filter_map(|at| node(group, *at)).collect();
    let usual: RankSet = divergence.usual_ranks(proof.ledger).into_iter().collect();
    let victims =
        group.ranks.iter().copied().flatten().filter(|r| !odd.contains(&RankOrSource::Rank(*r))).collect();
    Some(Mismatch {
        fault: divergence.fault,
        odd,
        usual,
        victims,
        halves: divergence.halves,
        group: group.name.clone(),
        seq: divergence.seq,
        odd_call: call(first_odd)?,
        usual_call: call(divergence.reference)?,
        place,
        evidence,
        at_ns: divergence.at_ns,
        n_confirmed: divergence.n_confirmed,
        is_bygone: divergence.is_bygone,
        views: vec![group.view],
        shifted: track(first_odd).zip(track(divergence.reference)).and_then(|(odd, usual)| {
            let CallFault::Skipped(n) = divergence.fault else { return None };
            shifted(proof, odd, usual, divergence.seq, n)
        }),
    })
}

/// The call of the others that the odd rank makes `n` numbers earlier, with what that means.
fn shifted(proof: Proof<'_, '_>, odd: &Track<'_>, usual: &Track<'_>, seq: u32, n: u32) -> Option<Evidence> {
    let later = seq.checked_add(n)?;
    let call = |track: &Track<'_>, seq: u32| proof.ledger.get(track.call(seq)?);
    call(odd, seq)?.fits(call(usual, later)?).then_some(())?;
    let mut evidence = proof.evidence_of(usual, later)?;
    let who = odd.rank.map_or_else(|| "the other rank".to_owned(), |rank| format!("rank {}", rank.0));
    let skipped = if n == 1 { format!("#{seq}") } else { format!("#{seq} to #{}", later.saturating_sub(1)) };
    let _ = write!(
        evidence.text,
        "; {who} makes this call as its #{seq}: it skipped the others' {skipped}, so its later calls are {n} behind"
    );
    Some(evidence)
}

impl<'s> Proof<'s, '_> {
    /// One call of one rank as cited evidence.
    pub fn evidence_of(self, track: &Track<'_>, seq: u32) -> Option<Evidence> {
        if matches!(track.origin, Origin::Lines) {
            let (_, cite, text) = track.lines.first()?;
            return Some(Evidence { cite: *cite, text: text.clone(), kind: SourceKind::TorchLog });
        }
        let op = track.op(seq)?;
        let call = self.ledger.get(track.call(seq)?)?.describe();
        let who = track.rank.map_or_else(|| "unknown rank".to_owned(), |r| format!("rank {}", r.0));
        let mut text = format!("{who} #{seq}: {call}");
        if let Origin::Dump(dump) = track.origin
            && let Some(op) = dump.ops.get(op as usize)
        {
            let state = match op.state {
                OpState::Scheduled => "scheduled",
                OpState::Started => "started",
                OpState::Completed => "completed",
            };
            let _ = write!(text, ", {state}");
        }
        if let Origin::Ring(ring) = track.origin {
            text.push_str(&operation::state(ring, op));
        }
        if let Some(frame) = user_frame(&track.frames(op)) {
            let _ = write!(text, ", called from {} ({}:{})", frame.function, frame.file, frame.line);
        }
        Some(Evidence { cite: track.cite_op(op), text, kind: track.kind })
    }

    /// Where the program of a ring's rank is, unless it is on its way out.
    pub fn standing(self, track: &Track<'_>) -> Option<&'s Frame> {
        let stand = self.conditions.get(track.rank?)?.stand.as_ref()?;
        (matches!(track.origin, Origin::Ring(_)) && !stand.is_leaving()).then(|| stand.place()).flatten()
    }

    /// Place in the user's code of a call; of the nearest call that has one, since operations of a backward pass have
    /// no frame of the user; of the failed collective the watchdog printed, where there is no dump.
    pub fn place_near(self, track: &Track<'_>, group: &str, seq: u32) -> Option<Frame> {
        let at = |seq: u32| track.op(seq).and_then(|op| user_frame(&track.frames(op)).cloned());
        (0..=NEAR).flat_map(|d| [seq.checked_add(d), seq.checked_sub(d)]).flatten().find_map(at).or_else(
            || {
                let stand = self.watchdog.stand(group, track.rank?)?;
                user_frame(&stand.frames).cloned()
            },
        )
    }
}

/// How far from a call another one's place still says something about it.
const NEAR: u32 = 64;
