//! # What it shows
//!
//! Queue pairs are made but no packet arrives at the peer, or they cannot be made.
//!
//! # Why it happens
//!
//! RoCE with the GID of the wrong kind (v1, link-local, another VLAN), traffic class or priority that the switches
//! drop, NICs of two link types.
//!
//! # Evidence
//!
//! `error 12` / `status=12`, vendor err 129, on both ends and from the first transfer on; `ibv_modify_qp failed`
//! within one subnet; different link layers.
//!
//! # What looks like it but is not
//!
//! The same completion in a job that had run well means that the peer or a link went away. A port that reports an
//! error is ib-link-down; two subnets are routing-or-rail.
//!
//! # What to do
//!
//! Choose the RoCE v2 GID of the right address, then test the path with perftest.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net_ib*, src/misc/ibvwrap.cc; verbs IBV_WC_RETRY_EXC_ERR.

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Confidence, Impact, NcclProcess, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

use super::paths::{has_no_path, was_running};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ib-gid-or-roce-config",
    title: "wrong GID index or RoCE settings",
    since: "0.1",
    doc: include_str!("ib_gid_or_roce_config.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let claims = scene.claims().of(Cause::IbGidOrRoceConfig);
    let claims = claims.filter(|c| !has_no_path(scene, c)).collect();
    let Some(told) = ClaimsOfCause::from(scene, claims) else { return Outcome::Clear };
    let only_retries = told.claims().iter().all(|c| wording::is_completion(&c.text));
    if only_retries && (was_running(scene) || is_infiniband(scene)) {
        let draft = told
            .draft(&RULE, Cause::IbErrors, format!("{}: a peer's NIC stopped responding", told.who()))
            .weight(Weight::Symptom)
            .confidence(Confidence::Low)
            .advise(
                Impact::Harmless,
                "look first for a process or node that ended before this, then at the ports on both ends",
            )
            .advise_command(
                Impact::Harmless,
                "check whether the ports' error counters increase",
                "perfquery -x; ibstat",
            );
        return found(draft);
    }
    let title = if only_retries {
        format!("{}: the peer's NIC does not answer (retries exhausted)", told.who())
    } else {
        format!("{}: queue pairs cannot be set up (GID or RoCE settings)", told.who())
    };
    let draft = told
        .draft(&RULE, Cause::IbGidOrRoceConfig, title)
        .advise_command(
            Impact::Harmless,
            "list the GIDs of each port with their type",
            "show_gids || grep . /sys/class/infiniband/*/ports/*/gid_attrs/types/* 2>/dev/null",
        )
        .advise_command(
            Impact::Harmless,
            "on RoCE use the RoCE v2 GID of the IPv4 address, often index 3",
            "NCCL_IB_GID_INDEX=3",
        )
        .advise_command(
            Impact::Harmless,
            "test the path between the two NICs with that index",
            "ib_write_bw -d <device> -x 3",
        );
    found(draft)
}

/// All verbs ports that the logs name are of InfiniBand, which has neither RoCE versions nor an index to choose.
fn is_infiniband(scene: &Scene<'_>) -> bool {
    let processes = scene.nccl_logs().flat_map(|(_, log)| &log.processes);
    let mut ports = processes.flat_map(NcclProcess::verbs_ports).peekable();
    ports.peek().is_some() && ports.all(|port| port.is_infiniband())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const RETRIES: &str = "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129";

    #[test]
    fn retries_from_the_start() {
        StagedCase::new()
            .process("w1", 1, Some(1))
            .warn("transport/net_ib.cc:839", RETRIES)
            .expect(&RULE, &["ib-gid-or-roce-config 1"]);
    }

    #[test]
    fn queue_pairs_within_one_subnet() {
        StagedCase::new()
            .process("w1", 1, Some(1))
            .warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_5:1, local GID ::ffff:10.20.5.13, remote GID ::ffff:10.20.5.11")
            .expect(&RULE, &["ib-gid-or-roce-config 1"]);
    }

    #[test]
    fn flushes_and_other_subnets_are_other_things() {
        StagedCase::new()
            .process("w1", 1, Some(1))
            .warn("transport/net_ib.cc:839", "NET/IB : Got completion with error 5, opcode 1, len 0, vendor err 249")
            .warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with 110 Connection timed out, local GID ::ffff:10.20.5.13, remote GID ::ffff:10.20.2.11")
            .silent(&RULE);
    }
}
