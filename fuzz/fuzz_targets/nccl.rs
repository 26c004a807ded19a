//! Any bytes after the beginning of an NCCL log: nothing panics, and the boundaries of reads change nothing.
//!
//! Seeds: `cases/*/evidence/nccl_*.log`.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch, read};

/// Makes the input text whatever follows, and introduces a process and a communicator.
const HEAD: &[u8] =
    b"vm:7:7 [0] NCCL INFO comm 0xaa0 rank 1 nranks 8 cudaDev 1 busId 1b000 - Init COMPLETE\n";

/// Returns a few bytes per call.
struct Slow<R>(R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = to.len().min(61);
        self.0.read(&mut to[..n])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { max_line_bytes: 4096, max_calls: 64, ..Limits::default() };
    let at_once = read("log", &mut HEAD.chain(bytes), &mut Scratch::default(), &limits);
    let slowly = read("log", &mut Slow(HEAD.chain(bytes)), &mut Scratch::default(), &limits);
    assert_eq!(at_once.observations, slowly.observations);
    assert_eq!(at_once.notes, slowly.notes);
});
