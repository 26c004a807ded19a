//! # What it shows
//!
//! The GPU stopped answering on PCIe. Every call to it fails; other ranks lose their peer or wait.
//!
//! # Why it happens
//!
//! Power, heat, a loose or failing card, a PCIe error, firmware.
//!
//! # Evidence
//!
//! `GPU is lost` or `fallen off the bus` in the text of NCCL, NVML or CUDA; Xid 79 in the kernel log, or the driver's
//! words without a number; nvidia-smi that cannot access one GPU (`Unable to determine the device handle`, `ERR!` in
//! all its fields), or lists the others without it. A fatal PCIe error right before it means that the link failed
//! first.
//!
//! # What looks like it but is not
//!
//! `ERR!` in one field alone (a fan that is not there), or on all GPUs alike. A GPU that was never given to the container (`No CUDA GPUs are available`) is container-config.
//!
//! # What to do
//!
//! Drain the node; a reboot or a power cycle may bring the GPU back for tests.
//!
//! # References
//!
//! NVML reference, nvmlReturn_t 15; kernel log Xid 79.

use ringleader_knowledge::wording::{self, ToolFailure};
use ringleader_model::{
    Cause, Cite, Culprit, Evidence, GpuForm, GpuRow, Impact, KernelEventKind, Need, PciAddress, Pid,
    SourceKind, Who,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, Shown, graded};
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Member;
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{GPU_NOTICED_S, is_lost_gpu};
use ringleader_correlate::who::culprits::add_culprit;
use ringleader_correlate::who::gpus::{Use, of_address};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gpu-fallen-off-bus",
    title: "the GPU has fallen off the PCIe bus",
    since: "0.1",
    doc: include_str!("gpu_fallen_off_bus.rs"),
    check,
};

/// A list may lack one GPU in this many that the job used. If it lacks more, somebody asked for a few GPUs only.
const MISSING_ONE_IN: usize = 4;

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::of(scene, |e| is_lost_gpu(e.event));
    let shown = refused(scene).or_else(|| mute(scene)).or_else(|| missing(scene));
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::GpuFallenOffBus), seen) else {
        let draft = shown.map(|d| confirm(take_out(d.evidence(hanging_tool(scene).map(|(e, _)| e)))));
        return match Outcome::from_drafts(draft) {
            Outcome::Clear => asks_about_tool(scene),
            found => found,
        };
    };
    let mut draft = both.draft(
        &RULE,
        Cause::GpuFallenOffBus,
        |told| format!("the GPU of {who} no longer answers", who = told.who()),
        |seen| format!("{} has fallen off the bus", seen.gpu()),
    );
    // Which link failed, if PCIe said so first.
    if let Some(lost) = both.seen().and_then(KernelFault::first) {
        let before = scene.kernel().near().filter(|e| {
            matches!(&e.event.kind, KernelEventKind::PcieError(p) if p.severity != ringleader_model::PcieSeverity::Corrected)
                && e.seconds_to(lost).is_some_and(|s| (0.0..=GPU_NOTICED_S).contains(&s))
        });
        draft = draft
            .evidence(before.take(2).map(ringleader_correlate::machine::kernel::KernelStatement::evidence));
    }
    if both.seen().is_none() {
        draft = confirm(draft);
    }
    let shown = shown.and_then(Draft::build);
    found(take_out(draft.evidence(shown.into_iter().flat_map(|f| f.evidence))))
}

fn confirm(draft: Draft) -> Draft {
    draft.advise_command(
        Impact::Harmless,
        "confirm in the kernel log",
        "dmesg -T | grep -iE \"xid.*79|fallen off\"",
    )
}

fn take_out(draft: Draft) -> Draft {
    draft.advise(
        Impact::Destructive,
        "drain the node, then power-cycle it and test the GPU before it takes jobs again",
    )
}

/// nvidia-smi names a GPU that it cannot get hold of.
fn refused(scene: &Scene<'_>) -> Option<Draft> {
    let mut used: Option<Use> = None;
    let mut culprits: Vec<Culprit> = Vec::new();
    let mut evidence = Vec::new();
    for (observation, table) in scene.gpu_tables() {
        for (line, text) in &table.failures {
            // A user who may not ask, a module that is not loaded: nothing is known of the GPU. No answer: the driver
            // is busy, or stuck; on a node under load some GPUs answer in time and some do not.
            if wording::tool_failure(text) != ToolFailure::Lost {
                continue;
            }
            let host = observation.who.host.as_ref();
            let address = wording::gpu_address(text);
            let nobody = Culprit { host: host.cloned(), ..Culprit::default() };
            let (mine, culprit) = match address {
                Some(pci) => of_address(scene.roster(), scene.has_job(), pci, host),
                None if scene.has_job() => (Use::Unknown, nobody),
                None => (Use::Alone, nobody),
            };
            used = used.max(Some(mine));
            if culprit != Culprit::default() {
                add_culprit(&mut culprits, culprit);
            }
            if evidence.len() < 4 {
                let cite = Cite { line: *line, ..observation.cite };
                evidence.push(Evidence { cite, text: text.to_string(), kind: SourceKind::NvidiaSmi });
            }
        }
    }
    let who = match culprits.as_slice() {
        [one] => match (one.rank, one.gpu) {
            (Some(rank), _) => format!("the GPU of rank {}", rank.0),
            (None, Some(gpu)) => format!("GPU {gpu}"),
            (None, None) => "a GPU".to_owned(),
        },
        [] => "a GPU".to_owned(),
        all => format!("{} GPUs", all.len()),
    };
    let title = format!("nvidia-smi cannot reach {who}");
    let draft = graded(scene, &RULE, Cause::GpuFallenOffBus, Proof::Broken, used?, title);
    Some(draft.culprits(culprits).evidence(evidence))
}

/// A GPU from which the driver could read nothing, beside others that answer.
fn mute(scene: &Scene<'_>) -> Option<Draft> {
    let is_mute = |row: &GpuRow| {
        row.has_error
            && row.power_w.is_none()
            && row.temperature_c.is_none()
            && row.utilization_pct.is_none()
            && row.sm_clock_mhz.is_none()
    };
    let mut all = Vec::new();
    for gpus in scene.gpus().tables() {
        // Where all fail alike it is the driver, or a machine that shows nothing of them.
        if gpus.iter().any(|g| !is_mute(g.row)) {
            let mute = gpus.iter().filter(|g| is_mute(g.row));
            all.extend(mute.map(|g| (g, "the driver cannot read it (ERR!)".to_owned())));
        }
    }
    let shown = Shown::from(scene, all)?;
    let title = format!("{} no longer {} the driver", shown.who(), shown.word("answers", "answer"));
    Some(shown.draft(&RULE, Cause::GpuFallenOffBus, Proof::Broken, title))
}

/// GPUs that ranks ran on and that a list of the same machine's GPUs lacks.
fn missing(scene: &Scene<'_>) -> Option<Draft> {
    let mut hosts: Vec<_> = scene.roster().members.iter().filter_map(|m| m.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    let same =
        |a: PciAddress, b: PciAddress| PciAddress { function: 0, ..a } == PciAddress { function: 0, ..b };
    for gpus in scene.gpus().tables() {
        let (Some(first), false) = (gpus.first(), gpus.iter().any(|g| g.pci.is_none())) else { continue };
        if !matches!(
            first.table.form,
            GpuForm::Table | GpuForm::Query | GpuForm::Xml | GpuForm::List | GpuForm::Csv
        ) || first.table.is_cut
        {
            continue;
        }
        let host = first.observation.who.host.as_ref();
        let members = scene.roster().members.iter();
        let mine: Vec<_> = members
            .filter(|m| m.gpu.is_some() && (hosts.len() == 1 || host.is_some() && m.host.as_ref() == host))
            .collect();
        let is_listed = |gpu: PciAddress| gpus.iter().any(|g| g.pci.is_some_and(|listed| same(gpu, listed)));
        let gone: Vec<_> = mine.iter().filter(|m| m.gpu.is_some_and(|gpu| !is_listed(gpu))).collect();
        if gone.is_empty() || gone.len() * MISSING_ONE_IN > mine.len() {
            continue;
        }
        let whom = |m: &Member| Who { rank: m.rank, pid: m.pid, host: m.host.clone(), ..Who::default() };
        let culprits: Vec<Culprit> = gone.iter().map(|m| scene.culprit(&whom(m))).collect();
        let names: Vec<String> = gone.iter().filter_map(|m| m.gpu.map(|g| g.to_string())).collect();
        let names = names.join(", ");
        let text = format!("nvidia-smi lists {} GPUs, but not {names}", gpus.len());
        let title = format!("a GPU that the job used is no longer listed: {names}");
        let draft = graded(scene, &RULE, Cause::GpuFallenOffBus, Proof::Broken, Use::Rank, title);
        return Some(draft.culprits(culprits).evidence([first.evidence(text)]));
    }
    None
}

/// Time in the kernel after which nvidia-smi hangs: loading a driver takes seconds.
const HANGS_S: u64 = 30;

/// nvidia-smi that hangs in the kernel itself.
fn hanging_tool(scene: &Scene<'_>) -> Option<(Evidence, Option<Pid>)> {
    scene.process_tables().find_map(|(observation, table)| {
        let row = table.rows.iter().find(|r| {
            r.state.starts_with('D')
                && r.command.contains("nvidia-smi")
                && r.elapsed_s.is_some_and(|s| s >= HANGS_S)
        })?;
        let text = format!("{} has hung in the kernel for {} s", row.command, row.elapsed_s.unwrap_or(0));
        let cite = Cite { line: row.line, ..observation.cite };
        Some((Evidence { cite, text, kind: SourceKind::Processes }, row.pid))
    })
}

fn asks_about_tool(scene: &Scene<'_>) -> Outcome {
    let Some((_, pid)) = hanging_tool(scene) else { return Outcome::Clear };
    let pid = pid.map_or_else(|| "<pid of nvidia-smi>".to_owned(), |p| p.0.to_string());
    Outcome::Undecided(vec![Need {
        question: "nvidia-smi itself hangs in the kernel: which GPU does not answer the driver?".into(),
        command: format!("dmesg -T | grep -iE \"xid|nvrm\"; cat /proc/{pid}/stack"),
        ..Need::default()
    }])
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, KernelEventKind, PciAddress};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::{gpu, gpus};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn nvml_says_so() {
        StagedCase::new()
            .process("node3", 9, Some(3))
            .warn("misc/nvmlwrap.cc:171", "nvmlDeviceGetHandleByIndex(3) failed: GPU is lost")
            .expect(&RULE, &["gpu-fallen-off-bus 3"]);
    }

    #[test]
    fn a_job_that_is_only_seen_to_live() {
        let text = "GPU has fallen off the bus.";
        let job = |at_s: i64, gpus: &'static [&'static str]| {
            let gpus = |rank: u32| gpus.get(rank as usize).and_then(|gpu| PciAddress::parse(gpu));
            let stage = StagedCase::new().seen(BEGAN_S, "S S", |rank, p| p.gpus.extend(gpus(rank)));
            stage.xid("0000:3b:00", 79, 0, text).on("node0").at_s(BEGAN_S + at_s)
        };
        let apart: &[&str] = &["0000:1a:00.0", "0000:3b:00.0"];
        job(100, apart).concludes(&RULE, "gpu-fallen-off-bus 1, high");
        // Before the first process began, of another day.
        job(-10, apart).silent(&RULE);
        job(-86_400, apart).silent(&RULE);
        // Each could use it; one of them does, and which is not known.
        job(100, &["0000:3b:00.0", "0000:3b:00.0"]).concludes(&RULE, "gpu-fallen-off-bus , high");
        // None has it open.
        assert_eq!(job(100, &["0000:1a:00.0", "0000:1b:00.0"]).worth(&RULE), ["info Aside"]);
        // Nobody knows who has what: no blame, and no health.
        assert_eq!(job(100, &[]).worth(&RULE), ["info Derived"]);
        assert_eq!(crate::diagnose(&job(100, &[]).case).cause, Cause::Undecided);
    }

    #[test]
    fn the_kernel_says_so() {
        // Alone, with and without a number.
        StagedCase::new()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .expect(&RULE, &["gpu-fallen-off-bus"]);
        StagedCase::new()
            .kernel("0000:3b:00", KernelEventKind::GpuLost)
            .expect(&RULE, &["gpu-fallen-off-bus"]);
        // Of rank 1's GPU while the job ran.
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .at_s(BEGAN_S + 600)
            .expect(&RULE, &["gpu-fallen-off-bus 1"]);
    }

    #[test]
    fn nvidia_smi_cannot_reach_it() {
        for text in [
            "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
            "Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error",
            "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system",
        ] {
            StagedCase::new().smi_fails(text).expect(&RULE, &["gpu-fallen-off-bus"]);
            let job = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
            job.smi_fails(text).expect(&RULE, &["gpu-fallen-off-bus 1"]);
        }
        let denied = "Unable to determine the device handle for GPU 0000:3B:00.0: Insufficient Permissions";
        StagedCase::new().smi_fails(denied).silent(&RULE);
        StagedCase::new().smi_fails("NVIDIA-SMI has failed because it couldn't communicate").silent(&RULE);
    }

    #[test]
    fn one_gpu_is_mute_beside_others() {
        let mute = gpus(4, |index, row| match index {
            2 => row.has_error = true,
            _ => row.power_w = Some(80.0),
        });
        StagedCase::new().shows(mute).expect(&RULE, &["gpu-fallen-off-bus"]);
        // A fan that is not there; all alike.
        let fan = gpus(4, |index, row| {
            row.power_w = Some(80.0);
            row.has_error = index == 2;
        });
        StagedCase::new().shows(fan).silent(&RULE);
        StagedCase::new().shows(gpus(4, |_, row| row.has_error = true)).silent(&RULE);
    }

    #[test]
    fn a_list_that_lacks_one() {
        let job = || {
            (0_u32..8).fold(StagedCase::new().raised(Some(0), "RuntimeError", "boom", &[]), |stage, rank| {
                let bus = gpu(rank).pci.map_or(0, |p| p.bus);
                stage.process("node0", 100 + rank, Some(rank)).comm(rank, 8, bus, true)
            })
        };
        let without = |n: u32| gpus(8, |_, _| {}).into_iter().filter(|g| g.index != Some(n)).collect();
        job().shows(without(5)).expect(&RULE, &["gpu-fallen-off-bus 5"]);
        job().shows(without(9)).silent(&RULE);
        // Somebody asked for one.
        job().shows(vec![gpu(2)]).silent(&RULE);
    }

    #[test]
    fn a_gpu_that_was_lost_before_the_job_began() {
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 79, 0, "GPU has fallen off the bus.")
            .at_s(BEGAN_S - 7_200)
            .silent(&RULE);
    }

    #[test]
    fn what_nothing_ties_to_the_job_decides_nothing() {
        // No time, and a healthy job.
        let healthy = StagedCase::new().two_ranks().xid("0000:3b:00", 79, 0, "x");
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
        // Another machine's, beside a job in trouble.
        let raised = |stage: StagedCase| stage.raised(Some(0), "ValueError", "bad batch", &[]);
        let other = raised(StagedCase::new().two_ranks()).xid("0000:3b:00", 79, 0, "x").on("node9");
        assert_eq!(other.worth(&RULE), ["warning Derived"]);
        // A post with two snippets and no clock: it may be, and a program's own statement comes first.
        let post = raised(StagedCase::new()).xid("0000:3b:00", 79, 0, "x");
        assert_eq!(post.worth(&RULE), ["error Derived"]);
        // Of a rank's GPU, at a time that cannot be compared: less than what a program states.
        let untimed = raised(StagedCase::new().two_ranks()).xid("0000:3b:00", 79, 0, "x");
        assert_eq!(untimed.worth(&RULE), ["error Derived"]);
    }

    #[test]
    fn a_hidden_gpu_is_another_thing() {
        StagedCase::new().raised(Some(0), "RuntimeError", "No CUDA GPUs are available", &[]).silent(&RULE);
    }
}
