//! # What it shows
//!
//! Two ranks are in the same collective with different sizes, or choose different algorithms for it. NCCL does not
//! compare calls; over sockets and InfiniBand the difference shows as a length that does not fit.
//!
//! # Why it happens
//!
//! A tensor whose size depends on the rank or its data; one rank that is a call ahead of the others; settings that
//! differ between ranks.
//!
//! # Evidence
//!
//! `message truncated : receiving N bytes instead of M` (sockets), `collective mismatch error` (InfiniBand up to
//! 2.19.4), completion status 1.
//!
//! # What looks like it but is not
//!
//! `Message truncated` of the bootstrap means mixed versions.
//!
//! # What to do
//!
//! Compare count, type and name of the last calls of both ranks.
//!
//! # References
//!
//! NVIDIA/nccl src/transport/net_socket.cc (2.27.3), src/transport/net_ib.cc.

use ringleader_model::{Cause, Impact, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "wire-size-mismatch",
    title: "the ends of a transfer disagree on its size",
    since: "0.1",
    doc: include_str!("wire_size_mismatch.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = ClaimsOfCause::of(scene, Cause::ShapeMismatch) else { return Outcome::Clear };
    let title = format!("{who}: the two ends of a transfer disagree on its size", who = told.who());
    let draft = told
        .draft(&RULE, Cause::ShapeMismatch, title)
        .advise_command(
            Impact::Harmless,
            "run again with calls logged, then compare the last calls of both ranks",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=/tmp/nccl.%h.%p torchrun …",
        )
        .advise_command(
            Impact::Harmless,
            "or let torch compare them before each call (slow)",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        );
    // Either end may say so, and any two calls that differ look like this on the wire; where the calls were recorded, the
    // records show what differs and whose call is the odd one.
    let is_recorded = !scene.mismatches().is_empty();
    found(if is_recorded { draft.weight(Weight::Symptom) } else { draft })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn over_sockets() {
        StagedCase::new().process("n", 1, Some(1)).warn("transport/net_socket.cc:500", "NET/Socket : peer 10.0.0.2<4> message truncated : receiving 4096 bytes instead of 2048. If you believe your socket network is in a healthy state, there may be a mismatch").expect(&RULE, &["shape-mismatch 1"]);
    }

    #[test]
    fn the_bootstrap_is_another_thing() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("bootstrap.cc:500", "Message truncated : received 8 bytes instead of 4")
            .silent(&RULE);
    }
}
