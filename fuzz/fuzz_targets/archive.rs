//! Arbitrary bytes for the reader of archives and compressed streams, alone and after a beginning that opens one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(path: &str, bytes: &[u8]) {
    // Small caps, so that a decompression bomb costs the fuzzer little.
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    let extract = ringleader_evidence::read(path, &mut &*bytes, &mut Scratch::default(), &limits);
    assert!(!extract.sources.is_empty());
}

fuzz_target!(|data: &[u8]| {
    read("a.tar.gz", data);
    read("a.gz", &[b"\x1f\x8b\x08\x00", data].concat());
    read("a.xz", &[b"\xfd7zXZ\x00", data].concat());
    read("a.bz2", &[b"BZh91AY&SY", data].concat());
    read("a.zip", &[b"PK\x03\x04", data].concat());
    read("a.json", &[b"{\"", data].concat());
});
