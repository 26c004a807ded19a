//! A slow link, by the word of a watcher that saw it.

use std::collections::BTreeSet;

use ringleader_model::{
    Cause, Confidence, Evidence, Fact, Finding, Impact, Severity, SourceKind, WatchEvent, Weight,
};

use super::RULE;
use crate::drafting;
use crate::rule::Draft;
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;

/// One finding for each link, however often it was reported.
pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut told = BTreeSet::new();
    let links = scene.case().observations.iter().filter_map(|observation| match &observation.fact {
        Fact::Watch(WatchEvent::SlowLink(link)) => Some((observation, link)),
        _ => None,
    });
    links
        .filter(|(_, link)| told.insert((link.rank, link.peer)))
        .filter_map(|(observation, link)| {
            let title = match link.peer {
                Some(peer) => format!("the network between rank {} and rank {} is slow", link.rank.0, peer.0),
                None => format!("the link of rank {} is slow", link.rank.0),
            };
            let nodes: Vec<RankOrSource> =
                [link.rank].into_iter().chain(link.peer).map(RankOrSource::Rank).collect();
            let text = observation.text.to_string();
            Draft::new(RULE.id, Cause::SlowLink, title)
                .severity(Severity::Warning)
                .weight(Weight::Derived)
                .confidence(Confidence::Medium)
                .culprits(drafting::culprits(scene, &nodes, None))
                .evidence([Evidence { cite: observation.cite, text, kind: SourceKind::Watch }])
                .advise_command(
                    Impact::Harmless,
                    "check the interface: speed, errors, dropped packets",
                    "ip -s link; ethtool <interface>",
                )
                .advise(
                    Impact::Disruptive,
                    "measure from that host to two others: if its own link is at fault, both are slow",
                )
                .build()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, Rank, SourceKind, WatchEvent, WatchedLink, Who};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn told(stage: StagedCase, rank: u32, peer: Option<u32>) -> StagedCase {
        let text = "the link of rank 2 (10.0.0.2) is slow".into();
        let link = WatchedLink { rank: Rank(rank), peer: peer.map(Rank), text };
        stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::SlowLink(Box::new(link))))
    }

    #[test]
    fn the_link_of_a_rank_and_the_way_between_two() {
        told(StagedCase::job(4), 2, None).concludes(&RULE, "slow-link 2, medium");
        let twice = told(told(StagedCase::job(4), 2, None), 2, None);
        twice.concludes(&RULE, "slow-link 2, medium");
        told(StagedCase::job(4), 1, Some(2)).concludes(&RULE, "slow-link 1-2, medium");
    }
}
