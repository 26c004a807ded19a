//! # What it shows
//!
//! The GPU could not replace a bad row of its memory: its spares are used up, or writing the list failed.
//!
//! # Why it happens
//!
//! Memory that ages or was bad from the start. Each bank has eight spare rows, the GPU 512 in all.
//!
//! # Evidence
//!
//! Xid 64 in the kernel log, or 161 where whole channels are repaired (Blackwell); nvidia-smi's `Remapping Failure
//! Occurred`, memory that cannot be repaired, banks without spare rows while one more waits, or 60 retired pages.
//!
//! # What looks like it but is not
//!
//! Xid 63 says that a row was remapped with success: it takes effect at the next reset, and nothing is broken. So it is
//! with `Pending: Yes` alone, and with a count of rows that were replaced.
//!
//! # What to do
//!
//! Take the GPU out and have it replaced: this is a criterion of NVIDIA's for a return.
//!
//! # References
//!
//! NVIDIA, GPU memory error management, row remapping; Xid Catalog, 63, 64, 161.

use ringleader_knowledge::remedy;
use ringleader_knowledge::wording::TestFault;
use ringleader_model::{Cause, GpuRow, Impact};

use crate::drafting::gpus::{Proof, Shown, failed_test};
use crate::drafting::kernel::KernelFault;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "row-remap-failure",
    title: "the GPU cannot replace a bad row of its memory",
    since: "0.1",
    doc: include_str!("row_remap_failure.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let shown = Shown::of(scene, |gpu| beyond_repair(gpu.row));
    let draft = match (KernelFault::own(scene, &RULE), shown) {
        (Some(seen), shown) => {
            let title = format!("{} could not remap a bad row of its memory", seen.gpu());
            let draft = seen.draft(&RULE, Cause::RowRemapFailure, title);
            Some(draft.evidence(shown.iter().flat_map(Shown::evidence)))
        }
        (None, Some(shown)) => {
            let title = format!("the memory of {} can no longer be repaired", shown.who());
            Some(shown.draft(&RULE, Cause::RowRemapFailure, Proof::Broken, title))
        }
        (None, None) => failed_test(scene, &RULE, Cause::RowRemapFailure, Proof::Broken, TestFault::RowRemap),
    };
    Outcome::from_drafts(draft.map(advise))
}

/// Retired pages at which NVIDIA takes a GPU back (those before Ampere).
const MAX_PAGES: u64 = 60;

fn beyond_repair(row: &GpuRow) -> Option<String> {
    if row.rows.failed == Some(true) {
        return Some("remapping a row has failed".to_owned());
    }
    if row.unrepairable_memory == Some(true) {
        return Some("memory that cannot be repaired".to_owned());
    }
    if let (Some(n), Some(true)) = (row.rows.banks_exhausted.filter(|n| *n > 0), row.rows.pending) {
        return Some(format!("{n} banks have no spare row left, and one more row waits to be replaced"));
    }
    let pages = row.pages.single_bit.unwrap_or(0).saturating_add(row.pages.double_bit.unwrap_or(0));
    (pages >= MAX_PAGES).then(|| format!("{pages} retired pages"))
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "read the state of row remapping: a remapping failure is grounds for an RMA",
            remedy::SHOW_MEMORY_ERRORS,
        )
        .advise(Impact::Disruptive, "take the node out and have the GPU replaced")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new()
            .xid("0000:52:00", 64, 0, "Row Remapper: failed")
            .expect(&RULE, &["row-remap-failure"]);
        StagedCase::new().xid("0000:52:00", 161, 0, "x").expect(&RULE, &["row-remap-failure"]);
        StagedCase::new()
            .two_ranks()
            .xid("0000:1a:00", 64, 0, "Row Remapper: failed")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["row-remap-failure 0"]);
    }

    #[test]
    fn the_gpu_says_so() {
        let failed = gpus(8, |index, row| row.rows.failed = Some(index == 1));
        StagedCase::new().shows(failed.clone()).expect(&RULE, &["row-remap-failure"]);
        let job = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        job.shows(failed).expect(&RULE, &["row-remap-failure 1"]);
        let exhausted = gpus(1, |_, row| {
            row.rows.banks_exhausted = Some(1);
            row.rows.pending = Some(true);
        });
        StagedCase::new().shows(exhausted).expect(&RULE, &["row-remap-failure"]);
        let retired = gpus(1, |_, row| row.pages.double_bit = Some(61));
        StagedCase::new().shows(retired).expect(&RULE, &["row-remap-failure"]);
    }

    #[test]
    fn rows_that_were_replaced_or_wait_for_it() {
        let waits = gpus(2, |_, row| {
            row.rows.uncorrected = Some(7);
            row.rows.pending = Some(true);
            row.rows.failed = Some(false);
            row.rows.banks_exhausted = Some(0);
            row.pages.double_bit = Some(5);
        });
        StagedCase::new().shows(waits).silent(&RULE);
    }

    #[test]
    fn a_row_that_was_remapped() {
        StagedCase::new()
            .xid("0000:52:00", 63, 0, "Row Remapper: New row marked for remapping")
            .silent(&RULE);
    }

    #[test]
    fn a_failure_of_an_earlier_day() {
        StagedCase::new().two_ranks().xid("0000:1a:00", 64, 0, "x").at_s(BEGAN_S - 86_400).silent(&RULE);
    }
}
