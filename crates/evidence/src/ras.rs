//! NCCL RAS, text form.

use crate::sink::Sink;
use crate::text::{Line, LineReader};

/// NCCL RAS, text form.
#[derive(Default)]
pub(crate) struct RasTextReader {}

impl LineReader for RasTextReader {
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}

/// Reads a RAS report in JSON, if it is one.
pub(crate) fn read_json(_value: &serde_json::Value, _sink: &mut Sink<'_>) -> bool {
    false
}
