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
//! CUDA error 802 `system not yet initialized`; `invalid argument` out of NCCL's NVLS set-up; an IMEX service that
//! does not work between nodes.
//!
//! # What looks like it but is not
//!
//! Multicast that fails for want of resources is nvls-multicast. A machine without NVSwitch needs no Fabric
//! Manager.
//!
//! # What to do
//!
//! Check the service and its version against the driver, restart it with all GPU processes stopped, or reboot the
//! node.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 802; Fabric Manager user guide; NVIDIA/nccl src/transport/nvls.cc.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "fabric-manager-down",
    title: "the NVSwitch fabric is not ready",
    since: "0.1",
    reads: &[Input::NcclLog, Input::TorchLog],
    doc: include_str!("fabric_manager_down.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "fabric-manager-down") else { return Outcome::Clear };
    let title = format!("{who}: the NVSwitch fabric is not ready (Fabric Manager)", who = told.who());
    let draft = told
        .draft(&RULE, "fabric-manager-down", title)
        .advise_command(
            Impact::Harmless,
            "compare the service with the driver",
            "systemctl status nvidia-fabricmanager; nv-fabricmanager --version; nvidia-smi -q | grep -iA4 fabric",
        )
        .advise_command(
            Impact::Disruptive,
            "stop all GPU processes of the node, then restart the service; reboot if that does not help",
            "systemctl restart nvidia-fabricmanager",
        )
        .advise_command(
            Impact::Disruptive,
            "to run meanwhile without multicast",
            "NCCL_NVLS_ENABLE=0",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn cuda_says_so() {
        Stage::new()
            .raised(Some(0), "RuntimeError", "CUDA error: system not yet initialized", &[])
            .expect(&RULE, &["fabric-manager-down 0"]);
    }

    #[test]
    fn nvls_set_up_is_refused() {
        Stage::new()
            .process("node0", 5501, None)
            .warn("transport/nvls.cc:165", "Cuda failure 'invalid argument'")
            .expect(&RULE, &["fabric-manager-down"]);
    }

    #[test]
    fn the_same_words_from_elsewhere() {
        Stage::new()
            .process("node0", 5501, None)
            .warn("enqueue.cc:165", "Cuda failure 'invalid argument'")
            .silent(&RULE);
    }

    #[test]
    fn want_of_multicast_memory() {
        Stage::new()
            .process("node0", 5501, None)
            .warn("transport/nvls.cc:165", "Cuda failure 2 'out of memory'")
            .silent(&RULE);
    }
}
