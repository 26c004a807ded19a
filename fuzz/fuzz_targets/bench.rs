//! Any bytes to the reader of nccl-tests and copies between GPUs, alone and after beginnings that open it.
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
    read(&[&b"# Using devices\\n#  Rank  0 Group  0 Pid   4242 on vm device  0 [0000:00:06] NVIDIA H200\\n"[..], data].concat());
    read(&[&b">>> a = torch.zeros(8, device=\"cuda:0\")\\n>>> b = a.to(\"cuda:1\")\\n>>> "[..], data].concat());
});
