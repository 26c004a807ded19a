//! # What it shows
//!
//! NCCL was to use a network plugin (EFA, SHARP, a cloud's own) and the plugin does not work.
//!
//! # Why it happens
//!
//! The plugin's library or its provider is missing or of another version; the devices are not in the container;
//! limits are too low.
//!
//! # Evidence
//!
//! Messages of `NET/OFI` or libfabric, `Failed to initialize any NET plugin`.
//!
//! # What looks like it but is not
//!
//! `NET/Plugin: Could not find: libnccl-net.so` only says that no plugin is installed. A network name that NCCL
//! does not know is nccl-env-misconfigured.
//!
//! # What to do
//!
//! Check the plugin's own requirements; run without it to confirm.
//!
//! # References
//!
//! NVIDIA/nccl src/plugin/net.cc; aws/aws-ofi-nccl.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "net-plugin-error",
    title: "the network plugin fails",
    since: "0.1",
    doc: include_str!("net_plugin_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::NetPluginError) else { return Outcome::Clear };
    let title = format!("{who}: the network plugin of NCCL fails", who = told.who());
    let draft = told
        .draft(&RULE, Cause::NetPluginError, title)
        .advise_command(
            Impact::Harmless,
            "see which provider and devices are there",
            "fi_info -p efa 2>&1 | head; ls /dev/infiniband; ldconfig -p | grep nccl-net",
        )
        .advise_command(
            Impact::Disruptive,
            "run without the plugin to confirm (slower)",
            "NCCL_NET_PLUGIN=none",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn libfabric_fails() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("", "NET/OFI Request completed with error. RC: 5. Error: unreachable remote")
            .expect(&RULE, &["net-plugin-error 1"]);
    }

    #[test]
    fn no_plugin_starts() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn("plugin/net.cc:250", "Failed to initialize any NET plugin")
            .expect(&RULE, &["net-plugin-error 1"]);
    }

    #[test]
    fn an_absent_plugin_is_harmless() {
        Stage::new()
            .process("n", 1, Some(1))
            .info("NET/Plugin: Could not find: libnccl-net.so")
            .silent(&RULE);
    }
}
