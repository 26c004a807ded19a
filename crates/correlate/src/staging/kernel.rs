//! Kernel logs made by hand for the tests of rules.

use ringleader_model::{
    Fact, KernelCoverage, KernelEvent, KernelEventKind, LinkMedium, LinkState, NcclLog, OomKill, PciAddress,
    PcieError, PcieSeverity, Pid, SourceKind, Sxid, WallTime, Who, Xid,
};

use crate::staging::StagedCase;

/// Seconds since 1970 at which the jobs of these tests begin.
pub const BEGAN_S: i64 = 1_795_162_000;

impl StagedCase {
    /// A statement of the kernel about a device (`0000:3b:00`, or empty).
    pub fn kernel(mut self, device: &str, kind: KernelEventKind) -> Self {
        let known = self.case.observations.iter().find(|o| matches!(o.fact, Fact::Kernel(_)));
        let source = match known {
            Some(o) => o.cite.source,
            None => self.source(SourceKind::KernelLog),
        };
        let n = self.case.observations.iter().filter(|o| matches!(o.fact, Fact::Kernel(_))).count() as u64;
        let cite = self.cite(source);
        let event = KernelEvent {
            uptime_us: Some(1_000_000_000 + n * 1_000),
            boot: 0,
            device: PciAddress::parse(device),
            kind,
        };
        let text = format!("[ 1000.00{n:04}] of {device}").into();
        self.case.observations.push(ringleader_model::Observation {
            cite,
            who: Who::default(),
            at: None,
            fact: Fact::Kernel(event.into()),
            text,
        });
        self
    }

    /// Gives the last statement of the kernel this many seconds of uptime.
    pub fn up_s(mut self, seconds: f64) -> Self {
        if let Some(Fact::Kernel(event)) = self.case.observations.last_mut().map(|o| &mut o.fact) {
            event.uptime_us = Some((seconds * 1e6) as u64);
        }
        self
    }

    /// Gives the last statement of the kernel a host.
    pub fn on(mut self, host: &str) -> Self {
        if let Some(last) = self.case.observations.last_mut() {
            last.who.host = Some(host.into());
        }
        self
    }

    /// An Xid; pid 0 = none.
    pub fn xid(self, device: &str, code: u16, pid: u32, body: &str) -> Self {
        let fatal = body.split_ascii_whitespace().find_map(|w| match w {
            "Fatal" => Some(true),
            "Nonfatal" => Some(false),
            _ => None,
        });
        let xid = Xid {
            code,
            pid: (pid > 0).then_some(Pid(pid)),
            body: body.into(),
            fatal: fatal.or_else(|| body.contains("fatal error").then_some(true)),
            link: body.contains("link").then_some(14),
            ..Xid::default()
        };
        self.kernel(device, KernelEventKind::Xid(xid.into()))
    }

    /// An SXid.
    pub fn sxid(self, code: u32, fatal: bool) -> Self {
        let sxid = Sxid {
            code,
            fatal: Some(fatal),
            link: Some(30),
            text: "LTSSM Fault Up".into(),
            ..Sxid::default()
        };
        self.kernel("0000:a9:00.0", KernelEventKind::Sxid(sxid.into()))
    }

    /// A PCIe error; `bits` are separated by blanks.
    pub fn pcie(self, device: &str, driver: &str, severity: PcieSeverity, bits: &str) -> Self {
        let error = PcieError {
            severity,
            driver: driver.into(),
            bits: bits.split_ascii_whitespace().map(Into::into).collect(),
            ..PcieError::default()
        };
        self.kernel(device, KernelEventKind::PcieError(error.into()))
    }

    /// A kill for lack of memory.
    pub fn oom(self, pid: u32, name: &str) -> Self {
        let kill = OomKill {
            pid: Some(Pid(pid)),
            name: name.into(),
            cgroup_limit: Some(true),
            anon_rss_kib: Some(64 << 20),
            ..OomKill::default()
        };
        self.kernel("", KernelEventKind::OomKill(kill.into()))
    }

    /// The last statement is of a log whose lines have no time of day.
    pub fn without_time(mut self) -> Self {
        if let Some(last) = self.case.observations.last_mut() {
            last.at = None;
        }
        self
    }

    /// A kernel log of `node0` whose last line is of this second.
    pub fn covers(self, last_s: i64) -> Self {
        let last_at = Some(WallTime { ns: last_s * 1_000_000_000, error_ns: 0, has_year: true });
        let covers = KernelCoverage { last_at, n_lines: 100, ..KernelCoverage::default() };
        self.kernel("", KernelEventKind::Covers(covers.into())).at_s(last_s).on("node0")
    }

    /// A link that is now `up`, `down` or `removed`.
    pub fn link_state(self, interface: &str, state: &str, infiniband: bool) -> Self {
        let state = match state {
            "up" => LinkState::Up,
            "down" => LinkState::Down,
            _ => LinkState::Removed,
        };
        let medium = if infiniband { LinkMedium::InfiniBand } else { LinkMedium::Ethernet };
        self.kernel(
            "",
            KernelEventKind::Link { interface: interface.into(), driver: "".into(), state, medium },
        )
    }

    /// A job of two processes, pids 100 and 101 on `node0`, GPUs 0000:1a:00 and 0000:3b:00, that begins at
    /// [`BEGAN_S`].
    pub fn two_ranks(self) -> Self {
        let stage = self.process("node0", 100, Some(0)).comm(0, 2, 0x1a, true);
        let stage = stage.process("node0", 101, Some(1)).comm(1, 2, 0x3b, true);
        stage.began_at(BEGAN_S)
    }

    /// Gives every communicator of the logs this time.
    fn began_at(mut self, seconds: i64) -> Self {
        let at = WallTime { ns: seconds * 1_000_000_000, error_ns: 0, has_year: true };
        for observation in &mut self.case.observations {
            if let Fact::Nccl(log) = &mut observation.fact {
                let log: &mut NcclLog = log;
                log.comms.iter_mut().for_each(|c| c.at = Some(at));
            }
        }
        self
    }
}
