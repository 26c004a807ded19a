//! What was found in one kernel log, and what is still open in it.

use std::collections::BTreeMap;

use ringleader_model::{
    Cite, Fact, Host, KernelCoverage, KernelEvent, KernelEventKind, NoteKind, PciAddress, WallTime, Who,
};

use super::memo::Memo;
use super::statements::{FamilyAnswer, HeldEvent, KernelMessage, MAX_TEXT, Record, Statements};
use super::words::{self, KernelFamily};
use super::{memory, network, nvidia, pcie, process, system};
use crate::ground::{Sink, lossy};

/// Statements of one sort about one device that are kept where they come in floods.
const MAX_ALIKE: u32 = 200;

/// One kernel log.
#[derive(Default)]
pub(super) struct Log {
    made: Statements,
    nvidia: nvidia::OpenFault,
    pcie: pcie::OpenReport,
    memory: memory::OpenKill,
    pub(super) memo: Memo,
    /// Statements per sort and device where floods are usual.
    n_alike: BTreeMap<(Sort, Option<PciAddress>), u32>,
    n_dropped: u64,
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
        words::next(text).is_some()
    }

    /// Whether the next line may belong to a statement of several lines.
    pub(super) fn waits(&self, line: u32) -> bool {
        self.pcie.waits(line)
    }

    /// The last line that may belong to one; 0 if none may.
    pub(super) fn waits_until(&self) -> u32 {
        self.pcie.waits_until()
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
        let text = lossy(bytes);
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
        if pcie::go_on(&mut self.pcie, &mut self.made, text, record) {
            return true;
        }
        let place = Memo::place(text);
        let memo = std::mem::take(&mut self.memo);
        let known = memo.get(place, text).filter(|known| record.is_kernel || is_sure(&known.kind));
        if let Some(known) = known {
            if let Some(speaker) = known.opens {
                self.pcie.begin(&self.made, record, speaker);
            }
            self.push(record, known.device, floods(&known.kind), max_held, || known.kind.clone());
        }
        let was_known = known.is_some();
        self.memo = memo;
        if was_known {
            return true;
        }
        self.pcie.opened = None;
        let mut tried = 0_u32;
        for family in words::families(text) {
            let bit = 1 << family as u32;
            if tried & bit != 0 {
                continue;
            }
            tried |= bit;
            let said = match family {
                KernelFamily::Nvidia => nvidia::read(&mut self.nvidia, &mut self.made, text, record),
                KernelFamily::Pcie => pcie::read(&mut self.pcie, &mut self.made, text, record),
                KernelFamily::Memory => memory::read(&mut self.memory, &mut self.made, text, record),
                KernelFamily::Process => process::read(text),
                KernelFamily::Network => network::read(text),
                KernelFamily::System => system::read(&mut self.made, text, record),
            };
            match said {
                FamilyAnswer::Event(said) => {
                    if record.is_kernel || is_sure(&said.kind) {
                        let KernelMessage { device, kind } = *said;
                        let opens = self.pcie.opened.take();
                        self.memo.put(place, text, device, &kind, opens);
                        self.push(record, device, floods(&kind), max_held, || kind);
                        return true;
                    }
                }
                FamilyAnswer::Part => return true,
                FamilyAnswer::Nothing => {}
            }
        }
        false
    }

    /// Takes a line of the kernel's that contains none of the words; false if it may be part of a statement all the
    /// same.
    #[inline]
    pub(super) fn pass(&mut self, record: &Record<'_>) -> bool {
        if self.waits(record.line) && pcie::may_go_on(record.text) {
            return false;
        }
        self.stamped = Some((record.line, record.uptime_us, record.at));
        self.cover(record);
        true
    }

    #[inline]
    fn cover(&mut self, record: &Record<'_>) {
        self.made.n_lines += 1;
        self.first.get_or_insert((record.line, record.start));
        self.end = record.end;
        let boot = self.made.clock.line(record.uptime_us, record.at);
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

    fn push(
        &mut self,
        record: &Record<'_>,
        device: Option<PciAddress>,
        sort: Option<Sort>,
        max_held: usize,
        kind: impl FnOnce() -> KernelEventKind,
    ) {
        if let Some(sort) = sort {
            let n = self.n_alike.entry((sort, device)).or_insert(0);
            *n = n.saturating_add(1);
            if *n > MAX_ALIKE {
                self.n_dropped += 1;
                return;
            }
        }
        // One more than the sink takes, so that it says what was left out.
        if self.made.held.len() > max_held {
            return;
        }
        let event = KernelEvent { uptime_us: record.uptime_us, boot: self.boot, device, kind: kind() };
        self.made.held.push(HeldEvent {
            line: record.line,
            start: record.start,
            end: record.end,
            at: record.at,
            host: record.host.cloned(),
            event,
            text: record.raw.get(..MAX_TEXT).unwrap_or(record.raw).to_vec(),
        });
    }

    /// Hands on what was found.
    pub(super) fn finish(mut self, sink: &mut Sink<'_>) {
        let Some((line, start)) = self.first else { return };
        if self.made.n_lines == 0 {
            return;
        }
        if self.made.held.is_empty() && self.span_us.is_none() && self.last_at.is_none() {
            return;
        }
        for mut held in std::mem::take(&mut self.made.held) {
            if let KernelEventKind::Xid(xid) = &mut held.event.kind {
                xid.uuid = xid.uuid.take().or_else(|| self.nvidia.uuid(held.event.device?));
            }
            let at = held.at.or_else(|| self.made.clock.wall(held.event.boot, held.event.uptime_us?));
            let cite = Cite { end: held.end, ..sink.cite(held.line, held.start, held.end) };
            let who = Who { host: held.host, ..Who::default() };
            sink.push(cite, who, at, Fact::Kernel(held.event.into()), &held.text);
        }
        let boot = self.made.clock.last_boot();
        let wall = |us: Option<u64>| us.and_then(|us| self.made.clock.wall(boot, us));
        let (first_us, last_us) = self.span_us.unzip();
        let coverage = KernelCoverage {
            first_us,
            last_us,
            first_at: self.first_at.or_else(|| wall(first_us)),
            last_at: self.last_at.or_else(|| wall(last_us)),
            booted_at: self.made.clock.booted(boot),
            n_lines: self.made.n_lines,
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

/// A sort of statements, with the number and the process of those that have them.
type Sort = (&'static str, u16, u32);

/// Sorts that come in floods without telling more each time.
fn floods(kind: &KernelEventKind) -> Option<Sort> {
    use KernelEventKind as Kind;
    // Behind a flood of one number another one may say why.
    if let Kind::Xid(xid) = kind {
        return Some(("Xid", xid.code, xid.pid.map_or(0, |p| p.0)));
    }
    let name = match kind {
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
    };
    name.map(|name| (name, 0, 0))
}
