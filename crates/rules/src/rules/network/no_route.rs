//! # What it shows
//!
//! A process could not connect to a peer, and the routing table of its host has no route there, or a dead one.
//!
//! # Why it happens
//!
//! An interface without its address, a network that only some hosts are in, a route that was never set or was taken
//! away, an interface that lost its link.
//!
//! # Evidence
//!
//! `Network is unreachable`, or `No route to host`, with the address; `ip route` of that host, in which no route covers
//! the address, or one that is `unreachable`, `blackhole`, `prohibit` or `linkdown`.
//!
//! # What looks like it but is not
//!
//! `No route to host` with a good route comes from the far side or a filter (firewall-or-port). `ip route get` and
//! `ip route show dev …` show a part of the table: that nothing covers the address counts only where the job's own kernel
//! said the same. Routes of another host.
//!
//! # What to do
//!
//! Add the missing address or route; then start again.
//!
//! # References
//!
//! ip-route(8); Linux errno 101, 113; NVIDIA/nccl src/misc/socket.cc.

use ringleader_knowledge::wording;
use ringleader_model::address;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Host, Impact, NetFact, Observation, Route, SourceId, SourceKind,
    StoreEvent, TorchEvent, Weight,
};

use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "no-route",
    title: "no route to a peer",
    since: "0.1",
    doc: include_str!("no_route.rs"),
    check,
};

/// A connection that failed.
struct Refused {
    culprit: Culprit,
    to: Ipv4Addr,
    /// ENETUNREACH: the own kernel found no route at all.
    is_unrouted: bool,
    evidence: Evidence,
}

type Routes<'a> = Vec<(&'a Observation, &'a Route)>;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut tables: BTreeMap<(Option<Host>, SourceId), Routes<'_>> = BTreeMap::new();
    for (observation, fact) in scene.net() {
        if let NetFact::Route(route) = fact {
            let key = (scene.host_of(observation), observation.cite.source);
            tables.entry(key).or_default().push((observation, route));
        }
    }
    if tables.is_empty() {
        return Outcome::Clear;
    }
    let refused = refused(scene);
    for ((host, _), table) in &tables {
        let mine: Vec<&Refused> =
            refused.iter().filter(|r| host.is_some() && r.culprit.host == *host).collect();
        for first in &mine {
            let Some((what, cause, proof)) = judge(table, first) else { continue };
            let same: Vec<&&Refused> = mine.iter().filter(|r| r.to == first.to).collect();
            let culprits = same.iter().fold(Vec::new(), |mut all, r| {
                add_culprit(&mut all, r.culprit.clone());
                all
            });
            let title = format!("{}: {what} {}", who(&culprits), first.to);
            return found(
                Draft::new(RULE.id, cause, title)
                    // The process says it, and the table of its host says why.
                    .weight(Weight::Stated)
                    .confidence(Confidence::Medium)
                    .culprits(culprits)
                    .evidence(same.iter().take(3).map(|r| r.evidence.clone()))
                    .evidence(proof)
                    .advise_made(
                        Impact::Harmless,
                        "ask that host's kernel which route it would take",
                        Some(format!("ip route get {}; ip -br addr", first.to)),
                    )
                    .advise(
                        Impact::Disruptive,
                        "add the missing address or route on that host, or run the job over a network that all hosts share",
                    ),
            );
        }
    }
    Outcome::Clear
}

/// What is wrong with the way to an address: words, cause, the routes that show it.
fn judge(table: &Routes<'_>, refused: &Refused) -> Option<(&'static str, Cause, Vec<Evidence>)> {
    // A line of `ip route get` alone is no table.
    if !table.iter().any(|(_, r)| r.names_network()) {
        return None;
    }
    let cited = |o: &Observation| shown(o, None, SourceKind::Network, "");
    let best = table.iter().filter_map(|(o, r)| Some((r.covers(refused.to)?, *o, *r)));
    match best.max_by_key(|(length, o, r)| (*length, !r.is_dead, std::cmp::Reverse(o.cite.line))) {
        None if refused.is_unrouted => Some((
            "its host has no route to",
            Cause::RoutingOrRail,
            table.iter().take(4).map(|(o, _)| cited(o)).collect(),
        )),
        Some((_, o, route)) if route.is_dead => {
            // `linkdown` follows a device; `unreachable` and its like need none.
            let lost_link = route.device.as_deref().is_some_and(|d| d != "lo");
            let cause = if lost_link { Cause::NetworkLinkDown } else { Cause::RoutingOrRail };
            let what = if lost_link {
                "the link is down on its path to"
            } else {
                "its host's routes refuse the path to"
            };
            Some((what, cause, vec![cited(o)]))
        }
        _ => None,
    }
}

fn refused(scene: &Scene<'_>) -> Vec<Refused> {
    let mut all = Vec::new();
    for statement in scene.statements() {
        let TorchEvent::Store(StoreEvent::ConnectFailed {
            address, errno: Some(errno @ (101 | 113)), ..
        }) = statement.event
        else {
            continue;
        };
        all.extend(address::ipv4(address).map(|to| Refused {
            culprit: scene.culprit(statement.who()),
            to,
            is_unrouted: *errno == 101,
            evidence: statement.evidence(),
        }));
    }
    for line in scene.nccl_messages() {
        let Some(said) = wording::refused(line.text()) else { continue };
        all.extend(said.address.map(|to| Refused {
            culprit: scene.culprit(&line.who()),
            to,
            is_unrouted: said.is_unrouted,
            evidence: line.evidence(),
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use ringleader_model::{NetFact, Route};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn failed(why: &str) -> StagedCase {
        StagedCase::new().process("node1", 1, Some(1)).warn(
            "misc/socket.cc:500",
            &format!("socketStartConnect: Connect to 10.0.0.1<44444> failed : {why}"),
        )
    }

    /// Lines of `ip route` of one file, `!` before those that are dead.
    fn routes(mut stage: StagedCase, host: &str, lines: &[(&str, &str)]) -> StagedCase {
        let mut source = None;
        for (to, device) in lines {
            let route = Route {
                to: to.trim_start_matches('!').into(),
                via: None,
                device: (!device.is_empty()).then(|| (*device).into()),
                is_dead: to.starts_with('!'),
            };
            stage = stage.net(host, NetFact::Route(route));
            if let Some(last) = stage.case.observations.last_mut() {
                last.cite.source = *source.get_or_insert(last.cite.source);
            }
        }
        stage
    }

    const UNREACHABLE: &str = "Network is unreachable";
    const NO_ROUTE: &str = "No route to host";

    #[test]
    fn nothing_covers_the_address() {
        let finding = routes(failed(UNREACHABLE), "node1", &[("192.0.2.0/24", "eth0")]);
        finding.concludes(&RULE, "routing-or-rail 1, high");
    }

    #[test]
    fn the_way_is_dead() {
        let dead = [("default", "eth0"), ("!10.0.0.0/8", "eth1")];
        routes(failed(NO_ROUTE), "node1", &dead).concludes(&RULE, "network-link-down 1, high");
        let refused = [("default", "eth0"), ("192.0.2.0/24", "eth0"), ("!10.0.0.0/24", "")];
        routes(failed(NO_ROUTE), "node1", &refused).concludes(&RULE, "routing-or-rail 1, high");
    }

    #[test]
    fn there_is_a_way() {
        for why in [UNREACHABLE, NO_ROUTE] {
            routes(failed(why), "node1", &[("default", "eth0"), ("192.0.2.0/24", "eth0")]).silent(&RULE);
            // A dead route for others, and one of the same length that works.
            routes(failed(why), "node1", &[("10.0.0.0/24", "eth0"), ("!10.1.0.0/24", "eth1")]).silent(&RULE);
            routes(failed(why), "node1", &[("!10.0.0.0/24", "eth1"), ("10.0.0.0/24", "eth0")]).silent(&RULE);
        }
        // The far side said no; another host's table; no table at all.
        routes(failed(NO_ROUTE), "node1", &[("192.0.2.0/24", "eth0")]).silent(&RULE);
        routes(failed(UNREACHABLE), "node0", &[("192.0.2.0/24", "eth0")]).silent(&RULE);
        routes(failed(UNREACHABLE), "node1", &[("10.9.9.9", "eth0")]).silent(&RULE);
        failed(UNREACHABLE).silent(&RULE);
    }
}
