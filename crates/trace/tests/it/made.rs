//! Made jobs: a program of host calls, streams and collectives is run in a small simulation, which gives its timelines as
//! a profiler would record them, and its true step without a profiler. So the true gain of a change is known.

use ringleader_model::{
    CommCall, DeviceWork, HostSpan, OpKind, Rank, Recorder, RuntimeCall, SpanKind, StepMark, Timeline,
    WorkKind,
};

/// The stream that computes.
pub(crate) const MAIN: u32 = 7;
/// The stream of communication.
pub(crate) const COMM: u32 = 20;
/// What a recorder costs the host for each event, ns.
const RECORD_NS: i64 = 1_600;
/// A launch takes the host this long, ns.
const CALL_NS: i64 = 4_000;
/// Work can start this long after its launch began, ns.
const LATENCY_NS: i64 = 5_000;

/// One thing that the program does, in the order of its host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Do {
    /// Nothing: a rank that has nothing to do where others do something.
    Nothing,
    /// The host works within an operator, ns.
    Busy(i64),
    /// The host is outside of anything recorded, ns.
    Outside(i64),
    /// The host waits for input, ns.
    Load(i64),
    /// A kernel in the main stream: name, ns.
    Kernel(&'static str, i64),
    /// The same with its number of blocks.
    Blocks(&'static str, i64, u32),
    /// Kernels that one call launches as a graph: they share its number.
    Graph(Vec<(&'static str, i64)>),
    /// The host copies input to the GPU: ns on the GPU, bytes; pageable memory holds the host until it has been copied.
    Copy { ns: i64, bytes: u64, pageable: bool, stream: u32 },
    /// A value is read from the GPU: a small copy, and a wait for it.
    Item,
    /// `cudaDeviceSynchronize`.
    Synchronize,
    /// `cudaMalloc` or `cudaFree`, which wait for the GPU: ns beyond that.
    Allocate(i64),
    /// A collective of all ranks, in its own stream behind what the main stream has: kind, bytes, ns from its last start.
    Collective(OpKind, u64, i64),
    /// The same in the main stream.
    CollectiveInMain(OpKind, u64, i64),
    /// A transfer between two ranks in the main stream: the peer, bytes, ns. The peer has one at the same place.
    Transfer { peer: u32, is_send: bool, bytes: u64, ns: i64 },
    /// The main stream waits for all communication.
    WaitComm,
    /// An annotation around what follows, until `End`.
    Begin(&'static str),
    /// The end of the innermost annotation.
    End,
}

/// A job: for each rank a program of one step, and changes of single steps.
pub(crate) struct Job {
    pub(crate) programs: Vec<Vec<Do>>,
    pub(crate) n_steps: usize,
    /// Whether steps are annotated.
    pub(crate) is_annotated: bool,
    /// Ranks of one host: others are of the next ones, whose clocks differ by this many ns from one to the next.
    pub(crate) per_host: Option<(u32, i64)>,
    /// Name of the GPUs.
    pub(crate) gpu: Option<&'static str>,
}

impl Job {
    /// A job of equal ranks.
    pub(crate) fn of(n_ranks: usize, program: &[Do]) -> Self {
        Self {
            programs: vec![program.to_vec(); n_ranks],
            n_steps: 8,
            is_annotated: true,
            per_host: None,
            gpu: None,
        }
    }

    /// The timelines of its ranks.
    pub(crate) fn record(&self) -> Vec<Timeline> {
        self.run(RECORD_NS).0
    }

    /// Its step without a recorder, ns: mean of all but the first.
    pub(crate) fn true_step_ns(&self) -> i64 {
        let ends = self.run(0).1;
        let (first, last) = (ends.first().copied().unwrap_or(0), ends.last().copied().unwrap_or(0));
        (last - first) / (ends.len() as i64 - 1).max(1)
    }

    fn run(&self, record_ns: i64) -> (Vec<Timeline>, Vec<i64>) {
        let mut ranks: Vec<Machine> = (0..self.programs.len() as u32)
            .map(|rank| Machine::new(rank, self.programs.len() as u32, record_ns))
            .collect();
        let mut step_ends = Vec::new();
        let n_ops = self.programs.iter().map(Vec::len).max().unwrap_or(0);
        for step in 0..self.n_steps {
            for machine in &mut ranks {
                machine.step = machine.clock;
            }
            for at in 0..n_ops {
                let all: Vec<Do> =
                    self.programs.iter().map(|p| p.get(at).cloned().unwrap_or(Do::Nothing)).collect();
                together(&mut ranks, &all);
            }
            for machine in &mut ranks {
                machine.clock += 1_000;
                machine.timeline.steps.extend(self.is_annotated.then_some(StepMark {
                    number: step as u64,
                    start_ns: machine.step,
                    end_ns: machine.clock,
                    bytes: (1, 2),
                }));
            }
            step_ends.push(ranks.iter().map(Machine::idle_from).max().unwrap_or(0));
        }
        let timelines = ranks.into_iter().map(|machine| {
            let mut timeline = machine.timeline;
            timeline.work.sort_by_key(|work| (work.start_ns, work.stream));
            timeline.host_spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
            timeline.device_name = self.gpu.map(Into::into);
            if let (Some((per_host, shift_ns)), Some(rank)) = (self.per_host, timeline.rank) {
                let node = rank.0 / per_host;
                timeline.host = Some(format!("node{node}").into());
                timeline.device = Some(rank.0 % per_host);
                shift(&mut timeline, i64::from(node) * shift_ns);
            }
            timeline
        });
        (timelines.collect(), step_ends)
    }
}

/// Moves a clock.
fn shift(timeline: &mut Timeline, ns: i64) {
    for work in &mut timeline.work {
        (work.start_ns, work.end_ns) = (work.start_ns + ns, work.end_ns + ns);
    }
    for span in &mut timeline.host_spans {
        (span.start_ns, span.end_ns) = (span.start_ns + ns, span.end_ns + ns);
    }
    for step in &mut timeline.steps {
        (step.start_ns, step.end_ns) = (step.start_ns + ns, step.end_ns + ns);
    }
}

/// One place of the program on all ranks: what joins ranks ends for all of them.
fn together(ranks: &mut [Machine], all: &[Do]) {
    let starts: Vec<Option<i64>> =
        ranks.iter_mut().zip(all).map(|(machine, what)| machine.one(what)).collect();
    let last = starts.iter().flatten().copied().max().unwrap_or(0);
    for (at, what) in all.iter().enumerate() {
        let Some(start) = starts[at] else { continue };
        let end = match what {
            Do::Collective(_, _, ns) | Do::CollectiveInMain(_, _, ns) => last + ns,
            Do::Transfer { peer, ns, .. } => start.max(starts[*peer as usize].unwrap_or(start)) + ns,
            _ => continue,
        };
        ranks[at].communicate(what, start, end);
    }
}

/// One rank while it runs.
struct Machine {
    timeline: Timeline,
    record_ns: i64,
    n_ranks: u32,
    /// The host's time.
    clock: i64,
    /// Start of the step.
    step: i64,
    /// When each stream is free.
    main: i64,
    comm: i64,
    copy: i64,
    open: Vec<(u32, i64)>,
}

impl Machine {
    fn new(rank: u32, n_ranks: u32, record_ns: i64) -> Self {
        let mut timeline = Timeline::new(Recorder::Torch);
        (timeline.rank, timeline.device) = (Some(Rank(rank)), Some(rank));
        let clock = 1_000_000;
        Self { timeline, record_ns, n_ranks, clock, step: clock, main: 0, comm: 0, copy: 0, open: Vec::new() }
    }

    fn idle_from(&self) -> i64 {
        self.main.max(self.comm).max(self.copy).max(self.clock)
    }

    fn name(&mut self, name: &str) -> u32 {
        let names = &mut self.timeline.names;
        let at = names.iter().position(|known| &**known == name).unwrap_or(names.len());
        if at == names.len() {
            names.push(name.into());
        }
        at as u32
    }

    fn span(&mut self, name: &str, kind: SpanKind, start_ns: i64, end_ns: i64, link: u32) {
        let name = self.name(name);
        self.timeline.host_spans.push(HostSpan { start_ns, end_ns, name, thread: 1, kind, link });
    }

    fn work(&mut self, name: &str, kind: WorkKind, stream: u32, (start_ns, end_ns): (i64, i64), link: u32) {
        let name = self.name(name);
        self.timeline.work.push(DeviceWork {
            start_ns,
            end_ns,
            name,
            stream,
            kind,
            correlation: link,
            call: 0,
            size_bytes: 0,
            n_blocks: 64,
        });
    }

    /// A call of the runtime: its begin, and its number. The recorder makes it longer.
    fn call(&mut self, name: &str, kind: RuntimeCall, ns: i64) -> (i64, u32) {
        let begin = self.clock;
        let link = self.timeline.host_spans.len() as u32 + 1;
        self.clock += ns + self.record_ns;
        self.span(name, SpanKind::Runtime(kind), begin, self.clock, link);
        (begin, link)
    }

    /// The last call lasts until then.
    fn hold(&mut self, until: i64) {
        self.clock = self.clock.max(until);
        let clock = self.clock;
        if let Some(span) = self.timeline.host_spans.last_mut() {
            span.end_ns = clock;
        }
    }

    /// Does one thing; of what joins ranks the start.
    fn one(&mut self, what: &Do) -> Option<i64> {
        match what {
            Do::Nothing => {}
            Do::Busy(ns) => {
                let begin = self.clock;
                self.clock += ns + self.record_ns;
                self.span("aten::op", SpanKind::Operator, begin, self.clock, 0);
            }
            Do::Outside(ns) => self.clock += ns,
            Do::Load(ns) => {
                let begin = self.clock;
                self.clock += ns;
                let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
                self.span(name, SpanKind::Annotation, begin, self.clock, 0);
            }
            Do::Kernel(name, ns) => self.kernel(name, *ns, 64),
            Do::Blocks(name, ns, n_blocks) => self.kernel(name, *ns, *n_blocks),
            Do::Graph(kernels) => {
                let (begin, link) = self.call("cudaGraphLaunch", RuntimeCall::Launch, 2 * CALL_NS);
                for (name, ns) in kernels {
                    let start = (begin + LATENCY_NS).max(self.main);
                    self.main = start + ns;
                    self.work(name, WorkKind::Compute, MAIN, (start, self.main), link);
                    self.main += 500;
                }
            }
            Do::Copy { ns, bytes, pageable, stream } => {
                let (begin, link) = self.call("cudaMemcpyAsync", RuntimeCall::Copy, CALL_NS);
                let free = if *stream == MAIN { self.main } else { self.copy };
                let start = (begin + LATENCY_NS).max(free);
                let end = start + ns;
                if *stream == MAIN {
                    self.main = end;
                } else {
                    self.copy = end;
                }
                let kind = WorkKind::Copy { with_host: true, pageable: *pageable };
                self.work("Memcpy HtoD", kind, *stream, (start, end), link);
                if let Some(work) = self.timeline.work.last_mut() {
                    work.size_bytes = *bytes;
                }
                if *pageable {
                    self.hold(end + 1_000);
                }
            }
            Do::Item => {
                let (begin, link) = self.call("cudaMemcpyAsync", RuntimeCall::Copy, CALL_NS);
                let start = (begin + LATENCY_NS).max(self.main);
                self.main = start + 2_000;
                let kind = WorkKind::Copy { with_host: true, pageable: true };
                self.work("Memcpy DtoH", kind, MAIN, (start, self.main), link);
                if let Some(work) = self.timeline.work.last_mut() {
                    work.size_bytes = 4;
                }
                self.call("cudaStreamSynchronize", RuntimeCall::Synchronize, 2_000);
                self.hold(self.main + 1_000);
            }
            Do::Synchronize => {
                self.call("cudaDeviceSynchronize", RuntimeCall::Synchronize, 2_000);
                self.hold(self.main.max(self.comm).max(self.copy) + 1_000);
            }
            Do::Allocate(ns) => {
                self.call("cudaMalloc", RuntimeCall::Allocate, CALL_NS);
                self.hold(self.main.max(self.comm).max(self.copy) + ns);
            }
            Do::Collective(..) => {
                let begin = self.clock;
                self.call("cudaLaunchKernel", RuntimeCall::Launch, CALL_NS);
                return Some((begin + LATENCY_NS).max(self.comm).max(self.main));
            }
            Do::CollectiveInMain(..) | Do::Transfer { .. } => {
                let begin = self.clock;
                self.call("cudaLaunchKernel", RuntimeCall::Launch, CALL_NS);
                return Some((begin + LATENCY_NS).max(self.main));
            }
            Do::WaitComm => {
                self.call("cudaStreamWaitEvent", RuntimeCall::Other, 1_000);
                self.main = self.main.max(self.comm);
            }
            Do::Begin(name) => {
                let name = self.name(name);
                self.open.push((name, self.clock));
            }
            Do::End => {
                if let Some((name, start_ns)) = self.open.pop() {
                    let (end_ns, kind) = (self.clock, SpanKind::Annotation);
                    self.timeline.host_spans.push(HostSpan {
                        start_ns,
                        end_ns,
                        name,
                        thread: 1,
                        kind,
                        link: 0,
                    });
                }
            }
        }
        None
    }

    fn kernel(&mut self, name: &str, ns: i64, n_blocks: u32) {
        let (begin, link) = self.call("cudaLaunchKernel", RuntimeCall::Launch, CALL_NS);
        let start = (begin + LATENCY_NS).max(self.main + 500);
        self.main = start + ns;
        self.work(name, WorkKind::Compute, MAIN, (start, self.main), link);
        if let Some(work) = self.timeline.work.last_mut() {
            work.n_blocks = n_blocks;
        }
    }

    /// A collective or transfer from its start on this rank to its end.
    fn communicate(&mut self, what: &Do, start: i64, end: i64) {
        let link = self.timeline.host_spans.len() as u32;
        let (kind, bytes, stream, peer) = match what {
            Do::Collective(kind, bytes, _) => (*kind, *bytes, COMM, None),
            Do::CollectiveInMain(kind, bytes, _) => (*kind, *bytes, MAIN, None),
            Do::Transfer { peer, is_send, bytes, .. } => {
                (if *is_send { OpKind::Send } else { OpKind::Recv }, *bytes, MAIN, Some(*peer))
            }
            _ => return,
        };
        if stream == MAIN {
            self.main = end;
        } else {
            self.comm = end;
        }
        let name =
            if peer.is_some() { "ncclDevKernel_SendRecv" } else { "ncclDevKernel_AllReduce_Sum_f32_RING_LL" };
        self.work(name, WorkKind::Comm, stream, (start, end), link);
        self.timeline.calls.push(CommCall {
            kind: Some(kind),
            group: "0".into(),
            group_size: self.n_ranks,
            ranks: (0..self.n_ranks).collect(),
            in_elements: bytes / 4,
            out_elements: bytes / 4,
            element_bytes: 4,
            peer,
            ..CommCall::default()
        });
        let call = self.timeline.calls.len() as u32;
        if let Some(work) = self.timeline.work.last_mut() {
            work.call = call;
        }
    }
}
