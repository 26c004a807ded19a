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
//! Xid 64 in the kernel log, or 161 where whole channels are repaired (Blackwell).
//!
//! # What looks like it but is not
//!
//! Xid 63 says that a row was remapped with success: it takes effect at the next reset, and nothing is broken.
//!
//! # What to do
//!
//! Take the GPU out and have it replaced: this is a criterion of NVIDIA's for a return.
//!
//! # References
//!
//! NVIDIA, GPU memory error management, row remapping; Xid Catalog, 63, 64, 161.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::hardware::{Seen, outcome};
use crate::rule::{Input, Outcome, Rule};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "row-remap-failure",
    title: "the GPU cannot replace a bad row of its memory",
    since: "0.2",
    reads: &[Input::KernelLog],
    doc: include_str!("row_remap_failure.rs"),
    check,
};

const CODES: [u16; 2] = [64, 161];

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(seen) = Seen::xids(scene, |x| CODES.contains(&x.code)) else { return Outcome::Clear };
    let draft = seen
        .draft(&RULE, "row-remap-failure", format!("{} could not remap a bad row of its memory", seen.gpu()))
        .advise_command(
            Impact::Harmless,
            "read the state of row remapping: a failure that has occurred is a reason for a return",
            "nvidia-smi -q -d ROW_REMAPPER,ECC",
        )
        .advise(Impact::Disruptive, "take the node out and have the GPU replaced");
    outcome([draft])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;
    use crate::staging_kernel::BEGAN_S;

    #[test]
    fn the_kernel_says_so() {
        Stage::new().xid("0000:52:00", 64, 0, "Row Remapper: failed").expect(&RULE, &["row-remap-failure"]);
        Stage::new().xid("0000:52:00", 161, 0, "x").expect(&RULE, &["row-remap-failure"]);
        Stage::new()
            .two_ranks()
            .xid("0000:1a:00", 64, 0, "Row Remapper: failed")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["row-remap-failure 0"]);
    }

    #[test]
    fn a_row_that_was_remapped() {
        Stage::new().xid("0000:52:00", 63, 0, "Row Remapper: New row marked for remapping").silent(&RULE);
    }

    #[test]
    fn a_failure_of_an_earlier_day() {
        Stage::new().two_ranks().xid("0000:1a:00", 64, 0, "x").at_s(BEGAN_S - 86_400).silent(&RULE);
    }
}
