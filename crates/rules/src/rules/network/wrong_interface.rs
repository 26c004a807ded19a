//! # What it shows
//!
//! NCCL or gloo uses a network interface over which the peers cannot be reached, or finds none.
//!
//! # Why it happens
//!
//! NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this host lacks; without them the first one is
//! taken, which may be a bridge of containers; the host's own name resolves to loopback.
//!
//! # Evidence
//!
//! `no socket interface found`; gloo that falls back to loopback and then cannot connect to 127.x on another host;
//! a bootstrap address on loopback or a container bridge while other hosts use a real one; a host that finds none of the
//! devices of `NCCL_IB_HCA` where another one uses them.
//!
//! # What looks like it but is not
//!
//! Gloo's fall-back to loopback is harmless on one node. Different subnets on different hosts are normal in routed
//! networks.
//!
//! # What to do
//!
//! Name the interface that reaches the peers, on every host.
//!
//! # References
//!
//! NVIDIA/nccl src/bootstrap.cc, src/misc/socket.cc; gloo transport/tcp/device.cc; pytorch/pytorch
//! torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.

use std::collections::BTreeSet;

use ringleader_knowledge::interface::is_of_host;
use ringleader_knowledge::wording::{self, OnLoopback};
use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Finding, GlooEvent, Impact, NcclMessage, NcclProcess, Socket,
    SourceKind, TorchEvent, Weight,
};

use crate::drafting;
use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::{Scene, TorchStatement};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "wrong-interface",
    title: "an interface that does not reach the peers",
    since: "0.1",
    doc: include_str!("wrong_interface.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(told) = ClaimsOfCause::of(scene, Cause::WrongInterface) {
        let title = match interface_setting(scene) {
            Some(value) => format!("{} has no interface {value} (NCCL_SOCKET_IFNAME)", told.who()),
            None => format!("{} found no usable network interface", told.who()),
        };
        findings.extend(drafting::advise_interface(told.draft(&RULE, Cause::WrongInterface, title)).build());
    }
    if findings.is_empty() {
        findings.extend(gloo_on_loopback(scene));
    }
    if findings.is_empty() && !scene.got_going([]) {
        findings.extend(bootstrap_on_local_interface(scene));
    }
    if findings.is_empty() {
        findings.extend(interface_of_one_host(scene));
    }
    if findings.is_empty() && scene.has_failed() {
        findings.extend(devices_of_one_host(scene));
    }
    Outcome::from_findings(findings)
}

/// Hosts on which NCCL found none of the devices of `NCCL_IB_HCA` and fell back to sockets, while another host uses those of the
/// same list: names and cables differ among hosts, and one list was given to all.
fn devices_of_one_host(scene: &Scene<'_>) -> Option<Finding> {
    let all: Vec<(&NcclProcess, &str)> = scene
        .nccl_logs()
        .flat_map(|(_, log)| {
            let named = log.settings.iter().filter(|s| &*s.name == "NCCL_IB_HCA");
            named.filter_map(|s| Some((log.processes.get(s.process as usize)?, s.value.trim())))
        })
        .filter(|(_, devices)| !devices.is_empty() && !devices.starts_with('^'))
        .collect();
    let is_without = |process: &NcclProcess| process.socket_devices.is_some() && process.ib_devices.is_none();
    let (without, with): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|(p, _)| p.who.host.is_some() && (is_without(p) || p.ib_devices.is_some()))
        .partition(|(p, _)| is_without(p));
    let uses = |lost: &(&NcclProcess, &str)| {
        with.iter().copied().find(|(p, devices)| *devices == lost.1 && p.who.host != lost.0.who.host)
    };
    let (used, _) = without.iter().find_map(uses)?;
    let culprits = without.iter().filter(|lost| uses(lost).is_some()).fold(Vec::new(), |mut all, (p, _)| {
        add_culprit(&mut all, scene.culprit(&p.who));
        all
    });
    let cited = |process: &NcclProcess, text: String| {
        Some(Evidence { cite: process.devices_at.or(process.first)?, text, kind: SourceKind::NcclLog })
    };
    let lost = without.iter().filter_map(|(p, _)| cited(p, "no device; sockets are used".to_owned()));
    let found = cited(used, format!("Using {}", used.ib_devices.as_deref().unwrap_or_default()));
    Draft::new(
        RULE.id,
        Cause::WrongInterface,
        format!("{} has none of the devices of NCCL_IB_HCA that its peer uses", who(&culprits)),
    )
    .weight(Weight::Stated)
    .confidence(Confidence::Medium)
    .culprits(culprits)
    .evidence(lost.take(2).chain(found))
    .advise_command(Impact::Harmless, "compare which ports are up on each host", "ibdev2netdev; ip -br addr")
    .advise_command(
        Impact::Harmless,
        "set the list on each host by its own ports, or leave it to NCCL",
        "unset NCCL_IB_HCA",
    )
    .build()
}

/// What the failing process was set to use.
fn interface_setting<'a>(scene: &Scene<'a>) -> Option<&'a str> {
    let mut values = scene.nccl_logs().flat_map(|(_, log)| {
        let failed = |process: u32| {
            log.messages.iter().any(|m| m.process == process && wording::lacks_interface(&m.text))
        };
        log.settings
            .iter()
            .filter(move |s| &*s.name == "NCCL_SOCKET_IFNAME" && failed(s.process))
            .map(|s| &*s.value)
    });
    values.next()
}

/// Gloo took loopback for want of a name that resolves, and then could not reach a peer there.
fn gloo_on_loopback(scene: &Scene<'_>) -> Option<Finding> {
    let fell_back = |s: &TorchStatement<'_>| {
        matches!(s.event, TorchEvent::Gloo(GlooEvent::LoopbackFallback))
            || wording::falls_back_to_loopback(&s.observation.text)
    };
    let fall_backs: Vec<TorchStatement<'_>> = scene.statements().filter(fell_back).collect();
    let failed = scene.statements().filter_map(|s| Some((s, wording::failed_on_loopback(gloo_text(&s)?)?)));
    let mut failed: Vec<(TorchStatement<'_>, OnLoopback)> = failed.collect();
    if failed.is_empty() && !fall_backs.is_empty() {
        // Whoever fell back offers its loopback address; peers elsewhere fail on it without naming it.
        let is_mesh = |s: &TorchStatement<'_>| gloo_text(s).is_some_and(wording::fails_to_mesh);
        failed = scene.statements().filter(is_mesh).map(|s| (s, OnLoopback { is_own_name: false })).collect();
    }
    if failed.is_empty() {
        return None;
    }
    // A peer that offers the address of its own name is misnamed on any number of hosts.
    let own_name = failed.iter().any(|(_, loopback)| loopback.is_own_name);
    let refused: Vec<TorchStatement<'_>> = failed.into_iter().map(|(s, _)| s).collect();
    if fall_backs.is_empty() && !own_name && hosts(scene) < 2 {
        return None;
    }
    let mut culprits: Vec<Culprit> = Vec::new();
    for s in fall_backs.iter().chain(&refused).filter(|s| !s.who().is_nobody()) {
        add_culprit(&mut culprits, scene.culprit(s.who()));
    }
    let title =
        format!("{}: gloo uses the loopback interface, where no other host can be reached", who(&culprits));
    let draft = Draft::new(RULE.id, Cause::WrongInterface, title)
        .weight(Weight::Stated)
        .confidence(if fall_backs.is_empty() { Confidence::Medium } else { Confidence::High })
        .culprits(culprits)
        .evidence(fall_backs.iter().take(2).chain(refused.iter().take(2)).map(TorchStatement::evidence));
    drafting::advise_interface(draft).build()
}

fn gloo_text<'a>(statement: &TorchStatement<'a>) -> Option<&'a str> {
    let text = match statement.event {
        TorchEvent::Gloo(GlooEvent::ConnectFailed { text, .. } | GlooEvent::Other { text }) => text,
        TorchEvent::ErrorLine { text } => text,
        TorchEvent::Exception(exception) => &exception.message,
        _ => return None,
    };
    let printed = &*statement.observation.text;
    Some(if printed.len() > text.len() { printed } else { text })
}

fn hosts(scene: &Scene<'_>) -> usize {
    scene.roster().members.iter().filter_map(|m| m.host.as_ref()).collect::<BTreeSet<_>>().len()
}

/// One host's bootstrap is on an interface that leads nowhere while another's is on a real one.
fn bootstrap_on_local_interface(scene: &Scene<'_>) -> Option<Finding> {
    let processes: Vec<&NcclProcess> = scene.nccl_logs().flat_map(|(_, log)| &log.processes).collect();
    let with_address: Vec<(&NcclProcess, &str)> =
        processes.iter().filter_map(|p| p.bootstrap.as_deref().map(|b| (*p, b))).collect();
    let n_hosts = with_address.iter().filter_map(|(p, _)| p.who.host.as_ref()).collect::<BTreeSet<_>>().len();
    let is_local = |p: &NcclProcess| {
        p.meets_at().is_some_and(|socket| is_of_host(socket.interface) || socket.is_loopback())
    };
    let odd: Vec<&(&NcclProcess, &str)> = with_address.iter().filter(|(p, _)| is_local(p)).collect();
    if n_hosts < 2 || odd.is_empty() {
        return None;
    }
    let culprits: Vec<Culprit> = odd.iter().fold(Vec::new(), |mut all, (p, _)| {
        add_culprit(&mut all, scene.culprit(&p.who));
        all
    });
    let title = format!("{}: NCCL's bootstrap is on an interface that reaches no other host", who(&culprits));
    let evidence = odd.iter().take(4).filter_map(|(p, b)| {
        Some(Evidence { cite: p.first?, text: format!("Bootstrap : Using {b}"), kind: SourceKind::NcclLog })
    });
    let draft = Draft::new(RULE.id, Cause::WrongInterface, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence);
    drafting::advise_interface(draft).build()
}

/// One host offers an interface besides those of the others, and a peer on another host fails to connect to its address: a filter
/// of names takes all interfaces that begin so.
fn interface_of_one_host(scene: &Scene<'_>) -> Option<Finding> {
    let logs = || scene.nccl_logs().map(|(_, log)| log);
    let processes = || logs().flat_map(|log| &log.processes).filter(|p| p.sockets().next().is_some());
    for process in processes().filter(|p| p.who.host.is_some() && p.sockets().count() > 1) {
        let is_elsewhere =
            |other: &&NcclProcess| other.who.host.is_some() && other.who.host != process.who.host;
        let others: Vec<&NcclProcess> = processes().filter(is_elsewhere).collect();
        for Socket { interface: name, address } in process.sockets() {
            if others.is_empty()
                || others.iter().any(|other| other.sockets().any(|theirs| theirs.interface == name))
            {
                continue;
            }
            let refused = logs().find_map(|log| {
                let by_other =
                    |m: &NcclMessage| log.processes.get(m.process as usize).is_some_and(|p| is_elsewhere(&p));
                log.messages
                    .iter()
                    .filter(|m| m.is_warn && by_other(m))
                    .find(|m| wording::cannot_connect(&m.text) == Some(address))
            });
            let Some(refused) = refused else { continue };
            let culprit = scene.culprit(&process.who);
            let title = format!(
                "{}: its interface {name} does not reach the other hosts",
                who(std::slice::from_ref(&culprit))
            );
            let devices = process.socket_devices.as_deref().unwrap_or_default();
            let offer = process.first.map(|cite| Evidence {
                cite,
                text: format!("NET/Socket : Using {devices}"),
                kind: SourceKind::NcclLog,
            });
            let answer =
                Evidence { cite: refused.cite, text: refused.text.to_string(), kind: SourceKind::NcclLog };
            let draft = Draft::new(RULE.id, Cause::WrongInterface, title)
                .weight(Weight::Stated)
                .confidence(Confidence::High)
                .culprits([culprit])
                .evidence(offer.into_iter().chain([answer]))
                .advise_command(
                    Impact::Harmless,
                    "a name in this variable fits all interfaces that begin so: ask for the exact one",
                    "NCCL_SOCKET_IFNAME==<interface>",
                );
            return drafting::advise_interface(draft).build();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn no_interface_of_that_name() {
        let stage = StagedCase::new()
            .process("node2", 3173, Some(2))
            .setting("NCCL_SOCKET_IFNAME", "ib0")
            .warn("bootstrap.cc:114", "Bootstrap : no socket interface found");
        stage.expect(&RULE, &["wrong-interface 2"]);
        assert!(stage.finding(&RULE).title.contains("ib0"));
    }

    #[test]
    fn devices_that_are_up_on_one_host_only() {
        let job = |second: &str, fails: bool| {
            let of = |stage: StagedCase, host: &str, pid, rank, devices: Option<&'static str>, hca: &str| {
                let stage = stage.process(host, pid, Some(rank)).about(|p| match devices {
                    Some(devices) => p.ib_devices = Some(devices.into()),
                    None => p.socket_devices = Some("[0]eth0:10.0.0.2<0>".into()),
                });
                stage.setting("NCCL_IB_HCA", hca)
            };
            let stage = of(StagedCase::new(), "node0", 7, 0, Some("[0]rocep1s0f0:1/RoCE"), "rocep1s0f0");
            let stage = of(stage, "node1", 8, 1, None, second);
            if fails { stage.failed(1, 1, true) } else { stage }
        };
        job("rocep1s0f0", true).expect(&RULE, &["wrong-interface 1"]);
        // It has a list of its own; nothing failed.
        job("rocep1s0f1", true).silent(&RULE);
        job("rocep1s0f0", false).silent(&RULE);
    }

    #[test]
    fn gloo_falls_back_to_loopback_and_fails() {
        let failed = super::GlooEvent::ConnectFailed {
            remote: "[127.0.0.1]:20733".into(),
            text: "Gloo connectFullMesh failed ... timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:20733".into(),
        };
        StagedCase::new()
            .gloo(
                Some(8),
                super::GlooEvent::LoopbackFallback,
                "Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
            )
            .gloo(Some(8), failed, "")
            .expect(&RULE, &["wrong-interface 8"]);
    }

    #[test]
    fn the_fall_back_alone_is_harmless() {
        StagedCase::new()
            .gloo(Some(0), super::GlooEvent::LoopbackFallback, "Using the loopback address as fallback.")
            .silent(&RULE);
    }

    #[test]
    fn a_bridge_of_containers_while_another_host_is_on_a_real_interface() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .about(|p| p.bootstrap = Some("eth0:10.0.0.1<0>".into()))
            .process("node1", 1, Some(1))
            .about(|p| p.bootstrap = Some("docker0:172.17.0.1<0>".into()))
            .expect(&RULE, &["wrong-interface 1"]);
    }

    #[test]
    fn an_interface_that_one_host_alone_offers() {
        let uses = |stage: StagedCase, host: &str, rank: u32, devices: &str| {
            stage.process(host, 1, Some(rank)).about(|p| p.socket_devices = Some(devices.into()))
        };
        let two = "[0]bond0:192.168.42.7<0> [1]bond0.29:10.0.106.189<0>";
        let job = |devices: &str, address: &str| {
            let stage = uses(uses(StagedCase::new(), "node1", 1, two), "node0", 0, devices);
            stage.warn(
                "include/socket.h:390",
                &format!("Connect to {address}<44217> failed : Connection timed out"),
            )
        };
        job("[0]bond0:192.168.42.5<0>", "10.0.106.189").expect(&RULE, &["wrong-interface 1"]);
        // It fails elsewhere, or each host has both.
        job("[0]bond0:192.168.42.5<0>", "192.168.42.7").silent(&RULE);
        job("[0]bond0:192.168.42.5<0> [1]bond0.29:10.0.106.188<0>", "10.0.106.189").silent(&RULE);
    }

    #[test]
    fn loopback_on_one_host_is_enough_for_it() {
        StagedCase::new()
            .process("node0", 1, Some(0))
            .about(|p| p.bootstrap = Some("lo:127.0.0.1<0>".into()))
            .silent(&RULE);
    }
}
