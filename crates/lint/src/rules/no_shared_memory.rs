//! # What it shows
//! A container asks for more than one GPU and does not enlarge /dev/shm.
//!
//! # Why it happens
//! The default of 64 MiB is too small for NCCL's segments of several processes and for loaders with workers.
//!
//! # Evidence
//! The manifest or command asks for GPUs and mounts nothing at /dev/shm.
//!
//! # What looks like it but is not
//! A container with one GPU; a command whose options come from a variable.
//!
//! # What to do
//! Enlarge /dev/shm.
//!
//! # References
//! NCCL user guide, troubleshooting: shared memory; nccl#525, pytorch#16979.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "no-shared-memory",
    title: "a container with several GPUs has 64 MiB of shared memory",
    family: Family::Launch,
    predicts: Cause::ShmFull,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("no_shared_memory.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let containers = scan
        .launch
        .iter()
        .flat_map(|launch| launch.containers.iter().map(move |container| (launch, container)));
    containers
        .filter(|(_, container)| container.n_gpus > 1 && !container.has_shared_memory)
        .map(|(launch, container)| {
            let title = format!("a container with {} GPUs keeps the default of 64 MiB for /dev/shm", container.n_gpus);
            let help = "Kubernetes: mount an emptyDir with medium Memory at /dev/shm; Docker: --shm-size=16g or --ipc=host; Compose: shm_size";
            let mut finding = launch.finding(&RULE, container.at, title, help);
            // Two GPUs often get along with that.
            if container.n_gpus == 2 {
                finding.confidence = Confidence::Low;
            }
            finding
        })
        .collect()
}
