//! # What it shows
//! The job never came to its first communicator: ranks wait for each other at the start, and what they were started with says
//! why they cannot meet.
//!
//! # Why it happens
//! A rank that was not started; RANK or WORLD_SIZE set by hand, twice or differently; one rank that goes to another address
//! than the others, or is told to use another interface.
//!
//! # Evidence
//! A watcher saw no communicator for longer than a start may take, with all ranks that are there waiting; and the environments
//! of these processes, which contradict each other, or tell of ranks that are not there.
//!
//! # What looks like it but is not
//! A rank that compiles or loads data while the others wait is not stuck. Ranks of nodes of which there is no evidence may well
//! be there. Interfaces may differ between hosts; one that differs in a job that waits at its start is worth a look.
//!
//! # What to do
//! Compare what the launcher gave to each process; start the missing rank, or see why it ended.
//!
//! # References
//! PyTorch docs, torchrun and environment variable initialization; NVIDIA NCCL docs, NCCL_SOCKET_IFNAME.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Confidence, Evidence, Fact, Finding, Host, Impact, Observation, Pid, Rank, RankSet, Setting, SourceKind,
    WatchEvent, Weight,
};

use crate::correlate::Scene;
use crate::correlate::standstill::StandStill;
use crate::drafting;
use crate::rule::{Draft, Input, Outcome, Rule};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "ranks-never-met",
    title: "ranks that wait for each other at the start cannot meet",
    since: "0.3",
    reads: &[Input::Watch, Input::Environment],
    doc: include_str!("ranks_never_met.rs"),
    check,
};

/// Citations of one finding.
const CITATIONS: usize = 6;
/// Larger worlds are not searched for ranks that are not there.
const MAX_WORLD: u32 = 1 << 20;
/// More processes than a node has ranks.
const MAX_LOCAL: u32 = 1024;

/// A process with a rank, and what it was started with.
struct Started<'a> {
    observation: &'a Observation,
    settings: &'a [Setting],
}

impl<'a> Started<'a> {
    fn set(&self, name: &str) -> Option<&'a Setting> {
        self.settings.iter().find(|s| &*s.name == name)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.set(name).map(|s| s.value.trim())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    fn rank(&self) -> Option<Rank> {
        self.observation.who.rank
    }

    fn pid(&self) -> Option<Pid> {
        self.observation.who.pid
    }

    fn host(&self) -> Option<&'a Host> {
        self.observation.who.host.as_ref()
    }

    fn evidence(&self, name: &str) -> Option<Evidence> {
        let set = self.set(name)?;
        let whose = match (self.rank(), self.pid()) {
            (Some(rank), Some(pid)) => format!("rank {}, pid {}", rank.0, pid.0),
            (Some(rank), None) => format!("rank {}", rank.0),
            _ => "a process".to_owned(),
        };
        let text = format!("{name}={} ({whose})", set.value);
        Some(Evidence { cite: set.cite, text, kind: SourceKind::Environment })
    }
}

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(stands) = scene.stood_still.iter().find(|s| s.is_at_start()) else { return Outcome::Clear };
    let started: Vec<Started<'_>> = scene
        .case
        .observations
        .iter()
        .filter_map(|observation| match &observation.fact {
            Fact::Environment(listing) if observation.who.rank.is_some() => {
                Some(Started { observation, settings: &listing.settings })
            }
            _ => None,
        })
        .collect();
    let found = twice(scene, stands, &started)
        .or_else(|| other_world(scene, stands, &started))
        .or_else(|| other_master(scene, stands, &started))
        .or_else(|| absent(scene, stands, &started))
        .or_else(|| other_interface(scene, stands, &started));
    Outcome::from_findings(found.into_iter().collect())
}

/// Two processes that say that they are the same rank.
fn twice(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let mut by_rank: BTreeMap<Rank, BTreeMap<(Option<&Host>, Pid), &Started<'_>>> = BTreeMap::new();
    for one in started {
        let (Some(rank), Some(pid)) = (one.rank(), one.pid()) else { continue };
        by_rank.entry(rank).or_default().insert((one.host(), pid), one);
    }
    let seen: BTreeSet<u32> = by_rank.keys().map(|rank| rank.0).collect();
    by_rank.retain(|_, processes| processes.len() > 1);
    let (rank, processes) = by_rank.iter().next()?;
    let ranks: RankSet = by_rank.keys().copied().collect();
    let mut title = format!("{} processes have {}", processes.len(), drafting::ranks(&ranks));
    // Which of the two is wrong its place on the node may tell.
    let odd = processes.values().find(|one| {
        one.number("LOCAL_RANK").is_some_and(|local| local != rank.0)
            && processes.values().any(|other| other.number("LOCAL_RANK") == Some(rank.0))
    });
    if let (Some(odd), Some(pid)) = (odd, odd.and_then(|odd| odd.pid())) {
        let local = odd.number("LOCAL_RANK").unwrap_or_default();
        title = format!("{title}; pid {} has local rank {local}", pid.0);
    }
    let world = started.iter().filter_map(|one| one.number("WORLD_SIZE")).max().unwrap_or_default();
    let without: RankSet = (0..world.min(MAX_WORLD)).filter(|r| !seen.contains(r)).map(Rank).collect();
    if !without.is_empty() && without.len() <= by_rank.len() {
        title = format!("{title}, and nobody has {}", drafting::ranks(&without));
    }
    let draft = Draft::new(RULE.id, "rank-env-misconfigured", title)
        .weight(Weight::Stated)
        .confidence(Confidence::High)
        .culprits(ranks.ranks().iter().map(|rank| scene.roster.culprit_rank(*rank)))
        .evidence(processes.values().take(CITATIONS).filter_map(|one| one.evidence("RANK")))
        .evidence([stands.evidence()]);
    compared(draft).build()
}

/// Processes that were told different numbers of ranks.
fn other_world(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let mut differs = differs(started, "WORLD_SIZE")?;
    // One against one: nodes have as many ranks each, so that a number that they do not divide is wrong.
    let uneven = |one: &&Started<'_>| {
        let (world, local) = (one.number("WORLD_SIZE"), one.number("LOCAL_WORLD_SIZE").filter(|n| *n > 0));
        world.zip(local).is_some_and(|(world, local)| world % local != 0)
    };
    let uneven: RankSet = started.iter().filter(uneven).filter_map(Started::rank).collect();
    // The watcher saw all of them, the evidence may be cut.
    let suspected: RankSet =
        differs.odd.ranks().iter().copied().filter(|rank| stands.stall.suspects.contains(*rank)).collect();
    if !suspected.is_empty() {
        differs.odd = suspected;
    }
    if differs.is_tied && !uneven.is_empty() && uneven.len() < differs.odd.len() {
        differs.odd = uneven;
    }
    let title = format!("{} in WORLD_SIZE: {}", differs.subject(), differs.values());
    let draft = Draft::new(RULE.id, "rank-env-misconfigured", title)
        .weight(Weight::Stated)
        .confidence(Confidence::High)
        .culprits(differs.odd.ranks().iter().map(|rank| scene.roster.culprit_rank(*rank)))
        .evidence(differs.evidence("WORLD_SIZE"))
        .evidence([stands.evidence()]);
    compared(draft).build()
}

fn compared(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "compare what each process was given",
            "tr '\\0' '\\n' < /proc/<pid>/environ | grep -E 'RANK|WORLD_SIZE|MASTER_'",
        )
        .advise(Impact::Disruptive, "let one launcher number all ranks, and set none of them by hand")
}

/// Whether there is an environment of each process that the watcher names: of a part the lesser side may be the larger one.
fn is_whole(scene: &Scene<'_>, started: &[Started<'_>]) -> bool {
    scene.case.observations.iter().all(|observation| match &observation.fact {
        Fact::Watch(WatchEvent::Ranks(all)) => {
            all.iter().all(|who| started.iter().any(|one| one.pid() == who.pid && one.rank() == who.rank))
        }
        _ => true,
    })
}

/// A rank that goes to another meeting place than the others.
fn other_master(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let (name, differs) = ["MASTER_ADDR", "MASTER_PORT"]
        .iter()
        .find_map(|name| Some((*name, differs(started, name)?)))
        .filter(|(_, differs)| !differs.odd.is_empty() && !differs.is_tied && is_whole(scene, started))?;
    // Whoever serves may call itself by another name than its clients do.
    if name == "MASTER_ADDR" && differs.odd.ranks() == [Rank(0)] {
        return None;
    }
    let title = format!("{} in {name}: {}; it never meets the others", differs.subject(), differs.values());
    Draft::new(RULE.id, "missing-rank", title)
        .weight(Weight::Derived)
        .at_most(Confidence::Medium)
        .culprits(differs.odd.ranks().iter().map(|rank| scene.roster.culprit_rank(*rank)))
        .evidence(differs.evidence(name))
        .evidence([stands.evidence()])
        .advise_command(
            Impact::Harmless,
            "from its node, see whether the name resolves and the master answers",
            "getent ahosts $MASTER_ADDR; nc -zv $MASTER_ADDR $MASTER_PORT",
        )
        .advise(Impact::Disruptive, format!("give {name} the same value on all ranks"))
        .build()
}

/// Ranks that ought to be on a node whose processes are known, and are not.
fn absent(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let world =
        started.iter().find_map(|one| one.number("WORLD_SIZE")).filter(|n| (2..=MAX_WORLD).contains(n))?;
    let there: BTreeSet<u32> = started.iter().filter_map(|one| Some(one.rank()?.0)).collect();
    let hosts: BTreeSet<_> = started.iter().map(Started::host).collect();
    let mut due: BTreeSet<u32> = BTreeSet::new();
    let mut knows = false;
    for one in started {
        let size = one.number("LOCAL_WORLD_SIZE").filter(|n| *n <= MAX_LOCAL);
        let (Some(rank), Some(local), Some(size)) = (one.rank(), one.number("LOCAL_RANK"), size) else {
            continue;
        };
        // Ranks of a node follow each other.
        let Some(first) = rank.0.checked_sub(local) else { continue };
        knows = true;
        due.extend(first..first.saturating_add(size).min(world));
    }
    // What the evidence lacks may have been cut from it; the watcher saw who was there.
    let is_seen = |rank: &u32| stands.stall.suspects.contains(Rank(*rank));
    let missing: RankSet = if knows {
        due.difference(&there).copied().filter(is_seen).map(Rank).collect()
    } else if hosts.len() == 1 {
        (0..world).filter(|rank| !there.contains(rank)).filter(is_seen).map(Rank).collect()
    } else {
        RankSet::default()
    };
    if missing.is_empty() {
        return None;
    }
    let said = |name| started.iter().find_map(|one| one.evidence(name));
    let title = format!(
        "{} of {world} {} not there: never started, or ended before joining; the others wait",
        drafting::ranks(&missing),
        if missing.len() == 1 { "is" } else { "are" }
    );
    let waiting: RankSet = there.iter().copied().map(Rank).collect();
    Draft::new(RULE.id, "missing-rank", title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        // Where nothing says how many belong on the node, it may be on another one.
        .at_most(if knows { Confidence::High } else { Confidence::Medium })
        .culprits(missing.ranks().iter().map(|rank| scene.roster.culprit_rank(*rank)))
        .victims(waiting)
        .evidence([stands.evidence()])
        .evidence(["WORLD_SIZE", "LOCAL_WORLD_SIZE"].into_iter().filter_map(said))
        .evidence(started.iter().take(CITATIONS).filter_map(|one| one.evidence("RANK")))
        .advise(
            Impact::Harmless,
            "look at the missing rank's own output: was it started, did it fail while importing?",
        )
        .advise_command(Impact::Harmless, "see which ranks are there", "ps -eo pid,ppid,stat,etime,args")
        .build()
}

/// A rank that was told to use another interface than its peers.
fn other_interface(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let (name, differs) = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]
        .iter()
        .find_map(|name| Some((*name, differs(started, name)?)))
        .filter(|(_, differs)| !differs.odd.is_empty() && !differs.is_tied && is_whole(scene, started))?;
    let title = format!("{} in {name}: {}; all wait at the start", differs.subject(), differs.values());
    Draft::new(RULE.id, "wrong-interface", title)
        .weight(Weight::Derived)
        // Interfaces of other hosts may have other names.
        .at_most(Confidence::Medium)
        .culprits(differs.odd.ranks().iter().map(|rank| scene.roster.culprit_rank(*rank)))
        .evidence(differs.evidence(name))
        .evidence([stands.evidence()])
        .advise_command(
            Impact::Harmless,
            "list the interfaces of its host and which one leads to a peer",
            "ip -br addr; ip route get <address of a peer>",
        )
        .advise_command(
            Impact::Disruptive,
            "name an interface that reaches the peers, or none",
            format!("{name}=<interface>"),
        )
        .build()
}

/// Values of one variable by the ranks that have them, where there are several.
struct Differs<'s, 'a> {
    by_value: BTreeMap<Option<&'a str>, Vec<&'s Started<'a>>>,
    /// Ranks of the lesser part; of all where no part is the larger.
    odd: RankSet,
    /// No part is the larger.
    is_tied: bool,
}

fn differs<'s, 'a>(started: &'s [Started<'a>], name: &str) -> Option<Differs<'s, 'a>> {
    let mut by_value: BTreeMap<Option<&'a str>, Vec<&'s Started<'a>>> = BTreeMap::new();
    for one in started {
        by_value.entry(one.text(name)).or_default().push(one);
    }
    if by_value.len() < 2 || by_value.keys().flatten().next().is_none() {
        return None;
    }
    let most = by_value.values().map(Vec::len).max()?;
    let is_clear = by_value.values().filter(|members| members.len() == most).count() == 1;
    let odd = by_value.values().filter(|members| !is_clear || members.len() < most).flatten();
    let odd: RankSet = odd.filter_map(|one| one.rank()).collect();
    Some(Differs { by_value, odd, is_tied: !is_clear })
}

impl Differs<'_, '_> {
    fn subject(&self) -> String {
        let verb = if self.odd.len() == 1 { "differs" } else { "differ" };
        format!("{} {verb}", drafting::ranks(&self.odd))
    }

    /// `4 on ranks 0,2-3, 5 on rank 1`.
    fn values(&self) -> String {
        let told = self.by_value.iter().take(4).map(|(value, members)| {
            let ranks: RankSet = members.iter().filter_map(|one| one.rank()).collect();
            format!("{} on {}", value.unwrap_or("unset"), drafting::ranks(&ranks))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    fn evidence(&self, name: &str) -> Vec<Evidence> {
        // The lesser part first.
        let mut members: Vec<_> = self.by_value.values().collect();
        members.sort_by_key(|members| members.len());
        members
            .into_iter()
            .filter_map(|members| members.iter().find_map(|one| one.evidence(name)))
            .take(CITATIONS)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, SourceKind, WatchEvent, WatchedStall, Who};

    use super::RULE;
    use crate::diagnose;
    use crate::staging::Stage;
    use crate::staging_jobs::START_NS;

    fn told(stage: Stage, shape: &str) -> Stage {
        told_of(stage, shape, &[])
    }

    fn told_of(stage: Stage, shape: &str, suspects: &[u32]) -> Stage {
        let stall = WatchedStall {
            since_ns: START_NS,
            after_ns: 610_000_000_000,
            expected_ns: 600_000_000_000,
            shape: shape.into(),
            text: "no communicator yet".into(),
            suspects: suspects.iter().copied().map(ringleader_model::Rank).collect(),
            ..WatchedStall::default()
        };
        stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Stall(Box::new(stall))))
    }

    /// Ranks as torchrun starts them on one node; `change` for the variables of a rank.
    fn started(ranks: &[u32], change: impl Fn(u32, &mut Vec<(&'static str, String)>)) -> Stage {
        ranks.iter().fold(Stage::new(), |stage, rank| {
            let mut settings = vec![
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", rank.to_string()),
                ("WORLD_SIZE", "4".to_owned()),
                ("LOCAL_WORLD_SIZE", "4".to_owned()),
                ("MASTER_ADDR", "n0".to_owned()),
                ("NCCL_SOCKET_IFNAME", "eth0".to_owned()),
            ];
            change(*rank, &mut settings);
            let said = settings[0].1.parse().unwrap_or(*rank);
            let settings: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let mut stage = stage.listing(Some(said), &settings);
            if let Some(listing) = stage.case.observations.last_mut() {
                listing.who.pid = Some(ringleader_model::Pid(100 + rank));
                listing.who.host = Some("n0".into());
            }
            stage
        })
    }

    fn with(name: &'static str, rank: u32, value: &'static str) -> Stage {
        started(&[0, 1, 2, 3], move |own, settings| {
            if own == rank {
                settings.iter_mut().filter(|s| s.0 == name).for_each(|s| s.1 = value.to_owned());
            }
        })
    }

    #[test]
    fn a_rank_that_is_not_there() {
        let stage = told_of(started(&[0, 2, 3], |_, _| {}), "start", &[1]);
        stage.concludes(&RULE, "missing-rank 1, high");
        // The evidence was cut: the watcher saw rank 1.
        told_of(started(&[0, 2, 3], |_, _| {}), "start", &[]).silent(&RULE);
        // Nothing says how many belong here.
        let unsaid = |_: u32, s: &mut Vec<(&str, String)>| s.retain(|s| !s.0.starts_with("LOCAL"));
        told_of(started(&[0, 2, 3], unsaid), "start", &[1]).concludes(&RULE, "missing-rank 1, medium");
        // The first of two nodes, of which the second has brought no evidence.
        let first = |_: u32, s: &mut Vec<(&str, String)>| s[2].1 = "8".to_owned();
        told(started(&[0, 1, 2, 3], first), "start").silent(&RULE);
    }

    #[test]
    fn numbers_that_contradict_each_other() {
        let stage = told(with("RANK", 3, "2"), "start");
        stage.concludes(&RULE, "rank-env-misconfigured 2, high");
        let title = stage.finding(&RULE).title;
        assert_eq!(title, "2 processes have rank 2; pid 103 has local rank 3, and nobody has rank 3");
        told(with("WORLD_SIZE", 1, "5"), "start").concludes(&RULE, "rank-env-misconfigured 1, high");
        // One against one.
        let two = |size: &'static str, local: &'static str| {
            let stage = started(&[0, 1], move |rank, settings| {
                settings[2].1 = if rank == 1 { size.to_owned() } else { "2".to_owned() };
                settings[3].1 = local.to_owned();
            });
            told(stage, "start")
        };
        two("3", "2").concludes(&RULE, "rank-env-misconfigured 1, high");
        two("4", "2").concludes(&RULE, "rank-env-misconfigured 0-1, high");
    }

    #[test]
    fn another_meeting_place_or_interface() {
        told(with("MASTER_ADDR", 2, "n9"), "start").concludes(&RULE, "missing-rank 2, medium");
        told(with("NCCL_SOCKET_IFNAME", 2, "mgmt0"), "start").concludes(&RULE, "wrong-interface 2, medium");
        // One of the ranks that the watcher names has left no environment.
        let who = Who { pid: Some(ringleader_model::Pid(104)), ..Who::rank(4) };
        let ranks = Fact::Watch(WatchEvent::Ranks(vec![who]));
        let cut = with("MASTER_ADDR", 2, "n9").push(SourceKind::Watch, Who::default(), ranks);
        told(cut, "start").silent(&RULE);
        // The one that serves may name itself otherwise.
        told(with("MASTER_ADDR", 0, "127.0.0.1"), "start").silent(&RULE);
    }

    #[test]
    fn without_a_standstill_at_the_start_nothing_is_wrong() {
        for stage in [
            started(&[0, 2, 3], |_, _| {}),
            with("WORLD_SIZE", 1, "5"),
            with("MASTER_ADDR", 2, "n9"),
            told(with("MASTER_ADDR", 2, "n9"), "never-entered"),
        ] {
            stage.silent(&RULE);
        }
        // What fits together says nothing, whatever stands still.
        let stage = told(started(&[0, 1, 2, 3], |_, _| {}), "start");
        stage.silent(&RULE);
        let verdict = diagnose(&stage.case);
        assert_eq!(verdict.cause, "undecided", "{verdict:#?}");
        assert!(verdict.summary.contains("stood still"), "{}", verdict.summary);
    }
}
