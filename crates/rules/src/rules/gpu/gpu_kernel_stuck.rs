//! # What it shows
//! All ranks have launched the same collective and none finishes it, on GPUs that reach each other: on one
//! GPU an earlier kernel never ends, so the collective never starts there.
//!
//! # Why it happens
//! A kernel that waits for a flag, an endless loop, a deadlock between two kernels that share the GPU.
//!
//! # Evidence
//! Equal records on all ranks, and one GPU whose power draw differs from its peers': those inside the collective draw
//! alike. Or the rings: the operation runs on the other GPUs and never starts on this one; or nothing of NCCL's is in
//! flight on a rank that waits for its GPU. Or the kernel's log, where Xid 109 says of one GPU alone that its work
//! could not be switched out.
//!
//! # What looks like it but is not
//! A network path that is cut (nodes differ, some ranks are one operation ahead). With tiny messages all GPUs
//! draw little: power is a hint among peers, never proof alone.
//!
//! # What to do
//! See which kernel runs on that GPU.
//!
//! # References
//! CUDA-GDB documentation; NVIDIA System Management Interface.

use ringleader_model::{
    Cause, Cite, Confidence, Evidence, Finding, Impact, KernelEvent, NamedCall, Need, Rank, RankSet,
    RingStage, SourceKind, Weight, median,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{ONE_FAULT_S, follows, is_lost_gpu, is_xid};
use ringleader_correlate::machine::kernel::Bond;
use ringleader_correlate::operation;
use ringleader_correlate::track::RankOrSource;
use ringleader_correlate::track::{Group, GroupRecorder};
use ringleader_correlate::waits::graph::{Front, FrontKind};
use ringleader_correlate::waits::inside::{self, Inside};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "gpu-kernel-stuck",
    title: "a kernel before the collective never ends on one GPU",
    since: "0.1",
    doc: include_str!("gpu_kernel_stuck.rs"),
    check,
};

/// A GPU that runs something else differs by more than its peers differ among themselves; this far at least.
const OUTLIER_RATIO: f32 = 0.75;

fn check(scene: &Scene<'_>) -> Outcome {
    let of_rings = by_rings(scene);
    if !of_rings.is_empty() {
        return Outcome::Found(of_rings);
    }
    if rings_tell_more(scene) {
        return Outcome::Clear;
    }
    let Some(waits) = scene.waits_of(GroupRecorder::Flight) else { return by_count(scene) };
    let stuck: Vec<&Front> = waits
        .all_in
        .iter()
        .filter_map(|at| waits.fronts.get(*at))
        .filter(|f| matches!(f.what, FrontKind::Collective(_)))
        .collect();
    let (Some(front), true, true) =
        (stuck.first(), !scene.any_parted(), waits.roots.is_empty() && waits.cycles.is_empty())
    else {
        return Outcome::Clear;
    };
    let Some(group) = scene.ledger().groups().get(front.group) else { return Outcome::Clear };
    let timed_out = scene.fates().has_rank_timed_out();
    let FrontKind::Collective(seq) = front.what else { return Outcome::Clear };
    // In a pipelined ring over a broken path some are ahead: then the network is at fault.
    // Dumps of a running job are taken a moment apart and stand at different places; those of a stuck one do not.
    let entered: Vec<u32> = group.tracks.iter().flatten().map(|t| t.entered).collect();
    let at_rest = entered.len() > 2 && entered.iter().all(|e| Some(e) == entered.first());
    if !front.ahead.is_empty() || front.waiting.len() < 2 || !timed_out && !at_rest {
        return Outcome::Clear;
    }
    let named = named_by_kernel(scene);
    let outliers = power_outliers(scene).or_else(|| named.clone());
    let records = front
        .waiting
        .iter()
        .filter_map(|m| group.tracks.get(*m)?.as_ref())
        .filter_map(|t| scene.proof().evidence_of(t, seq));
    let Some((rank, evidence)) = outliers else {
        let all: RankSet = front.waiting.iter().filter_map(|m| group.rank(*m)).collect();
        let what = format!(
            "all of {} launched #{seq} of {} and none finishes: on which GPU does an earlier kernel still run?",
            drafting::ranks(&all),
            group.name
        );
        return Outcome::Undecided(vec![
            Need {
                question: format!("{what} Compare power and utilisation while it hangs"),
                command: "nvidia-smi".into(),
                ..Need::default()
            },
            Need {
                question: format!("{what} The debugger shows it (and pauses that process)"),
                command: "cuda-gdb --pid <pid of each rank> -batch -ex 'info cuda kernels'".into(),
                ..Need::default()
            },
        ]);
    };
    let others: RankSet =
        front.waiting.iter().filter_map(|m| group.rank(*m)).filter(|r| *r != rank).collect();
    let late = latest(group, front, seq).filter(|r| *r == rank);
    Outcome::from_findings(
        Draft::new(
            RULE.id,
            Cause::GpuKernelStuck,
            format!(
                "the GPU of {} runs something else: #{seq} of {} never starts there",
                drafting::rank(rank),
                group.name
            ),
        )
        .call(NamedCall { group: group.name.clone(), number: seq.into() })
        .weight(Weight::Derived)
        .confidence(if late.is_some() { Confidence::High } else { Confidence::Medium })
        .culprit(scene.roster().culprit_rank(rank))
        .victims(others)
        .evidence(evidence)
        .evidence(named.into_iter().filter(|(r, _)| *r == rank).flat_map(|(_, e)| e))
        .evidence(records.take(3))
        .at(front.since_ns)
        .advise_made(Impact::Disruptive, SEE_KERNEL, Some(see_kernel(scene, rank)))
        .advise(Impact::Harmless, LAUNCH_ALONE)
        .build()
        .into_iter()
        .collect(),
    )
}

/// Rings that see kernels start show for every rank whether it is in an operation: nothing is left to be guessed.
fn rings_tell_more(scene: &Scene<'_>) -> bool {
    scene.waits_of(GroupRecorder::Ring).is_some_and(|waits| {
        waits.fronts.iter().any(|front| {
            let Some(group) = scene.ledger().groups().get(front.group) else { return false };
            inside::members(group, front).iter().any(|i| i.op.stage() == RingStage::Started)
        })
    })
}

/// By the rings: an operation that all have given to their GPUs runs on some of them and never starts on one. Or: the
/// rank that the others wait for has nothing of NCCL's in flight, and its program waits for its GPU.
fn by_rings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(waits) = scene.waits_of(GroupRecorder::Ring).filter(|_| scene.ledger().is_stalled()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut named: Vec<Rank> = Vec::new();
    for front in waits.all_in.iter().filter_map(|at| waits.fronts.get(*at)) {
        let Some(group) = scene.ledger().groups().get(front.group) else { continue };
        let inside = inside::members(group, front);
        let (waiting, running): (Vec<&Inside<'_>>, Vec<&Inside<'_>>) =
            inside.iter().partition(|i| i.op.stage() == RingStage::Launched);
        // Where it is one against several, or one against one, that GPU is not there; where several are not, each is
        // kept by something of its own, or one of them keeps the others by something that is not NCCL's.
        let gone = |i: &&Inside<'_>| {
            let fate = group.rank(i.member).and_then(|rank| scene.fate(rank));
            fate.is_some_and(|fate| fate.left_a_ring().is_some() || fate.is_halted())
        };
        let waiting: Vec<&Inside<'_>> = waiting.into_iter().filter(|i| !gone(i)).collect();
        if running.is_empty() || waiting.is_empty() || waiting.len() > running.len() {
            continue;
        }
        let runs: RankSet = running.iter().filter_map(|i| group.rank(i.member)).collect();
        for late in &waiting {
            let Some(rank) = group.rank(late.member).filter(|r| !named.contains(r)) else { continue };
            // Behind a call that differs from its peers' nothing starts any more.
            if scene.has_parted(RankOrSource::Rank(rank)) {
                continue;
            }
            named.push(rank);
            let stand = scene.condition(rank).and_then(|c| c.stand.as_ref());
            let place = stand.and_then(|s| s.place());
            let records = [*late].into_iter().chain(running.iter().take(3).copied()).filter_map(|i| {
                let who = drafting::rank(group.rank(i.member)?);
                operation::record(group.tracks.get(i.member)?.as_ref()?, i.at, &who)
            });
            let title = format!(
                "the GPU of {} runs something else: #{} of {} never starts there",
                drafting::rank(rank),
                late.op.number,
                group.name,
            );
            let draft = Draft::new(RULE.id, Cause::GpuKernelStuck, title)
                .call(NamedCall { group: group.name.clone(), number: late.op.number.into() })
                .weight(Weight::Derived)
                .confidence(Confidence::Medium)
                .culprits(drafting::culprits(scene, &[RankOrSource::Rank(rank)], place))
                .victims(runs.clone())
                .evidence(records)
                .evidence(stand.map(|s| s.evidence.clone()))
                .at(front.since_ns);
            findings.extend(advise(scene, draft, rank).build());
        }
    }
    for suspect in
        scene.suspects().iter().filter(|s| s.views.contains(&GroupRecorder::Ring) && !s.weak && !s.in_p2p)
    {
        let Some(rank) = suspect.node.rank().filter(|r| !named.contains(r)) else { continue };
        if scene.has_parted(suspect.node)
            || scene.fate(rank).is_some_and(|fate| fate.is_halted() || fate.is_gone())
        {
            continue;
        }
        let stand = scene.condition(rank).and_then(|c| c.stand.as_ref());
        let Some(stand) = stand.filter(|s| s.waits_for_gpu()) else { continue };
        let title = format!(
            "{} waits for its GPU{}: one of its own kernels does not finish",
            drafting::rank(rank),
            drafting::at(stand.place()),
        );
        let draft =
            drafting::from_suspect(scene, RULE.id, Cause::GpuKernelStuck, suspect, stand.place(), title)
                .weight(Weight::Derived)
                .evidence([stand.evidence.clone()]);
        findings.extend(advise(scene, draft, rank).build());
    }
    findings
}

fn advise(scene: &Scene<'_>, draft: Draft, rank: Rank) -> Draft {
    draft
        .advise_made(Impact::Disruptive, SEE_KERNEL, Some(see_kernel(scene, rank)))
        .advise(Impact::Harmless, LAUNCH_ALONE)
}

const SEE_KERNEL: &str = "check which kernel runs there (pauses that process)";
const LAUNCH_ALONE: &str = "run that rank's kernels before this collective with CUDA_LAUNCH_BLOCKING=1 to find the one that does \
                            not return";

fn see_kernel(scene: &Scene<'_>, rank: Rank) -> String {
    format!("cuda-gdb --pid {} -batch -ex 'info cuda kernels'", drafting::pid_of(scene, rank))
}

/// Without dumps of all ranks: NCCL's logs count as many calls on every rank, and yet ranks time out.
fn by_count(scene: &Scene<'_>) -> Outcome {
    let Some(waits) = scene.waits_of(GroupRecorder::Nccl) else { return Outcome::Clear };
    let timed_out: Vec<(Rank, Evidence)> =
        scene.conditions().all().filter_map(|(rank, c)| Some((rank, c.timed_out.clone()?))).collect();
    if !scene.ledger().logs_know_more()
        || !waits.fronts.is_empty()
        || scene.any_parted()
        || timed_out.len() < 2
    {
        return Outcome::Clear;
    }
    let Some((rank, evidence)) = power_outliers(scene).or_else(|| named_by_kernel(scene)) else {
        return Outcome::Undecided(vec![Need {
            question: "all ranks made the same calls and some never finish: on which GPU does an earlier kernel still run? Compare power and utilisation while it hangs".into(),
            command: "nvidia-smi".into(),
            ..Need::default()
        }]);
    };
    let victims: RankSet = timed_out.iter().map(|(r, _)| *r).filter(|r| *r != rank).collect();
    Outcome::from_findings(
        Draft::new(
            RULE.id,
            Cause::GpuKernelStuck,
            format!(
                "the GPU of {} runs something else: the collective of the others never starts there",
                drafting::rank(rank)
            ),
        )
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprit(scene.roster().culprit_rank(rank))
        .victims(victims)
        .evidence(evidence)
        .evidence(timed_out.into_iter().take(3).map(|(_, e)| e))
        .advise_made(Impact::Disruptive, SEE_KERNEL, Some(see_kernel(scene, rank)))
        .build()
        .into_iter()
        .collect(),
    )
}

/// The one rank whose GPU draws much less or much more than those of its peers, which draw alike.
fn power_outliers(scene: &Scene<'_>) -> Option<(Rank, Vec<Evidence>)> {
    // The GPUs of all nodes: those inside the same job's collectives draw alike wherever they are.
    let mut rows: Vec<(Rank, f32, Cite)> = Vec::new();
    for (observation, table) in scene.gpu_tables() {
        for gpu in &table.gpus {
            let by_process = table
                .processes
                .iter()
                .find(|(index, _)| Some(*index) == gpu.index)
                .and_then(|(_, pid)| scene.roster().rank_of(*pid, None));
            let by_address = || {
                scene
                    .roster()
                    .members
                    .iter()
                    .find(|m| m.gpu.is_some() && m.gpu == gpu.pci)
                    .and_then(|m| m.rank)
            };
            if let (Some(rank), Some(power)) = (by_process.or_else(by_address), gpu.power_w) {
                let cite = Cite { line: gpu.line, ..observation.cite };
                // Two tables of one node: the first counts.
                if !rows.iter().any(|(r, ..)| *r == rank) {
                    rows.push((rank, power, cite));
                }
            }
        }
    }
    if rows.len() < 3 {
        return None;
    }
    let median = median::upper(rows.iter().map(|(_, power, _)| *power))?;
    let far = |p: f32| p < median * OUTLIER_RATIO || p * OUTLIER_RATIO > median;
    let mut odd = rows.iter().filter(|(_, p, _)| far(*p));
    let (Some((rank, power, cite)), None) = (odd.next(), odd.next()) else { return None };
    let text = format!(
        "the GPU of rank {} draws {power:.0} W; the median of its peers in the same collective is {median:.0} W",
        rank.0
    );
    Some((*rank, vec![Evidence { cite: *cite, text, kind: SourceKind::NvidiaSmi }]))
}

/// The driver's word for work that does not end.
const CONTEXT_SWITCH_TIMEOUT: u16 = 109;

/// The one rank of whose GPU the kernel says that its work could not be switched out: something on it does not end.
fn named_by_kernel(scene: &Scene<'_>) -> Option<(Rank, Vec<Evidence>)> {
    let is_fault = |root: &KernelEvent| is_lost_gpu(root) || is_xid(root, &[13, 31]);
    let said: Vec<(Rank, Evidence)> = scene
        .kernel()
        .near()
        .filter(|e| is_xid(e.event, &[CONTEXT_SWITCH_TIMEOUT]) && e.bond >= Bond::Device)
        // After a program's own fault it is a consequence.
        .filter(|e| !follows(scene.kernel(), e, ONE_FAULT_S, true, is_fault))
        .filter_map(|e| Some((e.culprit.rank?, e.evidence())))
        .collect();
    let rank = said.first()?.0;
    said.iter().all(|(r, _)| *r == rank).then(|| (rank, said.into_iter().take(2).map(|(_, e)| e).collect()))
}

/// The rank that enqueued the operation last: the stuck kernel went before it.
fn latest(group: &Group<'_>, front: &Front, seq: u32) -> Option<Rank> {
    let times = front.waiting.iter().filter_map(|m| {
        let track = group.tracks.get(*m)?.as_ref()?;
        Some((track.created_ns(track.op(seq)?)?, group.rank(*m)?))
    });
    times.max().map(|(_, rank)| rank)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn all_in() -> StagedCase {
        StagedCase::job(4).logs().dumps(&["ar:1 ar:100?"; 4])
    }

    #[test]
    fn one_gpu_draws_less_than_its_peers() {
        all_in().powers(&[262.0, 260.0, 121.0, 263.0]).concludes(&RULE, "gpu-kernel-stuck 2, high");
    }

    #[test]
    fn a_kernel_that_never_starts() {
        let waits = ["ar:9*12 ar:9?", "ar:9*12 ar:9!", "ar:9*12 ar:9?"];
        let own = [("/srv/train.py", 44, "step")];
        StagedCase::job(3).rings(&waits).concludes(&RULE, "gpu-kernel-stuck 1, medium");
        StagedCase::job(3)
            .rings(&waits)
            .stands(1, &own)
            .concludes(&RULE, "gpu-kernel-stuck 1 at step:44, high");
        // A moment of a job at work; kernels that run everywhere, or nowhere; one that waits for another group.
        StagedCase::job(3).rings(&waits).rings_read_after(200).silent(&RULE);
        StagedCase::job(3).rings(&["ar:9*12 ar:9?"; 3]).silent(&RULE);
        StagedCase::job(3).rings(&["ar:9*12 ar:9!"; 3]).silent(&RULE);
        let two = StagedCase::job(3).group("b", 1..3).rings(&[
            "ar:9*12 ar:9?",
            "ar:9*12 b/ar:8? ar:9!",
            "ar:9*12 ar:9?",
        ]);
        two.silent(&RULE);
        // It called another size before: a consequence.
        let other = ["ar:9*12 ar:9? ar:7?", "ar:9*12 ar:2? ar:7!", "ar:9*12 ar:9? ar:7?"];
        StagedCase::job(3).rings(&other).silent(&RULE);
        // Stopped: its proxies tell nothing more.
        StagedCase::job(3).rings(&waits).ps("R T R").silent(&RULE);
    }

    #[test]
    fn a_late_host_waits_for_its_own_gpu() {
        let waits = ["ar:9*12 ar:9?", "ar:9*12", "ar:9*12 ar:9?"];
        let sync = [("torch/cuda/__init__.py", 1040, "synchronize"), ("/srv/train.py", 44, "step")];
        StagedCase::job(3)
            .rings(&waits)
            .stands(1, &sync)
            .concludes(&RULE, "gpu-kernel-stuck 1 at step:44, high");
        let native = [("libcuda.so.1", 0, "cuStreamSynchronize"), ("/srv/train.py", 44, "step")];
        StagedCase::job(3).rings(&waits).stands(1, &native).expect(&RULE, &["gpu-kernel-stuck 1"]);
        // In code of its own; at work.
        StagedCase::job(3).rings(&waits).stands(1, &[("/srv/train.py", 44, "step")]).silent(&RULE);
        StagedCase::job(3).rings(&waits).rings_read_after(200).stands(1, &sync).silent(&RULE);
    }

    #[test]
    fn gpus_that_draw_alike_name_nobody() {
        all_in().powers(&[71.0, 70.0, 69.0, 72.0]).silent(&RULE);
        all_in().silent(&RULE);
    }

    #[test]
    fn the_kernel_names_the_gpu() {
        let named = |stage: StagedCase, bus: &str| stage.xid(bus, 109, 0, "CTX SWITCH TIMEOUT");
        named(all_in(), "0000:03:00").concludes(&RULE, "gpu-kernel-stuck 2, high");
        // Two GPUs: one may have waited for the other. Ranks that all wait for one are another fault.
        named(named(all_in(), "0000:03:00"), "0000:02:00").silent(&RULE);
        let outside = StagedCase::job(3).logs().dumps(&["ar:1 ar:9?", "ar:1 ar:9?", "ar:1"]);
        named(outside, "0000:03:00").silent(&RULE);
    }

    #[test]
    fn a_cut_path_leaves_some_ahead() {
        let job = StagedCase::job(4).logs().dumps(&[
            "ar:1 ar:100?",
            "ar:1 ar:100?",
            "ar:1 ar:100?",
            "ar:1 ar:100 ar:100?",
        ]);
        job.powers(&[262.0, 260.0, 121.0, 263.0]).silent(&RULE);
    }
}
