//! NCCL_DEBUG lines.

use crate::sink::Sink;
use crate::text::{Line, LineReader};

/// NCCL_DEBUG lines.
#[derive(Default)]
pub(crate) struct NcclReader {}

impl LineReader for NcclReader {
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}
