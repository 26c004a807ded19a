//! # What it checks
//!
//! Memory errors of the GPUs, on chip and in device memory, since the driver was loaded and over their lives.
//!
//! # What fails
//!
//! Uncorrected errors since the driver was loaded. Uncorrected errors of an earlier life only warn: the rows were
//! remapped, or the GPU was reset. Corrected errors are what ECC is for, and are no trouble at any count.
//!
//! # What to do
//!
//! End the job on that GPU, read the kernel log for Xid 48, 63, 64, 94 and 95, reset the GPU, and take the node out of
//! service if it comes back.
//!
//! # References
//!
//! NVIDIA, GPU Memory Error Management; NVML API, nvmlDeviceGetTotalEccErrors.

use crate::answer::{Answer, Impact, Item, ValueKind, Verdict};
use crate::rule::{Area, Check, Probe};
use crate::view::View;

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

fn run(view: &View<'_>) -> Answer {
    let gpus = match view.node.gpus.seen() {
        Ok(gpus) => gpus,
        Err(missing) => return missing.into(),
    };
    let mut items = Vec::new();
    let mut n_counting = 0;
    for gpu in &gpus.gpus {
        let sum = |total: Option<u64>, parts: [Option<u64>; 2]| {
            let parts = parts.iter().flatten().copied().reduce(u64::saturating_add);
            total.max(parts)
        };
        let volatile = sum(
            gpu.volatile.total_uncorrected,
            [gpu.volatile.sram_uncorrected, gpu.volatile.dram_uncorrected],
        );
        let aggregate = sum(
            gpu.aggregate.total_uncorrected,
            [gpu.aggregate.sram_uncorrected, gpu.aggregate.dram_uncorrected],
        );
        n_counting += u32::from(volatile.is_some());
        let (verdict, text) = match (volatile.unwrap_or(0), aggregate.unwrap_or(0)) {
            (0, 0) => continue,
            (0, n) => (
                Verdict::Warn,
                format!("{n} uncorrected memory errors in its life, none since the driver was loaded"),
            ),
            (n, _) => (Verdict::Fail, format!("{n} uncorrected memory errors since the driver was loaded")),
        };
        items.push(Item {
            subject: format!("GPU {} ({})", gpu.index, gpu.pci),
            verdict,
            text,
            evidence: format!("NVML: volatile {:?}, aggregate {:?}", gpu.volatile, gpu.aggregate),
        });
    }
    if n_counting == 0 && items.is_empty() {
        return Answer::skipped("no GPU counts memory errors (ECC is off or not supported)");
    }
    Answer::from_items(format!("no uncorrected errors on {n_counting} GPUs"), items).advise(
        Impact::Disruptive,
        "end the job on that GPU and take the node out of service until the GPU has been reset and tested",
        None,
    ).value("gpu.ecc-counting", n_counting, ValueKind::Same)
}
