//! One look after the other at a running job: the agent's digest, those of other nodes, and what the engine makes of them.
//! `watch` and `run` look through it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ringleader_watch::digest::{ProcessState, SeenBy};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::{Event, SeenRank, Straggler, What};
use ringleader_watch::membership::attempts::{self, Attempt};
use ringleader_watch::tree;
use ringleader_watch::view::{JobState, View};

use crate::watch::agent::Agent;
use crate::watch::guard::GuardFeed;
use crate::watch::incident::ToCollect;
use crate::watch::nodes::{CollectRequest, Nodes};
use crate::watch::stacks::Sampler;

/// Remarks of agents that one event passes on.
const MAX_NOTES: usize = 16;
/// Looks at the stacks, in the time that a job may take to its first communicator.
const STACKS_AT_START: f64 = 40.0;

/// Follows one job.
pub(crate) struct Eye {
    pub(crate) agent: Agent,
    pub(crate) nodes: Option<Nodes>,
    settings: Settings,
    engine: Engine,
    sampler: Sampler,
    /// The newest stack of each rank, of all nodes, taken while something stalled.
    stacks: BTreeMap<u32, Vec<String>>,
    asks_ras: bool,
    guard: GuardFeed,
    /// The newest word on a rank that is persistently late.
    late: Option<Straggler>,
}

/// What one look has brought.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<String>,
    pub(crate) requests: Vec<CollectRequest>,
    /// This node judges for all.
    pub(crate) is_analyser: bool,
    /// Stacks of all ranks, merged, while something stalls.
    pub(crate) tree: Option<String>,
}

/// Whether the rank is the slowest at this moment.
fn still_slowest(view: &View, late: &Straggler) -> bool {
    view.slowest.as_ref().is_some_and(|slowest| slowest.rank == late.rank)
}

impl Eye {
    pub(crate) fn new(agent: Agent, nodes: Option<Nodes>, settings: Settings, asks_ras: bool) -> Self {
        Self {
            agent: if asks_ras { agent } else { agent.without_ras() },
            nodes,
            engine: Engine::new(settings.clone()),
            settings,
            sampler: Sampler::default(),
            stacks: BTreeMap::new(),
            asks_ras,
            guard: GuardFeed::default(),
            late: None,
        }
    }

    /// A rank is persistently late: bundles say so as long as it is the slowest.
    pub(crate) fn remember(&mut self, late: Straggler) {
        self.late = Some(late);
    }

    /// Whether that rank still is the slowest.
    pub(crate) fn is_late(&self) -> bool {
        self.late.as_ref().is_some_and(|late| still_slowest(self.engine.view(), late))
    }

    /// Processes of the job live, and none of them is a rank.
    pub(crate) fn is_without_ranks(&self) -> bool {
        let lives = |state| !matches!(state, ProcessState::Dead | ProcessState::Zombie);
        let view = self.engine.view();
        view.comms.iter().all(|comm| comm.is_ended)
            && !view.processes.iter().any(|process| process.rank.is_some() && lives(process.state))
            && !self.agent.pids().is_empty()
    }

    /// The late rank's process and those of its peers on this machine; none if it is on another one.
    pub(crate) fn sampled(&self) -> Vec<u32> {
        let Some(late) = &self.late else { return Vec::new() };
        let of_late = self.engine.view().pids_of(late.rank, &late.comm);
        let mut pids = self.agent.rank_pids();
        pids.sort_by_key(|pid| !of_late.contains(pid));
        if pids.first().is_some_and(|pid| of_late.contains(pid)) { pids } else { Vec::new() }
    }

    pub(crate) fn view(&self) -> &View {
        self.engine.view()
    }

    /// There were ranks, and all that were seen have ended: the launcher closes.
    pub(crate) fn is_past(&self) -> bool {
        let processes = &self.engine.view().processes;
        let has_ended = |state| matches!(state, ProcessState::Dead | ProcessState::Zombie);
        !processes.is_empty() && processes.iter().all(|process| has_ended(process.state))
    }

    /// How long no operation has been completed, beyond usual pauses; None if no operations were seen.
    pub(crate) fn still(&self) -> Option<Duration> {
        let running = self.engine.view().comms.iter().filter(|comm| !comm.is_ended && comm.ops_done > 0);
        let still = |comm: &ringleader_watch::view::Comm| {
            if comm.still_ns < comm.patience_ns { 0 } else { comm.still_ns.max(0).cast_unsigned() }
        };
        running.map(still).min().map(Duration::from_nanos)
    }

    /// One look at the job.
    pub(crate) fn look(&mut self, now_ns: i64) -> Looked {
        if let Some(stacks) = self.sampler.taken() {
            self.agent.put_stacks(stacks);
        }
        let digest = self.agent.look(now_ns);
        let mut looked = Looked { is_analyser: true, ..Looked::default() };
        let mut others = Vec::new();
        let news = self.guard.news(self.agent.folders(), &self.agent.pids());
        if let Some(nodes) = &mut self.nodes {
            let heard = nodes.turn(&digest);
            looked.notes = heard.notes;
            if heard.is_new_term {
                self.engine = Engine::new(self.settings.clone());
            }
            others = heard.digests;
            looked.requests.extend(heard.request);
            looked.is_analyser = heard.is_analyser;
        }
        looked.notes.extend(news);
        others.push(digest);
        for digest in others {
            let is_stalled = self.engine.view().job == JobState::Stalled;
            for rank in digest.ranks.iter().filter(|rank| is_stalled && !rank.stack.is_empty()) {
                self.stacks.insert(rank.rank.unwrap_or(rank.pid), rank.stack.clone());
            }
            self.engine.take(digest, now_ns);
        }
        for mut event in self.engine.look(now_ns) {
            if let What::Watching { cannot_see, .. } = &mut event.what {
                // What agents say of it names pids and the way out.
                cannot_see
                    .extend(self.engine.view().nodes.iter().flat_map(|node| node.notes.iter().cloned()));
                cannot_see.truncate(MAX_NOTES);
            }
            // How it ended, the face knows better: it may have the exit code.
            if !matches!(event.what, What::Ended { .. }) {
                looked.events.push(event);
            }
        }
        self.sample();
        let stacks = self.stacks.iter().map(|(rank, stack)| (*rank, stack.as_slice()));
        looked.tree = (!self.stacks.is_empty()).then(|| tree::merge(stacks).render());
        looked
    }

    /// Stacks are taken where they would tell something.
    fn sample(&mut self) {
        if !self.engine.asks_stacks() {
            self.agent.put_stacks(BTreeMap::new());
            return;
        }
        // Before the first communicator there is time.
        let first_floor_s = self.settings.first_floor_ns as f64 / 1e9;
        let pause = if self.engine.asks_often() { 0.0 } else { first_floor_s / STACKS_AT_START };
        self.sampler.sample(self.agent.rank_pids(), Duration::from_secs_f64(pause));
    }

    /// What is to be collected of this node now. `output`: files that the job's launcher writes.
    pub(crate) fn wanted(&self, why: String, output: Vec<PathBuf>) -> ToCollect {
        // What holds at this moment, including a stall that was just reported.
        let now_ns = crate::watch::now_ns();
        let view = self.engine.view();
        let host = ringleader_collect::follow::host();
        let seen = view.processes.iter().enumerate().filter_map(|(at, process)| {
            // Those of other nodes are in their bundles; a node's name in the hub need not be its host's.
            view.nodes.get(process.node).filter(|node| node.name == self.agent.node())?;
            let host = host.clone();
            let (local_rank, pid, state) = (process.local_rank, process.pid, process.state);
            let began = self.agent.began(pid);
            let since = ringleader_watch::event::seconds(process.state_since_ns);
            let exit_code = self.agent.exit_code(pid);
            let rank = view.rank_of_process(at)?;
            let seen = SeenRank { rank, local_rank, host, pid, state, began, since: Some(since), exit_code };
            Some(Attempt { seen, since, has_ring: process.seen_by == SeenBy::Ring })
        });
        let seen = attempts::current(&seen.collect::<Vec<_>>());
        let stalls = view.stalls.iter().cloned().map(|stall| What::Stall(Box::new(stall)));
        let lines = [What::Ranks { ranks: seen }]
            .into_iter()
            .chain(stalls)
            .chain(self.engine.slow_link().cloned().map(What::Straggler))
            .chain(self.late.clone().filter(|late| still_slowest(view, late)).map(What::Straggler))
            .map(|what| Event::new(now_ns, what))
            .filter_map(|event| serde_json::to_string(&event).ok())
            .map(|line| line + "\n");
        ToCollect {
            why,
            events: lines.collect(),
            pids: self.agent.pids(),
            rings: self.agent.images(),
            logs: self.agent.logs_of_the_dead(),
            no_ras: !self.asks_ras,
            sampled: Vec::new(),
            output,
        }
    }
}
