//! The job at this moment, for those who show it: screen, page, metrics. Bounded for any size of the job.

use std::collections::VecDeque;

use ringleader_watch::digest::ProcessState;
use ringleader_watch::event::{Event, Stall, Straggler, What};
use ringleader_watch::standing::Standing;
use ringleader_watch::view::{JobState, Sees, View};
use serde::Serialize;

use crate::watch::words;

/// Name and version of `/api/state`.
pub(crate) const SCHEMA: &str = "ringleader.watch-state.v1";
/// Lines of the past that are kept.
const MAX_SAID: usize = 60;
/// Communicators that are shown.
const MAX_COMMS: usize = 64;
/// Ranks that are shown: suspects first.
const MAX_RANKS: usize = 512;
/// Remarks on what cannot be seen.
const MAX_NOTES: usize = 16;
/// Late ranks that are kept.
const MAX_STRAGGLERS: usize = 16;

/// All that the terminal, the page and the metrics show at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Picture {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    /// Host that watches.
    pub(crate) host: String,
    /// The job that is shown, where several are followed.
    pub(crate) name: Option<String>,
    /// The others.
    pub(crate) others: Vec<String>,
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) job: JobState,
    pub(crate) sees: Sees,
    pub(crate) cannot_see: Vec<String>,
    pub(crate) n_nodes: usize,
    pub(crate) n_ranks: usize,
    pub(crate) n_comms: usize,
    pub(crate) comms: Vec<CommRow>,
    pub(crate) ranks: Vec<RankRow>,
    pub(crate) slowest: Option<SlowestRow>,
    /// The newest word on each late rank.
    pub(crate) stragglers: Vec<Straggler>,
    /// Stalls that hold.
    pub(crate) stalls: Vec<Stall>,
    pub(crate) n_stalls: u64,
    /// What is being done about it: `collecting evidence`.
    pub(crate) doing: Option<String>,
    /// `ringleader.report.v1`.
    pub(crate) verdict: Option<serde_json::Value>,
    /// The same as text.
    pub(crate) verdict_text: Option<String>,
    pub(crate) n_verdicts: u64,
    pub(crate) bundle: Option<String>,
    /// Merged stacks of all ranks, as text.
    pub(crate) stacks: Option<String>,
    pub(crate) ended: Option<String>,
    /// What was said, oldest first.
    pub(crate) said: VecDeque<SaidRow>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CommRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) ranks_seen: u32,
    pub(crate) ops_done: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) busbw_gbs: Option<f64>,
    pub(crate) in_flight: u32,
    /// `AllReduce #7`, while one is in flight.
    pub(crate) front: Option<String>,
    /// Ranks that have entered it, and whose kernel has started.
    pub(crate) entered: u32,
    pub(crate) started: u32,
    pub(crate) waiting_for: Vec<u32>,
    pub(crate) still_s: f64,
    pub(crate) patience_s: f64,
    pub(crate) is_stalled: bool,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RankRow {
    pub(crate) rank: Option<u32>,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// A word: that of [`Standing::name`], or the process's own state.
    pub(crate) state: String,
    /// The same in words.
    pub(crate) detail: String,
    pub(crate) late_ms: Option<f64>,
    /// Share of one processor.
    pub(crate) cpu: Option<f64>,
    pub(crate) is_suspect: bool,
}

/// The rank that keeps the others waiting most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SlowestRow {
    pub(crate) rank: u32,
    pub(crate) late_ms: f64,
    pub(crate) persistent: bool,
}

/// One line of the past.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SaidRow {
    pub(crate) at: f64,
    pub(crate) text: String,
}

impl Picture {
    pub(crate) fn new(host: String) -> Self {
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), host, ..Self::default() }
    }

    /// Takes in what was said.
    pub(crate) fn hear(&mut self, event: &Event) {
        match &event.what {
            What::Progress { .. } => return,
            What::Straggler(late) => {
                self.stragglers.retain(|other| other.rank != late.rank || other.comm != late.comm);
                self.stragglers.push(late.clone());
                if self.stragglers.len() > MAX_STRAGGLERS {
                    self.stragglers.remove(0);
                }
            }
            What::Stall(_) => self.n_stalls += 1,
            What::Bundle { path } => self.bundle = Some(path.clone()),
            What::Verdict { report } => {
                self.n_verdicts += 1;
                self.verdict = Some(report.clone());
            }
            What::Ended { how } => self.ended = Some(how.clone()),
            What::Watching { .. }
            | What::Waiting(_)
            | What::Ranks { .. }
            | What::Recovered { .. }
            | What::Over { .. }
            | What::Note { .. } => {}
        }
        if let Some(text) = words::lines(event) {
            // A stall describes every rank; the history keeps its first line.
            let text = text.lines().next().unwrap_or_default().to_owned();
            self.said.push_back(SaidRow { at: event.at, text });
            if self.said.len() > MAX_SAID {
                self.said.pop_front();
            }
        }
    }

    /// Takes in the state of the job.
    pub(crate) fn see(&mut self, view: &View) {
        self.at = ringleader_watch::event::seconds(view.at_ns);
        (self.job, self.sees) = (view.job, view.sees);
        let notes = view.nodes.iter().flat_map(|node| &node.notes);
        self.cannot_see = view.cannot_see.iter().chain(notes).take(MAX_NOTES).cloned().collect();
        (self.n_nodes, self.n_ranks, self.n_comms) =
            (view.nodes.len(), view.processes.len(), view.comms.len());
        self.stalls.clone_from(&view.stalls);
        let slowest = view.slowest.as_ref();
        self.slowest =
            slowest.map(|s| SlowestRow { rank: s.rank, late_ms: s.late_ms, persistent: s.persistent });
        self.comms = comms(view);
        self.ranks = ranks(view);
    }
}

fn comms(view: &View) -> Vec<CommRow> {
    let mut order: Vec<&ringleader_watch::view::Comm> = view.comms.iter().collect();
    // The view has the largest first; one that is stalled must not fall off the end.
    order.sort_by_key(|comm| !comm.is_stalled);
    let row = |comm: &ringleader_watch::view::Comm| CommRow {
        id: comm.id.clone(),
        name: comm.name.clone(),
        size: comm.size,
        ranks_seen: comm.ranks_seen,
        ops_done: comm.ops_done,
        ops_per_s: comm.ops_per_s,
        bytes_per_s: comm.bytes_per_s,
        busbw_gbs: comm.busbw_gbs,
        in_flight: comm.in_flight,
        front: comm.front.as_ref().map(|front| format!("{} #{}", front.function, front.number)),
        entered: comm.front.as_ref().map_or(0, |front| front.entered),
        started: comm.front.as_ref().map_or(0, |front| front.started),
        waiting_for: comm.waiting_for.clone(),
        still_s: comm.still_ns as f64 / 1e9,
        patience_s: comm.patience_ns as f64 / 1e9,
        is_stalled: comm.is_stalled,
    };
    order.into_iter().take(MAX_COMMS).map(row).collect()
}

fn ranks(view: &View) -> Vec<RankRow> {
    // Where each process is: a stalled communicator says most, then one with something in flight.
    let mut standing: Vec<Option<(u8, &Standing, &str)>> = vec![None; view.processes.len()];
    for comm in &view.comms {
        for member in &comm.members {
            let weight = match (&member.standing, comm.is_stalled) {
                (_, true) => 2,
                (Standing::Idle | Standing::Finished, false) => 0,
                _ => 1,
            };
            let name = words::comm_name(&comm.name, &comm.id);
            if let Some(standing) = standing.get_mut(member.process)
                && standing.is_none_or(|(known, ..)| known < weight)
            {
                *standing = Some((weight, &member.standing, name));
            }
        }
    }
    let mut rows: Vec<RankRow> = view
        .processes
        .iter()
        .zip(standing)
        .map(|(process, standing)| {
            let told = process.rank.and_then(|rank| {
                let states = view.stalls.iter().flat_map(|stall| &stall.states);
                states.into_iter().find(|state| state.rank == rank && state.pid == process.pid)
            });
            let (state, detail) = match (told, life(process.state), standing) {
                (Some(told), ..) => (told.state.clone(), told.detail.clone()),
                (None, Some(word), _) => (word.to_owned(), process.wchan.clone().unwrap_or_default()),
                (None, None, Some((_, standing, comm))) => (standing.name().to_owned(), format!("in {comm}")),
                (None, None, None) => ("runs".to_owned(), String::new()),
            };
            let outside = process.outside.as_ref().map(|outside| outside.text.as_str()).unwrap_or_default();
            let detail = match (detail.is_empty(), outside.is_empty() || detail.contains(outside)) {
                (_, true) => detail,
                (true, false) => outside.to_owned(),
                (false, false) => format!("{detail}; {outside}"),
            };
            RankRow {
                rank: process.rank,
                host: view.host_of(process).to_owned(),
                pid: process.pid,
                state,
                detail,
                late_ms: process.late_ms,
                cpu: process.cpu,
                is_suspect: process
                    .rank
                    .is_some_and(|rank| view.stalls.iter().any(|stall| stall.suspects.contains(&rank))),
            }
        })
        .collect();
    if rows.len() > MAX_RANKS {
        // The view's order is by rank; of too many, those that matter are kept.
        rows.sort_by_key(|row| !row.is_suspect);
        rows.truncate(MAX_RANKS);
    }
    rows
}

/// A process's own state, if it is not simply alive.
fn life(state: ProcessState) -> Option<&'static str> {
    match state {
        ProcessState::Unknown | ProcessState::Alive => None,
        ProcessState::Stopped => Some("stopped"),
        ProcessState::Uninterruptible => Some("uninterruptible"),
        ProcessState::Zombie => Some("zombie"),
        ProcessState::Dead => Some("dead"),
    }
}

#[cfg(test)]
pub(crate) mod sample {
    //! Pictures for the tests of those who show them.

    use ringleader_watch::event::{RankState, StalledOp};

    use super::*;

    fn comm(name: &str, id: &str) -> CommRow {
        CommRow {
            id: id.to_owned(),
            name: name.to_owned(),
            size: 4,
            ranks_seen: 4,
            ops_done: 1200,
            ops_per_s: 48.5,
            bytes_per_s: 12.3e9,
            busbw_gbs: Some(231.4),
            in_flight: 1,
            ..CommRow::default()
        }
    }

    fn rank(rank: u32) -> RankRow {
        RankRow {
            rank: Some(rank),
            host: "node7".to_owned(),
            pid: 4700 + rank,
            state: "waiting".to_owned(),
            detail: "in default_pg".to_owned(),
            late_ms: Some(f64::from(rank) / 2.0),
            cpu: Some(1.0),
            is_suspect: false,
        }
    }

    pub(crate) fn running() -> Picture {
        let said = SaidRow { at: 1.0, text: "watching 4 ranks on 1 node, by the plugin".to_owned() };
        Picture {
            at: 1_795_162_892.5,
            job: JobState::Running,
            sees: Sees::Plugin,
            n_nodes: 1,
            n_ranks: 4,
            n_comms: 2,
            comms: vec![comm("default_pg", "0xd1ce"), comm("tp", "0xbeef")],
            ranks: (0..4).map(rank).collect(),
            slowest: Some(SlowestRow { rank: 3, late_ms: 1.5, persistent: true }),
            said: [said].into(),
            ..Picture::new("node7".to_owned())
        }
    }

    pub(crate) fn many_ranks() -> Picture {
        Picture { n_ranks: 64, ranks: (0..64).map(rank).collect(), ..running() }
    }

    pub(crate) fn stalled() -> Picture {
        let mut picture = running();
        let stall = Stall {
            comm: "0xd1ce".to_owned(),
            comm_name: "default_pg".to_owned(),
            op: StalledOp { kind: "AllReduce".to_owned(), number: 1201 },
            since: 1_795_162_882.0,
            after_s: 10.5,
            expected_s: 5.0,
            text: "rank 2 never entered".to_owned(),
            states: vec![RankState {
                rank: 2,
                detail: "stopped by a signal".to_owned(),
                ..RankState::default()
            }],
            suspects: vec![2],
            ..Stall::default()
        };
        picture.job = JobState::Stalled;
        picture.stalls = vec![stall];
        picture.n_stalls = 1;
        picture.comms[0] = CommRow {
            ops_per_s: 0.0,
            bytes_per_s: 0.0,
            busbw_gbs: None,
            front: Some("AllReduce #1201".to_owned()),
            entered: 3,
            started: 3,
            waiting_for: vec![2],
            still_s: 10.5,
            patience_s: 5.0,
            is_stalled: true,
            ..comm("default_pg", "0xd1ce")
        };
        picture.ranks[2] = RankRow {
            state: "stopped".to_owned(),
            detail: "stopped by a signal".to_owned(),
            is_suspect: true,
            ..rank(2)
        };
        picture.verdict = Some(serde_json::json!({
            "schema": "ringleader.report.v1",
            "verdict": {
                "cause": "process-stopped", "category": "hang", "confidence": "high",
                "summary": "rank 2 is stopped by a signal",
                "culprits": [{"rank": 2, "host": "node7", "pid": 4702, "local_rank": 2, "gpu": null,
                              "where": {"file": "/srv/train.py", "line": 83, "function": "step"}}],
                "victims": "0-1,3",
                "actions": [{"text": "let it go on", "command": "kill -CONT 4702", "impact": "harmless"}]
            }
        }));
        picture.verdict_text =
            Some("VERDICT  process-stopped (hang, high confidence)\n  rank 2 is stopped".to_owned());
        picture.bundle = Some("/var/tmp/ringleader-node7-1.tar.zst".to_owned());
        picture.n_verdicts = 1;
        picture
    }
}
