//! Accuracy of the diagnosis over simulated jobs.
//!
//! `cargo run --release -p ringleader-synth --example accuracy -- --seeds 2000 [--first 0] [--mode full|half-of-dumps|…|all]
//! [--max-ranks 1024] [--fault NAME] [--threads 2] [--verbose] [--markdown docs/accuracy.md]`
//!
//! To run one job again and write its evidence: `--seed N --mode M [--max-ranks N] [--write FOLDER]`.

use std::io::Write as _;

use ringleader_synth::accuracy::{Mode, confusions, judge, judge_all, table, total};
use ringleader_synth::{Fault, Options, job};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    seeds: u64,
    first: u64,
    seed: Option<u64>,
    modes: Vec<Mode>,
    max_ranks: u32,
    fault: Option<Fault>,
    threads: usize,
    verbose: bool,
    markdown: Option<String>,
    write: Option<String>,
}

impl Arguments {
    fn parse() -> Result<Self, Failure> {
        let mut a = Self {
            seeds: 200,
            first: 0,
            seed: None,
            modes: vec![Mode::Full],
            max_ranks: 1024,
            fault: None,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            verbose: false,
            markdown: None,
            write: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            if flag == "--verbose" {
                a.verbose = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{flag} wants a value"))?;
            match flag.as_str() {
                "--seeds" => a.seeds = value.parse()?,
                "--first" => a.first = value.parse()?,
                "--seed" => a.seed = Some(value.parse()?),
                "--mode" if value == "all" => a.modes = Mode::ALL.to_vec(),
                "--mode" => a.modes = vec![Mode::from_name(&value).ok_or("no such mode")?],
                "--max-ranks" => a.max_ranks = value.parse()?,
                "--fault" => a.fault = Some(Fault::from_name(&value).ok_or("no such fault")?),
                "--threads" => a.threads = value.parse()?,
                "--markdown" => a.markdown = Some(value),
                "--write" => a.write = Some(value),
                _ => return Err(format!("unknown flag {flag}").into()),
            }
        }
        Ok(a)
    }

    fn options(&self, mode: Mode, seed: u64) -> Options {
        Options { fault: self.fault, ..mode.options(seed, self.max_ranks) }
    }
}

fn main() -> Result<(), Failure> {
    let a = Arguments::parse()?;
    let mut out = std::io::stdout().lock();
    if let Some(seed) = a.seed {
        let options = a.options(a.modes[0], seed);
        if let Some(folder) = &a.write {
            std::fs::create_dir_all(folder)?;
            for (name, bytes) in &job(seed, &options).1.files {
                let path = std::path::Path::new(folder).join(name);
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                std::fs::write(path, bytes)?;
            }
        }
        let one = judge(seed, &options);
        writeln!(
            out,
            "truth:   {}\nalso:    {:?} {:?}",
            one.truth, one.truth.also_right, one.truth.culprits_also
        )?;
        writeln!(out, "verdict: {} {:?}\n         {}", one.cause, one.culprits, one.summary)?;
        return Ok(());
    }
    let mut report = String::new();
    for mode in &a.modes {
        let started = std::time::Instant::now();
        let each = |_: &_| {};
        let judged = judge_all(a.first, a.seeds, a.threads, |seed| a.options(*mode, seed), each);
        let all = total(&judged);
        writeln!(
            out,
            "{}: {} of {} right ({} of 1,000), {:.1} s",
            mode.name(),
            all.right,
            all.jobs,
            all.right_per_mille(),
            started.elapsed().as_secs_f32()
        )?;
        writeln!(out, "{}", table(&judged))?;
        for (fault, got, culprit_right, n, seed) in confusions(&judged) {
            let who = if culprit_right { "right" } else { "wrong" };
            writeln!(out, "{n:5} x {fault} answered as {got}, culprit {who}, e.g. seed {seed}")?;
        }
        let misses =
            judged.iter().filter(|j| !j.void && (!j.right() || (a.verbose && j.place_right == Some(false))));
        for one in misses.take(if a.verbose { usize::MAX } else { 12 }) {
            writeln!(
                out,
                "seed {}: {}\n    got {} {:?}: {}\n    again: cargo run --release -p ringleader-synth --example accuracy -- --seed {} --mode {} --max-ranks {}{}",
                one.seed,
                one.truth,
                one.cause,
                one.culprits,
                one.summary,
                one.seed,
                mode.name(),
                a.max_ranks,
                a.fault.map(|f| format!(" --fault {f}")).unwrap_or_default()
            )?;
        }
        let _ = std::fmt::Write::write_fmt(
            &mut report,
            format_args!("\n## {}\n\n{}", mode.name(), table(&judged)),
        );
    }
    if let Some(path) = &a.markdown {
        let head = format!(
            "# Accuracy over simulated jobs\n\n\
             Written by `cargo run --release -p ringleader-synth --example accuracy -- --seeds {} --mode all --markdown docs/accuracy.md`:\n\
             jobs of 2 to {} ranks, one fault each at a random place (crate `synth`), every second job on nodes whose clocks differ by up\n\
             to two minutes. *right* = cause and culprit ranks; for some jobs more than one answer counts as right (`truth.rs`);\n\
             *exact* = the planted cause itself; *place* = the function named, where the verdict names one. All in percent.\n",
            a.seeds, a.max_ranks
        );
        std::fs::write(path, head + &report)?;
    }
    Ok(())
}
