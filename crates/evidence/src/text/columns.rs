//! Columns of tables that compare ranks, GPUs or hosts: which ones tell of speed, and how much one row must differ.

/// How far the others may be from their median.
pub(super) const SPREAD: f64 = 0.25;
/// How many times the one must differ.
pub(super) const FACTOR: f64 = 1.8;
/// Parts of the names of columns that are compared: a row with more of it is slow.
const SLOW: [&str; 18] = [
    "time", "wait", "compute", "fwd", "bwd", "forward", "backward", "step", "load", "input", "data",
    "latency", "ms", "duration", "elapsed", "s/it", "read", "h2d",
];
/// The same of columns with less of it in a slow row.
const FAST: [&str; 11] = [
    "gflops",
    "tflops",
    "samples/s",
    "speed",
    "throughput",
    "gb/s",
    "mb/s",
    "it/s",
    "busbw",
    "bandwidth",
    "clock",
];
/// Columns that tell nothing of speed.
const OTHER: [&str; 14] = [
    "loss", "mem", "token", "param", "pid", "port", "step #", "epoch", "seed", "shard", "files", "rows",
    "size", "id",
];

/// Whether a slow row has more in this column, or less; None if the column tells nothing of speed.
pub(super) fn slows(column: &str) -> Option<bool> {
    let has = |words: &[&str]| words.iter().any(|w| column.contains(w));
    if has(&FAST) {
        return Some(false);
    }
    (has(&SLOW) && !has(&OTHER)).then_some(true)
}
