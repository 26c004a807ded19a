//! Tables of system tools: process lists, resource limits.
//!
//! Each table is told by its heading and read by its columns' names, wherever in a file it stands.

use crate::ground::{Line, LineReader, Sink};

mod limits;
mod ps;
mod status;

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
