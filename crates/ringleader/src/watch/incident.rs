//! A stall, or a job that died: the evidence is collected, judged, shown and passed on. In a thread of its own; watching
//! goes on meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringleader_collect::collectors::{Ask, RingImage, Samples};
use ringleader_collect::{Request, Target};
use ringleader_model::Cause;
use ringleader_report::json::Report;
use ringleader_watch::answer::VerdictExcerpt;

use crate::collect;
use crate::exit::Code;
use crate::failure::Failure;

/// No part of the evidence is waited for longer: the answer should be there within seconds.
const LONGEST_MS: u64 = 2_500;
/// End of the name of a bundle that is being written.
const PART: &str = ".part";
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

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) bundle: PathBuf,
    pub(crate) report: Report,
    /// What decides whether the verdict is reported.
    pub(crate) answer: VerdictExcerpt,
    /// `ringleader.report.v1`.
    pub(crate) json: String,
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
            window_ms: Request::WINDOW_MS,
            connect_ms: Request::CONNECT_MS,
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
    let (report, answer) = (diagnosis.report(), VerdictExcerpt::of(&diagnosis.verdict));
    let json = report.to_json().map_err(Failure::Json)?;
    Ok(Judged { bundle: bundles.first().cloned().unwrap_or_default(), report, answer, json })
}

/// The worse of two exit codes, the second one that of a verdict.
pub(super) fn worse(before: Code, cause: Cause) -> Code {
    match (before, cause) {
        (Code::Findings, _) | (_, Cause::None) => before,
        (_, Cause::Undecided) => Code::Undecided,
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
