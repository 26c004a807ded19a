//! Whom a verdict accuses where its rule names nobody, or no machine: the one rank or machine that the evidence sets apart.
//!
//! What only one of several ranks says, or what a launcher says of one, is about that one. What tools print is about the
//! machine on which they ran. In a hang the first to complain is one of those that wait, so words set nobody apart there.

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::when::failure::{Sign, Way, sign};
use ringleader_knowledge::cause;
use ringleader_knowledge::message::{About, Role};
use ringleader_model::{
    Category, Cause, Class, Culprit, Fact, Finding, FormWeight, Host, Rank, SourceId, Verdict,
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
    // Watchdogs end those that waited: their ends are no sign of a fault of their own.
    let has_waited = scene.failure().has(Way::TimedOut) || scene.failure().has(Way::Stuck);
    if culprits.is_empty() && is_of_one(verdict.cause) && !has_waited {
        let ranks = named(scene).or_else(|| lone(scene));
        culprits.extend(ranks.iter().flatten().map(|rank| scene.roster().culprit_rank(*rank)));
    }
    let only = scene.machines().only();
    let machine = machine(scene, first).or_else(|| only.cloned().filter(|_| !is_of_others(verdict.cause)));
    for culprit in &mut culprits {
        // A name says more than an address.
        let is_vague = culprit.host.as_ref().is_none_or(is_address);
        let better = if culprit.rank.is_none() { machine.as_ref() } else { only };
        if is_vague && better.is_some_and(|host| culprit.host.is_none() || !is_address(host)) {
            culprit.host = better.cloned();
        }
    }
    if culprits.is_empty() && may_be_of_machine(verdict.cause) {
        culprits.extend(machine.map(|host| Culprit { host: Some(host), ..Culprit::default() }));
    }
    verdict.culprits = culprits;
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
        let Sign::Failed(way, _) = sign(event) else { continue };
        if echoes.contains(&(observation.cite.source, observation.cite.line)) {
            continue;
        }
        if !matches!(way, Way::TimedOut | Way::Stuck | Way::NcclError | Way::LauncherFailed) {
            lone.extend(scene.roster().speaker(observation));
        }
    }
    (lone.len() == 1).then_some(lone)
}

/// The one machine that all lines which decide are about, unless another machine says the same.
fn machine(scene: &Scene<'_>, finding: &Finding) -> Option<Host> {
    let machines = scene.machines();
    let mut named: BTreeSet<&Host> = BTreeSet::new();
    let mut from: BTreeSet<&Host> = finding.evidence.iter().filter_map(|e| machines.at(e.cite)).collect();
    for stated in scene.stated().all() {
        let is_cited = stated.utterances.iter().any(|u| {
            let cite = u.observation.cite;
            finding.evidence.iter().any(|e| e.cite.source == cite.source && e.cite.line == cite.line)
        });
        if is_cited {
            from.extend(stated.utterances.iter().filter_map(|u| machines.at(u.observation.cite)));
            named.extend(stated.utterances.iter().flat_map(|u| &u.said.named.hosts));
        }
    }
    let found = if is_of_others(finding.cause) { named } else { from };
    match (found.len(), found.first()) {
        (1, Some(host)) => Some((*host).clone()),
        _ => None,
    }
}
