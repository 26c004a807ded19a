//! Plants a fault: draws where it strikes, changes the calls, and keeps only a place where it shows.

use crate::fault::Fault;
use crate::job::{Act, CallKind, CallSpec, Halt, Job, Layout, ProcessFailure};
use crate::places::PlaceId;
use crate::plant::Plant;
use crate::prng::Prng;
use crate::program;
use crate::sim::{self, Run};

/// Plants `fault` at a random place, skipping places where it would not show (two equal calls swapped).
pub(crate) fn plant(job: &mut Job, prng: &mut Prng, fault: Fault) -> Plant {
    for _ in 0..60 {
        let Some(plant) = try_plant(job, prng, fault) else { continue };
        let run = sim::run(job, &plant);
        if shows(&plant, &run) {
            return plant;
        }
    }
    // A tiny job may have no room for the fault: it stays healthy, and the truth says so.
    Plant::nothing(Fault::None)
}

/// Whether the fault has the effect that its name says, in the step in which it strikes.
fn shows(plant: &Plant, run: &Run) -> bool {
    match plant.fault {
        Fault::None | Fault::NoneStopped | Fault::Straggler | Fault::MissingRank => !run.hangs(),
        Fault::Killed | Fault::Crashed | Fault::Exception => true,
        _ => {
            // A rank that skips the last call of a step is stuck in the next one.
            let stuck =
                run.ranks.iter().flat_map(|r| &r.made).filter(|m| m.done_ns.is_none()).map(|m| m.step);
            stuck.min() == Some(plant.step)
        }
    }
}

/// Indices of the calls of one step of a rank's program.
fn calls_of_step(program: &[Act], step: u16) -> Vec<usize> {
    let mut inside = false;
    let mut found = Vec::new();
    for (at, act) in program.iter().enumerate() {
        match act {
            Act::StepStart(s) => inside = *s == step,
            Act::Call { .. } if inside => found.push(at),
            _ => {}
        }
    }
    found
}

fn group_of(act: Act) -> Option<u16> {
    match act {
        Act::Call { group, .. } => Some(group),
        _ => None,
    }
}

/// Group and position of the act at `at` among the rank's collectives of its group, from 1.
fn position(program: &[Act], at: usize) -> Option<(u16, u32)> {
    let group = group_of(program[at])?;
    let before =
        program[..=at].iter().filter(|a| matches!(a, Act::Call { group: g, peer: None, .. } if *g == group));
    Some((group, before.count() as u32))
}

fn try_plant(job: &mut Job, prng: &mut Prng, fault: Fault) -> Option<Plant> {
    let mut plant = Plant::nothing(fault);
    plant.step = prng.range(1, u64::from(job.n_steps) - 2) as u16;
    plant.rank = prng.below(u64::from(job.n)) as u32;
    let rank = plant.rank as usize;
    let mut program = job.programs[rank].clone();
    let calls = calls_of_step(&program, plant.step);
    let big = |job: &Job, at: &usize, program: &[Act]| match program[*at] {
        Act::Call { group, peer: None, .. } => job.group(group).ranks.len() >= 3,
        _ => false,
    };
    let logic: Vec<usize> = calls.iter().copied().filter(|at| big(job, at, &program)).collect();
    let start = program.iter().position(|a| *a == Act::StepStart(plant.step))?;
    match fault {
        Fault::None | Fault::NoneStopped => return Some(plant),
        Fault::SkippedCollective => {
            let at = *pick(prng, &logic)?;
            note_call(job, &mut plant, &program, at, "leaves out");
            program.remove(at);
        }
        Fault::ExtraCollective => {
            extra_call(job, prng, &mut plant, &mut program, &logic)?;
        }
        Fault::OpMismatch | Fault::RootMismatch | Fault::ShapeMismatch | Fault::DtypeMismatch => {
            change_call(job, prng, &mut plant, &mut program, &logic)?;
        }
        Fault::OrderMismatch => {
            swap_calls(job, prng, &mut plant, &mut program, &logic)?;
        }
        Fault::DeadlockCycle => return deadlock(job, prng, plant),
        Fault::MissingSend | Fault::MissingRecv => {
            let wanted = if fault == Fault::MissingSend { CallKind::Send } else { CallKind::Recv };
            let of_kind = |at: &usize| match program[*at] {
                Act::Call { call, .. } => job.calls[usize::from(call)].kind == wanted,
                _ => false,
            };
            let transfers: Vec<usize> = calls.iter().copied().filter(of_kind).collect();
            let at = *pick(prng, &transfers)?;
            note_call(job, &mut plant, &program, at, "leaves out");
            program.remove(at);
        }
        Fault::UnevenInputs => {
            plant.place = Some(finish_early(job, &mut program, start));
            plant.story =
                format!("rank {rank} has no batch for step {} and goes to the final barrier", plant.step);
            plant.print = Some(format!("epoch 0 finished after {} batches", plant.step));
        }
        Fault::ExitedEarly => {
            program.truncate(start);
            program.push(Act::Exit);
            plant.story = format!("rank {rank} ends with status 0 before step {}", plant.step);
            plant.print = prng
                .chance(60)
                .then(|| prng.pick(&["early stopping", "nothing left to do", "done"]).to_owned());
        }
        Fault::Killed | Fault::Crashed | Fault::Exception => {
            let at = *pick(prng, &calls)?;
            let how = match fault {
                Fault::Killed => ProcessFailure::Killed,
                Fault::Crashed => ProcessFailure::Crashed,
                _ => ProcessFailure::Raised,
            };
            let mut places = job.places.clone();
            let name = prng.pick(&[places.names.load, places.names.sync, places.names.forward]);
            let place = places.in_user(Vec::new(), name, 58);
            job.places = places;
            program.truncate(at);
            program.push(Act::Fail(how, place));
            plant.place = Some(place);
            plant.story = format!("rank {rank}: {} in step {}", fault.name(), plant.step);
        }
        Fault::Stopped | Fault::StuckOutside | Fault::Uninterruptible | Fault::SlowRankStall => {
            let at = if prng.chance(60) { start + 1 } else { *pick(prng, &calls)? };
            let (how, place) = stand(job, prng, fault);
            program.truncate(at);
            program.push(Act::Stand(how, place));
            plant.place = Some(place);
            plant.story = format!("rank {rank} stands ({how:?}) in step {}", plant.step);
        }
        Fault::MissingRank => {
            plant.story = format!("rank {rank} never starts");
        }
        Fault::GpuStuck => {
            let at = *pick(prng, &logic)?;
            program.insert(at, Act::GpuStuck);
            plant.story = format!("a kernel of rank {rank} never ends in step {}", plant.step);
        }
        Fault::Straggler => {
            // On the host: a slower GPU shows only in timed recordings. Long compared with the watchdog's ten polls per
            // second.
            let extra_ms = prng.range(250, 600) as u32;
            for act in &mut program {
                if let Act::Host { us } = act {
                    *us += extra_ms * 1_000;
                }
            }
            plant.story = format!("rank {rank} takes {extra_ms} ms longer to load each batch");
        }
    }
    plant.culprits = vec![plant.rank];
    plant.changed.insert(rank, program);
    Some(plant)
}

/// An additional call before one of the regular calls.
fn extra_call(
    job: &mut Job,
    prng: &mut Prng,
    plant: &mut Plant,
    program: &mut Vec<Act>,
    logic: &[usize],
) -> Option<()> {
    let at = *pick(prng, logic)?;
    let group = group_of(program[at])?;
    let n = prng.pick(&[1, 3, 7]);
    let call = job.call(CallSpec {
        kind: CallKind::AllReduce,
        input: vec![n],
        output: vec![n],
        dtype: "Float",
        root: 0,
    });
    let mut places = job.places.clone();
    let name = places.names.log;
    let place = places.in_user(places.entry("all_reduce"), name, 77);
    let wait = places.in_user(vec![places.package("item", "torch/_tensor.py", 1_030)], name, 78);
    job.places = places;
    note_call(job, plant, program, at, "makes a call of its own before");
    plant.place = Some(place);
    program.insert(at, Act::Call { group, call, place, peer: None, wait: true });
    if prng.chance(50) {
        program.insert(at + 1, Act::Sync(wait));
    }
    Some(())
}

/// Swaps two calls of one group.
fn swap_calls(
    job: &Job,
    prng: &mut Prng,
    plant: &mut Plant,
    program: &mut [Act],
    logic: &[usize],
) -> Option<()> {
    let pairs: Vec<(usize, usize)> = logic
        .iter()
        .zip(logic.iter().skip(1))
        .map(|(a, b)| (*a, *b))
        .filter(|(a, b)| {
            let Act::Call { group: g, call: c, .. } = program[*a] else { return false };
            let Act::Call { group: h, call: d, .. } = program[*b] else { return false };
            let fits = job.calls[usize::from(c)].fits(&job.calls[usize::from(d)]);
            g == h && !fits && !program[*a..*b].iter().any(|x| matches!(x, Act::Sync(_)))
        })
        .collect();
    let (a, b) = *pick(prng, &pairs)?;
    note_call(job, plant, program, a, "swaps with the next call");
    if let Act::Call { place, .. } = program[b] {
        plant.other_place = Some(place);
    }
    program.swap(a, b);
    Some(())
}

/// Goes to the final barrier where the step at `start` begins; returns the place of that call.
fn finish_early(job: &mut Job, program: &mut Vec<Act>, start: usize) -> PlaceId {
    let mut places = job.places.clone();
    let finish = places.names.finish;
    let mut stack = places.entry("barrier");
    stack.push(places.user(finish, 377));
    stack.push(places.user(places.names.main, 404));
    stack.push(places.user("<module>", 411));
    let place = places.add(stack);
    let mut stack = vec![places.package("synchronize", "torch/cuda/__init__.py", 1162)];
    stack.push(places.user(finish, 378));
    stack.push(places.user(places.names.main, 404));
    stack.push(places.user("<module>", 411));
    let wait = places.add(stack);
    job.places = places;
    let call = job.call(CallSpec {
        kind: CallKind::Barrier,
        input: vec![1],
        output: vec![1],
        dtype: "Float",
        root: 0,
    });
    program.truncate(start + 1);
    program.push(Act::Call { group: 0, call, place, peer: None, wait: true });
    program.push(Act::Sync(wait));
    place
}

fn pick<'a, T>(prng: &mut Prng, items: &'a [T]) -> Option<&'a T> {
    (!items.is_empty()).then(|| &items[prng.below(items.len() as u64) as usize])
}

fn note_call(job: &Job, plant: &mut Plant, program: &[Act], at: usize, what: &str) {
    plant.at = position(program, at);
    if let Act::Call { group, call, place, .. } = program[at] {
        plant.place = Some(place);
        let call = &job.calls[usize::from(call)];
        plant.story = format!(
            "rank {} {what} {:?} {:?} {} (#{} of group {}) in step {}",
            plant.rank,
            call.kind,
            call.input,
            call.dtype,
            plant.at.map_or(0, |a| a.1),
            job.group(group).name,
            plant.step
        );
    }
}

fn change_call(
    job: &mut Job,
    prng: &mut Prng,
    plant: &mut Plant,
    program: &mut [Act],
    logic: &[usize],
) -> Option<()> {
    let wanted: Vec<usize> = logic
        .iter()
        .copied()
        .filter(|at| {
            let Act::Call { call, .. } = program[*at] else { return false };
            (job.calls[usize::from(call)].kind == CallKind::Broadcast) == (plant.fault == Fault::RootMismatch)
        })
        .collect();
    let at = *pick(prng, &wanted)?;
    note_call(job, plant, program, at, "changes");
    let Act::Call { group, call, place, peer, wait } = program[at] else { return None };
    let mut new = job.calls[usize::from(call)].clone();
    let mut place = place;
    match plant.fault {
        Fault::RootMismatch => {
            new.root = job.group(group).rank_of(plant.rank).filter(|r| *r != 0)?;
        }
        Fault::ShapeMismatch => {
            let extra = prng.pick(&[1_u64, 8, 64]);
            let last = new.input.len() - 1;
            new.input[last] += extra;
            if new.kind == CallKind::AllGather {
                new.output[0] = new.input[0] * job.group(group).ranks.len() as u64;
            } else if new.kind == CallKind::ReduceScatter {
                let n = job.group(group).ranks.len() as u64;
                new.output[0] += extra;
                new.input[0] = new.output[0] * n;
            } else {
                new.output[last] += extra;
            }
        }
        Fault::DtypeMismatch => {
            new.dtype = match new.dtype {
                "Float" => prng.pick(&["BFloat16", "Half", "Double"]),
                "Double" => "Float",
                _ => "Float",
            };
        }
        _ => {
            let to = match new.kind {
                CallKind::AllReduce => prng.pick(&[CallKind::Reduce, CallKind::Broadcast]),
                CallKind::AllGather => {
                    new.output.clone_from(&new.input);
                    CallKind::AllReduce
                }
                _ => {
                    new.input.clone_from(&new.output);
                    CallKind::AllReduce
                }
            };
            new.kind = to;
            // The other branch of the same function.
            let entry = match to {
                CallKind::Reduce => "reduce",
                CallKind::Broadcast => "broadcast",
                _ => "all_reduce",
            };
            let mut stack = job.places.stack(place).to_vec();
            let entry_frames = job.places.entry(entry);
            if stack.len() > 2 && stack[1].function == "wrapper" {
                stack[0] = entry_frames[0].clone();
            }
            if let Some(user) = stack.iter_mut().find(|f| f.file == job.places.script) {
                user.line += 2;
            }
            place = job.places.add(stack);
        }
    }
    let call = job.call(new);
    plant.place = Some(place);
    program[at] = Act::Call { group, call, place, peer, wait };
    Some(())
}

fn stand(job: &mut Job, prng: &mut Prng, fault: Fault) -> (Halt, PlaceId) {
    let mut places = job.places.clone();
    let (load, save) = (places.names.load, places.names.save);
    let found = match fault {
        Fault::Stopped => (Halt::Stopped, places.in_user(Vec::new(), load, 61)),
        Fault::SlowRankStall => {
            let inner = match prng.below(3) {
                0 => Vec::new(),
                1 => vec![places.package("_save", "torch/serialization.py", 1_213)],
                _ => vec![places.package("batch_encode", "transformers/tokenization_utils_fast.py", 552)],
            };
            (Halt::Busy, places.in_user(inner, save, 93))
        }
        Fault::Uninterruptible => {
            let inner = if prng.chance(50) {
                vec![places.package("__getitem__", "datasets/arrow_dataset.py", 2_861)]
            } else {
                Vec::new()
            };
            (Halt::Uninterruptible, places.in_user(inner, load, 65))
        }
        _ => {
            let inner = match prng.below(3) {
                0 => Vec::new(),
                1 => vec![
                    places.package("_try_get_data", "torch/utils/data/dataloader.py", 1_275),
                    places.package("_next_data", "torch/utils/data/dataloader.py", 1_448),
                    places.package("__next__", "torch/utils/data/dataloader.py", 733),
                ],
                _ => vec![places.package("acquire", "filelock/_api.py", 331)],
            };
            (Halt::Asleep, places.in_user(inner, load, 63))
        }
    };
    job.places = places;
    found
}

/// Each of four ranks is in one of two tensor-parallel and one of two data-parallel groups; the two on one diagonal
/// enter the data-parallel call first. No rank is missing anywhere, and none can continue.
fn deadlock(job: &mut Job, prng: &mut Prng, mut plant: Plant) -> Option<Plant> {
    let Layout::Mesh { tp } = job.layout else { return None };
    let dp = job.n / tp;
    let two = |prng: &mut Prng, n: u32| -> Option<(u32, u32)> {
        let a = prng.below(u64::from(n)) as u32;
        let b = prng.below(u64::from(n)) as u32;
        (a < b).then_some((a, b))
    };
    let (t0, t1) = two(prng, tp)?;
    let (d0, d1) = two(prng, dp)?;
    let at = |d: u32, t: u32| d * tp + t;
    let corners = [at(d0, t0), at(d0, t1), at(d1, t1), at(d1, t0)];
    let n = 33;
    let call = job.call(CallSpec {
        kind: CallKind::AllReduce,
        input: vec![n],
        output: vec![n],
        dtype: "Float",
        root: 0,
    });
    let mut places = job.places.clone();
    let name = places.names.log;
    let tensor = places.in_user(places.entry("all_reduce"), name, 84);
    let data = places.in_user(places.entry("all_reduce"), name, 86);
    let tensor_else = places.in_user(places.entry("all_reduce"), name, 91);
    let data_else = places.in_user(places.entry("all_reduce"), name, 89);
    let sync = |places: &mut crate::places::Places, line: u32| {
        let inner = vec![places.package("synchronize", "torch/cuda/__init__.py", 1162)];
        places.in_user(inner, name, line)
    };
    let waits = [sync(&mut places, 85), sync(&mut places, 87), sync(&mut places, 90), sync(&mut places, 92)];
    let _ = program::sync_place(&mut places);
    job.places = places;
    for rank in 0..job.n {
        let Some(t_group) = job.group_of(rank, "TENSOR_MODEL_PARALLEL_GROUP") else { continue };
        let Some(d_group) = job.group_of(rank, "DATA_PARALLEL_GROUP_WITH_CP") else { continue };
        let mut program = job.programs[rank as usize].clone();
        let start = program.iter().position(|a| *a == Act::StepStart(plant.step))?;
        let make = |group, place| Act::Call { group, call, place, peer: None, wait: true };
        let turned = rank == corners[1] || rank == corners[3];
        let acts = if turned {
            [make(d_group, data_else), Act::Sync(waits[2]), make(t_group, tensor_else), Act::Sync(waits[3])]
        } else {
            [make(t_group, tensor), Act::Sync(waits[0]), make(d_group, data), Act::Sync(waits[1])]
        };
        program.splice(start + 1..=start, acts);
        plant.changed.insert(rank as usize, program);
    }
    plant.rank = corners[1];
    plant.culprits = vec![corners[1], corners[3]];
    plant.culprits.sort_unstable();
    plant.place = Some(data_else);
    plant.story = format!("ranks {corners:?} enter two groups in opposite orders in step {}", plant.step);
    Some(plant)
}
