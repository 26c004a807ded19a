//! Any bytes to the reader of what tools of the node and schedulers print, alone and after beginnings that open it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(bytes: &[u8]) {
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    let extract = ringleader_evidence::read("tool.txt", &mut &*bytes, &mut Scratch::default(), &limits);
    assert!(!extract.sources.is_empty());
}

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&[&b"JobID|State|ExitCode|NodeList\\n"[..], data].concat());
    read(&[&b"17:00.0 3D controller: NVIDIA\\n\\tLnkSta:\\tSpeed "[..], data].concat());
});
