//! # What it checks
//!
//! Versions of NCCL, torch and their plugins that the ranks of this node have actually loaded.
//!
//! # What fails
//!
//! Ranks of one job with different versions of NCCL or torch: their protocols differ. It warns about other
//! libraries that differ, a plugin that only some ranks have, and two copies of NCCL in one process.
//!
//! # What to do
//!
//! Start all ranks from one environment or image.
//!
//! # References
//!
//! NVIDIA/nccl src/init.cc (version check at bootstrap); /proc/PID/maps.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_node::BETWEEN_COPIES;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::jobs::{by_meeting, name};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "job-versions",
    title: "all ranks run the same libraries",
    area: Area::Job,
    reads: &[Probe::Jobs, Probe::Libraries],
    drains: false,
    is_quick: false,
    since: "0.2",
    doc: include_str!("job_versions.rs"),
    run,
};

/// Libraries whose difference breaks a job.
const MUST_AGREE: &[&str] = &["libnccl.so", "libtorch_cuda.so", "librccl.so"];

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let libraries = match view.node.libraries.seen() {
        Ok(libraries) => libraries,
        Err(missing) => return missing.into(),
    };
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let mut items = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut n_ranks = 0;
    for ranks in by_meeting(jobs) {
        // A rank without NCCL has not got that far: what it lacks proves nothing.
        let loaded: Vec<_> = ranks
            .iter()
            .filter_map(|rank| Some((*rank, libraries.get(&rank.pid)?)))
            .filter(|(_, loaded)| {
                loaded.keys().any(|name| name.starts_with("libnccl.so") || name.starts_with("libtorch_cuda"))
            })
            .collect();
        n_ranks += loaded.len();
        let names: BTreeSet<&str> = loaded.iter().flat_map(|(_, l)| l.keys().map(String::as_str)).collect();
        for library in names {
            let mut by_version: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
            for (rank, loaded) in &loaded {
                let version = loaded.get(library).map(String::as_str);
                if version == Some("") {
                    continue;
                }
                versions.entry(library).or_default().extend(version);
                by_version.entry(version).or_default().push(name(rank));
                if let Some(version) = version.filter(|version| version.contains(BETWEEN_COPIES)) {
                    items.push(Item {
                        subject: name(rank),
                        verdict: CheckState::Warn,
                        text: format!("has loaded two copies of {library}: {version}"),
                        evidence: format!("/proc/{}/maps", rank.pid),
                    });
                }
            }
            let is_plugin =
                library.contains("-net") || library.contains("-tuner") || library.contains("-profiler");
            let must = MUST_AGREE.iter().any(|head| library.starts_with(head));
            if by_version.len() < 2 || !(must || is_plugin || !by_version.contains_key(&None)) {
                continue;
            }
            let most = by_version.values().map(Vec::len).max().unwrap_or(0);
            let told: Vec<String> = by_version
                .iter()
                .map(|(version, who)| format!("{} on {}", version.unwrap_or("not loaded"), shorten(who)))
                .collect();
            let odd = by_version.values().filter(|who| who.len() < most).flatten().next();
            // A rank that has not loaded it yet may only be slow.
            let is_fatal = must && by_version.keys().flatten().count() > 1;
            items.push(Item {
                subject: odd.cloned().unwrap_or_else(|| library.to_owned()),
                verdict: if is_fatal { CheckState::Fail } else { CheckState::Warn },
                text: format!("ranks differ in {library}: {}", told.join("; ")),
                evidence: "/proc/PID/maps of each rank, and the files themselves".to_owned(),
            });
        }
    }
    if n_ranks == 0 {
        return CheckAnswer::skipped("no rank here has loaded NCCL or torch");
    }
    let mut answer = CheckAnswer::from_items(format!("{n_ranks} ranks run the same libraries"), items)
        .advise(Impact::Disruptive, "start all ranks from one environment or image", None);
    for (library, versions) in versions {
        let all: Vec<&str> = versions.into_iter().collect();
        answer = answer.value(format!("library.{library}"), all.join(", "), ValueKind::Same);
    }
    answer
}

/// Shortens a long list.
fn shorten(who: &[String]) -> String {
    match who {
        [first, .., last] if who.len() > 3 => format!("{first} … {last} ({} ranks)", who.len()),
        _ => who.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ringleader_node::Part;

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    fn stage(versions: impl Fn(u32) -> Vec<(&'static str, &'static str)>) -> NodeStage {
        let of = |n| versions(n).into_iter().map(|(name, v)| (name.to_owned(), v.to_owned())).collect();
        let libraries: BTreeMap<u32, BTreeMap<String, String>> = (0..4).map(|n| (80 + n, of(n))).collect();
        NodeStage::job(|_, _| {}).with(|node| node.libraries = Part::of(libraries))
    }

    #[test]
    fn another_nccl_on_one_rank() {
        let differs = stage(|n| {
            vec![("libnccl.so.2", if n == 2 { "2.27.5" } else { "2.28.9" }), ("libtorch_cuda.so", "2.11.0")]
        });
        differs.expect(&CHECK, CheckState::Fail, &["pid 82 (rank 2)"]);
        let plugin = |n| {
            if n == 1 {
                vec![("libnccl.so.2", "2.28.9"), ("libnccl-net-ofi.so", "x")]
            } else {
                vec![("libnccl.so.2", "2.28.9")]
            }
        };
        stage(plugin).expect(&CHECK, CheckState::Warn, &["pid 81 (rank 1)"]);
        stage(|n| vec![("libnccl.so.2", if n == 0 { "2.27.5 and 2.28.9" } else { "2.28.9" })]);
    }

    #[test]
    fn what_is_no_difference() {
        let same = stage(|_| vec![("libnccl.so.2", "2.28.9")]);
        same.expect(&CHECK, CheckState::Ok, &[]);
        assert_eq!(same.answer(&CHECK).values[0].key, "library.libnccl.so.2");
        // One rank is not as far; the version of one is unknown; only one has loaded a library for its own use.
        stage(|n| if n == 3 { vec![] } else { vec![("libnccl.so.2", "2.28.9")] }).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        stage(|n| vec![("libnccl.so.2", if n == 3 { "" } else { "2.28.9" })]).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        let extra = |n| {
            if n == 0 {
                vec![("libnccl.so.2", "2.28.9"), ("libcudnn.so.9", "9.1")]
            } else {
                vec![("libnccl.so.2", "2.28.9")]
            }
        };
        stage(extra).expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Skipped, &[]);
    }
}
