//! The calls of each rank, step by step: calls, sizes and stacks of data-parallel, sharded, tensor-parallel
//! and pipeline-parallel training loops.

use crate::Options;
use crate::fault::Fault;
use crate::job::{Act, CallKind, CallSpec, Job, Layout};
use crate::places::{PlaceId, Places, PlainFrame};
use crate::prng::Prng;

/// The group that an act of a template refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sel {
    World,
    Metrics,
    Tp,
    Dp,
    Next,
    Previous,
}

#[derive(Clone, Copy)]
enum ScriptStep {
    Act(Act),
    Call(Sel, u16, PlaceId, bool),
}

/// A healthy job.
pub(crate) fn job(prng: &mut Prng, fault: Fault, options: &Options) -> Job {
    let mut job = Job::without_program(prng, fault, options);
    let mut places = job.places.clone();
    build(&mut job, &mut places, prng, fault);
    job.places = places;
    let longest =
        job.programs.iter().map(|p| p.iter().filter(|a| matches!(a, Act::Call { .. })).count()).max();
    let in_step = longest.unwrap_or(0) / usize::from(job.n_steps) + 1;
    // Half of the jobs have rings that roll over, but none is so small that the step of the fault is lost.
    if prng.chance(50) && fault != Fault::Straggler {
        job.ring = (in_step * 2 + 4).max(24);
    }
    job
}

/// Fills `job.programs`.
fn build(job: &mut Job, places: &mut Places, prng: &mut Prng, fault: Fault) {
    let templates = match job.layout {
        Layout::Ddp => vec![ddp(job, places, prng, fault)],
        Layout::Fsdp => vec![fsdp(job, places, prng)],
        Layout::Mesh { .. } => vec![mesh(job, places, prng, 0, 1, fault)],
        Layout::Pipe { pp, .. } => {
            // All stages have the same sizes: each template starts from the same numbers.
            let sizes = prng.fork(11);
            let stages =
                (0..pp).map(|stage| mesh(job, places, &mut sizes.clone(), stage, pp, fault)).collect();
            prng.next();
            stages
        }
    };
    let per_stage = job.n / templates.len() as u32;
    for rank in 0..job.n {
        let template = &templates[(rank / per_stage) as usize];
        let mut acts = Vec::new();
        for step in 0..job.n_steps {
            acts.push(Act::StepStart(step));
            for item in template {
                match *item {
                    ScriptStep::Act(act) => acts.push(act),
                    ScriptStep::Call(sel, call, place, wait) => {
                        if let Some(act) = resolve(job, rank, sel, call, place, wait) {
                            acts.push(act);
                        }
                    }
                }
            }
            acts.push(Act::StepEnd(step));
        }
        job.programs.push(acts);
    }
}

fn resolve(job: &Job, rank: u32, sel: Sel, call: u16, place: PlaceId, wait: bool) -> Option<Act> {
    let (group, step) = match sel {
        Sel::World => (Some(0), 0),
        Sel::Metrics => (Some(1), 0),
        Sel::Tp => (job.group_of(rank, "TENSOR_MODEL_PARALLEL_GROUP"), 0),
        Sel::Dp => (job.group_of(rank, "DATA_PARALLEL_GROUP_WITH_CP"), 0),
        Sel::Next => (job.group_of(rank, "PIPELINE_MODEL_PARALLEL_GROUP"), 1),
        Sel::Previous => (job.group_of(rank, "PIPELINE_MODEL_PARALLEL_GROUP"), -1),
    };
    let group = group?;
    let peer = match step {
        0 => None,
        step => Some((i64::from(job.group(group).rank_of(rank)?) + step) as u16),
    };
    Some(Act::Call { group, call, place, peer, wait })
}

fn same(job: &mut Job, kind: CallKind, shape: &[u64], dtype: &'static str) -> u16 {
    job.call(CallSpec { kind, input: shape.to_vec(), output: shape.to_vec(), dtype, root: 0 })
}

fn autograd(places: &mut Places, inner: Vec<PlainFrame>, line: u32) -> PlaceId {
    let mut stack = inner;
    stack.push(places.package("_engine_run_backward", "torch/autograd/graph.py", 829));
    stack.push(places.package("backward", "torch/autograd/__init__.py", 364));
    stack.push(places.package("backward", "torch/_tensor.py", 630));
    stack.push(places.user(places.names.step, line));
    stack.extend(places.outer(350));
    places.add(stack)
}

fn ddp(job: &mut Job, places: &mut Places, prng: &mut Prng, fault: Fault) -> Vec<ScriptStep> {
    let mut steps = vec![ScriptStep::Act(Act::Host { us: 2_000 }), ScriptStep::Act(Act::Gpu { us: 5_000 })];
    let hooked = prng.chance(40);
    let one_line = prng.chance(50);
    let n_buckets = prng.range(3, 6);
    if prng.chance(40) || fault == Fault::RootMismatch {
        let call = same(job, CallKind::Broadcast, &[512], "Float");
        let place = places.in_user(places.entry("broadcast"), "sync_buffers", 118);
        steps.push(ScriptStep::Call(Sel::World, call, place, true));
    }
    let base = prng.range(1, 8) * 131_072;
    for b in 0..n_buckets {
        // Sizes repeat, as those of weights and biases do, but neighbours differ.
        let n = if b % 2 == 0 { base + (b % 3) * 4_096 } else { 1_024 << (b % 3) };
        let shape = if b % 2 == 0 { vec![n / 1_024, 1_024] } else { vec![n] };
        let call = same(job, CallKind::AllReduce, &shape, "Float");
        let place = if hooked {
            autograd(places, Vec::new(), 288)
        } else {
            let line = if one_line { 140 } else { 140 + b as u32 };
            places.in_user(places.entry("all_reduce"), places.names.sync, line)
        };
        steps.push(ScriptStep::Call(Sel::World, call, place, !hooked));
    }
    steps.push(ScriptStep::Act(Act::Join));
    let loss = same(job, CallKind::AllReduce, &[1], "Float");
    let place = places.in_user(places.entry("all_reduce"), "reduce_loss", 171);
    steps.push(ScriptStep::Call(Sel::World, loss, place, true));
    let metrics = same(job, CallKind::AllReduce, &[2], "Double");
    let place = places.in_user(places.entry("all_reduce"), "gather_metrics", 182);
    steps.push(ScriptStep::Call(Sel::Metrics, metrics, place, true));
    steps.push(ScriptStep::Act(Act::Sync(sync_place(places))));
    steps
}

/// The place where the host waits at the end of a step.
pub(crate) fn sync_place(places: &mut Places) -> PlaceId {
    let inner = vec![places.package("synchronize", "torch/cuda/__init__.py", 1162)];
    let mut stack = inner;
    stack.push(places.user(places.names.step, 299));
    stack.extend(places.outer(350));
    places.add(stack)
}

fn fsdp(job: &mut Job, places: &mut Places, prng: &mut Prng) -> Vec<ScriptStep> {
    const COLLECTIVES: &str = "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py";
    const PARAMS: &str = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py";
    let n = u64::from(job.n);
    let mut gather = places.entry("all_gather_into_tensor");
    gather.push(places.package("foreach_all_gather", COLLECTIVES, 276));
    gather.push(places.package("unshard", PARAMS, 339));
    let mut forward = gather.clone();
    forward.push(places.package("pre_forward", PARAMS, 449));
    forward.push(places.package("_call_impl", "torch/nn/modules/module.py", 1885));
    let forward = places.in_user(forward, places.names.forward, 204);
    // Backward hooks run in the autograd thread: their stacks have no frame of the script.
    let mut backward = gather;
    backward.push(places.package("pre_backward", PARAMS, 500));
    backward.push(places.package("_pre_backward", "torch/distributed/fsdp/_fully_shard/_fsdp_state.py", 311));
    let backward = places.add(backward);
    let mut scatter = places.entry("reduce_scatter_tensor");
    scatter.push(places.package("foreach_reduce", COLLECTIVES, 544));
    scatter.push(places.package("post_backward", PARAMS, 567));
    let scatter = places.add(scatter);
    let layers = prng.range(3, 5);
    let base = prng.range(2, 30) * 65_536;
    let shard = |l: u64| (base + 8_192 * (l % 3)) / 8;
    let mut steps = vec![ScriptStep::Act(Act::Host { us: 2_500 })];
    let gathers: Vec<u16> = (0..layers)
        .map(|l| {
            let call = CallSpec {
                kind: CallKind::AllGather,
                input: vec![shard(l)],
                output: vec![shard(l) * n],
                dtype: "BFloat16",
                root: 0,
            };
            job.call(call)
        })
        .collect();
    for call in &gathers {
        steps.push(ScriptStep::Call(Sel::World, *call, forward, false));
        steps.push(ScriptStep::Act(Act::Join));
        steps.push(ScriptStep::Act(Act::Gpu { us: 1_500 }));
    }
    for l in (0..layers).rev() {
        steps.push(ScriptStep::Call(Sel::World, gathers[l as usize], backward, false));
        steps.push(ScriptStep::Act(Act::Join));
        steps.push(ScriptStep::Act(Act::Gpu { us: 2_500 }));
        let call = CallSpec {
            kind: CallKind::ReduceScatter,
            input: vec![shard(l) * n],
            output: vec![shard(l)],
            dtype: "Float",
            root: 0,
        };
        let call = job.call(call);
        steps.push(ScriptStep::Call(Sel::World, call, scatter, false));
    }
    steps.push(ScriptStep::Act(Act::Join));
    let norm = same(job, CallKind::AllReduce, &[1], "Float");
    let place = places.in_user(places.entry("all_reduce"), "clip_grad_norm", 233);
    steps.push(ScriptStep::Call(Sel::World, norm, place, true));
    steps.push(ScriptStep::Act(Act::Sync(sync_place(places))));
    steps
}

/// Tensor-parallel layers, pipeline transfers, data-parallel reduction, gradient norm over the world.
fn mesh(
    job: &mut Job,
    places: &mut Places,
    prng: &mut Prng,
    stage: u32,
    pp: u32,
    fault: Fault,
) -> Vec<ScriptStep> {
    const MAPPINGS: &str = "megatron/core/tensor_parallel/mappings.py";
    let hidden = prng.pick(&[2_048_u64, 4_096, 8_192]);
    let act = [prng.pick(&[1_024_u64, 4_096]), 1, hidden];
    let layers = prng.range(2, 3);
    let n_micro = if pp > 1 { prng.range(2, 3) } else { 1 };
    let n_buckets = prng.range(2, 4);
    let bucket = prng.range(2, 40) * 262_144;
    let tp_call = same(job, CallKind::AllReduce, &act, "BFloat16");
    let mut reduce = places.entry("all_reduce");
    reduce.push(places.package("_reduce", MAPPINGS, 38));
    let mut tp_places = Vec::new();
    for (name, line) in [("attention", 311), ("mlp", 187)] {
        let mut inner = reduce.clone();
        inner.push(places.package("forward", &format!("megatron/core/transformer/{name}.py"), line));
        tp_places.push(places.in_user(inner, places.names.forward, 210));
        let mut inner = reduce.clone();
        inner.push(places.package("backward", &format!("megatron/core/transformer/{name}.py"), line + 200));
        tp_places.push(autograd(places, inner, 288));
    }
    let send = same(job, CallKind::Send, &act, "BFloat16");
    let recv = same(job, CallKind::Recv, &act, "BFloat16");
    let p2p_place = |places: &mut Places, outer: &str, inner: &str, function: &'static str, line: u32| {
        let mut stack = places.entry(inner);
        stack.insert(
            1,
            places.package(
                outer,
                "torch/distributed/distributed_c10d.py",
                if outer == "send" { 2627 } else { 2659 },
            ),
        );
        places.in_user(stack, function, line)
    };
    let (fwd, bwd) = (places.names.forward, places.names.backward);
    let fwd_recv = p2p_place(places, "recv", "irecv", fwd, 221);
    let fwd_send = p2p_place(places, "send", "isend", fwd, 226);
    let bwd_recv = p2p_place(places, "recv", "irecv", bwd, 241);
    let bwd_send = p2p_place(places, "send", "isend", bwd, 246);

    let mut steps = vec![ScriptStep::Act(Act::Host { us: 1_500 })];
    for _ in 0..n_micro {
        if stage > 0 {
            steps.push(ScriptStep::Call(Sel::Previous, recv, fwd_recv, true));
        }
        for _ in 0..layers {
            for part in [0, 2] {
                steps.push(ScriptStep::Act(Act::Gpu { us: 700 }));
                steps.push(ScriptStep::Call(Sel::Tp, tp_call, tp_places[part], true));
            }
        }
        if stage + 1 < pp {
            steps.push(ScriptStep::Call(Sel::Next, send, fwd_send, true));
        }
    }
    for _ in 0..n_micro {
        if stage + 1 < pp {
            steps.push(ScriptStep::Call(Sel::Next, recv, bwd_recv, true));
        }
        for _ in 0..layers {
            for part in [3, 1] {
                steps.push(ScriptStep::Act(Act::Gpu { us: 900 }));
                steps.push(ScriptStep::Call(Sel::Tp, tp_call, tp_places[part], true));
            }
        }
        if stage > 0 {
            steps.push(ScriptStep::Call(Sel::Previous, send, bwd_send, true));
        }
    }
    let sharded = prng.chance(50) && fault != Fault::DeadlockCycle;
    let dp = u64::from(job.n) / (u64::from(pp) * tp_of(job.layout));
    for b in 0..n_buckets {
        let n = bucket + 1_024 * b;
        let mut inner = places.entry(if sharded { "reduce_scatter_tensor" } else { "all_reduce" });
        inner.push(places.package(
            "start_grad_sync",
            "megatron/core/distributed/param_and_grad_buffer.py",
            340,
        ));
        let place = autograd(places, inner, 288);
        let call = if sharded {
            CallSpec {
                kind: CallKind::ReduceScatter,
                input: vec![n * dp],
                output: vec![n],
                dtype: "Float",
                root: 0,
            }
        } else {
            CallSpec { kind: CallKind::AllReduce, input: vec![n], output: vec![n], dtype: "Float", root: 0 }
        };
        let call = job.call(call);
        steps.push(ScriptStep::Call(Sel::Dp, call, place, false));
    }
    steps.push(ScriptStep::Act(Act::Join));
    let norm = same(job, CallKind::AllReduce, &[1], "Float");
    let mut inner = places.entry("all_reduce");
    inner.push(places.package("get_grad_norm_fp32", "megatron/core/optimizer/clip_grads.py", 127));
    let place = places.in_user(inner, "optimizer_step", 262);
    steps.push(ScriptStep::Call(Sel::World, norm, place, true));
    steps.push(ScriptStep::Act(Act::Sync(sync_place(places))));
    steps
}

fn tp_of(layout: Layout) -> u64 {
    match layout {
        Layout::Mesh { tp } | Layout::Pipe { tp, .. } => u64::from(tp),
        _ => 1,
    }
}
