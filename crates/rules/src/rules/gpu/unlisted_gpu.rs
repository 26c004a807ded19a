//! # What it shows
//!
//! lspci shows a GPU that does not answer on the bus, or one that the driver does not list.
//!
//! # Why it happens
//!
//! The card lost power or its link; or the driver could not start it.
//!
//! # Evidence
//!
//! `(rev ff)` in lspci: every read of that device returns ones. Or GPUs that lspci lists and nvidia-smi on the same
//! host does not, if nvidia-smi lists most of them.
//!
//! # What looks like it but is not
//!
//! In a container lspci shows all GPUs and nvidia-smi those it was given. A GPU that is passed through to a virtual
//! machine belongs to another driver (vfio-pci). Somebody may have asked nvidia-smi for some GPUs only. A GPU that
//! answers on the bus and is not listed is therefore a remark, which decides nothing.
//!
//! # What to do
//!
//! Look in the kernel log for why the driver did not take it; drain the node.
//!
//! # References
//!
//! pciutils lspci(8); NVIDIA GPU debug guidelines.

use ringleader_model::{
    Cause, Cite, Confidence, Culprit, Evidence, GpuForm, Host, Impact, KernelEventKind, Observation,
    PciAddress, PciDevice, Severity, SourceKind, SystemFact, Weight,
};

use crate::drafting::gpus::{Proof, graded};
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::add_culprit;
use ringleader_correlate::who::gpus::{SeenGpu, Use, of_address};
use ringleader_correlate::who::tools::CITED_CHARS;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "unlisted-gpu",
    title: "a GPU on the bus that does not work",
    since: "0.1",
    doc: include_str!("unlisted_gpu.rs"),
    check,
};

/// A list may lack one GPU in this many that are on the bus. If it lacks more, it is that of a container with a few GPUs.
const UNLISTED_ONE_IN: usize = 4;

/// A GPU of lspci.
struct OnBus<'a> {
    observation: &'a Observation,
    device: &'a PciDevice,
    address: PciAddress,
}

impl OnBus<'_> {
    fn evidence(&self) -> Evidence {
        let cite = Cite { line: self.device.line, ..self.observation.cite };
        let text = format!("{} {}", self.address, self.device.name);
        Evidence { cite, text: text.chars().take(CITED_CHARS).collect(), kind: SourceKind::System }
    }
}

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (observation, fact) in scene.system() {
        let SystemFact::Pci(devices) = fact else { continue };
        let gpus: Vec<OnBus<'_>> = devices
            .iter()
            .filter(|device| device.is_nvidia_gpu())
            .filter_map(|device| Some(OnBus { observation, device, address: device.address? }))
            .collect();
        findings.extend(dead(scene, &gpus).and_then(Draft::build));
        findings.extend(unlisted(scene, &gpus).and_then(Draft::build));
    }
    Outcome::from_findings(findings)
}

/// GPUs where every read returns ones.
fn dead(scene: &Scene<'_>, gpus: &[OnBus<'_>]) -> Option<Draft> {
    let dead: Vec<&OnBus<'_>> = gpus.iter().filter(|g| g.device.is_dead()).collect();
    let first = dead.first()?;
    let host = scene.host_of(first.observation);
    let mut used: Option<Use> = None;
    let mut culprits: Vec<Culprit> = Vec::new();
    for gpu in &dead {
        let (mine, culprit) = of_address(scene.roster(), scene.has_job(), gpu.address, host.as_ref());
        used = used.max(Some(mine));
        add_culprit(&mut culprits, culprit);
    }
    let title = format!("GPU {} does not answer on the bus (lspci: rev ff)", first.address);
    let draft = graded(scene, &RULE, Cause::GpuFallenOffBus, Proof::Broken, used?, title)
        .culprits(culprits)
        .evidence(dead.iter().take(4).map(|g| g.evidence()));
    Some(advise(draft))
}

/// GPUs that answer, and that nvidia-smi of the same host does not list beside most others.
fn unlisted(scene: &Scene<'_>, gpus: &[OnBus<'_>]) -> Option<Draft> {
    let host = scene.host_of(gpus.first()?.observation);
    let list = scene.gpus().tables().find(|t| is_list(t) && is_here(scene, t, host.as_ref()))?;
    let same = |a: PciAddress, b: PciAddress| (a.domain, a.bus, a.device) == (b.domain, b.bus, b.device);
    let is_listed = |g: &&OnBus<'_>| list.iter().any(|row| row.pci.is_some_and(|p| same(p, g.address)));
    let ours = |g: &&OnBus<'_>| g.device.driver.as_deref().is_none_or(|d| d == "nvidia");
    let gone: Vec<&OnBus<'_>> =
        gpus.iter().filter(|g| !is_listed(g)).filter(ours).filter(|g| !g.device.is_dead()).collect();
    let first = gone.first()?;
    // Those that are listed must be the same: a virtual machine shows other addresses.
    let n_both = gpus.iter().filter(is_listed).count();
    if gone.len() * UNLISTED_ONE_IN > gpus.len() || n_both < list.len() {
        return None;
    }
    let not_started = scene.kernel().near().filter(|e| {
        matches!(e.event.kind, KernelEventKind::GpuInitFailed { .. })
            && e.event.device.is_some_and(|d| same(d, first.address))
    });
    let title = format!("GPU {} is on the bus, but the driver does not list it", first.address);
    let text = format!("nvidia-smi lists {} GPUs, and not {}", list.len(), first.address);
    let draft = Draft::new(RULE.id, Cause::GpuFallenOffBus, title)
        .severity(Severity::Warning)
        .weight(Weight::Aside)
        .confidence(Confidence::Low)
        .at_most(Confidence::Low)
        .culprit(Culprit { host, gpu: Some(first.address), ..Culprit::default() })
        .evidence(gone.iter().take(4).map(|g| g.evidence()))
        .evidence(list.first().map(|row| row.evidence(text)))
        .evidence(not_started.take(2).map(ringleader_correlate::machine::kernel::KernelStatement::evidence));
    Some(advise(draft))
}

/// A list of all GPUs, each with its address.
fn is_list(table: &[SeenGpu<'_>]) -> bool {
    let forms = [GpuForm::Table, GpuForm::Query, GpuForm::Xml, GpuForm::List];
    table.first().is_some_and(|g| forms.contains(&g.table.form)) && table.iter().all(|g| g.row.pci.is_some())
}

/// Of the same host, as far as both tell; without names only if there is one host at all.
fn is_here(scene: &Scene<'_>, table: &[SeenGpu<'_>], host: Option<&Host>) -> bool {
    let of_table = table.first().and_then(|g| scene.host_of(g.observation));
    match (of_table.as_ref(), host) {
        (Some(a), Some(b)) => a == b,
        _ => scene.hosts().len() <= 1,
    }
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "check why the driver does not list it",
            "dmesg -T | grep -iE \"nvrm|xid|rminitadapter\"; lspci -nnk -d 10de:",
        )
        .advise(Impact::Destructive, "drain the node; a power cycle may bring the GPU back for tests")
}

#[cfg(test)]
mod tests {
    use ringleader_model::{PciDevice, SystemFact, Weight};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::{gpu, gpus};

    /// lspci of eight GPUs, with the revision and the driver of the third.
    fn bus(revision: &str, driver: &str) -> SystemFact {
        let device = |index: u32| PciDevice {
            line: 1 + index,
            address: gpu(index).pci,
            name: format!(
                "3D controller: NVIDIA Corporation GH100 (rev {})",
                if index == 2 { revision } else { "a1" }
            )
            .into(),
            driver: (index == 2 && !driver.is_empty()).then(|| driver.into()),
            ..PciDevice::default()
        };
        SystemFact::Pci((0..8).map(device).collect())
    }

    fn listed(without: &[u32]) -> StagedCase {
        let rows = gpus(8, |_, _| {});
        StagedCase::new()
            .shows(rows.into_iter().filter(|r| r.index.is_none_or(|i| !without.contains(&i))).collect())
    }

    #[test]
    fn a_gpu_that_reads_ones() {
        StagedCase::new().system("", bus("ff", "")).expect(&RULE, &["gpu-fallen-off-bus"]);
        let job = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        // No rank's GPU, and the ranks' GPUs are known.
        assert_eq!(job.system("node0", bus("ff", "")).worth(&RULE), ["info Derived"]);
        StagedCase::new().system("", bus("a1", "")).silent(&RULE);
    }

    #[test]
    fn a_gpu_that_the_driver_does_not_list() {
        let finding = listed(&[2]).system("", bus("a1", "nvidia")).finding(&RULE);
        assert_eq!(finding.weight, Weight::Aside);
        assert!(finding.title.starts_with("GPU 0000:4c:00.0 is on the bus"), "{}", finding.title);
    }

    #[test]
    fn what_containers_and_virtual_machines_show() {
        listed(&[]).system("", bus("a1", "nvidia")).silent(&RULE);
        listed(&[2]).system("", bus("a1", "vfio-pci")).silent(&RULE);
        listed(&[2, 3, 4, 5]).system("", bus("a1", "nvidia")).silent(&RULE);
    }
}
