//! # What it checks
//!
//! Memory errors of the GPUs, on chip and in device memory, since the driver was loaded and over their lifetimes.
//!
//! # What fails
//!
//! Uncorrected errors since the driver was loaded, unless their rows have been replaced since; more errors of on-chip
//! memory than NVIDIA accepts. It warns if ECC is off on one GPU and on at its peers. Corrected errors are normal with
//! ECC, and uncorrected errors from before the driver was loaded are over: both are shown and are no fault at any
//! count.
//!
//! # What to do
//!
//! End the job on that GPU, read the kernel log for Xid 48, 63, 64, 94 and 95, reset the GPU, and take the node out of
//! service if the errors recur.
//!
//! # References
//!
//! NVIDIA, GPU Memory Error Management; NVML API, nvmlDeviceGetTotalEccErrors, nvmlDeviceGetSramEccErrorStatus.

use ringleader_node::{Ecc, Gpu};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, item, of, peers};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-ecc",
    title: "GPU memory errors",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_ecc.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let mut items = Vec::new();
    let mut n_counting = 0;
    for gpu in &gpus.gpus {
        n_counting += usize::from(uncorrected(&gpu.volatile).is_some());
        if gpu.ecc == Some(false) && peers(gpu, gpus).any(|peer| peer.ecc == Some(true)) {
            let text = "ECC is off here but on at its peers: its memory errors go unnoticed".to_owned();
            items.push(item(gpu, CheckState::Warn, text, "nvmlDeviceGetEccMode: disabled".to_owned()));
        }
        items.extend(errors(gpu));
    }
    if n_counting == 0 && items.is_empty() {
        return CheckAnswer::skipped("no GPU counts memory errors (ECC is off or not supported)");
    }
    CheckAnswer::from_items(format!("no uncorrected errors on {}", count(n_counting, "GPU")), items)
        .advise(
            Impact::Harmless,
            "check where the errors are",
            Some("nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg -T | grep -i xid".to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "end the job on that GPU and take the node out of service until the GPU has been reset and tested",
            None,
        )
        .value("gpu.ecc-counting", n_counting, ValueKind::Same)
}

fn errors(gpu: &Gpu) -> Option<Item> {
    let volatile = uncorrected(&gpu.volatile).unwrap_or(0);
    let aggregate = uncorrected(&gpu.aggregate).unwrap_or(0);
    let (verdict, text) = if gpu.sram_threshold_exceeded == Some(true) {
        (
            CheckState::Fail,
            "more uncorrected errors of its on-chip memory than NVIDIA accepts: replace it".to_owned(),
        )
    } else if volatile > 0 && is_replaced(gpu) {
        let text = format!(
            "{volatile} uncorrected memory errors since the driver was loaded; the rows were remapped"
        );
        (CheckState::Warn, text)
    } else if volatile > 0 {
        (CheckState::Fail, format!("{volatile} uncorrected memory errors since the driver was loaded"))
    } else if aggregate > 0 {
        (
            CheckState::Ok,
            format!("{aggregate} uncorrected memory errors in its life, none since the driver was loaded"),
        )
    } else {
        return None;
    };
    let tell = |ecc: &Ecc| {
        let n = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        format!(
            "DRAM {} SRAM {} in all {}",
            n(ecc.dram_uncorrected),
            n(ecc.sram_uncorrected),
            n(ecc.total_uncorrected)
        )
    };
    let evidence =
        format!("NVML, uncorrected: volatile {}; aggregate {}", tell(&gpu.volatile), tell(&gpu.aggregate));
    Some(item(gpu, verdict, text, evidence))
}

/// The total, or the sum of its parts if that is larger.
fn uncorrected(ecc: &Ecc) -> Option<u64> {
    let parts = [ecc.sram_uncorrected, ecc.dram_uncorrected].into_iter().flatten();
    ecc.total_uncorrected.max(parts.reduce(u64::saturating_add))
}

/// Whether the errors were in rows of device memory that have been replaced.
fn is_replaced(gpu: &Gpu) -> bool {
    gpu.volatile.sram_uncorrected == Some(0)
        && gpu.rows.is_some_and(|rows| rows.uncorrected > 0 && !rows.pending && !rows.failed)
}

#[cfg(test)]
mod tests {
    use ringleader_node::Rows;

    use super::*;
    use crate::staging_gpus::{is_sound, node, verdict};

    fn two(_: u32, gpu: &mut Gpu) {
        if gpu.index == 3 {
            gpu.volatile.dram_uncorrected = Some(2);
            gpu.volatile.total_uncorrected = Some(2);
        }
    }

    #[test]
    fn clean() {
        is_sound(&CHECK);
    }

    #[test]
    fn errors_since_the_driver_was_loaded() {
        let named = vec!["GPU 3 (0000:1e:00.0)".to_owned()];
        assert_eq!(verdict(&CHECK, &node(8, two)), (CheckState::Fail, named.clone()));
        let replaced = node(8, |n, gpu| {
            two(n, gpu);
            gpu.rows = Some(Rows { uncorrected: 1, ..Rows::default() });
        });
        assert_eq!(verdict(&CHECK, &replaced), (CheckState::Warn, named.clone()));
        let pending = node(8, |n, gpu| {
            two(n, gpu);
            gpu.rows = Some(Rows { uncorrected: 1, pending: true, ..Rows::default() });
        });
        assert_eq!(verdict(&CHECK, &pending), (CheckState::Fail, named));
    }

    #[test]
    fn what_is_no_trouble() {
        let old = node(8, |_, gpu| {
            gpu.aggregate.total_uncorrected = Some(4);
            gpu.volatile.total_corrected = Some(100_000);
        });
        assert_eq!(verdict(&CHECK, &old), (CheckState::Ok, Vec::new()));
    }

    #[test]
    fn on_chip_and_off() {
        let worn = node(8, |n, gpu| gpu.sram_threshold_exceeded = Some(n == 0));
        assert_eq!(verdict(&CHECK, &worn), (CheckState::Fail, vec!["GPU 0 (0000:1b:00.0)".to_owned()]));
        let off = node(8, |n, gpu| gpu.ecc = Some(n != 1));
        assert_eq!(verdict(&CHECK, &off), (CheckState::Warn, vec!["GPU 1 (0000:1c:00.0)".to_owned()]));
    }
}
