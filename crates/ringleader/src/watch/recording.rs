//! A rank is late repeatedly: the timelines of the ranks of this machine say why. Off unless asked for, once a job, in
//! a thread of its own.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringleader_report::trace::TraceReport;

use crate::failure::Failure;
use crate::gather;
use crate::trace::record::{Recorded, Recording, Window};

/// Ranks ask every 5 s, or 10 s after nobody has listened; they then wait 25 s for a common time, record, and write.
const PATIENCE: Duration = Duration::from_mins(2);

/// What is to be recorded, and why.
#[derive(Clone, Debug)]
pub(crate) struct ToRecord {
    /// Folder that the new folder goes into.
    pub(crate) folder: PathBuf,
    /// Name of the new folder.
    pub(crate) stem: String,
    /// Ranks of this machine.
    pub(crate) pids: Vec<u32>,
    /// Length of the recording, ms.
    pub(crate) ms: u32,
    /// The rank that is late, as seen live.
    pub(crate) late: u32,
}

/// Records and reads what was recorded: one line for people.
///
/// # Errors
/// If the disk has no room, another daemon holds the socket, no rank asks, or nothing can be read.
pub(crate) fn record(wanted: &ToRecord, say: &dyn Fn(&str), stop: &AtomicBool) -> Result<String, Failure> {
    let out = wanted.folder.join(format!("{}-timelines", wanted.stem));
    let recording = Recording {
        out: out.clone(),
        n_ranks: Some(wanted.pids.len()),
        pids: wanted.pids.clone(),
        window: Window::Time { ms: wanted.ms },
        with_stacks: false,
        timeout: PATIENCE + Duration::from_millis(wanted.ms.into()),
    };
    recording.prepare()?;
    let Recorded { files, n_told } = match recording.record(say, stop) {
        Ok(recorded) => recorded,
        Err(failure) => {
            // Nothing was written into it.
            let _ = std::fs::remove_dir(&out);
            return Err(failure);
        }
    };
    let case = gather::gather(std::slice::from_ref(&out), true)?;
    let analysis = ringleader_trace::analyse(crate::trace::timelines(&case));
    let report = TraceReport::new(&analysis, &case);
    let verdict = &report.verdict;
    let agrees = match verdict.culprits.as_slice() {
        [] => String::new(),
        ranks if ranks.contains(&wanted.late) => {
            format!("; the rank that was late live (rank {})", wanted.late)
        }
        ranks => format!("; not the rank that was late live (ranks {ranks:?}, not {})", wanted.late),
    };
    let missing = match n_told.saturating_sub(files.len()) {
        0 => String::new(),
        n => format!("; {n} of {n_told} ranks wrote nothing"),
    };
    Ok(format!(
        "timelines: {}: {}{agrees}{missing}. ringleader trace {}",
        verdict.cause,
        verdict.summary,
        out.display()
    ))
}
