//! Imbalance by axis: made timelines of 4 and 8 ranks in meshes.

use ringleader_model::{
    Cause, CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};
use ringleader_trace::axes::{Amount, Axis};
use ringleader_trace::{Analysis, analyse};

/// What a rank does, one after the other.
#[derive(Clone)]
pub(crate) enum Act {
    /// Name, time, blocks.
    Compute(&'static str, i64, u32),
    /// With these ranks: description, kind, elements given and got.
    Together(Vec<u32>, &'static str, OpKind, (u64, u64)),
}

/// A collective takes this long once all are there, ns.
const COST_NS: i64 = 200_000;
const N_STEPS: usize = 6;
const NAMES: [&str; 5] =
    ["gemm", "flash_fwd_kernel", "ncclDevKernel_Generic", "cudaLaunchKernel", "ProfilerStep"];

/// The timelines of ranks that do this in each step: `acts` of rank and step.
pub(crate) fn played(n_ranks: u32, acts: impl Fn(u32, usize) -> Vec<Act>) -> Vec<Timeline> {
    let mut timelines: Vec<Timeline> = (0..n_ranks)
        .map(|rank| {
            let mut timeline = Timeline::new(Recorder::Torch);
            timeline.rank = Some(Rank(rank));
            timeline.device = Some(rank);
            timeline.world_size = Some(n_ranks);
            timeline.names = NAMES.map(Into::into).to_vec();
            timeline
        })
        .collect();
    let mut now = vec![50_000_000_i64; n_ranks as usize];
    let mut host = 0;
    for step in 0..N_STEPS {
        let begin = now.iter().max().copied().unwrap();
        let all: Vec<Vec<Act>> = (0..n_ranks).map(|rank| acts(rank, step)).collect();
        for timeline in &mut timelines {
            timeline.steps.push(StepMark {
                number: step as u64,
                start_ns: host,
                end_ns: host + 1_000_000,
                bytes: (1, 2),
            });
        }
        let mut at = vec![0; n_ranks as usize];
        while at.iter().zip(&all).any(|(at, acts)| *at < acts.len()) {
            for rank in 0..n_ranks as usize {
                match all[rank].get(at[rank]) {
                    Some(Act::Compute(name, ns, n_blocks)) => {
                        let start = now[rank];
                        now[rank] = start + ns;
                        let name = NAMES.iter().position(|known| known == name).unwrap() as u32;
                        add(
                            &mut timelines[rank],
                            (name, 7),
                            WorkKind::Compute,
                            (start, now[rank]),
                            *n_blocks,
                        );
                        at[rank] += 1;
                    }
                    Some(Act::Together(ranks, ..)) => {
                        let ready = |other: &u32| {
                            let other = *other as usize;
                            matches!(all[other].get(at[other]), Some(Act::Together(with, ..)) if with == ranks)
                        };
                        if !ranks.iter().all(ready) {
                            continue;
                        }
                        let end = ranks.iter().map(|r| now[*r as usize]).max().unwrap() + COST_NS;
                        for other in ranks.clone() {
                            let other = other as usize;
                            let Some(Act::Together(ranks, description, kind, (given, got))) =
                                all[other].get(at[other])
                            else {
                                unreachable!()
                            };
                            timelines[other].calls.push(CommCall {
                                kind: Some(*kind),
                                group: format!("{ranks:?}").into(),
                                description: (*description).into(),
                                ranks: ranks.clone(),
                                group_size: ranks.len() as u32,
                                in_elements: *given,
                                out_elements: *got,
                                element_bytes: 2,
                                has_splits: given != got,
                                ..CommCall::default()
                            });
                            add(&mut timelines[other], (2, 20), WorkKind::Comm, (now[other], end), 16);
                            now[other] = end;
                            at[other] += 1;
                        }
                    }
                    None => {}
                }
            }
        }
        // The host is a step ahead.
        host = begin;
    }
    for timeline in &mut timelines {
        timeline.work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
        timeline.host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns)));
    }
    timelines
}

fn add(
    timeline: &mut Timeline,
    (name, stream): (u32, u32),
    kind: WorkKind,
    (start_ns, end_ns): (i64, i64),
    n_blocks: u32,
) {
    let link = timeline.work.len() as u32 + 1;
    let step_ns = timeline.steps.last().map_or(0, |step| step.start_ns);
    let n_before = timeline.host_spans.iter().filter(|s| s.start_ns >= step_ns).count() as i64;
    let launched = step_ns + 6_000 * n_before;
    timeline.host_spans.push(HostSpan {
        start_ns: launched,
        end_ns: launched + 5_000,
        name: 3,
        thread: 1,
        kind: SpanKind::Runtime(RuntimeCall::Launch),
        link,
    });
    let call = if kind == WorkKind::Comm { timeline.calls.len() as u32 } else { 0 };
    timeline.work.push(DeviceWork {
        start_ns,
        end_ns,
        name,
        stream,
        kind,
        correlation: link,
        call,
        size_bytes: 0,
        n_blocks,
    });
}

/// The ranks that share all other coordinates with this one, `apart` from each other.
pub(crate) fn line(rank: u32, size: u32, apart: u32) -> Vec<u32> {
    let first = rank - rank / apart % size * apart;
    (0..size).map(|n| first + n * apart).collect()
}

/// A step of 8 ranks: tensor parallelism by two, data parallelism by four.
fn mesh(rank: u32, names: [&'static str; 2], attention_ns: i64) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..4 {
        acts.push(Act::Compute("gemm", 2_000_000, 132));
        acts.push(Act::Compute("flash_fwd_kernel", attention_ns, (attention_ns / 10_000) as u32));
        acts.push(Act::Together(line(rank, 2, 1), names[0], OpKind::AllReduce, (1 << 20, 1 << 20)));
    }
    acts.push(Act::Together(line(rank, 4, 2), names[1], OpKind::AllReduce, (1 << 24, 1 << 24)));
    acts
}

fn look(timelines: &[Timeline]) -> Analysis<'_> {
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        assert!(steps.all.iter().zip(splits).all(|(step, split)| split.sum_ns() == step.length_ns()));
    }
    analysis
}

fn axis<'a>(analysis: &'a Analysis<'_>, name: &str) -> &'a Axis {
    analysis
        .axes
        .iter()
        .find(|axis| axis.name == name)
        .unwrap_or_else(|| panic!("{name}: {:?}", analysis.axes))
}

fn excess(axis: &Axis, what: Amount) -> Option<i64> {
    axis.unequal.iter().find(|unequal| unequal.what == what).map(|unequal| unequal.excess_pct.round() as i64)
}

const EVEN: [&str; 2] = ["mesh_tp", "mesh_dp_shard"];

#[test]
fn equal_ranks_are_equal_on_every_axis() {
    let timelines = played(8, |rank, _| mesh(rank, EVEN, 1_000_000));
    let analysis = look(&timelines);
    let (tp, dp) = (axis(&analysis, "tp"), axis(&analysis, "dp"));
    assert_eq!(tp.groups, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]]);
    assert_eq!(dp.groups, [vec![0, 2, 4, 6], vec![1, 3, 5, 7]]);
    for axis in [tp, dp] {
        assert_eq!((axis.wait_ns, axis.unequal.len(), axis.is_named), (0, 0, true), "{axis:?}");
    }
    assert!(!analysis.advice.iter().any(|advice| advice.is_worth), "{:?}", analysis.advice.first());
}

#[test]
fn sequences_of_unequal_length_show_on_the_data_axis() {
    // Each step another replica has the longest sequences; its two ranks have the same ones.
    let timelines = played(8, |rank, step| {
        let longest = step as u32 % 4 == rank / 2;
        mesh(rank, EVEN, if longest { 4_000_000 } else { 1_000_000 })
    });
    let analysis = look(&timelines);
    let (tp, dp) = (axis(&analysis, "tp"), axis(&analysis, "dp"));
    assert_eq!((excess(tp, Amount::Attention), tp.wait_ns), (None, 0), "{tp:?}");
    // 16 ms beside 4 ms three times: a mean of 7 ms.
    assert_eq!(excess(dp, Amount::Attention), Some(129), "{dp:?}");
    assert!(dp.wait_ns > 5_000_000, "{dp:?}");
    // Nobody has most of it in most steps.
    assert!(dp.unequal.iter().all(|unequal| unequal.steps_pct < 60.0), "{dp:?}");
    let first = analysis.advice.first().filter(|advice| advice.is_worth).unwrap();
    assert_eq!((first.cause, first.culprits.len()), (Cause::LoadImbalance, 0));
    let words = "(dp: one rank has 129 % more time in attention, as with longer sequences, than the mean of its group)";
    assert!(first.seen.ends_with(words), "{}", first.seen);
}

#[test]
fn a_slow_rank_delays_its_partner_and_shows_on_its_own_axis_too() {
    let timelines = played(8, |rank, _| {
        let mut acts = mesh(rank, EVEN, 1_000_000);
        for act in &mut acts {
            if let (5, Act::Compute(_, ns, _)) = (rank, act) {
                *ns *= 2;
            }
        }
        acts
    });
    let analysis = look(&timelines);
    // The same number of blocks takes longer: no unequal work.
    let (tp, dp) = (axis(&analysis, "tp"), axis(&analysis, "dp"));
    assert_eq!((excess(tp, Amount::Blocks), excess(dp, Amount::Blocks)), (None, None));
    assert_eq!(tp.last.map(|(rank, _)| rank), Some(5), "{tp:?}");
    assert_eq!(
        dp.unequal.first().map(|unequal| (unequal.what, unequal.rank)),
        Some((Amount::Computation, 5)),
        "{dp:?}"
    );
    let first = analysis.advice.first().filter(|advice| advice.is_worth).unwrap();
    assert_eq!((first.cause, first.culprits.clone()), (Cause::Straggler, vec![5]), "{first:?}");
    assert!(!first.seen.contains("one rank has"), "{}", first.seen);
}

/// A step of 4 ranks with experts: tokens are handed out, computed and handed back.
fn experts(rank: u32, description: &'static str, tokens: u64) -> Vec<Act> {
    let own = 1 << 20;
    let mut acts = Vec::new();
    for _ in 0..4 {
        acts.push(Act::Compute("gemm", 1_000_000, 132));
        acts.push(Act::Together(line(rank, 4, 1), description, OpKind::AllToAll, (own, tokens)));
        acts.push(Act::Compute("gemm", (tokens * 2) as i64, (tokens >> 13) as u32));
        acts.push(Act::Together(line(rank, 4, 1), description, OpKind::AllToAll, (tokens, own)));
    }
    acts
}

#[test]
fn the_load_of_experts_is_counted_in_tokens() {
    let loads = [700_000, 1_400_000, 900_000, 1_194_304];
    for (description, name) in [("EXPERT_MODEL_PARALLEL_GROUP", "ep"), ("undefined", "world")] {
        let timelines = played(4, |rank, _| experts(rank, description, loads[rank as usize]));
        let analysis = look(&timelines);
        let ep = axis(&analysis, name);
        assert_eq!(ep.groups, [vec![0, 1, 2, 3]]);
        // 1.4 of 1.05 million on average.
        assert_eq!(excess(ep, Amount::Tokens), Some(34), "{ep:?}");
        let tokens = ep.unequal.iter().find(|unequal| unequal.what == Amount::Tokens).unwrap();
        assert_eq!((tokens.rank, tokens.steps_pct.round() as i64), (1, 100));
        let first = analysis.advice.first().filter(|advice| advice.is_worth).unwrap();
        assert_eq!((first.cause, first.culprits.clone()), (Cause::LoadImbalance, vec![1]), "{first:?}");
        assert!(
            first.seen.contains(&format!("({name}: one rank has 34 % more tokens for its experts")),
            "{}",
            first.seen
        );
    }
}

#[test]
fn groups_without_a_name_are_told_by_their_members() {
    let timelines = played(8, |rank, _| mesh(rank, ["undefined", ""], 1_000_000));
    let analysis = look(&timelines);
    let mut names: Vec<_> = analysis.axes.iter().map(|axis| (axis.name.as_str(), axis.is_named)).collect();
    names.sort_unstable();
    assert_eq!(names, [("2 ranks side by side", false), ("4 ranks, 2 apart", false)]);
    // Each product waits for what two ranks sum up: no bucket hides that.
    assert!(axis(&analysis, "2 ranks side by side").is_on_path());
    assert!(!axis(&analysis, "4 ranks, 2 apart").is_on_path());
    assert!(!analysis.advice.iter().any(|advice| advice.is_worth), "{:?}", analysis.advice.first());
}
