//! The kernel's log: dmesg, /dev/kmsg, journalctl -k, syslog, as Linux 3.10 to 7.x and their tools print it.
//!
//! ```text
//! [  146.791053] NVRM: Xid (PCI:0000:00:08): 31, pid=1456, name=python3, channel 0x0000000a, …      dmesg
//! [Thu Sep 10 08:08:46 2026] NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 14  dmesg -T
//! 6,1234,567890,-;pcieport 0000:00:03.0: AER: …                                                     /dev/kmsg
//! Nov 20 08:21:34 node7 kernel: Out of memory: Killed process 15784 (python3) total-vm:11964kB, …   syslog
//! ```
//!
//! Writers: `kernel/printk/printk.c` for the stamps, `mm/oom_kill.c`, `drivers/pci/pcie/aer.c`, `kernel/hung_task.c`,
//! `arch/x86/mm/fault.c` of Linux, `kernel_rc.c` of NVIDIA/open-gpu-kernel-modules, the drivers of network cards.
//! People trim what they paste, so the texts are searched for in the line, and a line with an unmistakable text counts
//! without any stamp. What a line says is kept, never weighed here; lines of boot and of healthy work give nothing.

mod clock;
mod fields;
mod json;
mod log;
mod memo;
mod memory;
mod network;
mod nvidia;
mod pcie;
mod prefix;
mod process;
mod quiet;
mod statements;
mod system;
#[cfg(test)]
mod tests;
mod words;

use ringleader_model::{Host, SourceKind};

pub(crate) use self::json::{is_journal, read_json};
use self::log::Log;
use self::statements::Record;
use crate::ground::{Line, LineReader, Sink, Wants};

/// Reader of kernel logs.
#[derive(Default)]
pub(crate) struct KernelReader {
    log: Log,
    stamps: prefix::Stamps,
    quiet: quiet::Stamps,
    /// Hosts seen, shared between lines.
    hosts: Vec<Host>,
    /// Host of the last quiet line that named one.
    last_speaker: Option<Host>,
    is_cut: bool,
}

/// Where in a text the first word begins that makes a line more than a quiet one of a kernel's log.
pub(crate) fn next_word(text: &[u8]) -> Option<usize> {
    words::next_of_any_reader(text)
}

/// Words of the kernel and its stamps.
pub(crate) const WANTS: Wants = Wants { words: words::all, begins: prefix::may_begin };

/// Whether a line begins like one of a kernel log, so that a label before it is a launcher's.
pub(crate) fn begins(line: &[u8]) -> bool {
    prefix::Stamps::default().read(line).is_kernel
}

impl LineReader for KernelReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if line.body.first() == Some(&b'{') && json::is_journal(line.body) {
            return self.journal_line(line, sink);
        }
        // `[1759749650.138900] [host:2207 :0]  ib_mlx5dv_md.c:1031 UCX  ERROR …`: seconds since 1970, not since the boot.
        if memchr::memmem::find(line.body, b" UCX  ").is_some() {
            return false;
        }
        let mut prefix = self.stamps.read(line.body);
        prefix.is_kernel |= prefix.says_kernel && line.tag.at.is_some();
        if !prefix.is_kernel && !self.log.waits(line.number) && !Log::is_of_interest(prefix.text) {
            return false;
        }
        let host = match prefix.host {
            Some(name) => Some(self.host(name)),
            None => line.tag.who.host.clone(),
        };
        let record = Record {
            line: line.number,
            start: line.offset,
            end: line.end(),
            uptime_us: prefix.uptime_us,
            at: prefix.at.or(line.tag.at),
            host: host.as_ref(),
            raw: line.raw,
            text: prefix.text,
            is_kernel: prefix.is_kernel,
            is_cut: self.is_cut,
        };
        let taken = self.log.take(&record, sink.limits.max_observations);
        if taken {
            sink.saw(SourceKind::KernelLog);
        }
        taken && !prefix::is_of_program(prefix.text)
    }

    fn awake_until(&self) -> u32 {
        self.log.waits_until()
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        std::mem::take(&mut self.log).finish(sink);
    }
}

impl KernelReader {
    /// Takes a line without any of the words that [`next_word`] knows, if it is surely the kernel's own and nothing but its
    /// stamp counts; false leaves it, as if it had not been shown. To be asked only after a line of the kernel's.
    #[inline]
    pub(crate) fn quiet(&mut self, line: &[u8], number: u32, start: u64) -> bool {
        let Some(stamp) = self.quiet.read(line).filter(|stamp| !prefix::is_of_program(stamp.text)) else {
            return false;
        };
        let host = match stamp.speaker {
            quiet::Speaker::Nobody => None,
            quiet::Speaker::Last => self.last_speaker.as_ref(),
            quiet::Speaker::Other(name) => {
                self.last_speaker = Some(self.host(name));
                self.last_speaker.as_ref()
            }
        };
        self.log.pass(&Record {
            line: number,
            start,
            end: start + line.len() as u64,
            uptime_us: stamp.uptime_us,
            at: stamp.at,
            host,
            raw: line,
            text: stamp.text,
            is_kernel: true,
            is_cut: false,
        })
    }

    /// The name up to its first dot.
    fn host(&mut self, name: &[u8]) -> Host {
        let short = name.split(|b| *b == b'.').next().unwrap_or(name);
        if let Some(known) = self.hosts.iter().find(|h| h.as_bytes() == short) {
            return known.clone();
        }
        let host = Host::from(String::from_utf8_lossy(short));
        if self.hosts.len() < 4096 {
            self.hosts.push(host.clone());
        }
        host
    }

    /// One object of `journalctl -o json`.
    fn journal_line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(entry) = json::journal(line.body) else { return false };
        let host = entry.host.as_deref().map(|name| self.host(name.as_bytes())).or(line.tag.who.host.clone());
        let record = Record {
            line: line.number,
            start: line.offset,
            end: line.end(),
            uptime_us: entry.uptime_us,
            at: entry.at,
            host: host.as_ref(),
            raw: entry.text.as_bytes(),
            text: entry.text.as_bytes(),
            is_kernel: true,
            is_cut: false,
        };
        let taken = self.log.take(&record, sink.limits.max_observations);
        if taken {
            sink.saw(SourceKind::KernelLog);
        }
        taken
    }
}
