//! Mends JSON that its writer got wrong or that was cut.
//!
//! NCCL 2.28.7 and 2.28.9 leave out the comma after `nvml_dev` of each missing rank, so that the report of exactly the
//! sick jobs is no JSON (`src/ras/client_support.cc: jsonWriteMissingRank`; 2.29 has it right).

use ringleader_model::NoteKind;

use super::Sink;

/// A repaired document.
pub(crate) struct Mended {
    /// JSON, if all went well.
    pub(crate) text: Vec<u8>,
    /// Bytes of the input that it replaces.
    pub(crate) end: usize,
    /// Offset of the first missing comma.
    comma: Option<(usize, u32)>,
    /// Whether brackets had to be closed.
    is_cut: bool,
}

impl Mended {
    /// Notes what was repaired. The document begins on `line`, at `offset`.
    pub(crate) fn tell(&self, line: u32, offset: u64, sink: &mut Sink<'_>) {
        if let Some((at, n_lines)) = self.comma {
            let at = offset + at as u64;
            let cite = sink.cite(line + n_lines, at, at);
            let text =
                "a comma is missing here (NCCL 2.28 writes missing ranks this way); read as if it were there";
            sink.note(cite, NoteKind::Remark, text.into());
        }
        if self.is_cut {
            let end = offset + self.end as u64;
            let text = "the JSON document ends early; what came before was read";
            sink.note(sink.cite(line, end, end), NoteKind::Truncated, text.into());
        }
    }
}

/// Deepest nesting that is followed; serde_json stops at 128.
const MAX_DEPTH: usize = 120;

/// Adds commas that are missing between a value and the next key, and closes what a cut left open, after the last whole
/// value of an array or member of an object. None if neither is the matter.
pub(crate) fn mend(input: &[u8]) -> Option<Mended> {
    let mut text = Vec::with_capacity(input.len() + 16);
    let mut open: Vec<u8> = Vec::new();
    // Length of the text, and the brackets open, after the last whole member.
    let mut safe: Option<(usize, Vec<u8>)> = None;
    let mut comma = None;
    let mut n_lines = 0;
    let mut in_string = false;
    let mut is_escaped = false;
    // The last significant byte ended a value (or a key).
    let mut after_value = false;
    let mut end = 0;
    for (at, &byte) in input.iter().enumerate() {
        end = at + 1;
        n_lines += u32::from(byte == b'\n');
        if in_string {
            text.push(byte);
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => {
                    in_string = false;
                    after_value = true;
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => {
                if after_value {
                    comma.get_or_insert((at, n_lines));
                    safe = Some((text.len(), open.clone()));
                    text.push(b',');
                }
                in_string = true;
                after_value = false;
                text.push(byte);
            }
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return None;
                }
                text.push(byte);
                open.push(if byte == b'{' { b'}' } else { b']' });
                // An empty object or array is whole; `after_value` stays false so that no comma is put in.
                safe = Some((text.len(), open.clone()));
                after_value = false;
            }
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    return None;
                }
                text.push(byte);
                after_value = true;
                if open.is_empty() {
                    return comma.is_some().then_some(Mended { text, end, comma, is_cut: false });
                }
                safe = Some((text.len(), open.clone()));
            }
            b',' => {
                safe = Some((text.len(), open.clone()));
                text.push(byte);
                after_value = false;
            }
            b':' => {
                text.push(byte);
                after_value = false;
            }
            _ => {
                text.push(byte);
                after_value |= !byte.is_ascii_whitespace();
            }
        }
    }
    let (length, open) = safe?;
    text.truncate(length);
    text.extend(open.iter().rev());
    Some(Mended { text, end, comma, is_cut: true })
}
