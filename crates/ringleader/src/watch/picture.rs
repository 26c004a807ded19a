//! The job at this moment, for those who show it: screen, page, metrics.

use std::collections::VecDeque;

use serde::Serialize;

use crate::report::json::Report;
use crate::watch::event::{CommLine, Event, RankLine, Said, Slowest, Stall, Straggler, Watching};

/// Name and version of `/api/state`.
pub(crate) const SCHEMA: &str = "ringleader.watch-state.v1";
/// Lines of the past that are kept.
const MAX_SAID: usize = 60;
/// Late ranks that are kept.
const MAX_STRAGGLERS: usize = 16;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Picture {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    /// Host that watches.
    pub(crate) host: String,
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) watching: Watching,
    pub(crate) comms: Vec<CommLine>,
    pub(crate) ranks: Vec<RankLine>,
    pub(crate) slowest: Option<Slowest>,
    /// The newest word on each late rank.
    pub(crate) stragglers: Vec<Straggler>,
    /// While it lasts.
    pub(crate) stall: Option<Stall>,
    pub(crate) n_stalls: u64,
    /// What is being done about it: `collecting evidence`.
    pub(crate) doing: Option<String>,
    pub(crate) verdict: Option<Report>,
    /// The report as text.
    pub(crate) verdict_text: Option<String>,
    pub(crate) n_verdicts: u64,
    pub(crate) bundle: Option<String>,
    /// Merged stacks of all ranks, as text.
    pub(crate) stacks: Option<String>,
    pub(crate) ended: Option<String>,
    /// What was said, oldest first.
    pub(crate) said: VecDeque<SaidLine>,
}

/// One line of the past.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SaidLine {
    pub(crate) at: f64,
    pub(crate) text: String,
}

impl Picture {
    pub(crate) fn new(host: String) -> Self {
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), host, ..Self::default() }
    }

    /// Takes in what was said.
    pub(crate) fn take(&mut self, said: &Said) {
        self.at = self.at.max(said.at);
        match &said.event {
            Event::Watching(watching) => self.watching = watching.clone(),
            Event::Progress { comms, slowest } => {
                self.comms.clone_from(comms);
                self.slowest.clone_from(slowest);
                return;
            }
            Event::Straggler(straggler) => {
                self.stragglers.retain(|s| s.rank != straggler.rank || s.comm != straggler.comm);
                self.stragglers.push(straggler.clone());
                if self.stragglers.len() > MAX_STRAGGLERS {
                    self.stragglers.remove(0);
                }
            }
            Event::Stall(stall) => {
                self.n_stalls += 1;
                self.stall = Some(stall.clone());
            }
            Event::Bundle { path } => self.bundle = Some(path.clone()),
            Event::Verdict { report } => {
                self.n_verdicts += 1;
                self.verdict = Some((**report).clone());
            }
            Event::Recovered { .. } => self.stall = None,
            Event::Ended { how } => self.ended = Some(how.clone()),
            Event::Note { .. } => {}
        }
        if let Some(text) = said.event.text() {
            // A stall tells of every rank; the past keeps its first line.
            let text = text.lines().next().unwrap_or_default().to_owned();
            self.said.push_back(SaidLine { at: said.at, text });
            if self.said.len() > MAX_SAID {
                self.said.pop_front();
            }
        }
    }
}
