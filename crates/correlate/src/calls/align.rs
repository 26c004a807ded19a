//! Where the ranks of a group differ, and how: a call left out, one too many, another kind, size, type, or order.
//!
//! Ranks are aligned by sequence number; the majority is the reference, so healthy ranks are never blamed. A rank that
//! left out a call is one number behind ever after (its #45 is everyone's #46), so what follows the first difference
//! is matched again under every shift, and the explanation that fits most of it wins.
//!
//! Calls that completed together although they differ are a fault too. A difference that all ranks have passed does not
//! hide a later one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringleader_model::{FlightDump, Frame, FrameOwner, OpKind, Rank};

use crate::calls::ledger::Ledger;
use crate::track::{Call, Difference, Group, GroupRecorder, Origin, Track};

/// Longest run of calls that may have been left out or put in at one place.
const MAX_SHIFT: usize = 16;
/// Calls before a difference that are compared with earlier stretches: a step of a large model has some hundred.
const MAX_CONTEXT: usize = 256;
/// Calls after a difference that are matched; more would prove nothing new.
const MAX_TAIL: usize = 512;

/// How the odd ranks differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallFault {
    /// Left out this many calls.
    Skipped(u32),
    /// Made this many calls that the others do not make.
    Extra(u32),
    /// Left the loop earlier than the others: its call belongs to what follows the loop.
    LeftEarly,
    /// Another kind, root or reduction.
    Operation(Difference),
    /// Another size.
    Size,
    /// Another type.
    Type,
    /// The same calls in another order.
    Order,
    /// From here on its calls and those of the others have nothing in common: it went another way.
    Parted,
}

/// Ranks of one group that differ from the majority.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Index into [`Ledger::groups`].
    pub group: usize,
    /// Sequence number of the first difference.
    pub seq: u32,
    /// In which way its call differs from the usual one.
    pub fault: CallFault,
    /// Group ranks that differ.
    pub odd: Vec<usize>,
    /// Group ranks that do as the reference does.
    pub usual: Vec<usize>,
    /// Group rank whose call counts as the usual one; one of `usual`.
    pub reference: usize,
    /// Both sides have as many ranks, and history does not distinguish them.
    pub halves: bool,
    /// How many calls after the difference confirm the explanation.
    pub n_confirmed: usize,
    /// All have gone on since, and made many calls together.
    pub is_bygone: bool,
    /// When the first odd rank made its call, ns since 1970.
    pub at_ns: Option<i64>,
}

/// Finds the divergences of all groups.
pub fn divergences(ledger: &Ledger<'_>) -> Vec<Divergence> {
    let mut found = Vec::new();
    let mut places = CallPlaces::default();
    for (at, group) in ledger.groups().iter().enumerate() {
        if group.view != GroupRecorder::Ras
            && let Some(divergence) = (Aligner { ledger, group, index: at }).run(&mut places)
        {
            found.extend(divergence);
        }
    }
    found
}

struct Aligner<'l, 'a> {
    ledger: &'l Ledger<'a>,
    group: &'l Group<'a>,
    index: usize,
}

impl<'a> Aligner<'_, 'a> {
    fn run(&self, places: &mut CallPlaces) -> Option<Vec<Divergence>> {
        // An NCCL log that begins late has no absolute numbers to align by.
        let tracks: Vec<(usize, &Track<'a>)> = self
            .group
            .tracks
            .iter()
            .enumerate()
            .filter_map(|(at, t)| t.as_ref().map(|t| (at, t)))
            .filter(|(_, t)| !t.calls.is_empty() && (self.group.view.knows_ends() || t.from_start))
            .collect();
        if tracks.len() < 2 {
            return None;
        }
        let Some(seq) = self.first_difference(&tracks, 1) else { return self.by_places(&tracks, places) };
        let mut found = self.at(&tracks, seq)?;
        // A difference that all have passed does not hide a later one.
        if found.iter().all(|divergence| divergence.is_bygone)
            && let Some(seq) = self.first_difference(&tracks, self.done().saturating_add(1))
        {
            found.extend(self.at(&tracks, seq).into_iter().flatten());
        }
        Some(found)
    }

    /// Up to where all ranks have finished.
    fn done(&self) -> u32 {
        let tracks = self.group.tracks.iter().flatten().filter(|t| !t.calls.is_empty());
        tracks.map(|t| t.finished.unwrap_or(0)).min().unwrap_or(0)
    }

    /// How the ranks differ at this number.
    fn at(&self, tracks: &[(usize, &Track<'a>)], seq: u32) -> Option<Vec<Divergence>> {
        let (usual, halves) = self.usual(tracks, seq)?;
        let reference = *usual
            .iter()
            .max_by_key(|at| (self.track(**at).map_or(0, Track::last_seq), std::cmp::Reverse(**at)))?;
        let reference_call = self.call(reference, seq)?;
        let mut by_fault: BTreeMap<CallFault, (Vec<usize>, usize)> = BTreeMap::new();
        for (at, track) in tracks {
            if usual.binary_search(at).is_ok() {
                continue;
            }
            let Some(call) = track.call(seq).and_then(|c| self.ledger.get(c)) else { continue };
            if call.fits(reference_call) {
                continue;
            }
            let (fault, n_confirmed) = self.explain(*at, reference, seq);
            let entry = by_fault.entry(fault).or_default();
            entry.0.push(*at);
            entry.1 = entry.1.max(n_confirmed);
        }
        Some(self.divergences_at(seq, by_fault, (&usual, reference), halves))
    }

    /// One divergence for each fault, with the group ranks that have it and the calls that confirm it.
    fn divergences_at(
        &self,
        seq: u32,
        by_fault: BTreeMap<CallFault, (Vec<usize>, usize)>,
        (usual, reference): (&[usize], usize),
        halves: bool,
    ) -> Vec<Divergence> {
        let is_bygone = self.done().saturating_sub(seq) >= MAX_SHIFT as u32;
        let of_fault = |(fault, (odd, n_confirmed)): (CallFault, (Vec<usize>, usize))| Divergence {
            group: self.index,
            seq,
            fault,
            at_ns: odd.first().and_then(|at| self.created_ns(*at, seq)),
            odd,
            usual: usual.to_vec(),
            reference,
            halves,
            n_confirmed,
            is_bygone: is_bygone
                && !matches!(fault, CallFault::Skipped(_) | CallFault::Extra(_) | CallFault::LeftEarly),
        };
        by_fault.into_iter().map(of_fault).collect()
    }

    /// All calls of a group are alike to NCCL, but the places in the code they come from distinguish them: a rank whose
    /// places fit the others' only under a shift left out a call, or made one too many.
    fn by_places(&self, tracks: &[(usize, &Track<'a>)], known: &mut CallPlaces) -> Option<Vec<Divergence>> {
        let stuck = tracks.iter().any(|(_, t)| t.finished.is_some_and(|f| f < t.entered));
        if self.group.view != GroupRecorder::Flight || !stuck {
            return None;
        }
        let placed: Vec<(usize, &Track<'a>, Vec<u64>)> = tracks
            .iter()
            .filter_map(|(at, track)| match track.origin {
                Origin::Dump(dump) => Some((*at, *track, places_of(dump, track, known))),
                _ => None,
            })
            .collect();
        // The reference: the sequence that most ranks share where they differ first.
        let from = placed.iter().map(|(_, t, _)| t.first_seq).max()?;
        let to = placed.iter().map(|(_, t, _)| t.last_seq()).min()?;
        let at = |(_, track, places): &(usize, &Track<'a>, Vec<u64>), seq: u32| {
            places.get((seq.checked_sub(track.first_seq)?) as usize).copied()
        };
        let n_same = placed.iter().filter_map(|placed_one| {
            let first = shared(placed.first()?, from, to)?;
            first.iter().zip(shared(placed_one, from, to)?).position(|(a, b)| a != b)
        });
        let seq = from + n_same.min()? as u32;
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for place in placed.iter().filter_map(|p| at(p, seq)) {
            *votes.entry(place).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        let mut tops = votes.iter().filter(|(_, n)| **n == most).map(|(place, _)| *place);
        let (Some(top), None) = (tops.next(), tops.next()) else { return None };
        let usual: Vec<usize> = placed.iter().filter(|p| at(p, seq) == Some(top)).map(|(m, ..)| *m).collect();
        let reference =
            placed.iter().filter(|p| at(p, seq) == Some(top)).max_by_key(|(_, t, _)| t.calls.len())?;
        let tail = |p: &(usize, &Track<'a>, Vec<u64>)| -> Vec<u64> {
            p.2.iter().skip((seq - p.1.first_seq) as usize).take(MAX_TAIL).copied().collect()
        };
        let theirs = tail(reference);
        let agree = |a: Option<&[u64]>, b: Option<&[u64]>| -> Option<usize> {
            let (a, b) = (a?, b?);
            let n = a.len().min(b.len());
            (n > 0 && a.iter().zip(b).all(|(a, b)| a == b)).then_some(n)
        };
        let mut by_fault: BTreeMap<CallFault, (Vec<usize>, usize)> = BTreeMap::new();
        for odd in placed.iter().filter(|p| at(p, seq).is_some_and(|place| place != top)) {
            let mine = tail(odd);
            if mine.len() < 2 {
                continue;
            }
            // The same call from another line, and all as before afterwards: two branches that do the same. But what
            // the others make a stretch of other calls later comes at once here: the line is one too many.
            if agree(mine.get(1..), theirs.get(1..)).is_some() {
                let comes_at_once = gap_after(odd.1, seq) == Some(1)
                    && gap_after(reference.1, seq).is_some_and(|gap| gap > 1);
                if comes_at_once
                    && !reference.2.contains(mine.first().unwrap_or(&top))
                    && let Some(n) = agree(mine.get(1..), Some(&theirs))
                {
                    let entry = by_fault.entry(CallFault::Extra(1)).or_default();
                    entry.0.push(odd.0);
                    entry.1 = entry.1.max(n);
                }
                continue;
            }
            let mut best: Option<(usize, CallFault)> = None;
            for shift in 1..=MAX_SHIFT {
                let skipped =
                    agree(Some(&mine), theirs.get(shift..)).map(|n| (n, CallFault::Skipped(shift as u32)));
                let extra =
                    agree(mine.get(shift..), Some(&theirs)).map(|n| (n, CallFault::Extra(shift as u32)));
                for (n, fault) in [skipped, extra].into_iter().flatten() {
                    if best.is_none_or(|(most, _)| n > most) {
                        best = Some((n, fault));
                    }
                }
            }
            if let Some((n, fault)) = best {
                let entry = by_fault.entry(fault).or_default();
                entry.0.push(odd.0);
                entry.1 = entry.1.max(n);
            }
        }
        let found = self.divergences_at(seq, by_fault, (&usual, reference.0), false);
        (!found.is_empty()).then_some(found)
    }

    fn track(&self, at: usize) -> Option<&Track<'a>> {
        self.group.tracks.get(at)?.as_ref()
    }

    fn call(&self, at: usize, seq: u32) -> Option<&Call> {
        self.ledger.get(self.track(at)?.call(seq)?)
    }

    fn created_ns(&self, at: usize, seq: u32) -> Option<i64> {
        let track = self.track(at)?;
        track.created_ns(track.op(seq)?)
    }

    /// The first number, not before `least`, at which two ranks made calls that do not fit each other. What all have
    /// finished counts as well where it cannot be right: over sockets NCCL ends calls that differ, with wrong numbers.
    fn first_difference(&self, tracks: &[(usize, &Track<'a>)], least: u32) -> Option<u32> {
        let (_, base) = tracks.iter().max_by_key(|(_, t)| t.calls.len())?;
        let done = self.done();
        let mut first: Option<u32> = None;
        for (_, track) in tracks {
            let from = track.first_seq.max(base.first_seq).max(least);
            let to =
                track.last_seq().min(base.last_seq()).min(first.map_or(u32::MAX, |f| f.saturating_sub(1)));
            if from > to {
                continue;
            }
            let part = |t: &Track<'a>| {
                let start = (from - t.first_seq) as usize;
                start..start + (to - from + 1) as usize
            };
            let (Some(a), Some(b)) = (base.calls.get(part(base)), track.calls.get(part(track))) else {
                continue;
            };
            if a == b {
                continue;
            }
            let differs = |(at, (a, b)): (u32, (&u32, &u32))| {
                a != b
                    && match (self.ledger.get(*a), self.ledger.get(*b)) {
                        (Some(a), Some(b)) if a.fits(b) => false,
                        (Some(a), Some(b)) => {
                            let seq = from + at;
                            seq > done || self.is_wrong_though_ended(a, b) && self.is_island(base, track, seq)
                        }
                        _ => false,
                    }
            };
            if let Some(at) = (0..).zip(a.iter().zip(b)).position(differs) {
                first = Some(from + at as u32);
            }
        }
        first
    }

    /// Whether two calls that ended together cannot have been meant to. NCCL knows bytes where it only copies them, and
    /// torch's records of gathering calls may show each rank its own size.
    fn is_wrong_though_ended(&self, a: &Call, b: &Call) -> bool {
        let copies = matches!(a.kind, OpKind::AllGather | OpKind::Broadcast);
        match a.difference(b) {
            None => false,
            Some(Difference::Kind) => [a.kind, b.kind].iter().all(|kind| {
                !kind.is_p2p() && !matches!(kind, OpKind::Coalesced | OpKind::Other | OpKind::AllToAll)
            }),
            Some(Difference::Root | Difference::Reduction) => true,
            Some(Difference::Type) => !(copies && a.bytes().is_some() && a.bytes() == b.bytes()),
            Some(Difference::Size) => {
                self.group.view == GroupRecorder::Ring
                    || matches!(a.kind, OpKind::AllReduce | OpKind::Reduce | OpKind::Broadcast)
            }
        }
    }

    /// Whether ranks that part at this number agreed before it and do so again soon after. Torch's numbers may be
    /// shifted against each other for good (blocks of sends count on some ranks only); NCCL's own never are.
    fn is_island(&self, a: &Track<'a>, b: &Track<'a>, seq: u32) -> bool {
        let agree = |seq: u32| self.same(a.call(seq).as_ref(), b.call(seq).as_ref());
        self.group.view == GroupRecorder::Ring
            || agree(seq.saturating_sub(1))
                && (1..=MAX_SHIFT as u32).any(|after| agree(seq.saturating_add(after)))
    }

    /// The ranks that make the reference call, and whether that is a choice between equals.
    fn usual(&self, tracks: &[(usize, &Track<'a>)], seq: u32) -> Option<(Vec<usize>, bool)> {
        let mut classes: Vec<(Call, Vec<usize>)> = Vec::new();
        for (at, track) in tracks {
            let Some(call) = track.call(seq).and_then(|c| self.ledger.get(c)) else { continue };
            match classes.iter_mut().find(|(known, _)| known.fits(call)) {
                Some((_, members)) => members.push(*at),
                None => classes.push((call.clone(), vec![*at])),
            }
        }
        if classes.len() < 2 {
            return None;
        }
        let largest = classes.iter().map(|(_, m)| m.len()).max()?;
        let mut best: Vec<&(Call, Vec<usize>)> = classes.iter().filter(|(_, m)| m.len() == largest).collect();
        if best.len() > 1 {
            // As many on each side: those that repeat what was done before are the reference.
            let habits: Vec<(usize, usize)> =
                best.iter().map(|(_, m)| m.first().map_or((0, 0), |at| self.habit(*at, seq))).collect();
            let top = habits.iter().copied().max()?;
            if habits.iter().filter(|h| **h == top).count() == 1 {
                let at = habits.iter().position(|h| *h == top)?;
                best = best.into_iter().skip(at).take(1).collect();
            }
        }
        let halves = best.len() > 1;
        best.first().map(|(_, members)| (members.clone(), halves))
    }

    /// How well the call of this number fits what this rank did before: for how many calls its history agrees with an
    /// earlier stretch that went on with the same call, and how many stretches agree for as long. One predecessor alone
    /// misleads: layers of one size come one after another, and only what came before them tells forward from backward.
    fn habit(&self, at: usize, seq: u32) -> (usize, usize) {
        let Some(track) = self.track(at) else { return (0, 0) };
        let Some(end) = seq.checked_sub(track.first_seq) else { return (0, 0) };
        let Some(call) = track.call(seq) else { return (0, 0) };
        let history = track.calls.get(..end as usize).unwrap_or_default();
        let agrees_for = |earlier: usize| {
            let before = history.get(..earlier).unwrap_or_default();
            before
                .iter()
                .rev()
                .zip(history.iter().rev())
                .take(MAX_CONTEXT)
                .take_while(|(a, b)| a == b)
                .count()
        };
        let mut best = (0, 0);
        for earlier in (0..history.len()).filter(|at| history.get(*at) == Some(&call)) {
            let n = agrees_for(earlier);
            if n > best.0 {
                best = (n, 1);
            } else if n == best.0 {
                best.1 += 1;
            }
        }
        best
    }

    /// The explanation that fits most of what follows.
    fn explain(&self, odd: usize, reference: usize, seq: u32) -> (CallFault, usize) {
        let (Some(odd_track), Some(usual_track)) = (self.track(odd), self.track(reference)) else {
            return (CallFault::Size, 0);
        };
        let tail = |track: &Track<'a>| -> Vec<u32> {
            let start = seq.saturating_sub(track.first_seq) as usize;
            track.calls.iter().skip(start).take(MAX_TAIL).copied().collect()
        };
        let (mine, theirs) = (tail(odd_track), tail(usual_track));
        let replaced = self.replacement(&mine, &theirs);
        if mine.len() < 2 {
            return (self.judge_alone(replaced, odd_track, usual_track, seq), 0);
        }
        let mut best: Option<(usize, u32, CallFault)> = None;
        // A candidate needs at least one call that confirms it, and none that contradicts it.
        let mut offer = |confirmed: Option<usize>, cost: u32, fault: CallFault| {
            if let Some(n) = confirmed
                && n > 0
                && best.is_none_or(|(most, least, _)| n > most || n == most && cost < least)
            {
                best = Some((n, cost, fault));
            }
        };
        offer(self.agree(mine.get(1..), theirs.get(1..)), 1, replaced);
        offer(self.reordered(&mine, &theirs), 1, CallFault::Order);
        for shift in 1..=MAX_SHIFT {
            offer(
                self.agree(Some(&mine), theirs.get(shift..)),
                shift as u32,
                CallFault::Skipped(shift as u32),
            );
            offer(self.agree(mine.get(shift..), Some(&theirs)), shift as u32, CallFault::Extra(shift as u32));
        }
        // The others wait in the call: their next one would be what followed it the last time.
        if theirs.len() == 1 {
            let foretold: Vec<u32> =
                theirs.iter().copied().chain(Self::last_time(usual_track, seq)).collect();
            for shift in (1..=MAX_SHIFT).take_while(|shift| shift + 1 < foretold.len()) {
                let fits = self.agree(Some(&mine), foretold.get(shift..)).filter(|n| *n > 1);
                offer(fits, shift as u32, CallFault::Skipped(shift as u32));
            }
        }
        match best {
            Some((n, _, fault)) => (Self::narrow(fault, odd_track, usual_track, seq), n),
            // The call after it is of another kind as well: it is not that this one call was made wrongly.
            None if self.differ_in_kind(mine.get(1), theirs.get(1)) => (CallFault::Parted, 0),
            None => (self.judge_alone(replaced, odd_track, usual_track, seq), 0),
        }
    }

    /// How many calls confirm that the first few are the same ones in another order, and that all is as before after
    /// them.
    fn reordered(&self, mine: &[u32], theirs: &[u32]) -> Option<usize> {
        (2..=MAX_SHIFT).find_map(|n| {
            let (a, b) = (mine.get(..n)?, theirs.get(..n)?);
            let mut left: Vec<&u32> = b.iter().collect();
            let all_there = a.iter().all(|call| {
                let found = left.iter().position(|other| self.same(Some(call), Some(*other)));
                found.map(|at| left.swap_remove(at)).is_some()
            });
            if !all_there {
                return None;
            }
            let rest = self.agree(mine.get(n..), theirs.get(n..))?;
            // A loop's calls turned round as a whole are those of a rank that left out the first ones, until more
            // shows.
            let turned = || {
                (1..n).any(|by| {
                    a.iter().zip(b.iter().cycle().skip(by)).all(|(a, b)| self.same(Some(a), Some(b)))
                })
            };
            (n == 2 || rest > 0 || !turned()).then_some(n + rest)
        })
    }

    /// What followed a call the last time it was made after the same predecessor, up to now and with it.
    fn last_time(track: &Track<'a>, seq: u32) -> Vec<u32> {
        let (now, before) = (track.call(seq), seq.checked_sub(1).and_then(|s| track.call(s)));
        let from = track.first_seq.max(seq.saturating_sub(MAX_TAIL as u32));
        let same = |at: &u32| {
            now.is_some()
                && before.is_some()
                && track.call(*at) == now
                && at.checked_sub(1).and_then(|b| track.call(b)) == before
        };
        let Some(last) = (from..seq).rev().find(same) else { return Vec::new() };
        (last + 1..=seq).map(|at| track.call(at).unwrap_or(Track::GAP)).collect()
    }

    /// What the odd call is, if it took the place of the usual one.
    fn replacement(&self, mine: &[u32], theirs: &[u32]) -> CallFault {
        let pair = mine
            .first()
            .and_then(|m| self.ledger.get(*m))
            .zip(theirs.first().and_then(|t| self.ledger.get(*t)));
        match pair.and_then(|(m, t)| m.difference(t)) {
            Some(Difference::Size) | None => CallFault::Size,
            Some(Difference::Type) => CallFault::Type,
            Some(other) => CallFault::Operation(other),
        }
    }

    fn same(&self, a: Option<&u32>, b: Option<&u32>) -> bool {
        match (a.and_then(|a| self.ledger.get(*a)), b.and_then(|b| self.ledger.get(*b))) {
            (Some(a), Some(b)) => a.fits(b),
            _ => false,
        }
    }

    fn differ_in_kind(&self, a: Option<&u32>, b: Option<&u32>) -> bool {
        let pair = a.and_then(|a| self.ledger.get(*a)).zip(b.and_then(|b| self.ledger.get(*b)));
        pair.is_some_and(|(a, b)| a.kind != b.kind)
    }

    /// How many calls of two sequences agree; None if any disagree.
    fn agree(&self, a: Option<&[u32]>, b: Option<&[u32]>) -> Option<usize> {
        let (a, b) = (a?, b?);
        let n = a.len().min(b.len());
        a.iter().zip(b).all(|(a, b)| a == b || self.same(Some(a), Some(b))).then_some(n)
    }

    /// A shift may also mean that the rank left the loop, unless it then makes the loop's calls again.
    fn narrow(fault: CallFault, odd: &Track<'a>, usual: &Track<'a>, seq: u32) -> CallFault {
        let is_back = |n: u32| {
            let next = Self::place(odd, seq.saturating_add(n));
            next.is_some() && next == Self::place(usual, seq)
        };
        match fault {
            CallFault::Extra(n) if Self::is_after_loop(odd, usual, seq) && !is_back(n) => {
                CallFault::LeftEarly
            }
            other => other,
        }
    }

    /// Nothing follows the odd call that would decide: the rank waits in it. Its place in the code and the habits of
    /// the group are left to judge by.
    fn judge_alone(&self, replaced: CallFault, odd: &Track<'a>, usual: &Track<'a>, seq: u32) -> CallFault {
        // The usual call's successor, right here and nothing after it: left one out.
        let mine = odd.call(seq);
        let skipped_to = (1..=MAX_SHIFT as u32).find(|k| {
            let theirs = usual.call(seq.saturating_add(*k));
            theirs.is_some() && (theirs == mine || self.same(mine.as_ref(), theirs.as_ref()))
        });
        let same_place = match (Self::place(odd, seq), Self::place(usual, seq)) {
            (Some(a), Some(b)) => Some(a == b),
            _ => None,
        };
        // The next call of the others, to the element, and as many calls fewer: left out, wherever it was called from.
        if let Some(k) = skipped_to
            && usual.entered.checked_sub(odd.entered) == Some(k)
            && Self::place(odd, seq)
                .zip(Self::place(usual, seq.saturating_add(k)))
                .is_none_or(|(a, b)| a == b)
        {
            return CallFault::Skipped(k);
        }
        if same_place == Some(true) {
            return replaced;
        }
        if let Some(k) = self.followed_before(odd, usual, seq) {
            return CallFault::Skipped(k);
        }
        if Self::is_after_loop(odd, usual, seq) {
            return CallFault::LeftEarly;
        }
        // Only the totals are left to a rank without entries (watchdog lines): one call fewer than its peers means
        // that one was left out, as many mean that this one differs.
        if matches!(odd.origin, Origin::Lines) || matches!(usual.origin, Origin::Lines) {
            return match usual.entered.checked_sub(odd.entered) {
                Some(0) => replaced,
                Some(behind @ 1..=16)
                    if skipped_to.is_some()
                        || matches!(replaced, CallFault::Size | CallFault::Operation(_))
                            && odd.entered > seq =>
                {
                    CallFault::Skipped(skipped_to.unwrap_or(behind))
                }
                _ => self.extra_or(replaced, odd, usual, seq, same_place),
            };
        }
        if let Some(k) = skipped_to
            && same_place != Some(true)
            && Self::place(odd, seq) == Self::place(usual, seq.saturating_add(k))
        {
            return CallFault::Skipped(k);
        }
        self.extra_or(replaced, odd, usual, seq, same_place)
    }

    /// All are stuck in their first differing call, so nothing follows that would decide; but the last time round the
    /// loop, what this rank calls now came after what the others call now.
    fn followed_before(&self, odd: &Track<'a>, usual: &Track<'a>, seq: u32) -> Option<u32> {
        let (mine, theirs) = (odd.call(seq)?, usual.call(seq)?);
        let (my_place, their_place) = (Self::place(odd, seq), Self::place(usual, seq));
        let is = |at: u32, call: u32, place: &Option<Frame>| {
            usual.call(at).is_some_and(|c| c == call || self.same(Some(&c), Some(&call)))
                && (place.is_none() || Self::place(usual, at) == *place)
        };
        let from = usual.first_seq.max(seq.saturating_sub(MAX_TAIL as u32));
        let before = (from..seq).rev().find(|at| is(*at, theirs, &their_place))?;
        (1..=MAX_SHIFT as u32).take_while(|k| before + k < seq).find(|k| is(before + k, mine, &my_place))
    }

    /// A call that no rank of the group ever made before, at another place in the code, is one too many.
    fn extra_or(
        &self,
        replaced: CallFault,
        odd: &Track<'a>,
        usual: &Track<'a>,
        seq: u32,
        same_place: Option<bool>,
    ) -> CallFault {
        let Some(mine) = odd.call(seq) else { return replaced };
        // A call like one of another line is not that call.
        let my_place = Self::place(odd, seq);
        let known = (usual.first_seq..=u32::MAX).zip(&usual.calls).any(|(at, c)| {
            self.same(Some(c), Some(&mine)) && (my_place.is_none() || Self::place(usual, at) == my_place)
        });
        let waits_in_it = odd.entered <= seq && usual.entered > seq;
        match same_place {
            Some(false) if !known => CallFault::Extra(1),
            None if !known && waits_in_it && matches!(replaced, CallFault::Operation(Difference::Kind)) => {
                CallFault::Extra(1)
            }
            _ => replaced,
        }
    }

    /// The line of the user's code from which a call was made.
    fn place(track: &Track<'a>, seq: u32) -> Option<Frame> {
        let frames = track.frames(track.op(seq)?);
        ringleader_model::user_frame(&frames).cloned()
    }

    /// Whether the odd call is behind the loop from which the group's calls come: in the innermost user function that
    /// the odd stack shares with the others, its line is after every line they ever called from.
    fn is_after_loop(odd: &Track<'a>, usual: &Track<'a>, seq: u32) -> bool {
        let Some(op) = odd.op(seq) else { return false };
        let frames = odd.frames(op);
        let mine: Vec<&Frame> = frames.iter().filter(|f| f.owner() == FrameOwner::User).collect();
        if mine.is_empty() {
            return false;
        }
        let Origin::Dump(dump) = usual.origin else { return false };
        // A branch inside the function that makes the usual call too is no way out of the loop, unless that function
        // calls from several places and this one is after them all.
        let usual_frames = usual.op(seq).map(|op| usual.frames(op)).unwrap_or_default();
        let same_function = ringleader_model::user_frame(&usual_frames)
            .zip(mine.first())
            .is_some_and(|(a, b)| a.function == b.function && a.file == b.file);
        // Outermost shared function inward: the first whose lines differ is where the ranks diverge.
        for frame in mine.iter().rev() {
            // Calls of every group count: what follows in the loop may be another group's.
            let lines: Vec<u32> = dump
                .frames
                .iter()
                .filter(|f| f.function == frame.function && f.file == frame.file)
                .map(|f| f.line)
                .collect();
            if lines.is_empty() || lines.contains(&frame.line) {
                continue;
            }
            let n_places = lines.iter().collect::<std::collections::BTreeSet<_>>().len();
            return lines.iter().all(|line| *line < frame.line) && (!same_function || n_places > 1);
        }
        false
    }
}

/// Entries of the same dump in any group, from this call to the group's next call.
fn gap_after(track: &Track<'_>, seq: u32) -> Option<u32> {
    track.op(seq.saturating_add(1))?.checked_sub(track.op(seq)?)
}

/// A number for the place that each stack of a dump is: equal numbers, equal stacks.
fn places_of_stacks(dump: &FlightDump) -> Vec<u64> {
    let place = |stack: &[u32]| {
        stack.iter().filter_map(|f| dump.frames.get(*f as usize)).fold(FNV_OFFSET, |hash, frame| {
            let line = frame.line.to_le_bytes();
            frame
                .function
                .as_bytes()
                .iter()
                .chain(&line)
                .fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(FNV_PRIME))
        })
    };
    dump.stacks.iter().map(|stack| place(stack)).collect()
}

/// Places of the calls `from` to `to` of a track.
fn shared<'p>(
    (_, track, places): &'p (usize, &Track<'_>, Vec<u64>),
    from: u32,
    to: u32,
) -> Option<&'p [u64]> {
    let start = from.checked_sub(track.first_seq)? as usize;
    places.get(start..=start + to.checked_sub(from)? as usize)
}

/// Places of the stacks of dumps, by where in memory the tables are, which dumps may share.
type CallPlaces = BTreeMap<(usize, usize), Vec<u64>>;

/// The same for each call of a track. 0 = unknown.
fn places_of(dump: &FlightDump, track: &Track<'_>, known: &mut CallPlaces) -> Vec<u64> {
    let stacks = known
        .entry((Arc::as_ptr(&dump.stacks).addr(), Arc::as_ptr(&dump.frames).addr()))
        .or_insert_with(|| places_of_stacks(dump));
    let place = |op: &u32| {
        dump.ops.get(*op as usize).and_then(|op| stacks.get(op.stack as usize)).copied().unwrap_or(0)
    };
    track.ops.iter().map(place).collect()
}

/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

impl Divergence {
    /// Global ranks that differ, where known.
    pub fn odd_ranks(&self, ledger: &Ledger<'_>) -> Vec<Rank> {
        ranks(ledger, self.group, &self.odd)
    }

    /// Global ranks that agree.
    pub fn usual_ranks(&self, ledger: &Ledger<'_>) -> Vec<Rank> {
        ranks(ledger, self.group, &self.usual)
    }
}

fn ranks(ledger: &Ledger<'_>, group: usize, at: &[usize]) -> Vec<Rank> {
    at.iter().filter_map(|at| ledger.groups().get(group)?.rank(*at)).collect()
}
