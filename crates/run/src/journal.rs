//! The journal: one record per transition, one line per record, schema `ringleader.run.v1`. A supervisor that takes
//! over reads the state of the run from it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::decide::{Decision, Failed};
use crate::effective::AttemptSpan;
use crate::judgement::{Citation, Judgement};
use crate::state::LauncherEnd;

/// Name and version of the format.
pub const SCHEMA: &str = "ringleader.run.v1";
/// Longest line that is read, bytes.
const MAX_LINE: u64 = 4 << 20;
/// Most records that are read.
const MAX_RECORDS: usize = 100_000;

/// State of a run on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The preflight check of the node runs.
    #[default]
    Preflight,
    /// The launcher is being started.
    Launching,
    /// It runs.
    Running,
    /// The launcher has ended or the job hangs: the attempt is being ended.
    Failing,
    /// Evidence is collected.
    Collecting,
    /// Evidence is judged.
    Deciding,
    /// The pause before the next attempt.
    Backoff,
    /// No further attempt.
    Stopped,
    /// The job is complete.
    Done,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Preflight,
        Self::Launching,
        Self::Running,
        Self::Failing,
        Self::Collecting,
        Self::Deciding,
        Self::Backoff,
        Self::Stopped,
        Self::Done,
    ];

    /// Whether `to` may follow this state.
    pub const fn may(self, to: Self) -> bool {
        match self {
            Self::Preflight => matches!(to, Self::Launching | Self::Backoff | Self::Stopped | Self::Failing),
            Self::Launching => matches!(to, Self::Running | Self::Failing | Self::Stopped),
            // Evidence of a stall is collected before anything is ended.
            Self::Running => matches!(to, Self::Failing | Self::Collecting | Self::Done | Self::Stopped),
            Self::Failing => matches!(to, Self::Collecting | Self::Deciding | Self::Stopped),
            // A stall that resolved itself.
            Self::Collecting => matches!(to, Self::Deciding | Self::Running | Self::Failing | Self::Stopped),
            Self::Deciding => matches!(to, Self::Backoff | Self::Stopped | Self::Done),
            Self::Backoff => matches!(to, Self::Preflight | Self::Stopped),
            Self::Stopped | Self::Done => false,
        }
    }

    /// Whether no state follows.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Stopped | Self::Done)
    }

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::Launching => "launching",
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Collecting => "collecting",
            Self::Deciding => "deciding",
            Self::Backoff => "backoff",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }
}

/// One transition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// When, seconds since 1970.
    pub at: f64,
    /// Generation of the decision that the attempt belongs to.
    pub generation: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Node that writes the record.
    pub node: String,
    /// State before.
    pub from: RunState,
    /// State after.
    pub to: RunState,
    /// Diagnosis of the failure; its evidence is in [`Record::evidence`].
    pub verdict: Option<Judgement>,
    /// Evidence of the verdict.
    pub evidence: Vec<Citation>,
    /// The decision.
    pub decision: Option<Decision>,
    /// Why, sentence by sentence.
    pub why: Vec<String>,
    /// Steps between the checkpoint and the last step: the next attempt repeats them.
    pub step_lost: Option<u64>,
    /// The checkpoint of the next attempt, or of this attempt in its first record.
    pub checkpoint: Option<Chosen>,
    /// How the launcher ended.
    pub exit: Option<LauncherEnd>,
    /// Times and steps of the attempt.
    pub span: Option<AttemptSpan>,
}

/// The checkpoint that an attempt is started from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chosen {
    /// Its path.
    pub path: String,
    /// Its layout.
    pub layout: String,
    /// Its step.
    pub step: Option<u64>,
    /// Newer checkpoints that were skipped, each with the reason.
    pub passed_over: Vec<String>,
}

/// Appends records.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Opens it for appending. First terminates a last line that a dead writer left unfinished. Errors: the file
    /// system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { file })
    }

    /// Appends a record and waits for the disk. Errors: the file system's.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut record = Record { schema: SCHEMA.to_owned(), ..record.clone() };
        if let Some(verdict) = &mut record.verdict {
            record.evidence = std::mem::take(&mut verdict.evidence);
        }
        let mut line = serde_json::to_vec(&record).map_err(io::Error::other)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Reads a journal: its records, and the number of invalid lines. An absent journal is empty. Errors: the file
/// system's.
pub fn read(path: &Path) -> io::Result<(Vec<Record>, usize)> {
    match File::open(path) {
        Ok(file) => Ok(parse(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Vec::new(), 0)),
        Err(error) => Err(error),
    }
}

/// The same from any stream. A read error ends it.
pub fn parse(from: impl io::Read) -> (Vec<Record>, usize) {
    let (mut records, mut n_bad) = (Vec::new(), 0);
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while records.len() < MAX_RECORDS {
        line.clear();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Record>(&line) {
            Ok(mut record) if record.schema == SCHEMA => {
                if let Some(verdict) = &mut record.verdict {
                    verdict.evidence.clone_from(&record.evidence);
                }
                records.push(record);
            }
            _ => n_bad += 1,
        }
    }
    (records, n_bad)
}

/// The failures with a decision, oldest first: budgets are counted from them.
pub fn failures(records: &[Record]) -> Vec<Failed> {
    let failed = |record: &Record| {
        let (judgement, decision) = (record.verdict.clone()?, record.decision.as_ref()?);
        Some(Failed {
            attempt: record.attempt,
            at: record.at,
            judgement,
            charged: decision.charged,
            step: record.span.as_ref().and_then(AttemptSpan::step),
            resumed_from: record.span.as_ref().and_then(|span| span.resumed_from),
        })
    };
    records.iter().filter_map(failed).collect()
}

/// Times and steps of each attempt, oldest first, from its last record.
pub fn spans(records: &[Record]) -> Vec<AttemptSpan> {
    let mut spans: std::collections::BTreeMap<u32, AttemptSpan> = std::collections::BTreeMap::new();
    for record in records {
        if let Some(span) = &record.span {
            spans.insert(record.attempt, span.clone());
        }
    }
    spans.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_a_cut_line_costs_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        assert_eq!(read(&path).unwrap(), (vec![], 0));
        let mut judgement = Judgement::unjudged("no evidence");
        judgement.evidence =
            vec![Citation { source: "a.log".to_owned(), line: Some(3), text: "boom".to_owned() }];
        let record = Record {
            attempt: 2,
            from: RunState::Deciding,
            to: RunState::Backoff,
            verdict: Some(judgement.clone()),
            ..Record::default()
        };
        Journal::open(&path).unwrap().append(&record).unwrap();
        // The writer dies in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"schema\":\"ringleader.run.v1\",\"att").unwrap();
        Journal::open(&path).unwrap().append(&record).unwrap();
        let (records, n_bad) = read(&path).unwrap();
        assert_eq!((records.len(), n_bad), (2, 1));
        assert_eq!(records[1].verdict.as_ref(), Some(&judgement));
        let text = std::fs::read_to_string(&path).unwrap();
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["evidence"][0]["text"], "boom");
        assert_eq!(first["to"], "backoff");
    }

    #[test]
    fn every_state_is_reached_and_ends_are_ends() {
        for to in RunState::ALL {
            let is_reached = RunState::ALL.iter().any(|from| from.may(to));
            assert!(is_reached, "{}", to.name());
        }
        for from in RunState::ALL {
            assert_eq!(from.is_end(), RunState::ALL.iter().all(|to| !from.may(*to)), "{}", from.name());
        }
    }
}
