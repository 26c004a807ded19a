//! # What it checks
//!
//! Errors of the host's memory since boot, as counted by its controllers (EDAC).
//!
//! # What fails
//!
//! Uncorrected errors. Corrected errors are normal with ECC; their counts are shown and compared with a baseline.
//!
//! # What to do
//!
//! Take the node out; the kernel log names the module.
//!
//! # References
//!
//! Linux, Documentation/admin-guide/RAS.

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::count;
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "host-memory-errors",
    title: "errors of the host's memory",
    area: Area::Host,
    reads: &[Probe::Pci],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("host_memory_errors.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let pci = match view.node.pci.seen() {
        Ok(pci) => pci,
        Err(missing) => return missing.into(),
    };
    let controllers = &pci.memory_controllers;
    if controllers.is_empty() {
        return CheckAnswer::skipped(
            "no memory controller counts errors here (no EDAC driver, or a virtual machine)",
        );
    }
    let items = controllers
        .iter()
        .filter(|(_, _, uncorrected)| *uncorrected > 0)
        .map(|(name, corrected, uncorrected)| Item {
            subject: format!("memory controller {name}"),
            verdict: CheckState::Fail,
            text: format!("{uncorrected} errors of the host's memory were not corrected since boot"),
            evidence: format!(
                "/sys/devices/system/edac/mc/{name}: ue_count {uncorrected}, ce_count {corrected}"
            ),
        })
        .collect();
    let corrected: u64 = controllers.iter().map(|(_, corrected, _)| corrected).sum();
    let uncorrected: u64 = controllers.iter().map(|(_, _, uncorrected)| uncorrected).sum();
    let ok =
        format!("no uncorrected error on {}, {corrected} corrected", count(controllers.len(), "controller"));
    CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "find the memory module",
            Some("grep -H . /sys/devices/system/edac/mc/mc*/dimm*/dimm_ue_count; dmesg -T | grep -iE 'edac|mce'".to_owned()),
        )
        .advise(Impact::Disruptive, "take the node out and have the module replaced", None)
        .value("host-memory.corrected", corrected, ValueKind::Counter)
        .value("host-memory.uncorrected", uncorrected, ValueKind::Counter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{healthy, pci, verdict};

    #[test]
    fn controllers() {
        let mut node = healthy();
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Skipped);
        pci(&mut node).memory_controllers = vec![("mc0".to_owned(), 9_000, 0), ("mc1".to_owned(), 0, 0)];
        assert_eq!(verdict(&CHECK, &node).0, CheckState::Ok);
        pci(&mut node).memory_controllers[1].2 = 1;
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["memory controller mc1".to_owned()]));
    }
}
