//! # What it shows
//!
//! The installed driver supports an older CUDA than NCCL or the framework was built for.
//!
//! # Why it happens
//!
//! A new wheel or image on a node whose driver was not updated; a compatibility library that does not fit the GPU.
//!
//! # Evidence
//!
//! `CUDA driver version is insufficient`, `unsupported toolchain`; NCCL's `initialization error` when nothing contradicts it.
//!
//! # What looks like it but is not
//!
//! `initialization error` also comes from a process that was forked after CUDA was in use: the versions decide. A driver's
//! library and kernel module of different versions are `cuda-init-failed`.
//!
//! # What to do
//!
//! Update the driver, or install builds for the CUDA that the driver supports.
//!
//! # References
//!
//! CUDA compatibility guide; NVIDIA/nccl src/misc/cudawrap.cc; cudaError 3, 35, 222, 803, 804.

use ringleader_knowledge::message::Role;
use ringleader_knowledge::version::{cuda_of_build, cuda_of_code, cuda_of_text};
use ringleader_model::{Cause, Confidence, Impact};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "driver-too-old-for-cuda",
    title: "the driver is older than CUDA or NCCL needs",
    since: "0.1",
    doc: include_str!("driver_too_old_for_cuda.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let nccl = cuda_of_nccl(scene);
    let (build, driver) = (nccl.as_ref().map(|n| n.0), cuda_of_driver(scene));
    let is_newer = build.zip(driver).is_some_and(|(build, driver)| driver >= build);
    // A hint is void where the versions are known to fit.
    let claims = scene
        .claims()
        .of(Cause::DriverTooOldForCuda)
        .filter(|c| c.saying.role == Role::States || !is_newer)
        .collect();
    let Some(told) = ClaimsOfCause::from(scene, claims) else { return Outcome::Clear };
    let title = match (build, driver) {
        (Some(build), Some(driver)) if driver < build => format!(
            "{}: the driver supports CUDA {}.{}, NCCL was built for {}.{}",
            told.who(),
            driver.0,
            driver.1,
            build.0,
            build.1
        ),
        (Some(build), None) => {
            format!("{}: the driver is too old for NCCL built for CUDA {}.{}", told.who(), build.0, build.1)
        }
        _ => format!("{}: the driver is older than this CUDA or NCCL build needs", told.who()),
    };
    let mut draft = told.draft(&RULE, Cause::DriverTooOldForCuda, title);
    if let Some((_, evidence)) = nccl {
        draft = draft.evidence(evidence);
    }
    if build.zip(driver).is_some_and(|(build, driver)| driver < build) {
        draft = draft.confidence(Confidence::High);
    }
    found(
        draft
            .advise_command(
                Impact::Harmless,
                "compare driver, CUDA and NCCL",
                "nvidia-smi; python -c 'import torch; print(torch.version.cuda, torch.cuda.nccl.version())'; ldconfig -p | grep nccl",
            )
            .advise(Impact::Harmless, "install NCCL and the framework for the CUDA release that the driver supports")
            .advise(Impact::Destructive, "or update the driver of the node and reboot it"),
    )
}

type Release = (u16, u16);

/// CUDA release that NCCL was built for, and the line that says so.
fn cuda_of_nccl(scene: &Scene<'_>) -> Option<(Release, Option<ringleader_model::Evidence>)> {
    let mut processes = scene.nccl_logs().flat_map(|(_, log)| &log.processes);
    processes.find_map(|p| {
        let text = p.nccl_version.as_deref()?;
        let evidence = p.first.map(|cite| ringleader_model::Evidence {
            cite,
            text: format!("NCCL version {text}"),
            kind: ringleader_model::SourceKind::NcclLog,
        });
        Some((cuda_of_build(text)?, evidence))
    })
}

/// CUDA release that the driver supports, of NCCL's line or of nvidia-smi.
fn cuda_of_driver(scene: &Scene<'_>) -> Option<Release> {
    let logged =
        scene.nccl_logs().flat_map(|(_, log)| &log.processes).filter_map(|p| p.cuda_driver_version).min();
    logged
        .map(cuda_of_code)
        .or_else(|| scene.gpu_tables().find_map(|(_, table)| cuda_of_text(table.cuda_version.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn cuda_says_so() {
        StagedCase::new()
            .raised(
                Some(0),
                "RuntimeError",
                "The NVIDIA driver on your system is too old (found version 11040).",
                &[],
            )
            .expect(&RULE, &["driver-too-old-for-cuda 0"]);
    }

    #[test]
    fn an_initialization_error_of_nccl() {
        let stage = StagedCase::new()
            .process("n", 1, None)
            .about(|p| p.nccl_version = Some("2.9.9+cuda11.3".into()))
            .warn("", "Cuda failure 'initialization error'");
        stage.expect(&RULE, &["driver-too-old-for-cuda"]);
    }

    #[test]
    fn versions_that_fit_speak_against_a_mere_hint() {
        StagedCase::new()
            .process("n", 1, None)
            .about(|p| {
                p.nccl_version = Some("2.18.5+cuda12.2".into());
                p.cuda_driver_version = Some(12020);
            })
            .warn("", "Cuda failure 'initialization error'")
            .silent(&RULE);
    }
}
