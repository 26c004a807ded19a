//! Any bytes as the stderr of a job: no panic, bounded memory. Seeds: `cases/*/evidence/stderr*.log`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fuzz_target!(|bytes: &[u8]| {
    let extract =
        ringleader_evidence::read("stderr.log", &mut &bytes[..], &mut Scratch::default(), &Limits::default());
    for observation in &extract.observations {
        assert!(observation.cite.start <= observation.cite.end);
    }
});
