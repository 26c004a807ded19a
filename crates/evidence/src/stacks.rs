//! py-spy, faulthandler (alone), gdb, /proc/PID/stack.

use crate::sink::Sink;
use crate::text::{Line, LineReader};

/// py-spy, faulthandler (alone), gdb, /proc/PID/stack.
#[derive(Default)]
pub(crate) struct StackReader {}

impl LineReader for StackReader {
    fn line(&mut self, _line: &Line<'_>, _sink: &mut Sink<'_>) -> bool {
        false
    }
    fn finish(&mut self, _sink: &mut Sink<'_>) {}
}

/// Reads py-spy's JSON, if it is that.
pub(crate) fn read_json(_value: &serde_json::Value, _sink: &mut Sink<'_>) -> bool {
    false
}
