//! Laws of the path from a case to a verdict, over small random jobs.
//!
//! A healthy job is `none`; names of ranks, order of evidence, and the clocks' zero change no verdict; and healthy
//! evidence never makes a verdict worse.

use proptest::prelude::*;
use ringleader_model::{Cause, RankSet, SourceKind, Verdict};

use crate::diagnose;
use crate::trial::StagedCase;

/// A call that every member of a group makes.
#[derive(Clone, Debug)]
struct LawCall {
    in_subgroup: bool,
    kind: &'static str,
    elements: u64,
}

/// What one rank does otherwise than its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LawFault {
    /// Leaves out a call.
    Skip,
    /// Makes one more before it.
    Extra,
    /// Another size.
    Size,
    /// Another type.
    Type,
    /// Another kind.
    Operation,
    /// Does not come as far as the call.
    Late,
}

impl LawFault {
    fn cause(self) -> Cause {
        match self {
            Self::Skip => Cause::SkippedCollective,
            Self::Extra => Cause::ExtraCollective,
            Self::Size => Cause::ShapeMismatch,
            Self::Type => Cause::DtypeMismatch,
            Self::Operation => Cause::OpMismatch,
            Self::Late => Cause::StuckOutsideCollective,
        }
    }
}

/// A job: what its ranks call, under which names they go, and the order of its evidence.
#[derive(Clone, Debug)]
struct LawJob {
    n_ranks: u32,
    /// Members of the subgroup, before renaming.
    subgroup: Vec<u32>,
    calls: Vec<LawCall>,
    /// What goes wrong, on which rank, and at which call: the n-th of those on the default group.
    fault: Option<(LawFault, u32, usize)>,
    /// `names[r]` is the rank under which `r` goes.
    names: Vec<u32>,
    /// Order of the pieces of evidence.
    order: Vec<usize>,
    /// Added to all clocks, and to those of single ranks.
    shift_ns: i64,
    apart_ns: Vec<i64>,
    /// A rank whose dump is lost.
    lost: Option<u32>,
    /// Process list, healthy.
    with_ps: bool,
    /// A text in which no reader found anything.
    with_text: bool,
    /// NCCL's logs, with the calls in them.
    with_logs: bool,
}

impl LawJob {
    /// The script of a rank. From the fault on nothing on the default group finishes.
    fn script(&self, rank: u32, finished: bool) -> String {
        let mut words = Vec::new();
        let mut n_world = 0;
        for call in &self.calls {
            if call.in_subgroup {
                if self.subgroup.contains(&rank) {
                    words.push(format!("dp/{}:{}", call.kind, call.elements));
                }
                continue;
            }
            let at = n_world;
            n_world += 1;
            let open = if finished && self.fault.is_some_and(|(_, _, nth)| at >= nth) { "?" } else { "" };
            let mine = self.fault.filter(|(_, odd, nth)| *odd == rank && *nth == at).map(|(fault, ..)| fault);
            let LawCall { kind, elements, .. } = call;
            let line = 10 + n_world;
            match mine {
                Some(LawFault::Skip) => {}
                Some(LawFault::Late) => break,
                Some(LawFault::Extra) => {
                    words.push(format!("bc:7@{}{open} {kind}:{elements}@{line}{open}", line + 500));
                }
                Some(LawFault::Size) => words.push(format!("{kind}:{}@{line}{open}", elements + 5000)),
                Some(LawFault::Type) => words.push(format!("{kind}:{elements}:Half@{line}{open}")),
                Some(LawFault::Operation) => words.push(format!("rd:{elements}@{line}{open}")),
                None => words.push(format!("{kind}:{elements}@{line}{open}")),
            }
        }
        words.join(" ")
    }

    fn name(&self, rank: u32) -> u32 {
        self.names[rank as usize]
    }

    fn stage(&self) -> StagedCase {
        let mut members: Vec<u32> = self.subgroup.iter().map(|r| self.name(*r)).collect();
        members.sort_unstable();
        let mut stage = StagedCase::job(self.n_ranks).group("dp", members);
        let n = self.n_ranks as usize;
        for piece in &self.order {
            let rank = (piece % n) as u32;
            stage.shift_ns = self.shift_ns + self.apart_ns.get(rank as usize).copied().unwrap_or(0);
            stage = match piece / n {
                0 if self.lost == Some(rank) => stage,
                0 => stage.dump(self.name(rank), &self.script(rank, true)),
                1 if self.with_logs => stage.log(self.name(rank), "node1", &self.world_only(rank)),
                2 if rank == 0 && self.with_ps => stage.ps(&"S ".repeat(n)),
                2 if rank == 1 && self.with_text => {
                    stage.source(SourceKind::PlainText);
                    stage
                }
                _ => stage,
            };
        }
        stage
    }

    /// The calls on the default group: the communicator of the whole job.
    fn world_only(&self, rank: u32) -> String {
        let script = self.script(rank, false);
        script.split(' ').filter(|w| !w.is_empty() && !w.starts_with("dp/")).collect::<Vec<_>>().join(" ")
    }

    fn verdict(&self) -> Verdict {
        diagnose(&self.stage().case)
    }
}

fn culprits(verdict: &Verdict) -> RankSet {
    verdict.culprits.iter().filter_map(|c| c.rank).collect()
}

/// A job in which all is well. In `distinct` jobs no two calls on the default group are alike.
fn jobs(distinct: bool) -> impl Strategy<Value = LawJob> {
    let call = (any::<bool>(), prop::sample::select(vec!["ar", "ag", "rs", "bc"]), 1..6_u64);
    (2..=6_u32, prop::collection::vec(call, 1..24), any::<[bool; 3]>()).prop_flat_map(
        move |(n_ranks, calls, with)| {
            let all: Vec<u32> = (0..n_ranks).collect();
            let subgroup = prop::sample::subsequence(all.clone(), 1..=n_ranks as usize);
            let pieces: Vec<usize> = (0..3 * n_ranks as usize).collect();
            (subgroup, Just(all), Just(pieces)).prop_map(move |(subgroup, names, order)| LawJob {
                n_ranks,
                subgroup,
                calls: (0..)
                    .zip(&calls)
                    .map(|(nth, (in_subgroup, kind, elements))| LawCall {
                        in_subgroup: *in_subgroup,
                        kind,
                        elements: if distinct { 100 + nth } else { *elements },
                    })
                    .collect(),
                fault: None,
                names,
                order,
                shift_ns: 0,
                apart_ns: Vec::new(),
                lost: None,
                with_ps: with[0],
                with_text: with[1],
                with_logs: with[2],
            })
        },
    )
}

/// A job of at least this many ranks; one does otherwise than its peers at a call that two more follow.
fn faults(least: u32) -> impl Strategy<Value = LawJob> {
    jobs(true).prop_flat_map(move |mut job| {
        job.n_ranks = job.n_ranks.max(least);
        job.names = (0..job.n_ranks).collect();
        job.order = (0..3 * job.n_ranks as usize).collect();
        // Three calls at least, so that what follows the fault decides.
        job.calls.extend((0..3).map(|nth| LawCall { in_subgroup: false, kind: "ar", elements: 900 + nth }));
        let n_world = job.calls.iter().filter(|c| !c.in_subgroup).count();
        let fault = prop::sample::select(vec![
            LawFault::Skip,
            LawFault::Extra,
            LawFault::Size,
            LawFault::Type,
            LawFault::Operation,
            LawFault::Late,
        ]);
        (fault, 0..job.n_ranks, 0..n_world - 2)
            .prop_map(move |fault| LawJob { fault: Some(fault), ..job.clone() })
    })
}

/// The job with its ranks renamed and its evidence in another order, and the clocks shifted.
fn changed(job: impl Strategy<Value = LawJob>) -> impl Strategy<Value = (LawJob, LawJob)> {
    job.prop_flat_map(|job| {
        let shift = -1_000_000_000_000_000_i64..1_000_000_000_000_000;
        (Just(job.names.clone()).prop_shuffle(), Just(job.order.clone()).prop_shuffle(), shift, Just(job))
            .prop_map(|(names, order, shift_ns, job)| {
                let other = LawJob { names, order, shift_ns, ..job.clone() };
                (job, other)
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_healthy_job_is_none((job, other) in changed(jobs(false))) {
        for job in [job, other] {
            let verdict = job.verdict();
            prop_assert_eq!(verdict.cause, Cause::None, "{:#?}", verdict);
        }
    }

    #[test]
    fn a_planted_fault_is_named(job in faults(3)) {
        // A rank that is late is seen to live by a process list.
        let job = LawJob { with_ps: true, with_logs: true, ..job };
        let verdict = job.verdict();
        let Some((fault, rank, _)) = job.fault else { return Ok(()) };
        prop_assert_eq!(verdict.cause, fault.cause(), "{:#?}", verdict);
        prop_assert_eq!(culprits(&verdict).to_string(), rank.to_string());
    }

    #[test]
    fn renaming_ranks_renames_the_culprit((job, other) in changed(faults(3))) {
        let other = LawJob { order: job.order.clone(), shift_ns: 0, ..other };
        let (was, is) = (job.verdict(), other.verdict());
        prop_assert_eq!(was.cause, is.cause);
        let renamed: RankSet = culprits(&was).ranks().iter().map(|r| ringleader_model::Rank(other.name(r.0))).collect();
        prop_assert_eq!(renamed, culprits(&is));
    }

    #[test]
    fn order_and_clocks_decide_nothing((job, other) in changed(faults(3))) {
        let other = LawJob { names: job.names.clone(), ..other };
        let (was, is) = (job.verdict(), other.verdict());
        prop_assert_eq!((was.cause, was.confidence, culprits(&was)), (is.cause, is.confidence, culprits(&is)));
    }

    #[test]
    fn clocks_of_ranks_may_be_apart(job in faults(3), apart_ns in prop::collection::vec(-300_000_000_000_i64..300_000_000_000, 6)) {
        let (was, is) = (job.verdict(), LawJob { apart_ns, ..job }.verdict());
        prop_assert_eq!((was.cause, culprits(&was)), (is.cause, culprits(&is)));
    }

    #[test]
    fn a_lost_dump_hides_no_fault_of_others(job in faults(4), nth in 0..5_u32) {
        let Some((fault, odd, _)) = job.fault else { return Ok(()) };
        // Three records are left; a late rank could not be distinguished from the lost one.
        let lost = (odd + 1 + nth % (job.n_ranks - 1)) % job.n_ranks;
        if fault == LawFault::Late {
            return Ok(());
        }
        let verdict = LawJob { lost: Some(lost), with_logs: false, ..job }.verdict();
        prop_assert_eq!(verdict.cause, fault.cause(), "{:#?}", verdict);
        prop_assert_eq!(culprits(&verdict).to_string(), odd.to_string());
    }

    #[test]
    fn healthy_evidence_adds_nothing(job in prop_oneof![jobs(false), faults(3)]) {
        let bare = LawJob { with_ps: false, with_text: false, ..job.clone() };
        let more = LawJob { with_ps: true, with_text: true, ..job };
        let (was, is) = (bare.verdict(), more.verdict());
        prop_assert_eq!(was.cause, is.cause);
        prop_assert_eq!(culprits(&was), culprits(&is));
        prop_assert_eq!(was.findings.len(), is.findings.len());
    }
}
