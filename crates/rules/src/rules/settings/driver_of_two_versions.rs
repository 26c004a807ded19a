//! # What it shows
//!
//! CUDA cannot start: the driver's library and its kernel module are of different releases.
//!
//! # Why it happens
//!
//! The driver's packages were updated and the node was not rebooted; a container brings a driver's library of its own.
//!
//! # Evidence
//!
//! `Driver/library version mismatch` of a job or of nvidia-smi; `API mismatch` of the kernel's driver.
//!
//! # What looks like it but is not
//!
//! A driver that is too old for a build of CUDA: library and module agree. A job that had started before the update goes on.
//!
//! # What to do
//!
//! Reboot the node, or end all users of the GPUs and load the installed module.
//!
//! # References
//!
//! NVML API reference, NVML_ERROR_LIB_RM_VERSION_MISMATCH; NVIDIA/open-gpu-kernel-modules src/nvidia/arch (API mismatch).

use ringleader_knowledge::wording::{ToolFailure, tool_failure};
use ringleader_model::{Cause, Confidence, Impact, KernelEventKind, Severity, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, graded};
use crate::drafting::kernel::KernelFault;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::Use;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "driver-of-two-versions",
    title: "the driver's library and its kernel module differ",
    since: "0.4",
    doc: include_str!("driver_of_two_versions.rs"),
    check,
};

/// Library and kernel module of the driver have two versions: it was updated without a reboot, or a container brings
/// another one.
fn check(scene: &Scene<'_>) -> Outcome {
    let is_of_two = |text: &str| tool_failure(text) == ToolFailure::TwoVersions;
    let claims = scene.claims().of(Cause::CudaInitFailed).filter(|claim| is_of_two(&claim.text)).collect();
    if let Some(told) = ClaimsOfCause::from(scene, claims) {
        let title =
            format!("{}: the driver's library and its kernel module have different versions", told.who());
        return Outcome::from_drafts([advise_reload(told.draft(&RULE, Cause::CudaInitFailed, title))]);
    }
    let seen = KernelFault::of(scene, |e| matches!(e.event.kind, KernelEventKind::DriverMismatch { .. }));
    let Some(seen) = seen.filter(KernelFault::is_bound) else { return refused(scene) };
    let version = |v: &Option<Box<str>>| v.as_deref().unwrap_or("another version").to_owned();
    let versions = seen.first().and_then(|e| match &e.event.kind {
        KernelEventKind::DriverMismatch { client, module, .. } => Some((version(client), version(module))),
        _ => None,
    });
    let (client, module) = versions.unwrap_or_default();
    let title = format!("the driver's library is {client}, its kernel module {module}");
    Outcome::from_drafts([advise_reload(seen.draft(&RULE, Cause::CudaInitFailed, title))])
}

/// nvidia-smi itself is refused for that reason.
fn refused(scene: &Scene<'_>) -> Outcome {
    let said = scene.gpu_tables().find_map(|(observation, table)| {
        let (line, text) =
            table.failures.iter().find(|(_, t)| tool_failure(t) == ToolFailure::TwoVersions)?;
        let cite = ringleader_model::Cite { line: *line, ..observation.cite };
        Some((cite, text.to_string()))
    });
    let Some((cite, text)) = said else { return Outcome::Clear };
    let used = if scene.has_job() { Use::Unknown } else { Use::Alone };
    let title = "the driver's library and its kernel module have different versions".to_owned();
    if scene.got_going([]) {
        // The job started with the driver that is loaded: the packages were updated under it, and only what starts
        // from now on fails.
        let draft =
            Draft::new(RULE.id, Cause::CudaInitFailed, format!("{title}: it was updated while the job ran"))
                .severity(Severity::Info)
                .weight(Weight::Derived)
                .confidence(Confidence::Low);
        return Outcome::from_drafts([advise_reload(draft.cite(
            cite,
            ringleader_model::SourceKind::NvidiaSmi,
            text,
        ))]);
    }
    let draft = graded(scene, &RULE, Cause::CudaInitFailed, Proof::Broken, used, title);
    Outcome::from_drafts([advise_reload(draft.cite(cite, ringleader_model::SourceKind::NvidiaSmi, text))])
}

fn advise_reload(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "compare what is loaded with what is installed",
            "cat /proc/driver/nvidia/version; modinfo nvidia | grep ^version; nvidia-smi",
        )
        .advise(Impact::Destructive, "reboot the node, or load the module of the installed version")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn nvidia_smi_says_so() {
        let text = "Failed to initialize NVML: Driver/library version mismatch";
        StagedCase::new().smi_fails(text).expect(&RULE, &["cuda-init-failed"]);
        StagedCase::new().smi_fails("Failed to initialize NVML: Insufficient Permissions").silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        let kind = ringleader_model::KernelEventKind::DriverMismatch {
            client: Some("535.104.05".into()),
            module: Some("535.129.03".into()),
            pid: Some(ringleader_model::Pid(1234)),
        };
        StagedCase::new().kernel("", kind.clone()).expect(&RULE, &["cuda-init-failed"]);
        // Somebody's nvidia-smi beside a job.
        StagedCase::new().two_ranks().kernel("", kind).silent(&RULE);
    }
}
