//! Pipelines: made timelines of stages that hand activations on and gradients back.

use ringleader_model::{
    Cause, CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};
use ringleader_trace::{Analysis, analyse};

/// What a stage does, one after the other.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Compute(i64),
    Send { to: usize, id: u32 },
    Recv { from: usize, id: u32 },
}

/// All forward passes, then all backward passes (twice as long).
fn schedule(stage: usize, n_stages: usize, n_microbatches: u32, forward_ns: i64) -> Vec<Act> {
    let mut acts = Vec::new();
    for id in 0..n_microbatches {
        if stage > 0 {
            acts.push(Act::Recv { from: stage - 1, id });
        }
        acts.push(Act::Compute(forward_ns));
        if stage + 1 < n_stages {
            acts.push(Act::Send { to: stage + 1, id });
        }
    }
    for id in n_microbatches..2 * n_microbatches {
        if stage + 1 < n_stages {
            acts.push(Act::Recv { from: stage + 1, id });
        }
        acts.push(Act::Compute(2 * forward_ns));
        if stage > 0 {
            acts.push(Act::Send { to: stage - 1, id });
        }
    }
    acts
}

/// A transfer takes this long once both ends are there, ns.
const TRANSFER_NS: i64 = 60_000;
const N_STEPS: usize = 5;
const COMPUTE_STREAM: u32 = 7;

/// A stage while it is played.
struct Stage {
    acts: Vec<Act>,
    at: usize,
    /// When its streams are free: computation, and traffic with each other stage.
    compute_ns: i64,
    traffic_ns: Vec<i64>,
    /// End of the last receive, which the next computation waits for.
    received_ns: i64,
    timeline: Timeline,
}

impl Stage {
    fn new(rank: usize, acts: Vec<Act>, n_stages: usize) -> Self {
        let mut timeline = Timeline::new(Recorder::Torch);
        timeline.rank = Some(Rank(rank as u32));
        timeline.device = Some(rank as u32);
        timeline.names =
            ["gemm", "ncclDevKernel_SendRecv", "cudaLaunchKernel", "ProfilerStep"].map(Into::into).to_vec();
        Self { acts, at: 0, compute_ns: 0, traffic_ns: vec![0; n_stages], received_ns: 0, timeline }
    }

    /// Work, launched by the host long before.
    fn add(&mut self, name: u32, stream: u32, kind: WorkKind, (start_ns, end_ns): (i64, i64), call: u32) {
        let link = self.timeline.work.len() as u32 + 1;
        let step_ns = self.timeline.steps.last().map_or(0, |step| step.start_ns);
        let n_before = self.timeline.host_spans.iter().filter(|s| s.start_ns >= step_ns).count() as i64;
        let launched = step_ns + 6_000 * n_before;
        self.timeline.host_spans.push(HostSpan {
            start_ns: launched,
            end_ns: launched + 5_000,
            name: 2,
            thread: 1,
            kind: SpanKind::Runtime(RuntimeCall::Launch),
            link,
        });
        self.timeline.work.push(DeviceWork {
            start_ns: start_ns.max(launched + 5_000),
            end_ns,
            name,
            stream,
            kind,
            correlation: link,
            call,
            size_bytes: 0,
            n_blocks: 1,
        });
    }

    fn call(&mut self, kind: OpKind, peer: usize, is_told: bool) -> u32 {
        let told = CommCall {
            kind: Some(kind),
            group: "0".into(),
            group_size: self.traffic_ns.len() as u32,
            in_elements: 1 << 20,
            out_elements: 1 << 20,
            element_bytes: 4,
            peer: Some(peer as u32),
            ..CommCall::default()
        };
        // A batch with several peers tells neither kind nor peer.
        self.timeline.calls.push(if is_told { told } else { CommCall { kind: None, peer: None, ..told } });
        self.timeline.calls.len() as u32
    }
}

/// The timelines of a pipeline; `is_told` says whether kernels tell their peer.
fn played(n_stages: usize, n_microbatches: u32, is_told: bool) -> Vec<Timeline> {
    let mut stages: Vec<Stage> = (0..n_stages)
        .map(|stage| Stage::new(stage, schedule(stage, n_stages, n_microbatches, 3_000_000), n_stages))
        .collect();
    // The host is a step ahead of the GPU.
    let mut ahead = 0;
    for step in 0..N_STEPS {
        let begin = stages.iter().map(|s| s.compute_ns).max().unwrap().max(100_000_000);
        for stage in &mut stages {
            stage.at = 0;
            stage.timeline.steps.push(StepMark {
                number: step as u64,
                start_ns: ahead,
                end_ns: ahead + 1_000_000,
                bytes: (1, 2),
            });
        }
        ahead = begin;
        while stages.iter().any(|s| s.at < s.acts.len()) {
            let at: Vec<Option<Act>> = stages.iter().map(|s| s.acts.get(s.at).copied()).collect();
            for (rank, act) in at.iter().enumerate() {
                match *act {
                    Some(Act::Compute(ns)) => {
                        let stage = &mut stages[rank];
                        let start = stage.compute_ns.max(stage.received_ns).max(begin);
                        stage.compute_ns = start + ns;
                        stage.add(0, COMPUTE_STREAM, WorkKind::Compute, (start, start + ns), 0);
                        stage.at += 1;
                    }
                    Some(Act::Send { to, id }) if at[to] == Some(Act::Recv { from: rank, id }) => {
                        let sends = stages[rank].compute_ns.max(stages[rank].traffic_ns[to]).max(begin);
                        let receives = stages[to].traffic_ns[rank].max(begin);
                        let end = sends.max(receives) + TRANSFER_NS;
                        for (own, other, start, kind) in
                            [(rank, to, sends, OpKind::Send), (to, rank, receives, OpKind::Recv)]
                        {
                            let stage = &mut stages[own];
                            let call = stage.call(kind, other, is_told);
                            stage.add(1, 20 + other as u32, WorkKind::Comm, (start, end), call);
                            stage.traffic_ns[other] = end;
                            stage.at += 1;
                        }
                        stages[to].received_ns = end;
                        break;
                    }
                    _ => {}
                }
            }
        }
    }
    let mut timelines: Vec<Timeline> = stages.into_iter().map(|stage| stage.timeline).collect();
    for timeline in &mut timelines {
        timeline.work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
        timeline.host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns)));
    }
    timelines
}

fn look(timelines: &[Timeline]) -> Analysis<'_> {
    let analysis = analyse(timelines.iter().map(|timeline| (timeline, None)));
    for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
        assert!(steps.all.iter().zip(splits).all(|(step, split)| split.sum_ns() == step.length_ns()));
    }
    analysis
}

fn first(analysis: &Analysis<'_>) -> Option<(Cause, f64)> {
    analysis.advice.first().filter(|a| a.is_worth).map(|a| (a.cause, a.gain_pct))
}

#[test]
fn few_microbatches_leave_stages_idle() {
    for (n_stages, is_told) in [(2, true), (2, false), (4, true)] {
        let timelines = played(n_stages, 2, is_told);
        let (cause, gain) = first(&look(&timelines)).unwrap();
        assert_eq!(cause, Cause::PipelineBubble, "{n_stages} {is_told}");
        assert!(gain > 5.0, "{n_stages} {is_told}: {gain}");
    }
    // A limit: of more stages whose kernels do not tell their peer, transfers are not joined, and nothing is advised.
    assert_eq!(first(&look(&played(4, 2, false))), None);
}

#[test]
fn many_microbatches_leave_little() {
    let timelines = played(2, 32, true);
    assert_eq!(first(&look(&timelines)), None);
}

#[test]
fn both_ends_of_a_transfer_are_one_operation() {
    let timelines = played(4, 2, true);
    let analysis = look(&timelines);
    let axes: Vec<_> = analysis.axes.iter().map(|axis| (axis.name.as_str(), axis.groups.clone())).collect();
    assert_eq!(axes, [("p2p", vec![vec![0, 1, 2, 3]])], "pairs that hand on are one axis");
    let join = analysis.join;
    assert_eq!(join.n_alone, 0);
    assert_eq!(join.ops.len(), 3 * 2 * 2 * N_STEPS);
    assert!(join.is_aligned() && join.residual_ns.is_none(), "one host has one clock");
}
