//! # What it shows
//!
//! A known-answer test returned wrong results: elements of a collective, or the copy of a tensor on another GPU, differ
//! from the expected values.
//!
//! # Why it happens
//!
//! Direct traffic between the GPUs of a node is redirected by the IOMMU or by PCIe access control (ACS) and arrives
//! changed or not at all; else a GPU or a link that computes or carries wrong values.
//!
//! # Evidence
//!
//! The column `#wrong` and the line `Out of bounds values` of nccl-tests; a copy between two GPUs compared afterwards.
//! Right results of the same test without peer access, a hang with two GPUs where one works, an IOMMU that translates,
//! or ACS bits that are set point at the platform.
//!
//! # What looks like it but is not
//!
//! Wrong results over several nodes may be the network's: they do not accuse the platform of one node. Columns that
//! say `N/A` were not checked. An IOMMU that is on does no harm where results are right.
//!
//! # What to do
//!
//! Run the test with NCCL_P2P_DISABLE=1. If that is right, turn the IOMMU and ACS off; if not, look for the GPU.
//!
//! # References
//!
//! NVIDIA/nccl-tests doc/PERFORMANCE.md, verifiable; NCCL user guide, troubleshooting, PCI Access Control Services.

use ringleader_knowledge::wording;
use ringleader_model::{
    BenchRun, Cause, Confidence, Evidence, Impact, Observation, SourceKind, SystemFact, Weight,
};

use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::{CITED_CHARS, shown};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "wrong-results",
    title: "a known-answer test returned wrong results",
    since: "0.1",
    doc: include_str!("wrong_results.rs"),
    check,
};

/// Citations of one sort.
const CITATIONS: usize = 3;
/// Exit status of `timeout` when the time was up, and of a process that was killed for it.
const TIMED_OUT: [i32; 2] = [124, 137];

fn check(scene: &Scene<'_>) -> Outcome {
    let is_wrong = |run: &BenchRun| run.n_wrong().is_some_and(|n| n > 0);
    let wrong: Vec<_> = scene.benches().filter(|(_, run)| is_wrong(run)).collect();
    let copies: Vec<_> = scene.copies().filter(|(_, c)| !c.is_right && c.from != c.to).collect();
    if wrong.is_empty() && copies.is_empty() {
        return Outcome::Clear;
    }
    let in_a_node = wrong.iter().all(|(_, run)| run.hosts().len() < 2);
    let direct = |run: &BenchRun| run.setting("NCCL_P2P_DISABLE").is_none_or(|v| v == "0");
    let right_without_p2p =
        scene.benches().find(|(_, run)| !direct(run) && run.devices.len() > 1 && run.n_wrong() == Some(0));
    let wrong_without_p2p = wrong.iter().any(|(_, run)| !direct(run));
    let platform = platform(scene);
    // A copy between two GPUs of a host uses peer access and nothing else of NCCL.
    let is_platform = in_a_node
        && !wrong_without_p2p
        && (!copies.is_empty() || right_without_p2p.is_some() || !platform.is_empty());
    let mut evidence: Vec<Evidence> =
        wrong.iter().take(CITATIONS).map(|(o, run)| wrong_line(o, run)).collect();
    for (observation, copy) in copies.iter().take(CITATIONS) {
        let text = format!("{}: data copied to another GPU differs from what was sent", copy.compared);
        evidence.push(shown(observation, None, SourceKind::CopyTest, text));
    }
    if !is_platform {
        let title = "nccl-tests finds wrong results".to_owned();
        return found(
            Draft::new(RULE.id, Cause::SilentCorruption, title)
                .weight(Weight::Stated)
                .confidence(Confidence::Medium)
                .evidence(evidence)
                .advise_command(Impact::Harmless, "check whether direct traffic between the GPUs is at fault", "NCCL_P2P_DISABLE=1 ./build/all_reduce_perf -b 8 -e 1G -f 2 -g <number of GPUs>")
                .advise_command(Impact::Disruptive, "leave out one GPU after the other until results are right", "CUDA_VISIBLE_DEVICES=<all but one> ./build/all_reduce_perf -b 1M -e 1G -f 4 -g <one less>"),
        );
    }
    let mut draft = Draft::new(
        RULE.id,
        Cause::P2pAcsIommu,
        "data sent directly between GPUs of one node arrives corrupted: the platform is at fault",
    )
    .weight(Weight::Stated)
    .confidence(Confidence::Medium)
    .evidence(evidence)
    .evidence(platform);
    if let Some((observation, run)) = right_without_p2p {
        let line = run.out_of_bounds.map(|(line, _)| line);
        draft = draft.confidence(Confidence::High).evidence([shown(
            observation,
            line,
            SourceKind::NcclTests,
            "right with NCCL_P2P_DISABLE=1",
        )]);
    }
    if let Some((observation, run)) = stuck_with_several(scene) {
        let text =
            format!("the run on {} GPUs never finished a size, the run on one GPU did", run.devices.len());
        let line = run.exit_status.map(|(line, _)| line);
        draft = draft.evidence([shown(observation, line, SourceKind::NcclTests, text)]);
    }
    found(
        draft
            .advise_command(
                Impact::Harmless,
                "check whether the IOMMU is on and ACS is set on the bridges",
                "cat /proc/cmdline; sudo lspci -vvv | grep -i acsctl",
            )
            .advise(Impact::Disruptive, "turn the IOMMU off in the firmware (or iommu=pt), and ACS on the switches between GPUs; in a virtual machine use ATS instead")
            .advise_command(Impact::Harmless, "until then run without peer access", "NCCL_P2P_DISABLE=1"),
    )
}

fn wrong_line(observation: &Observation, run: &BenchRun) -> Evidence {
    let wrong_row = run.rows.iter().find_map(|r| {
        let n = [r.out_of_place, r.in_place].into_iter().flatten().filter_map(|f| f.n_wrong).max()?;
        (n > 0).then_some((r.line, r.size_bytes, n))
    });
    match (wrong_row, run.out_of_bounds) {
        (Some((line, size, n)), _) => shown(
            observation,
            Some(line),
            SourceKind::NcclTests,
            format!("{n} wrong elements at {size} bytes"),
        ),
        (None, Some((line, n))) => {
            shown(observation, Some(line), SourceKind::NcclTests, format!("Out of bounds values : {n}"))
        }
        (None, None) => shown(observation, None, SourceKind::NcclTests, ""),
    }
}

/// Signs that the platform redirects traffic between the GPUs: an IOMMU that translates, ACS on bridges.
fn platform(scene: &Scene<'_>) -> Vec<Evidence> {
    let mut signs = Vec::new();
    for (observation, fact) in scene.system() {
        match fact {
            SystemFact::KernelOptions(text) if wording::translates(text) => {
                signs.push(shown(
                    observation,
                    None,
                    SourceKind::System,
                    text.chars().take(CITED_CHARS).collect::<String>(),
                ));
            }
            SystemFact::Pci(devices) => {
                let redirects = devices.iter().filter_map(|d| {
                    let (line, bits) = d.acs.as_ref()?;
                    let is_set = bits.iter().any(|b| matches!(&**b, "SrcValid" | "ReqRedir"));
                    is_set.then_some((*line, bits))
                });
                signs.extend(redirects.take(CITATIONS).map(|(line, bits)| {
                    shown(
                        observation,
                        Some(line),
                        SourceKind::System,
                        format!("ACS is on: {}", bits.join(", ")),
                    )
                }));
            }
            _ => {}
        }
    }
    signs
}

/// A run with several GPUs that ran out of time without one size, where a run with one did not.
fn stuck_with_several<'a>(scene: &Scene<'a>) -> Option<(&'a Observation, &'a BenchRun)> {
    scene.benches().find(|(_, run)| run.devices.len() == 1 && !run.rows.is_empty())?;
    scene.benches().find(|(_, run)| {
        let timed_out = run.exit_status.is_some_and(|(_, status)| TIMED_OUT.contains(&status));
        run.devices.len() > 1 && run.hosts().len() < 2 && run.rows.is_empty() && timed_out
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::{PciDevice, SystemFact};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const GB: u64 = 1 << 30;

    #[test]
    fn wrong_with_peer_access_and_right_without() {
        StagedCase::new()
            .bench(("node0", "NVIDIA RTX A6000", 2), GB, 20.0, 512, &[])
            .bench(("node0", "NVIDIA RTX A6000", 2), GB, 9.0, 0, &[("NCCL_P2P_DISABLE", "1")])
            .concludes(&RULE, "p2p-acs-iommu , high");
    }

    #[test]
    fn wrong_where_the_iommu_translates() {
        let options = SystemFact::KernelOptions("BOOT_IMAGE=/vmlinuz root=/dev/sda1 amd_iommu=on".into());
        let wrong = || StagedCase::new().bench(("node0", "NVIDIA RTX A6000", 2), GB, 20.0, 512, &[]);
        wrong().system("", options).concludes(&RULE, "p2p-acs-iommu , high");
        let acs = Some((9, vec!["SrcValid".into(), "ReqRedir".into()]));
        wrong()
            .system("", SystemFact::Pci(vec![PciDevice { acs, ..PciDevice::default() }]))
            .concludes(&RULE, "p2p-acs-iommu , high");
        let passes = SystemFact::KernelOptions("BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt".into());
        wrong().system("", passes).concludes(&RULE, "silent-corruption , medium");
    }

    #[test]
    fn a_copy_that_arrives_wrong() {
        StagedCase::new().copied(false).concludes(&RULE, "p2p-acs-iommu , medium");
        StagedCase::new().copied(true).silent(&RULE);
    }

    #[test]
    fn wrong_without_peer_access_is_no_matter_of_the_platform() {
        StagedCase::new()
            .bench(("node0", "NVIDIA H100 80GB HBM3", 8), GB, 20.0, 4, &[])
            .concludes(&RULE, "silent-corruption , medium");
        StagedCase::new()
            .bench(("node0", "NVIDIA H100 80GB HBM3", 8), GB, 20.0, 4, &[("NCCL_P2P_DISABLE", "1")])
            .system("", SystemFact::KernelOptions("BOOT_IMAGE=/vmlinuz intel_iommu=on".into()))
            .concludes(&RULE, "silent-corruption , medium");
    }

    #[test]
    fn right_results_under_an_iommu_are_no_fault() {
        StagedCase::new()
            .bench(("node0", "NVIDIA H200", 8), GB, 360.0, 0, &[])
            .system("", SystemFact::KernelOptions("BOOT_IMAGE=/vmlinuz intel_iommu=on".into()))
            .silent(&RULE);
    }
}
