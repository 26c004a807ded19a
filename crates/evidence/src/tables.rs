//! ps, nvidia-smi, limits.

use crate::sink::Sink;
use crate::text::{Line, LineReader};

/// ps, nvidia-smi, limits.
#[derive(Default)]
pub(crate) struct TableReader {}

impl LineReader for TableReader {
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}
