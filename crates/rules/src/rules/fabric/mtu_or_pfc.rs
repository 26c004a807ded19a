//! # What it shows
//!
//! The network refuses packets of the size that this host sends.
//!
//! # Why it happens
//!
//! Jumbo frames on the host but not on a switch or a tunnel in between.
//!
//! # Evidence
//!
//! `Message too long` from a socket call.
//!
//! # What looks like it but is not
//!
//! A path that drops large packets silently shows as a timeout without this text.
//!
//! # What to do
//!
//! Make the MTU equal along the path.
//!
//! # References
//!
//! Linux errno 90, EMSGSIZE.

use ringleader_model::{Cause, Impact};

use crate::rule::{Outcome, Rule};
use crate::told::{Told, found};
use ringleader_correlate::Scene;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "mtu-or-pfc",
    title: "packets too long for the path",
    since: "0.1",
    doc: include_str!("mtu_or_pfc.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, Cause::MtuOrPfc) else { return Outcome::Clear };
    let title = format!("{who}: packets are longer than the path takes", who = told.who());
    let draft = told
        .draft(&RULE, Cause::MtuOrPfc, title)
        .advise_command(
            Impact::Harmless,
            "find the largest packet that passes",
            "ping -M do -s 8972 <peer>; ip link show",
        )
        .advise_command(
            Impact::Disruptive,
            "set one MTU on all hosts and switches of the path",
            "ip link set dev <interface> mtu 1500",
        );
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{Stage, Trial as _};

    #[test]
    fn the_socket_says_so() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "misc/socket.cc:1",
                "socketProgressOpt: Call to send to 10.0.0.2<4> failed : Message too long",
            )
            .expect(&RULE, &["mtu-or-pfc 1"]);
    }

    #[test]
    fn a_reset_is_another_thing() {
        Stage::new()
            .process("n", 1, Some(1))
            .warn(
                "misc/socket.cc:1",
                "socketProgressOpt: Call to send to 10.0.0.2<4> failed : Connection reset by peer",
            )
            .silent(&RULE);
    }
}
