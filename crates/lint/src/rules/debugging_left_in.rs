//! # What it shows
//! A variable that switches a transport off, or makes each kernel wait, is set for the job.
//!
//! # Why it happens
//! It helped to find a fault once and stayed.
//!
//! # Evidence
//! The variable is exported or passed on with the value 1.
//!
//! # What looks like it but is not
//! A machine without InfiniBand or peer access, where it changes nothing: hence the low confidence.
//!
//! # What to do
//! Remove it.
//!
//! # References
//! NCCL user guide, environment variables, Debugging; CUDA, CUDA_LAUNCH_BLOCKING.

use ringleader_model::{Cause, Confidence, Severity};

use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "debugging-left-in",
    title: "a setting for debugging slows or cripples the job",
    family: Family::Launch,
    predicts: Cause::WrongTransport,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("debugging_left_in.rs"),
    check,
};

/// Settings that cost much, with what they cost.
const COSTLY: &[(&str, &str)] = &[
    ("CUDA_LAUNCH_BLOCKING", "each kernel is waited for: nothing overlaps"),
    ("NCCL_P2P_DISABLE", "GPUs of a node talk through host memory instead of NVLink"),
    ("NCCL_IB_DISABLE", "nodes talk over TCP sockets instead of InfiniBand or RoCE"),
    ("NCCL_SHM_DISABLE", "processes of a node talk over the network"),
    ("TORCH_NCCL_BLOCKING_WAIT", "each wait blocks the host"),
];

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    // Tests of a project wait for kernels on purpose.
    let is_test = |path: &str| {
        path.split('/').any(|part| matches!(part, "workflows" | ".github" | "ci" | ".ci" | ".azure"))
    };
    let settings = scan
        .launch
        .iter()
        .filter(|launch| !is_test(launch.path))
        .flat_map(|launch| launch.settings.iter().map(move |setting| (launch, setting)));
    settings
        .filter_map(|(launch, setting)| {
            let (name, cost) = COSTLY.iter().find(|(name, _)| *name == setting.name)?;
            if setting.value.as_deref() != Some("1") {
                return None;
            }
            let title = format!("{name}=1: {cost}");
            let mut finding = launch.finding(
                &RULE,
                setting.at,
                title,
                "remove it, or note beside it why this machine needs it",
            );
            if *name == "CUDA_LAUNCH_BLOCKING" {
                finding.confidence = Confidence::Medium;
            }
            Some(finding)
        })
        .collect()
}
