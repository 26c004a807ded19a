//! How fast NCCL_DEBUG logs are read, beside counting the same lines with the whole line-prefix regex.
//!
//! `cargo bench -p ringleader-evidence --bench nccl [-- MB]`. The log is made here: eight ranks of one node, mostly
//! COLL, tuning and channel lines. All numbers come from one run over the same bytes, the best of several passes.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its result and may panic")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench looks at the clock and its arguments"
)]

mod logs;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use ringleader_evidence::{Limits, Scratch, read};

/// Passes of each measurement.
const N_PASSES: u32 = 3;
/// The whole head, as a search for NCCL lines would write it.
const PREFIX: &str = concat!(
    r"(?m)^(?:\[[^\]\n]*\] )?(?:\S+?):(?:\d+):(?:-?\d+) \[(?:\d+)\] ",
    r"(?:(?:[\w./]+):(?:\d+) (?:\((?:[^)\n]+)\) )?)?NCCL (?:WARN|INFO|TRACE|CALL) (?:.*)$"
);

fn main() {
    let megabytes = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next_back().unwrap_or(256);
    let first = logs::nccl(megabytes << 20, 4000, 1);
    let mixed = logs::nccl(megabytes << 20, 5000, 8);
    println!("log of {megabytes} MB, {} lines", memchr::memchr_iter(b'\n', &first).count());
    let regex = regex::bytes::Regex::new(PREFIX).unwrap();
    let rate = |name: &str, n_bytes: usize, mut pass: Box<dyn FnMut() -> u64 + '_>| {
        let (mut best, mut best_cpu) = (f64::INFINITY, f64::INFINITY);
        let mut result = 0;
        for _ in 0..N_PASSES {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            result = pass();
            best = best.min(start.elapsed().as_secs_f64());
            best_cpu = best_cpu.min(cpu_seconds() - cpu);
        }
        let mb = n_bytes as f64 / 1e6;
        println!(
            "{name:<42} {:>6.0} MB/s, {:>6.0} MB per processor second ({result} lines)",
            mb / best,
            mb / best_cpu
        );
    };
    let lines = |bytes: &[u8], scratch: &mut Scratch| {
        let extract = read("nccl.log", &mut &*bytes, scratch, &Limits::default());
        match extract.observations.first().map(|o| &o.fact) {
            Some(ringleader_model::Fact::Nccl(log)) => log.n_lines,
            _ => 0,
        }
    };
    let mut scratch = Scratch::default();
    rate("one process a file, one thread", first.len(), Box::new(|| lines(&first, &mut scratch)));
    let mut scratch = Scratch::default();
    rate("eight processes interleaved, one thread", mixed.len(), Box::new(|| lines(&mixed, &mut scratch)));
    rate(
        "both files, two threads",
        first.len() + mixed.len(),
        Box::new(|| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| lines(&mixed, &mut Scratch::default()));
                lines(&first, &mut Scratch::default()) + other.join().unwrap()
            })
        }),
    );
    rate("regex crate, one thread", first.len(), Box::new(|| regex.find_iter(&first).count() as u64));
    rate(
        "regex crate, interleaved, one thread",
        mixed.len(),
        Box::new(|| regex.find_iter(&mixed).count() as u64),
    );
    if Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        rate(
            "rg -c from a pipe",
            first.len(),
            Box::new(|| {
                let pattern = PREFIX.trim_start_matches("(?m)");
                let mut rg = Command::new("rg")
                    .args(["-c", pattern])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                rg.stdin.take().unwrap().write_all(&first).unwrap();
                String::from_utf8_lossy(&rg.wait_with_output().unwrap().stdout).trim().parse().unwrap_or(0)
            }),
        );
    } else {
        println!("rg is not here");
    }
}

/// Processor time of this process and its children, all threads, where the system tells (Linux): on a busy machine
/// the clock on the wall measures the neighbours.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or("").split(' ').map(|f| f.parse().unwrap_or(0.0)).collect();
    // utime, stime, cutime, cstime; 100 ticks a second on every Linux this runs on.
    fields.get(12..16).map_or(f64::NAN, |times| times.iter().sum::<f64>() / 100.0)
}
