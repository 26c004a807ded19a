//! Who keeps the others waiting, where a cause is found by words and no rule says who: the one that a list of missing ranks
//! names, that is at its end or has the least to do, that stands elsewhere by its stack, or that alone reports no timeout.
//!
//! Who waits is no culprit, and where most differ from the few, nobody is set apart.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::End;
use ringleader_correlate::waits::posture::{Posture, PostureLook, looks, odd_ones};
use ringleader_knowledge::cause;
use ringleader_model::{ApartBy, Category, Cause, Fact, OpKind, Rank, RankSet, TorchEvent};

use crate::blame::cards;

type Ranks = BTreeSet<Rank>;

/// What is known of the ranks of a job that hangs.
struct Hang<'s, 'a> {
    scene: &'s Scene<'a>,
    /// All that anything names.
    all: Ranks,
    /// Those that are seen to wait.
    waiting: Ranks,
}

/// The ranks at fault; `victims` are known to wait.
pub(crate) fn of_hang(scene: &Scene<'_>, cause: Cause, victims: &RankSet) -> Option<Ranks> {
    if cause == Cause::FrameworkBug {
        return Hang::new(scene, victims).apart_by_stack();
    }
    if !may_be_of_few(cause) {
        return None;
    }
    let hang = Hang::new(scene, victims);
    let is_of_absent = matches!(
        cause,
        Cause::RankExitedEarly | Cause::UnevenInputs | Cause::SkippedCollective | Cause::CollectiveDesync
    );
    let by_text = || hang.missing(cause).or_else(|| (cause == Cause::UnevenInputs).then(|| hang.least())?);
    let by_end = || is_of_absent.then(|| hang.done())?;
    let by_silence = || if cause == Cause::ExtraCollective { None } else { hang.silent() };
    by_text()
        .or_else(by_end)
        .or_else(|| hang.elsewhere(cause))
        .or_else(|| is_of_calls(cause).then(|| hang.odd_call())?)
        .or_else(|| is_of_idle(cause).then(|| hang.behind())?)
        .or_else(by_silence)
        .or_else(|| is_of_idle(cause).then(|| cards::idle(scene))?.and_then(|ranks| hang.few(ranks)))
        .or_else(|| hang.first(cause))
}

/// The only rank that reports no timeout where the others do.
pub(super) fn silent(scene: &Scene<'_>) -> Option<Ranks> {
    Hang::new(scene, &RankSet::default()).silent()
}

/// Hangs in which ranks are in different calls, and not because some are late.
fn is_of_calls(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::CollectiveDesync | Cause::SkippedCollective | Cause::ExtraCollective | Cause::OpMismatch
    )
}

/// Hangs in which the culprit has no kernel on its GPU.
fn is_of_idle(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::StuckOutsideCollective
            | Cause::SlowRankStall
            | Cause::SkippedCollective
            | Cause::RankExitedEarly
            | Cause::UnevenInputs
            | Cause::CollectiveDesync
    )
}

/// Hangs that some ranks bring upon the others, and not all upon each other.
fn may_be_of_few(cause: Cause) -> bool {
    let is_hang = cause::category(cause) == Category::Hang || cause == Cause::TimeoutTooShort;
    let is_of_all = matches!(
        cause,
        Cause::ConcurrentCommunicators
            | Cause::NcclBugVersion
            | Cause::NcclEnvMismatch
            | Cause::NetworkLinkDown
            | Cause::NetworkUnreachable
            | Cause::MtuOrPfc
            | Cause::DeadlockCycle
    );
    is_hang && !is_of_all || cause == Cause::MissingRank
}

impl<'s, 'a> Hang<'s, 'a> {
    fn new(scene: &'s Scene<'a>, victims: &RankSet) -> Self {
        let roster = scene.roster();
        let mut all: Ranks = roster.members.iter().filter_map(|m| m.rank).collect();
        all.extend(roster.unseen_ranks());
        all.extend(victims.ranks());
        all.extend(scene.conditions().all().map(|(rank, _)| rank));
        // A rule that knows who waits knows more than the complaints.
        let mut waiting: Ranks = victims.ranks().iter().copied().collect();
        if waiting.is_empty() {
            let timed_out = scene.conditions().all().filter(|(_, condition)| condition.timed_out.is_some());
            waiting.extend(timed_out.map(|(rank, _)| rank));
        }
        for apart in told(scene) {
            // A list of missing ranks does not show who else there is.
            let ranks = apart.ranks.iter().filter(|_| apart.by != ApartBy::Missing);
            all.extend(ranks.chain(&apart.among));
        }
        Self { scene, all, waiting }
    }

    /// Fewer than the others, and none of them waits.
    fn few(&self, ranks: Ranks) -> Option<Ranks> {
        let n = self.all.len().max(2);
        (!ranks.is_empty() && ranks.len() * 2 <= n && ranks.is_disjoint(&self.waiting)).then_some(ranks)
    }

    /// Those for which the others wait, by a list. An extra call is made by those that are not in it.
    fn missing(&self, cause: Cause) -> Option<Ranks> {
        let ranks = self.told(ApartBy::Missing);
        if ranks.is_empty() {
            return None;
        }
        let others: Ranks = self.all.difference(&ranks).copied().collect();
        if cause == Cause::ExtraCollective {
            return self.few(others);
        }
        // Where only the list is known, it may be of most; a list of everybody says that each waits for another.
        let is_of_everybody = !self.all.is_empty() && others.is_empty() && self.all.len() > 1;
        let is_few = self.all.is_empty() || ranks.len() * 2 <= self.all.union(&ranks).count();
        (!is_of_everybody && is_few && ranks.is_disjoint(&self.waiting)).then_some(ranks)
    }

    /// Those with the least to do.
    fn least(&self) -> Option<Ranks> {
        // Each line compares those that it names: of several the first that parts them.
        let mut all = told(self.scene).filter(|apart| apart.by == ApartBy::Least);
        all.find_map(|apart| self.few(apart.ranks.iter().copied().collect())).or_else(|| self.shortest())
    }

    /// Those whose loops have the fewest steps, as each rank's own log shows them.
    fn shortest(&self) -> Option<Ranks> {
        let totals = self.scene.case().observations.iter().filter_map(|o| match &o.fact {
            Fact::Progress(progress) => Some((self.scene.roster().speaker(o)?, progress.total?)),
            _ => None,
        });
        let totals: BTreeMap<Rank, u64> = totals.collect();
        let least = totals.values().min()?;
        let few: Ranks = totals.iter().filter(|(_, n)| *n == least).map(|(rank, _)| *rank).collect();
        (few.len() * 2 <= totals.len()).then_some(few).and_then(|few| self.few(few))
    }

    /// The one that has not come as far as the others by what they print.
    fn behind(&self) -> Option<Ranks> {
        let mut all = told(self.scene).filter(|apart| apart.by == ApartBy::Behind);
        all.find_map(|apart| self.few(apart.ranks.iter().copied().collect()))
    }

    /// The one rank, of at least three, whose stack is at another place than those of the others.
    fn apart_by_stack(&self) -> Option<Ranks> {
        let looks = looks(self.scene.conditions());
        let seen: Vec<&PostureLook<'_>> = looks.iter().collect();
        let odd: Ranks = odd_ones(self.scene.conditions(), &seen).into_iter().collect();
        (looks.len() > 2 && odd.len() == 1).then_some(odd).and_then(|odd| self.few(odd))
    }

    /// Those that say that they are at their end, or have exited in order.
    fn done(&self) -> Option<Ranks> {
        let mut ranks = self.told(ApartBy::Done);
        let has_left = |end: End| matches!(end, End::InOrder | End::Exited(0));
        ranks.extend(self.scene.fates().all().filter(|(_, fate)| has_left(fate.end())).map(|(rank, _)| rank));
        ranks.extend(self.scene.case().observations.iter().filter_map(|o| match &o.fact {
            Fact::Progress(progress) if progress.ended.is_some() => self.scene.roster().speaker(o),
            _ => None,
        }));
        self.few(ranks)
    }

    /// Those that stand elsewhere by their stacks.
    fn elsewhere(&self, cause: Cause) -> Option<Ranks> {
        let looks = looks(self.scene.conditions());
        let seen: Vec<&PostureLook<'_>> = looks.iter().collect();
        // A look at one rank alone was taken since it does not wait.
        let is_outside = |look: &&PostureLook<'_>| match look.posture {
            Posture::Rests | Posture::Halted => true,
            Posture::OnGpu => looks.len() == 1,
            Posture::InCollective => false,
        };
        let outside: Ranks = looks
            .iter()
            .filter(|look| is_outside(look) && !self.waiting.contains(&look.rank))
            .map(|look| look.rank)
            .collect();
        let others_wait =
            !self.waiting.is_empty() || looks.iter().any(PostureLook::waits) && outside.len() < looks.len();
        let outside = Some(outside).filter(|ranks| others_wait && !ranks.is_empty());
        let odd = || {
            let odd: Ranks = odd_ones(self.scene.conditions(), &seen).into_iter().collect();
            self.few(odd)
        };
        match cause {
            // Whoever works or rests outside is what the others wait for, however many they are.
            Cause::StuckOutsideCollective | Cause::SlowRankStall | Cause::TimeoutTooShort => {
                outside.or_else(odd)
            }
            _ => odd()
                .or_else(|| outside.and_then(|ranks| self.few(ranks)))
                // In an extra call the one that makes it waits.
                .or_else(|| {
                    let is_left_out = is_of_calls(cause) && cause != Cause::ExtraCollective;
                    is_left_out.then(|| self.in_other_call(&looks))?
                }),
        }
    }

    /// Those without a timeout that are in another call than all that timed out.
    fn in_other_call(&self, looks: &[PostureLook<'_>]) -> Option<Ranks> {
        let call = |rank: Rank| {
            let stand = self.scene.condition(rank)?.stand.as_ref()?;
            let frame = stand.frames.iter().find(|frame| !frame.is_native())?;
            Some((&*frame.function, &*frame.file))
        };
        let (waiting, others): (Vec<&PostureLook<'_>>, Vec<&PostureLook<'_>>) =
            looks.iter().partition(|look| self.waiting.contains(&look.rank));
        let calls: BTreeSet<_> = waiting.iter().filter_map(|look| call(look.rank)).collect();
        if calls.is_empty() {
            return None;
        }
        let is_in_other =
            |look: &&&PostureLook<'_>| call(look.rank).is_some_and(|call| !calls.contains(&call));
        self.few(others.iter().filter(is_in_other).map(|look| look.rank).collect())
    }

    /// The few that timed out in another kind of call than the others, where calls have no numbers.
    fn odd_call(&self) -> Option<Ranks> {
        let mut by_op: BTreeMap<&OpKind, Ranks> = BTreeMap::new();
        for observation in &self.scene.case().observations {
            let Fact::Torch(TorchEvent::WatchdogTimeout { work, .. }) = &observation.fact else { continue };
            // Numbers belong to groups, of which a rank has several: what differs may be that.
            if work.seq.is_some() {
                return None;
            }
            let Some(rank) = self.scene.roster().speaker(observation) else { continue };
            by_op.entry(&work.kind).or_default().insert(rank);
        }
        let n: usize = by_op.values().map(Ranks::len).sum();
        let most = by_op.values().map(Ranks::len).max()?;
        let few: Ranks = by_op.values().filter(|ranks| ranks.len() < most).flatten().copied().collect();
        (n > 2 && most * 3 >= n * 2 && !few.is_empty() && few.len() + most == n).then_some(few)
    }

    /// The only one that does not report that it waited.
    fn silent(&self) -> Option<Ranks> {
        let mut silent = self.all.difference(&self.waiting);
        match (silent.next(), silent.next()) {
            (Some(one), None) if !self.waiting.is_empty() => Some(Ranks::from([*one])),
            _ => None,
        }
    }

    /// Rank 0 where the cause is what rank 0 does for the others: it waits in its extra call, too, but not for itself. On the
    /// public rounds and the recordings, rank 0 made the extra call in 34 of 35 cases and was the one that kept the others
    /// waiting in 22 of 25.
    fn first(&self, cause: Cause) -> Option<Ranks> {
        let zero = Rank(0);
        let is_of_first = match cause {
            Cause::ExtraCollective => true,
            Cause::SlowRankStall => {
                self.all.iter().any(|rank| *rank != zero) && !self.waiting.contains(&zero)
            }
            _ => false,
        };
        is_of_first.then(|| Ranks::from([zero]))
    }

    /// All that texts set apart in this way.
    fn told(&self, by: ApartBy) -> Ranks {
        told(self.scene)
            .filter(|apart| apart.by == by)
            .flat_map(|apart| apart.ranks.iter().copied())
            .collect()
    }
}

/// The ranks that printed something, as far as texts show it.
pub(super) fn spoke(scene: &Scene<'_>) -> Ranks {
    told(scene).flat_map(|apart| apart.among.iter().copied()).collect()
}

/// What texts set apart.
fn told<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a ringleader_model::Apart> {
    scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Apart(apart) => Some(&**apart),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use ringleader_correlate::Scene;
    use ringleader_model::{Apart, ApartBy, Cause, Fact, Progress, Rank, RankSet, SourceKind, Who};

    use super::of_hang;
    use crate::trial::StagedCase;

    const BARRIER: (&str, u32, &str) = ("torch/distributed/distributed_c10d.py", 5030, "barrier");
    const MAIN: (&str, u32, &str) = ("/srv/train.py", 90, "main");

    fn ranks(stage: &StagedCase, cause: Cause) -> Vec<u32> {
        let found = of_hang(&Scene::new(&stage.case), cause, &RankSet::default());
        found.into_iter().flatten().map(|rank| rank.0).collect()
    }

    fn told(by: ApartBy, ranks: &[u32], among: &[u32]) -> StagedCase {
        let of = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect();
        let apart = Apart { by, ranks: of(ranks), among: of(among) };
        StagedCase::new().push(SourceKind::PlainText, Who::default(), Fact::Apart(Box::new(apart)))
    }

    #[test]
    fn those_that_a_list_misses() {
        let few = || told(ApartBy::Missing, &[3], &[0, 1, 2, 3]);
        assert_eq!(ranks(&few(), Cause::SkippedCollective), [3]);
        // Most are missing in a call that few make.
        let most = || told(ApartBy::Missing, &[1, 2, 3], &[0, 1, 2, 3]);
        assert_eq!(ranks(&most(), Cause::ExtraCollective), [0]);
        assert_eq!(ranks(&most(), Cause::SkippedCollective), []);
        // What all bring upon each other.
        assert_eq!(ranks(&few(), Cause::DeadlockCycle), []);
        // All that is known, and everybody.
        let alone = told(ApartBy::Missing, &[3, 4, 7], &[]);
        assert_eq!(ranks(&alone, Cause::MissingRank), [3, 4, 7]);
        let each = told(ApartBy::Missing, &[0, 1, 2], &[0, 1, 2]);
        assert_eq!(ranks(&each, Cause::UnevenInputs), []);
    }

    #[test]
    fn those_with_the_least_are_to_blame_for_uneven_inputs_alone() {
        let least = || told(ApartBy::Least, &[1], &[0, 1]);
        assert_eq!(ranks(&least(), Cause::UnevenInputs), [1]);
        assert_eq!(ranks(&least(), Cause::SkippedCollective), []);
    }

    #[test]
    fn the_one_that_is_behind_in_what_it_prints() {
        let behind = || told(ApartBy::Behind, &[2], &[0, 1, 2]);
        assert_eq!(ranks(&behind(), Cause::StuckOutsideCollective), [2]);
        assert_eq!(ranks(&behind(), Cause::ShapeMismatch), []);
    }

    #[test]
    fn those_whose_loops_are_shorter() {
        let job = |totals: [u64; 2]| {
            totals.iter().enumerate().fold(StagedCase::new(), |stage, (rank, total)| {
                let progress =
                    Progress { n_lines: 9, n_steps: 2, total: Some(*total), ..Progress::default() };
                stage.push(SourceKind::PlainText, Who::rank(rank as u32), Fact::Progress(progress))
            })
        };
        assert_eq!(ranks(&job([20, 30]), Cause::UnevenInputs), [0]);
        assert_eq!(ranks(&job([30, 30]), Cause::UnevenInputs), []);
        assert_eq!(ranks(&job([20, 30]), Cause::SkippedCollective), []);
    }

    #[test]
    fn the_one_of_several_stacks_that_stands_elsewhere() {
        let seen = || StagedCase::new().process("node0", 100, Some(0)).process("node0", 101, Some(1));
        let seen = || seen().process("node0", 102, Some(2));
        let most = || seen().stands(0, &[BARRIER, MAIN]).stands(1, &[BARRIER, MAIN]);
        let other = ("/srv/train.py", 120, "evaluate");
        assert_eq!(ranks(&most().stands(2, &[BARRIER, other]), Cause::FrameworkBug), [2]);
        // Two show nobody apart.
        let two = seen().stands(0, &[BARRIER, MAIN]).stands(2, &[BARRIER, other]);
        assert_eq!(ranks(&two, Cause::FrameworkBug), []);
    }

    #[test]
    fn those_at_their_end() {
        assert_eq!(ranks(&told(ApartBy::Done, &[2], &[0, 1, 2]), Cause::RankExitedEarly), [2]);
        assert_eq!(ranks(&told(ApartBy::Done, &[0, 1, 2], &[0, 1, 2]), Cause::RankExitedEarly), []);
    }

    #[test]
    fn the_only_one_that_reports_no_timeout() {
        let out = |stage: StagedCase, rank| stage.timed_out(rank, "ar:1", 9, 9);
        let two = || out(out(StagedCase::job(3).logs(), 0), 1);
        assert_eq!(ranks(&two(), Cause::SkippedCollective), [2]);
        assert_eq!(ranks(&out(two(), 2), Cause::SkippedCollective), []);
    }

    #[test]
    fn those_in_another_call_than_all_that_timed_out() {
        const RECEIVE: (&str, u32, &str) = ("megatron/p2p_communication.py", 412, "recv_backward");
        let job = |top| {
            let stage = StagedCase::job(4).logs().stands(0, &[top, MAIN]).stands(1, &[BARRIER, MAIN]);
            stage.timed_out(1, "ar:1", 9, 9).timed_out(3, "ar:1", 9, 9)
        };
        assert_eq!(ranks(&job(RECEIVE), Cause::SkippedCollective), [0]);
        assert_eq!(ranks(&job(BARRIER), Cause::SkippedCollective), []);
    }

    #[test]
    fn those_that_stand_elsewhere() {
        let seen = || StagedCase::new().process("node0", 100, Some(0)).process("node0", 101, Some(1));
        let seen = || seen().process("node0", 102, Some(2));
        let most = || seen().stands(0, &[BARRIER, MAIN]).stands(1, &[BARRIER, MAIN]);
        let other = ("/srv/train.py", 120, "evaluate");
        assert_eq!(ranks(&most().stands(2, &[BARRIER, other]), Cause::SkippedCollective), [2]);
        assert_eq!(ranks(&most().stands(2, &[BARRIER, MAIN]), Cause::SkippedCollective), []);
    }
}
