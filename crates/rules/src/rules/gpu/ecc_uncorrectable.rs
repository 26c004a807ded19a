//! # What it shows
//!
//! GPU memory lost data that ECC could not correct. The process that used it is killed by the driver.
//!
//! # Why it happens
//!
//! Ageing or damaged memory. Newer GPUs remap the row at the next reset; a GPU that repeats the error must be replaced.
//!
//! # Evidence
//!
//! `uncorrectable ECC error encountered` of the process that runs on the GPU; Xids 48, 94, 95 and 140; counters of
//! uncorrectable errors since the driver was loaded (nvidia-smi), a failed memory test (dcgmi).
//!
//! # What looks like it but is not
//!
//! Corrected errors are harmless in small numbers. Errors of the GPU's whole life (aggregate) are over, and so is one
//! whose row has been remapped already. A counter covers this boot, not this job: a job that ran well is not blamed. An
//! illegal access is a fault of the program.
//!
//! # What to do
//!
//! Take the GPU out, look at its counters, reset it when nothing runs on it; replace it when remapping failed or
//! the error returns.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 214; NVIDIA GPU memory error management guide.

use ringleader_knowledge::remedy;
use ringleader_knowledge::wording::TestFault;
use ringleader_model::{Cause, Impact};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, Shown, failed_test};
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::SeenGpu;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ecc-uncorrectable",
    title: "uncorrectable GPU memory error",
    since: "0.1",
    doc: include_str!("ecc_uncorrectable.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::own(scene, &RULE);
    let counted = counted(scene);
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::EccUncorrectable), seen) else {
        let draft = counted.map(|shown| {
            let title = format!("uncorrectable memory errors are counted on {}", shown.who());
            advise(shown.draft(&RULE, Cause::EccUncorrectable, Proof::Happened, title))
        });
        let tested = failed_test(scene, &RULE, Cause::EccUncorrectable, Proof::Broken, TestFault::Memory);
        return match Outcome::from_drafts(draft.into_iter().chain(tested.map(advise))) {
            Outcome::Clear => reset_wanted(scene),
            found => found,
        };
    };
    let contained = both.seen().is_some_and(|s| {
        s.events().iter().all(|e| ringleader_correlate::machine::faults::is_xid(e.event, &[94]))
    });
    let draft = both.draft(
        &RULE,
        Cause::EccUncorrectable,
        |told| format!("uncorrectable memory error on the GPU of {who}", who = told.who()),
        |seen| {
            let sort = if contained {
                "uncorrectable memory error, contained to one program,"
            } else {
                "uncorrectable memory error"
            };
            format!("{sort} on {}", seen.gpu())
        },
    );
    // The counters say which GPU, and that it was no other.
    let draft = draft.evidence(counted.iter().flat_map(Shown::evidence));
    found(advise(draft))
}

fn advise(draft: crate::rule::Draft) -> crate::rule::Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "read the error counters and the state of row remapping",
            remedy::SHOW_MEMORY_ERRORS,
        )
        .advise(
            Impact::Disruptive,
            "keep the scheduler from placing jobs on this node until its GPU has been reset and tested",
        )
        .advise_command(
            Impact::Destructive,
            "reset the GPU once no process uses it",
            "nvidia-smi --gpu-reset -i <index>",
        )
}

/// GPUs that count uncorrectable errors since the driver was loaded, and have not dealt with them.
fn counted<'s, 'a>(scene: &'s Scene<'a>) -> Option<Shown<'s, 'a>> {
    Shown::of(scene, |gpu| {
        let row = gpu.row;
        if row.sram_threshold_exceeded == Some(true) {
            return Some("its on-chip memories had more uncorrectable errors than NVIDIA accepts".to_owned());
        }
        let n = gpu.uncorrected()?;
        if is_dealt_with(scene, gpu) {
            return None;
        }
        let part = |name, n: Option<u64>| n.filter(|n| *n > 0).map(|n| format!("{name} {n}"));
        let parts: Vec<String> = [
            part("device memory", row.volatile.dram_uncorrected),
            part("on-chip memory", row.volatile.sram_uncorrected),
        ]
        .into_iter()
        .flatten()
        .collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        Some(format!("{n} uncorrectable memory errors since the driver was loaded{parts}"))
    })
}

/// The bad row has been replaced, and nothing waits for a reset: the GPU is well again.
fn is_dealt_with(scene: &Scene<'_>, gpu: &SeenGpu<'_>) -> bool {
    let mut same = scene.gpus().seen.iter().filter(|g| g.is_same(gpu));
    let remapped = |g: &SeenGpu<'_>| {
        g.row.rows.uncorrected.is_some_and(|n| n > 0)
            && g.row.rows.pending == Some(false)
            && g.row.rows.failed != Some(true)
    };
    let on_chip = |g: &SeenGpu<'_>| g.row.volatile.sram_uncorrected.is_some_and(|n| n > 0);
    same.clone().any(remapped) && !same.any(on_chip)
}

/// The driver asks for a reset and nothing says why.
fn reset_wanted(scene: &Scene<'_>) -> Outcome {
    let asks = |g: &&SeenGpu<'_>| {
        let action = g.row.recovery_action.as_deref();
        action.is_some_and(|a| !matches!(a, "None" | "N/A"))
            && g.used > ringleader_correlate::who::gpus::Use::Other
    };
    let Some(gpu) = scene.gpus().seen.iter().find(asks) else { return Outcome::Clear };
    let action = gpu.row.recovery_action.as_deref().unwrap_or_default();
    Outcome::Undecided(vec![ringleader_model::Need {
        question: format!(
            "the driver requests the recovery action {action} for {}: which error came before it?",
            gpu.whose()
        ),
        command: "dmesg -T | grep -iE \"xid|nvrm\"; nvidia-smi -q -d ECC,ROW_REMAPPER".into(),
        ..ringleader_model::Need::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn cuda_says_so() {
        StagedCase::new()
            .error_line(None, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
            .expect(&RULE, &["ecc-uncorrectable"]);
    }

    #[test]
    fn the_watchdog_says_so() {
        StagedCase::new()
            .torch(
                Some(5),
                ringleader_model::TorchEvent::WatchdogDied {
                    error: "CUDA error: uncorrectable ECC error encountered".into(),
                },
                "watchdog",
            )
            .expect(&RULE, &["ecc-uncorrectable 5"]);
    }

    #[test]
    fn the_kernel_says_so() {
        for code in [48, 94, 95, 140] {
            StagedCase::new().xid("0000:55:00", code, 0, "x").expect(&RULE, &["ecc-uncorrectable"]);
        }
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 48, 0, "An uncorrectable double bit error (DBE)")
            .at_s(BEGAN_S + 60)
            .xid("0000:3b:00", 48, 101, "channel 0x2")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["ecc-uncorrectable 1"]);
    }

    #[test]
    fn the_kernel_knows_which_gpu_it_was() {
        // Rank 0 complains of what rank 1's GPU did.
        StagedCase::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "CUDA error: uncorrectable ECC error encountered", &[])
            .xid("0000:3b:00", 48, 0, "x")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["ecc-uncorrectable 1"]);
    }

    #[test]
    fn a_remapped_row_and_corrected_errors_kill_nothing() {
        for code in [63, 92, 154, 171, 172] {
            StagedCase::new().xid("0000:55:00", code, 0, "x").silent(&RULE);
        }
    }

    #[test]
    fn counters_of_the_gpu_say_so() {
        let bad = |index: u32, row: &mut ringleader_model::GpuRow| {
            row.volatile.dram_uncorrected = Some(u64::from(index == 1) * 2);
            row.rows.pending = Some(index == 1);
        };
        StagedCase::new().shows(gpus(4, bad)).expect(&RULE, &["ecc-uncorrectable"]);
        let failed = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "NCCL timed out", &[]);
        failed.shows(gpus(4, bad)).expect(&RULE, &["ecc-uncorrectable 1"]);
        // A job that ran well is not blamed for a counter.
        let healthy = StagedCase::new().two_ranks().shows(gpus(4, bad));
        assert_eq!(healthy.worth(&RULE), ["info Derived"]);
        // The GPU of somebody else.
        let other = |index: u32, row: &mut ringleader_model::GpuRow| bad(index.wrapping_sub(2), row);
        let failed = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "NCCL timed out", &[]);
        assert_eq!(failed.shows(gpus(4, other)).worth(&RULE), ["info Derived"]);
    }

    #[test]
    fn counters_confirm_what_a_rank_says() {
        let finding = StagedCase::new()
            .two_ranks()
            .raised(Some(1), "RuntimeError", "CUDA error: uncorrectable ECC error encountered", &[])
            .shows(gpus(2, |index, row| row.uncorrected_errors = Some(u64::from(index))))
            .finding(&RULE);
        assert!(finding.evidence.iter().any(|e| e.text.contains("GPU 1 (0000:3b:00.0): 1 uncorrectable")));
    }

    #[test]
    fn a_memory_test_fails() {
        StagedCase::new().test_fails("memory", Some(3), "").expect(&RULE, &["ecc-uncorrectable"]);
        StagedCase::new().test_fails("memory", Some(3), "Unable to allocate enough memory").silent(&RULE);
        StagedCase::new().test_fails("software", Some(3), "Persistence mode is off").silent(&RULE);
    }

    #[test]
    fn counters_that_are_no_fault() {
        // Mended ones, ones of the GPU's life, and one whose row has been replaced.
        let clean = |_: u32, row: &mut ringleader_model::GpuRow| {
            row.volatile.dram_corrected = Some(4_000);
            row.volatile.dram_uncorrected = Some(0);
            row.aggregate.dram_uncorrected = Some(3);
        };
        StagedCase::new().shows(gpus(4, clean)).silent(&RULE);
        let replaced = |_: u32, row: &mut ringleader_model::GpuRow| {
            row.volatile.dram_uncorrected = Some(1);
            row.rows.uncorrected = Some(1);
            row.rows.pending = Some(false);
        };
        StagedCase::new().shows(gpus(1, replaced)).silent(&RULE);
    }

    #[test]
    fn an_error_of_an_earlier_job() {
        StagedCase::new().two_ranks().xid("0000:3b:00", 48, 0, "x").at_s(BEGAN_S - 86_400).silent(&RULE);
    }

    #[test]
    fn other_cuda_errors_are_other_things() {
        StagedCase::new()
            .raised(Some(0), "RuntimeError", "CUDA error: unspecified launch failure", &[])
            .silent(&RULE);
    }
}
