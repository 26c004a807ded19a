//! The node and its scheduler: what system tools print, anywhere in a file.
//!
//! | tool | identified by |
//! |---|---|
//! | df | `Filesystem … Mounted on` |
//! | `ls -l` | `total 0`, lines that begin with a mode |
//! | cgroup files | a heading, a path before each line, or `cat …/memory.events` above; cpu.stat by its `nr_periods` |
//! | free, /proc/meminfo | `Mem:`, `MemTotal:` |
//! | lsmod, /proc/modules | `Module Size Used by`, `… Live 0x…` |
//! | `lspci -vvv` | `17:00.0 3D controller: …`, `LnkSta:`, `ACSCtl:` |
//! | /proc/cmdline | `BOOT_IMAGE=` |
//! | `numactl -H` | `available: 2 nodes` |
//! | pip, conda, rpm, dpkg, nvcc | `name==1.2`, their headings |
//! | systemctl | `● name.service`, `Active: …` |
//! | sacct, sinfo, slurmstepd | their headings; `*** STEP … CANCELLED …` |
//! | kubectl | `LAST SEEN TYPE REASON`, `NAME READY STATUS`, `Reason: OOMKilled` |
//!
//! Two of these say what is, and no cause is concluded from them alone. `free` after a failure shows what the dead have
//! given back, and during a hang what a page cache may still give up: kills and cgroups tell instead. `numactl -H` shows
//! the machine's nodes, not which one a rank is bound to.
//!
//! Sources: coreutils, procps-ng, kmod, pciutils, numactl, systemd, SchedMD/slurm src/sacct, src/slurmd/slurmstepd,
//! kubernetes/kubectl pkg/describe; Linux Documentation/admin-guide/cgroup-v2.rst.

mod files;
mod hardware;
mod json;
mod memory;
mod packages;
mod scheduler;

use std::sync::Arc;

use ringleader_model::{Fact, Host, PciDevice, SourceKind, SystemFact};

use crate::ground::{Line, LineReader, Sink, TableSpan, Wants, shell};

pub(crate) use json::read_json;

/// Longest line that can be ours.
const MAX_LINE: usize = 2_000;
/// Rows of one table that are kept.
const MAX_ROWS: usize = 10_000;

/// Headings of tables, lines that are complete by themselves, and commands above them.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "memory.",
            "nr_periods ",
            "Filesystem ",
            "MemTotal:",
            "Mem:",
            "Used by",
            " Live 0x",
            "ACSCtl:",
            "BOOT_IMAGE=",
            "iommu: Default",
            "DMAR: IOMMU",
            "available: ",
            "could not be found",
            ".service",
            "Node failure on ",
            "CANCELLED",
            "JobID",
            "JOBID",
            "jobid",
            "NODELIST",
            "NodeList",
            "nodelist",
            "LAST SEEN",
            "Cuda compilation tools",
            "packages in environment",
            ".x86_64",
            ".aarch64",
        ]
    },
    begins: |line| {
        let line = line.trim_ascii();
        let starts = [&b"#"[..], b"total ", b"low 0", b"NAME ", b"Name:", b"Package ", b"ii "];
        let has_blank = || memchr::memchr(b' ', line).is_some();
        starts.iter().any(|s| line.starts_with(s))
            || line.first() == Some(&b'/') && line.last() == Some(&b':') && !has_blank()
            || memchr::memmem::find(line, b"==").is_some() && !has_blank()
            || files::may_be_listed(line)
            || hardware::may_be_device(line)
            || shell::may_be_command(line)
    },
};

/// What system tools print.
#[derive(Default)]
pub(crate) struct SystemReader {
    open: Option<OpenTable>,
    /// The command or heading above.
    asked: Option<Box<str>>,
    /// Host of the prompt before it.
    host: Option<Host>,
    is_cut: bool,
}

/// A table or block of several lines.
struct OpenTable {
    table: SystemTable,
    span: TableSpan,
}

enum SystemTable {
    Df(files::Columns),
    Listing(ringleader_model::Listing),
    MemoryGroup(memory::OpenCgroup),
    CpuGroup(ringleader_model::CpuGroup),
    Memory(ringleader_model::Memory),
    Modules(Vec<Box<str>>),
    Pci(Vec<PciDevice>),
    Numa(Vec<(u32, u32, u64)>),
    Packages(packages::ListLayout, Vec<(Box<str>, Box<str>)>),
    Service(ringleader_model::Service),
    Accounting(scheduler::Columns),
    Pods(scheduler::Pods),
}

impl SystemTable {
    /// Lines of other things after which it is over.
    fn max_gap_lines(&self) -> u32 {
        match self {
            Self::MemoryGroup(_) => 80,
            Self::Pci(_) => 200,
            Self::Pods(_) => 120,
            Self::Service(_) => 6,
            _ => 2,
        }
    }
}

impl LineReader for SystemReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body.trim_ascii_end();
        let Some(&first) = body.trim_ascii_start().first() else { return false };
        if self.is_cut || body.len() > MAX_LINE {
            return false;
        }
        let is_over = |o: &OpenTable| {
            line.number > o.span.last_line.saturating_add(o.table.max_gap_lines()).saturating_add(1)
        };
        if self.open.as_ref().is_some_and(is_over) {
            self.close(sink);
        }
        if self.open.is_none() && !may_begin(first, body.trim_ascii_start()) {
            return false;
        }
        let Ok(text) = std::str::from_utf8(body) else { return false };
        if self.goes_on(text, line, sink) || self.begins(text.trim_start(), line, sink) {
            return true;
        }
        if let Some(command) = shell::command(text).or_else(|| heading(text)) {
            self.asked = Some(command.into());
            self.host = shell::host(text).map(Arc::from).or(self.host.take());
            if !self.open.as_ref().is_some_and(|o| matches!(o.table, SystemTable::MemoryGroup(_))) {
                self.close(sink);
            }
        }
        false
    }

    fn awake_until(&self) -> u32 {
        if self.open.is_some() { u32::MAX } else { 0 }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
    }
}

/// `/dev/shm:` as `ls` prints before a folder, `==> memory.max <==` as `head` does.
fn heading(text: &str) -> Option<&str> {
    text.strip_suffix(':').filter(|t| t.starts_with('/') && !t.contains(' '))
}

/// Whether a line that begins so is worth a closer look while nothing is open.
fn may_begin(first: u8, body: &[u8]) -> bool {
    let any = |starts: &[&str]| starts.iter().any(|s| body.starts_with(s.as_bytes()));
    let by_first = match first {
        b'0'..=b'9' | b'$' | b'#' | b'=' | b'+' | b'/' | b'-' | b'[' | b'*' => true,
        b'A' => any(&["ACSCtl:"]),
        b'B' => any(&["BOOT_IMAGE="]),
        b'C' => any(&["Cuda compilation tools"]),
        b'D' => any(&["DMAR:"]),
        b'F' => any(&["Filesystem "]),
        b'J' => any(&["JobID", "JOBID"]),
        b'L' => any(&["LAST SEEN"]),
        b'M' => any(&["Mem:", "MemTotal:", "Module "]),
        b'N' => any(&["NAME ", "Name:"]),
        b'P' => any(&["PARTITION ", "Package "]),
        b'U' => any(&["Unit "]),
        b'a' => any(&["available: "]),
        b'd' => any(&["drwx", "dr-x"]),
        b'i' => any(&["ii ", "iommu: "]),
        b'n' => any(&["nr_periods "]),
        b'l' => any(&["libnccl", "low "]),
        b's' => any(&["slurmstepd: ", "srun: ", "slurmd"]),
        b't' => any(&["total "]),
        0xe2 => true,
        _ => false,
    };
    let has = |word: &[u8]| memchr::memmem::find(body, word).is_some();
    by_first || has(b"==") || has(b" Live 0x") || has(b"@")
}

impl SystemReader {
    fn begins(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.memory_group(text, line, sink)
            || self.cpu_group(text, line, sink)
            || self.df(text, line, sink)
            || self.listing(text, line, sink)
            || self.memory(text, line, sink)
            || self.modules(text, line, sink)
            || self.pci(text, line, sink)
            || self.kernel_options(text, line, sink)
            || self.numa(text, line, sink)
            || self.service(text, line, sink)
            || self.scheduler(text, line, sink)
            || self.packages(text, line, sink)
    }

    fn goes_on(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(OpenTable { table, span }) = &mut self.open else { return false };
        let trimmed = text.trim_start();
        if matches!(table, SystemTable::Accounting(_) | SystemTable::Pods(_)) && scheduler::is_heading(text) {
            return false;
        }
        let taken = match table {
            SystemTable::Df(columns) => match files::mount(columns, trimmed) {
                Some(mount) => {
                    let mut row = TableSpan::begin(line, sink);
                    row.on(self.host.as_ref());
                    row.push(SourceKind::System, fact(SystemFact::Mount(mount)), sink);
                    true
                }
                None => false,
            },
            SystemTable::Listing(listing) => files::listed(listing, trimmed, line.number),
            SystemTable::MemoryGroup(group) => memory::goes_on(group, trimmed, line.number),
            SystemTable::CpuGroup(group) => memory::cpu_stat(group, trimmed, line.number),
            SystemTable::Memory(memory) => memory::meminfo(memory, trimmed),
            SystemTable::Modules(names) => hardware::module(names, trimmed),
            SystemTable::Pci(devices) => hardware::pci_field(devices, text, line.number),
            SystemTable::Numa(nodes) => hardware::numa_line(nodes, trimmed),
            SystemTable::Packages(form, list) => packages::goes_on(*form, list, trimmed),
            SystemTable::Service(service) => hardware::service_field(service, trimmed),
            SystemTable::Accounting(columns) => {
                if columns.widths(text) {
                    true
                } else if let Some(event) = columns.event(text) {
                    let mut row = TableSpan::begin(line, sink);
                    row.on(self.host.as_ref());
                    row.push(SourceKind::Scheduler, fact(SystemFact::Scheduler(event)), sink);
                    true
                } else {
                    columns.fits(text)
                }
            }
            SystemTable::Pods(pods) => {
                // In the order of the lines.
                let ended = if trimmed.starts_with("Events:") { pods.take_ended() } else { Vec::new() };
                for (event, mut row) in ended {
                    row.on(self.host.as_ref());
                    row.push(SourceKind::Scheduler, fact(SystemFact::Scheduler(event)), sink);
                }
                if let Some(event) = pods.event(text, line, sink) {
                    let mut row = TableSpan::begin(line, sink);
                    row.on(self.host.as_ref());
                    row.push(SourceKind::Scheduler, fact(SystemFact::Scheduler(event)), sink);
                    true
                } else {
                    pods.fits(trimmed)
                }
            }
        };
        if taken {
            span.add(line, sink);
        }
        taken
    }

    fn open(&mut self, table: SystemTable, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close(sink);
        let mut span = TableSpan::begin(line, sink);
        span.on(self.host.as_ref());
        self.open = Some(OpenTable { table, span });
    }

    /// A fact of one line.
    fn push(&mut self, kind: SourceKind, said: SystemFact, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close(sink);
        let mut span = TableSpan::begin(line, sink);
        span.on(self.host.as_ref());
        span.push(kind, fact(said), sink);
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        let Some(OpenTable { table, span }) = self.open.take() else { return };
        let said = match table {
            SystemTable::Df(_) | SystemTable::Accounting(_) => {
                // Their rows were pushed one by one.
                return;
            }
            SystemTable::Pods(mut pods) => {
                for (event, mut row) in pods.take_ended() {
                    row.on(self.host.as_ref());
                    row.push(SourceKind::Scheduler, fact(SystemFact::Scheduler(event)), sink);
                }
                return;
            }
            SystemTable::Listing(listing) => {
                if !files::is_of_interest(&listing) {
                    return;
                }
                SystemFact::Listing(listing)
            }
            SystemTable::MemoryGroup(group) => match group.done() {
                Some(group) => SystemFact::MemoryGroup(group),
                None => return,
            },
            SystemTable::CpuGroup(group) => SystemFact::CpuGroup(group),
            SystemTable::Memory(memory) => SystemFact::Memory(memory),
            SystemTable::Modules(mut names) => {
                names.sort_unstable();
                names.dedup();
                SystemFact::Modules(names)
            }
            SystemTable::Pci(devices) => {
                // A GPU counts by being there: the driver may not list it.
                let tells = |d: &PciDevice| d.acs.is_some() || d.link.is_some() || hardware::is_gpu(&d.name);
                let told: Vec<_> = devices.into_iter().filter(tells).collect();
                if told.is_empty() {
                    return;
                }
                SystemFact::Pci(told)
            }
            SystemTable::Numa(nodes) => SystemFact::Numa(nodes),
            SystemTable::Packages(form, list) => {
                // One line of the form may be anybody's.
                if list.is_empty() || (form == packages::ListLayout::Freeze && list.len() < 2) {
                    return;
                }
                SystemFact::Packages(list)
            }
            SystemTable::Service(service) => {
                if service.state.is_empty() {
                    return;
                }
                SystemFact::Service(service)
            }
        };
        span.push(SourceKind::System, fact(said), sink);
    }
}

fn fact(said: SystemFact) -> Fact {
    Fact::System(Box::new(said))
}

#[cfg(test)]
mod tests;
