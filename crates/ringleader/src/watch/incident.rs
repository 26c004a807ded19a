//! A stall, or a job that died: the evidence is collected, judged, shown and passed on. In a thread of its own; watching
//! goes on meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringleader_collect::collectors::{Ask, RingImage, Samples};
use ringleader_collect::{Request, Target};
use ringleader_knowledge::place::ids::SLEEP;
use ringleader_report::json::{Category, Confidence, Culprit, RankRow, Report};

use crate::collect::{self, CONNECT_MS, WINDOW_MS};
use crate::exit::Code;
use crate::failure::Failure;

/// No part of the evidence is waited for longer: the answer should be there within seconds.
const LONGEST_MS: u64 = 2_500;
/// End of the name of a bundle that is being written.
const PART: &str = ".part";
/// The verdict on a rank that sleeps is held this many times as long as on one that is elsewhere.
const SLEEPERS: u32 = 2;
/// Between two looks at the stacks.
const AGAIN_MS: u64 = 1_000;
/// Samples of the main threads where a rank is late, and the time from one to the next: some steps of most jobs.
const N_SAMPLES: u32 = 80;
const SAMPLE_MS: u64 = 150;

/// What is to be collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToCollect {
    /// Why, a few words.
    pub(crate) why: String,
    /// What was seen of it, one event a line.
    pub(crate) events: String,
    /// Processes of the job that live.
    pub(crate) pids: Vec<u32>,
    /// Rings, those of the dead included.
    pub(crate) rings: Vec<RingImage>,
    /// Logs that no living process leads to.
    pub(crate) logs: Vec<PathBuf>,
    /// NCCL's RAS is not asked.
    pub(crate) no_ras: bool,
    /// Processes whose main threads are sampled, the late one first.
    pub(crate) sampled: Vec<u32>,
    /// The command's child that writes its output into files, which are taken first.
    pub(crate) output: Vec<PathBuf>,
}

/// Whether a culprit is in a sleep.
fn sleeps(culprits: &[Culprit], rows: &[RankRow]) -> bool {
    rows.iter().any(|row| {
        row.activity.as_deref() == Some(SLEEP) && culprits.iter().any(|c| c.rank == Some(row.rank))
    })
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) bundle: PathBuf,
    pub(crate) report: Report,
    /// `ringleader.report.v1`.
    pub(crate) json: String,
}

/// Why evidence is collected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// A stall, or a job that did not end in order: the verdict is reported whatever it is.
    Incident,
    /// A job that has ended, nobody knows how: only a verdict that says that it failed is reported, and only then is the
    /// bundle kept.
    Doubt {
        /// Operations of it were seen. It ran, so a guess or a remark on its speed is no reason to speak.
        was_seen: bool,
        /// A wait was told of shortly before: a guess that the job hung is worth a word.
        has_waited: bool,
        /// A verdict on a late rank was reported while the job ran.
        is_slow_told: bool,
        /// What an earlier verdict on the same end was worth: only a better one is worth a word.
        than: u8,
    },
    /// A job that prints NaN: only a verdict of corruption is reported and kept.
    NotFinite,
    /// A rank is late for good: only a verdict that is certain of that is reported and kept.
    Slow,
    /// No rank is there: only a verdict that the launcher waits for others is reported and kept.
    Start,
}

impl Reason {
    /// Whether only some answers are worth a word.
    pub(crate) fn is_a_question(self) -> bool {
        !matches!(self, Self::Incident)
    }
}

impl Judged {
    /// How much the verdict says, from 0, nothing, to 3, a cause with high confidence.
    pub(crate) fn worth(&self) -> u8 {
        let verdict = &self.report.verdict;
        match (verdict.cause.as_str(), verdict.confidence) {
            ("none" | "undecided", _) => 0,
            (_, Confidence::Low) => 1,
            (_, Confidence::Medium) => 2,
            (_, Confidence::High) => 3,
        }
    }

    /// Whether what it names may end by itself: a rank that lives and is elsewhere may come back, from a checkpoint, say.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.report.verdict.cause.as_str(), "stuck-outside-collective" | "slow-rank-stall")
    }

    /// The ranks that it names.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u32> {
        self.report.verdict.culprits.iter().filter_map(|c| c.rank)
    }

    /// Whether it says, not as a guess, that a process failed.
    pub(crate) fn is_failure_of_a_process(&self) -> bool {
        let verdict = &self.report.verdict;
        matches!(verdict.category, Category::Crash | Category::Error)
            && verdict.confidence != Confidence::Low
            && !matches!(verdict.cause.as_str(), "undecided" | "stopped-from-outside")
    }

    /// How long to wait for that, where `hold` is the usual time: a sleep ends at a time of its own.
    pub(crate) fn hold(&self, hold: Duration) -> Duration {
        if sleeps(&self.report.verdict.culprits, &self.report.ranks) { hold * SLEEPERS } else { hold }
    }

    /// Whether the verdict is what somebody wants to know.
    pub(crate) fn answers(&self, reason: Reason) -> bool {
        let verdict = &self.report.verdict;
        let is_certain = verdict.cause != "undecided" && verdict.confidence != Confidence::Low;
        let is_failure = !matches!(verdict.category, Category::None | Category::Performance);
        let has_cause = verdict.cause != "none" && !self.report.findings.is_empty();
        let is_slow = verdict.cause == "straggler" && verdict.confidence == Confidence::High;
        match reason {
            Reason::Incident => true,
            Reason::Doubt { was_seen, has_waited, is_slow_told, than } => {
                // Whoever ends a job ends what is in flight, and its processes one by one: a guess that it hung, or that one of them
                // went first, is no reason to speak.
                let is_of_the_end =
                    verdict.category == Category::Hang || verdict.cause == "rank-exited-early";
                let is_guess = is_of_the_end && !is_certain && !has_waited;
                has_cause
                    && (!was_seen && !is_guess || is_certain && is_failure || is_slow && !is_slow_told)
                    && (than == 0 || self.worth() > than)
            }
            Reason::Slow => is_slow,
            Reason::Start => verdict.cause == "missing-rank" && is_certain,
            Reason::NotFinite => has_cause && is_certain && verdict.category == Category::Corruption,
        }
    }
}

/// A bundle, and what went wrong before it could be written.
pub(crate) type Written = (PathBuf, Option<Failure>);

/// Collects into a new file in `folder`; where that cannot be written, say because its disk is full, in the folder for
/// temporary files or in memory.
///
/// # Errors
/// If the bundle cannot be written anywhere: why it could not in `folder`.
pub(crate) fn collect(wanted: &ToCollect, folder: &Path) -> Result<Written, Failure> {
    let failed = match collect_in(wanted, folder) {
        Ok(bundle) => return Ok((bundle, None)),
        Err(failed) => failed,
    };
    let others = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    for other in others.iter().filter(|other| *other != folder) {
        if let Ok(bundle) = collect_in(wanted, other) {
            return Ok((bundle, Some(failed)));
        }
    }
    Err(failed)
}

fn collect_in(wanted: &ToCollect, folder: &Path) -> Result<PathBuf, Failure> {
    let bundle = fresh(folder);
    // Renamed once it is complete: a kill in between leaves no partial file.
    let mut part = bundle.clone().into_os_string();
    part.push(PART);
    let part = PathBuf::from(part);
    let made = collect_into(wanted, &part).and_then(|()| {
        std::fs::rename(&part, &bundle).map_err(|source| Failure::Create { path: bundle.clone(), source })
    });
    if made.is_err() {
        // It may never have come to be.
        let _ = std::fs::remove_file(&part);
    }
    made.map(|()| bundle)
}

fn collect_into(wanted: &ToCollect, bundle: &Path) -> Result<(), Failure> {
    let wanted = wanted.clone();
    let mut paths = wanted.output;
    paths.extend(wanted.logs);
    let ask = Ask {
        request: Request {
            target: Target { pids: wanted.pids, slurm_job: None, may_be_gone: true },
            window_ms: WINDOW_MS,
            connect_ms: CONNECT_MS,
            ..Request::default()
        },
        with_stacks: true,
        with_ras: !wanted.no_ras,
        with_logs: true,
        stacks_again_ms: Some(AGAIN_MS),
        samples: (!wanted.sampled.is_empty()).then_some(Samples {
            n: N_SAMPLES,
            every_ms: SAMPLE_MS,
            pids: wanted.sampled,
        }),
        longest_ms: Some(LONGEST_MS),
        rings: wanted.rings,
        watch_events: wanted.events,
        paths,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        asked: vec!["watch".to_owned(), wanted.why],
        ..Ask::default()
    };
    collect::into_file(&ask, bundle, false).map(|_| ())
}

/// Judges bundles as `diagnose` does; the first names the report's own.
///
/// # Errors
/// If a bundle is gone.
pub(crate) fn judge(bundles: &[PathBuf]) -> Result<Judged, Failure> {
    let diagnosis = crate::diagnose(bundles, false)?;
    let report = diagnosis.report();
    let json = report.to_json().map_err(Failure::Json)?;
    Ok(Judged { bundle: bundles.first().cloned().unwrap_or_default(), report, json })
}

/// The worse of two exit codes, the second one that of a verdict.
pub(super) fn worse(before: Code, cause: &str) -> Code {
    match (before, cause) {
        (Code::Findings, _) | (_, "none") => before,
        (_, "undecided") => Code::Undecided,
        _ => Code::Findings,
    }
}

/// A name that is not taken yet.
fn fresh(folder: &Path) -> PathBuf {
    let stem = stem();
    // Two jobs may stall in the same second.
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = (1..10_000)
        .map(|n| if n == 1 { format!("{stem}.tar.zst") } else { format!("{stem}-{n}.tar.zst") })
        .find(|name| {
            let is_there = |name: &str| folder.join(name).exists();
            !is_there(name) && !is_there(&format!("{name}{PART}")) && !taken.contains(&folder.join(name))
        })
        .map(|name| folder.join(name))
        .unwrap_or_default();
    // A name holds its second: those of the past are not asked for again.
    if taken.len() > 64 {
        taken.clear();
    }
    taken.insert(name.clone());
    name
}

/// Names that were given away.
static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// `ringleader-HOST-SECONDS`.
pub(crate) fn stem() -> String {
    let host = ringleader_collect::follow::host();
    let host = host.split('.').next().unwrap_or_default().to_owned();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("ringleader-{host}-{}", since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rank: u32, activity: Option<&str>) -> RankRow {
        RankRow {
            rank,
            host: None,
            pid: None,
            state: "S".into(),
            cpu_ms: None,
            busy: None,
            place: None,
            waits_for: None,
            activity: activity.map(Into::into),
            since: None,
            has_moved: None,
        }
    }

    #[test]
    fn only_a_culprit_that_sleeps_is_waited_for_longer() {
        let culprit =
            Culprit { rank: Some(1), host: None, pid: None, local_rank: None, gpu: None, place: None };
        assert!(sleeps(std::slice::from_ref(&culprit), &[row(0, None), row(1, Some(SLEEP))]));
        assert!(!sleeps(std::slice::from_ref(&culprit), &[row(0, Some(SLEEP)), row(1, Some("checkpoint"))]));
        assert!(!sleeps(&[], &[row(1, Some(SLEEP))]));
    }
}
