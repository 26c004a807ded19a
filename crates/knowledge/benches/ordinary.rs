//! Speed of scanning ordinary output: the search for messages, the search for forms of failure, and single lines.
//!
//! `cargo bench -p ringleader-knowledge --bench ordinary [-- MB]`. The text is the output of healthy jobs from the
//! tests of the table, repeated with other numbers and without lines that only NCCL prints. All numbers come from one
//! run over the same bytes, the best of several passes.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench looks at the clock and its arguments"
)]

use std::fmt::Write as _;
use std::time::Instant;

use ringleader_knowledge::{form, message};

/// Passes of each measurement.
const N_PASSES: u32 = 5;
const ORDINARY: &str = include_str!("../data/messages/ordinary.txt");
/// Lines that a training job prints repeatedly, besides the rest.
const STEPS: [&str; 6] = [
    "[rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4 tokens/s 41235 mfu 0.41",
    "{'loss': 2.3123, 'grad_norm': 0.8123, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
    "  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31, lr=3e-4, grad_norm=0.81]",
    "2026-11-20 10:00:00,000 - root - INFO - step: 10  loss:  8.0213  grad_norm:  1.2031  memory: 61.12GiB(64.31%)",
    "{\"ts\":\"2026-11-20T10:00:00Z\",\"level\":\"info\",\"msg\":\"step done\",\"step\":812,\"loss\":2.31}",
    "Epoch [3/90][ 100/ 5005] Time  0.412 ( 0.420) Data  0.003 ( 0.011) Loss 2.3126e+00 Acc@1 48.05 ( 46.12)",
];

fn main() {
    let megabytes = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next_back().unwrap_or(64);
    let steps = text(megabytes << 20, usize::MAX);
    let mixed = text(megabytes << 20, 40);
    let start = Instant::now();
    let found = message::best("RuntimeError: CUDA error: an illegal memory access was encountered");
    println!("first line: {:?}, {:?}", start.elapsed(), found.map(|m| m.row.id()));
    for (name, text) in [("training steps", &steps), ("one line of forty is start-up or settings", &mixed)] {
        println!("{name}: {} MB, {} lines", text.len() >> 20, text.lines().count());
        rate("search for messages", text, |text| hits(text, message::wanted));
        rate("search for forms", text, |text| hits(text, form::wanted));
        rate("both, and the lines they lead to", text, both);
        rate("every line classified", text, |text| {
            let mut out = Vec::new();
            text.lines().for_each(|line| message::classify(line, &mut out));
            out.len()
        });
        rate("every line's form", text, |text| text.lines().filter_map(form::of).count());
        rate("every line's template", text, |text| text.lines().map(|l| form::template(l).len()).sum());
    }
}

fn text(n_bytes: usize, every: usize) -> String {
    let others: Vec<&str> = ORDINARY.lines().filter(|l| !l.contains("NCCL INFO")).collect();
    let mut out = String::with_capacity(n_bytes + 4096);
    let mut n = 0;
    while out.len() < n_bytes {
        let line =
            if n % every == every - 1 { others[n / every % others.len()] } else { STEPS[n % STEPS.len()] };
        let _ = writeln!(out, "{}", line.replace("812", &n.to_string()));
        n += 1;
    }
    out
}

/// Number of lines that a search leads to.
fn hits(text: &str, wanted: fn(&[u8], usize) -> Option<usize>) -> usize {
    let (mut from, mut n) = (0, 0);
    while let Some(at) = wanted(text.as_bytes(), from) {
        n += 1;
        from = end_of_line(text, at);
    }
    n
}

fn both(text: &str) -> usize {
    let mut lines: Vec<&str> = Vec::new();
    for wanted in [message::wanted, form::wanted] {
        let mut from = 0;
        while let Some(at) = wanted(text.as_bytes(), from) {
            let end = end_of_line(text, at);
            let start = text.as_bytes()[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
            lines.extend(text.get(start..end));
            from = end;
        }
    }
    let mut out = Vec::new();
    let mut n = 0;
    for line in lines {
        message::classify(line, &mut out);
        n += usize::from(form::of(line).is_some());
    }
    n + out.len()
}

fn end_of_line(text: &str, at: usize) -> usize {
    text.as_bytes()[at..].iter().position(|&b| b == b'\n').map_or(text.len(), |i| at + i + 1)
}

fn rate(name: &str, text: &str, pass: impl Fn(&str) -> usize) {
    let (mut best, mut result) = (f64::INFINITY, 0);
    for _ in 0..N_PASSES {
        let start = Instant::now();
        result = pass(text);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("  {name:<36} {:>6.0} MB/s ({result})", text.len() as f64 / 1e6 / best);
}
