//! Tables of system tools: process lists, resource limits.
//!
//! Each table is identified by its heading and read by its column names, anywhere in a file.

use crate::ground::{Line, LineReader, Sink, Wants};

mod limits;
mod ps;
mod status;

/// Headings of process lists, lines of limits and of a process's status.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "locked memory",
            "locked-in-memory",
            "open files",
            "file descriptors",
            "nofiles",
            "MEMLOCK ",
            "NOFILE ",
        ]
    },
    begins: |line| {
        let has = |word: &[u8]| memchr::memmem::find(line, word).is_some();
        [&b"Name:"[..], b"State:", b"Pid:", b"PPid:"].iter().any(|key| line.starts_with(key))
            || has(b"PID") && (has(b"COMMAND") || has(b"CMD") || has(b"ARGS"))
    },
};

/// Tables in a text file.
#[derive(Default)]
pub(crate) struct TableReader {
    ps: Option<ps::Listing>,
    status: Option<status::Status>,
    limits: Option<limits::Limits>,
    /// The line that comes may lack its end, so that its last number cannot be trusted.
    is_cut: bool,
}

impl LineReader for TableReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(&first) = line.body.trim_ascii_start().first() else {
            self.close_ps(sink);
            return false;
        };
        self.ps_line(line, first, sink) || self.other_line(line, first, sink)
    }

    fn awake_until(&self) -> u32 {
        if self.ps.is_some() { u32::MAX } else { 0 }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close_ps(sink);
        self.close_status(sink);
        self.close_limits(sink);
    }
}

impl TableReader {
    fn other_line(&mut self, line: &Line<'_>, first: u8, sink: &mut Sink<'_>) -> bool {
        // First letters of the lines that these readers know.
        if self.is_cut || !matches!(first, b'm' | b'M' | b'o' | b'n' | b'N' | b'-' | b'l' | b'P' | b'S') {
            return false;
        }
        let Ok(body) = std::str::from_utf8(line.body) else { return false };
        self.limits_line(body, line, sink) || self.status_line(body, line, sink)
    }
}

#[cfg(test)]
mod tests;
