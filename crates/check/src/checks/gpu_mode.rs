//! # What it checks
//!
//! Modes that prevent a job from using a GPU as expected: compute mode, MIG, persistence.
//!
//! # What fails
//!
//! Compute mode `prohibited`: no program may use the GPU. It warns about a compute mode or MIG mode that
//! differs from the peers', about MIG on all GPUs if ranks run there (NCCL does not connect MIG instances of
//! one GPU), and about disabled persistence: the driver then initialises the GPU for each program, which
//! takes seconds.
//!
//! # What to do
//!
//! Set the mode of the peers.
//!
//! # References
//!
//! NVML API, nvmlDeviceGetComputeMode; NVIDIA, MIG user guide; NVIDIA, Driver Persistence.

use std::collections::BTreeMap;

use ringleader_node::Gpu;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::{count, item, of};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-mode",
    title: "GPU modes",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_mode.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let all = &gpus.gpus;
    if all.iter().all(|gpu| gpu.compute_mode.is_none()) {
        return CheckAnswer::skipped("no GPU reports its modes");
    }
    let mut items = Vec::new();
    let mut fixes: Vec<(Impact, String, String)> = Vec::new();
    for gpu in all.iter().filter(|gpu| gpu.compute_mode.as_deref() == Some("prohibited")) {
        let text = "compute mode prohibited: no program may use it".to_owned();
        items.push(item(gpu, CheckState::Fail, text, "nvmlDeviceGetComputeMode: prohibited".to_owned()));
        fixes.push((
            Impact::Disruptive,
            "allow programs to use it again".to_owned(),
            format!("nvidia-smi -i {} -c DEFAULT", gpu.index),
        ));
    }
    let mode = |gpu: &Gpu| gpu.compute_mode.clone().filter(|mode| mode != "prohibited");
    odd(all, mode, "compute mode", &mut items);
    odd(all, |gpu| gpu.mig.map(|mig| if mig { "on" } else { "off" }.to_owned()), "MIG mode", &mut items);
    if all.iter().all(|gpu| gpu.mig == Some(true)) && view.ranks().nth(1).is_some() {
        items.push(Item {
            subject: "all GPUs".to_owned(),
            verdict: CheckState::Warn,
            text: "MIG is on while ranks run: NCCL cannot join two instances of one GPU".to_owned(),
            evidence: "nvmlDeviceGetMigMode: enabled".to_owned(),
        });
    }
    let off: Vec<&Gpu> = all.iter().filter(|gpu| gpu.persistence == Some(false)).collect();
    if !off.is_empty() {
        let subject = if off.len() == all.len() { "all GPUs".to_owned() } else { list(&off) };
        items.push(Item {
            subject,
            verdict: CheckState::Warn,
            text:
                "persistence mode is off: the driver initialises a GPU again for each program, which takes seconds"
                    .to_owned(),
            evidence: "nvmlDeviceGetPersistenceMode: disabled".to_owned(),
        });
        let text = "keep the GPUs initialised: start the persistence daemon, or set the mode".to_owned();
        fixes.push((
            Impact::Harmless,
            text,
            "systemctl enable --now nvidia-persistenced || nvidia-smi -pm 1".to_owned(),
        ));
    }
    let common = all.first().and_then(|gpu| gpu.compute_mode.clone()).unwrap_or_default();
    let mig = all.first().and_then(|gpu| gpu.mig).unwrap_or(false);
    let ok =
        format!("{}: compute mode {common}, MIG {}", count(all.len(), "GPU"), if mig { "on" } else { "off" });
    let mut answer = CheckAnswer::from_items(ok, items)
        .value("gpu.compute-mode", common, ValueKind::Same)
        .value("gpu.mig", mig, ValueKind::Same);
    for (impact, text, command) in fixes {
        answer = answer.advise(impact, text, Some(command));
    }
    answer
}

/// GPUs whose mode differs from that of most.
fn odd(all: &[Gpu], mode: impl Fn(&Gpu) -> Option<String>, what: &str, items: &mut Vec<Item>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for mode in all.iter().filter_map(&mode) {
        *counts.entry(mode).or_default() += 1;
    }
    let Some((usual, _)) = counts.iter().max_by_key(|(_, n)| **n) else { return };
    for gpu in all {
        if let Some(own) = mode(gpu).filter(|own| own != usual) {
            items.push(item(
                gpu,
                CheckState::Warn,
                format!("{what} {own}, its peers have {usual}"),
                format!("NVML, {what}: {own}"),
            ));
        }
    }
}

fn list(gpus: &[&Gpu]) -> String {
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    format!("GPU {}", indices.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, is_sound, node, verdict};

    #[test]
    fn modes() {
        is_sound(&CHECK);
        let of = |n, mode: &'static str| {
            node(4, move |i, gpu| {
                if i < n {
                    gpu.compute_mode = Some(mode.to_owned());
                }
            })
        };
        assert_eq!(
            verdict(&CHECK, &of(1, "prohibited")),
            (CheckState::Fail, vec!["GPU 0 (0000:1b:00.0)".to_owned()])
        );
        assert_eq!(
            verdict(&CHECK, &of(1, "exclusive-process")),
            (CheckState::Warn, vec!["GPU 0 (0000:1b:00.0)".to_owned()])
        );
        // A deliberate setting.
        assert_eq!(verdict(&CHECK, &of(4, "exclusive-process")).0, CheckState::Ok);
    }

    #[test]
    fn instances_of_one_gpu() {
        let one = node(4, |n, gpu| gpu.mig = Some(n == 2));
        assert_eq!(verdict(&CHECK, &one), (CheckState::Warn, vec!["GPU 2 (0000:1d:00.0)".to_owned()]));
        let all = node(4, |_, gpu| gpu.mig = Some(true));
        assert_eq!(verdict(&CHECK, &all).0, CheckState::Ok);
    }

    #[test]
    fn persistence_is_worth_a_word_and_no_more() {
        let off = answer(&CHECK, &node(4, |_, gpu| gpu.persistence = Some(false)));
        assert_eq!((off.verdict, off.items.len()), (CheckState::Warn, 1));
        assert_eq!(off.fixes[0].impact, Impact::Harmless);
    }
}
