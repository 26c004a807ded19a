//! PyTorch's messages, tracebacks, torchrun.

use crate::sink::Sink;
use crate::text::{Line, LineReader};

/// PyTorch's messages, tracebacks, torchrun.
#[derive(Default)]
pub(crate) struct TorchReader {}

impl LineReader for TorchReader {
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}

/// Reads a torch elastic error file, if it is one.
pub(crate) fn read_json(_value: &serde_json::Value, _sink: &mut Sink<'_>) -> bool {
    false
}
