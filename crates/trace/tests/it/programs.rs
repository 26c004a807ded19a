//! Programs whose launches look unlike those of others: CUDA graphs, FSDP2, fused optimizers, optimizers in the backward
//! pass.

use ringleader_model::{Cause, OpKind, Timeline};
use ringleader_trace::steps::StepSource;
use ringleader_trace::{Analysis, analyse};

use crate::made::{Do, Job};

const MIB: u64 = 1 << 20;

fn look(timelines: &[Timeline]) -> Analysis<'_> {
    analyse(timelines.iter().map(|timeline| (timeline, None)))
}

/// All steps but the ends of the recording are as long as the truth, and nothing is worth a change.
#[track_caller]
fn is_healthy(job: &Job, found: StepSource) {
    let timelines = job.record();
    let analysis = look(&timelines);
    assert_eq!(analysis.steps[0].found, found);
    let usual = analysis.steps[0].usual.len();
    assert!(usual + 3 >= job.n_steps && usual <= job.n_steps, "{usual} of {}", job.n_steps);
    let truth = job.true_step_ns();
    assert!((analysis.step_ns - truth).abs() * 20 < truth, "{} instead of {truth}", analysis.step_ns);
    assert!((analysis.replayed_ns - analysis.step_ns).abs() * 20 < truth, "{}", analysis.replayed_ns);
    assert!(analysis.advice.iter().all(|one| !one.is_worth), "{:#?}", analysis.advice);
}

/// A graph of a whole step: a hundred kernels in one launch.
fn graph() -> Vec<Do> {
    let mut kernels: Vec<(&'static str, i64)> = Vec::new();
    for _ in 0..25 {
        kernels.extend([("norm", 10_000), ("gemm", 60_000), ("gelu", 10_000), ("gemm2", 60_000)]);
    }
    kernels.push(("FusedAdamMathFunctor", 200_000));
    vec![Do::Busy(30_000), Do::Graph(kernels)]
}

#[test]
fn a_step_that_is_one_graph() {
    is_healthy(&Job::of(1, &graph()), StepSource::Annotated);
    is_healthy(&Job { is_annotated: false, n_steps: 10, ..Job::of(1, &graph()) }, StepSource::Repetition);
}

#[test]
fn a_graph_for_each_layer_beside_communication() {
    let mut list = Vec::new();
    for _ in 0..10 {
        let layer = vec![("norm", 20_000), ("gemm", 500_000), ("gelu", 30_000)];
        list.extend([
            Do::Busy(20_000),
            Do::Graph(layer),
            Do::Collective(OpKind::AllReduce, 32 * MIB, 200_000),
        ]);
    }
    list.extend([Do::WaitComm, Do::Kernel("adam", 300_000)]);
    is_healthy(&Job::of(2, &list), StepSource::Annotated);
}

#[test]
fn a_value_read_after_each_graph() {
    let mut list = graph();
    list.extend([Do::Item, Do::Busy(1_500_000)]);
    let job = Job::of(1, &list);
    let mut without = graph();
    without.push(Do::Busy(1_500_000));
    let timelines = job.record();
    let analysis = look(&timelines);
    let truth = 100.0 * (1.0 - Job::of(1, &without).true_step_ns() as f64 / job.true_step_ns() as f64);
    let first = &analysis.advice[0];
    assert_eq!((first.cause, first.is_worth), (Cause::SyncStalls, true), "{:#?}", analysis.advice);
    assert!((first.gain_pct / truth - 1.0).abs() < 0.3, "{truth} {first:?}");
}

/// FSDP2: gathers before each layer, host ranges around everything, one named like a loader.
fn sharded() -> Vec<Do> {
    let mut list = vec![Do::Begin("FSDP::root_pre_forward"), Do::Busy(20_000), Do::End];
    for layer in 0..12 {
        let name =
            if layer == 3 { "FSDP::pre_forward (collate_batch)" } else { "FSDP::pre_forward (layers)" };
        list.extend([
            Do::Begin(name),
            Do::Busy(15_000),
            Do::Collective(OpKind::AllGather, 64 * MIB, 150_000),
            Do::End,
            Do::Kernel("gemm", 500_000),
            Do::Begin("FSDP::post_forward (layers)"),
            Do::Busy(15_000),
            Do::End,
        ]);
    }
    for _ in 0..12 {
        list.extend([
            Do::Begin("FSDP::pre_backward (layers)"),
            Do::Busy(15_000),
            Do::Kernel("gemm_backward", 900_000),
            Do::End,
            Do::Begin("FSDP::post_backward_reduce (layers)"),
            Do::Collective(OpKind::ReduceScatter, 64 * MIB, 150_000),
            Do::End,
        ]);
    }
    list
}

#[test]
fn ranges_of_fsdp_are_no_steps_and_no_loading() {
    let mut list = sharded();
    list.extend([
        Do::WaitComm,
        Do::Begin("Optimizer.step#AdamW.step"),
        Do::Busy(10_000),
        Do::Kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 400_000),
        Do::End,
    ]);
    is_healthy(&Job::of(2, &list), StepSource::Annotated);
    is_healthy(&Job { is_annotated: false, ..Job::of(2, &list) }, StepSource::Optimizer);
    // Without the optimizer's annotation, the root's range is the beginning of a step.
    let mut list = sharded();
    list.extend([Do::WaitComm, Do::Kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 400_000)]);
    is_healthy(&Job { is_annotated: false, ..Job::of(2, &list) }, StepSource::Forward);
}

#[test]
fn an_optimizer_within_the_backward_pass_is_no_step() {
    let mut list = Vec::new();
    for _ in 0..40 {
        list.extend([Do::Busy(10_000), Do::Kernel("norm", 30_000), Do::Kernel("gemm", 200_000)]);
    }
    for _ in 0..40 {
        list.extend([Do::Busy(10_000), Do::Kernel("gemm_backward", 400_000)]);
        list.extend([
            Do::Begin("Optimizer.step#SGD.step"),
            Do::Kernel("multi_tensor_apply_kernel", 20_000),
            Do::End,
        ]);
    }
    is_healthy(&Job { is_annotated: false, ..Job::of(1, &list) }, StepSource::Optimizer);
}

#[test]
fn a_checkpoint_every_few_steps_joins_none() {
    let mut list = Vec::new();
    for step in 0..12 {
        for _ in 0..20 {
            list.extend([Do::Busy(10_000), Do::Kernel("gemm", 300_000)]);
        }
        list.extend([
            Do::Begin("Optimizer.step#SGD.step"),
            Do::Kernel("multi_tensor_apply_kernel", 20_000),
            Do::End,
        ]);
        if step == 11 {
            list.extend([Do::Synchronize, Do::Outside(3_000_000)]);
        }
    }
    let timelines = Job { is_annotated: false, n_steps: 4, ..Job::of(1, &list) }.record();
    let analysis = look(&timelines);
    assert_eq!(analysis.steps[0].found, StepSource::Optimizer);
    assert!(analysis.steps[0].all.len() >= 47, "{}", analysis.steps[0].all.len());
}
