//! How often the verdict on a simulated job is right.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ringleader_evidence::{Extract, Limits, Scratch, merge, read};
use ringleader_model::{Case, Cause, Confidence, Finding, Verdict};

use crate::{Emit, JobEvidence, Options, Truth, job};

/// The part of the evidence that the diagnosis gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// All evidence.
    Full,
    /// Without half of the Flight Recorder dumps.
    Half,
    /// All evidence, under meaningless file names.
    Nameless,
    /// Flight Recorder dumps only.
    FlightOnly,
    /// Rings only.
    RingsOnly,
    /// Rings and stacks.
    RingsAndStacks,
    /// NCCL logs with COLL lines only.
    NcclOnly,
    /// The launchers' stderr only.
    StderrOnly,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::Half,
        Self::Nameless,
        Self::FlightOnly,
        Self::RingsOnly,
        Self::RingsAndStacks,
        Self::NcclOnly,
        Self::StderrOnly,
    ];

    /// Name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Half => "half-of-dumps",
            Self::Nameless => "nameless-files",
            Self::FlightOnly => "flight-recorder-only",
            Self::RingsOnly => "rings-only",
            Self::RingsAndStacks => "rings-and-stacks",
            Self::NcclOnly => "nccl-logs-only",
            Self::StderrOnly => "stderr-only",
        }
    }

    /// The mode with this [`Mode::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Options of the simulation for `seed`. In every second job the clocks of nodes differ by up to two minutes.
    pub fn options(self, seed: u64, max_ranks: u32) -> Options {
        let mut options = Options {
            max_ranks,
            clock_skew_ms: if seed.is_multiple_of(2) { 0 } else { 120_000 },
            ..Options::default()
        };
        match self {
            Self::Full => {}
            Self::Half => options.drop_dumps_pct = 50,
            Self::Nameless => options.shuffle_names = true,
            Self::FlightOnly => options.emit = Emit { flight: true, ..Emit::NONE },
            Self::RingsOnly => options.emit = Emit { rings: true, ..Emit::NONE },
            Self::RingsAndStacks => {
                options.emit = Emit { rings: true, stacks: true, processes: true, ..Emit::NONE };
            }
            Self::NcclOnly => options.emit = Emit { nccl: true, calls: true, ..Emit::NONE },
            Self::StderrOnly => options.emit = Emit { stderr: true, ..Emit::NONE },
        }
        options
    }
}

/// Reads evidence into a case.
pub fn case_of(evidence: &JobEvidence) -> Case {
    let mut scratch = Scratch::default();
    let limits = Limits::default();
    let extracts: Vec<Extract> = evidence
        .files
        .iter()
        .map(|(name, bytes)| read(name, &mut bytes.as_slice(), &mut scratch, &limits))
        .collect();
    merge(extracts)
}

/// One job, judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Seed of the job.
    pub seed: u64,
    /// The planted fault and its truth.
    pub truth: Truth,
    /// Cause that the verdict gave.
    pub cause: String,
    /// Ranks that the verdict named.
    pub culprits: Vec<u32>,
    /// The verdict's sentence.
    pub summary: String,
    /// Whether the cause is the planted one itself, not another acceptable one.
    pub exact: bool,
    /// Whether the cause is acceptable.
    pub cause_right: bool,
    /// Whether the ranks are right (a healthy job has none to name).
    pub culprit_right: bool,
    /// Whether the place is right; None if there is none to name or none was named.
    pub place_right: Option<bool>,
    /// Whether there is nothing to judge: the evidence has no usable file.
    pub void: bool,
}

impl Judged {
    /// Whether cause and culprits are right.
    pub fn right(&self) -> bool {
        self.cause_right && self.culprit_right
    }
}

/// Simulates a job, reads its evidence, diagnoses it and compares the verdict with the truth.
pub fn judge(seed: u64, options: &Options) -> Judged {
    let (truth, evidence) = job(seed, options);
    let void = evidence.files.is_empty();
    let verdict = ringleader_rules::diagnose(&case_of(&evidence));
    compare(seed, truth, &verdict, void)
}

fn compare(seed: u64, truth: Truth, verdict: &Verdict, void: bool) -> Judged {
    let mut culprits: Vec<u32> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
    culprits.sort_unstable();
    culprits.dedup();
    let places: Vec<&str> =
        verdict.culprits.iter().filter_map(|c| c.place.as_ref().map(|p| &*p.function)).collect();
    let place_right = (!truth.functions.is_empty() && !places.is_empty())
        .then(|| places.iter().any(|p| truth.functions.iter().any(|f| f == p)));
    // What resembles other failures by its words alone is a guess, and says so: no rule has decided.
    let is_guess = |f: &Finding| f.rule == "likeness" && f.cause == verdict.cause;
    let decided = if verdict.confidence == Confidence::Low && verdict.findings.first().is_some_and(is_guess) {
        Cause::Undecided
    } else {
        verdict.cause
    };
    Judged {
        seed,
        cause: verdict.cause.id().to_owned(),
        summary: verdict.summary.clone(),
        exact: verdict.cause == truth.cause,
        cause_right: truth.accepts_cause(decided) || truth.accepts_cause(verdict.cause),
        // A correct "undecided" or "none" need not name anybody.
        culprit_right: truth.accepts_culprits(&culprits)
            || (matches!(decided, Cause::Undecided | Cause::None)
                && truth.accepts_cause(decided)
                && culprits.is_empty()),
        culprits,
        place_right,
        truth,
        void,
    }
}

/// Judges the jobs `first .. first + n` on `threads` threads; the result is in order of seeds.
pub fn judge_all(
    first: u64,
    n: u64,
    threads: usize,
    options: impl Fn(u64) -> Options + Sync,
    each: impl Fn(&Judged) + Sync,
) -> Vec<Judged> {
    let next = AtomicU64::new(first);
    let judged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + n {
                        return;
                    }
                    let one = judge(seed, &options(seed));
                    each(&one);
                    if let Ok(mut all) = judged.lock() {
                        all.push(one);
                    }
                }
            });
        }
    });
    let mut judged = judged.into_inner().unwrap_or_default();
    judged.sort_by_key(|j| j.seed);
    judged
}

/// Counts for one fault, or for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Jobs with any evidence.
    pub jobs: u64,
    /// Cause and culprits right.
    pub right: u64,
    /// Verdicts with the planted cause itself.
    pub exact: u64,
    /// Verdicts with an acceptable cause.
    pub cause: u64,
    /// Verdicts with the right culprits.
    pub culprit: u64,
    /// Jobs that have a place to name and whose verdict named one.
    pub placed: u64,
    /// Verdicts with the right place.
    pub place: u64,
}

impl Tally {
    /// Counts one job.
    pub fn add(&mut self, judged: &Judged) {
        if judged.void {
            return;
        }
        self.jobs += 1;
        self.right += u64::from(judged.right());
        self.exact += u64::from(judged.exact);
        self.cause += u64::from(judged.cause_right);
        self.culprit += u64::from(judged.culprit_right);
        self.placed += u64::from(judged.place_right.is_some());
        self.place += u64::from(judged.place_right == Some(true));
    }

    /// Right verdicts per 1,000 jobs, rounded down.
    pub fn right_per_mille(&self) -> u64 {
        (self.right * 1_000).checked_div(self.jobs).unwrap_or(0)
    }
}

/// Counts by name of the fault.
pub fn tally(judged: &[Judged]) -> BTreeMap<&'static str, Tally> {
    let mut by_fault: BTreeMap<&'static str, Tally> = BTreeMap::new();
    for one in judged {
        by_fault.entry(one.truth.fault.name()).or_default().add(one);
    }
    by_fault
}

/// All faults together.
pub fn total(judged: &[Judged]) -> Tally {
    let mut all = Tally::default();
    for one in judged {
        all.add(one);
    }
    all
}

/// Wrong answers, most frequent first: fault, cause named, whether the culprit was right, jobs, a seed.
pub fn confusions(judged: &[Judged]) -> Vec<(&'static str, &str, bool, u64, u64)> {
    let mut counts: BTreeMap<(&'static str, &str, bool), (u64, u64)> = BTreeMap::new();
    for one in judged.iter().filter(|j| !j.void && !j.right()) {
        let entry =
            counts.entry((one.truth.fault.name(), &one.cause, one.culprit_right)).or_insert((0, one.seed));
        entry.0 += 1;
    }
    let mut rows: Vec<_> = counts.into_iter().map(|((f, c, r), (n, seed))| (f, c, r, n, seed)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.3));
    rows
}

fn pct(part: u64, whole: u64) -> String {
    match (part * 1_000).checked_div(whole) {
        None => "-".into(),
        Some(tenths) => format!("{}.{}", tenths / 10, tenths % 10),
    }
}

/// A Markdown table of one mode: percentages per fault.
pub fn table(judged: &[Judged]) -> String {
    let mut s = String::from(
        "| fault | jobs | right | cause | exact | culprit | place |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut row = |name: &str, t: &Tally| {
        let _ = writeln!(
            s,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            t.jobs,
            pct(t.right, t.jobs),
            pct(t.cause, t.jobs),
            pct(t.exact, t.jobs),
            pct(t.culprit, t.jobs),
            pct(t.place, t.placed)
        );
    };
    for (fault, counts) in tally(judged) {
        row(fault, &counts);
    }
    row("**all**", &total(judged));
    s
}
