//! Nodes with jobs, for tests.

use std::collections::BTreeMap;

use ringleader_node::{Gpu, GpuProcess, Gpus, Jobs, Node, Part, Process, System};

use crate::answer::{CheckAnswer, CheckState};
use crate::rule::Check;
use crate::view::{Expectations, NodeView};

/// The current time on the nodes of these tests.
pub(crate) const NOW_NS: i64 = 1_700_000_000_000_000_000;
/// Start of their jobs, an hour earlier.
const STARTED_NS: i64 = NOW_NS - 3_600_000_000_000;

/// A node under construction.
pub(crate) struct NodeStage {
    pub(crate) node: Node,
}

/// A sleeping process of user 1000.
pub(crate) fn process(pid: u32, ppid: u32, command: &str, environment: &[(&str, &str)]) -> Process {
    let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Process {
        pid,
        ppid,
        command: command.to_owned(),
        arguments: vec![command.to_owned()],
        state: "S".to_owned(),
        uid: 1000,
        started_ns: STARTED_NS,
        n_threads: 1,
        environment: Some(variables.collect()),
        ..Process::default()
    }
}

/// Rank `rank` of `n`, below pid 70.
pub(crate) fn rank(rank: u32, n: u32, more: &[(&str, &str)]) -> Process {
    let (text, n) = (rank.to_string(), n.to_string());
    let own = [
        ("RANK", text.as_str()),
        ("LOCAL_RANK", &text),
        ("WORLD_SIZE", &n),
        ("LOCAL_WORLD_SIZE", &n),
        ("MASTER_ADDR", "n0"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "r"),
    ];
    let all: BTreeMap<&str, &str> = own.into_iter().chain(more.iter().copied()).collect();
    Process { uses_gpu: true, ..process(80 + rank, 70, "python3", &all.into_iter().collect::<Vec<_>>()) }
}

impl NodeStage {
    /// A node on which nothing runs.
    pub(crate) fn new() -> Self {
        let system =
            System { n_cpus: 64, memory_total: 1 << 38, memory_available: 1 << 37, ..System::default() };
        let node = Node {
            host: "n0".to_owned(),
            at_ns: NOW_NS,
            jobs: Part::of(Jobs::default()),
            system: Part::of(system),
            ..Node::default()
        };
        Self { node }
    }

    /// Four ranks of one torchrun; `change` may modify each.
    pub(crate) fn job(change: impl Fn(u32, &mut Process)) -> Self {
        let mut stage =
            Self::new().process(process(1, 0, "systemd", &[])).process(process(70, 1, "torchrun", &[]));
        for n in 0..4 {
            let mut rank = rank(n, 4, &[]);
            change(n, &mut rank);
            stage = stage.process(rank);
        }
        stage
    }

    pub(crate) fn process(mut self, process: Process) -> Self {
        let mut jobs = self.jobs().clone();
        jobs.processes.push(process);
        self.node.jobs = Part::of(jobs);
        self
    }

    pub(crate) fn without(mut self, pid: u32) -> Self {
        let mut jobs = self.jobs().clone();
        jobs.processes.retain(|process| process.pid != pid);
        self.node.jobs = Part::of(jobs);
        self
    }

    pub(crate) fn gpu(mut self, pci: &str, users: &[(u32, u64)]) -> Self {
        let mut gpus = self.node.gpus.get().cloned().unwrap_or_else(Gpus::default);
        let users = users.iter().map(|(pid, mib)| GpuProcess { pid: *pid, memory_mib: Some(*mib) });
        let index = gpus.gpus.len() as u32;
        gpus.gpus.push(Gpu { index, pci: pci.to_owned(), processes: users.collect(), ..Gpu::default() });
        self.node.gpus = Part::of(gpus);
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.node);
        self
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        self.node.jobs.get().unwrap()
    }

    pub(crate) fn answer(&self, check: &Check) -> CheckAnswer {
        (check.run)(&NodeView::new(&self.node, &Expectations::default()))
    }

    /// The verdict, and the subjects of the items that are not well.
    pub(crate) fn told(&self, check: &Check) -> (CheckState, Vec<String>) {
        let answer = self.answer(check);
        let bad =
            answer.items.into_iter().filter(|item| item.verdict > CheckState::Ok).map(|item| item.subject);
        (answer.verdict, bad.collect())
    }

    /// Asserts verdict and subjects.
    #[track_caller]
    pub(crate) fn expect(&self, check: &Check, verdict: CheckState, subjects: &[&str]) {
        let told = self.told(check);
        assert_eq!(
            told,
            (verdict, subjects.iter().map(|s| (*s).to_owned()).collect()),
            "{:#?}",
            self.answer(check)
        );
        // People read it: no value as Rust prints it for itself.
        for item in self.answer(check).items {
            for text in [&item.text, &item.evidence] {
                assert!(!["Some(", "None", "{", "["].iter().any(|mark| text.contains(mark)), "{item:?}");
            }
        }
    }
}
