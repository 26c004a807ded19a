//! Events of the guard in the job (`events-PID.jsonl` beside the rings), as they are written: a note for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use ringleader_evidence::{Limits, Scratch};

/// Bytes of one file that are read at one look.
const MOST_BYTES: u64 = 1 << 20;
/// Most events per look; a job out of step reports the same for every step.
const MOST_EVENTS: usize = 8;

/// Where the files have been read to.
#[derive(Debug, Default)]
pub(crate) struct GuardFeed {
    read: BTreeMap<PathBuf, u64>,
    n_told: usize,
}

/// Events that are printed in all: later ones are in the files and in the bundle.
const MOST_TOLD: usize = 64;

impl GuardFeed {
    /// What has been written since the last look, by these processes, in words.
    pub(crate) fn news(&mut self, folders: &[PathBuf], pids: &[u32]) -> Vec<String> {
        let mut out = Vec::new();
        for path in folders.iter().flat_map(|folder| pids.iter().map(move |pid| folder.join(name(*pid)))) {
            if self.n_told >= MOST_TOLD || out.len() >= MOST_EVENTS {
                break;
            }
            out.extend(self.new_lines(&path));
        }
        out.truncate(MOST_EVENTS);
        self.n_told += out.len();
        out
    }

    fn new_lines(&mut self, path: &Path) -> Vec<String> {
        let Ok(mut file) = File::open(path) else { return Vec::new() };
        let size = file.metadata().map_or(0, |facts| if facts.is_file() { facts.len() } else { 0 });
        let from = self.read.entry(path.to_owned()).or_default();
        // A file that was set aside starts again.
        if size < *from {
            *from = 0;
        }
        let mut bytes = Vec::new();
        if size == *from
            || file.seek(SeekFrom::Start(*from)).is_err()
            || file.take(MOST_BYTES).read_to_end(&mut bytes).is_err()
        {
            return Vec::new();
        }
        // The last line may not be written to its end yet.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(end);
        *from += end as u64;
        let extract = ringleader_evidence::read(
            "events.jsonl",
            &mut &*bytes,
            &mut Scratch::default(),
            &Limits::default(),
        );
        extract.observations.iter().map(|observation| observation.text.to_string()).collect()
    }
}

fn name(pid: u32) -> String {
    format!("events-{pid}.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_events_are_told_once_and_half_a_line_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = r#"{"schema":"ringleader.event.v1","wall_ns":1,"kind":"nan","rank":3,"step":88,"parameter":"1.bias","layer":"1","value":"NaN"}"#;
        let path = folder.path().join("events-17.jsonl");
        let mut feed = GuardFeed::default();
        let mut news = |text: &str| {
            std::fs::write(&path, text).expect("written");
            feed.news(&[folder.path().to_owned()], &[17, 18])
        };
        let told = "guard: NaN in the local gradient of 1.bias on rank 3 at step 88";
        assert_eq!(news(&format!("{line}\n{}", &line[..20])), [told]);
        assert_eq!(news(&format!("{line}\n{}", &line[..40])), Vec::<String>::new());
        assert_eq!(news(&format!("{line}\n{line}\n")), [told]);
        assert_eq!(news(&format!("{line}\n")), [told], "set aside, and begun anew");
    }
}
