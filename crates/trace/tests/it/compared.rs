//! Two sets of timelines side by side, where the difference is known.

use ringleader_model::OpKind;
use ringleader_trace::analyse;
use ringleader_trace::compare::{Comparison, Fate, Part, compare};
use ringleader_trace::split::Idle;

use crate::made::{Do, Job};

const MIB: u64 = 1 << 20;

/// Ten layers of 1 ms with all-reduces of 0.4 ms beside them, and a last one that is exposed.
fn program() -> Vec<Do> {
    let mut list = Vec::new();
    for _ in 0..10 {
        list.extend([Do::Busy(20_000), Do::Kernel("gemm", 1_000_000)]);
        list.push(Do::Collective(OpKind::AllReduce, 32 * MIB, 400_000));
    }
    list.extend([Do::WaitComm, Do::Kernel("adam", 300_000)]);
    list
}

fn compared(there: &Job, here: &Job) -> Comparison {
    let (there, here) = (there.record(), here.record());
    let before = analyse(there.iter().map(|timeline| (timeline, None)));
    let after = analyse(here.iter().map(|timeline| (timeline, None)));
    compare(&before, &after)
}

fn near(found_ns: i64, wanted_ns: i64) -> bool {
    (found_ns - wanted_ns).abs() <= 30_000 + wanted_ns.abs() / 20
}

fn part(comparison: &Comparison, part: Part) -> i64 {
    comparison.parts.iter().find(|found| found.part == part).unwrap().change.ns()
}

/// Laws of every comparison.
fn adds_up(comparison: &Comparison) {
    let sum: i64 = comparison.parts.iter().map(|part| part.change.ns()).sum();
    assert!((sum - comparison.step.ns()).abs() < 100, "{sum} {:?}", comparison.step);
    for rank in &comparison.ranks {
        let sum: i64 = rank.parts.iter().map(|part| part.change.ns()).sum();
        assert!((sum - rank.step.ns()).abs() < 100, "{sum} {:?}", rank.step);
    }
}

#[test]
fn equal_sets_do_not_differ() {
    let job = Job::of(2, &program());
    let found = compared(&job, &job);
    adds_up(&found);
    assert_eq!(found.step.ns(), 0);
    assert!(!found.step.is_clear() && found.parts.iter().all(|part| !part.change.is_clear()));
    assert!(found.kernels.is_empty(), "{:?}", found.kernels);
    assert!(found.collectives.iter().all(|class| class.change_ns() == 0));
    assert_eq!(found.ranks.len(), 2);
    assert!(found.ranks.iter().all(|rank| rank.is_by_number && rank.steps.iter().all(|(a, b)| a == b)));
}

#[test]
fn a_slower_rank_is_named_and_its_cost_is_the_jobs() {
    let there = Job::of(4, &program());
    let mut here = Job::of(4, &program());
    for what in &mut here.programs[2] {
        if let Do::Kernel("gemm", ns) = what {
            *ns += 200_000;
        }
    }
    let found = compared(&there, &here);
    adds_up(&found);
    // Means over the ranks would say that computation costs 0.5 ms, and waiting 1.5 ms.
    assert!(near(found.step.ns(), 2_000_000) && found.step.is_clear(), "{:?}", found.step);
    assert_eq!(found.parts[0].part, Part::Compute, "{:?}", found.parts);
    assert!(near(part(&found, Part::Compute), 2_000_000));
    assert!(near(part(&found, Part::Waiting), 0), "{:?}", found.parts);
    assert!(found.last_ranks.iter().all(|(_, here)| *here == 2), "{:?}", found.last_ranks);
    let of = |rank: usize, part: Part| {
        found.ranks[rank].parts.iter().find(|found| found.part == part).unwrap().change.ns()
    };
    assert!(near(of(2, Part::Compute), 2_000_000) && near(of(1, Part::Compute), 0));
    assert!(of(1, Part::Waiting) > 0, "the others wait: {:?}", found.ranks[1]);
    let gemm = &found.kernels[0];
    assert_eq!((gemm.name.as_str(), gemm.fate(), gemm.rank, gemm.n_ranks), ("gemm", Fate::Longer, 2, 1));
    assert_eq!(gemm.each_ns, (1_000_000, 1_200_000));
}

#[test]
fn kernels_come_and_go() {
    let there = Job::of(2, &program());
    let mut list = program();
    list.push(Do::Kernel("cast", 500_000));
    list.retain(|what| *what != Do::Kernel("adam", 300_000));
    let found = compared(&there, &Job::of(2, &list));
    adds_up(&found);
    let fates: Vec<(&str, Fate, usize)> =
        found.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.fate(), kernel.n_ranks)).collect();
    assert_eq!(fates, [("cast", Fate::Added, 2), ("adam", Fate::Gone, 2)]);
    assert!(near(found.kernels[0].change.ns(), 500_000) && near(found.kernels[1].change.ns(), -300_000));
    assert!(near(found.step.ns(), 200_000), "{:?}", found.step);
}

#[test]
fn slower_communication_shows_its_bandwidth() {
    let there = Job::of(2, &program());
    let mut list = program();
    for what in &mut list {
        if let Do::Collective(_, _, ns) = what {
            *ns = 1_600_000;
        }
    }
    let found = compared(&there, &Job::of(2, &list));
    adds_up(&found);
    let class = &found.collectives[0];
    let (before, after) = (class.there.unwrap(), class.here.unwrap());
    assert_eq!(
        (class.kind, class.size_bytes, before.n, after.n),
        (Some(OpKind::AllReduce), 32 * MIB, 10.0, 10.0)
    );
    let share = after.busbw_gbs.unwrap() / before.busbw_gbs.unwrap();
    assert!((share - 0.25).abs() < 0.01, "{share}");
    assert!(near(class.change_ns(), 12_000_000));
    // Ten of 1.6 ms behind the first layer of 1 ms, where there were ten layers and one of 0.4 ms.
    assert_eq!(found.parts[0].part, Part::ExposedComm, "{:?}", found.parts);
    assert!(near(found.step.ns(), 17_300_000 - 10_700_000), "{:?}", found.step);
}

#[test]
fn idle_time_is_told_by_its_reason_and_calls_are_counted() {
    let there = Job::of(2, &program());
    let mut list = program();
    list.insert(0, Do::Load(6_000_000));
    list.insert(0, Do::Synchronize);
    let found = compared(&there, &Job::of(2, &list));
    adds_up(&found);
    assert_eq!(found.parts[0].part, Part::Idle(Idle::Data), "{:?}", found.parts);
    assert!(near(found.parts[0].change.ns(), 6_000_000));
    assert_eq!(found.ranks[0].n_calls[2], (0.0, 1.0), "{:?}", found.ranks[0].n_calls);
}

#[test]
fn other_ranks_and_other_numbers_of_steps_are_said() {
    let there = Job { n_steps: 5, is_annotated: false, ..Job::of(2, &program()) };
    let here = Job { n_steps: 9, ..Job::of(4, &program()) };
    let found = compared(&there, &here);
    assert_eq!((found.only_here.as_slice(), found.only_there.len()), ([2, 3].as_slice(), 0));
    assert!(found.ranks.iter().all(|rank| !rank.is_by_number && rank.steps.len() >= 2), "{:?}", found.ranks);
    assert!(found.step.n_pairs >= 2);
}
