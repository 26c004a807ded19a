//! Bundles of several jobs of one node, side by side in a folder: each was collected for one job.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Host, Observation, Pid, Rank, SourceKind};

use super::JobShare;

/// What a bundle shows of whose it is.
#[derive(Debug, Default)]
struct Bundle {
    /// Its processes that have a rank.
    pids: BTreeSet<(Option<Host>, Pid)>,
    hosts: BTreeSet<Host>,
    ranks: BTreeSet<Rank>,
    /// Master address and port of its ranks.
    meets: BTreeSet<(String, String)>,
    began_ns: i64,
}

impl Bundle {
    fn is_same_job(&self, other: &Self) -> bool {
        !self.contradicts(other)
            && (!self.pids.is_disjoint(&other.pids) || !self.meets.is_disjoint(&other.meets))
    }

    /// On one node, other processes claim the same ranks: another job, or another attempt.
    fn contradicts(&self, other: &Self) -> bool {
        !self.hosts.is_disjoint(&other.hosts)
            && !self.ranks.is_disjoint(&other.ranks)
            && self.pids.is_disjoint(&other.pids)
    }
}

/// One job for each set of bundles that belong together; none if nothing says that there are several. What is in no bundle is in
/// all of them.
pub(super) fn split(case: &Case) -> Option<Vec<JobShare>> {
    let roots = roots(case);
    if roots.len() < 2 {
        return None;
    }
    let mut bundles: Vec<Bundle> = roots.iter().map(|_| Bundle::default()).collect();
    for observation in &case.observations {
        if let Some(bundle) = of(case, &roots, observation).and_then(|at| bundles.get_mut(at)) {
            learn(bundle, observation);
        }
    }
    // Bundles of one job have one number.
    let mut part: Vec<usize> = (0..bundles.len()).collect();
    for (a, one) in bundles.iter().enumerate() {
        for (b, other) in bundles.iter().enumerate().skip(a + 1) {
            let (from, to) = (part.get(b).copied()?, part.get(a).copied()?);
            if from != to && one.is_same_job(other) {
                part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
            }
        }
    }
    let are_apart = |a: usize, b: usize| {
        part.get(a) != part.get(b)
            && bundles.get(a).zip(bundles.get(b)).is_some_and(|(a, b)| a.contradicts(b))
    };
    let is_contested = (0..bundles.len()).any(|a| (a + 1..bundles.len()).any(|b| are_apart(a, b)));
    if !is_contested {
        return None;
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, part) in part.iter().enumerate() {
        members.entry(*part).or_default().push(at);
    }
    let mut jobs: Vec<JobShare> =
        members.into_values().map(|own| job(case, &roots, &bundles, &own)).collect();
    jobs.sort_by_key(|job| job.newest_ns);
    Some(jobs)
}

fn job(case: &Case, roots: &[&str], bundles: &[Bundle], own: &[usize]) -> JobShare {
    let is_own = |o: &&Observation| of(case, roots, o).is_none_or(|at| own.contains(&at));
    let observations = case.observations.iter().filter(is_own).cloned().collect();
    let notes = case.notes.iter().filter(|note| {
        let path = case.sources.get(note.cite.source.0 as usize).map_or("", |source| source.path.as_str());
        of_path(roots, path).is_none_or(|at| own.contains(&at))
    });
    let names: Vec<&str> = own.iter().filter_map(|at| roots.get(*at).copied()).collect();
    let label = match names.as_slice() {
        [] => String::new(),
        [only] => only.trim_end_matches(['/', '!']).to_owned(),
        [first, rest @ ..] => format!("{} and {} more", first.trim_end_matches(['/', '!']), rest.len()),
    };
    let newest_ns = own.iter().filter_map(|at| bundles.get(*at)).map(|b| b.began_ns).max().unwrap_or(0);
    JobShare {
        case: Case { sources: case.sources.clone(), observations, notes: notes.cloned().collect() },
        label,
        newest_ns,
    }
}

/// Beginnings of the paths of each bundle's items: `job.tar.zst!`, `unpacked/`.
fn roots(case: &Case) -> Vec<&str> {
    let manifests = case.sources.iter().filter(|source| source.kinds.contains(&SourceKind::Bundle));
    let mut roots: Vec<&str> = manifests.filter_map(|s| s.path.strip_suffix("manifest.json")).collect();
    roots.retain(|root| !root.is_empty());
    roots.sort_unstable();
    roots.dedup();
    roots
}

fn of(case: &Case, roots: &[&str], observation: &Observation) -> Option<usize> {
    of_path(roots, case.sources.get(observation.cite.source.0 as usize)?.path.as_str())
}

fn of_path(roots: &[&str], path: &str) -> Option<usize> {
    roots.iter().position(|root| path.starts_with(root))
}

fn learn(bundle: &mut Bundle, observation: &Observation) {
    let who = &observation.who;
    match &observation.fact {
        Fact::Environment(environment) => {
            bundle.ranks.extend(who.rank);
            bundle.pids.extend(who.pid.map(|pid| (who.host.clone(), pid)));
            bundle.hosts.extend(who.host.clone());
            let value = |name: &str| environment.get(name).map(str::to_owned);
            bundle.meets.extend(value("MASTER_ADDR").zip(value("MASTER_PORT")));
        }
        Fact::Processes(table) => {
            let began = table.rows.iter().filter_map(|row| row.picked.as_ref()?.started_ns);
            bundle.began_ns = bundle.began_ns.max(began.max().unwrap_or_default());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cite, Environment, EnvironmentForm, Setting, Source, SourceId, Who};

    use super::*;

    /// Bundles by name, each with the process (host, pid) that is its rank 0, and with the port of its master.
    fn case(bundles: &[(&str, &str, u32, &str)]) -> Case {
        let mut case = Case::default();
        for (name, host, pid, port) in bundles {
            let source = |path: String, kind| Source { path, kinds: vec![kind], size_bytes: 1 };
            case.sources.push(source(format!("{name}!manifest.json"), SourceKind::Bundle));
            let cite = Cite::whole(SourceId(case.sources.len() as u32));
            case.sources.push(source(format!("{name}!{host}/node.json"), SourceKind::NodeSnapshot));
            let setting = |name: &str, value: &str| Setting { cite, name: name.into(), value: value.into() };
            let environment = Environment {
                form: EnvironmentForm::Process,
                settings: vec![setting("MASTER_ADDR", "10.0.0.1"), setting("MASTER_PORT", port)],
                n_left_out: 0,
                is_whole: true,
            };
            let who = Who {
                rank: Some(Rank(0)),
                pid: Some(Pid(*pid)),
                host: Some((*host).into()),
                ..Who::default()
            };
            case.observations.push(Observation {
                who,
                at: None,
                cite,
                text: "".into(),
                fact: Fact::Environment(Box::new(environment)),
            });
        }
        case
    }

    fn labels(bundles: &[(&str, &str, u32, &str)]) -> Option<Vec<String>> {
        Some(split(&case(bundles))?.into_iter().map(|job| job.label).collect())
    }

    #[test]
    fn two_jobs_of_a_node_are_apart() {
        let two = [("a.tar.zst", "n1", 10, "29500"), ("b.tar.zst", "n1", 20, "29501")];
        assert_eq!(labels(&two), Some(vec!["a.tar.zst".to_owned(), "b.tar.zst".to_owned()]));
        // The same port again: another attempt.
        assert!(labels(&[two[0], ("b.tar.zst", "n1", 20, "29500")]).is_some());
    }

    #[test]
    fn bundles_of_one_job_are_together() {
        assert_eq!(
            labels(&[("a.tar.zst", "n1", 10, "29500"), ("b.tar.zst", "n2", 20, "29500")]),
            None,
            "two nodes"
        );
        assert_eq!(
            labels(&[("a.tar.zst", "n1", 10, "29500"), ("b.tar.zst", "n1", 10, "29500")]),
            None,
            "two looks"
        );
        let three = [
            ("a.tar.zst", "n1", 10, "29500"),
            ("b.tar.zst", "n2", 20, "29500"),
            ("c.tar.zst", "n1", 30, "29501"),
        ];
        let jobs = split(&case(&three)).expect("two jobs");
        assert_eq!(jobs.len(), 2);
        assert_eq!(jobs.iter().map(|job| job.case.observations.len()).sum::<usize>(), 3);
    }
}
