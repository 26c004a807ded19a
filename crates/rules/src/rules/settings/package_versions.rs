//! # What it shows
//!
//! Hosts of one job have different releases of NCCL, or of the torch that ships it, installed.
//!
//! # Why it happens
//!
//! One image was built again and not every node pulled it; an environment of one node was updated by hand.
//!
//! # Evidence
//!
//! Lists of pip, conda, dpkg or rpm of at least two hosts of the job that name the same package with different versions.
//! NCCL's own logs go first: where they show what is loaded, what is installed does not matter.
//!
//! # What looks like it but is not
//!
//! Other packages that differ: editors, linters and loggers do not communicate. Two environments of one host. A package
//! of the system beside that of pip: only one of them is loaded, on every host the same. A build behind the release
//! (`+cu126`, `-1+cuda12.4`) is another build of the same protocol.
//!
//! # What to do
//!
//! Use one image on all nodes.
//!
//! # References
//!
//! NVIDIA/nccl src/bootstrap.cc and src/init.cc (ranks must run one release); pytorch releases name the NCCL they bring.

use ringleader_knowledge::version::release;
use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Cause, Confidence, Culprit, Host, NcclProcess, Observation, Severity, SourceKind, SystemFact, Weight,
};

use crate::health;
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "package-versions",
    title: "hosts have different releases of NCCL installed",
    since: "0.1",
    doc: include_str!("package_versions.rs"),
    check,
};

/// Packages that bring NCCL, by the manager that names them so: NCCL itself first.
const NCCL: [&str; 7] = [
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-nccl",
    "nccl",
    "libnccl2",
    "libnccl",
];
/// What brings it where it is not a package of its own.
const TORCH: [&str; 2] = ["torch", "pytorch"];

/// Citations of one finding.
const CITATIONS: usize = 4;

type Installed<'a> = BTreeMap<&'a str, Vec<(Host, &'a Observation)>>;

/// Hosts by the release that they have of one package; a host with two releases of it is ignored.
fn installed<'a>(scene: &Scene<'a>, package: &str) -> Installed<'a> {
    let mut by_host: BTreeMap<Host, BTreeMap<&str, &Observation>> = BTreeMap::new();
    for (observation, fact) in scene.system() {
        let (SystemFact::Packages(list), Some(host)) = (fact, scene.host_of(observation)) else { continue };
        let versions = list.iter().filter(|(name, _)| **name == *package);
        for (_, version) in versions {
            by_host.entry(host.clone()).or_default().insert(release(version), observation);
        }
    }
    let mut by_release = Installed::new();
    for (host, versions) in by_host {
        if let (Some((version, observation)), 1) = (versions.first_key_value(), versions.len()) {
            by_release.entry(version).or_default().push((host, observation));
        }
    }
    by_release
}

fn check(scene: &Scene<'_>) -> Outcome {
    let hosts = scene.hosts();
    let loaded: BTreeMap<&Host, BTreeSet<&str>> = loaded(scene);
    let is_of_job = |host: &Host| hosts.is_empty() || hosts.contains(host);
    for package in NCCL.iter().chain(&TORCH) {
        let mut by_release = installed(scene, package);
        for hosts in by_release.values_mut() {
            hosts.retain(|(host, _)| is_of_job(host));
        }
        by_release.retain(|_, hosts| !hosts.is_empty());
        if by_release.len() < 2 {
            continue;
        }
        // What the processes say they run is known: the list is of something else.
        let all: BTreeSet<&Host> = by_release.values().flatten().map(|(host, _)| host).collect();
        let said: BTreeSet<&str> = all.iter().filter_map(|h| loaded.get(*h)).flatten().copied().collect();
        if all.iter().all(|h| loaded.contains_key(*h)) && said.len() < 2 {
            continue;
        }
        return found(draft(scene, package, &by_release));
    }
    Outcome::Clear
}

/// Releases that the processes of each host print.
fn loaded<'a>(scene: &Scene<'a>) -> BTreeMap<&'a Host, BTreeSet<&'a str>> {
    let mut loaded: BTreeMap<&Host, BTreeSet<&str>> = BTreeMap::new();
    let processes: Vec<&NcclProcess> = scene.nccl_logs().flat_map(|(_, log)| &log.processes).collect();
    for process in processes {
        if let (Some(host), Some(version)) = (process.who.host.as_ref(), process.nccl_version.as_deref()) {
            loaded.entry(host).or_default().insert(release(version));
        }
    }
    loaded
}

fn draft(scene: &Scene<'_>, package: &str, by_release: &Installed<'_>) -> Draft {
    let most = by_release.values().map(Vec::len).max().unwrap_or(0);
    let odd = by_release.values().filter(|hosts| hosts.len() < most).flatten();
    let odd: Vec<&Host> = odd.map(|(host, _)| host).collect();
    let culprits = scene
        .roster()
        .members
        .iter()
        .filter(|m| m.host.as_ref().is_some_and(|h| odd.contains(&h)))
        .filter_map(|m| m.rank)
        .map(|rank| scene.roster().culprit_rank(rank));
    let mut culprits: Vec<Culprit> = culprits.collect();
    culprits.dedup();
    let names: Vec<&str> = by_release.keys().copied().collect();
    let evidence = by_release.iter().take(CITATIONS).filter_map(|(version, hosts)| {
        let (host, observation) = hosts.first()?;
        Some(shown(observation, None, SourceKind::System, format!("{host} has {package} {version}")))
    });
    // Where nothing failed it has done no harm so far.
    let (weight, severity) = match health::trouble(scene) {
        Some(_) => (Weight::Derived, Severity::Error),
        None => (Weight::Aside, Severity::Warning),
    };
    Draft::new(RULE.id, Cause::NcclVersionMismatch, format!("hosts of the job have {package} {}", names.join(" and ")))
        .weight(weight)
        .severity(severity)
        .confidence(if TORCH.contains(&package) { Confidence::Low } else { Confidence::Medium })
        .at_most(Confidence::Medium)
        .culprits(culprits)
        .evidence(evidence)
        .advise_command(
            ringleader_model::Impact::Harmless,
            "on every node, see which library a rank loads",
            "grep -o '/.*libnccl[^ ]*' /proc/<pid>/maps | sort -u; pip list 2>/dev/null | grep -iE 'nccl|^torch '",
        )
        .advise(ringleader_model::Impact::Harmless, "use one image on all nodes")
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn builds_of_one_release_are_the_same() {
        assert_eq!(release("2.6.0+cu126"), release("2.6.0"));
        assert_eq!(release("2.21.5-1+cuda12.4"), "2.21.5");
        assert_ne!(release("2.26.2"), release("2.27.3"));
    }
}
