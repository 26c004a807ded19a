//! History of nodes and GPUs over all runs, in one SQLite file: incidents, causes, and which nodes are lemons.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params};

use crate::decide::Action;
use crate::journal::{Record, RunState};

/// Version of the tables.
const VERSION: i64 = 1;
/// Most rows in a list.
const MAX_ROWS: usize = 10_000;
/// How long to wait for another writer.
const BUSY: Duration = Duration::from_secs(5);

/// Why history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Its folder cannot be made.
    #[error("make the folder of the history")]
    Folder(#[source] std::io::Error),
    /// SQLite reports an error.
    #[error("use the history: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A newer program wrote it.
    #[error("use the history: it has version {0}, this program supports {VERSION}")]
    Version(i64),
}

/// An open history file.
#[derive(Debug)]
pub struct History {
    connection: Connection,
}

/// Something that happened to a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Incident {
    /// When, seconds since 1970.
    pub at: f64,
    /// Job.
    pub job: String,
    /// Attempt.
    pub attempt: u32,
    /// The blamed node; None if the verdict names none.
    pub node: Option<String>,
    /// PCI address of the GPU.
    pub gpu: Option<String>,
    /// Rank.
    pub rank: Option<u32>,
    /// Cause.
    pub cause: String,
    /// Class.
    pub class: String,
    /// Confidence.
    pub confidence: String,
    /// The action taken.
    pub action: String,
    /// One sentence.
    pub summary: String,
}

/// Record of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHistory {
    /// Node.
    pub node: String,
    /// Attempts that it was part of.
    pub attempts: u32,
    /// Incidents that named it.
    pub incidents: u32,
    /// Incidents whose cause is a fault of the node.
    pub of_node: u32,
    /// Jobs in which an incident named it.
    pub jobs: u32,
    /// How often it was excluded.
    pub excluded: u32,
    /// GPUs that incidents named.
    pub gpus: Vec<String>,
    /// When an incident last named it, seconds since 1970.
    pub last: f64,
    /// It is named far more often than its peers.
    pub is_lemon: bool,
}

impl History {
    /// Opens or makes the file. Errors: the folder or file cannot be created, or the file has a newer version.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(HistoryError::Folder)?;
        }
        let history = Self { connection: Connection::open(path)? };
        history.connection.busy_timeout(BUSY)?;
        let version: i64 = history.connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version > VERSION {
            return Err(HistoryError::Version(version));
        }
        if version == 0 {
            history.connection.execute_batch(
                "BEGIN;
                 CREATE TABLE IF NOT EXISTS incidents (
                   at REAL NOT NULL, job TEXT NOT NULL, attempt INTEGER NOT NULL, node TEXT, gpu TEXT, rank INTEGER,
                   cause TEXT NOT NULL, class TEXT NOT NULL, confidence TEXT NOT NULL, action TEXT NOT NULL,
                   summary TEXT NOT NULL);
                 CREATE TABLE IF NOT EXISTS attempts (
                   at REAL NOT NULL, job TEXT NOT NULL, attempt INTEGER NOT NULL, node TEXT NOT NULL,
                   UNIQUE (at, job, attempt, node));
                 CREATE UNIQUE INDEX IF NOT EXISTS incidents_once ON incidents
                   (at, job, attempt, coalesce(node, ''), coalesce(gpu, ''), coalesce(rank, -1));
                 CREATE INDEX IF NOT EXISTS incidents_by_node ON incidents (node);
                 PRAGMA user_version = 1;
                 COMMIT;",
            )?;
        }
        Ok(history)
    }

    /// Opens an existing file for reading. Errors: absent, damaged, or from a newer version.
    pub fn read(path: &Path) -> Result<Self, HistoryError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version > VERSION {
            return Err(HistoryError::Version(version));
        }
        Ok(Self { connection })
    }

    /// Adds a decision: a row for each culprit. `at` is the time of the decision, the same on all nodes: if several of them
    /// share the file, it counts once. Errors: SQLite's.
    pub fn add(&mut self, job: &str, at: f64, record: &Record) -> Result<(), HistoryError> {
        let Some(verdict) = &record.verdict else { return Ok(()) };
        let action = match record.decision.as_ref().map(|decision| &decision.action) {
            Some(Action::Restart { without, .. }) if !without.is_empty() => "excluded",
            Some(Action::Restart { .. }) => "restarted",
            Some(Action::Requeue { .. }) => "requeued",
            Some(Action::Stop) | None if record.to == RunState::Stopped => "stopped",
            _ => "none",
        };
        let transaction = self.connection.transaction()?;
        let culprits: Vec<_> = if verdict.culprits.is_empty() {
            vec![None]
        } else {
            verdict.culprits.iter().map(Some).collect()
        };
        for culprit in culprits {
            transaction.execute(
                "INSERT OR IGNORE INTO incidents VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
                params![
                    at,
                    job,
                    record.attempt,
                    culprit.and_then(|culprit| culprit.host.clone()),
                    culprit.and_then(|culprit| culprit.gpu.clone()),
                    culprit.and_then(|culprit| culprit.rank),
                    verdict.cause.id(),
                    verdict.class.name(),
                    crate::words::confidence_name(verdict.confidence),
                    action,
                    verdict.summary,
                ],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Adds an attempt that has been started on these nodes. `at` as for [`History::add`]: the time of its decision.
    /// Errors: SQLite's.
    pub fn began(&mut self, job: &str, at: f64, attempt: u32, nodes: &[String]) -> Result<(), HistoryError> {
        let transaction = self.connection.transaction()?;
        for node in nodes {
            transaction.execute(
                "INSERT OR IGNORE INTO attempts VALUES (?1,?2,?3,?4)",
                params![at, job, attempt, node],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Incidents, newest first, of one node or of all. Errors: SQLite's.
    pub fn incidents(&self, node: Option<&str>, since: f64) -> Result<Vec<Incident>, HistoryError> {
        let mut statement = self.connection.prepare(
            "SELECT at, job, attempt, node, gpu, rank, cause, class, confidence, action, summary FROM incidents
             WHERE at >= ?1 AND (?2 IS NULL OR node = ?2) ORDER BY at DESC LIMIT ?3",
        )?;
        let rows = statement.query_map(params![since, node, MAX_ROWS as i64], |row| {
            Ok(Incident {
                at: row.get(0)?,
                job: row.get(1)?,
                attempt: row.get(2)?,
                node: row.get(3)?,
                gpu: row.get(4)?,
                rank: row.get(5)?,
                cause: row.get(6)?,
                class: row.get(7)?,
                confidence: row.get(8)?,
                action: row.get(9)?,
                summary: row.get(10)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// All known nodes, those with the most node faults first. Errors: SQLite's.
    pub fn standings(&self, since: f64) -> Result<Vec<NodeHistory>, HistoryError> {
        let mut statement = self.connection.prepare(
            "SELECT node, sum(attempts), sum(incidents), sum(of_node), sum(jobs), sum(excluded), max(last) FROM (
               SELECT node, count(*) AS attempts, 0 AS incidents, 0 AS of_node, 0 AS jobs, 0 AS excluded, 0 AS last
                 FROM attempts WHERE at >= ?1 GROUP BY node
               UNION ALL
               SELECT node, 0, count(*), sum(class = 'node'), count(DISTINCT job), sum(action = 'excluded'), max(at)
                 FROM incidents WHERE at >= ?1 AND node IS NOT NULL GROUP BY node)
             GROUP BY node ORDER BY 4 DESC, 3 DESC, 1 LIMIT ?2",
        )?;
        let rows = statement.query_map(params![since, MAX_ROWS as i64], |row| {
            Ok(NodeHistory {
                node: row.get(0)?,
                attempts: row.get(1)?,
                incidents: row.get(2)?,
                of_node: row.get(3)?,
                jobs: row.get(4)?,
                excluded: row.get(5)?,
                last: row.get(6)?,
                ..NodeHistory::default()
            })
        })?;
        let mut standings: Vec<NodeHistory> = rows.collect::<Result<_, _>>()?;
        let mut gpus = self.connection.prepare(
            "SELECT DISTINCT gpu FROM incidents WHERE node = ?1 AND gpu IS NOT NULL AND at >= ?2 ORDER BY gpu LIMIT 64",
        )?;
        for standing in &mut standings {
            let found = gpus.query_map(params![standing.node, since], |row| row.get(0))?;
            standing.gpus = found.collect::<Result<_, _>>()?;
        }
        mark_lemons(&mut standings);
        Ok(standings)
    }
}

/// A lemon was blamed for at least this many node faults …
const LEMON_LEAST: u32 = 3;
/// … and this many times as often per attempt as the other nodes.
const LEMON_FACTOR: f64 = 4.0;

/// Marks nodes that fail far more often than their peers. A single node has no peers and is never marked.
fn mark_lemons(standings: &mut [NodeHistory]) {
    let attempts_of = |standing: &NodeHistory| f64::from(standing.attempts.max(standing.incidents).max(1));
    let (faults, attempts) = standings.iter().fold((0.0, 0.0), |(faults, attempts), standing| {
        (faults + f64::from(standing.of_node), attempts + attempts_of(standing))
    });
    let n = standings.len();
    for standing in standings.iter_mut() {
        let (own, own_attempts) = (f64::from(standing.of_node), attempts_of(standing));
        // Compared with the other nodes only: in a small cluster a lemon would raise the average.
        let rest = (faults - own) / (attempts - own_attempts).max(1.0);
        standing.is_lemon =
            n > 1 && standing.of_node >= LEMON_LEAST && own / own_attempts > LEMON_FACTOR * rest;
    }
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, Class, Confidence};

    use super::*;
    use crate::decide::Decision;
    use crate::judgement::{Culprit, Judgement};

    fn record(at: f64, attempt: u32, node: &str, class: Class, without: bool) -> Record {
        let culprit = Culprit {
            host: Some(node.to_owned()),
            gpu: Some("0000:1b:00.0".to_owned()),
            ..Culprit::default()
        };
        let verdict = Judgement {
            cause: Cause::GpuFallenOffBus.into(),
            class,
            confidence: Confidence::High,
            culprits: vec![culprit],
            ..Judgement::unjudged("it fell")
        };
        let without = if without { vec![node.to_owned()] } else { Vec::new() };
        Record {
            at,
            attempt,
            to: RunState::Backoff,
            verdict: Some(verdict),
            decision: Some(Decision {
                action: Action::Restart { without, pause_s: 1.0 },
                charged: class,
                why: vec!["so".to_owned().into()],
            }),
            ..Record::default()
        }
    }

    #[test]
    fn a_lemon_among_many() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/history.db");
        let nodes: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
        let mut history = History::open(&path).unwrap();
        for n in 0..20_u32 {
            let bad = if n % 4 == 0 { "n5".to_owned() } else { format!("n{}", n % 8) };
            let class = if n % 4 == 0 { Class::Node } else { Class::Transient };
            // Two supervisors share the file, and the clock of the second is late.
            for late_s in [0.0, 0.3] {
                let at = f64::from(n);
                history.began("job", at, n, &nodes).unwrap();
                history.add("job", at, &record(at + late_s, n, &bad, class, n == 0)).unwrap();
            }
        }
        drop(history);
        let history = History::read(&path).unwrap();
        let standings = history.standings(0.0).unwrap();
        assert_eq!((standings.len(), standings[0].node.as_str(), standings[0].attempts), (8, "n5", 20));
        assert_eq!((standings[0].of_node, standings[0].excluded, standings[0].gpus.len()), (5, 1, 1));
        let lemons: Vec<&str> = standings
            .iter()
            .filter(|standing| standing.is_lemon)
            .map(|standing| standing.node.as_str())
            .collect();
        assert_eq!(lemons, ["n5"]);
        assert_eq!(history.incidents(Some("n5"), 10.0).unwrap().len(), 3);
        assert_eq!(history.incidents(None, 0.0).unwrap().len(), 20);
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(History::read(&folder.path().join("absent")).is_err());
        let path = folder.path().join("x.db");
        std::fs::write(&path, [7; 4096]).unwrap();
        assert!(History::open(&path).is_err());
        let newer = folder.path().join("newer.db");
        History::open(&newer).unwrap().connection.execute_batch("PRAGMA user_version = 9").unwrap();
        assert!(matches!(History::open(&newer), Err(HistoryError::Version(9))));
    }
}
