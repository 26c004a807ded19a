//! The same verdict from less evidence, from messier evidence, and from evidence under other names.
//!
//! `docs/accuracy-by-evidence.md` holds how many of the recorded cases each variant gets right. The numbers may only
//! improve: run with `RINGLEADER_BLESS=1` to renew the table after an improvement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use ringleader_model::{Case, Cause, Fact, Rank};

use crate::recorded::{self, Recorded};

/// A small deterministic generator: variants must be the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

type Files = Vec<(String, Vec<u8>)>;

fn is_stderr(name: &str) -> bool {
    name.starts_with("stderr")
}

fn is_dump(name: &str) -> bool {
    name.starts_with("fr_rank")
}

fn is_nccl(name: &str) -> bool {
    name.starts_with("nccl_")
}

/// Renames and shuffles: the names tell nothing any more.
fn renamed(files: &Files, seed: u64) -> Files {
    let mut dice = Dice(seed);
    let mut fresh: Files = files
        .iter()
        .map(|(name, bytes)| {
            let ending = if name.split('.').next_back() == Some("gz") { ".gz" } else { "" };
            (format!("{:08x}x{ending}", dice.roll(usize::MAX >> 32)), bytes.clone())
        })
        .collect();
    for at in (1..fresh.len()).rev() {
        let other = dice.roll(at + 1);
        fresh.swap(at, other);
    }
    fresh
}

/// Drops every file that belongs to one rank alone: its dump, stack, log. `pid` is taken from the log's name.
fn without_rank(case: &Recorded, rank: u32) -> Option<Files> {
    let files: Files = case
        .files
        .iter()
        .filter(|(name, _)| {
            let stem = name
                .trim_end_matches(".gz")
                .trim_end_matches(".log")
                .trim_end_matches(".txt")
                .trim_end_matches(".json");
            let own_dump = stem == format!("fr_rank{rank}") || stem == format!("stack_rank{rank}");
            let own_log = is_nccl(name) && nccl_rank(case, name) == Some(rank);
            let own_node = stem.ends_with(&format!("_node{rank}"));
            !(own_dump || own_log || own_node)
        })
        .cloned()
        .collect();
    (files.len() < case.files.len()).then_some(files)
}

/// Logs are named by pid, which grows with the rank here.
fn nccl_rank(case: &Recorded, name: &str) -> Option<u32> {
    if let Some(node) = name.strip_prefix("nccl_node") {
        return node.split('_').next()?.parse().ok();
    }
    let mut logs: Vec<&String> = case.files.iter().map(|(n, _)| n).filter(|n| is_nccl(n)).collect();
    logs.sort();
    // A case without the log of rank 0 (it never made one) counts from 1.
    let first = 4_usize.saturating_sub(logs.len()).min(1);
    logs.iter().position(|n| *n == name).map(|at| (at + first) as u32)
}

fn cut(files: &Files, seed: u64) -> Files {
    let mut dice = Dice(seed);
    files
        .iter()
        .map(|(name, bytes)| {
            // Each file loses up to its last third, at any byte.
            let keep = bytes.len() - dice.roll(bytes.len() / 3 + 1);
            (name.clone(), bytes[..keep].to_vec())
        })
        .collect()
}

/// The logs of a job that runs, copied one after another: each ends somewhere else.
fn copied_while_it_ran(files: &Files) -> Files {
    let logs = files.iter().filter(|(name, _)| is_nccl(name)).enumerate();
    logs.map(|(at, (name, bytes))| (name.clone(), bytes[..bytes.len() * (6 + at).min(10) / 10].to_vec()))
        .collect()
}

/// In a folder of its own, with the folder of another attempt, which went well, beside it.
fn beside(files: &Files, other: &Files) -> Files {
    let into = |folder: &str, files: &Files| -> Files {
        files.iter().map(|(name, bytes)| (format!("{folder}/{name}"), bytes.clone())).collect()
    };
    [into("attempt_0", other), into("attempt_1", files)].concat()
}

/// Shifts the clock of each rank by its own number of minutes.
fn skewed(case: &mut Case) {
    let shift_ns = |rank: Rank| (i64::from(rank.0) * 7 % 5 - 2) * 150 * 1_000_000_000;
    for observation in &mut case.observations {
        if let (Some(rank), Some(at)) = (observation.who.rank, &mut observation.at) {
            at.ns += shift_ns(rank);
        }
        if let Fact::Flight(dump) = &mut observation.fact
            && let Some(rank) = dump.name_hint
        {
            for op in &mut dump.ops {
                let ns = shift_ns(rank);
                for time in [&mut op.created_ns, &mut op.started_ns, &mut op.completed_ns] {
                    if *time != 0 {
                        *time += ns;
                    }
                }
            }
        }
    }
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Tally {
    n: u32,
    right: u32,
    culprits: u32,
    culprit: u32,
    false_alarms: u32,
    wrong_clean: u32,
}

impl Tally {
    fn add(&mut self, case: &Recorded, verdict: &ringleader_model::Verdict) {
        let score = case.truth.score(verdict);
        self.n += 1;
        self.right += u32::from(score.right);
        self.culprits += u32::from(score.culprit.is_some());
        self.culprit += u32::from(score.culprit == Some(true));
        let healthy = case.truth.cause == "none";
        self.false_alarms += u32::from(healthy && !matches!(verdict.cause, Cause::None | Cause::Undecided));
        self.wrong_clean += u32::from(!score.right && verdict.cause == Cause::None);
    }
}

/// Variants of the recorded jobs (the short rewritten threads have no ranks to lose).
fn tallies() -> (BTreeMap<&'static str, Tally>, String) {
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    let mut misses = String::new();
    let cases = recorded::all();
    let healthy = cases.iter().find(|c| c.name == "healthy").expect("the healthy case").files.clone();
    for case in cases.iter().filter(|c| c.files.len() > 4) {
        // The timelines that this case needs are not read yet.
        if case.name == "ddp-profile-big-bucket" {
            continue;
        }
        let mut run = |variant: &'static str, verdict: ringleader_model::Verdict| {
            let score = case.truth.score(&verdict);
            if !score.right || score.culprit == Some(false) {
                let ranks: Vec<u32> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
                let _ = writeln!(
                    misses,
                    "{variant:24} {:22} want {} got {} {ranks:?}",
                    case.name, case.truth.cause, verdict.cause
                );
            }
            tallies.entry(variant).or_default().add(case, &verdict);
        };
        run("full", recorded::diagnose(&case.files));
        for seed in 1..=3 {
            run("renamed and shuffled", recorded::diagnose(&renamed(&case.files, seed)));
            run("every file cut", recorded::diagnose(&cut(&case.files, seed)));
        }
        for rank in 0..4 {
            if let Some(files) = without_rank(case, rank) {
                let culprit = case.truth.culprit_ranks.contains(&rank);
                run(
                    if culprit { "culprit's files missing" } else { "a victim's files missing" },
                    recorded::diagnose(&files),
                );
            }
        }
        for (variant, keep) in [
            ("only stderr", is_stderr as fn(&str) -> bool),
            ("only Flight Recorder", is_dump),
            ("only NCCL logs", is_nccl),
        ] {
            let files: Files = case.files.iter().filter(|(name, _)| keep(name)).cloned().collect();
            if !files.is_empty() {
                run(variant, recorded::diagnose(&files));
            }
        }
        if case.truth.cause == "none" && case.files.iter().any(|(name, _)| is_nccl(name)) {
            run("healthy logs copied in turn", recorded::diagnose(&copied_while_it_ran(&case.files)));
        } else if case.truth.cause != "none" {
            run("a healthy attempt beside it", recorded::diagnose(&beside(&case.files, &healthy)));
        }
        let mut skew = recorded::case_of(&case.files);
        skewed(&mut skew);
        run("clocks minutes apart", ringleader_rules::diagnose(&skew));
    }
    (tallies, misses)
}

fn table(tallies: &BTreeMap<&'static str, Tally>) -> String {
    let mut text = String::from(
        "# Accuracy by kind of evidence\n\n\
         Each recorded case, with less or messier evidence than was recorded. `right`: the verdict names the true\n\
         cause (or an equally right one); `culprit`: exactly the true ranks, in cases that have one; `false alarms`:\n\
         a healthy job got a cause; `wrong none`: a fault, or evidence that decides nothing, got a clean bill.\n\
         Renewed by `RINGLEADER_BLESS=1 cargo test -p ringleader --test it variants`; the test fails if a number gets\n\
         worse.\n\n\
         | evidence | runs | right | culprit | false alarms | wrong none |\n|---|---|---|---|---|---|\n",
    );
    for (variant, t) in tallies {
        let _ = writeln!(
            text,
            "| {variant} | {} | {} | {}/{} | {} | {} |",
            t.n, t.right, t.culprit, t.culprits, t.false_alarms, t.wrong_clean
        );
    }
    text
}

fn parse(text: &str) -> BTreeMap<String, [u32; 4]> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| evidence")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = |at: usize| cells[at].split('/').next().and_then(|n| n.parse().ok()).expect("a number");
        rows.insert(cells[0].to_owned(), [number(2), number(3), number(4), number(5)]);
    }
    rows
}

#[test]
fn accuracy_only_rises() {
    let (tallies, misses) = tallies();
    let path = recorded::root().join("docs/accuracy-by-evidence.md");
    let text = table(&tallies);
    if std::env::var_os("RINGLEADER_BLESS").is_some() {
        fs::write(&path, &text).expect("write the table");
    }
    let committed = parse(&fs::read_to_string(&path).expect("docs/accuracy-by-evidence.md"));
    for (variant, tally) in &tallies {
        let [right, culprit, false_alarms, wrong_clean] =
            *committed.get(*variant).expect("renew the table: a new variant");
        assert!(
            tally.right >= right
                && tally.culprit >= culprit
                && tally.false_alarms <= false_alarms
                && tally.wrong_clean <= wrong_clean,
            "{variant}: {tally:?} got worse than right {right}, culprit {culprit}, false alarms {false_alarms}, wrong none \
             {wrong_clean}\n{misses}"
        );
    }
    assert_eq!(committed.len(), tallies.len(), "renew the table: a variant came or went");
    if std::env::var_os("RINGLEADER_MISSES").is_some() {
        fs::write(std::env::var("RINGLEADER_MISSES").expect("path"), misses).expect("misses");
    }
}
