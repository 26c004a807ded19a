//! # What it shows
//!
//! nvidia-smi itself failed: it reaches no driver, or finds no GPU at all. Nothing is then known of any GPU there.
//!
//! # Why it happens
//!
//! The driver is not loaded, or was removed; all GPUs are gone; or the tool was asked in a container, or by a job step,
//! that was given none.
//!
//! # Evidence
//!
//! `couldn't communicate with the NVIDIA driver`, `No devices were found`, `Driver Not Loaded` and the like. They lead
//! to a question, not a finding: the text is the same for a machine that lost its GPUs and for a container without any.
//!
//! # What looks like it but is not
//!
//! Another output of the same host that lists GPUs: the tool was asked in two places. A healthy job. A user without
//! permission. A version mismatch and a container that lost its devices say so in other words and have rules of their
//! own.
//!
//! # What to do
//!
//! Run it on the host; check the kernel log for why the driver has no GPU.
//!
//! # References
//!
//! NVIDIA, NVML API reference, nvmlReturn_t; NVIDIA GPU debug guidelines.

use ringleader_knowledge::wording::{ToolFailure, tool_failure};
use ringleader_model::{GpuTable, Host, Need, Observation};

use crate::drafting::QUOTED_CHARS;
use crate::health;
use crate::rule::{Outcome, Rule};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gpu-tool-failed",
    title: "nvidia-smi shows no GPU",
    since: "0.1",
    doc: include_str!("gpu_tool_failed.rs"),
    check,
};

/// Failures that other rules read, or that say nothing of the machine.
fn is_elsewhere(failure: ToolFailure<'_>) -> bool {
    match failure {
        ToolFailure::Forbidden
        | ToolFailure::NotLoaded
        | ToolFailure::Lost
        | ToolFailure::TwoVersions
        | ToolFailure::LockedOut => true,
        ToolFailure::NoAnswer(_) | ToolFailure::Other => false,
    }
}

/// A probe of this program that timed out.
fn has_no_answer(text: &str) -> bool {
    matches!(tool_failure(text), ToolFailure::NoAnswer(_))
}

fn check(scene: &Scene<'_>) -> Outcome {
    if scene.has_job() && !health::in_trouble(scene) {
        return Outcome::Clear;
    }
    let failed = |table: &GpuTable| {
        let said = table.failures.iter().map(|(_, text)| text);
        said.filter(|text| !is_elsewhere(tool_failure(text))).map(ToString::to_string).next()
    };
    let mut needs: Vec<Need> = scene
        .gpu_tables()
        .filter_map(|(observation, table)| {
            let host = scene.host_of(observation);
            let is_answered =
                |said: &String| !has_no_answer(said) && lists_gpus(scene, observation, host.as_ref());
            let said = failed(table).filter(|said| !is_answered(said))?;
            Some(ask(&said, host.as_ref(), table.gpus.is_empty()))
        })
        .collect();
    needs.sort();
    needs.dedup();
    needs.truncate(4);
    if needs.is_empty() { Outcome::Clear } else { Outcome::Undecided(needs) }
}

/// Some output that may be of the same host lists GPUs.
fn lists_gpus(scene: &Scene<'_>, failed: &Observation, host: Option<&Host>) -> bool {
    scene.gpu_tables().any(|(observation, table)| {
        let of = scene.host_of(observation);
        let is_here = of.is_none() || host.is_none() || of.as_ref() == host;
        !table.gpus.is_empty() && (is_here || observation.cite.source == failed.cite.source)
    })
}

fn ask(said: &str, host: Option<&Host>, is_of_all: bool) -> Need {
    let on = host.map_or_else(String::new, |h| format!(" on {h}"));
    if let ToolFailure::NoAnswer(Some(said)) = tool_failure(said) {
        return Need {
            question: format!(
                "the driver{on} gave no answer about {} (GPU {said}): was it busy, or is it stuck?",
                if is_of_all { "any GPU" } else { "some GPUs" }
            ),
            command: "time nvidia-smi; dmesg -T | grep -iE \"nvrm|xid\" | tail -50".to_owned(),
            ..Need::default()
        };
    }
    let said: String = said.trim().chars().take(QUOTED_CHARS).collect();
    Need {
        question: format!(
            "nvidia-smi{on} shows no GPU (\"{said}\"): is the driver not loaded, are the GPUs gone, or was it asked in a container without GPUs?"
        ),
        command: "lspci -nnk -d 10de:; lsmod | grep nvidia; dmesg -T | grep -iE \"nvrm|xid\" | tail -50"
            .to_owned(),
        ..Need::default()
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::Cause;

    use super::RULE;
    use crate::diagnose;
    use crate::rule::Outcome;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::Scene;
    use ringleader_correlate::staging::gpus::gpus;

    const NO_DRIVER: &str = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
    const NO_GPU: &str = "No devices were found";

    fn n_asked(stage: &StagedCase) -> usize {
        match (RULE.check)(&Scene::new(&stage.case)) {
            Outcome::Undecided(needs) => needs.len(),
            Outcome::Clear => 0,
            Outcome::Found(found) => panic!("{found:#?}"),
        }
    }

    #[test]
    fn a_tool_that_failed_is_no_health() {
        for said in [NO_DRIVER, NO_GPU, "Failed to initialize NVML: Driver Not Loaded"] {
            let stage = StagedCase::new().smi_fails(said);
            assert_eq!(n_asked(&stage), 1, "{said}");
            assert_eq!(diagnose(&stage.case).cause, Cause::Undecided, "{said}");
        }
        let failed = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        assert_eq!(n_asked(&failed.smi_fails(NO_GPU)), 1);
    }

    #[test]
    fn a_container_without_gpus_beside_a_job_that_is_well() {
        assert_eq!(n_asked(&StagedCase::new().two_ranks().smi_fails(NO_GPU)), 0);
        // Asked in two places: where the GPUs are, it lists them.
        assert_eq!(n_asked(&StagedCase::new().shows(gpus(8, |_, _| {})).smi_fails(NO_GPU)), 0);
    }

    #[test]
    fn a_driver_that_keeps_everybody_waiting() {
        use crate::rules::gpu::gpu_fallen_off_bus;
        let said = "Unable to determine the device handle for GPU 0: no answer within 2200 ms, it hangs in nvmlDeviceGetFieldValues";
        let stage =
            StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]).smi_fails(said);
        assert_eq!(n_asked(&stage), 1);
        stage.silent(&gpu_fallen_off_bus::RULE);
        // Others answer: a node under load asks one after another, and the time is up.
        let failed = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        let mut some = failed.shows(gpus(3, |_, _| {}));
        for observation in &mut some.case.observations {
            if let ringleader_model::Fact::Gpus(table) = &mut observation.fact {
                table.failures.push((1, said.into()));
            }
        }
        assert_eq!(n_asked(&some), 1);
        some.silent(&gpu_fallen_off_bus::RULE);
    }

    #[test]
    fn words_that_have_rules_of_their_own() {
        for said in [
            "Failed to initialize NVML: Driver/library version mismatch",
            "Failed to initialize NVML: Unknown Error",
            "Failed to initialize NVML: Insufficient Permissions",
            "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
        ] {
            assert_eq!(n_asked(&StagedCase::new().smi_fails(said)), 0, "{said}");
        }
    }
}
