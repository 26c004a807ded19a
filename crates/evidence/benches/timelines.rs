//! How fast timelines of profilers are read, beside reading their bytes alone.
//!
//! `cargo bench -p ringleader-evidence --bench timelines [-- FILE …]`. Without files the trace is made here: events as
//! PyTorch's profiler writes them, with operators, launches, kernels and collectives. Best of several passes, one thread.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench looks at the clock, its arguments and files"
)]

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::time::Instant;

use ringleader_evidence::{Limits, Scratch, read};

const N_PASSES: u32 = 5;

/// A trace of about this many bytes.
fn made(size: usize) -> Vec<u8> {
    let mut out =
        br#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
  "traceEvents": ["#
            .to_vec();
    let mut n = 0_u64;
    while out.len() < size {
        let at = n as f64 * 40.0;
        let _ = write!(
            out,
            r#"
  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711,
    "ts": {at:.3}, "dur": 31.250,
    "args": {{
      "External id": {n},"Record function id": 0, "Ev Idx": {n}
    }}
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 4711,
    "ts": {:.3}, "dur": 5.125,
    "args": {{
      "External id": {n}, "cbid": 211, "correlation": {n}
    }}
  }},
  {{
    "ph": "s", "id": {n}, "pid": 4711, "tid": 4711, "ts": {at:.3}, "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "void gemm_{}<float, 128, 128>", "pid": 0, "tid": 7,
    "ts": {:.3}, "dur": 28.001,
    "args": {{
      "External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {n},
      "registers per thread": 168, "shared memory": 98304, "blocks per SM": 0.969697, "warps per SM": 7.757576,
      "grid": [16, 8, 1], "block": [256, 1, 1], "est. achieved occupancy %": 12
    }}
  }},"#,
            at + 3.0,
            n % 7,
            at + 9.0,
        );
        n += 1;
    }
    out.pop();
    out.extend_from_slice(b"]}");
    out
}

/// Processor time of this thread, where the system tells (Linux).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn measure(name: &str, stored: &[u8], n_bytes: usize) {
    let mut scratch = Scratch::default();
    let (mut best, mut best_cpu, mut n_rows) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..N_PASSES {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let extract = black_box(read(name, &mut &*stored, &mut scratch, &Limits::default()));
        best = best.min(start.elapsed().as_secs_f64());
        best_cpu = best_cpu.min(cpu_seconds() - cpu);
        n_rows = extract.observations.len();
    }
    let mb = n_bytes as f64 / 1e6;
    println!(
        "{name:<40} {mb:>7.1} MB: {:>6.0} MB/s, {:>6.0} MB per processor second ({n_rows} timelines)",
        mb / best,
        mb / best_cpu
    );
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if files.is_empty() {
        let trace = made(100 << 20);
        measure("trace.json", &trace, trace.len());
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let packed = packed.write_all(&trace).and_then(|()| packed.finish()).unwrap_or_default();
        measure("trace.json.gz", &packed, trace.len());
    }
    for file in files {
        let Ok(stored) = std::fs::read(&file) else { continue };
        let mut plain = Vec::new();
        let is_packed = stored.starts_with(&[0x1f, 0x8b]);
        let n_bytes = if is_packed && flate2::read::GzDecoder::new(&*stored).read_to_end(&mut plain).is_ok() {
            plain.len()
        } else {
            stored.len()
        };
        measure(&file, &stored, n_bytes);
    }
}
