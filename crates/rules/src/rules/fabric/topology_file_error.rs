//! # What it shows
//!
//! NCCL was given a description of the hardware or of its rings and cannot use it.
//!
//! # Why it happens
//!
//! A file for another machine type, cut off, of another version, or a path that is not in the container.
//!
//! # Evidence
//!
//! XML messages of NCCL (`XML Parse`, `Could not open XML`, `has wrong version`).
//!
//! # What looks like it but is not
//!
//! INFO lines about sysfs files that could not be read are harmless.
//!
//! # What to do
//!
//! Unset the variable; most machines need no file.
//!
//! # References
//!
//! NVIDIA/nccl src/graph/xml.cc; user guide NCCL_TOPO_FILE, NCCL_GRAPH_FILE.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "topology-file-error",
    title: "a topology XML is wrong",
    since: "0.1",
    doc: include_str!("topology_file_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::TopologyFileError) else { return Outcome::Clear };
    let title = format!("{who}: a topology or graph XML cannot be used", who = told.who());
    let draft = told
        .draft(&RULE, Cause::TopologyFileError, title)
        .advise_command(Impact::Disruptive, "run without the file", "unset NCCL_TOPO_FILE NCCL_GRAPH_FILE")
        .advise_command(
            Impact::Harmless,
            "see what NCCL detects by itself",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn cut_off() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("graph/xml.cc:20", "XML Parse : Unexpected EOF")
            .expect(&RULE, &["topology-file-error 1"]);
    }

    #[test]
    fn a_sysfs_file_that_is_missing() {
        Stage::new()
            .process("n", 1, Some(1))
            .info("Topology detection : could not read /sys/devices/max_link_speed, ignoring")
            .silent(&RULE);
    }
}
