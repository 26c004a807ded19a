//! `ringleader verify`: GPUs and links that compute or carry wrong values and say nothing.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringleader_probe::find;
use ringleader_probe::sys::{Blas, Driver};
use ringleader_probe::verify::inject::Fault;
use ringleader_probe::verify::{self, Check, MARGIN_BYTES, Report, Tools, VerifyPlan, Watcher, table};
use serde::Serialize;

use crate::bench::{ProbeFormat, check_devices, failed, load_nccl, needs_full_build, no_gpu};
use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;

/// Find GPUs and links that corrupt values: computations, memory and transfers with known answers, compared bit for bit
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/verify.txt"))]
pub(crate) struct VerifyArgs {
    /// Duration, as 30s, 5m or 1h; every check runs once even if that takes longer
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = time)]
    duration: Duration,
    /// Only these checks
    #[arg(long, value_enum, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<CheckName>,
    /// GPUs, by number [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    gpus: Vec<usize>,
    /// Also check GPUs in use
    #[arg(long)]
    in_use: bool,
    /// Memory of each GPU that is left alone
    #[arg(long, value_name = "MIB", default_value_t = MARGIN_BYTES >> 20)]
    margin_mib: usize,
    /// NCCL's library [default: the one of --pid, of the active Python, or of the system]
    #[arg(long, value_name = "FILE", env = "RINGLEADER_NCCL", hide_env = true)]
    nccl: Option<PathBuf>,
    /// Use the NCCL that this process maps
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Plant a fault: buffer:GPU, product:GPU, memory:GPU, gpu:GPU or link:FROM-TO
    #[arg(long, value_name = "FAULT", value_parser = Fault::parse)]
    inject: Option<Fault>,
    /// Plant this many random faults, one after the other, and report how many are found in the right place
    #[arg(long, value_name = "N", conflicts_with = "inject")]
    prove: Option<usize>,
    /// Seed of all values and all planted faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Longest wait for one collective, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout_secs: u64,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = ProbeFormat::Text)]
    format: ProbeFormat,
    /// CUDA's driver, for tests
    #[arg(long, hide = true, value_name = "FILE")]
    unstable_cuda: Option<PathBuf>,
    /// Least work, for tests
    #[arg(long, hide = true)]
    unstable_brief: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckName {
    Memory,
    Products,
    Links,
    Collectives,
}

impl From<CheckName> for Check {
    fn from(name: CheckName) -> Self {
        match name {
            CheckName::Memory => Self::Memory,
            CheckName::Products => Self::Products,
            CheckName::Links => Self::Links,
            CheckName::Collectives => Self::Collectives,
        }
    }
}

/// `30s`, `5m`, `1h`; a number alone is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time as 30s, 5m or 1h".to_owned();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// What `--prove` prints.
#[derive(Serialize)]
struct Score {
    schema: &'static str,
    planted: usize,
    right: usize,
    findings_without_a_fault: usize,
    proofs: Vec<verify::Proof>,
}

impl Subcommand for VerifyArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        if cfg!(target_env = "musl") {
            return Err(needs_full_build());
        }
        verify::clean_environment();
        let driver = Driver::load(self.unstable_cuda.as_deref()).map_err(no_gpu)?;
        let n_visible = driver.n_devices().map_err(no_gpu)?;
        let devices = if self.gpus.is_empty() { (0..n_visible).collect() } else { self.gpus.clone() };
        check_devices(&devices, n_visible)?;
        if let Some(fault) = self.inject
            && fault.highest() >= devices.len()
        {
            let why = format!("--inject names GPU {}; {} are checked", fault.highest(), devices.len());
            return Err(Failure::Nodes { why, help: "GPUs are counted from 0 in the order of --gpus" });
        }
        // One GPU needs no NCCL, and where there is none the other checks still say something.
        let nccl = if devices.len() > 1 || self.nccl.is_some() {
            match load_nccl(self.nccl.as_deref(), self.pid) {
                Ok(nccl) => Some(nccl),
                Err(error) if self.nccl.is_some() => return Err(error),
                Err(_) => None,
            }
        } else {
            None
        };
        let blas =
            Blas::load(&find::cublas()).ok().map(|(blas, _)| blas).filter(|_| self.unstable_cuda.is_none());
        let tools = Tools { driver, nccl, blas, devices };
        let (_, in_use) = verify::look(&tools).map_err(|error| failed("look at the GPUs", error))?;
        if !in_use.is_empty() && !self.in_use {
            let why = format!("{}: nothing was checked", in_use.join("; "));
            return Err(Failure::Nodes {
                why,
                help: "--in-use checks them all the same; it slows what runs there",
            });
        }
        let stop = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            // A second one ends it at once. Fails only for signals that cannot be handled.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop));
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        let bar = bar();
        let progress = |share: f64, what: &str| {
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(what.to_owned());
        };
        let watcher = Watcher { progress: &progress, stop: &stop };
        let plan = self.plan();
        let code = if let Some(n) = self.prove {
            self.prove(&tools, &plan, n, &watcher, &bar)?
        } else {
            let report =
                verify::run(&tools, &plan, &watcher).map_err(|error| failed("check the GPUs", error))?;
            bar.finish_and_clear();
            self.tell(&report)?;
            if !report.findings.is_empty() {
                Code::Findings
            } else if report.is_cut {
                Code::Undecided
            } else {
                Code::NothingFound
            }
        };
        Ok(code.into())
    }
}

impl VerifyArgs {
    fn plan(&self) -> VerifyPlan {
        let checks = if self.only.is_empty() {
            Check::ALL.to_vec()
        } else {
            self.only.iter().copied().map(Check::from).collect()
        };
        VerifyPlan {
            duration: self.duration,
            checks,
            margin_bytes: self.margin_mib << 20,
            is_brief: self.unstable_brief,
            inject: self.inject,
            seed: self.seed,
            timeout: Duration::from_secs(self.timeout_secs.max(1)),
        }
    }

    fn prove(
        &self,
        tools: &Tools,
        plan: &VerifyPlan,
        n: usize,
        watcher: &Watcher<'_>,
        bar: &ProgressBar,
    ) -> Result<Code, Failure> {
        let (proofs, n_false) =
            verify::prove(tools, plan, n, watcher).map_err(|error| failed("check the GPUs", error))?;
        bar.finish_and_clear();
        let right = proofs.iter().filter(|proof| proof.is_right).count();
        let is_whole = right == n && n_false == 0;
        match self.format {
            ProbeFormat::Text => print(&table::proofs(&proofs, n_false))?,
            ProbeFormat::Json | ProbeFormat::JsonV1 => {
                let score = Score {
                    schema: "ringleader.verify-proof.v1",
                    planted: proofs.len(),
                    right,
                    findings_without_a_fault: n_false,
                    proofs,
                };
                print(&(serde_json::to_string_pretty(&score).map_err(Failure::Json)? + "\n"))?;
            }
        }
        Ok(if is_whole { Code::NothingFound } else { Code::Findings })
    }

    fn tell(&self, report: &Report) -> Result<(), Failure> {
        match self.format {
            ProbeFormat::Text => print(&table::render(report)),
            ProbeFormat::Json | ProbeFormat::JsonV1 => {
                print(&(serde_json::to_string_pretty(report).map_err(Failure::Json)? + "\n"))
            }
        }
    }
}

fn bar() -> ProgressBar {
    let target =
        if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(1000), target);
    let style = ProgressStyle::with_template("{spinner} verify {wide_bar} {percent} % {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(time("1h"), Ok(Duration::from_hours(1)));
        assert_eq!(time("7"), Ok(Duration::from_secs(7)));
        for text in ["", "s", "1d", "-1s", "1.5h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
