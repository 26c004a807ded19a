//! The job's output in files of bounded length: `stdout-0001.log`, `stdout-0002.log`, … The first and the newest files
//! are kept. A writer never fails: with a full disk it counts the lost bytes and continues.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The two streams of a launcher.
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Length of a file, bytes.
    pub file_bytes: u64,
    /// Number of files that are kept, including the first; at least 2.
    pub n_files: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, n_files: 8 }
    }
}

/// Writes one stream.
#[derive(Debug)]
pub struct StreamWriter {
    folder: PathBuf,
    stream: &'static str,
    bounds: Bounds,
    number: u32,
    file: Option<File>,
    written: u64,
    lost: u64,
}

fn name(stream: &str, number: u32) -> String {
    format!("{stream}-{number:04}.log")
}

impl StreamWriter {
    /// Starts with the first file. Appends to an existing one, never overwrites it.
    pub fn new(folder: &Path, stream: &'static str, bounds: Bounds) -> Self {
        Self { folder: folder.to_owned(), stream, bounds, number: 1, file: None, written: 0, lost: 0 }
    }

    /// Writes as much as the disk takes.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.written >= self.bounds.file_bytes {
            self.turn();
        }
        match self.try_write(bytes) {
            Ok(()) => self.written += bytes.len() as u64,
            Err(_) => self.lost += bytes.len() as u64,
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let path = self.folder.join(name(self.stream, self.number));
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
            self.written = file.metadata()?.len();
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.lost > 0 {
            file.write_all(
                format!("\nringleader: {} bytes of output were lost: no room\n", self.lost).as_bytes(),
            )?;
            self.lost = 0;
        }
        file.write_all(bytes)
    }

    /// Opens the next file. If there are too many, removes the one after the first.
    fn turn(&mut self) {
        self.file = None;
        // With a full disk a slow reader does not know how much it has missed.
        let _ = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(lengths(&self.folder, self.stream))
            .and_then(|mut file| writeln!(file, "{} {}", self.number, self.written));
        self.written = 0;
        self.number += 1;
        let n_files = self.bounds.n_files.max(2);
        if self.number > n_files {
            // It may already be gone.
            let _ = fs::remove_file(self.folder.join(name(self.stream, self.number + 1 - n_files)));
        }
    }
}

/// Read position in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// File, from 1; 0 before the first.
    pub number: u32,
    /// Offset in it, bytes.
    pub offset: u64,
}

/// The file with number and length of each complete file of a stream: some of them are removed before a slow reader has read
/// them.
fn lengths(folder: &Path, stream: &str) -> PathBuf {
    folder.join(format!("{stream}-lengths.txt"))
}

/// Reads one stream as it grows.
#[derive(Debug)]
pub struct StreamReader {
    folder: PathBuf,
    stream: &'static str,
    at: Position,
    file: Option<File>,
    missed: u64,
}

impl StreamReader {
    /// Continues at `at`.
    pub fn new(folder: &Path, stream: &'static str, at: Position) -> Self {
        Self { folder: folder.to_owned(), stream, at, file: None, missed: 0 }
    }

    /// Bytes that were removed before they were read, since the last call.
    pub fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Goes to the beginning of a later file.
    fn skip_to(&mut self, number: u32, is_read: bool) {
        let text = fs::read_to_string(lengths(&self.folder, self.stream)).unwrap_or_default();
        for line in text.lines() {
            let Some((at, length)) = line.split_once(' ') else { continue };
            let (Ok(at), Ok(length)) = (at.parse::<u32>(), length.parse::<u64>()) else { continue };
            if at == self.at.number && !is_read {
                self.missed += length.saturating_sub(self.at.offset);
            } else if at > self.at.number && at < number {
                self.missed += length;
            }
        }
        self.at = Position { number, offset: 0 };
    }

    /// The current position.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Reads what has been appended; 0 if there is nothing new. Errors: the file system's.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.file.is_none() && !self.open()? {
                return Ok(0);
            }
            let n = self.file.as_mut().map_or(Ok(0), |file| file.read(buffer))?;
            self.at.offset += n as u64;
            if n > 0 {
                return Ok(n);
            }
            let next = self.newer();
            let Some(next) = next else { return Ok(0) };
            self.file = None;
            self.skip_to(next, true);
        }
    }

    fn open(&mut self) -> io::Result<bool> {
        if self.at.number == 0 {
            self.at.number = 1;
        }
        match File::open(self.folder.join(name(self.stream, self.at.number))) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.at.offset))?;
                self.file = Some(file);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It was removed meanwhile: continue with the oldest newer file.
                let Some(next) = self.newer() else { return Ok(false) };
                self.skip_to(next, false);
                self.open()
            }
            Err(error) => Err(error),
        }
    }

    /// The next existing file.
    fn newer(&self) -> Option<u32> {
        numbers(&self.folder, self.stream).into_iter().find(|number| *number > self.at.number)
    }
}

fn numbers(folder: &Path, stream: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(stream)?.strip_prefix('-')?.strip_suffix(".log")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The files of an attempt's output, in order.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let of = |stream: &'static str| {
        numbers(folder, stream).into_iter().map(move |number| folder.join(name(stream, number)))
    };
    STREAMS.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(reader: &mut StreamReader) -> String {
        let (mut out, mut buffer) = (Vec::new(), [0; 7]);
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            out.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reader_follows_over_files() {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { file_bytes: 10, n_files: 3 };
        let mut writer = StreamWriter::new(folder.path(), "stdout", bounds);
        let mut reader = StreamReader::new(folder.path(), "stdout", Position::default());
        assert_eq!(read_all(&mut reader), "");
        let mut said = String::new();
        for n in 0..9 {
            let line = format!("line {n}\n");
            writer.write(line.as_bytes());
            said += &line;
            assert!(read_all(&mut reader).ends_with(&line));
        }
        assert!(said.len() > 60);
        // The first and the newest two.
        assert_eq!(numbers(folder.path(), "stdout"), [1, 4, 5]);
        // A late reader gets what is left.
        let mut late = StreamReader::new(folder.path(), "stdout", Position::default());
        assert_eq!(read_all(&mut late), "line 0\nline 1\nline 6\nline 7\nline 8\n");
        assert_eq!((late.missed(), late.missed(), reader.missed()), (4 * 7, 0, 0));
        // It had begun with a file that is gone.
        let at = Position { number: 2, offset: 7 };
        let mut behind = StreamReader::new(folder.path(), "stdout", at);
        assert_eq!(read_all(&mut behind), "line 6\nline 7\nline 8\n");
        assert_eq!(behind.missed(), 3 * 7);
        // A returning reader continues.
        let mut again = StreamReader::new(folder.path(), "stdout", reader.position());
        assert_eq!(read_all(&mut again), "");
        writer.write(b"more\n");
        assert_eq!(read_all(&mut again), "more\n");
        assert_eq!(files(folder.path()).len(), 3);
    }

    #[test]
    fn a_folder_that_is_gone_costs_output_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = StreamWriter::new(&folder.path().join("absent"), "stderr", Bounds::default());
        writer.write(b"lost");
        fs::create_dir(folder.path().join("absent")).unwrap();
        writer.write(b"kept");
        let text = fs::read_to_string(folder.path().join("absent/stderr-0001.log")).unwrap();
        assert!(text.contains("4 bytes of output were lost") && text.ends_with("kept"), "{text}");
    }
}
