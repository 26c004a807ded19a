//! # What it shows
//!
//! Two NICs that NCCL joins cannot reach each other: they are on different rails or subnets, or packets leave
//! through another NIC.
//!
//! # Why it happens
//!
//! Rail-only fabrics without a spine, overlapping subnets on one host, a missing route for RoCE.
//!
//! # Evidence
//!
//! `ibv_modify_qp failed with 110` whose local and remote GID are in different subnets; `No route to host` from
//! verbs.
//!
//! # What looks like it but is not
//!
//! Equal subnets point at GID index or RoCE settings (ib-gid-or-roce-config).
//!
//! # What to do
//!
//! Keep each ring on its own rail, or route between the rails.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/ibvwrap.cc (GIDs printed since 2.24.3); user guide NCCL_CROSS_NIC.

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Confidence, Impact, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::said::gid;

use super::paths::{has_no_path, is_within_host};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "routing-or-rail",
    title: "no path between two NICs",
    since: "0.1",
    doc: include_str!("routing_or_rail.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let claims = scene
        .claims()
        .of(Cause::RoutingOrRail)
        .chain(scene.claims().of(Cause::IbGidOrRoceConfig).filter(|c| has_no_path(scene, c)))
        .collect();
    let Some(told) = ClaimsOfCause::from(scene, claims) else { return Outcome::Clear };
    let pair = told.claims().iter().find_map(|c| wording::gids(&c.text));
    let is_within = told.claims().iter().any(|c| is_within_host(scene, c));
    let title = match pair {
        _ if is_within => format!("{}: NICs of its own host do not reach each other", told.who()),
        Some((local, remote)) => {
            format!("{}: no path from NIC {} to {}", told.who(), gid::shown(local), gid::shown(remote))
        }
        None => format!("{}: no route from its NIC to that of a peer", told.who()),
    };
    let draft = told
        .draft(&RULE, Cause::RoutingOrRail, title)
        // The GIDs themselves show two subnets: that is more than a hint.
        .weight(Weight::Stated)
        .confidence(Confidence::High)
        .advise_command(
            Impact::Harmless,
            "test the path between these two NICs",
            "ib_write_bw -d <device> -x <gid index> on both hosts; ping -I <interface> <address>",
        );
    let draft = if is_within {
        draft.advise_command(
            Impact::Harmless,
            "keep traffic within the host off the network",
            "NCCL_NET_DISABLE_INTRA=1",
        )
    } else {
        draft
    };
    let draft = if scene.reads_variable("NCCL_CROSS_NIC") {
        draft.advise_command(Impact::Harmless, "keep every ring on one rail", "NCCL_CROSS_NIC=0")
    } else {
        draft
    };
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const TEXT: &str = "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_5:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.20.5.13, remote GID ";

    #[test]
    fn gids_of_two_subnets() {
        let stage = StagedCase::new()
            .process("node3", 1, Some(5))
            .warn("ibvwrap.c:262", &format!("{TEXT}::ffff:10.20.2.11"));
        stage.expect(&RULE, &["routing-or-rail 5"]);
        assert!(stage.finding(&RULE).title.contains("10.20.5.13"));
    }

    #[test]
    fn a_peer_on_the_own_host() {
        let text = "NET/IB : Got completion from peer 10.0.0.3<54800> with status=12 opcode=0 len=0 vendor err 129 (Recv)";
        let from = |node: u32| {
            let address = format!("eth0:10.0.0.{node}<0>");
            let stage =
                StagedCase::new().process("node3", 1, Some(5)).about(|p| p.bootstrap = Some(address.into()));
            stage.warn("net_ib.cc:1615", text)
        };
        from(3).expect(&RULE, &["routing-or-rail 5"]);
        from(4).silent(&RULE);
    }

    #[test]
    fn one_subnet_is_another_thing() {
        StagedCase::new()
            .process("node3", 1, Some(5))
            .warn("ibvwrap.c:262", &format!("{TEXT}::ffff:10.20.5.11"))
            .silent(&RULE);
    }
}
