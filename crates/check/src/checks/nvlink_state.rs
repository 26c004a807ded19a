//! # What it checks
//!
//! How many NVLinks are up, compared between GPUs.
//!
//! # What fails
//!
//! A GPU with fewer links up than others of its kind on this node. Links that are down on all of them are down by
//! design (12 of 18 on some boards), and cards in PCIe slots have bridges or no links.
//!
//! # What to do
//!
//! Find the link in the kernel log (Xid 74, 144 to 150); take the node out; the links train again at a reset of all
//! GPUs.
//!
//! # References
//!
//! NVML API, nvmlDeviceGetNvLinkState; NVIDIA Xid Catalog, 74.

use ringleader_node::Gpu;

use crate::answer::{CheckAnswer, CheckState, Impact, ValueKind};
use crate::gpus::{count, item, of, peers};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "nvlink-state",
    title: "NVLinks up",
    area: Area::NvLink,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("nvlink_state.rs"),
    run,
};

fn n_up(gpu: &Gpu) -> usize {
    gpu.links.iter().filter(|link| link.active == Some(true)).count()
}

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let most = gpus.gpus.iter().map(n_up).max().unwrap_or(0);
    if gpus.gpus.iter().all(|gpu| gpu.links.is_empty()) {
        return CheckAnswer::skipped("no GPU has NVLinks");
    }
    let mut items = Vec::new();
    for gpu in &gpus.gpus {
        let up = n_up(gpu);
        let peers = peers(gpu, gpus).map(n_up).max().unwrap_or(up);
        // PCIe cards are bridged in pairs, or not at all.
        let is_card = gpu.name.contains("PCI") || gpu.name.contains("NVL");
        if up >= peers || (up == 0 && is_card) {
            continue;
        }
        let down: Vec<String> = gpu
            .links
            .iter()
            .filter(|link| link.active == Some(false))
            .map(|link| link.number.to_string())
            .collect();
        let which = if down.is_empty() { String::new() } else { format!("; down: {}", down.join(", ")) };
        let text = format!("{up} NVLinks are up, its peers have {peers}{which}");
        items.push(item(
            gpu,
            CheckState::Fail,
            text,
            format!("nvmlDeviceGetNvLinkState: {up} of {} active", gpu.links.len()),
        ));
    }
    let ok = match most {
        0 => "no NVLink is up on any GPU: cards without bridges, or a fabric that is not set up".to_owned(),
        most => format!("{} up on each of {}", count(most, "link"), count(gpus.gpus.len(), "GPU")),
    };
    let mut answer = CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "find the link that failed and its counters",
            Some(
                "nvidia-smi nvlink -s; nvidia-smi nvlink -e; dmesg -T | grep -iE 'xid|nvlink|sxid'"
                    .to_owned(),
            ),
        )
        .advise(
            Impact::Destructive,
            "take the node out; reset all its GPUs together, and replace the board if the link stays down",
            None,
        );
    for gpu in &gpus.gpus {
        answer = answer.value(format!("gpu.{}.links-up", gpu.index), n_up(gpu), ValueKind::Same);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, is_sound, node, verdict};

    fn down(n: usize) -> impl Fn(&mut Gpu) {
        move |gpu| gpu.links.iter_mut().take(n).for_each(|link| link.active = Some(false))
    }

    #[test]
    fn a_link_down() {
        is_sound(&CHECK);
        let one = node(8, |n, gpu| {
            if n == 4 {
                down(1)(gpu);
            }
        });
        assert_eq!(verdict(&CHECK, &one), (CheckState::Fail, vec!["GPU 4 (0000:1f:00.0)".to_owned()]));
        assert!(answer(&CHECK, &one).summary.contains("17 NVLinks are up, its peers have 18; down: 0"));
        let none = node(8, |n, gpu| {
            if n == 4 {
                down(18)(gpu);
            }
        });
        assert_eq!(verdict(&CHECK, &none).0, CheckState::Fail);
    }

    #[test]
    fn by_design() {
        let alike = node(8, |_, gpu| down(6)(gpu));
        assert_eq!(verdict(&CHECK, &alike).0, CheckState::Ok);
        let cards = node(4, |n, gpu| {
            gpu.name = "NVIDIA H100 NVL".to_owned();
            if n > 1 {
                down(18)(gpu);
            }
        });
        assert_eq!(verdict(&CHECK, &cards).0, CheckState::Ok);
        let without = node(4, |_, gpu| gpu.links.clear());
        assert_eq!(verdict(&CHECK, &without).0, CheckState::Skipped);
    }
}
