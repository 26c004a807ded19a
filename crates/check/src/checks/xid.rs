//! # What it checks
//!
//! Xids and SXids in the kernel log that end a job but leave the node in service: the program's own faults (13, 31,
//! 43), contained memory errors (94), and their consequences (45).
//!
//! # What fails
//!
//! One that ends a job, since the job began. Without a known job, one of the last hour warns. Earlier ones, and those
//! that end nothing, are shown. None of them is a reason to drain the node.
//!
//! # What to do
//!
//! The action in the table of Xids; for an illegal access find the kernel that made it.
//!
//! # References
//!
//! NVIDIA, Xid Catalog; nverror.h of NVIDIA/open-gpu-kernel-modules.

use ringleader_knowledge::remedy::Kills;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::xids::{DeviceErrors, When, cases};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "xid",
    title: "Xids that end a job",
    area: Area::Gpu,
    reads: &[Probe::KernelLog, Probe::System, Probe::Gpus, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("xid.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let lines = match &view.kernel {
        Ok(lines) => lines,
        Err(missing) => return missing.clone().into(),
    };
    let all: Vec<DeviceErrors<'_>> = cases(view, lines);
    let own: Vec<&DeviceErrors<'_>> = all.iter().filter(|case| !case.excludes).collect();
    let items: Vec<Item> = own
        .iter()
        .map(|case| {
            let verdict = match (case.kills, case.when(view)) {
                (Kills::No | Kills::Symptom, _) | (_, When::Earlier) => CheckState::Ok,
                (_, When::InJob) => CheckState::Fail,
                (_, When::LastHour) => CheckState::Warn,
            };
            Item { subject: case.subject.clone(), verdict, text: case.text(), evidence: case.evidence() }
        })
        .collect();
    let is_cut = view.node.kernel_log.get().is_some_and(|log| log.is_cut);
    let reach =
        if is_cut { "in what is left of the log (its beginning is overwritten)" } else { "since boot" };
    let ok = match own.len() {
        0 => format!("none {reach}"),
        n => format!("{n} {reach}, none that ends a job now"),
    };
    let n_lines = own.iter().map(|case| case.lines.len()).sum::<usize>();
    let bad = items.iter().any(|item| item.verdict > CheckState::Ok);
    let action = own.iter().find(|case| case.when(view) != When::Earlier).and_then(|case| case.action);
    let mut answer = CheckAnswer::from_items(ok, items).value("xids", n_lines, ValueKind::Counter);
    if bad && let Some(action) = action {
        answer = answer.advise(Impact::Disruptive, action.sentence(), None);
    }
    answer.advise(
        Impact::Harmless,
        "check which process was hit, and what is known about the code",
        Some("dmesg -T | grep -iE 'xid'".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Jobs, Part, Process};

    use super::*;
    use crate::staging_gpus::{healthy, is_sound, kernel, verdict};

    const ILLEGAL: &str = "NVRM: Xid (PCI:0000:1c:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_3 faulted @ 0x7f00_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ";

    fn with(second: u64, job_began_s: Option<i64>) -> (CheckState, Vec<String>) {
        // Boot was at 1,000 s since 1970, now is 2,000 s.
        let mut node = healthy();
        kernel(&mut node, &[(second, ILLEGAL)]);
        if let Some(began) = job_began_s {
            let rank = Process {
                pid: 4711,
                started_ns: began * 1_000_000_000,
                environment: Some([("RANK".to_owned(), "0".to_owned())].into()),
                ..Process::default()
            };
            node.jobs = Part::of(Jobs { processes: vec![rank], ..Jobs::default() });
        }
        verdict(&CHECK, &node)
    }

    #[test]
    fn an_illegal_access() {
        is_sound(&CHECK);
        let named = vec!["GPU 1 (0000:1c:00.0)".to_owned()];
        assert_eq!(with(900, Some(1_500)), (CheckState::Fail, named.clone()));
        assert_eq!(with(900, None), (CheckState::Warn, named));
        // From an earlier job.
        assert_eq!(with(100, Some(1_500)), (CheckState::Ok, Vec::new()));
    }

    #[test]
    fn what_ends_nothing() {
        let mut node = healthy();
        kernel(
            &mut node,
            &[
                (
                    900,
                    "NVRM: Xid (PCI:0000:1c:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x0000000000000001) marked for remapping, reset gpu to activate.",
                ),
                (901, "NVRM: Xid (PCI:0000:1c:00): 45, pid=4711, name=python, Ch 00000008"),
            ],
        );
        assert_eq!(verdict(&CHECK, &node), (CheckState::Ok, Vec::new()));
    }

    #[test]
    fn what_takes_the_node_out_is_another_check() {
        let mut node = healthy();
        kernel(
            &mut node,
            &[(900, "NVRM: Xid (PCI:0000:1c:00): 79, pid=1, name=x, GPU has fallen off the bus.")],
        );
        assert_eq!(verdict(&CHECK, &node), (CheckState::Ok, Vec::new()));
    }
}
