//! # What it shows
//! The job never reached its first communicator: ranks wait for each other at the start, and their settings show why
//! they cannot meet.
//!
//! # Why it happens
//! A rank that was not started; one rank that goes to another address than the others, or is set to use another
//! interface.
//!
//! # Evidence
//! A watcher saw no communicator for longer than a start may take, with all ranks that are there waiting; and the
//! environments of these processes, which contradict each other, or show ranks that are not there. Or their command lines, which
//! name different places to meet (`--port`, `--coordinator`); there two looks at which all stand do, too. Or NCCL's log, in which
//! processes of one host begin their first communicator as the same rank.
//!
//! # What looks like it but is not
//! Numbers of ranks that contradict each other are rank-env-misconfigured. A rank that compiles or loads data while the
//! others wait is not stuck. Ranks of nodes without evidence may be there; if most of the job is visible, on several
//! nodes, the rest has more likely not started, and a rank 0 that is still creating its store waits for clients that
//! have not connected. Interfaces may differ between hosts; one that differs in a job that waits at its start is
//! reported.
//!
//! # What to do
//! Compare what the launcher gave to each process; start the missing rank, or find out why it ended.
//!
//! # References
//! PyTorch docs, torchrun and environment variable initialization; PyTorch, TCPStore.cpp, waitForWorkers; NVIDIA NCCL
//! docs, NCCL_SOCKET_IFNAME.

use std::collections::BTreeSet;

use ringleader_knowledge::place::marks;
use ringleader_model::{
    Cause, Cite, Confidence, Culprit, Evidence, Fact, Finding, Host, Impact, NcclComm, Pid, Rank, RankSet,
    SourceKind, WatchEvent, Weight, Who,
};

use crate::drafting;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::process::condition::is_marked;
use ringleader_correlate::said::watcher::StandStill;
use ringleader_correlate::who::launch::{
    self, CITATIONS, Contradiction, Differs, MAX_LOCAL, MAX_WORLD, Started, differs,
};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "ranks-never-met",
    title: "ranks that wait for each other at the start cannot meet",
    since: "0.3",
    doc: include_str!("ranks_never_met.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    if let Some(twice) = one_rank_twice(scene) {
        return Outcome::from_findings(vec![twice]);
    }
    let Some(stands) = scene.stood_still().iter().find(|s| s.is_at_start()) else {
        let has_met = !scene.ledger().groups().is_empty();
        let stands = !has_met && scene.looks().all_stand();
        return Outcome::from_findings(other_place(scene, None).filter(|_| stands).into_iter().collect());
    };
    let started = launch::started(scene.case());
    // Numbers that contradict each other are why, and a cause of their own.
    if launch::contradiction(scene.roster(), &started, &stands.stall.suspects).is_some() {
        return Outcome::Clear;
    }
    let found = other_master(scene, stands, &started)
        .or_else(|| other_place(scene, Some(stands)))
        .or_else(|| absent(scene, stands, &started))
        .or_else(|| other_interface(scene, stands, &started));
    Outcome::from_findings(found.into_iter().collect())
}

/// Whether there is an environment of each process that the watcher names: of a part the lesser side may be the larger
/// one.
fn is_whole(scene: &Scene<'_>, started: &[Started<'_>]) -> bool {
    watched(scene).all(|who| started.iter().any(|one| one.pid() == who.pid && one.rank() == who.rank))
}

/// Processes that the watcher names as ranks.
fn watched<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Who> {
    scene.case().observations.iter().flat_map(|observation| match &observation.fact {
        Fact::Watch(WatchEvent::Ranks(all)) => all.as_slice(),
        _ => &[],
    })
}

/// Ranks that were given another value of one of these variables than most; None where it is not clear who.
fn others<'s, 'a>(
    scene: &Scene<'_>,
    started: &'s [Started<'a>],
    names: [&'static str; 2],
) -> Option<(&'static str, Differs<'s, 'a>)> {
    let (name, differs) = names.into_iter().find_map(|name| Some((name, differs(started, name)?)))?;
    (!differs.odd.is_empty() && !differs.is_tied && is_whole(scene, started)).then_some((name, differs))
}

/// What a rank was given differently, and that all wait.
fn differently(
    scene: &Scene<'_>,
    stands: &StandStill<'_>,
    cause: Cause,
    (name, differs): (&str, &Differs<'_, '_>),
    effect: &str,
) -> Draft {
    let title = format!("{} in {name}: {}; {effect}", differs.subject(), differs.values());
    Draft::new(RULE.id, cause, title)
        .weight(Weight::Derived)
        .at_most(Confidence::Medium)
        .culprits(differs.odd.ranks().iter().map(|rank| scene.roster().culprit_rank(*rank)))
        .evidence(differs.evidence(name))
        .evidence([stands.evidence()])
}

/// A rank that goes to another meeting place than the others.
fn other_master(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let (name, differs) = others(scene, started, ["MASTER_ADDR", "MASTER_PORT"])?;
    // Whoever serves may call itself by another name than its clients do.
    if name == "MASTER_ADDR" && differs.odd.ranks() == [Rank(0)] {
        return None;
    }
    differently(scene, stands, Cause::MissingRank, (name, &differs), "it never meets the others")
        .advise_command(
            Impact::Harmless,
            "from its node, see whether the name resolves and the master answers",
            "getent ahosts $MASTER_ADDR; nc -zv $MASTER_ADDR $MASTER_PORT",
        )
        .advise(Impact::Harmless, format!("give {name} the same value on all ranks"))
        .build()
}

/// Ranks whose command lines name another place to meet. `stands`: a watcher's word that the job hangs;
/// without one, two looks have shown that.
fn other_place(scene: &Scene<'_>, stands: Option<&StandStill<'_>>) -> Option<Finding> {
    let Contradiction { title, culprits, evidence } = launch::other_meeting(scene.case(), scene.roster())?;
    Draft::new(RULE.id, Cause::RankEnvMisconfigured, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .at_most(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
        .evidence(stands.map(StandStill::evidence))
        .advise(Impact::Harmless, "start all ranks with the same address and port")
        .build()
}

/// A process that began its first communicator of several ranks.
struct Begun<'a> {
    host: Option<&'a Host>,
    pid: Option<Pid>,
    comm: &'a NcclComm,
    cite: Cite,
}

/// Processes of one host that begin their first communicator as the same rank, and no process as another one: each waits for the rest.
/// An attempt that failed and the next one look the same, but for the failure.
fn one_rank_twice(scene: &Scene<'_>) -> Option<Finding> {
    let logs = scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Nccl(log) => Some(log),
        _ => None,
    });
    let mut begun: Vec<Begun<'_>> = Vec::new();
    for log in logs {
        for comm in log.comms.iter().filter(|comm| comm.n_ranks > 1) {
            let who = &log.processes.get(comm.process as usize)?.who;
            let cite = comm.started.filter(|_| comm.completed.is_none())?;
            let (host, pid) = (who.host.as_ref(), who.pid);
            if !begun.iter().any(|one| (one.host, one.pid) == (host, pid)) {
                begun.push(Begun { host, pid, comm, cite });
            }
        }
    }
    let first = begun.first()?;
    let is_same = |one: &Begun<'_>| {
        let (own, other) = (one.comm, first.comm);
        one.host == first.host && one.pid.is_some() && (own.rank, own.n_ranks) == (other.rank, other.n_ranks)
    };
    if begun.len() < 2 || scene.has_failed() || !begun.iter().all(is_same) {
        return None;
    }
    let (rank, n_ranks) = (Rank(first.comm.rank.0), first.comm.n_ranks);
    let proofs = begun.iter().map(|one| Evidence {
        cite: one.cite,
        text: format!(
            "pid {} begins a communicator as {} of {n_ranks}",
            one.pid.map_or(0, |pid| pid.0),
            drafting::rank(rank)
        ),
        kind: SourceKind::NcclLog,
    });
    let title = format!(
        "{} processes begin their first communicator as {} of {}, and none as another rank",
        begun.len(),
        drafting::rank(rank),
        n_ranks
    );
    Draft::new(RULE.id, Cause::RankEnvMisconfigured, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        .at_most(Confidence::Medium)
        .culprits([Culprit { rank: Some(rank), host: first.host.cloned(), ..Culprit::default() }])
        .evidence(proofs.take(CITATIONS))
        .advise_command(
            Impact::Harmless,
            "print what each process takes for its rank",
            "env | grep -E 'RANK|WORLD_SIZE|MASTER_|SLURM_PROCID|OMPI_COMM_WORLD_RANK'",
        )
        .build()
}

/// Ranks that ought to be on a node whose processes are known, and are not.
fn absent(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let world =
        started.iter().find_map(|one| one.number("WORLD_SIZE")).filter(|n| (2..=MAX_WORLD).contains(n))?;
    let there: BTreeSet<u32> = started.iter().filter_map(|one| Some(one.rank()?.0)).collect();
    let hosts: BTreeSet<_> = started.iter().map(Started::host).collect();
    let mut due: BTreeSet<u32> = BTreeSet::new();
    let mut nodes: BTreeSet<u32> = BTreeSet::new();
    let mut knows = false;
    for one in started {
        let size = one.number("LOCAL_WORLD_SIZE").filter(|n| *n <= MAX_LOCAL);
        let (Some(rank), Some(local), Some(size)) = (one.rank(), one.number("LOCAL_RANK"), size) else {
            continue;
        };
        // Ranks of a node follow each other.
        let Some(first) = rank.0.checked_sub(local) else { continue };
        knows = true;
        nodes.insert(first);
        due.extend(first..first.saturating_add(size).min(world));
    }
    // The watcher saw most of the job, on several nodes: it names what has not come although no node in sight lacks it.
    let elsewhere: BTreeSet<u32> = (0..world).filter(|rank| !due.contains(rank)).collect();
    let is_elsewhere = nodes.len() > 1 && elsewhere.len() * 2 < world as usize && due.is_subset(&there);
    if is_elsewhere {
        due.extend(&elsewhere);
    }
    // What the evidence lacks may have been cut from it; the watcher saw who was there.
    let serving = serving(scene, started);
    let is_seen = |rank: &u32| stands.stall.suspects.contains(Rank(*rank));
    // Of whom the watcher saw, only the environment is lacking.
    let watched: BTreeSet<Rank> = watched(scene).filter_map(|who| who.rank).collect();
    let unseen = (0..world).filter(|rank| !there.contains(rank)).map(Rank).filter(|r| !watched.contains(r));
    let unseen: RankSet = unseen.collect();
    let mut missing: RankSet = if knows {
        due.difference(&there).copied().filter(is_seen).map(Rank).collect()
    } else if hosts.len() == 1 {
        (0..world).filter(|rank| !there.contains(rank)).filter(is_seen).map(Rank).collect()
    } else {
        RankSet::default()
    };
    // Who serves the store waits in its making until all have come. Of several nodes it does not say which.
    let of_node = started.iter().filter_map(|one| one.number("LOCAL_WORLD_SIZE")).max().unwrap_or(1);
    let is_told = missing.is_empty() && serving.is_some() && unseen.len() as u32 <= of_node;
    if is_told {
        missing = unseen;
    }
    if missing.is_empty() {
        return None;
    }
    let said = |name| started.iter().find_map(|one| one.evidence(name));
    let is_one = missing.len() == 1;
    let title = if is_told {
        format!(
            "{} of {world} {} not reached the store that rank 0 serves: never started, ended, or cannot connect to it",
            drafting::ranks(&missing),
            if is_one { "has" } else { "have" }
        )
    } else {
        format!(
            "{} of {world} {} not there: never started, or ended before joining; the others wait",
            drafting::ranks(&missing),
            if is_one { "is" } else { "are" }
        )
    };
    let waiting: RankSet = there.iter().copied().map(Rank).collect();
    Draft::new(RULE.id, Cause::MissingRank, title)
        .weight(Weight::Derived)
        .confidence(Confidence::Medium)
        // Where nothing says how many belong on the node, it may be on another one; and another node may only not be
        // watched.
        .at_most(match (is_elsewhere || is_told, knows) {
            (true, _) => Confidence::Low,
            (false, true) => Confidence::High,
            (false, false) => Confidence::Medium,
        })
        .culprits(missing.ranks().iter().map(|rank| scene.roster().culprit_rank(*rank)))
        .victims(waiting)
        .evidence([stands.evidence()])
        .evidence(serving.filter(|_| is_told))
        .evidence(["WORLD_SIZE", "LOCAL_WORLD_SIZE"].into_iter().filter_map(said))
        .evidence(started.iter().take(CITATIONS).filter_map(|one| one.evidence("RANK")))
        .advise(
            Impact::Harmless,
            "look at the missing rank's own output: was it started, did it fail while importing?",
        )
        .advise_command(Impact::Harmless, "check which ranks are there", "ps -eo pid,ppid,stat,etime,args")
        .build()
}

/// The stack of rank 0, if it is creating the store that it serves: then not all have connected yet. Under torchrun the
/// launcher serves it, and rank 0 is a client as the others are.
fn serving(scene: &Scene<'_>, started: &[Started<'_>]) -> Option<Evidence> {
    let zero = started.iter().find(|one| one.rank() == Some(Rank(0)))?;
    if zero.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let stand = scene.condition(Rank(0))?.stand.as_ref()?;
    let frame = stand.frames.iter().find(|frame| !frame.is_native())?;
    is_marked(marks::STORE_CREATION, frame).then(|| stand.evidence.clone())
}

/// A rank that was set to use another interface than its peers. Interfaces of other hosts may have other names.
fn other_interface(scene: &Scene<'_>, stands: &StandStill<'_>, started: &[Started<'_>]) -> Option<Finding> {
    let (name, differs) = others(scene, started, ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])?;
    differently(scene, stands, Cause::WrongInterface, (name, &differs), "all wait at the start")
        .advise_command(
            Impact::Harmless,
            "list the interfaces of its host and which one leads to a peer",
            "ip -br addr; ip route get <address of a peer>",
        )
        .advise_made(
            Impact::Harmless,
            "name an interface that reaches the peers, or none",
            Some(format!("{name}=<interface>")),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{
        Cause, Fact, Pid, ProcessRow, ProcessTable, SourceKind, StallShape, WatchEvent, WatchedStall, Who,
    };

    use super::RULE;
    use crate::diagnose;
    use crate::rules::settings::rank_env_misconfigured::RULE as NUMBERS;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::jobs::START_NS;

    fn told(stage: StagedCase, shape: &str) -> StagedCase {
        told_of(stage, shape, &[])
    }

    fn told_of(stage: StagedCase, shape: &str, suspects: &[u32]) -> StagedCase {
        let stall = WatchedStall {
            since_ns: START_NS,
            after_ns: 610_000_000_000,
            expected_ns: 600_000_000_000,
            shape: if shape == "start" { StallShape::Start } else { StallShape::Other },
            text: "no communicator yet".into(),
            suspects: suspects.iter().copied().map(ringleader_model::Rank).collect(),
            ..WatchedStall::default()
        };
        stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Stall(Box::new(stall))))
    }

    /// Ranks as torchrun starts them on one node; `change` for the variables of a rank.
    fn started(ranks: &[u32], change: impl Fn(u32, &mut Vec<(&'static str, String)>)) -> StagedCase {
        ranks.iter().fold(StagedCase::new(), |stage, rank| {
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
                listing.who.pid = Some(Pid(100 + rank));
                listing.who.host = Some("n0".into());
            }
            stage
        })
    }

    fn with(name: &'static str, rank: u32, value: &'static str) -> StagedCase {
        started(&[0, 1, 2, 3], move |own, settings| {
            if own == rank {
                settings.iter_mut().filter(|s| s.0 == name).for_each(|s| s.1 = value.to_owned());
            }
        })
    }

    #[test]
    fn two_processes_that_take_themselves_for_one_rank() {
        let job = |ranks: [u32; 2], hosts: [&str; 2], ready: bool| {
            (0..).zip(ranks).zip(hosts).fold(StagedCase::new(), |stage, ((n, rank), host)| {
                stage.process(host, 10 + n, None).comm(rank, 2, 1, ready)
            })
        };
        job([0, 0], ["n0", "n0"], false).concludes(&RULE, "rank-env-misconfigured 0, medium");
        job([0, 1], ["n0", "n0"], false).silent(&RULE);
        job([0, 0], ["n0", "n0"], true).silent(&RULE);
        // Logs of two hosts, each of another job; an attempt that failed, and the next one.
        job([0, 0], ["n0", "n1"], false).silent(&RULE);
        job([0, 0], ["n0", "n0"], false).failed(0, 1, true).silent(&RULE);
    }

    #[test]
    fn command_lines_that_name_other_places() {
        let job = |ports: &[u32]| {
            let rows = (0..).zip(ports).map(|(rank, port)| ProcessRow {
                line: rank + 2,
                pid: Some(Pid(100 + rank)),
                state: "S".into(),
                command: format!("python recon.py --rank {rank} --world 4 --port {port}").into(),
                ..ProcessRow::default()
            });
            let table = ProcessTable { rows: rows.collect(), ..ProcessTable::default() };
            let stage = (0..).zip(ports).fold(StagedCase::new(), |stage, (rank, _)| {
                let who = Who { pid: Some(Pid(100 + rank)), ..Who::rank(rank) };
                stage.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Ranks(vec![who])))
            });
            stage.push(SourceKind::Processes, Who::default(), Fact::Processes(Box::new(table)))
        };
        told(job(&[9, 10]), "start").concludes(&RULE, "rank-env-misconfigured 1, medium");
        told(job(&[9, 10, 9]), "start").concludes(&RULE, "rank-env-misconfigured 1, medium");
        // It runs; all are alike; each rank has a port of its own.
        told(job(&[9, 10]), "other").silent(&RULE);
        told(job(&[9, 9]), "start").silent(&RULE);
        told(job(&[9, 10, 11]), "start").silent(&RULE);
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
        // The first of two nodes; the second has brought no evidence.
        let first = |_: u32, s: &mut Vec<(&str, String)>| s[2].1 = "8".to_owned();
        told(started(&[0, 1, 2, 3], first), "start").silent(&RULE);
    }

    #[test]
    fn a_node_that_never_joins() {
        let alone = |_: u32, s: &mut Vec<(&str, String)>| {
            s[1].1 = "0".to_owned();
            s[3].1 = "1".to_owned();
        };
        // Three of four nodes are watched.
        told_of(started(&[0, 1, 3], alone), "start", &[2]).concludes(&RULE, "missing-rank 2, low");
        // One of two, where rank 0 has made the store and waits for the other.
        let of_two = |_: u32, s: &mut Vec<(&str, String)>| {
            alone(0, s);
            s[2].1 = "2".to_owned();
        };
        let serves_of = |stage: StagedCase, function, watched: &[u32]| {
            let who = |rank: &u32| Who { pid: Some(Pid(100 + rank)), ..Who::rank(*rank) };
            let ranks = Fact::Watch(WatchEvent::Ranks(watched.iter().map(who).collect()));
            let stage = stage.push(SourceKind::Watch, Who::default(), ranks);
            told_of(stage, "start", &[]).stands(0, &[("torch/distributed/rendezvous.py", 199, function)])
        };
        let serves = |stage: StagedCase, function| serves_of(stage, function, &[0]);
        serves(started(&[0], of_two), "_create_c10d_store").concludes(&RULE, "missing-rank 1, low");
        // The other is watched, too; its environment was cut from the evidence.
        serves_of(started(&[0], of_two), "_create_c10d_store", &[0, 1]).silent(&RULE);
        serves(started(&[0], of_two), "_env_rendezvous_handler").silent(&RULE);
        serves(started(&[0], alone), "_create_c10d_store").silent(&RULE);
        let by_agent = |_: u32, s: &mut Vec<(&str, String)>| {
            of_two(0, s);
            s.push(("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned()));
        };
        serves(started(&[0], by_agent), "_create_c10d_store").silent(&RULE);
        // One of four; and two of four, where the watcher names no rank.
        told_of(started(&[0], alone), "start", &[]).silent(&RULE);
        told_of(started(&[0, 1], alone), "start", &[]).silent(&RULE);
    }

    #[test]
    fn numbers_that_contradict_each_other() {
        let concludes = |stage: &StagedCase, expected: &str| {
            stage.silent(&RULE);
            stage.concludes(&NUMBERS, expected);
        };
        let stage = told(with("RANK", 3, "2"), "start");
        concludes(&stage, "rank-env-misconfigured 3, high");
        let finding = stage.finding(&NUMBERS);
        assert_eq!(finding.title, "2 processes have rank 2; pid 103 has local rank 3, and nobody has rank 3");
        assert_eq!(finding.culprits[0].pid, Some(Pid(103)));
        // Nothing says where on the node they are: it is one of the two.
        let unsaid = |rank: u32, s: &mut Vec<(&str, String)>| {
            s.retain(|s| !s.0.starts_with("LOCAL"));
            s.iter_mut().filter(|s| s.0 == "RANK" && rank == 3).for_each(|s| s.1 = "2".to_owned());
        };
        concludes(&told(started(&[0, 1, 2, 3], unsaid), "start"), "rank-env-misconfigured 2, high");
        concludes(&told(with("WORLD_SIZE", 1, "5"), "start"), "rank-env-misconfigured 1, high");
        // One against one.
        let two = |size: &'static str, local: &'static str| {
            let stage = started(&[0, 1], move |rank, settings| {
                settings[2].1 = if rank == 1 { size.to_owned() } else { "2".to_owned() };
                settings[3].1 = local.to_owned();
            });
            told(stage, "start")
        };
        concludes(&two("3", "2"), "rank-env-misconfigured 1, high");
        concludes(&two("4", "2"), "rank-env-misconfigured 0-1, high");
    }

    #[test]
    fn another_meeting_place_or_interface() {
        told(with("MASTER_ADDR", 2, "n9"), "start").concludes(&RULE, "missing-rank 2, medium");
        told(with("NCCL_SOCKET_IFNAME", 2, "mgmt0"), "start").concludes(&RULE, "wrong-interface 2, medium");
        // One of the ranks that the watcher names has left no environment.
        let who = Who { pid: Some(Pid(104)), ..Who::rank(4) };
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
            stage.silent(&NUMBERS);
        }
        // Settings that fit together show nothing, even if the job is stalled.
        let stage = told(started(&[0, 1, 2, 3], |_, _| {}), "start");
        stage.silent(&RULE);
        let verdict = diagnose(&stage.case);
        assert_eq!(verdict.cause, Cause::Undecided, "{verdict:#?}");
        assert!(verdict.summary.contains("made no progress"), "{}", verdict.summary);
    }
}
