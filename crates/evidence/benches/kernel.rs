//! How fast kernel logs are read.
//!
//! `cargo bench -p ringleader-evidence --bench kernel [-- MB]`. Two logs are made here: a month of a busy node (links,
//! services, one line in two hundred worth a statement), and a flood in which every line is one. Best of several
//! passes, one thread.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench looks at the clock and its arguments"
)]

use std::io::Write as _;
use std::time::Instant;

use ringleader_evidence::{Limits, Scratch, read};

const N_PASSES: u32 = 3;

const QUIET: [&str; 6] = [
    "br77: port 3(vh2) entered blocking state",
    "audit: type=1400 audit(1795162385.123:77): apparmor=\"ALLOWED\" operation=\"open\" profile=\"x\" pid=77",
    "systemd-journald[812]: Received client request to flush runtime journal.",
    "perf: interrupt took too long (2502 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "NVRM: refcntRequestReference_IMPL: Failed to enter state 1 (current state: 0, status: 0x00000056)",
    "docker0: port 1(veth12ab) entered blocking state",
];
const TOLD: [&str; 3] = [
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
    "Memory cgroup out of memory: Killed process 19289 (python3) total-vm:2676kB, anon-rss:84kB, file-rss:1468kB, shmem-rss:4kB, UID:0",
    "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
];

fn log(n_bytes: usize, told_every: usize) -> Vec<u8> {
    let mut log = Vec::with_capacity(n_bytes + 256);
    let mut n = 0_usize;
    while log.len() < n_bytes {
        n += 1;
        let text = if n.is_multiple_of(told_every) {
            TOLD.get(n / told_every % TOLD.len())
        } else {
            QUIET.get(n % QUIET.len())
        };
        let _ = writeln!(log, "[{:>7}.{:06}] {}", n / 100, n * 7919 % 1_000_000, text.unwrap_or(&""));
    }
    log
}

fn main() {
    let megabytes = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next_back().unwrap_or(256);
    for (name, told_every) in [("a month of a busy node", 200), ("a flood", 1)] {
        let log = log(megabytes << 20, told_every);
        let mut scratch = Scratch::default();
        let mut best = f64::INFINITY;
        let mut n_found = 0;
        for _ in 0..N_PASSES {
            let start = Instant::now();
            let extract = read("dmesg", &mut &*log, &mut scratch, &Limits::default());
            best = best.min(start.elapsed().as_secs_f64());
            n_found = extract.observations.len();
        }
        println!("{name:<24} {:>6.0} MB/s ({n_found} statements)", log.len() as f64 / 1e6 / best);
    }
}
