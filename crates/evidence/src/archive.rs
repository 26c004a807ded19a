//! Opens what is packed: gzip, zstd, tar, in any nesting, with caps on depth, members and bytes out.

use std::io::Read;

use crate::sink::{Limits, Sink};
use crate::sniff::{self, Form};
use crate::{Extract, Scratch};

/// Reads a stream of any form into `extract`.
pub(crate) fn read_any(path: &str, input: &mut dyn Read, scratch: &mut Scratch, limits: &Limits, extract: &mut Extract) {
    let mut head = Vec::new();
    let _ = input.take(sniff::HEAD_BYTES as u64).read_to_end(&mut head);
    let mut sink = Sink::open(path, limits, extract);
    match sniff::sniff(&head) {
        Form::Pickle => {
            scratch.whole.clear();
            scratch.whole.extend_from_slice(&head);
            let _ = input.take(limits.max_dump_bytes).read_to_end(&mut scratch.whole);
            crate::flight::read_pickle(path, &scratch.whole, &mut sink);
            sink.close(scratch.whole.len() as u64);
        }
        _ => {
            let size = crate::text::read_text(&head, input, &mut scratch.block, &mut sink);
            sink.close(size);
        }
    }
}
