//! Whom a verdict accuses where its rule names nobody, or no machine: the one rank or machine that the evidence sets apart.
//!
//! What only one of several ranks says, or what a launcher says of one, is about that one. What tools print is about the
//! machine on which they ran. In a hang the first to complain is one of those that wait, so words set nobody apart there.

pub(crate) mod apart;
mod cards;
mod machine;

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::{End, Killer};
use ringleader_correlate::said::statements::{Stated, Utterance};
use ringleader_correlate::when::failure::{EndSign, Way, sign};
use ringleader_knowledge::cause;
use ringleader_knowledge::message::{About, Role};
use ringleader_model::address::same_host;
use ringleader_model::{
    Category, Cause, Class, Culprit, Fact, Finding, FormWeight, Host, Observation, OutlierKey, Rank,
    SourceId, SourceKind, TorchEvent, Verdict,
};

/// Completes the culprits of a verdict.
pub(crate) fn complete(scene: &Scene<'_>, verdict: &mut Verdict) {
    if matches!(verdict.category, Category::None) {
        return;
    }
    let Some(first) = verdict.findings.first().filter(|f| f.cause == verdict.cause) else { return };
    let mut culprits = std::mem::take(&mut verdict.culprits);
    if culprits.is_empty() {
        let same = verdict.findings.iter().filter(|f| f.cause == verdict.cause);
        culprits
            .extend(same.map(|f| &f.culprits).find(|found| !found.is_empty()).into_iter().flatten().cloned());
    }
    if !culprits.iter().any(|culprit| culprit.rank.is_some()) {
        let by_own = || if is_of_one(verdict.cause) { of_one(scene, first) } else { None };
        let mut ranks =
            apart::of_hang(scene, verdict.cause, &verdict.victims).or_else(by_own).unwrap_or_default();
        // What the kernel of one machine says is of no rank of another one.
        if first.evidence.iter().all(|e| e.kind == SourceKind::KernelLog)
            && let Some(host) = machine::of(scene, first)
        {
            let is_there = |of: Option<Host>| of.is_none_or(|of| is_address(&of) || same_host(&of, &host));
            ranks.retain(|rank| is_there(scene.roster().culprit_rank(*rank).host));
        }
        give_ranks(scene, &mut culprits, &ranks);
    }
    if culprits.is_empty() && cause::category(verdict.cause) == Category::Performance {
        culprits.extend(by_table(scene));
    }
    cards::complete(scene, &mut culprits);
    let only = scene.machines().only();
    // Of a lost machine a survivor may be the only one that speaks: it must not be taken out for it.
    let is_own = !is_of_others(verdict.cause);
    // What did not start or find its program did so on the machine whose task ended by itself.
    let has_ends = is_own || verdict.cause == Cause::LauncherFailure;
    let machine = machine::of(scene, first)
        .or_else(|| scene.schedulers().common_node())
        .or_else(|| machine::ended_on(scene).filter(|_| has_ends))
        .or_else(|| only.cloned().filter(|_| is_own))
        .or_else(|| machine::absent(scene, first).filter(|_| verdict.cause == Cause::MissingRank));
    if !is_own {
        machine::name_others(scene, first, &mut culprits);
    }
    for culprit in &mut culprits {
        culprit.host = culprit.host.take().or_else(|| machine::of_stack(scene, culprit.rank?));
        // A name says more than an address.
        let is_vague = culprit.host.as_ref().is_none_or(is_address);
        let better = if culprit.rank.is_none() { machine.as_ref() } else { only };
        if is_vague && better.is_some_and(|host| culprit.host.is_none() || !is_address(host)) {
            culprit.host = better.cloned();
        }
    }
    // Where all was printed on one machine, it happened there, whatever it is.
    let is_known = verdict.cause != Cause::Undecided;
    if culprits.is_empty() && is_known && (may_be_of_machine(verdict.cause) || machine.as_ref() == only) {
        culprits.extend(machine.map(|host| Culprit { host: Some(host), ..Culprit::default() }));
    }
    verdict.culprits = culprits;
}

/// The one that all tables of ranks or hosts set apart.
fn by_table(scene: &Scene<'_>) -> Option<Culprit> {
    let mut keys = scene.case().observations.iter().filter_map(|o| match &o.fact {
        Fact::Outlier(outlier) => Some(&outlier.key),
        _ => None,
    });
    let first = keys.next()?;
    if !keys.all(|key| key == first) {
        return None;
    }
    match first {
        OutlierKey::Rank(rank) => Some(scene.roster().culprit_rank(*rank)),
        OutlierKey::Host(host) => Some(Culprit { host: Some(host.clone()), ..Culprit::default() }),
        OutlierKey::Gpu(_) => None,
    }
}

/// Ranks of culprits that had none: the one process that was known by less, or others.
fn give_ranks(scene: &Scene<'_>, culprits: &mut Vec<Culprit>, ranks: &BTreeSet<Rank>) {
    let found = ranks.iter().map(|rank| scene.roster().culprit_rank(*rank));
    match culprits.as_mut_slice() {
        [] => culprits.extend(found),
        _ if ranks.is_empty() => {}
        [one] if ranks.len() == 1 => {
            for new in found {
                let is_other = one.pid.is_some() && new.pid.is_some() && one.pid != new.pid;
                if !is_other {
                    one.rank = new.rank;
                    one.pid = one.pid.or(new.pid);
                    one.local_rank = one.local_rank.or(new.local_rank);
                    one.gpu = one.gpu.or(new.gpu);
                    one.host = one.host.take().or(new.host);
                }
            }
        }
        // A place in the code or a machine alone is of all of them.
        [one] if one.pid.is_none() && one.gpu.is_none() => {
            let (host, place) = (one.host.clone(), one.place.clone());
            let with = |new: Culprit| Culprit {
                host: new.host.or_else(|| host.clone()),
                place: place.clone(),
                ..new
            };
            *culprits = found.map(with).collect();
        }
        _ => {}
    }
}

fn is_address(host: &Host) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

/// Causes of one process or one machine, other than hangs.
fn is_of_one(cause: Cause) -> bool {
    let category = cause::category(cause);
    !matches!(cause, Cause::FrameworkBug | Cause::LibraryMismatch)
        && category != Category::Hang
        && (category == Category::Crash
            || matches!(cause::class(cause), Some(Class::Node | Class::Transient))
            || matches!(
                cause,
                Cause::ApplicationException
                    | Cause::NanLoss
                    | Cause::RankEnvMisconfigured
                    | Cause::CudaInitFailed
                    | Cause::GpuBusy
                    | Cause::StorageFailure
                    | Cause::GpuIsolation
                    | Cause::ShmPermission
                    | Cause::NcclWrongGpuArch
                    | Cause::TooManyOpenFiles
            ))
}

/// Causes that a machine may have: its parts, and how it is set up.
fn may_be_of_machine(cause: Cause) -> bool {
    matches!(cause::class(cause), Some(Class::Node | Class::Transient))
        || cause::category(cause) == Category::Init
        || matches!(
            cause,
            Cause::GpuThrottled
                | Cause::PcieDegraded
                | Cause::SlowLink
                | Cause::Straggler
                | Cause::OomKilled
                | Cause::SilentCorruption
                | Cause::P2pAcsIommu
                | Cause::PcieError
                | Cause::WrongTransport
                | Cause::ProcessCrashed
                | Cause::ProcessUninterruptible
        )
}

/// Causes that others report: the machine that speaks is not the one at fault.
fn is_of_others(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NodeLost
            | Cause::LauncherFailure
            | Cause::MissingRank
            | Cause::NetworkUnreachable
            | Cause::PeerProcessDied
            | Cause::StoppedFromOutside
    )
}

/// How many ranks the job has at least.
fn n_ranks(scene: &Scene<'_>) -> usize {
    let seen = scene.roster().members.iter().filter(|m| m.rank.is_some()).count();
    seen.max(scene.roster().world_size.unwrap_or(0) as usize)
}

/// The ranks with a fault of their own: those whose statement decided, whom others name, that alone complain, or that ended by
/// themselves.
fn of_one(scene: &Scene<'_>, first: &Finding) -> Option<BTreeSet<Rank>> {
    // Watchdogs end those that waited: their ends are no sign of a fault of their own, nor are their complaints.
    let has_waited = scene.failure().has(Way::TimedOut) || scene.failure().has(Way::Stuck);
    let by_words = || if has_waited { None } else { named(scene).or_else(|| lone(scene)) };
    let by_silence = || if has_waited { apart::silent(scene) } else { None };
    // A line that says of some ranks that it was they needs no others to compare with.
    stated(scene, first.cause).or_else(|| {
        by_words()
            .or_else(|| ended(scene, first))
            .or_else(by_silence)
            .or_else(|| cards::named(scene, first, apart::spoke(scene)))
            .or_else(|| by_idle_gpu(scene, first))
            .filter(|ranks| ranks.len() * 2 <= n_known(scene).max(2))
    })
}

/// The one rank whose GPU does nothing since its process failed, while the others wait for it. A look at another machine shows a part
/// of the job alone.
fn by_idle_gpu(scene: &Scene<'_>, first: &Finding) -> Option<BTreeSet<Rank>> {
    let may_leave = matches!(first.cause, Cause::ApplicationException | Cause::CudaOom | Cause::OomKilled)
        || first.category == Category::Crash;
    let is_here = scene.gpus().tables().flatten().all(|gpu| scene.machines().at(gpu.cite()).is_none());
    cards::idle(scene).filter(|ranks| may_leave && is_here && ranks.len() == 1)
}

/// How many ranks the job has at least, those too that others name.
fn n_known(scene: &Scene<'_>) -> usize {
    let mut ranks: BTreeSet<Rank> = scene.roster().members.iter().filter_map(|m| m.rank).collect();
    ranks.extend(launched(scene));
    ranks.len().max(n_ranks(scene))
}

/// Ranks whose end launchers report.
fn launched<'s>(scene: &'s Scene<'_>) -> impl Iterator<Item = Rank> + 's {
    ends(scene).flat_map(|u| u.said.named.ranks.iter().copied())
}

/// What launchers say of ends: in their words, or of a rank or task and how it ended.
fn ends<'s, 'a>(scene: &'s Scene<'a>) -> impl Iterator<Item = &'s Utterance<'a>> + use<'s, 'a> {
    // A task that runs a launcher of its own is a node and no rank.
    let tasks_are_ranks = !scene.conditions().has_failure_table();
    scene.stated().all().iter().flat_map(move |stated| {
        let is_of_task = tasks_are_ranks
            && stated.row().is_some_and(|row| row.about() == About::Named && row.role() != Role::Harmless);
        stated
            .utterances
            .iter()
            .filter(move |u| u.said.form.is_end || is_of_task && !u.said.named.ranks.is_empty())
    })
}

/// The ranks that a statement of this very cause names.
fn stated(scene: &Scene<'_>, cause: Cause) -> Option<BTreeSet<Rank>> {
    let states = |stated: &&Stated<'_>| {
        stated.row().is_some_and(|row| row.about() == About::Named && row.role() == Role::States)
            && stated.causes().first() == Some(&cause)
    };
    let all = scene.stated().all().iter().filter(states).flat_map(|stated| &stated.utterances);
    let ranks: BTreeSet<Rank> = all.flat_map(|u| u.said.named.ranks.iter().copied()).collect();
    (!ranks.is_empty()).then_some(ranks)
}

/// Exit codes of those whom a launcher or a watchdog ends.
const ENDED_BY_OTHERS: [i64; 7] = [-15, 143, -6, 134, -9, 137, 0];

/// The ranks that ended by themselves, as launchers report, unless what failed was raised by several.
fn ended(scene: &Scene<'_>, first: &Finding) -> Option<BTreeSet<Rank>> {
    let condition = |rank: Rank| scene.condition(rank);
    let has_failed = |rank: Rank, end: End| {
        let has_waited = condition(rank).is_some_and(|c| c.timed_out.is_some());
        !has_waited
            && match end {
                End::Killed { by, .. } => by != Killer::Launcher,
                End::Crashed(_) | End::CrashReported => true,
                End::Exited(code) => code != 0,
                End::Aborted | End::Terminated | End::Raised | End::InOrder | End::Untold => false,
            }
    };
    let fates = scene.fates().all().filter(|(rank, fate)| has_failed(*rank, fate.end()));
    let mut ranks: BTreeSet<Rank> = fates.map(|(rank, _)| rank).collect();
    // torchrun tells of ranks; task 0 of a scheduler that has started one task is all there is.
    let is_of_job = |rank: &Rank| {
        *rank != Rank(0) || n_known(scene) > 1 || scene.fate(*rank).is_some_and(|fate| fate.exit().is_some())
    };
    let own = ends(scene).filter(|u| u.said.form.exit.is_some_and(|code| !ENDED_BY_OTHERS.contains(&code)));
    ranks.extend(own.flat_map(|u| u.said.named.ranks.iter().copied()));
    ranks.retain(is_of_job);
    (!ranks.is_empty() && !is_of_several(scene, first)).then_some(ranks)
}

/// Whether several processes raised what decided: then the first that a launcher saw end is one of them.
fn is_of_several(scene: &Scene<'_>, first: &Finding) -> bool {
    let classes = |o: &Observation| match &o.fact {
        Fact::Torch(TorchEvent::Exception(e)) => Some((e.class.clone(), e.frames.first().cloned())),
        _ => None,
    };
    let all = || scene.case().observations.iter();
    let is_cited = |o: &&Observation| {
        first.evidence.iter().any(|e| e.cite.source == o.cite.source && e.cite.line == o.cite.line)
    };
    let decided: Vec<_> = all().filter(is_cited).filter_map(classes).collect();
    decided.iter().any(|one| all().filter_map(classes).filter(|other| other == one).count() > 1)
}

/// The few ranks that statements of others name.
fn named(scene: &Scene<'_>) -> Option<BTreeSet<Rank>> {
    let mut ranks: BTreeSet<Rank> = BTreeSet::new();
    for stated in scene.stated().all() {
        let Some(row) = stated.row() else { continue };
        if row.about() == About::Named && row.role() != Role::Harmless {
            ranks.extend(stated.utterances.iter().flat_map(|u| u.said.named.ranks.iter().copied()));
        }
    }
    (!ranks.is_empty() && ranks.len() * 2 <= n_ranks(scene).max(2)).then_some(ranks)
}

/// The one rank with an error of its own.
fn lone(scene: &Scene<'_>) -> Option<BTreeSet<Rank>> {
    if n_ranks(scene) < 2 {
        return None;
    }
    let mut lone: BTreeSet<Rank> = BTreeSet::new();
    let mut echoes: BTreeSet<(SourceId, u32)> = BTreeSet::new();
    for stated in scene.stated().all() {
        let is_echo = matches!(stated.role(), Some(Role::Harmless | Role::Echo));
        if is_echo {
            echoes.extend(
                stated.utterances.iter().map(|u| (u.observation.cite.source, u.observation.cite.line)),
            );
        }
        if is_echo || stated.weight() < FormWeight::Strong || stated.is_warning() {
            continue;
        }
        let ranks = stated.ranks();
        if ranks.len() == 1 {
            lone.extend(ranks);
        }
    }
    for observation in &scene.case().observations {
        let Fact::Torch(event) = &observation.fact else { continue };
        let EndSign::Failed(way, _) = sign(event) else { continue };
        if echoes.contains(&(observation.cite.source, observation.cite.line)) {
            continue;
        }
        if !matches!(way, Way::TimedOut | Way::Stuck | Way::NcclError | Way::LauncherFailed) {
            lone.extend(scene.roster().speaker(observation));
        }
    }
    (lone.len() == 1).then_some(lone)
}

#[cfg(test)]
mod tests {
    use ringleader_correlate::Scene;
    use ringleader_model::{Cause, Culprit, Frame, Rank};

    use super::{ended, give_ranks};
    use crate::trial::{StagedCase, Trial as _};

    fn raised(stage: StagedCase) -> StagedCase {
        stage.raised(None, "ValueError", "no such column", &[("/srv/job.py", 58, "load")])
    }

    fn first_to_end(stage: &StagedCase) -> Vec<u32> {
        let finding = stage.finding(&crate::rules::program::application_exception::RULE);
        assert_eq!(finding.cause, Cause::ApplicationException);
        let found = ended(&Scene::new(&stage.case), &finding);
        found.into_iter().flatten().map(|rank| rank.0).collect()
    }

    #[test]
    fn the_one_that_a_launcher_saw_end_raised_what_nobody_signed() {
        let job = || raised(StagedCase::new().two_ranks()).failed(0, -15, false);
        assert_eq!(first_to_end(&job().failed(1, 1, true)), [1]);
        // Ended by its launcher.
        assert_eq!(first_to_end(&job().failed(1, -15, true)), []);
        // Several raised it: the first that was seen to end is one of them.
        assert_eq!(first_to_end(&raised(job()).failed(1, 1, true)), []);
    }

    #[test]
    fn a_place_without_a_rank_is_kept() {
        let stage = StagedCase::new().two_ranks();
        let scene = Scene::new(&stage.case);
        let place = Frame { function: "load".into(), file: "/srv/job.py".into(), line: 58 };
        let mut culprits = vec![Culprit { place: Some(place), ..Culprit::default() }];
        give_ranks(&scene, &mut culprits, &[Rank(1)].into());
        assert_eq!(culprits.len(), 1);
        assert_eq!(culprits[0].rank, Some(Rank(1)));
        assert!(culprits[0].place.is_some());
        // Another process than the one that is known.
        let mut culprits = vec![Culprit { pid: Some(ringleader_model::Pid(1)), ..Culprit::default() }];
        give_ranks(&scene, &mut culprits, &[Rank(1)].into());
        assert_eq!(culprits[0].rank, None);
    }
}
