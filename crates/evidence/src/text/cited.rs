//! A line that is kept until something is concluded from it.

use ringleader_model::{Cite, WallTime};

use crate::ground::{Line, Sink};

/// A line with its citation, without whose it is.
#[derive(Clone)]
pub(super) struct CitedLine {
    pub(super) cite: Cite,
    pub(super) at: Option<WallTime>,
    pub(super) text: Vec<u8>,
}

impl CitedLine {
    pub(super) fn of(line: &Line<'_>, sink: &Sink<'_>) -> Self {
        let cite = sink.cite(line.number, line.offset, line.end());
        Self { cite, at: line.tag.at, text: line.body.to_vec() }
    }
}
