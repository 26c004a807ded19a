//! # What it shows
//!
//! The GID index that NCCL was set to use is not one of RoCE v2 with an address on this host.
//!
//! # Why it happens
//!
//! GID indices differ from host to host: they shift with VLANs, IPv6 addresses and the order in which interfaces come
//! up, while NCCL_IB_GID_INDEX is one number for all hosts.
//!
//! # Evidence
//!
//! show_gids of a host of the job, and NCCL_IB_GID_INDEX in its log.
//!
//! # What looks like it but is not
//!
//! InfiniBand has one GID and needs no index. Without NCCL_IB_GID_INDEX NCCL 2.21 and later find it themselves.
//!
//! # What to do
//!
//! Unset the variable, or set the index that every host has.
//!
//! # References
//!
//! NCCL user guide, NCCL_IB_GID_INDEX, NCCL_IB_ROCE_VERSION_NUM; show_gids of NVIDIA's network drivers.

use ringleader_model::{
    Cause, Confidence, GidEntry, Impact, NetFact, Observation, Severity, SourceKind, Weight,
};

use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gid-table",
    title: "the GID index does not select a RoCE v2 address",
    since: "0.1",
    doc: include_str!("gid_table.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let rows: Vec<(&Observation, &GidEntry)> = scene
        .net()
        .filter_map(|(o, fact)| match fact {
            NetFact::Gid(entry) => Some((o, entry)),
            _ => None,
        })
        .collect();
    for (_, log) in scene.nccl_logs() {
        for setting in log.settings.iter().filter(|s| &*s.name == "NCCL_IB_GID_INDEX") {
            let (Ok(index), Some(process)) =
                (setting.value.trim().parse::<u32>(), log.processes.get(setting.process as usize))
            else {
                continue;
            };
            let mine: Vec<&(&Observation, &GidEntry)> = rows
                .iter()
                .filter(|(o, e)| {
                    let host = scene.host_of(o);
                    // A table of an unknown host among several proves nothing.
                    host.is_some()
                        && scene.may_be_on(host.as_ref(), process.who.host.as_ref())
                        && process.verbs_ports().any(|p| p.device == &*e.device && p.port == e.port)
                })
                .collect();
            let right = mine.iter().find(|(_, e)| e.is_v2 && e.ipv4.is_some());
            let chosen = mine.iter().find(|(_, e)| e.index == index);
            let Some((of_right, right)) = right.filter(|(_, e)| e.index != index) else { continue };
            if chosen.is_some_and(|(_, e)| e.is_v2 && e.ipv4.is_some()) {
                continue;
            }
            let what = match chosen {
                Some((_, e)) if !e.is_v2 => "is of RoCE v1",
                Some(_) => "is a link-local address",
                None => "does not exist",
            };
            let host = process.who.host.as_deref().unwrap_or("this host");
            let failed = scene.has_failed();
            let title = format!(
                "NCCL_IB_GID_INDEX={index} {what} on {host}; RoCE v2 with an address is {}",
                right.index
            );
            return found(
                Draft::new(RULE.id, Cause::IbGidOrRoceConfig, title)
                    .severity(if failed { Severity::Error } else { Severity::Warning })
                    .weight(if failed { Weight::Stated } else { Weight::Derived })
                    .confidence(Confidence::Medium)
                    .culprit(scene.culprit(&process.who))
                    .cite(
                        setting.cite,
                        SourceKind::NcclLog,
                        format!("NCCL_IB_GID_INDEX set to {}", setting.value),
                    )
                    .evidence(chosen.map(|(o, _)| shown(o, None, SourceKind::Network, "")))
                    .evidence([shown(of_right, None, SourceKind::Network, "")])
                    .advise_command(Impact::Harmless, "compare the tables of all hosts", "show_gids")
                    .advise_command(
                        Impact::Harmless,
                        "let NCCL choose (2.21 and later), or set the index that every host has",
                        "unset NCCL_IB_GID_INDEX",
                    ),
            );
        }
    }
    Outcome::Clear
}

#[cfg(test)]
mod tests {
    use ringleader_model::{GidEntry, NetFact};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn gid(index: u32, ipv4: Option<&str>, is_v2: bool) -> NetFact {
        NetFact::Gid(GidEntry {
            device: "mlx5_0".into(),
            port: 1,
            index,
            gid: "0000:ffff".into(),
            ipv4: ipv4.map(Into::into),
            is_v2,
            netdev: "eth2".into(),
        })
    }

    fn told(index: &str) -> StagedCase {
        StagedCase::new()
            .process("node1", 1, Some(1))
            .about(|p| p.ib_devices = Some("[0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>".into()))
            .setting("NCCL_IB_GID_INDEX", index)
            .net("node1", gid(0, None, false))
            .net("node1", gid(2, Some("192.0.2.1"), false))
            .net("node1", gid(3, Some("192.0.2.1"), true))
    }

    #[test]
    fn an_index_of_version_1() {
        told("2").concludes(&RULE, "ib-gid-or-roce-config 1, high");
        told("7").concludes(&RULE, "ib-gid-or-roce-config 1, high");
    }

    #[test]
    fn the_right_index_or_another_host() {
        told("3").silent(&RULE);
        StagedCase::new()
            .process("node1", 1, Some(1))
            .about(|p| p.ib_devices = Some("[0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>".into()))
            .setting("NCCL_IB_GID_INDEX", "2")
            .net("node9", gid(3, Some("192.0.2.1"), true))
            .silent(&RULE);
    }
}
