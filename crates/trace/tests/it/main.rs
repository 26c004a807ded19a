//! The analysis over recorded timelines: laws that hold for every one of them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "tests read recorded cases")]
#![expect(clippy::disallowed_types, reason = "tests read recorded cases")]

mod compared;
mod contention;
mod found;
mod gains;
mod hosts;
mod laws;
mod made;
mod mesh;
mod pipeline;
mod programs;
mod public;
mod robust;
mod stages;

mod windows;

use std::path::{Path, PathBuf};

use ringleader_evidence::{Limits, Scratch};
use ringleader_model::{Case, Cause, Fact};
use ringleader_trace::{Analysis, analyse};

/// Folders of cases that hold timelines.
fn recorded() -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(cases)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("evidence"))
        .filter(|folder| timelines_of(folder).next().is_some())
        .collect();
    folders.sort();
    folders
}

fn timelines_of(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|f| f.file_name().unwrap().to_string_lossy().starts_with("trace_rank")).collect();
    files.sort();
    files.into_iter()
}

fn read(folder: &Path) -> Case {
    let extracts = timelines_of(folder).map(|file| {
        let mut input = std::fs::File::open(&file).unwrap();
        ringleader_evidence::read(
            file.to_str().unwrap(),
            &mut input,
            &mut Scratch::default(),
            &Limits::default(),
        )
    });
    ringleader_evidence::merge(extracts.collect())
}

fn look(case: &Case) -> Analysis<'_> {
    analyse(case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Timeline(timeline) => Some((&**timeline, o.who.rank.map(|rank| rank.0))),
        _ => None,
    }))
}

#[test]
fn every_step_is_the_sum_of_its_parts() {
    let folders = recorded();
    assert!(folders.len() >= 12, "{folders:?}");
    let mut n_steps = 0;
    for folder in folders {
        let case = read(&folder);
        let analysis = look(&case);
        for (steps, splits) in analysis.steps.iter().zip(&analysis.splits) {
            for (step, split) in steps.all.iter().zip(splits) {
                assert_eq!(split.sum_ns(), step.length_ns(), "{}: {split:?}", folder.display());
                assert!(split.hidden_comm_ns <= split.compute_ns);
                n_steps += 1;
            }
            for pair in steps.all.windows(2) {
                assert_eq!(pair[0].window.1, pair[1].window.0, "steps follow one another");
            }
        }
        for mean in &analysis.means {
            assert_eq!(mean.sum_ns(), mean.length_ns);
        }
    }
    assert!(n_steps > 100, "{n_steps}");
}

#[test]
fn the_replay_explains_the_recording() {
    for folder in recorded() {
        let case = read(&folder);
        let analysis = look(&case);
        let share = analysis.replayed_ns as f64 / analysis.step_ns as f64;
        assert!((0.85..1.1).contains(&share), "{}: {share}", folder.display());
        assert!(analysis.unrecorded_ns <= analysis.replayed_ns);
    }
}

#[test]
fn clocks_of_one_node_agree() {
    for folder in recorded() {
        let case = read(&folder);
        let analysis = look(&case);
        assert!(analysis.join.is_aligned(), "{}: {:?}", folder.display(), analysis.join.residual_ns);
        assert!(analysis.join.ops.len() >= 4);
        for op in &analysis.join.ops {
            let cost = analysis.join.cost_ns(&analysis.views, op);
            for (view, work) in &op.members {
                let work = &analysis.views[*view as usize].work()[*work as usize];
                assert!(
                    cost <= work.end_ns - work.start_ns,
                    "a collective costs no more than its shortest member took"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_is_cut_accuses_nobody_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/trace-slow-gpu/evidence");
    let mut case = read(&folder);
    let mut n_cut = 0;
    for observation in &mut case.observations {
        if let Fact::Timeline(timeline) = &mut observation.fact
            && timeline.rank.is_some_and(|rank| rank.0 == 1)
        {
            // The recorder was stopped while it wrote: work of the last steps is missing.
            timeline.work.truncate(timeline.work.len() * 7 / 10);
            timeline.is_damaged = true;
            n_cut += 1;
        }
    }
    assert_eq!(n_cut, 1);
    let analysis = look(&case);
    for (splits, steps) in analysis.splits.iter().zip(&analysis.steps) {
        assert!(steps.all.iter().zip(splits).all(|(step, split)| split.sum_ns() == step.length_ns()));
    }
    let first = analysis.advice.first().filter(|a| a.is_worth).map(|a| (a.cause, a.culprits.clone()));
    assert_eq!(first, Some((Cause::Straggler, vec![0])));
}

#[test]
fn one_rank_alone_blames_nobody() {
    for (case, rank) in [("trace-slow-gpu", 1), ("trace-more-work", 0), ("trace-control", 0)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(case).join("evidence");
        let mut case_read = read(&folder);
        case_read
            .observations
            .retain(|o| matches!(&o.fact, Fact::Timeline(t) if t.rank.is_some_and(|r| r.0 == rank)));
        let analysis = look(&case_read);
        assert_eq!(analysis.views.len(), 1, "{case}");
        assert!(!analysis.advice.iter().any(|a| a.is_worth), "{case}: {:?}", analysis.advice.first());
        assert_eq!(analysis.waits_unseen(), case != "trace-control", "{case}");
    }
}

#[test]
fn a_late_rank_is_named_and_nobody_else() {
    let late = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(name).join("evidence");
        let case = read(&folder);
        look(&case).advice.first().filter(|a| a.is_worth).map(|a| (a.cause, a.culprits.clone()))
    };
    assert_eq!(late("trace-slow-gpu"), Some((Cause::Straggler, vec![0])));
    assert_eq!(late("trace-more-work"), Some((Cause::Straggler, vec![1])));
    assert_eq!(late("trace-late-host"), Some((Cause::Straggler, vec![0])));
    assert_eq!(late("trace-control"), None);
}

#[test]
fn computation_is_slower_beside_communication_on_real_gpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/trace-control/evidence");
    let case = read(&folder);
    let found = look(&case).contention.unwrap();
    // Products with a block for each of the 132 SMs: 370 us alone, 500 us beside 24 blocks of NCCL.
    assert_eq!((found.n_ctas, found.n_sms, found.n_compared), (24, 132, 48));
    assert!((1.34..1.37).contains(&found.slowdown), "{found:?}");
}
