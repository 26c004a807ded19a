//! # What it shows
//!
//! GPU memory lost data that its check bits could not mend. The process that used it is killed by the driver.
//!
//! # Why it happens
//!
//! Ageing or damaged memory. Newer GPUs remap the row at the next reset; a GPU that does it again must go.
//!
//! # Evidence
//!
//! `uncorrectable ECC error encountered` of the process that runs on the GPU.
//!
//! # What looks like it but is not
//!
//! Corrected errors are harmless in small numbers. An illegal access is a fault of the program.
//!
//! # What to do
//!
//! Take the GPU out, look at its counters, reset it when nothing runs on it; replace it when remapping failed or
//! the error returns.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 214; NVIDIA GPU memory error management guide.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::hardware::{Both, Seen};
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// Double-bit error, contained and uncontained memory errors, unrecovered error. A remapped row (63), a high rate of
/// corrected errors (92) and the details of a double-bit error (171, 172) kill nothing by themselves.
const CODES: [u16; 4] = [48, 94, 95, 140];

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "ecc-uncorrectable",
    title: "uncorrectable GPU memory error",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog, Input::KernelLog],
    doc: include_str!("ecc_uncorrectable.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let seen = Seen::xids(scene, |x| CODES.contains(&x.code));
    let Some(both) = Both::of(Told::of(scene, "ecc-uncorrectable"), seen) else { return Outcome::Clear };
    let contained =
        both.seen().is_some_and(|s| s.events().iter().all(|e| crate::hardware::is_xid(e.event, &[94])));
    let draft = both.draft(
        &RULE,
        "ecc-uncorrectable",
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
    let draft = draft
        .advise_command(
            Impact::Harmless,
            "read the error counters and the state of row remapping",
            "nvidia-smi -q -d ECC,ROW_REMAPPER",
        )
        .advise(
            Impact::Disruptive,
            "keep the scheduler from placing jobs on this node until its GPU has been reset and tested",
        )
        .advise_command(
            Impact::Destructive,
            "reset the GPU once no process uses it",
            "nvidia-smi --gpu-reset -i <index>",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;
    use crate::staging_kernel::BEGAN_S;

    #[test]
    fn cuda_says_so() {
        Stage::new()
            .error_line(None, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
            .expect(&RULE, &["ecc-uncorrectable"]);
    }

    #[test]
    fn the_watchdog_says_so() {
        Stage::new()
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
            Stage::new().xid("0000:55:00", code, 0, "x").expect(&RULE, &["ecc-uncorrectable"]);
        }
        Stage::new()
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
        Stage::new()
            .two_ranks()
            .raised(Some(0), "RuntimeError", "CUDA error: uncorrectable ECC error encountered", &[])
            .xid("0000:3b:00", 48, 0, "x")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["ecc-uncorrectable 1"]);
    }

    #[test]
    fn a_remapped_row_and_corrected_errors_kill_nothing() {
        for code in [63, 92, 154, 171, 172] {
            Stage::new().xid("0000:55:00", code, 0, "x").silent(&RULE);
        }
    }

    #[test]
    fn an_error_of_an_earlier_job() {
        Stage::new().two_ranks().xid("0000:3b:00", 48, 0, "x").at_s(BEGAN_S - 86_400).silent(&RULE);
    }

    #[test]
    fn other_cuda_errors_are_other_things() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: unspecified launch failure", &[])
            .silent(&RULE);
    }
}
