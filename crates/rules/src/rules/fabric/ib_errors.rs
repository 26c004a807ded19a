//! # What it shows
//!
//! A transfer failed for a reason other than silence of the peer: a refused access, a receiver that did not post, a
//! fatal event of the NIC.
//!
//! # Why it happens
//!
//! The peer's process died or freed its memory in the middle, a NIC or its firmware failed, the link runs with
//! errors.
//!
//! # Evidence
//!
//! Completions with status 2, 4, 9, 10, 11 or 13, fatal events of queues.
//!
//! # What looks like it but is not
//!
//! Status 5 is a flush after an earlier error and says nothing. Status 12 is silence (ib-gid-or-roce-config,
//! ib-link-down). A peer that ended first explains status 10 and 13.
//!
//! # What to do
//!
//! Look for a process that ended first; then at the counters of both NICs.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net_ib*; verbs enum ibv_wc_status.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ib-errors",
    title: "errors on an InfiniBand or RoCE path",
    since: "0.1",
    doc: include_str!("ib_errors.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::IbErrors) else { return Outcome::Clear };
    let title = format!("{who}: transfers over InfiniBand or RoCE fail", who = told.who());
    let draft = told
        .draft(&RULE, Cause::IbErrors, title)
        .advise_command(
            Impact::Harmless,
            "see whether errors of the port grow",
            "perfquery -x; grep . /sys/class/infiniband/*/ports/1/hw_counters/*err* 2>/dev/null",
        )
        .advise(Impact::Harmless, "look at the rank on the other end for an earlier failure");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn receiver_not_ready() {
        Stage::new().process("n", 1, Some(1)).warn("transport/net_ib.cc:1", "NET/IB: Got completion from peer 10.0.0.2<4> with status=13 opcode=0 len=0 vendor err 135 (Send)").expect(&RULE, &["ib-errors 1"]);
    }

    #[test]
    fn flushes_are_echoes() {
        Stage::new().process("n", 1, Some(1)).warn("transport/net_ib.cc:1", "NET/IB: Got completion from peer 10.0.0.2<4> with status=5 opcode=0 len=0 vendor err 249 (Send)").silent(&RULE);
    }
}
