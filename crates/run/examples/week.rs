//! A simulated week of a large job, based on published failures: 419 interruptions in 54 days on 16,384 GPUs, with
//! their causes (arXiv 2407.21783, table 5). Compares supervision by policy with a blind restart loop.
//!
//! ```text
//! cargo run --release -p ringleader-run --example week [SEEDS]
//! ```
//! Assumptions, stated in docs/run.md: which causes stay with their node until it is excluded (a blind loop hits them
//! again within minutes), which share of software bugs recurs at the same step, how long a restart and a person take.
#![expect(clippy::print_stdout, reason = "an example prints")]

use ringleader_model::{Cause, Class, Confidence};
use ringleader_run::decide::{Action, AttemptFailure, Failed, Site, decide};
use ringleader_run::effective::best_interval;
use ringleader_run::judgement::{Culprit, Judgement};
use ringleader_run::policy::{Budget, Policy};

const WEEK_S: f64 = 7.0 * 86_400.0;
/// 54 days and 419 interruptions.
const RATE: f64 = 419.0 / (54.0 * 86_400.0);
/// From the decision to the first step: launching, loading a checkpoint.
const RESTART_S: f64 = 300.0;
/// Collecting and judging.
const JUDGE_S: f64 = 20.0;
/// Interval between checkpoints, and how long one blocks training.
const INTERVAL_S: f64 = 600.0;
const WRITE_S: f64 = 10.0;
/// Without supervision a hang ends with the collective's timeout.
const TIMEOUT_S: f64 = 600.0;
/// Time to diagnose a stall.
const STALL_S: f64 = 30.0;
/// Time until a person handles a job that the loop has given up or that keeps failing.
const PERSON_S: f64 = 3_600.0;
/// Restarts of the blind loop before it calls a person.
const BLIND_RETRIES: u32 = 5;
/// Mean time until a fault that stays with its node recurs.
const AGAIN_S: f64 = 1_200.0;
/// Shares of verdicts: certain and right, uncertain, certain and wrong.
const RIGHT: f64 = 0.90;
const UNSURE: f64 = 0.08;

/// Causes with counts: node faults, transient faults, software, and ends from outside.
const CAUSES: [(Cause, Class, f64); 4] = [
    (Cause::GpuFallenOffBus, Class::Node, 289.0),
    (Cause::NetworkLinkDown, Class::Transient, 44.0),
    (Cause::ApplicationException, Class::Program, 54.0),
    (Cause::StoppedFromOutside, Class::External, 32.0),
];
/// Share of node faults that recur on the same node until it is excluded.
const STAYS: f64 = 0.5;
/// Share of software failures that recur at the same step until a person fixes them.
const RETURNS: f64 = 0.2;
/// Share of failures that appear as a hang.
const HANGS: f64 = 0.3;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn after(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A fault that recurs until it is handled.
#[derive(Clone, Copy, PartialEq)]
enum Sick {
    None,
    Node,
    Program,
}

struct Outcome {
    effective: f64,
    restarts: u32,
    excluded: u32,
}

fn week(seed: u64, is_blind: bool) -> Outcome {
    let mut random = Random(seed);
    let policy = policy();
    let (mut now, mut useful, mut restarts, mut excluded) = (0.0, 0.0, 0, 0);
    let (mut sick, mut in_a_row) = (Sick::None, 0);
    let mut past: Vec<Failed> = Vec::new();
    let mut site = Site {
        nodes: (0..2048).map(|n| format!("n{n}")).collect(),
        min_nodes: 1,
        n_given: 2048,
        ..Site::default()
    };
    while now < WEEK_S {
        let mut run = random.after(1.0 / RATE);
        if sick != Sick::None {
            run = run.min(random.after(AGAIN_S));
        }
        run = run.min(WEEK_S - now);
        now += run;
        // Work since the last checkpoint is repeated; writing checkpoints blocks training.
        let kept = (run / INTERVAL_S).floor() * INTERVAL_S;
        useful += if now >= WEEK_S { run } else { kept } / (1.0 + WRITE_S / INTERVAL_S);
        if now >= WEEK_S {
            break;
        }
        in_a_row = if kept > 0.0 { 0 } else { in_a_row + 1 };
        let (cause, class) = match sick {
            Sick::Node => (Cause::GpuFallenOffBus, Class::Node),
            Sick::Program => (Cause::ApplicationException, Class::Program),
            Sick::None => draw(&mut random),
        };
        if sick == Sick::None {
            let chance = random.unit();
            sick = match class {
                Class::Node if chance < STAYS => Sick::Node,
                Class::Program if chance < RETURNS => Sick::Program,
                _ => Sick::None,
            };
        }
        let is_hang = random.unit() < HANGS;
        restarts += 1;
        if is_blind {
            now += RESTART_S + if is_hang { TIMEOUT_S } else { 0.0 };
            if in_a_row >= BLIND_RETRIES || class == Class::External {
                now += PERSON_S;
                (sick, in_a_row) = (Sick::None, 0);
            }
            continue;
        }
        now += JUDGE_S + if is_hang { STALL_S } else { 0.0 };
        let verdict = verdict(&mut random, cause, class, &site);
        let step = Some((useful / 10.0) as u64);
        let told = (class == Class::External).then_some("maintenance");
        let attempt = restarts;
        let failure =
            AttemptFailure { attempt, at: now, judgement: &verdict, told, step, resumed_from: None };
        let decision = decide(&policy, &past, &failure, &site, random.unit());
        past.push(Failed {
            attempt,
            at: now,
            judgement: verdict,
            charged: decision.charged,
            step,
            resumed_from: None,
        });
        match decision.action {
            Action::Restart { without, pause_s } => {
                now += pause_s + RESTART_S;
                if !without.is_empty() {
                    excluded += without.len() as u32;
                    // The bad node is the first of the list; excluding a false culprit leaves it in place.
                    let is_hit = without.iter().any(|node| Some(node) == site.nodes.first());
                    if sick == Sick::Node && is_hit {
                        sick = Sick::None;
                    }
                    site.nodes.retain(|node| !without.contains(node));
                    site.excluded.extend(without);
                }
            }
            Action::Stop | Action::Requeue { .. } => {
                now += PERSON_S + RESTART_S;
                sick = Sick::None;
                past.clear();
            }
        }
    }
    Outcome { effective: useful / WEEK_S, restarts, excluded }
}

/// Budgets for a job of this size: about eight failures a day.
fn policy() -> Policy {
    let day = std::time::Duration::from_hours(24);
    let budget = |class, max| Budget { class, max, per: day };
    Policy {
        budgets: vec![budget(Class::Transient, 20), budget(Class::Node, 40), budget(Class::Unknown, 10)],
        ..Policy::default()
    }
}

fn draw(random: &mut Random) -> (Cause, Class) {
    let all: f64 = CAUSES.iter().map(|(_, _, n)| n).sum();
    let mut at = random.unit() * all;
    for (cause, class, n) in CAUSES {
        at -= n;
        if at < 0.0 {
            return (cause, class);
        }
    }
    (Cause::GpuFallenOffBus, Class::Node)
}

fn verdict(random: &mut Random, cause: Cause, class: Class, site: &Site) -> Judgement {
    let chance = random.unit();
    let of = |host: Option<&String>, confidence, class| Judgement {
        cause: cause.into(),
        class,
        confidence,
        culprits: vec![Culprit { host: host.cloned(), ..Culprit::default() }],
        ..Judgement::unjudged("simulated")
    };
    if chance < RIGHT {
        of(site.nodes.first(), Confidence::High, class)
    } else if chance < RIGHT + UNSURE {
        of(site.nodes.first(), Confidence::Medium, class)
    } else {
        // Certain and wrong: another node is blamed.
        of(site.nodes.last(), Confidence::High, Class::Node)
    }
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    for (name, is_blind) in [("by policy", false), ("blind loop", true)] {
        let mut ratios: Vec<f64> = Vec::new();
        let (mut restarts, mut excluded) = (0, 0);
        for seed in 0..n {
            let outcome = week(seed * 7919 + 1, is_blind);
            ratios.push(outcome.effective);
            restarts += outcome.restarts;
            excluded += outcome.excluded;
        }
        ratios.sort_by(f64::total_cmp);
        let at =
            |share: f64| ratios.get((share * (n - 1) as f64) as usize).copied().unwrap_or_default() * 100.0;
        println!(
            "{name}: effective time {:.1} % (median; {:.1} to {:.1} for nine weeks of ten), {:.1} restarts and {:.1} nodes excluded per week",
            at(0.5),
            at(0.05),
            at(0.95),
            f64::from(restarts) / n as f64,
            f64::from(excluded) / n as f64
        );
    }
    let (interval, ratio) = best_interval(RATE, RESTART_S + JUDGE_S, WRITE_S);
    println!("by formula: best interval between checkpoints {interval:.0} s, ratio {:.1} %", ratio * 100.0);
}
