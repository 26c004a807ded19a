//! Cases made by hand, for the tests of this crate and of the rules (feature `staging`).

pub mod gpus;
pub mod jobs;
pub mod kernel;
pub mod node;
pub mod rings;

use ringleader_model::{
    Case, Cite, Environment, EnvironmentForm, Fact, Fingerprint, FlightGroup, Frame, GlooEvent, GroupRank,
    Limit, LimitKind, Named, NcclComm, NcclLink, NcclLog, NcclMessage, NcclProcess, NcclSetting,
    NcclTransport, Observation, PciAddress, Pid, PythonException, Rank, Said, SaidForm, Setting, Source,
    SourceId, SourceKind, StoreEvent, TorchEvent, WallTime, Who,
};

/// In how many samples a main thread stood where: `(file, line, function)`, innermost first.
pub type SampledAt<'a> = (u32, &'a [(&'a str, u32, &'a str)]);

/// A case in the making.
#[derive(Default)]
#[must_use]
pub struct StagedCase {
    /// The case so far.
    pub case: Case,
    n_cites: u32,
    /// Process groups of the job; each rank's dump lists those it is a member of.
    pub groups: Vec<FlightGroup>,
    /// Added to every time stamp, ns.
    pub shift_ns: i64,
}

impl StagedCase {
    /// An empty case.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source of this kind.
    pub fn source(&mut self, kind: SourceKind) -> SourceId {
        let id = SourceId(self.case.sources.len() as u32);
        let path = format!("file{}", id.0);
        self.case.sources.push(Source { path, kinds: vec![kind], size_bytes: 1000 });
        id
    }

    /// The next place in a source.
    pub fn cite(&mut self, source: SourceId) -> Cite {
        self.n_cites += 1;
        let at = u64::from(self.n_cites) * 100;
        Cite { source, line: self.n_cites, start: at, end: at + 99 }
    }

    fn torch_source(&mut self) -> SourceId {
        match self.case.observations.iter().find(|o| matches!(o.fact, Fact::Torch(_))) {
            Some(o) => o.cite.source,
            None => self.source(SourceKind::TorchLog),
        }
    }

    /// A statement of torch, Python or a launcher.
    pub fn torch(mut self, rank: Option<u32>, event: TorchEvent, text: &str) -> Self {
        let source = self.torch_source();
        let cite = self.cite(source);
        let who = rank.map(Who::rank).unwrap_or_default();
        let at = None;
        self.case.observations.push(Observation {
            cite,
            who,
            at,
            fact: Fact::Torch(event),
            text: text.into(),
        });
        self
    }

    /// Gives the last observation a time, seconds.
    pub fn at_s(mut self, s: i64) -> Self {
        let time = WallTime { ns: s * 1_000_000_000, error_ns: 0, has_year: true };
        if let Some(last) = self.case.observations.last_mut() {
            last.at = Some(time);
            if let Fact::Nccl(log) = &mut last.fact
                && let Some(message) = log.messages.last_mut()
            {
                message.at = Some(time);
            }
        }
        self
    }

    /// An exception; `frames` are `(file, line, function)`, innermost first.
    pub fn raised(self, rank: Option<u32>, class: &str, message: &str, frames: &[(&str, u32, &str)]) -> Self {
        let frames = frames
            .iter()
            .map(|(file, line, function)| Frame {
                function: (*function).into(),
                file: (*file).into(),
                line: *line,
            })
            .collect();
        let exception = PythonException {
            class: class.into(),
            message: message.into(),
            frames,
            ..PythonException::default()
        };
        let text = format!("{class}: {message}");
        self.torch(rank, TorchEvent::Exception(Box::new(exception)), &text)
    }

    /// A `DistBackendError` that quotes NCCL's last error.
    pub fn nccl_raised(self, rank: Option<u32>, last_error: &str) -> Self {
        let exception = PythonException {
            class: "torch.distributed.DistBackendError".into(),
            message: format!(
                "NCCL error in: NCCLUtils.cpp:93, NCCL version 2.28.9\nLast error:\n{last_error}"
            )
            .into(),
            nccl_last_error: Some(last_error.into()),
            ..PythonException::default()
        };
        self.torch(rank, TorchEvent::Exception(Box::new(exception)), last_error)
    }

    /// An error line that no reader claimed.
    pub fn error_line(self, rank: Option<u32>, text: &str) -> Self {
        self.torch(rank, TorchEvent::ErrorLine { text: text.into() }, text)
    }

    /// A store event.
    pub fn store(self, rank: Option<u32>, event: StoreEvent, text: &str) -> Self {
        self.torch(rank, TorchEvent::Store(event), text)
    }

    /// A gloo event.
    pub fn gloo(self, rank: Option<u32>, event: GlooEvent, text: &str) -> Self {
        self.torch(rank, TorchEvent::Gloo(event), text)
    }

    /// Two fingerprints that differ: (rank, op, shape, types) each.
    pub fn fingerprints(self, mine: (u32, &str, &str, &str), theirs: (u32, &str, &str, &str)) -> Self {
        let print = |(rank, op, shape, dtypes): (u32, &str, &str, &str)| {
            Box::new(Fingerprint {
                rank: Some(Rank(rank)),
                seq: Some(7),
                op_type: op.into(),
                shape: shape.into(),
                dtypes: dtypes.into(),
            })
        };
        let event = TorchEvent::FingerprintMismatch { mine: print(mine), theirs: print(theirs) };
        self.torch(Some(mine.0), event, "Detected mismatch between collectives on ranks.")
    }

    /// A process with a log of its own; what follows belongs to it.
    pub fn process(mut self, host: &str, pid: u32, rank: Option<u32>) -> Self {
        let source = self.source(SourceKind::NcclLog);
        let cite = self.cite(source);
        let who =
            Who { rank: rank.map(Rank), local_rank: None, host: Some(host.into()), pid: Some(Pid(pid)) };
        let process =
            NcclProcess { who: who.clone(), first: Some(cite), last: Some(cite), ..NcclProcess::default() };
        let log = NcclLog { processes: vec![process], n_lines: 1, ..NcclLog::default() };
        self.case.observations.push(Observation {
            cite: Cite::whole(source),
            who,
            at: None,
            fact: Fact::Nccl(Box::new(log)),
            text: "".into(),
        });
        self
    }

    fn with_log(mut self, change: impl FnOnce(&mut NcclLog, Cite)) -> Self {
        if !self.case.observations.iter().any(|o| matches!(o.fact, Fact::Nccl(_))) {
            self = self.process("node0", 1, None);
        }
        let source = self
            .case
            .observations
            .iter()
            .rev()
            .find(|o| matches!(o.fact, Fact::Nccl(_)))
            .map(|o| o.cite.source);
        let cite = self.cite(source.unwrap_or(SourceId(0)));
        for observation in self.case.observations.iter_mut().rev() {
            if let Fact::Nccl(log) = &mut observation.fact {
                change(log, cite);
                break;
            }
        }
        self
    }

    fn message(self, is_warn: bool, origin: &str, text: &str) -> Self {
        self.with_log(|log, cite| {
            log.messages.push(NcclMessage {
                cite,
                process: 0,
                at: None,
                cuda_dev: None,
                is_warn,
                origin: (!origin.is_empty()).then(|| origin.into()),
                text: text.into(),
                result: None,
            });
        })
    }

    /// A WARN of the process; `origin` is `init.cc:904`, or empty.
    pub fn warn(self, origin: &str, text: &str) -> Self {
        self.message(true, origin, text)
    }

    /// An INFO that reports a failure.
    pub fn info(self, text: &str) -> Self {
        self.message(false, "", text)
    }

    /// A variable the process read.
    pub fn setting(self, name: &str, value: &str) -> Self {
        self.with_log(|log, cite| {
            log.settings.push(NcclSetting { cite, process: 0, name: name.into(), value: value.into() });
        })
    }

    /// Changes the process itself.
    pub fn about(self, change: impl FnOnce(&mut NcclProcess)) -> Self {
        self.with_log(|log, _| {
            if let Some(process) = log.processes.last_mut() {
                change(process);
            }
        })
    }

    /// A communicator that became ready (or not).
    pub fn comm(self, rank: u32, n_ranks: u32, bus: u8, ready: bool) -> Self {
        self.with_log(|log, cite| {
            log.comms.push(NcclComm {
                process: 0,
                ptr: 0x1000,
                rank: GroupRank(rank),
                n_ranks,
                cuda_dev: Some(0),
                nvml_dev: Some(0),
                gpu: Some(PciAddress { domain: 0, bus, device: 0, function: 0 }),
                comm_id: Some(0xc0de),
                parent: None,
                color: None,
                api: None,
                started: Some(cite),
                completed: ready.then_some(cite),
                destroyed: None,
                aborted: None,
                at: None,
            });
        })
    }

    /// Channels of the process.
    pub fn link(self, from: u32, to: u32, transport: &str) -> Self {
        self.with_log(|log, cite| {
            log.links.push(NcclLink {
                cite,
                process: 0,
                from: GroupRank(from),
                to: GroupRank(to),
                transport: transport.into(),
                over: NcclTransport::parse(transport),
                is_send: None,
                n_channels: 2,
            });
        })
    }

    /// A limit.
    pub fn limit(mut self, kind: LimitKind, soft: Option<u64>, hard: Option<u64>) -> Self {
        let source = self.source(SourceKind::Limits);
        let cite = self.cite(source);
        let fact = Fact::Limits(vec![Limit { line: 2, kind, soft, hard }]);
        self.case.observations.push(Observation {
            cite,
            who: Who::default(),
            at: None,
            fact,
            text: "".into(),
        });
        self
    }

    /// Variables that a rank has.
    pub fn listing(mut self, rank: Option<u32>, settings: &[(&str, &str)]) -> Self {
        let source = self.source(SourceKind::Environment);
        let settings = settings
            .iter()
            .map(|(name, value)| Setting {
                cite: self.cite(source),
                name: (*name).into(),
                value: (*value).into(),
            })
            .collect();
        let form = EnvironmentForm::Process;
        let fact = Fact::Environment(Box::new(Environment { form, settings, n_left_out: 9, is_whole: true }));
        let cite = self.cite(source);
        let who = rank.map(Who::rank).unwrap_or_default();
        self.case.observations.push(Observation { cite, who, at: None, fact, text: "".into() });
        self
    }

    /// An error statement of a log, with the rows of the table that match it.
    pub fn says(self, who: Who, text: &str) -> Self {
        let mut rows = Vec::new();
        ringleader_knowledge::message::classify(text, &mut rows);
        let said = Said {
            template: ringleader_knowledge::form::template(text).into(),
            count: 1,
            last: Cite { source: SourceId(0), line: 1, start: 0, end: 1 },
            last_at: None,
            form: SaidForm::default(),
            named: Named::default(),
            rows: rows.iter().map(|m| m.row.id()).collect(),
            is_read: false,
        };
        self.push(SourceKind::PlainText, who, Fact::Said(Box::new(said)))
    }

    /// Adds an observation with a source of its own.
    pub fn push(mut self, kind: SourceKind, who: Who, fact: Fact) -> Self {
        let source = self.source(kind);
        let cite = self.cite(source);
        self.case.observations.push(Observation { cite, who, at: None, fact, text: "".into() });
        self
    }
}
