//! What was found in one kernel log, and what is still open in it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use ringleader_model::{
    Cite, Fact, Host, KernelCoverage, KernelEvent, KernelEventKind, NoteKind, PciAddress, WallTime, Who,
};

use super::clock::Clock;
use super::{memory, network, nvidia, pcie, process, system};
use crate::sink::Sink;

/// Bytes of a message that are looked at.
const MAX_TEXT: usize = 4 << 10;
/// Statements of one sort about one device that are kept where they come in floods.
const MAX_ALIKE: u32 = 200;
/// Lines after which a statement of several lines is over.
pub(super) const MAX_GAP: u32 = 64;

/// Who knows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Nvidia,
    Pcie,
    Memory,
    Process,
    Network,
    System,
}

/// Texts without which a line says nothing here.
const WORDS: [(&str, Family); 56] = [
    ("NVRM: ", Family::Nvidia),
    ("SXid (", Family::Nvidia),
    ("AER: ", Family::Pcie),
    ("PCIe Bus Error", Family::Pcie),
    ("DPC: ", Family::Pcie),
    ("pciehp", Family::Pcie),
    ("[Hardware Error]", Family::Pcie),
    ("DMAR: ", Family::Pcie),
    ("AMD-Vi: ", Family::Pcie),
    ("arm-smmu", Family::Pcie),
    ("oom-kill:", Family::Memory),
    ("oom-killer", Family::Memory),
    ("Killed process", Family::Memory),
    ("Kill process ", Family::Memory),
    ("EDAC ", Family::Memory),
    ("Memory failure: ", Family::Memory),
    ("Machine Check", Family::Memory),
    ("hardware memory error", Family::Memory),
    ("segfault at ", Family::Process),
    ("traps: ", Family::Process),
    ("general protection", Family::Process),
    ("blocked for more than", Family::Process),
    ("soft lockup", Family::Process),
    ("hard LOCKUP", Family::Process),
    ("mlx5", Family::Network),
    ("bnxt_en", Family::Network),
    ("efa ", Family::Network),
    ("infiniband ", Family::Network),
    ("ink is ", Family::Network),
    (": Link ", Family::Network),
    (": link ", Family::Network),
    ("ink becomes ready", Family::Network),
    ("ink status ", Family::Network),
    ("NETDEV WATCHDOG", Family::Network),
    ("without any active interface", Family::Network),
    ("the new active one", Family::Network),
    ("entered disabled state", Family::Network),
    ("entered forwarding state", Family::Network),
    ("left promiscuous mode", Family::Network),
    ("Port module event", Family::Network),
    ("I/O error", Family::System),
    ("read-only", Family::System),
    ("hutting down filesystem", Family::System),
    ("controller is down", Family::System),
    ("not responding", Family::System),
    ("Lustre: ", Family::System),
    ("LustreError", Family::System),
    ("file-max limit", Family::System),
    ("Kernel panic", Family::System),
    ("BUG: unable to handle", Family::System),
    ("Oops: ", Family::System),
    ("clock throttled", Family::System),
    ("Linux version ", Family::System),
    ("setting system clock to", Family::System),
    ("audit: type=2000 audit(", Family::System),
    ("fatal machine check", Family::System),
];

static SEARCH: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(WORDS.iter().map(|(word, _)| *word)).ok());

/// One line, its prefix read.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) uptime_us: Option<u64>,
    pub(super) at: Option<WallTime>,
    pub(super) host: Option<&'a Host>,
    pub(super) raw: &'a [u8],
    pub(super) text: &'a [u8],
    pub(super) is_kernel: bool,
    pub(super) is_cut: bool,
}

/// Something found, kept to the end: what comes later may add to it.
#[derive(Debug)]
struct Held {
    line: u32,
    start: u64,
    end: u64,
    at: Option<WallTime>,
    host: Option<Host>,
    event: KernelEvent,
    text: Vec<u8>,
}

/// What a message says.
pub(super) struct Said {
    pub(super) device: Option<PciAddress>,
    pub(super) kind: KernelEventKind,
}

/// One kernel log.
#[derive(Default)]
pub(super) struct Log {
    held: Vec<Held>,
    pub(super) clock: Clock,
    pub(super) nvidia: nvidia::Open,
    pub(super) pcie: pcie::Open,
    pub(super) memory: memory::Open,
    /// Statements per sort and device where floods are usual.
    n_alike: BTreeMap<(&'static str, Option<PciAddress>), u32>,
    n_dropped: u64,
    n_lines: u64,
    first: Option<(u32, u64)>,
    end: u64,
    first_at: Option<WallTime>,
    last_at: Option<WallTime>,
    boot: u32,
    /// First and last uptime of the last boot.
    span_us: Option<(u64, u64)>,
    last_host: Option<Host>,
    /// The last line with a stamp, and the stamp: lines below it without one go with it.
    stamped: Option<(u32, Option<u64>, Option<WallTime>)>,
}

impl Log {
    /// Whether a line without any mark of the kernel's may be its own.
    pub(super) fn is_of_interest(text: &[u8]) -> bool {
        SEARCH.as_ref().is_some_and(|search| search.is_match(text))
    }

    /// Whether the next line may belong to a statement of several lines.
    pub(super) fn waits(&self, line: u32) -> bool {
        self.pcie.waits(line)
    }

    /// Takes a line (true) or leaves it.
    pub(super) fn take(&mut self, record: &Record<'_>, max_held: usize) -> bool {
        let mut record = *record;
        if record.uptime_us.is_some() || record.at.is_some() {
            self.stamped = Some((record.line, record.uptime_us, record.at));
        } else if let Some((line, uptime_us, at)) = self.stamped
            && record.line.saturating_sub(line) <= 4
        {
            (record.uptime_us, record.at) = (uptime_us, at);
        }
        let record = &record;
        if record.is_kernel {
            self.cover(record);
        }
        let interesting = self.waits(record.line) || Self::is_of_interest(record.text);
        if !interesting {
            return record.is_kernel;
        }
        let bytes = record.text.get(..MAX_TEXT).unwrap_or(record.text);
        let text = String::from_utf8_lossy(bytes);
        let mut text = text.trim();
        if record.is_cut {
            text = without_cut_pid(text);
        }
        let taken = self.dispatch(text, record, max_held);
        if taken && !record.is_kernel {
            self.cover(record);
        }
        taken || record.is_kernel
    }

    fn dispatch(&mut self, text: &str, record: &Record<'_>, max_held: usize) -> bool {
        if pcie::go_on(self, text, record) {
            return true;
        }
        let Some(search) = SEARCH.as_ref() else { return false };
        let mut tried: Vec<Family> = Vec::new();
        for found in search.find_iter(text) {
            let Some((_, family)) = WORDS.get(found.pattern().as_usize()) else { continue };
            if tried.contains(family) {
                continue;
            }
            tried.push(*family);
            let said = match family {
                Family::Nvidia => nvidia::read(self, text, record),
                Family::Pcie => pcie::read(self, text, record),
                Family::Memory => memory::read(self, text, record),
                Family::Process => process::read(text),
                Family::Network => network::read(text),
                Family::System => system::read(self, text, record),
            };
            match said {
                Told::Event(said) => {
                    if record.is_kernel || is_sure(&said.kind) {
                        self.push(record, *said, max_held);
                        return true;
                    }
                }
                Told::Part => return true,
                Told::Nothing => {}
            }
        }
        false
    }

    fn cover(&mut self, record: &Record<'_>) {
        self.n_lines += 1;
        self.first.get_or_insert((record.line, record.start));
        self.end = record.end;
        let boot = self.clock.line(record.uptime_us, record.at);
        if boot != self.boot {
            self.boot = boot;
            self.span_us = None;
        }
        if let Some(us) = record.uptime_us {
            let (first, last) = self.span_us.unwrap_or((us, us));
            self.span_us = Some((first, last.max(us)));
        }
        if record.at.is_some() {
            self.first_at = self.first_at.or(record.at);
            self.last_at = record.at;
        }
        if let Some(host) = record.host
            && self.last_host.as_ref() != Some(host)
        {
            self.last_host = Some(host.clone());
        }
    }

    fn push(&mut self, record: &Record<'_>, said: Said, max_held: usize) {
        if let Some(sort) = floods(&said.kind) {
            let n = self.n_alike.entry((sort, said.device)).or_insert(0);
            *n = n.saturating_add(1);
            if *n > MAX_ALIKE {
                self.n_dropped += 1;
                return;
            }
        }
        // One more than the sink takes, so that it says what was left out.
        if self.held.len() > max_held {
            return;
        }
        let event = KernelEvent {
            uptime_us: record.uptime_us,
            boot: self.boot,
            device: said.device,
            kind: said.kind,
        };
        self.held.push(Held {
            line: record.line,
            start: record.start,
            end: record.end,
            at: record.at,
            host: record.host.cloned(),
            event,
            text: record.raw.get(..MAX_TEXT).unwrap_or(record.raw).to_vec(),
        });
    }

    /// Whether there were lines before this one.
    pub(super) fn has_begun(&self) -> bool {
        self.n_lines > 1
    }

    /// Number of the statement that comes next.
    pub(super) fn next_index(&self) -> usize {
        self.held.len()
    }

    /// Adds a line to a statement that was made before.
    pub(super) fn amend(&mut self, index: usize, record: &Record<'_>) -> Option<&mut KernelEvent> {
        let held = self.held.get_mut(index)?;
        if held.text.len() < MAX_TEXT {
            held.text.push(b'\n');
            held.text.extend_from_slice(record.raw.get(..MAX_TEXT).unwrap_or(record.raw));
        }
        held.end = record.end;
        Some(&mut held.event)
    }

    /// A statement that was made before.
    pub(super) fn event(&self, index: usize) -> Option<&KernelEvent> {
        self.held.get(index).map(|h| &h.event)
    }

    /// Hands on what was found.
    pub(super) fn finish(mut self, sink: &mut Sink<'_>) {
        let Some((line, start)) = self.first else { return };
        if self.n_lines == 0 {
            return;
        }
        if self.held.is_empty() && self.span_us.is_none() && self.last_at.is_none() {
            return;
        }
        for mut held in std::mem::take(&mut self.held) {
            if let KernelEventKind::Xid(xid) = &mut held.event.kind {
                xid.uuid = xid.uuid.take().or_else(|| self.nvidia.uuid(held.event.device?));
            }
            let at = held.at.or_else(|| self.clock.wall(held.event.boot, held.event.uptime_us?));
            let cite = Cite { end: held.end, ..sink.cite(held.line, held.start, held.end) };
            let who = Who { host: held.host, ..Who::default() };
            sink.push(cite, who, at, Fact::Kernel(held.event.into()), &held.text);
        }
        let boot = self.clock.last_boot();
        let wall = |us: Option<u64>| us.and_then(|us| self.clock.wall(boot, us));
        let (first_us, last_us) = self.span_us.unzip();
        let coverage = KernelCoverage {
            first_us,
            last_us,
            first_at: self.first_at.or_else(|| wall(first_us)),
            last_at: self.last_at.or_else(|| wall(last_us)),
            booted_at: self.clock.booted(boot),
            n_lines: self.n_lines,
        };
        let at = coverage.last_at;
        let cite = sink.cite(line, start, self.end);
        if self.n_dropped > 0 {
            let text = format!("{} more statements of the same sort were left out", self.n_dropped);
            sink.note(cite, NoteKind::LimitReached, text);
        }
        let event = KernelEvent {
            uptime_us: last_us,
            boot,
            device: None,
            kind: KernelEventKind::Covers(coverage.into()),
        };
        let who = Who { host: self.last_host, ..Who::default() };
        sink.push(cite, who, at, Fact::Kernel(event.into()), b"");
    }
}

/// What a family says of a line.
pub(super) enum Told {
    /// A statement.
    Event(Box<Said>),
    /// It belongs to a statement made before or to come, or means nothing.
    Part,
    /// Not its line.
    Nothing,
}

impl Told {
    pub(super) fn event(device: Option<PciAddress>, kind: KernelEventKind) -> Self {
        Self::Event(Box::new(Said { device, kind }))
    }
}

/// A process id at the end of a line that was cut may lack digits.
fn without_cut_pid(text: &str) -> &str {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    match text.get(..text.len() - digits) {
        Some(head) if digits > 0 && head.ends_with("pid=") => head,
        _ => text,
    }
}

/// Kinds whose text nobody else prints, so that a line counts without a stamp.
fn is_sure(kind: &KernelEventKind) -> bool {
    use KernelEventKind as Kind;
    match kind {
        Kind::Xid(_)
        | Kind::Sxid(_)
        | Kind::GpuLost
        | Kind::GpuInitFailed { .. }
        | Kind::GspSilent
        | Kind::DriverMismatch { .. }
        | Kind::PcieError(_)
        | Kind::IommuFault
        | Kind::MachineCheck { .. }
        | Kind::MemoryErrors { .. }
        | Kind::MemoryFailure { .. }
        | Kind::OomKill(_)
        | Kind::NicTrouble { .. }
        | Kind::HungTask { .. }
        | Kind::Lockup { .. }
        | Kind::FileLimit => true,
        Kind::Crash { what, .. } => &**what == "segfault",
        Kind::Link { medium, .. } => *medium != ringleader_model::LinkMedium::Ethernet,
        Kind::DriverAssertion
        | Kind::DriverLoaded { .. }
        | Kind::PcieLinkDown
        | Kind::Storage { .. }
        | Kind::Throttled
        | Kind::Panic
        | Kind::Covers(_) => false,
    }
}

/// Sorts that come in floods without telling more each time.
fn floods(kind: &KernelEventKind) -> Option<&'static str> {
    use KernelEventKind as Kind;
    match kind {
        Kind::PcieError(e) if e.severity == ringleader_model::PcieSeverity::Corrected => Some("pcie"),
        Kind::MemoryErrors { uncorrected: false, .. } => Some("memory"),
        Kind::MachineCheck { uncorrected: false } => Some("machine check"),
        Kind::DriverAssertion => Some("assertion"),
        Kind::Throttled => Some("throttled"),
        Kind::Link { .. } => Some("link"),
        Kind::NicTrouble { .. } => Some("card"),
        Kind::Storage { .. } => Some("storage"),
        Kind::IommuFault => Some("iommu"),
        Kind::Crash { .. } => Some("crash"),
        _ => None,
    }
}
