//! Connections that a peer closed, as the ranks that lost them report it.

use std::collections::BTreeSet;

use ringleader_knowledge::wording;
use ringleader_model::address::same_host;
use ringleader_model::{
    Case, Cite, Evidence, Fact, GlooEvent, Observation, Rank, SchedulerEvent, SchedulerKind, SourceKind,
    StoreEvent, SystemFact, TorchEvent,
};

use crate::when::course::Course;
use crate::when::failure::is_timeout;
use crate::who::roster::{Member, Roster, last_rank};

/// Connections that peers closed.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// The reports: of torch, then of NCCL's logs.
    pub evidence: Vec<Evidence>,
    /// When the last of torch's reports was made, ns.
    pub at_ns: Option<i64>,
    /// The peer: all reports that name a known process name this one, or all ranks but this one report.
    pub peer: Option<Rank>,
}

/// What ranks report; None if they report nothing of the kind.
pub fn closed(case: &Case, roster: &Roster, course: &Course<'_>) -> Option<Closed> {
    // Connections close when a job ends; its scheduler saw it end well.
    let is_well = |event: &SchedulerEvent| {
        event.kind == SchedulerKind::Completed && event.exit_code.is_none_or(|code| code == 0)
    };
    let mut ends = case.observations.iter().filter_map(|o| match &o.fact {
        Fact::System(system) => match &**system {
            SystemFact::Scheduler(event) => Some(is_well(event)),
            _ => None,
        },
        _ => None,
    });
    if ends.next().is_some_and(|first| first && ends.all(|is_well| is_well)) {
        return None;
    }
    let mut closed = Closed::default();
    let mut peers: Vec<&str> = Vec::new();
    let mut reporters: Vec<Option<Rank>> = Vec::new();
    // A watchdog that ends its process closes its connections: what peers report after it is no death before it.
    let is_timeout = |o: &&Observation| matches!(&o.fact, Fact::Torch(event) if is_timeout(event));
    let timeouts: Vec<Cite> = case.observations.iter().filter(is_timeout).map(|o| o.cite).collect();
    let follows_timeout =
        |cite: Cite| timeouts.iter().any(|t| t.source == cite.source && t.start < cite.start);
    for observation in &case.observations {
        let Fact::Torch(event) = &observation.fact else { continue };
        let cite = observation.cite;
        if follows_timeout(cite) || course.was_done_after(cite) {
            continue;
        }
        let text = match event {
            TorchEvent::AsyncError { error, last_error, .. } => last_error.as_ref().unwrap_or(error),
            TorchEvent::Exception(exception) => {
                exception.nccl_last_error.as_ref().unwrap_or(&exception.message)
            }
            TorchEvent::Store(StoreEvent::ConnectionLost { text }) => text,
            TorchEvent::Gloo(GlooEvent::ClosedByPeer { peer }) => {
                peers.push(peer);
                reporters.push(roster.speaker(observation));
                closed.evidence.push(of_torch(observation));
                continue;
            }
            _ => continue,
        };
        let peer = wording::closed_by(text);
        if peer.is_some() || wording::has_peer_exited(text) || matches!(event, TorchEvent::Store(_)) {
            peers.extend(peer);
            reporters.push(roster.speaker(observation));
            closed.evidence.push(of_torch(observation));
            closed.at_ns = observation.at.map(|at| at.ns);
        }
    }
    for observation in &case.observations {
        let Fact::Nccl(log) = &observation.fact else { continue };
        for message in log.messages.iter().filter(|m| m.is_warn) {
            let Some(peer) = wording::closed_by(&message.text) else { continue };
            peers.push(peer);
            reporters
                .push(log.processes.get(message.process as usize).and_then(|p| roster.find(&p.who)?.rank));
            let text = format!("NCCL WARN {}", message.text);
            closed.evidence.push(Evidence { cite: message.cite, text, kind: SourceKind::NcclLog });
        }
    }
    if closed.evidence.is_empty() {
        return None;
    }
    let mut ranks: Vec<Rank> = peers.iter().filter_map(|peer| member(roster, peer)?.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    closed.peer = match ranks.as_slice() {
        [] => only_silent(roster, &reporters),
        [one] => Some(*one),
        _ => None,
    };
    Some(closed)
}

/// The one rank that does not report it, where two or more ranks do, all of them known.
fn only_silent(roster: &Roster, reporters: &[Option<Rank>]) -> Option<Rank> {
    let reporters: BTreeSet<Rank> = reporters.iter().copied().collect::<Option<_>>()?;
    let known = roster.members.iter().filter_map(|m| m.rank).max()?.0.saturating_add(1);
    let world = roster.world_size.unwrap_or(0).max(known);
    last_rank(world, &reporters).filter(|_| reporters.len() > 1)
}

fn of_torch(observation: &Observation) -> Evidence {
    Evidence { cite: observation.cite, text: observation.text.to_string(), kind: SourceKind::TorchLog }
}

/// The only member with an address: `10.0.0.2<41234>`, `[10.0.0.2]:41234`, `n1.cluster<41234>`.
fn member<'r>(roster: &'r Roster, peer: &str) -> Option<&'r Member> {
    if peer.is_empty() {
        return None;
    }
    let (address, host) = wording::peer(peer);
    let is_it = |m: &&Member| {
        m.address.as_deref().is_some_and(|a| a == address || a == host)
            || m.host.as_deref().is_some_and(|own| same_host(own, host))
    };
    let mut found = roster.members.iter().filter(is_it);
    let one = found.next()?;
    found.next().is_none().then_some(one)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Host, Rank};

    use super::member;
    use crate::who::roster::{Member, Roster};

    #[test]
    fn peers_are_members_by_address_or_host() {
        let of = |rank: u32, address: &str, host: &str| Member {
            rank: Some(Rank(rank)),
            address: Some(Host::from(address)),
            host: Some(Host::from(host)),
            ..Member::default()
        };
        let mut roster = Roster::default();
        roster.members.extend([of(0, "10.0.0.1", "n0"), of(1, "10.0.0.2", "n1")]);
        for peer in ["10.0.0.2<41234>", "[10.0.0.2]:41234", "n1.cluster<41234>", "n1"] {
            assert_eq!(member(&roster, peer).and_then(|m| m.rank), Some(Rank(1)), "{peer}");
        }
        assert!(member(&roster, "").is_none() && member(&roster, "[10.0.0.3]:41234").is_none());
    }
}
