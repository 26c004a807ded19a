//! # What it checks
//!
//! What the kernel log says about the hardware besides Xids: machine checks, memory, PCIe, the IOMMU, a driver that
//! does not start, hung tasks and processors.
//!
//! # What fails
//!
//! Since the job began, or since boot if no job is known: an uncorrected machine check or memory error, a fatal PCIe
//! error, a GPU that is lost or does not start, a driver library of another version, a kernel panic. It warns about
//! hung tasks, processors that hang or overheat, IOMMU faults and slots that lost their link; without a known job only
//! those of the last hour. Events from before the job are only shown.
//!
//! # What to do
//!
//! Keep the log, take the node out, and examine the part that it names.
//!
//! # References
//!
//! Linux, Documentation/admin-guide/RAS, Documentation/PCI/pcieaer-howto.rst, kernel/hung_task.c.

use std::collections::BTreeMap;

use ringleader_model::{KernelEventKind as Kind, PcieSeverity};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::{KernelLine, NodeView};
use crate::xids::HOUR_NS;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "kernel-errors",
    title: "errors in the kernel log",
    area: Area::Host,
    reads: &[Probe::KernelLog, Probe::System, Probe::Jobs],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("kernel_errors.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let lines = match &view.kernel {
        Ok(lines) => lines,
        Err(missing) => return missing.clone().into(),
    };
    let knows_job = view.options.since_ns.is_some() || view.ranks().next().is_some();
    let mut groups: BTreeMap<(&'static str, String), Vec<&KernelLine<'_>>> = BTreeMap::new();
    let mut verdicts: BTreeMap<&'static str, CheckState> = BTreeMap::new();
    for line in lines {
        let Some((verdict, what)) = weigh(&line.event.kind) else { continue };
        verdicts.insert(what, verdict);
        let device = line.event.device.map_or("this node".to_owned(), |device| format!("device {device}"));
        groups.entry((what, device)).or_default().push(line);
    }
    let items: Vec<Item> = groups
        .iter()
        .map(|((what, subject), lines)| {
            let weight = verdicts.get(what).copied().unwrap_or_default();
            // Without a known job, transient events are over after a while; broken parts are not.
            let is_over = |line: &KernelLine<'_>| {
                !knows_job && weight < CheckState::Fail && view.node.at_ns - line.at_ns > HOUR_NS
            };
            let last = lines.iter().rev().find(|line| line.is_recent && !is_over(line));
            let times = if lines.len() > 1 { format!(", {} times", lines.len()) } else { String::new() };
            let text = last.or(lines.last()).map_or("", |line| line.text);
            Item {
                subject: subject.clone(),
                verdict: if last.is_some() { weight } else { CheckState::Ok },
                text: format!("{what}{times}"),
                evidence: format!("kernel log: {}", text.chars().take(200).collect::<String>()),
            }
        })
        .collect();
    let is_cut = view.node.kernel_log.get().is_some_and(|log| log.is_cut);
    let ok = if is_cut {
        "none in what is left of the log (its beginning is overwritten)"
    } else {
        "none since boot"
    };
    let ok = if items.is_empty() { ok } else { "none that matters now" };
    let n: usize = groups.values().map(Vec::len).sum();
    CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "read them with the lines around them, and keep them: the kernel overwrites its ring",
            Some("dmesg -T --level=emerg,alert,crit,err,warn > kernel-log.txt".to_owned()),
        )
        .advise(Impact::Disruptive, "take the node out and have the part that the line names examined", None)
        .value("kernel-errors", n, ValueKind::Counter)
}

/// Severity and wording of an event; None for what other checks judge, and for what is not an error.
fn weigh(kind: &Kind) -> Option<(CheckState, &'static str)> {
    Some(match kind {
        Kind::GpuLost => (CheckState::Fail, "a GPU has fallen off the bus"),
        Kind::GpuInitFailed { .. } => (CheckState::Fail, "the driver could not start a GPU"),
        Kind::GspSilent => (CheckState::Fail, "a GPU's system processor (GSP) does not answer"),
        Kind::DriverMismatch { .. } => {
            (CheckState::Fail, "the driver's library and module have different versions")
        }
        Kind::MachineCheck { uncorrected: true } => {
            (CheckState::Fail, "a machine check that was not corrected")
        }
        Kind::MemoryErrors { uncorrected: true, .. } => {
            (CheckState::Fail, "errors of the host's memory that were not corrected")
        }
        Kind::MemoryFailure { .. } => (CheckState::Fail, "a page of the host's memory is bad"),
        Kind::PcieError(error) if error.severity == PcieSeverity::Fatal => {
            (CheckState::Fail, "a fatal PCIe error")
        }
        Kind::PcieError(error) if error.unrecovered => (CheckState::Fail, "a PCIe error without recovery"),
        Kind::PcieError(error) if error.severity == PcieSeverity::NonFatal => {
            (CheckState::Warn, "a PCIe error that was not corrected")
        }
        Kind::Panic => (CheckState::Fail, "the kernel itself failed"),
        Kind::PcieLinkDown => (CheckState::Warn, "a PCIe slot lost its link"),
        Kind::IommuFault => (CheckState::Warn, "the IOMMU stopped an access"),
        Kind::HungTask { .. } => (CheckState::Warn, "a task has waited in the kernel for minutes"),
        Kind::Lockup { .. } => (CheckState::Warn, "a processor made no progress"),
        Kind::Throttled => (CheckState::Warn, "processors were throttled for heat"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{healthy, is_sound, kernel};
    use crate::view::Expectations;

    fn after(since_s: Option<i64>, line: &str) -> CheckAnswer {
        let mut node = healthy();
        kernel(&mut node, &[(500, line)]);
        let options =
            Expectations { since_ns: since_s.map(|s| s * 1_000_000_000), ..Expectations::default() };
        (CHECK.run)(&NodeView::new(&node, &options))
    }

    #[test]
    fn hardware_fails_and_waiting_warns() {
        is_sound(&CHECK);
        for (line, verdict) in [
            (
                "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0 grain:32)",
                CheckState::Fail,
            ),
            ("NVRM: RmInitAdapter failed! (0x26:0x56:1463)", CheckState::Fail),
            (
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:1b:00.0",
                CheckState::Fail,
            ),
            ("INFO: task python:4711 blocked for more than 120 seconds.", CheckState::Warn),
            ("nvidia 0000:1b:00.0: enabling device (0000 -> 0003)", CheckState::Ok),
        ] {
            assert_eq!(after(None, line).verdict, verdict, "{line}");
        }
    }

    #[test]
    fn what_came_before_the_job_is_shown() {
        let line = "INFO: task python:4711 blocked for more than 120 seconds.";
        // Boot was at 1,000 s since 1970.
        let before = after(Some(1_600), line);
        assert_eq!((before.verdict, before.items.len()), (CheckState::Ok, 1));
        assert_eq!(after(Some(1_400), line).verdict, CheckState::Warn);
    }
}
