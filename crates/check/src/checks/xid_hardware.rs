//! # What it checks
//!
//! Xids and SXids in the kernel log after which a GPU, a switch or the node must not take new work.
//!
//! # What fails
//!
//! One since the job began. Without a known job: one since boot; it only warns if the GPU answers and the driver
//! requests no action, because the GPU was reset since. One from before the job that is over is shown.
//!
//! # What to do
//!
//! The action in the table of Xids: reset, reboot, or take the node out and run field diagnostics.
//!
//! # References
//!
//! NVIDIA, Xid Catalog; Fabric Manager User Guide, appendix of SXids.

use ringleader_knowledge::remedy::Move;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::xids::{DeviceErrors, When, cases};

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "xid-hardware",
    title: "Xids that take the node out",
    area: Area::Gpu,
    reads: &[Probe::KernelLog, Probe::System, Probe::Gpus, Probe::Jobs],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("xid_hardware.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let lines = match &view.kernel {
        Ok(lines) => lines,
        Err(missing) => return missing.clone().into(),
    };
    let knows_job = view.options.since_ns.is_some() || view.ranks().next().is_some();
    let all: Vec<DeviceErrors<'_>> = cases(view, lines).into_iter().filter(|case| case.excludes).collect();
    let verdict = |case: &DeviceErrors<'_>| match (case.when(view), case.is_over) {
        (When::InJob, _) => CheckState::Fail,
        (_, false) if knows_job => CheckState::Warn,
        (_, false) => CheckState::Fail,
        (_, true) if knows_job => CheckState::Ok,
        (_, true) => CheckState::Warn,
    };
    let items: Vec<Item> = all
        .iter()
        .map(|case| {
            let over = if case.is_over { "; the GPU answers again" } else { "" };
            let text = case.text() + over;
            Item { subject: case.subject.clone(), verdict: verdict(case), text, evidence: case.evidence() }
        })
        .collect();
    let is_cut = view.node.kernel_log.get().is_some_and(|log| log.is_cut);
    let ok = if is_cut {
        "none in what is left of the log (its beginning is overwritten)"
    } else {
        "none since boot"
    };
    let n_lines = all.iter().map(|case| case.lines.len()).sum::<usize>();
    let mut answer =
        CheckAnswer::from_items(ok, items).value("xids-hardware", n_lines, ValueKind::Counter).advise(
            Impact::Harmless,
            "check what came first",
            Some("dmesg -T | grep -iE 'xid|nvrm' | head -50".to_owned()),
        );
    let mut said: Vec<Move> = Vec::new();
    for case in all.iter().filter(|case| verdict(case) > CheckState::Ok) {
        let Some(action) = case.action.filter(|action| !said.contains(action)) else { continue };
        said.push(action);
        let impact = match action {
            Move::ResetGpu | Move::RebootNode => Impact::Destructive,
            Move::Ignore | Move::ContactSupport | Move::CheckFabric => Impact::Harmless,
            Move::RestartApp | Move::Diagnose | Move::UpdateDriver => Impact::Disruptive,
        };
        answer = answer.advise(impact, format!("{}: {}", case.code, action.sentence()), None);
    }
    answer
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Jobs, Node, Part, Process};

    use super::*;
    use crate::staging_gpus::{gpus, healthy, is_sound, kernel, verdict};

    const LOST: &str =
        "NVRM: Xid (PCI:0000:1d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";

    fn job(node: &mut Node, began_s: i64) {
        let rank = Process {
            started_ns: began_s * 1_000_000_000,
            environment: Some([("RANK".to_owned(), "0".to_owned())].into()),
            ..Process::default()
        };
        node.jobs = Part::of(Jobs { processes: vec![rank], ..Jobs::default() });
    }

    #[test]
    fn off_the_bus() {
        is_sound(&CHECK);
        let named = vec!["GPU 2 (0000:1d:00.0)".to_owned()];
        let mut node = healthy();
        kernel(&mut node, &[(700, LOST)]);
        // The GPU answers again, and nothing was affected.
        assert_eq!(verdict(&CHECK, &node), (CheckState::Warn, named.clone()));
        gpus(&mut node).gpus[2].recovery_action = Some("reset".to_owned());
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, named.clone()));
        job(&mut node, 1_800);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Warn, named.clone()));
        job(&mut node, 1_600);
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, named));
    }

    #[test]
    fn a_switch() {
        let mut node = healthy();
        kernel(
            &mut node,
            &[(900, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")],
        );
        assert_eq!(verdict(&CHECK, &node), (CheckState::Fail, vec!["NVSwitch 0000:05:00.0".to_owned()]));
    }

    #[test]
    fn the_programs_own_never_drain() {
        let mut node = healthy();
        for code in [13, 31, 43, 45] {
            let line = format!("NVRM: Xid (PCI:0000:1d:00): {code}, pid=4711, name=python, x");
            kernel(&mut node, &[(900, &line), (901, &line), (902, &line)]);
        }
        assert_eq!(verdict(&CHECK, &node), (CheckState::Ok, Vec::new()));
    }
}
