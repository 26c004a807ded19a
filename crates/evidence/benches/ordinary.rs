//! How fast the ordinary output of training jobs is read, form by form, beside NCCL's log of the same size.
//!
//! `cargo bench -p ringleader-evidence --bench ordinary [-- MB]`. Each text is made here: lines as frameworks and launchers
//! print them, with numbers that change from line to line; in those called "with stacks" one line of two thousand begins a
//! warning with a stack. All numbers come from one run, the best of several passes, in processor time: on a busy machine the
//! clock on the wall measures the neighbours.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]
#![expect(clippy::disallowed_methods, reason = "a bench looks at the clock and its arguments")]

mod logs;

use std::fmt::Write as _;

use ringleader_evidence::{Limits, Scratch, read};

/// Passes of each measurement.
const N_PASSES: u32 = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let megabytes = arguments.iter().find_map(|a| a.parse::<usize>().ok()).unwrap_or(32);
    let only = arguments.iter().find(|a| a.parse::<usize>().is_err());
    for (name, print) in FORMS {
        if only.is_none_or(|only| name.contains(only.as_str())) {
            rate(name, text(*print, megabytes << 20).as_bytes());
        }
    }
    if only.is_none_or(|only| "NCCL".contains(only.as_str())) {
        rate("NCCL INFO, one process", &logs::nccl(megabytes << 20, 4000, 1));
        rate("NCCL INFO, eight processes", &logs::nccl(megabytes << 20, 5000, 8));
    }
}

/// Prints the line or lines of a step.
type Print = fn(&mut String, &mut Numbers);

/// The forms that are measured.
const FORMS: &[(&str, Print)] = &[
    ("DeepSpeed, ranks labelled", deepspeed),
    ("DeepSpeed, with stacks", |out, n| with_stacks(out, n, deepspeed)),
    ("Megatron-LM", megatron),
    ("Transformers, dictionaries", transformers),
    ("Python logging", logging),
    ("torchtitan", torchtitan),
    ("JSON, level and msg", json),
    ("JSON of docker", docker),
    ("JSON, with stacks", |out, n| with_stacks(out, n, json)),
    ("tqdm, carriage returns", tqdm_updates),
    ("tqdm, lines", tqdm_lines),
    ("srun -l", srun),
    ("Ray workers", ray),
    ("every line another sentence", prose),
];

fn text(print: Print, n_bytes: usize) -> String {
    let mut out = String::with_capacity(n_bytes + 4096);
    let mut numbers = Numbers { step: 0, seed: 0x9E37_79B9_7F4A_7C15 };
    while out.len() < n_bytes {
        numbers.step += 1;
        print(&mut out, &mut numbers);
    }
    out
}

/// Numbers that differ from line to line.
struct Numbers {
    step: u64,
    seed: u64,
}

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % n
    }

    fn loss(&mut self) -> f64 {
        1.5 + self.below(1_000_000) as f64 / 1e6
    }

    fn clock(&self) -> String {
        let s = self.step / 4;
        format!("2026-11-{:02} {:02}:{:02}:{:02}", 1 + s / 86_400 % 28, s / 3_600 % 24, s / 60 % 60, s % 60)
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.push('\n');
}

fn deepspeed(out: &mut String, n: &mut Numbers) {
    let (step, clock, rank) = (n.step, n.clock(), n.below(8));
    let (ms, loss) = (n.below(1000), n.loss());
    line(
        out,
        format_args!(
            "[rank{rank}]: [{clock},{ms:03}] [INFO] [train.py:120] step {step} loss {loss:.2} lr 3.0e-4 tokens/s {} mfu 0.41",
            41_000 + ms
        ),
    );
    if step.is_multiple_of(10) {
        line(
            out,
            format_args!(
                "[{clock},{ms:03}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={:.6}, CurrSamplesPerSec={:.6}, MemAllocated=24.6GB, MaxMemAllocated=61.2GB",
                loss * 7.0,
                loss * 6.0
            ),
        );
    }
}

fn megatron(out: &mut String, n: &mut Numbers) {
    let (step, clock, loss) = (n.step, n.clock(), n.loss());
    line(
        out,
        format_args!(
            " [{clock}] iteration {step:8}/  500000 | consumed samples: {:12} | elapsed time per iteration (ms): {:.1} | throughput per GPU (TFLOP/s/GPU): {:.1} | learning rate: 2.998E-04 | global batch size:   512 | lm loss: {loss:.6}E+00 | loss scale: 1.0 | grad norm: {:.3} | num zeros: 0 |",
            step * 512,
            800.0 + loss,
            400.0 + loss,
            loss / 3.0
        ),
    );
}

fn transformers(out: &mut String, n: &mut Numbers) {
    let (loss, epoch) = (n.loss(), n.step as f64 / 5005.0);
    line(
        out,
        format_args!(
            "{{'loss': {loss:.4}, 'grad_norm': {}, 'learning_rate': {:e}, 'epoch': {epoch:.2}}}",
            loss / 3.0,
            4.9e-05 / (1.0 + epoch)
        ),
    );
}

fn logging(out: &mut String, n: &mut Numbers) {
    const LEVELS: [&str; 4] = ["INFO", "INFO", "DEBUG", "INFO"];
    let (step, clock, ms, loss) = (n.step, n.clock(), n.below(1000), n.loss());
    let level = LEVELS[(step % 4) as usize];
    line(
        out,
        format_args!(
            "{clock},{ms:03} - trainer.loop - {level} - step: {step}  loss: {loss:7.4}  grad_norm:  {:.4}  memory: 61.12GiB(64.31%)  tps: {}",
            loss / 2.0,
            6000 + ms
        ),
    );
}

fn torchtitan(out: &mut String, n: &mut Numbers) {
    let (step, clock, ms, loss) = (n.step, n.clock(), n.below(1000), n.loss());
    line(
        out,
        format_args!(
            "[rank0]:[titan] {clock},{ms:03} - root - INFO - step: {step:2}  loss: {loss:7.4}  memory: 61.12GiB(64.31%)  tps: {:6}  tflops: {:.2}  mfu: 41.02%",
            6000 + ms,
            400.0 + loss
        ),
    );
}

fn json(out: &mut String, n: &mut Numbers) {
    let (step, clock, ms, loss) = (n.step, n.clock(), n.below(1000), n.loss());
    line(
        out,
        format_args!(
            "{{\"ts\": \"{}.{ms:03}Z\", \"level\": \"info\", \"rank\": {}, \"msg\": \"step done\", \"step\": {step}, \"loss\": {loss:.4}, \"lr\": 0.0003}}",
            clock.replace(' ', "T"),
            step % 8
        ),
    );
}

fn docker(out: &mut String, n: &mut Numbers) {
    let (step, clock, ms, loss) = (n.step, n.clock(), n.below(1000), n.loss());
    line(
        out,
        format_args!(
            "{{\"log\":\"[rank{}]: step {step} loss {loss:.3} \\u003c{ms}ms\\u003e lr 3e-4\\n\",\"stream\":\"stderr\",\"time\":\"{}.{ms:03}456789Z\"}}",
            step % 8,
            clock.replace(' ', "T")
        ),
    );
}

fn bar(n: &mut Numbers) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let step = n.step % 50_000;
    let part = step * 80 / 50_000;
    let mut bar: String = "█".repeat((part / 8) as usize);
    bar.push(EIGHTHS[(part % 8) as usize]);
    format!(
        "{:3}%|{bar:<10}| {step}/50000 [{:02}:{:02}<9:58:12,  1.{:02}it/s, loss={:.2}, lr=3e-4, grad_norm=0.{:02}]",
        step / 500,
        step / 60,
        step % 60,
        n.below(100),
        n.loss(),
        n.below(100)
    )
}

fn tqdm_updates(out: &mut String, n: &mut Numbers) {
    out.push('\r');
    out.push_str(&bar(n));
    if n.step.is_multiple_of(5000) {
        out.push('\n');
    }
}

fn tqdm_lines(out: &mut String, n: &mut Numbers) {
    let text = bar(n);
    line(out, format_args!("{text}"));
}

fn srun(out: &mut String, n: &mut Numbers) {
    let (step, loss, task) = (n.step, n.loss(), n.below(16));
    line(
        out,
        format_args!("{task:2}: step {step} | loss {loss:.4} | 0.{} s/it | mem 61.2 GB", n.below(1000)),
    );
}

fn ray(out: &mut String, n: &mut Numbers) {
    let (step, loss, rank) = (n.step, n.loss(), n.below(8));
    line(
        out,
        format_args!(
            "(RayTrainWorker pid={}, ip=10.0.0.{rank}) epoch 0 step {step} loss {loss:.4} throughput {:.1} samples/s",
            4100 + rank,
            loss * 100.0
        ),
    );
}

/// Text that a language model prints: no two lines are alike.
fn prose(out: &mut String, n: &mut Numbers) {
    const WORDS: [&str; 24] = [
        "the",
        "model",
        "writes",
        "about",
        "rivers",
        "and",
        "mountains",
        "which",
        "people",
        "cross",
        "in",
        "winter",
        "while",
        "snow",
        "falls",
        "slowly",
        "over",
        "old",
        "bridges",
        "of",
        "stone",
        "that",
        "nobody",
        "repairs",
    ];
    for _ in 0..16 {
        out.push_str(WORDS[n.below(24) as usize]);
        out.push(' ');
    }
    out.push('\n');
}

fn with_stacks(out: &mut String, n: &mut Numbers, print: Print) {
    print(out, n);
    if n.step.is_multiple_of(2_000) {
        line(
            out,
            format_args!("WARNING: retrying after a hiccup of the data loader, attempt {}", n.step / 2_000),
        );
        line(out, format_args!("Traceback (most recent call last):"));
        line(out, format_args!("  File \"/srv/train/data.py\", line 88, in fetch"));
        line(out, format_args!("    return self.store.get(key)"));
        line(out, format_args!("  File \"/srv/train/store.py\", line 41, in get"));
        line(out, format_args!("    raise KeyError(key)"));
        line(out, format_args!("KeyError: 'shard-{}'", n.step));
    }
}

fn rate(name: &str, text: &[u8]) {
    let mut scratch = Scratch::default();
    let (mut best, mut found) = (f64::INFINITY, 0);
    for _ in 0..N_PASSES {
        let start = cpu_seconds();
        let extract = read("train.log", &mut &*text, &mut scratch, &Limits::default());
        best = best.min(cpu_seconds() - start);
        found = extract.observations.len();
    }
    let n_lines = memchr::memchr_iter(b'\n', text).count();
    println!(
        "{name:<32} {:>6.0} MB/s ({} MB, {n_lines} lines, {found} statements)",
        text.len() as f64 / 1e6 / best,
        text.len() >> 20
    );
}

/// Processor time of this thread, where the system tells (Linux).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}
