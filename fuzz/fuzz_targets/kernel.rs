//! Arbitrary bytes for the reader of kernel logs: alone, after every kind of timestamp, and between lines that
//! open an event of several lines.
//!
//! Seeds: `cases/*/evidence/dmesg*`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch, read};

fuzz_target!(|data: &[u8]| {
    let look = |text: &[u8]| {
        let extract = read("dmesg.txt", &mut &*text, &mut Scratch::default(), &Limits::default());
        assert!(!extract.sources.is_empty());
        for observation in &extract.observations {
            assert!(observation.cite.start <= observation.cite.end, "a citation runs backwards");
            // Within the content of the archive or compressed file, which is longer than its own bytes.
            let source = &extract.sources[observation.cite.source.0 as usize];
            assert!(observation.cite.end <= source.size_bytes, "a citation beyond the end");
        }
    };
    look(data);
    for stamp in ["[   12.345678] ", "[Fri Aug 30 11:43:09 2024] ", "Nov 20 08:21:34 n1 kernel: ", "4,1,2,-;"] {
        look(&[stamp.as_bytes(), data].concat());
    }
    for opening in [
        "[    1.000000] NVRM: Xid (PCI:0000:3b:00): ",
        "[    1.000000] pcieport 0000:00:03.0: AER: Uncorrected (Fatal) error received: 0000:00:03.0\n",
        "[    1.000000] oom-kill:constraint=CONSTRAINT_MEMCG,task=a,pid=12,uid=0\n",
        "[    1.000000] {1}[Hardware Error]: event severity: fatal\n",
        "{\"dmesg\": [{\"time\": 1.0, \"msg\": \"",
        "{\"__REALTIME_TIMESTAMP\":\"1\",\"_TRANSPORT\":\"kernel\",\"MESSAGE\":\"",
    ] {
        look(&[opening.as_bytes(), data].concat());
    }
});
