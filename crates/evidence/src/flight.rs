//! PyTorch Flight Recorder dumps.

use ringleader_model::SourceKind;

use crate::sink::Sink;

/// Reads a pickle dump. `name` is the file's own name, for the rank it claims.
pub(crate) fn read_pickle(_name: &str, _bytes: &[u8], sink: &mut Sink<'_>) {
    sink.saw(SourceKind::FlightRecorder);
}

/// Reads a dump in JSON, if it is one.
pub(crate) fn read_json(_name: &str, _value: &serde_json::Value, _sink: &mut Sink<'_>) -> bool {
    false
}
