//! The kernel's log since boot, from /dev/kmsg: one read is one record. Reading takes nothing from the log.
//!
//! Source: Documentation/ABI/testing/dev-kmsg of Linux.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use ringleader_node::KernelLog;

use crate::request::{ReadingError, Request};
use crate::sysfs::text;

/// Longest record that the kernel gives.
const RECORD: usize = 8192;
/// Text that is kept; the kernel's ring is smaller as a rule (log_buf_len of some MiB).
const MAX_BYTES: usize = 64 << 20;
/// A log that is written faster than it is read has no end.
const PATIENCE: Duration = Duration::from_millis(1_500);

pub(super) fn take(request: &Request) -> Result<KernelLog, ReadingError> {
    let path = request.roots.dev.join("kmsg");
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
    let mut file = file.map_err(|error| refused(&path, &error, request))?;
    let is_device = file.metadata().is_ok_and(|data| data.file_type().is_char_device());
    let mut log = KernelLog::default();
    if is_device {
        records(&mut file, &mut log).map_err(|error| refused(&path, &error, request))?;
    } else {
        let mut bytes = Vec::new();
        let read = file.take(MAX_BYTES as u64).read_to_end(&mut bytes);
        read.map_err(|error| refused(&path, &error, request))?;
        String::from_utf8_lossy(&bytes).lines().for_each(|line| push(line, &mut log));
    }
    // The first record of a boot has number 0: without it the ring has been overwritten.
    let first = log.lines.first().and_then(|line| line.split(',').nth(1)?.parse::<u64>().ok());
    log.is_cut |= first.is_some_and(|number| number > 0);
    Ok(log)
}

fn records(file: &mut File, log: &mut KernelLog) -> std::io::Result<()> {
    let (started, mut n_bytes) = (Instant::now(), 0);
    let mut buffer = [0; RECORD];
    while n_bytes < MAX_BYTES && started.elapsed() < PATIENCE {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                n_bytes += n;
                push(&String::from_utf8_lossy(buffer.get(..n).unwrap_or_default()), log);
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                ErrorKind::Interrupted => {}
                // The record was overwritten before it was read; the next read continues after the gap.
                ErrorKind::BrokenPipe => log.is_cut = true,
                // A record longer than the buffer cannot be had; the kernel makes none.
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// The record without the lines below it, which name the device for programs (` SUBSYSTEM=pci`).
fn push(record: &str, log: &mut KernelLog) {
    let line = record.lines().next().unwrap_or_default();
    if !line.is_empty() && !line.starts_with(' ') {
        log.lines.push(line.to_owned());
    }
}

fn refused(path: &Path, error: &std::io::Error, request: &Request) -> ReadingError {
    match error.kind() {
        ErrorKind::NotFound => ReadingError::Absent(format!("{} is not there", path.display())),
        ErrorKind::PermissionDenied => {
            let restricted = text(&request.roots.proc.join("sys/kernel/dmesg_restrict"));
            let why = match restricted.as_deref() {
                Some("1") => "kernel.dmesg_restrict is 1",
                _ => "its mode or the container does not let this user read it",
            };
            ReadingError::Failed(format!(
                "{} is not readable: {why}; run as root, or `sysctl -w kernel.dmesg_restrict=0`",
                path.display()
            ))
        }
        _ => ReadingError::Failed(format!("read {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::request::Roots;

    fn taken(content: &str) -> KernelLog {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kmsg"), content).unwrap();
        take(&Request { roots: Roots::under(root.path()), ..Request::default() }).unwrap()
    }

    #[test]
    fn records_without_the_lines_for_programs() {
        let log =
            taken("6,0,0,-;Linux version 6.8\n4,1,22,-;NVRM: Xid (PCI:0000:1b:00): 79\n SUBSYSTEM=pci\n");
        assert_eq!(log.lines, ["6,0,0,-;Linux version 6.8", "4,1,22,-;NVRM: Xid (PCI:0000:1b:00): 79"]);
        assert!(!log.is_cut);
        assert!(taken("6,4711,99,-;later\n").is_cut);
    }

    #[test]
    fn no_log() {
        let root = tempfile::tempdir().unwrap();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        assert!(matches!(take(&request), Err(ReadingError::Absent(_))));
    }
}
