//! The job: nodes, ranks, process groups, and the calls of each rank.

use crate::Options;
use crate::fault::Fault;
use crate::places::{PlaceId, Places};
use crate::prng::Prng;

/// A kind of call, as torch records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Barrier,
    Send,
    Recv,
}

impl CallKind {
    pub(crate) fn is_p2p(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallSpec {
    pub(crate) kind: CallKind,
    pub(crate) input: Vec<u64>,
    pub(crate) output: Vec<u64>,
    pub(crate) dtype: &'static str,
    /// Rank within the group; 0 for calls without a root.
    pub(crate) root: u32,
}

impl CallSpec {
    pub(crate) fn numel_in(&self) -> u64 {
        self.input.iter().product()
    }

    pub(crate) fn numel_out(&self) -> u64 {
        self.output.iter().product()
    }

    /// Whether two ranks that make these calls at the same position can complete.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        let reduce_like = |k: CallKind| if k == CallKind::Barrier { CallKind::AllReduce } else { k };
        reduce_like(self.kind) == reduce_like(other.kind)
            && self.numel_in() == other.numel_in()
            && self.numel_out() == other.numel_out()
            && self.dtype == other.dtype
            && self.root == other.root
    }
}

/// How a rank is stopped outside any call, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// SIGSTOP.
    Stopped,
    /// Waits for a lock, a pipe or a timer.
    Asleep,
    /// In the kernel, state D.
    Uninterruptible,
    /// Computes on the host.
    Busy,
}

/// How a process ends before its program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessFailure {
    /// SIGKILL from outside.
    Killed,
    /// SIGSEGV.
    Crashed,
    /// Exception.
    Raised,
}

/// One action of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Begins a step.
    StepStart(u16),
    /// Enqueues a call. With `wait` (torch's `async_op=False`) the compute stream waits for it, and so does
    /// everything enqueued later, in any group.
    Call { group: u16, call: u16, place: PlaceId, peer: Option<u16>, wait: bool },
    /// The compute stream waits for everything enqueued so far.
    Join,
    /// The host waits for everything enqueued so far.
    Sync(PlaceId),
    /// The host computes.
    Host { us: u32 },
    /// The GPU computes.
    Gpu { us: u32 },
    /// A kernel that never ends.
    GpuStuck,
    /// Ends a step; the script prints.
    StepEnd(u16),
    /// Never continues.
    Stand(Halt, PlaceId),
    /// Ends with status 0.
    Exit,
    /// Ends with an error.
    Fail(ProcessFailure, PlaceId),
}

/// Arrangement of the ranks in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One world group.
    Ddp,
    /// One world group, sharded parameters.
    Fsdp,
    /// Tensor-parallel groups of consecutive ranks, data-parallel groups across them.
    Mesh { tp: u32 },
    /// The same with pipeline stages; the stage is the slowest-varying index.
    Pipe { tp: u32, pp: u32 },
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) addr: String,
    pub(crate) first: u32,
    pub(crate) n_ranks: u32,
    pub(crate) launcher_pid: u32,
    /// Offset of this node's clock, ns; positive if it is ahead.
    pub(crate) skew_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RankInfo {
    pub(crate) node: u32,
    pub(crate) local: u32,
    pub(crate) pid: u32,
    /// pthread handle of the main thread.
    pub(crate) thread: u64,
    /// pthread handle of the autograd thread.
    pub(crate) autograd: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Equal on all members (torch's global counter).
    pub(crate) name: String,
    pub(crate) desc: &'static str,
    /// Global ranks in group-rank order.
    pub(crate) ranks: Vec<u32>,
    pub(crate) hash: u64,
    /// All members on one node: NCCL's opCount stays 0.
    pub(crate) one_node: bool,
}

impl Group {
    pub(crate) fn rank_of(&self, global: u32) -> Option<u32> {
        self.ranks.iter().position(|r| *r == global).map(|at| at as u32)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) n: u32,
    pub(crate) layout: Layout,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ranks: Vec<RankInfo>,
    pub(crate) groups: Vec<Group>,
    /// Groups of each rank, in the order in which its process created them.
    pub(crate) groups_of: Vec<Vec<u16>>,
    pub(crate) calls: Vec<CallSpec>,
    pub(crate) places: Places,
    pub(crate) programs: Vec<Vec<Act>>,
    pub(crate) n_steps: u16,
    /// Entries that a recorder keeps.
    pub(crate) ring: usize,
    pub(crate) timeout_ms: u32,
    /// Wall clock at the start, ns since 1970.
    pub(crate) start_ns: i64,
    /// Whether NCCL lines have timestamps.
    pub(crate) nccl_stamps: bool,
    /// Whether every rank prints, not only rank 0.
    pub(crate) all_print: bool,
}

impl Job {
    /// Machines, ranks and groups; no rank calls anything yet.
    pub(crate) fn without_program(prng: &mut Prng, fault: Fault, options: &Options) -> Self {
        let (n, layout) = shape(prng, fault, options);
        let (nodes, ranks) = machines(prng, n, options);
        let places = Places::new(prng);
        let n_steps = if fault == Fault::Straggler { prng.range(20, 26) } else { prng.range(3, 5) } as u16;
        let mut job = Self {
            n,
            layout,
            nodes,
            ranks,
            groups: Vec::new(),
            groups_of: vec![Vec::new(); n as usize],
            calls: Vec::new(),
            places,
            programs: Vec::new(),
            n_steps,
            ring: 2000,
            timeout_ms: prng.pick(&[8_000, 60_000, 600_000]),
            start_ns: 1_795_160_000_000_000_000 + prng.below(86_400) as i64 * 1_000_000_000,
            nccl_stamps: prng.chance(60),
            all_print: n <= 8 && prng.chance(70),
        };
        job.make_groups(prng);
        job
    }

    /// Finds a call in the table, or adds it.
    pub(crate) fn call(&mut self, call: CallSpec) -> u16 {
        if let Some(at) = self.calls.iter().position(|c| *c == call) {
            return at as u16;
        }
        self.calls.push(call);
        (self.calls.len() - 1) as u16
    }

    fn add_group(&mut self, prng: &mut Prng, desc: &'static str, ranks: Vec<u32>) {
        let index = self.groups.len() as u16;
        let node = |r: &u32| self.ranks[*r as usize].node;
        let one_node = ranks.iter().all(|r| node(r) == node(&ranks[0]));
        for r in &ranks {
            self.groups_of[*r as usize].push(index);
        }
        self.groups.push(Group { name: index.to_string(), desc, ranks, hash: prng.next(), one_node });
    }

    fn make_groups(&mut self, prng: &mut Prng) {
        let n = self.n;
        self.add_group(prng, "default_pg", (0..n).collect());
        let (tp, pp) = match self.layout {
            Layout::Ddp => {
                // A second group of all ranks, for metrics.
                self.add_group(prng, "undefined", (0..n).collect());
                return;
            }
            Layout::Fsdp => return,
            Layout::Mesh { tp } => (tp, 1),
            Layout::Pipe { tp, pp } => (tp, pp),
        };
        let dp = n / (tp * pp);
        if tp > 1 {
            for first in (0..n).step_by(tp as usize) {
                self.add_group(prng, "TENSOR_MODEL_PARALLEL_GROUP", (first..first + tp).collect());
            }
        }
        if pp > 1 {
            for first in 0..tp * dp {
                let ranks = (0..pp).map(|s| first + s * tp * dp).collect();
                self.add_group(prng, "PIPELINE_MODEL_PARALLEL_GROUP", ranks);
            }
        }
        if dp > 1 {
            for stage in 0..pp {
                for t in 0..tp {
                    let ranks = (0..dp).map(|d| stage * tp * dp + d * tp + t).collect();
                    self.add_group(prng, "DATA_PARALLEL_GROUP_WITH_CP", ranks);
                }
            }
        }
    }

    /// The group of `rank` with this description.
    pub(crate) fn group_of(&self, rank: u32, desc: &str) -> Option<u16> {
        self.groups_of[rank as usize].iter().copied().find(|g| self.groups[usize::from(*g)].desc == desc)
    }

    pub(crate) fn group(&self, index: u16) -> &Group {
        &self.groups[usize::from(index)]
    }

    pub(crate) fn info(&self, rank: u32) -> &RankInfo {
        &self.ranks[rank as usize]
    }

    pub(crate) fn node_of(&self, rank: u32) -> &Node {
        &self.nodes[self.info(rank).node as usize]
    }
}

/// Whether `fault` can strike in a job of this layout.
fn fits(fault: Fault, layout: Layout) -> bool {
    match fault {
        Fault::MissingSend | Fault::MissingRecv => matches!(layout, Layout::Pipe { .. }),
        Fault::UnevenInputs | Fault::OrderMismatch => matches!(layout, Layout::Ddp | Layout::Fsdp),
        Fault::RootMismatch => matches!(layout, Layout::Ddp),
        Fault::DeadlockCycle => matches!(layout, Layout::Mesh { .. }),
        _ => true,
    }
}

fn shape(prng: &mut Prng, fault: Fault, options: &Options) -> (u32, Layout) {
    let sizes: Vec<u32> = [2, 3, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 256, 512, 1024]
        .into_iter()
        .filter(|n| (options.min_ranks..=options.max_ranks).contains(n) && *n >= fault.min_ranks())
        // A straggler takes many steps to show: such jobs are smaller.
        .filter(|n| fault != Fault::Straggler || *n <= 128)
        .collect();
    let n = if sizes.is_empty() { options.max_ranks.max(fault.min_ranks()) } else { prng.pick(&sizes) };
    let mut layouts = Vec::new();
    layouts.extend([Layout::Ddp, Layout::Fsdp].into_iter().filter(|l| fits(fault, *l)));
    for tp in [2, 4, 8] {
        if n.is_multiple_of(tp) && n / tp >= 2 && fits(fault, Layout::Mesh { tp }) {
            layouts.push(Layout::Mesh { tp });
        }
    }
    for (tp, pp) in [(1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (8, 4)] {
        if n.is_multiple_of(tp * pp) && fits(fault, Layout::Pipe { tp, pp }) {
            layouts.push(Layout::Pipe { tp, pp });
        }
    }
    (n, prng.pick(&layouts))
}

fn machines(prng: &mut Prng, n: u32, options: &Options) -> (Vec<Node>, Vec<RankInfo>) {
    let sizes: Vec<u32> = [1, 2, 4, 8].into_iter().filter(|g| n.is_multiple_of(*g) && n / g <= 128).collect();
    // Large nodes are more common.
    let per_node = if prng.chance(70) { sizes[sizes.len() - 1] } else { prng.pick(&sizes) };
    let stem = prng.pick(&["node", "gpu-h100-", "worker", "dgx", "hgx-b"]);
    let first_number = prng.below(40) as u32;
    let mut nodes = Vec::new();
    let mut ranks = Vec::new();
    for node in 0..n / per_node {
        let launcher_pid = prng.range(900, 60_000) as u32;
        let skew = i64::from(options.clock_skew_ms) * 1_000_000;
        nodes.push(Node {
            host: format!("{stem}{}", first_number + node),
            addr: format!("10.77.{}.{}", (node + 10) / 200, (node + 10) % 200),
            first: node * per_node,
            n_ranks: per_node,
            launcher_pid,
            skew_ns: if skew == 0 { 0 } else { prng.below(2 * skew as u64) as i64 - skew },
        });
        let first_pid = launcher_pid + prng.range(10, 40) as u32;
        for local in 0..per_node {
            let base = 0x7e00_0000_0000 + prng.below(0x1ff_ffff) * 0x1000;
            ranks.push(RankInfo {
                node,
                local,
                pid: first_pid + local,
                thread: base + 0x3_0000_0300,
                autograd: base + 0x6c0,
            });
        }
    }
    (nodes, ranks)
}
