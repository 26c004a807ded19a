//! Output of a node's tools, made by hand for the tests of rules.

use ringleader_model::{
    BenchDevice, BenchFigure, BenchRow, BenchRun, Cite, CopyTest, Environment, EnvironmentForm, Fact,
    Interface, NetFact, Pick, PickedProcess, Pid, PortCounters, ProcessRow, ProcessTable, Rank, RdmaPort,
    Setting, SourceId, SourceKind, StallShape, SystemFact, WatchEvent, WatchedStall, Who,
};

use crate::staging::StagedCase;

/// A node by name; empty = the output does not name it.
fn on(host: &str) -> Who {
    Who { host: (!host.is_empty()).then(|| host.into()), ..Who::default() }
}

impl StagedCase {
    /// Two processes on two nodes whose log says that they use mlx5_0 and mlx5_1.
    pub fn two_verbs_nodes(self) -> Self {
        let devices = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>";
        self.process("node0", 10, Some(0))
            .about(|p| p.ib_devices = Some(devices.into()))
            .comm(0, 2, 1, true)
            .process("node1", 11, Some(1))
            .about(|p| p.ib_devices = Some(devices.into()))
            .comm(1, 2, 1, true)
    }

    /// A snapshot of `node0` in which ranks 0, 1, … (pids 100, 101, …) of two live, and have since this second: their
    /// states, as for `ps`. `change` may change what is known of each.
    pub fn seen(self, began_s: i64, states: &str, change: impl Fn(u32, &mut PickedProcess)) -> Self {
        let mut stage = self;
        let mut rows = Vec::new();
        for (rank, word) in (0..).zip(states.split_whitespace()) {
            let (state, wchan) = word.split_once(':').unwrap_or((word, ""));
            let mut picked = PickedProcess {
                is_of_job: true,
                started_ns: Some(began_s * 1_000_000_000),
                ..PickedProcess::default()
            };
            change(rank, &mut picked);
            let pid = Some(Pid(100 + rank));
            if picked.hidden.is_none() {
                let size =
                    Setting { cite: Cite::whole(SourceId(0)), name: "WORLD_SIZE".into(), value: "2".into() };
                let environment = Environment {
                    form: EnvironmentForm::Process,
                    settings: vec![size],
                    n_left_out: 0,
                    is_whole: true,
                };
                let who = Who { rank: Some(Rank(rank)), pid, ..on("node0") };
                stage = stage.push(SourceKind::NodeSnapshot, who, Fact::Environment(Box::new(environment)));
            }
            rows.push(ProcessRow {
                line: rank + 2,
                pid,
                state: state.into(),
                wchan: wchan.into(),
                command: "python train.py".into(),
                picked: Some(Box::new(picked)),
                ..ProcessRow::default()
            });
        }
        stage.picked(rows, Pick::default())
    }

    /// A snapshot's list of a job's processes.
    pub fn picked(self, rows: Vec<ProcessRow>, pick: Pick) -> Self {
        let table = ProcessTable { rows, pick: Some(pick), is_cut: false };
        self.push(SourceKind::NodeSnapshot, on("node0"), Fact::Processes(Box::new(table)))
    }

    /// A watcher's report that the job has stalled for this long, seconds.
    pub fn stalled(self, shape: &str, after_s: i64) -> Self {
        let stall = WatchedStall {
            since_ns: 1_000_000_000,
            after_ns: after_s * 1_000_000_000,
            expected_ns: 1_000_000_000,
            shape: if shape == "start" { StallShape::Start } else { StallShape::Other },
            text: "it stands still".into(),
            ..WatchedStall::default()
        };
        self.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Stall(Box::new(stall))))
    }

    /// A statement of the network's tools.
    pub fn net(self, host: &str, fact: NetFact) -> Self {
        self.push(SourceKind::Network, on(host), Fact::Net(Box::new(fact)))
    }

    /// A port: state, physical state, Gb/s.
    pub fn port(self, host: &str, device: &str, state: (&str, &str), rate_gbps: f64) -> Self {
        let port = RdmaPort {
            device: device.into(),
            port: 1,
            state: Some(state.0.into()),
            phys_state: Some(state.1.into()),
            rate_gbps: Some(rate_gbps),
            ..RdmaPort::default()
        };
        self.net(host, NetFact::Port(port))
    }

    /// One counter of a port at one moment.
    pub fn counted(self, host: &str, device: &str, name: &str, value: u64) -> Self {
        let counters = PortCounters {
            device: device.into(),
            port: 1,
            errors: vec![(3, name.into(), value)],
            ..PortCounters::default()
        };
        self.net(host, NetFact::Counters(counters))
    }

    /// An interface: state, largest packet, address.
    pub fn interface(self, host: &str, name: &str, state: &str, mtu: u32, address: &str) -> Self {
        let interface = Interface {
            name: name.into(),
            state: Some(state.into()),
            mtu: Some(mtu),
            addresses: if address.is_empty() { Vec::new() } else { vec![address.into()] },
            ..Interface::default()
        };
        self.net(host, NetFact::Interface(interface))
    }

    /// A statement of the node's tools.
    pub fn system(self, host: &str, fact: SystemFact) -> Self {
        self.push(SourceKind::System, on(host), Fact::System(Box::new(fact)))
    }

    /// A statement of a scheduler.
    pub fn scheduled(self, event: ringleader_model::SchedulerEvent) -> Self {
        self.push(SourceKind::Scheduler, Who::default(), Fact::System(Box::new(SystemFact::Scheduler(event))))
    }

    /// A run of nccl-tests: GPUs on a host, bus bandwidth of one size, wrong elements.
    pub fn bench(
        self,
        gpus: (&str, &str, u32),
        size_bytes: u64,
        busbw_gbs: f64,
        n_wrong: u64,
        settings: &[(&str, &str)],
    ) -> Self {
        let (host, name, n_gpus) = gpus;
        let figure = BenchFigure { time_us: 1.0, algbw_gbs: busbw_gbs, busbw_gbs, n_wrong: Some(n_wrong) };
        let device =
            |line| BenchDevice { line, host: Some(host.into()), name: name.into(), ..BenchDevice::default() };
        let run = BenchRun {
            collective: Some("all_reduce".into()),
            devices: (0..n_gpus).map(device).collect(),
            rows: vec![BenchRow { line: 20, size_bytes, out_of_place: Some(figure), in_place: None }],
            settings: settings.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
            out_of_bounds: Some((30, n_wrong)),
            ..BenchRun::default()
        };
        self.push(SourceKind::NcclTests, Who::default(), Fact::Bench(Box::new(run)))
    }

    /// A copy from GPU 0 to GPU 1.
    pub fn copied(self, is_right: bool) -> Self {
        let test = CopyTest { from: Some(0), to: Some(1), is_right, compared: "torch.equal(a, b)".into() };
        self.push(SourceKind::CopyTest, Who::default(), Fact::Copy(Box::new(test)))
    }
}
