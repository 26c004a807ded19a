//! Kernel, memory, PCI, file systems.

use ringleader_model::{
    ListedFile, Listing, Memory, Mount as ModelMount, NoteKind, PciAddress, PciDevice, SystemFact, WallTime,
    Who,
};
use ringleader_node::{KernelLog, Mount, Pci, Shm, System};

use super::{MAX_ROWS, SnapshotReader};
use crate::ground::{Line, LineReader, Tag};

impl SnapshotReader<'_, '_, '_> {
    pub(super) fn system(&mut self, system: &System) {
        if system.memory_total > 0 {
            let cite = self.places.next_number("memory_total", system.memory_total, self.sink);
            let fact =
                Memory { total: system.memory_total, available: system.memory_available, shared: None };
            let text =
                format!("memory: {} MiB, {} MiB available", fact.total >> 20, system.memory_available >> 20);
            self.push_system(cite, SystemFact::Memory(fact), &text);
        }
        if !system.modules.is_empty() {
            let cite = self.places.of_part("system", self.sink);
            let names: Vec<Box<str>> =
                system.modules.keys().take(MAX_ROWS).map(|name| name.as_str().into()).collect();
            let text = format!("modules: {}", names.join(" "));
            self.push_system(cite, SystemFact::Modules(names), &text);
        }
        if system.has_kernel_pids {
            let cite = self.places.of_part("system", self.sink);
            self.push_system(cite, SystemFact::NodePids, "pids are the kernel's");
        }
    }

    pub(super) fn pci(&mut self, pci: &Pci) {
        let first = self.places.of_part("pci", self.sink);
        let mut devices = Vec::new();
        for device in pci.devices.iter().take(MAX_ROWS) {
            let line = self.places.next("address", &device.address, self.sink).line;
            let whole = |n: Option<u32>, speed: Option<f64>| n.zip(speed);
            devices.push(PciDevice {
                line,
                address: PciAddress::parse(&device.address),
                name: format!("{:04x}:{:04x}, class {:06x}", device.vendor, device.device, device.class)
                    .into(),
                acs: device
                    .acs
                    .as_ref()
                    .map(|bits| (line, bits.iter().take(64).map(|bit| bit.as_str().into()).collect())),
                link: whole(device.width, device.speed_gt_s).map(|(width, speed)| (line, width, speed)),
                link_max: whole(device.width_max, device.speed_max_gt_s),
                driver: device.driver.as_deref().map(Into::into),
            });
        }
        if !devices.is_empty() {
            let text = format!("{} PCI devices", devices.len());
            self.push_system(first, SystemFact::Pci(devices), &text);
        }
        if !pci.kernel_options.is_empty() {
            let cite = self.places.next("kernel_options", &pci.kernel_options, self.sink);
            let fact = SystemFact::KernelOptions(pci.kernel_options.as_str().into());
            self.push_system(cite, fact, &pci.kernel_options);
        }
    }

    /// Through the reader of kernel logs, each line with the node's name and the time that the boot gives it.
    pub(super) fn kernel_log<L: LineReader + Default>(&mut self, log: &KernelLog, system: Option<&System>) {
        if let Some(other) = &log.also_in {
            let cite = self.places.of_part("kernel_log", self.sink);
            let text = format!("the kernel log is in {other} too and is read there");
            self.sink.note(cite, NoteKind::Remark, text);
            return;
        }
        let boot_ns = system
            .filter(|system| system.uptime_s > 0.0 && self.at_ns > 0)
            .map(|system| self.at_ns.saturating_sub((system.uptime_s * 1e9) as i64));
        let mut reader = L::default();
        for text in &log.lines {
            let cite = self.places.next_text(text, self.sink);
            let since_us = text.split(',').nth(2).and_then(|word| word.parse::<i64>().ok());
            let at = boot_ns.zip(since_us).map(|(boot, since)| WallTime {
                ns: boot.saturating_add(since.saturating_mul(1_000)),
                // The boot is known by two clocks that were read one after the other, and one of them is kept in step.
                error_ns: 1_000_000_000,
                has_year: true,
            });
            let tag = Tag { who: Who { host: self.host.clone(), ..Who::default() }, at, ..Tag::default() };
            let line = Line {
                raw: text.as_bytes(),
                body: text.as_bytes(),
                tag: &tag,
                number: cite.line,
                offset: cite.start,
                size: cite.end - cite.start,
            };
            reader.line(&line, self.sink);
        }
        reader.finish(self.sink);
        if log.is_cut {
            let cite = self.places.of_part("kernel_log", self.sink);
            let text = "the kernel log does not reach back to the boot: older lines were overwritten";
            self.sink.note(cite, NoteKind::Remark, text.into());
        }
    }

    pub(super) fn shm(&mut self, shm: &Shm) {
        let cite = self.places.next_number("size", shm.size, self.sink);
        let fact = ModelMount {
            device: "tmpfs".into(),
            at: "/dev/shm".into(),
            size: shm.size,
            used: shm.size.saturating_sub(shm.available),
            available: shm.available,
            is_inodes: false,
        };
        let text = format!("/dev/shm: {} of {} MiB available", shm.available >> 20, shm.size >> 20);
        self.push_system(cite, SystemFact::Mount(fact), &text);
        // A segment that a live process holds is no leftover, and one whose holders could not be seen may be held.
        let mut files = Vec::new();
        let is_free = |s: &&ringleader_node::Segment| s.held_by.is_empty() && !s.is_held_unknown;
        for segment in shm.segments.iter().filter(is_free).take(MAX_ROWS) {
            let line = self.places.next("name", &segment.name, self.sink).line;
            files.push(ListedFile {
                line,
                mode: mode(segment.mode).into(),
                owner: segment.uid.to_string().into(),
                size: segment.allocated,
                when: age(self.at_ns, segment.modified_ns).into(),
                name: segment.name.as_str().into(),
            });
        }
        if !files.is_empty() {
            let text = format!("{} files in /dev/shm that no process has open", files.len());
            let listing = Listing { folder: Some("/dev/shm".into()), own: None, files };
            self.push_system(cite, SystemFact::Listing(listing), &text);
        }
    }

    pub(super) fn mounts(&mut self, mounts: &[Mount]) {
        for mount in mounts.iter().take(MAX_ROWS) {
            let cite = self.places.next("at", &mount.at, self.sink);
            if let Some(why) = &mount.failure {
                let users = mount.used_by.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                let users = if users.is_empty() { users } else { format!(" (used by pid {users})") };
                let text =
                    format!("{} ({} {}) did not answer{users}: {why}", mount.at, mount.kind, mount.device);
                self.sink.note(cite, NoteKind::Unreadable, text);
            }
            // The probe of shared memory says more of it.
            if mount.at == "/dev/shm" {
                continue;
            }
            let rows = [(mount.size, mount.available, false), (mount.inodes, mount.inodes_free, true)];
            for (size, available, is_inodes) in rows {
                let (Some(size), Some(available)) = (size, available) else { continue };
                let fact = ModelMount {
                    device: mount.device.as_str().into(),
                    at: mount.at.as_str().into(),
                    size,
                    used: size.saturating_sub(available),
                    available,
                    is_inodes,
                };
                let what = if is_inodes { "inodes" } else { "bytes" };
                let text = format!("{} ({}): {available} of {size} {what} available", mount.at, mount.kind);
                self.push_system(cite, SystemFact::Mount(fact), &text);
            }
        }
    }
}

/// `-rw-------`.
fn mode(bits: u32) -> String {
    let letters = "rwxrwxrwx".chars().enumerate();
    let shown = letters.map(|(at, letter)| if bits & (0o400 >> at) != 0 { letter } else { '-' });
    std::iter::once('-').chain(shown).collect()
}

/// How long ago, in words.
fn age(at_ns: i64, modified_ns: i64) -> String {
    let seconds = at_ns.saturating_sub(modified_ns).max(0) / 1_000_000_000;
    match seconds {
        ..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}
