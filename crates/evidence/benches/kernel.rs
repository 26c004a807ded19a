//! How fast kernel logs are read, beside reading their bytes alone and beside NCCL logs.
//!
//! `cargo bench -p ringleader-evidence --bench kernel [-- MB] [word]`. The logs are made here: a month of a busy node
//! (links, services, one line in two hundred worth a statement), a server's log with one line in a hundred about a
//! device, and a flood in which every line is one; each behind every sort of stamp. Best of several passes, one thread
//! unless said otherwise.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench looks at the clock and its arguments"
)]

mod logs;

use std::hint::black_box;
use std::io::Read as _;
use std::time::Instant;

use ringleader_evidence::{Limits, Scratch, read};

const N_PASSES: u32 = 5;

/// Best of several passes, in MB a second and MB a second of this thread's processor.
fn rate(n_bytes: usize, mut pass: impl FnMut()) -> (f64, f64) {
    let (mut best, mut best_cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..N_PASSES {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        pass();
        best = best.min(start.elapsed().as_secs_f64());
        best_cpu = best_cpu.min(cpu_seconds() - cpu);
    }
    let mb = n_bytes as f64 / 1e6;
    (mb / best, mb / best_cpu)
}

/// Processor time of this thread, where the system tells (Linux): on a busy machine the clock on the wall measures the
/// neighbours.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn main() {
    let megabytes = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next_back().unwrap_or(256);
    let size = megabytes << 20;
    let log = logs::nccl(size, 4000, 1);
    let mut block = vec![0; 256 << 10];
    let bytes = rate(log.len(), || {
        let mut input = &*log;
        while input.read(&mut block).is_ok_and(|n| n > 0) {
            black_box(&block);
        }
    });
    println!("{:<44} {:>6.0} MB/s", "the bytes alone", bytes.0);
    let mut scratch = Scratch::default();
    let nccl = rate(log.len(), || {
        black_box(read("nccl.log", &mut &*log, &mut scratch, &Limits::default()));
    });
    println!("{:<44} {:>6.0} MB/s, {:>6.0} MB per processor second", "an NCCL log", nccl.0, nccl.1);
    // A word picks contents and forms: `flood`, `Syslog`.
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-') && a.parse::<usize>().is_err());
    for content in logs::CONTENTS {
        for form in logs::FORMS {
            let name = format!("{}, {form:?}", content.name);
            if wanted.as_ref().is_some_and(|word| !name.contains(&**word)) {
                continue;
            }
            let log = logs::kernel(size, content, form);
            let mut n_found = 0;
            let (wall, cpu) = rate(log.len(), || {
                n_found = read("dmesg", &mut &*log, &mut scratch, &Limits::default()).observations.len();
            });
            println!(
                "{name:<44} {wall:>6.0} MB/s, {cpu:>6.0} MB per processor second, {:.2} of NCCL ({n_found} statements)",
                cpu / nccl.1
            );
        }
    }
    let [one, two] =
        [logs::Form::Dmesg, logs::Form::Syslog].map(|form| logs::kernel(size, logs::CONTENTS[1], form));
    let (both, _) = rate(one.len() + two.len(), || {
        let reads = |log: &[u8]| read("dmesg", &mut &*log, &mut Scratch::default(), &Limits::default());
        std::thread::scope(|scope| {
            scope.spawn(|| black_box(reads(&one)));
            black_box(reads(&two));
        });
    });
    println!("{:<44} {both:>6.0} MB/s", "two of a server, two threads");
}
