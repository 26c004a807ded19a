//! A stall, or a job that died: the evidence is collected, judged, shown and passed on. In a thread of its own; watching
//! goes on meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringleader_collect::collectors::{Ask, RingImage};
use ringleader_collect::{Request, Target};

use crate::collect::{self, CONNECT_MS, WINDOW_MS};
use crate::failure::Failure;
use crate::report::json::Report;

/// No part of the evidence is waited for longer: the answer should be there within seconds.
const LONGEST_MS: u64 = 2_500;
/// Between two looks at the stacks.
const AGAIN_MS: u64 = 1_000;

/// What is to be collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
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
    /// The command's child that writes its output into files, which are taken first.
    pub(crate) output: Vec<PathBuf>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) bundle: PathBuf,
    pub(crate) report: Report,
    /// `ringleader.report.v1`.
    pub(crate) json: String,
}

/// Collects into a new file in `folder`.
///
/// # Errors
/// If the bundle cannot be written.
pub(crate) fn collect(scene: Scene, folder: &Path) -> Result<PathBuf, Failure> {
    let bundle = fresh(folder);
    let mut paths = scene.output;
    paths.extend(scene.logs);
    let ask = Ask {
        request: Request {
            target: Target { pids: scene.pids, slurm_job: None, may_be_gone: true },
            window_ms: WINDOW_MS,
            connect_ms: CONNECT_MS,
            ..Request::default()
        },
        with_stacks: true,
        with_ras: true,
        with_logs: true,
        stacks_again_ms: Some(AGAIN_MS),
        longest_ms: Some(LONGEST_MS),
        rings: scene.rings,
        watch_events: scene.events,
        paths,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        asked: vec!["watch".to_owned(), scene.why],
        ..Ask::default()
    };
    collect::into_file(&ask, &bundle, false)?;
    Ok(bundle)
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

/// A name that is not taken yet.
fn fresh(folder: &Path) -> PathBuf {
    let stem = stem();
    (1..10_000)
        .map(|n| if n == 1 { format!("{stem}.tar.zst") } else { format!("{stem}-{n}.tar.zst") })
        .map(|name| folder.join(name))
        .find(|path| !path.exists())
        .unwrap_or_default()
}

/// `ringleader-HOST-SECONDS`.
pub(crate) fn stem() -> String {
    let host = ringleader_collect::follow::host();
    let host = host.split('.').next().unwrap_or_default().to_owned();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("ringleader-{host}-{}", since.as_secs())
}
