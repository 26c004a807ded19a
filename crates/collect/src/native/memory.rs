//! Memory of another process, read while it runs on: `/proc/PID/mem`, for which the kernel asks the same as for ptrace.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Memory of one process. It stays that process's, even if its number is given to another.
pub(super) struct Memory {
    file: File,
}

impl Memory {
    /// # Errors
    /// If there is no such process, or it may not be looked into.
    pub(super) fn open(of: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(of.join("mem"))? })
    }

    /// As many bytes as can be read from there on; none at an address that is not mapped.
    pub(super) fn some(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut n = 0;
        while let Some(rest) = buffer.get_mut(n..).filter(|rest| !rest.is_empty()) {
            // An offset beyond what the kernel takes is an address that nothing is at.
            match self.file.read_at(rest, address.wrapping_add(n as u64)) {
                Ok(0) => break,
                Ok(read) => n += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        n
    }

    pub(super) fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.some(address, &mut bytes) == N).then_some(bytes)
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&self, address: u64, n: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; n];
        (self.some(address, &mut bytes) == n).then_some(bytes)
    }
}

/// Numbers of an ELF structure, which is little-endian on the machines that are known here.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(i32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}
