//! # What it checks
//!
//! Whether the given peers answer on TCP. A refusal is an answer: the host is there. In a fleet (`--hosts`, `--slurm`)
//! each node also tries some of the others.
//!
//! # What fails
//!
//! A peer whose name does not resolve, that does not answer in time, or to which there is no route: reported with the
//! route and interface that lead there. It warns about another node of the fleet that does not answer: it was called
//! by the name that the asking node uses for it. If that name is unknown here, it is not judged.
//!
//! # What to do
//!
//! Ping it from here and from another node; check the route, and firewalls at both ends.
//!
//! # References
//!
//! Linux ip-route(8), tcp(7); NCCL user guide, Troubleshooting, Networking issues.

use ringleader_model::plain_word;
use ringleader_node::{FLEET_PEER, Reach, ReachFailure};

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "peers-reachable",
    title: "the peers answer",
    area: Area::Network,
    reads: &[Probe::Reach, Probe::Network],
    drains: false,
    // A silent peer takes until the deadline.
    is_quick: false,
    since: "0.2",
    doc: include_str!("peers_reachable.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let reach = match view.node.reach.seen() {
        Ok(reach) => reach,
        Err(missing) => return missing.into(),
    };
    let others = || reach.iter().filter(|r| !["master-address", "interface"].contains(&r.purpose.as_str()));
    // The path through NCCL's interface is judged by the check of the interface; here only if nothing else was tried.
    let peers: Vec<&Reach> = others()
        .filter(|r| r.interface.is_none() || !others().any(|o| o.interface.is_none() && o.target == r.target))
        .collect();
    let (nameless, peers): (Vec<&Reach>, Vec<&Reach>) = peers.into_iter().partition(|r| is_nameless(r));
    if let (Some(first), true) = (nameless.first(), peers.is_empty()) {
        let why = first.failure.as_deref().unwrap_or("unknown");
        return CheckAnswer::skipped(format!(
            "the other nodes have different names here: {}: {why}",
            first.host
        ));
    }
    let tried: Vec<&Reach> =
        peers.iter().copied().filter(|r| r.failure_kind != Some(ReachFailure::NotTried)).collect();
    match (peers.first(), tried.is_empty()) {
        (None, _) => return CheckAnswer::skipped("no peers were named"),
        (Some(first), true) => {
            return CheckAnswer::skipped(format!(
                "{}: {}",
                first.target,
                first.failure.as_deref().unwrap_or("not tried")
            ));
        }
        _ => {}
    }
    let items: Vec<Item> = tried
        .iter()
        .filter(|peer| peer.failure_kind.is_some())
        .map(|peer| Item {
            subject: peer.target.clone(),
            // The asking node may know the nodes through a network that they do not share with each other.
            verdict: if peer.purpose == FLEET_PEER { CheckState::Warn } else { CheckState::Fail },
            text: format!("{}{}", peer.failure.as_deref().unwrap_or("no answer"), way(view, peer)),
            evidence: format!(
                "resolves to {}",
                if peer.addresses.is_empty() { "nothing".to_owned() } else { peer.addresses.join(" ") }
            ),
        })
        .collect();
    let slowest = tried.iter().filter_map(|peer| peer.answered_ms).fold(0.0, f64::max);
    let left = peers.len() - tried.len();
    let left = if left == 0 { String::new() } else { format!("; {left} were not tried for lack of time") };
    let silent = tried.iter().find(|peer| peer.failure_kind.is_some());
    let host = silent.and_then(|peer| plain_word(&peer.host));
    CheckAnswer::from_items(
        format!("{} peers answer, the slowest in {slowest:.1} ms{left}", tried.len()),
        items,
    )
    .advise(
        Impact::Harmless,
        "check which route leads there, and whether the host answers at all",
        host.map(|host| format!("ip route get $(getent hosts {host} | cut -d' ' -f1); ping -c 3 {host}")),
    )
}

/// A node of the fleet under a name that only the asking node knows: an ssh alias, an entry of its own hosts file.
fn is_nameless(peer: &Reach) -> bool {
    peer.purpose == FLEET_PEER && peer.failure_kind == Some(ReachFailure::Unresolved)
}

/// The route and interface that lead to a peer.
fn way(view: &NodeView<'_>, peer: &Reach) -> String {
    let Some(address) = peer.addresses.iter().find_map(|address| address.parse().ok()) else {
        return String::new();
    };
    let Some(net) = view.node.net.get() else { return String::new() };
    let Some(route) = net.route_to(address) else {
        return "; no route leads there".to_owned();
    };
    let via = route.via.as_ref().map_or_else(String::new, |via| format!(" via {via}"));
    let bound =
        peer.interface.as_ref().map_or_else(String::new, |name| format!(", from the address of {name}"));
    let state = match net.interface(&route.interface) {
        Some(interface) if !interface.is_running() => ", which is down",
        _ => "",
    };
    format!("; the route is {}{state} ({}{via}){bound}", route.interface, route.to)
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Outcome, Part, Route};

    use super::*;
    use crate::wiring::staging::{ask, blamed, interface, node};

    fn peer(host: &str, interface: Option<&str>, kind: Option<ReachFailure>) -> Reach {
        Reach {
            purpose: "peer".to_owned(),
            target: format!("{host}:22"),
            host: host.to_owned(),
            addresses: vec![host.to_owned()],
            interface: interface.map(str::to_owned),
            answered_ms: kind.is_none().then_some(0.3),
            failure: kind.map(|_| "no answer within 800 ms".to_owned()),
            failure_kind: kind,
            ..Reach::default()
        }
    }

    fn with(reach: Vec<Reach>) -> Node {
        let mut node = node(vec![], vec![interface(2, "eth0", "10.0.0.7/24")], vec![]);
        if let Outcome::Seen(net) = &mut node.net.outcome {
            let route = |to: &str, via: Option<&str>| Route {
                to: to.to_owned(),
                via: via.map(str::to_owned),
                interface: "eth0".to_owned(),
                metric: 0,
            };
            net.routes = vec![route("10.0.0.0/24", None), route("default", Some("10.0.0.1"))];
        }
        node.reach = Part::of(reach);
        node
    }

    #[test]
    fn a_silent_peer_is_named_with_the_way_to_it() {
        let answer = ask(
            &CHECK,
            &with(vec![peer("10.0.0.8", None, None), peer("192.0.2.5", None, Some(ReachFailure::TimedOut))]),
        );
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Fail, vec!["192.0.2.5:22"]));
        assert!(answer.summary.contains("the route is eth0 (default via 10.0.0.1)"), "{}", answer.summary);
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let mut refused = peer("10.0.0.9", None, None);
        refused.is_refused = true;
        let answer = ask(&CHECK, &with(vec![peer("10.0.0.8", None, None), refused]));
        assert_eq!(
            (answer.verdict, answer.summary.as_str()),
            (CheckState::Ok, "2 peers answer, the slowest in 0.3 ms")
        );
        // Through another interface it does not answer: the check of the interface reports that.
        let answer = ask(
            &CHECK,
            &with(vec![
                peer("10.0.0.8", None, None),
                peer("10.0.0.8", Some("eth1"), Some(ReachFailure::TimedOut)),
            ]),
        );
        assert_eq!(answer.verdict, CheckState::Ok);
        // Requested by name, it counts.
        let answer = ask(&CHECK, &with(vec![peer("10.0.0.8", Some("eth1"), Some(ReachFailure::TimedOut))]));
        assert_eq!(answer.verdict, CheckState::Fail);
    }

    #[test]
    fn another_node_of_the_fleet_warns_and_its_alias_is_no_fault() {
        let of_fleet = |host: &str, kind| Reach { purpose: FLEET_PEER.to_owned(), ..peer(host, None, kind) };
        let answer = ask(&CHECK, &with(vec![of_fleet("10.0.0.8", Some(ReachFailure::TimedOut))]));
        assert_eq!((answer.verdict, blamed(&answer)), (CheckState::Warn, vec!["10.0.0.8:22"]));
        let alias = || of_fleet("my-alias", Some(ReachFailure::Unresolved));
        assert_eq!(ask(&CHECK, &with(vec![alias()])).verdict, CheckState::Skipped);
        let answer = ask(&CHECK, &with(vec![alias(), of_fleet("10.0.0.8", None)]));
        assert_eq!(
            (answer.verdict, answer.summary.as_str()),
            (CheckState::Ok, "1 peers answer, the slowest in 0.3 ms")
        );
        let named = peer("my-alias", None, Some(ReachFailure::Unresolved));
        assert_eq!(ask(&CHECK, &with(vec![named])).verdict, CheckState::Fail);
    }

    #[test]
    fn nobody_named_and_nothing_read_are_skipped() {
        assert_eq!(ask(&CHECK, &with(vec![])).verdict, CheckState::Skipped);
        let late = peer("10.0.0.8", None, Some(ReachFailure::NotTried));
        assert_eq!(ask(&CHECK, &with(vec![late])).verdict, CheckState::Skipped);
        let mut unread = with(vec![]);
        unread.reach = Part::default();
        assert_eq!(ask(&CHECK, &unread).verdict, CheckState::Skipped);
    }
}
