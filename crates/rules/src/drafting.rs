//! Drafts of findings from what `correlate` joined: one way to state who, where and with what proof.

pub(crate) mod claims;
pub(crate) mod gpus;
pub(crate) mod kernel;

use ringleader_model::{Cause, Confidence, Culprit, Frame, Impact, Rank, RankSet, Severity};

use crate::rule::Draft;
use ringleader_correlate::Scene;
use ringleader_correlate::track::RankOrSource;
use ringleader_correlate::waits::suspects::Suspect;

pub(crate) use ringleader_correlate::who::culprits::ranks;

/// Characters of a line that a question quotes.
pub(crate) const QUOTED_CHARS: usize = 160;
/// Characters of a title that words of the evidence make up: one line of a wide terminal.
pub(crate) const TITLE_CHARS: usize = 110;

/// `rank 2`, `ranks 2,5`, or `one rank` where the record does not identify it.
pub(crate) fn who(nodes: &[RankOrSource]) -> String {
    let ranks: RankSet = nodes.iter().filter_map(|n| n.rank()).collect();
    match (ranks.len(), nodes.len()) {
        (0, 1) => "one rank (its record does not say which)".to_owned(),
        (0, n) => format!("{n} ranks (their records do not say which)"),
        (1, _) => format!("rank {ranks}"),
        _ => format!("ranks {ranks}"),
    }
}

/// `rank 2 waits`, `ranks 0-1,3 wait`.
pub(crate) fn waiting(set: &RankSet) -> String {
    format!("{} wait{}", ranks(set), if set.len() == 1 { "s" } else { "" })
}

/// Culprits of nodes, with this place in the code.
pub(crate) fn culprits(scene: &Scene<'_>, nodes: &[RankOrSource], place: Option<&Frame>) -> Vec<Culprit> {
    nodes.iter().map(|node| Culprit { place: place.cloned(), ..scene.culprit_node(*node) }).collect()
}

/// A finding about a rank that holds others up.
pub(crate) fn from_suspect(
    scene: &Scene<'_>,
    rule: &'static str,
    cause: Cause,
    suspect: &Suspect,
    place: Option<&Frame>,
    title: String,
) -> Draft {
    Draft::new(rule, cause, title)
        .severity(Severity::Error)
        .confidence(if suspect.weak { Confidence::Low } else { Confidence::Medium })
        .victims(suspect.victims.clone())
        .evidence(suspect.evidence.iter().take(4).cloned())
        .culprits(culprits(scene, &[suspect.node], place))
        .at(suspect.since_ns)
}

/// How sure a finding may be that rests on the waits of one moment: where nothing says that the job failed, it
/// may go on in the next.
pub(crate) fn surest_of_one_moment(scene: &Scene<'_>) -> Confidence {
    if scene.ledger().is_stalled() { Confidence::High } else { Confidence::Medium }
}

/// ` at sync_grads (/srv/train.py:80)`, or nothing.
pub(crate) fn at(place: Option<&Frame>) -> String {
    place.map_or_else(String::new, |f| format!(" at {} ({}:{})", f.function, f.file, f.line))
}

/// The process of a rank, for a command; `<pid of rank 3>` where it is not known.
pub(crate) fn pid_of(scene: &Scene<'_>, rank: Rank) -> String {
    let known = scene.roster().by_rank(rank).and_then(|m| m.pid);
    known.map_or_else(|| format!("<pid of rank {}>", rank.0), |p| p.0.to_string())
}

/// `rank 3`.
pub(crate) fn rank(rank: Rank) -> String {
    format!("rank {}", rank.0)
}

/// What to do where NCCL or gloo use an interface that does not lead to the peers.
pub(crate) fn advise_interface(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "list the interfaces of this host and which one leads to a peer",
            "ip -br addr; ip route get <address of a peer>",
        )
        .advise_command(
            Impact::Harmless,
            "set that interface on every host, for NCCL and for gloo",
            "NCCL_SOCKET_IFNAME=<interface> GLOO_SOCKET_IFNAME=<interface>",
        )
}
