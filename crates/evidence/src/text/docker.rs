//! Docker's log files, a JSON object a line.
//!
//! ```text
//! {"log":"[rank1]: RuntimeError: x\n","stream":"stderr","time":"2026-11-20T08:21:34.123456789Z"}
//! ```
//! Written by the `json-file` driver (moby/moby `daemon/logger/jsonfilelog/jsonlog`), which always puts `log` first.
//! What is in it is read as the line; a citation names the line of the file.

use memchr::memmem;
use ringleader_model::WallTime;

use crate::ground::stamp;

const START: &[u8] = b"{\"log\":\"";

/// A line that was packed.
pub(super) struct Unpacked {
    pub(super) text: Vec<u8>,
    pub(super) at: Option<WallTime>,
}

/// Whether a file begins so.
pub(crate) fn is_docker(head: &[u8]) -> bool {
    head.starts_with(START) && memmem::find(head, b"\",\"stream\":\"std").is_some()
}

/// Takes the line out of its object, also out of one that is cut. A line of another kind stays as it is.
#[inline]
pub(super) fn unpack(raw: &[u8]) -> Option<Unpacked> {
    if raw.starts_with(START) { unpack_object(raw) } else { None }
}

fn unpack_object(raw: &[u8]) -> Option<Unpacked> {
    const STREAM: &[u8] = b"\",\"stream\":\"";
    let inside = raw.strip_prefix(START)?;
    let (text, rest) = inside.split_at_checked(end_of_string(inside))?;
    // The end may be cut off.
    if !rest.starts_with(STREAM) && !STREAM.starts_with(rest) {
        return None;
    }
    let text = decode(text).or_else(|| {
        // Cut within an escape.
        let escape = rest.is_empty().then(|| memchr::memrchr(b'\\', text))??;
        decode(text.get(..escape)?)
    })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    let time = memmem::find(rest, b"\"time\":\"").and_then(|at| rest.get(at + 8..)).unwrap_or_default();
    let at = stamp::date_time(time, b'T').map(|(at, _)| at);
    Some(Unpacked { text: text.as_bytes().to_vec(), at })
}

/// Offset of the closing quote, or the length.
fn end_of_string(inside: &[u8]) -> usize {
    let mut escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    };
    inside.iter().position(is_end).unwrap_or(inside.len())
}

fn decode(text: &[u8]) -> Option<String> {
    serde_json::from_str(&format!("\"{}\"", String::from_utf8_lossy(text))).ok()
}

#[cfg(test)]
mod tests {
    use crate::tell;

    const PACKED: &str = concat!(
        "{\"log\":\"[rank1]: Traceback (most recent call last):\\n\",\"stream\":\"stderr\",",
        "\"time\":\"2026-11-20T08:21:34.5Z\"}\n",
        "{\"log\":\"[rank1]:   File \\\"/srv/train.py\\\", line 3, in step\\r\\n\",\"stream\":\"stderr\",",
        "\"time\":\"2026-11-20T08:21:34.6Z\"}\n",
        "{\"log\":\"[rank1]: ValueError: \\u00e9\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-20T08:21:34.7Z\"}\n",
    );

    #[test]
    fn the_line_within_is_read_and_the_line_of_the_file_cited() {
        let extract = tell::read("x", PACKED.as_bytes());
        let said: Vec<String> = extract
            .observations
            .iter()
            .map(|o| {
                let place = PACKED.get(o.cite.start as usize..o.cite.end as usize).unwrap_or("?");
                let at = o.at.map_or(0, |at| at.ns / 1_000_000);
                format!("{} {:?} {at} {} {}", o.cite.line, o.who.rank, place.lines().count(), o.text)
            })
            .collect();
        assert_eq!(
            said,
            ["1 Some(Rank(1)) 1795162894500 3 ValueError: é\n  File \"/srv/train.py\", line 3, in step"]
        );
    }

    #[test]
    fn a_cut_file_gives_what_came_before() {
        // Once the first line tells the form.
        for end in 80..PACKED.len() {
            let extract = tell::read("x", PACKED.get(..end).unwrap_or_default().as_bytes());
            assert!(extract.observations.len() <= 1, "{end}");
            assert!(extract.observations.iter().all(|o| !o.text.contains("\"log\"")), "{end}");
        }
    }

    #[test]
    fn other_json_is_left_to_its_readers() {
        let extract = tell::read("x", b"{\"log\":\"a\",\"loss\":1}\n{\"logs\":\"RuntimeError: x\"}\n");
        assert_eq!(extract.observations.len(), 0);
    }
}
