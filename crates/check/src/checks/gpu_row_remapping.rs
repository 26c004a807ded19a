//! # What it checks
//!
//! Whether the GPUs can still replace bad rows of their memory.
//!
//! # What fails
//!
//! A row that could not be replaced; or one that waits for replacement while a bank has no spare row left. It warns
//! about one that waits for the next reset: the job may end first. Replaced rows are no fault: each bank has eight
//! spare ones.
//!
//! # What to do
//!
//! Pending: reset the GPU when nothing uses it. Failed: replace the GPU; NVIDIA accepts this as a reason for a return.
//!
//! # References
//!
//! NVIDIA, GPU Memory Error Management, row remapping; NVML API, nvmlDeviceGetRemappedRows.

use ringleader_knowledge::remedy;
use ringleader_node::Rows;

use crate::answer::{CheckAnswer, CheckState, Impact, ValueKind};
use crate::gpus::{count, item, of};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-row-remapping",
    title: "spare rows of GPU memory",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_row_remapping.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let mut items = Vec::new();
    let (mut n_telling, mut n_replaced) = (0, 0);
    for (gpu, rows) in gpus.gpus.iter().filter_map(|gpu| Some((gpu, gpu.rows?))) {
        n_telling += 1;
        n_replaced += rows.corrected + rows.uncorrected;
        let exhausted = rows.banks_exhausted.unwrap_or(0);
        let (verdict, text) = match rows {
            Rows { failed: true, .. } => {
                (CheckState::Fail, "a bad row of its memory could not be replaced".to_owned())
            }
            Rows { pending: true, .. } if exhausted > 0 => {
                let banks = count(exhausted as usize, "bank");
                (
                    CheckState::Fail,
                    format!(
                        "a bad row waits for replacement, but {banks} of its memory have no spare row left"
                    ),
                )
            }
            Rows { pending: true, .. } => {
                (CheckState::Warn, "a bad row of its memory is replaced at the next reset".to_owned())
            }
            _ if exhausted > 0 => {
                let banks = count(exhausted as usize, "bank");
                (CheckState::Warn, format!("{banks} of its memory have no spare row left"))
            }
            _ => continue,
        };
        let evidence = format!(
            "nvmlDeviceGetRemappedRows: corrected {}, uncorrected {}, pending {}, failed {}; banks exhausted {exhausted}",
            rows.corrected, rows.uncorrected, rows.pending, rows.failed
        );
        items.push(item(gpu, verdict, text, evidence));
    }
    if n_telling == 0 {
        return CheckAnswer::skipped("no GPU here supports row remapping");
    }
    let pending = items.iter().any(|item| item.verdict == CheckState::Warn);
    let ok = format!("no row is pending or failed on {}, {n_replaced} replaced", count(n_telling, "GPU"));
    let answer =
        CheckAnswer::from_items(ok, items).value("gpu.rows-replaced", n_replaced, ValueKind::Counter);
    let answer = answer.advise(
        Impact::Harmless,
        "read the state of row remapping",
        Some(remedy::SHOW_MEMORY_ERRORS.to_owned()),
    );
    if pending {
        return answer.advise(
            Impact::Destructive,
            "once no process uses the GPU, reset it; on a board with NVSwitch all its GPUs together",
            Some("nvidia-smi --gpu-reset -i <index>".to_owned()),
        );
    }
    answer.advise(Impact::Disruptive, "take the node out of service and have the GPU replaced", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{is_sound, node, verdict};

    fn third(rows: Rows) -> (CheckState, Vec<String>) {
        verdict(
            &CHECK,
            &node(4, |n, gpu| {
                if n == 2 {
                    gpu.rows = Some(rows);
                }
            }),
        )
    }

    #[test]
    fn rows() {
        is_sound(&CHECK);
        let named = vec!["GPU 2 (0000:1d:00.0)".to_owned()];
        assert_eq!(third(Rows { failed: true, ..Rows::default() }), (CheckState::Fail, named.clone()));
        assert_eq!(third(Rows { pending: true, ..Rows::default() }), (CheckState::Warn, named.clone()));
        let full = Rows { pending: true, banks_exhausted: Some(1), ..Rows::default() };
        assert_eq!(third(full), (CheckState::Fail, named));
        // Replaced successfully.
        assert_eq!(
            third(Rows { uncorrected: 3, corrected: 7, ..Rows::default() }),
            (CheckState::Ok, Vec::new())
        );
    }
}
