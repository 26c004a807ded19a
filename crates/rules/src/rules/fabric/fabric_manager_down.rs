//! # What it shows
//!
//! On a machine with NVSwitch the GPUs cannot use NVLink until the Fabric Manager has set the switches up. Here it
//! is stopped, of another version than the driver, or was restarted under running processes.
//!
//! # Why it happens
//!
//! The service does not run, an update changed the driver but not the Fabric Manager, or it was restarted while
//! GPUs were in use, after which multicast objects are refused.
//!
//! # Evidence
//!
//! nvidia-smi's `Fabric State` that is not `Completed`; a service that failed, or says that its version does not match the
//! driver's, or whose own log ends with `aborting fabric manager`; CUDA error 802 `system not yet initialized`; `invalid
//! argument` out of NCCL's NVLS set-up; an IMEX service that does not work between nodes.
//!
//! # What looks like it but is not
//!
//! A service that is not there or not running where the GPUs' state is `Completed`: in a virtual machine it runs on the
//! host. A state of `N/A`, or cards that plug into PCIe: no fabric. A Fabric Manager that ends because it found no
//! switch has nothing to do. Multicast that fails for lack of resources is nvls-multicast. A machine without NVSwitch
//! needs no Fabric Manager.
//!
//! # What to do
//!
//! Check the service and its version against the driver, restart it with all GPU processes stopped, or reboot the
//! node.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 802; Fabric Manager user guide; NVIDIA/nccl src/transport/nvls.cc.

use ringleader_knowledge::wording::{self, TestFault};
use ringleader_model::{Cause, Cite, Fact, Impact, SourceKind};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, Shown, failed_test, graded};
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::Use;
use ringleader_correlate::who::gpus::is_card;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "fabric-manager-down",
    title: "the NVSwitch fabric is not ready",
    since: "0.1",
    doc: include_str!("fabric_manager_down.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let shown = incomplete(scene);
    let Some(told) = ClaimsOfCause::of(scene, Cause::FabricManagerDown) else {
        let draft = shown.or_else(|| service(scene, false)).or_else(|| {
            failed_test(scene, &RULE, Cause::FabricManagerDown, Proof::Broken, TestFault::FabricManager)
        });
        return Outcome::from_drafts(draft.map(advise));
    };
    let title = format!("{who}: the NVSwitch fabric is not ready (Fabric Manager)", who = told.who());
    let more = shown.into_iter().chain(service(scene, true)).filter_map(Draft::build);
    let draft = told.draft(&RULE, Cause::FabricManagerDown, title).evidence(more.flat_map(|f| f.evidence));
    found(advise(draft))
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "compare the service with the driver",
            "systemctl status nvidia-fabricmanager; nv-fabricmanager --version; nvidia-smi -q | grep -iA4 fabric",
        )
        .advise_command(
            Impact::Destructive,
            "stop all GPU processes of the node, then restart the service; reboot if that does not help",
            "systemctl restart nvidia-fabricmanager",
        )
        .advise_command(
            Impact::Harmless,
            "to keep running without multicast until then",
            "NCCL_NVLS_ENABLE=0",
        )
}

/// GPUs that have not joined the fabric.
fn incomplete(scene: &Scene<'_>) -> Option<Draft> {
    let shown = Shown::of(scene, |gpu| {
        let state = gpu.row.fabric_state.as_deref()?;
        let status = gpu.row.fabric_status.as_deref().filter(|s| *s != "Success");
        match (state, status) {
            ("In Progress" | "Not Started", _) => Some(format!("its fabric state is {state}")),
            ("Completed", Some(status)) => Some(format!("it joined the fabric with status {status}")),
            _ => None,
        }
    })?;
    let who = shown.who();
    let draft = shown.draft(
        &RULE,
        Cause::FabricManagerDown,
        Proof::Broken,
        format!("{who}: the NVSwitch fabric is not ready"),
    );
    // What the service says belongs to it.
    let said = service(scene, true).and_then(Draft::build);
    Some(draft.evidence(said.into_iter().flat_map(|f| f.evidence)))
}

/// The Fabric Manager's own account. `is_needed`: something else says that this machine has a fabric to manage.
fn service(scene: &Scene<'_>, is_needed: bool) -> Option<Draft> {
    let states = |state: &str| scene.gpus().seen.iter().any(|g| g.row.fabric_state.as_deref() == Some(state));
    if !is_needed && states("Completed") {
        return None;
    }
    // Cards that plug into PCIe sit behind no switch: there is nothing to manage.
    let names: Vec<&str> = scene.gpus().seen.iter().filter_map(|g| g.row.name.as_deref()).collect();
    if !is_needed && !names.is_empty() && names.iter().all(|name| is_card(name)) {
        return None;
    }
    let driver = scene.gpu_tables().find_map(|(_, t)| t.driver_version.clone());
    for (observation, service) in scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::GpuService(service) => Some((o, &**service)),
        _ => None,
    }) {
        if !service.name.contains("fabricmanager") {
            continue;
        }
        // It ends at once where there is no switch, and says so.
        if service.errors.iter().any(|(_, _, text)| wording::manages_nothing(text)) {
            continue;
        }
        let other = service.driver_version.as_ref().or(driver.as_ref());
        let mismatch = service.version.as_ref().zip(other).filter(|(own, driver)| own != driver);
        // Its own log, which ends with it: `…, aborting fabric manager`.
        let gave_up = service.active.is_none()
            && service.errors.last().is_some_and(|(_, at, t)| {
                wording::manager_aborts(t) && scene.precedes_job(*at) != Some(true)
            });
        let (is_down, title) = match (mismatch, service.active.as_deref()) {
            (None, None) if gave_up => (true, "the Fabric Manager gave up".to_owned()),
            (Some((own, driver)), _) => (true, format!("the Fabric Manager is {own}, the driver {driver}")),
            (None, Some("failed")) => (true, "the Fabric Manager has failed".to_owned()),
            (None, Some(state @ ("inactive" | "not-found" | "deactivating"))) => {
                (is_needed, format!("the Fabric Manager is {state}"))
            }
            _ => (false, String::new()),
        };
        if !is_down {
            continue;
        }
        let used = if scene.has_job() { Use::Unknown } else { Use::Alone };
        let mut draft = graded(scene, &RULE, Cause::FabricManagerDown, Proof::Broken, used, title.clone());
        let said = service.errors.last();
        if service.active.is_some() || said.is_none() {
            let text = service
                .active
                .as_deref()
                .map_or(title, |a| format!("{}: {a} {}", service.name, service.detail));
            draft = draft.cite(observation.cite, SourceKind::GpuServices, text.trim());
        }
        if let Some((line, _, text)) = said {
            draft = draft.cite(
                Cite { line: *line, ..observation.cite },
                SourceKind::GpuServices,
                text.to_string(),
            );
        }
        return Some(draft);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;

    #[test]
    fn cuda_says_so() {
        StagedCase::new()
            .raised(Some(0), "RuntimeError", "CUDA error: system not yet initialized", &[])
            .expect(&RULE, &["fabric-manager-down 0"]);
    }

    fn fabric(state: &str, status: &str) -> Vec<ringleader_model::GpuRow> {
        gpus(8, |_, row| {
            row.fabric_state = Some(state.into());
            row.fabric_status = Some(status.into());
        })
    }

    #[test]
    fn gpus_have_not_joined_the_fabric() {
        StagedCase::new().shows(fabric("In Progress", "N/A")).expect(&RULE, &["fabric-manager-down"]);
        let job = StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        job.shows(fabric("Not Started", "N/A")).expect(&RULE, &["fabric-manager-down 0-1"]);
        StagedCase::new()
            .shows(fabric("Completed", "Insufficient Resources"))
            .expect(&RULE, &["fabric-manager-down"]);
        StagedCase::new().shows(fabric("Completed", "Success")).silent(&RULE);
        StagedCase::new().shows(fabric("Not Supported", "N/A")).silent(&RULE);
    }

    #[test]
    fn the_service_failed() {
        let said = "fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with driver version 550.120.";
        let failed = || StagedCase::new().service("nvidia-fabricmanager", "failed", &[said]);
        failed().expect(&RULE, &["fabric-manager-down"]);
        // In a virtual machine it runs on the host; on a machine without switches it ends.
        failed().shows(fabric("Completed", "Success")).silent(&RULE);
        StagedCase::new().service("nvidia-fabricmanager", "not-found", &[]).silent(&RULE);
        StagedCase::new().service("nvidia-fabricmanager", "failed", &["NV_WARN_NOTHING_TO_DO"]).silent(&RULE);
        StagedCase::new().service("nvidia-persistenced", "failed", &["x"]).silent(&RULE);
    }

    #[test]
    fn its_own_log_says_that_it_gave_up() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let aborts = "detected number of NVSwitches don't match with any supported system topology, aborting fabric manager";
        StagedCase::new().fabric_log(BEGAN_S, &[aborts]).expect(&RULE, &["fabric-manager-down"]);
        // It went on to say other things; the GPUs have joined their fabric since; another day.
        StagedCase::new().fabric_log(BEGAN_S, &[aborts, "failed to send heartbeat"]).silent(&RULE);
        StagedCase::new().fabric_log(BEGAN_S, &[aborts]).shows(fabric("Completed", "Success")).silent(&RULE);
        StagedCase::new().two_ranks().fabric_log(BEGAN_S - 86_400, &[aborts]).silent(&RULE);
    }

    #[test]
    fn the_service_confirms_what_a_rank_says() {
        let finding = StagedCase::new()
            .raised(Some(0), "RuntimeError", "CUDA error: system not yet initialized", &[])
            .service("nvidia-fabricmanager", "inactive", &[])
            .finding(&RULE);
        assert!(finding.evidence.iter().any(|e| e.text.contains("inactive")), "{finding:#?}");
    }

    #[test]
    fn nvls_set_up_is_refused() {
        StagedCase::new()
            .process("node0", 5501, None)
            .warn("transport/nvls.cc:165", "Cuda failure 'invalid argument'")
            .expect(&RULE, &["fabric-manager-down"]);
    }

    #[test]
    fn the_same_words_from_elsewhere() {
        StagedCase::new()
            .process("node0", 5501, None)
            .warn("enqueue.cc:165", "Cuda failure 'invalid argument'")
            .silent(&RULE);
    }

    #[test]
    fn want_of_multicast_memory() {
        StagedCase::new()
            .process("node0", 5501, None)
            .warn("transport/nvls.cc:165", "Cuda failure 2 'out of memory'")
            .silent(&RULE);
    }
}
