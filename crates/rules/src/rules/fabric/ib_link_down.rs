//! # What it shows
//!
//! A NIC reported to NCCL that its port went down, or NCCL gave up the NIC. Transfers over it then run out of retries
//! on both ends.
//!
//! # Why it happens
//!
//! A cable, a transceiver, a switch port, a restart of the switch or of the subnet manager; a link that flaps.
//!
//! # Evidence
//!
//! `Got async event : port error` and its later forms, on the node that owns the port.
//!
//! # What looks like it but is not
//!
//! `status 12 / vendor err 129` alone says only that no answer came: the port may be fine and the GID wrong. `port
//! active`, `GID table changed` and `client re-registration` are not failures. A port that had recovered for longer
//! than connections wait (16 minutes) before the first failure is not the cause.
//!
//! # What to do
//!
//! Look at the port and its counters on the named node; several nodes at once point at the switch.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net_ib*; verbs ibv_get_async_event, IBV_EVENT_PORT_ERR.

use ringleader_knowledge::remedy;
use ringleader_model::{Cause, Impact, Severity};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::kernel::link_down;
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ib-link-down",
    title: "an InfiniBand or RoCE port went down",
    since: "0.1",
    doc: include_str!("ib_link_down.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let by_kernel = link_down(scene, &RULE, Cause::IbLinkDown, true);
    let draft = match ClaimsOfCause::of(scene, Cause::IbLinkDown) {
        Some(told) => {
            let title = format!("an InfiniBand or RoCE port failed at {who}", who = told.who());
            let confirmed = by_kernel.and_then(Draft::build).filter(|f| f.severity == Severity::Error);
            told.draft(&RULE, Cause::IbLinkDown, title)
                .evidence(confirmed.into_iter().flat_map(|f| f.evidence).take(3))
        }
        None => match by_kernel {
            Some(draft) => draft,
            None => return Outcome::Clear,
        },
    };
    let draft = draft
        .advise_command(
            Impact::Harmless,
            "look at port state and error counters on these nodes",
            "ibstat; ibv_devinfo -v | grep -E \"hca_id|state\"; perfquery -x",
        )
        .advise_command(
            Impact::Harmless,
            "check when the link changed",
            remedy::SHOW_LINK_CHANGES,
        )
        .advise(Impact::Disruptive, "reseat or replace cable and transceiver; keep the node out of jobs until the counters stop increasing");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn old_form() {
        StagedCase::new()
            .process("node2", 60413, None)
            .warn("transport/net_ib.cc:94", "NET/IB : Got async event : port error")
            .expect(&RULE, &["ib-link-down"]);
    }

    #[test]
    fn new_form() {
        StagedCase::new()
            .process("node2", 60413, Some(5))
            .warn("transport/net_ib/common.cc:94", "NET/IB : mlx5_3:1 async fatal event: port error")
            .expect(&RULE, &["ib-link-down 5"]);
    }

    #[test]
    fn a_harmless_event() {
        StagedCase::new()
            .process("node2", 60413, Some(5))
            .warn(
                "transport/net_ib/common.cc:94",
                "NET/IB : mlx5_3:1 Got non-fatal async event: port active(10)",
            )
            .silent(&RULE);
    }

    #[test]
    fn retries_alone() {
        StagedCase::new()
            .process("node2", 60413, Some(5))
            .warn(
                "transport/net_ib.cc:839",
                "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
            )
            .silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        use ringleader_correlate::staging::kernel::BEGAN_S;
        let down = |stage: StagedCase, name: &str| stage.link_state(name, "down", true);
        down(StagedCase::new(), "mlx5_5").expect(&RULE, &["ib-link-down"]);
        let job = || {
            let stage = StagedCase::new().two_ranks().about(|p| p.ib_devices = Some("[0]mlx5_5:1/IB".into()));
            stage.raised(Some(0), "RuntimeError", "boom", &[])
        };
        down(job(), "mlx5_5").at_s(BEGAN_S + 60).expect(&RULE, &["ib-link-down"]);
        // Another card of the machine.
        down(job(), "mlx5_7").at_s(BEGAN_S + 60).silent(&RULE);
        // Before the job.
        down(job(), "mlx5_5").at_s(BEGAN_S - 7_200).silent(&RULE);
    }
}
