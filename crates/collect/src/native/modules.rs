//! What is mapped where, and the unwind tables of it. Both are read from the process's own memory: `.eh_frame` is mapped
//! with the code, so that neither a container's files nor a hung file system are needed, and gigabytes of a library are
//! not touched.
//!
//! Not by `object` or `goblin`: what they read is a file, and this is the memory of another process, of which a few tables are wanted.

use super::memory::{Memory, i32_at, u16_at, u32_at, u64_at};

/// Rows of /proc/PID/maps that are looked at; a training job has some thousands.
const MAX_ROWS: usize = 262_144;
/// Program headers of a file: a dozen is usual.
const MAX_HEADERS: usize = 128;
const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Largest entry of a function, and of what functions have in common: they are some dozens of bytes.
const MAX_ENTRY: usize = 64 << 10;

/// A row of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq)]
struct Mapping {
    start: u64,
    end: u64,
    is_code: bool,
    offset: u64,
    /// Device and inode as printed; `00:00 0` of what is no file.
    file: String,
    path: String,
}

/// A file that is mapped.
#[derive(Clone, Debug)]
pub(super) struct Module {
    /// Path as /proc/PID/maps has it; `[vdso]`.
    pub(super) path: String,
    /// The mapping that holds its ELF header.
    pub(super) header: (u64, u64),
    /// Added to an address of the file to get that of the memory.
    pub(super) bias: u64,
    table: Option<EhFrameHeader>,
}

impl Module {
    /// Last part of its path.
    pub(super) fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// `.eh_frame_hdr`: pairs of function and entry, sorted.
#[derive(Clone, Copy, Debug)]
struct EhFrameHeader {
    at: u64,
    n: u64,
}

/// All that is mapped; modules as they are met.
pub(super) struct Modules {
    rows: Vec<Mapping>,
    met: Vec<Module>,
}

/// What is known of a function for unwinding: a section of its own with what is common first.
pub(super) struct UnwindEntry {
    /// Both entries; the second one names the first.
    pub(super) bytes: Vec<u8>,
    /// Where the second begins.
    pub(super) at: usize,
    /// Address that the first byte would have, had the section been of one piece.
    pub(super) base: u64,
}

impl Modules {
    pub(super) fn new(maps: &str) -> Self {
        let mut rows: Vec<Mapping> = maps.lines().take(MAX_ROWS).filter_map(Mapping::parse).collect();
        rows.sort_by_key(|row| row.start);
        Self { rows, met: Vec::new() }
    }

    fn row(&self, address: u64) -> Option<usize> {
        let at = self.rows.partition_point(|row| row.start <= address).checked_sub(1)?;
        (address < self.rows.get(at)?.end).then_some(at)
    }

    pub(super) fn is_code(&self, address: u64) -> bool {
        self.row(address).and_then(|at| self.rows.get(at)).is_some_and(|row| row.is_code)
    }

    pub(super) fn get(&self, index: usize) -> Option<&Module> {
        self.met.get(index)
    }

    /// The module of an address of code.
    pub(super) fn of(&mut self, address: u64, memory: &Memory) -> Option<usize> {
        let at = self.row(address)?;
        let row = self.rows.get(at).filter(|row| row.is_code && !row.path.is_empty())?;
        // The nearest mapping of the file's beginning before it: a file may be loaded twice.
        let header = self
            .rows
            .get(..=at)?
            .iter()
            .rev()
            .find(|other| other.offset == 0 && other.file == row.file && other.path == row.path)?;
        let header = (header.start, header.end);
        if let Some(index) = self.met.iter().position(|module| module.header == header) {
            return Some(index);
        }
        let module = Module::read(row.path.clone(), header, memory)?;
        self.met.push(module);
        Some(self.met.len() - 1)
    }

    /// The unwind entry of the function that an address is in.
    pub(super) fn entry(&self, module: usize, address: u64, memory: &Memory) -> Option<UnwindEntry> {
        let table = self.get(module)?.table?;
        // The last function that begins at the address or before.
        let pair = |n: u64| {
            let bytes: [u8; 8] = memory.array(table.at + 12 + n * 8)?;
            let relative = |at| Some(table.at.wrapping_add_signed(i64::from(i32_at(&bytes, at)?)));
            Some((relative(0)?, relative(4)?))
        };
        let (mut low, mut high) = (0, table.n);
        while low < high {
            let middle = low + (high - low) / 2;
            if pair(middle)?.0 <= address { low = middle + 1 } else { high = middle }
        }
        let (_, entry) = pair(low.checked_sub(1)?)?;
        let own = sized(entry, memory)?;
        let common_at = (entry + 4).checked_sub(u64::from(u32_at(&own, 4)?))?;
        let mut bytes = sized(common_at, memory)?;
        let at = bytes.len();
        bytes.extend(own);
        let back = u32::try_from(at + 4).ok()?;
        bytes.get_mut(at + 4..at + 8)?.copy_from_slice(&back.to_le_bytes());
        Some(UnwindEntry { at, base: entry.wrapping_sub(at as u64), bytes })
    }
}

/// An entry of `.eh_frame` with its length before it. The form for entries beyond 4 GiB is not read.
fn sized(at: u64, memory: &Memory) -> Option<Vec<u8>> {
    let n = u32::from_le_bytes(memory.array(at)?) as usize;
    if (8..MAX_ENTRY).contains(&n) { memory.bytes(at, n + 4) } else { None }
}

impl Mapping {
    /// `7f6b9aa00000-7f6b9aa26000 r-xp 00028000 fe:00 1234   /usr/lib/libc.so.6`
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let (rights, offset) = (words.next()?, words.next()?);
        let (device, inode) = (words.next()?, words.next()?);
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            is_code: rights.contains('x'),
            offset: number(offset)?,
            file: format!("{device} {inode}"),
            path: words.next().unwrap_or_default().trim_start().to_owned(),
        })
    }
}

impl Module {
    fn read(path: String, header: (u64, u64), memory: &Memory) -> Option<Self> {
        let start = header.0;
        let head: [u8; 64] = memory.array(start)?;
        // 64 bits, little-endian.
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (at, size, n) = (u64_at(&head, 32)?, u16_at(&head, 54)?, u16_at(&head, 56)?);
        let (size, n) = (usize::from(size).max(56), usize::from(n).min(MAX_HEADERS));
        let headers = memory.bytes(start.checked_add(at)?, size * n)?;
        let (mut bias, mut frames) = (None, None);
        for header in headers.chunks_exact(size) {
            let (kind, offset, address) = (u32_at(header, 0)?, u64_at(header, 8)?, u64_at(header, 16)?);
            match kind {
                // The one that holds the ELF header.
                PT_LOAD if offset == 0 => bias = Some(start.wrapping_sub(address)),
                PT_GNU_EH_FRAME => frames = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let table = frames.and_then(|address| EhFrameHeader::read(address.wrapping_add(bias), memory));
        Some(Self { path, header, bias, table })
    }
}

impl EhFrameHeader {
    /// The form that all linkers of Linux write: a table sorted by address, relative to itself (LSB, Exception Frames).
    fn read(at: u64, memory: &Memory) -> Option<Self> {
        let head: [u8; 12] = memory.array(at)?;
        let is_known = matches!(head, [1, _, 0x03, 0x3b, ..]);
        is_known.then(|| Some(Self { at, n: u64::from(u32_at(&head, 8)?) }))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_blanks_in_its_path_and_one_without_a_path() {
        let row = Mapping::parse(
            "7f6b9aa00000-7f6b9aa26000 r-xp 00028000 fe:00 1234                       /opt/a b/libc.so.6 (deleted)",
        );
        let row = row.unwrap();
        assert_eq!((row.start, row.end, row.offset), (0x7f6b_9aa0_0000, 0x7f6b_9aa2_6000, 0x28000));
        assert_eq!(
            (row.path.as_str(), row.file.as_str(), row.is_code),
            ("/opt/a b/libc.so.6 (deleted)", "fe:00 1234", true)
        );
        let row = Mapping::parse("7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((row.path.as_str(), row.is_code), ("", false));
        assert_eq!(Mapping::parse("no row"), None);
    }
}
