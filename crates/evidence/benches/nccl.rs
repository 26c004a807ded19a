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

use std::fmt::Write as _;
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
    let first = log(megabytes << 20, 4000, 1);
    let mixed = log(megabytes << 20, 5000, 8);
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

/// A log of `n_bytes` of `n_processes` ranks whose lines take turns.
fn log(n_bytes: usize, pid: u32, n_processes: u32) -> Vec<u8> {
    let mut out = String::with_capacity(n_bytes + 1024);
    for rank in 0..n_processes {
        let pid = pid + rank;
        let _ = writeln!(
            out,
            "vm:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x55d1c0a1{pid:04x} rank {rank} \
            nranks 8 cudaDev {rank} nvmlDev {rank} busId {rank}b000 commId 0xd198a30de37ff204 - Init START"
        );
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut n_calls = 0_u64;
    while out.len() < n_bytes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rank = (random >> 60) as u32 % n_processes;
        let pid = pid + rank;
        let tid = pid + 56;
        let to = (rank + 1) % 8;
        let (minute, second) = (n_calls / 60_000 % 60, n_calls / 1000 % 60);
        let stamp = if random >> 59 & 1 == 0 {
            String::new()
        } else {
            format!("[2026-11-20 08:{minute:02}:{second:02}] ")
        };
        let head = format!("{stamp}vm:{pid}:{pid} [{rank}] NCCL INFO");
        let channel = random >> 20 & 31;
        let _ = match random >> 33 & 15 {
            0..=8 => {
                n_calls += 1;
                let name =
                    ["AllReduce", "AllGather", "ReduceScatter", "Broadcast"][(random >> 40 & 3) as usize];
                writeln!(
                    out,
                    "{head} {name}: opCount {n_calls:x} sendbuff 0x7f6e{:08x} recvbuff 0x7f6e{:08x} count {} \
                    datatype 7 op 0 root 0 comm 0x55d1c0a1{pid:04x} [nranks=8] stream 0x55d1bf{:06x}",
                    random as u32,
                    random as u32 ^ 0xff00,
                    random >> 44,
                    random & 0xff_ffff
                )
            }
            9 | 10 => writeln!(
                out,
                "{head} AllReduce: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}",
                random >> 44
            ),
            11..=13 => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO Channel {channel:02}/0 : {rank}[{rank}] -> {to}[{to}] via P2P/CUMEM"
            ),
            14 => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO Connected to proxy localRank {rank} -> connection 0x7f6e{:08x}",
                random as u32
            ),
            _ => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO UDS converted handle 0x{:08x} to fd 130 on remote peer {to}",
                random as u32
            ),
        };
    }
    out.into_bytes()
}
