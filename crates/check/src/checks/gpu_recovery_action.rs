//! # What it checks
//!
//! What the driver requires to be done to a GPU before new work may run on it.
//!
//! # What fails
//!
//! Any action but `none`: reset, reboot, drain of peer-to-peer work, drain and reset, recovery of the IMEX
//! domain.
//!
//! # What to do
//!
//! The action that the driver requests. A reset ends everything on the GPU, on a board with NVSwitch on all its
//! GPUs.
//!
//! # References
//!
//! NVML API, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; NVIDIA Xid Catalog, 154.

use ringleader_knowledge::xid::{RecoveryAction, recovery_action};

use crate::answer::{CheckAnswer, CheckState, Impact};
use crate::gpus::{count, item, of};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-recovery-action",
    title: "recovery actions that the driver requests",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_recovery_action.rs"),
    run,
};

/// Name of an action in the snapshot, and the driver's number.
const NAMES: [(&str, u8); 6] = [
    ("none", 0),
    ("reset", 1),
    ("reboot", 2),
    ("drain-p2p", 3),
    ("drain-and-reset", 4),
    ("recover-imex-domain", 5),
];

fn known(action: &str) -> Option<&'static RecoveryAction> {
    let number = NAMES.iter().find(|(name, _)| *name == action).map(|(_, number)| *number);
    recovery_action(number.or_else(|| action.parse().ok())?)
}

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let mut items = Vec::new();
    let mut n_telling = 0;
    for (gpu, action) in gpus.gpus.iter().filter_map(|gpu| Some((gpu, gpu.recovery_action.as_deref()?))) {
        n_telling += 1;
        if action == "none" {
            continue;
        }
        let (verdict, text) = match known(action) {
            Some(row) if row.blocks_new_jobs => (CheckState::Fail, format!("{}: {}", row.name, row.meaning)),
            Some(row) => (CheckState::Warn, format!("{}: {}", row.name, row.meaning)),
            None => {
                (CheckState::Warn, format!("the driver requests action {action}, which is not known here"))
            }
        };
        items.push(item(gpu, verdict, text, format!("NVML, GPU recovery action: {action}")));
    }
    if n_telling == 0 {
        return CheckAnswer::skipped(
            "the driver does not report it (older than 570, or the GPU does not support it)",
        );
    }
    let reboot = gpus.gpus.iter().any(|gpu| gpu.recovery_action.as_deref() == Some("reboot"));
    let answer = CheckAnswer::from_items(format!("none requested on {}", count(n_telling, "GPU")), items)
        .advise(
            Impact::Harmless,
            "check why",
            Some("nvidia-smi -q | grep -i 'recovery action'; dmesg -T | grep -i xid".to_owned()),
        );
    if reboot {
        answer.advise(
            Impact::Destructive,
            "drain the node and reboot it",
            Some("systemctl reboot".to_owned()),
        )
    } else {
        answer.advise(
            Impact::Destructive,
            "drain the node; once no process uses the GPU, reset it",
            Some("nvidia-smi --gpu-reset -i <index>".to_owned()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, is_sound, node};

    #[test]
    fn what_the_driver_says() {
        is_sound(&CHECK);
        for (action, verdict) in
            [("reset", CheckState::Fail), ("drain-p2p", CheckState::Fail), ("77", CheckState::Warn)]
        {
            let node = node(4, |n, gpu| {
                if n == 1 {
                    gpu.recovery_action = Some(action.to_owned());
                }
            });
            let said = answer(&CHECK, &node);
            assert_eq!((said.verdict, said.items.len()), (verdict, 1), "{action}");
            assert_eq!(said.items[0].subject, "GPU 1 (0000:1c:00.0)");
        }
        let silent = node(4, |_, gpu| gpu.recovery_action = None);
        assert_eq!(answer(&CHECK, &silent).verdict, CheckState::Skipped);
    }
}
