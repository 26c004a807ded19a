//! `ringleader bench`: what collectives reach on these GPUs, what they should reach, and why they do not.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ringleader_probe::bench::judge::Level;
use ringleader_probe::bench::{BenchPlan, Crew, Report, baseline, html, readback, sizes, table};
use ringleader_probe::collective::Collective;
use ringleader_probe::find;
use ringleader_probe::sys::{DataType, Driver, LibraryError, Nccl, RedOp};
use ringleader_probe::world::{RankAssignment, Wire};

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;

/// Measure collectives on the available GPUs and compare them with what this topology can reach
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/bench.txt"))]
pub(crate) struct BenchArgs {
    /// Collectives, by nccl-tests' names [default: all_reduce all_gather reduce_scatter alltoall sendrecv broadcast reduce]
    #[arg(value_name = "COLLECTIVE", value_parser = collective)]
    collectives: Vec<Collective>,
    /// Smallest size, bytes; K, M and G are binary
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "1K", value_parser = size)]
    min_bytes: usize,
    /// Largest size, bytes
    #[arg(long, short = 'e', value_name = "SIZE", default_value = "1G", value_parser = size)]
    max_bytes: usize,
    /// Factor between one size and the next
    #[arg(long, short = 'f', value_name = "N", default_value_t = 4)]
    factor: usize,
    /// Bytes between one size and the next, in place of the factor
    #[arg(long, short = 'i', value_name = "SIZE", value_parser = size)]
    step_bytes: Option<usize>,
    /// Calls per measurement
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    iterations: usize,
    /// Calls of each size before the first measurement
    #[arg(long, short = 'w', value_name = "N", default_value_t = 1)]
    warmup: usize,
    /// Runs of each size whose result is verified, element by element
    #[arg(long, short = 'c', value_name = "N", default_value_t = 1)]
    checks: usize,
    /// Launches of a CUDA graph that holds all calls, in place of the calls
    #[arg(long, short = 'G', value_name = "N", default_value_t = 0)]
    graphs: usize,
    /// Calls whose times are taken one by one, for p50 and p99
    #[arg(long, value_name = "N", default_value_t = 100)]
    latencies: usize,
    /// Type of the elements
    #[arg(long, short = 'd', value_name = "TYPE", default_value = "float", value_parser = dtype)]
    dtype: DataType,
    /// Reduction
    #[arg(long, short = 'o', value_name = "OP", default_value = "sum", value_parser = reduction)]
    op: RedOp,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, short = 'r', value_name = "RANK", default_value_t = 0)]
    root: usize,
    /// GPUs of this process, by number [default: under a launcher the one of the local rank, else all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    gpus: Vec<usize>,
    /// NCCL's library [default: the one of --pid, of the active Python, or of the system]
    #[arg(long, value_name = "FILE", env = "RINGLEADER_NCCL", hide_env = true)]
    nccl: Option<PathBuf>,
    /// Use the NCCL that this process maps
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Where rank 0 listens for the others [default: MASTER_ADDR, or Slurm's first node, and a port of its own]
    #[arg(long, value_name = "HOST[:PORT]")]
    master: Option<String>,
    /// Leave out measurements in place
    #[arg(long)]
    no_in_place: bool,
    /// Leave out the bandwidth of pairs
    #[arg(long)]
    no_pairs: bool,
    /// Leave out the run that reads NCCL's choices from its log
    #[arg(long)]
    no_readback: bool,
    /// Longest wait for one measurement, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout_secs: u64,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = ProbeFormat::Text)]
    format: ProbeFormat,
    /// Also write the report as a page with a plot
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save this measurement (JSON), for `--against`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compare with a saved measurement
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Least that makes the exit code 4
    #[arg(long, value_enum, default_value_t = FailOn::Low, value_name = "LEVEL")]
    fail_on: FailOn,
    /// CUDA's driver, for tests
    #[arg(long, hide = true, value_name = "FILE")]
    unstable_cuda: Option<PathBuf>,
    /// Call each size once, for the log, and print nothing
    #[arg(long, hide = true)]
    unstable_once: bool,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeFormat {
    /// For people.
    Text,
    /// The same as json-v1.
    Json,
    /// For programs.
    JsonV1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Low,
    Wrong,
    Never,
}

/// Collectives that are measured unless others are named.
const USUAL: [Collective; 7] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::SendRecv,
    Collective::Broadcast,
    Collective::Reduce,
];
/// Longest wait for the other ranks to start.
const MEET: Duration = Duration::from_mins(2);

fn collective(name: &str) -> Result<Collective, String> {
    Collective::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Collective::ALL.iter().map(|collective| collective.name()).collect();
        format!("there is: {}", names.join(", "))
    })
}

fn dtype(name: &str) -> Result<DataType, String> {
    let found = DataType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = DataType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("there is: {}", names.join(", "))
    })
}

fn reduction(name: &str) -> Result<RedOp, String> {
    let found = RedOp::ALL.into_iter().find(|op| op.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = RedOp::ALL.iter().map(|op| op.name()).collect();
        format!("there is: {}", names.join(", "))
    })
}

/// `8`, `32M`, `1G`.
fn size(text: &str) -> Result<usize, String> {
    let wrong = || "write a number of bytes, as 8, 64K, 32M or 1G".to_owned();
    let (digits, power) = match text.trim().to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        text if text.ends_with('K') => (text.trim_end_matches('K').to_owned(), 10),
        text if text.ends_with('M') => (text.trim_end_matches('M').to_owned(), 20),
        text if text.ends_with('G') => (text.trim_end_matches('G').to_owned(), 30),
        text => (text.to_owned(), 0),
    };
    let number: usize = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << power).ok_or_else(wrong)
}

impl Subcommand for BenchArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        if cfg!(target_env = "musl") {
            return Err(needs_full_build());
        }
        // What is wrong with a file is said before an hour of measurements.
        let then = self.against.as_deref().map(load).transpose()?;
        let driver = Driver::load(self.unstable_cuda.as_deref()).map_err(no_gpu)?;
        let n_visible = driver.n_devices().map_err(no_gpu)?;
        let place = RankAssignment::from_environment(|name| std::env::var(name).ok(), self.master.as_deref())
            .map_err(|error| failed("meet the other ranks", error))?;
        let devices = self.devices(n_visible, place.as_ref())?;
        let ways =
            if self.no_readback || self.unstable_once { readback::Ways::default() } else { self.read_back() };
        let (nccl, path) = load_nccl(self.nccl.as_deref(), self.pid)?;
        let (wire, ranks, n_processes) = match &place {
            None => (Wire::Alone, (0, devices.len()), 1),
            Some(place) => {
                if devices.len() != 1 {
                    let why = format!(
                        "under {} each process has one GPU; --gpus names {}",
                        place.launcher,
                        devices.len()
                    );
                    return Err(Failure::Nodes {
                        why,
                        help: "name one GPU, or none: the local rank chooses",
                    });
                }
                let wire = Wire::meet(place, MEET).map_err(|error| failed("meet the other ranks", error))?;
                (wire, (place.rank, place.n_ranks), place.n_ranks)
            }
        };
        let is_first = ranks.0 == 0;
        let shows_text = is_first && self.format == ProbeFormat::Text && !self.unstable_once;
        let plan = self.plan(ranks.1);
        let last = Mutex::new(String::new());
        let progress = |row: &ringleader_probe::bench::Row| {
            if !shows_text {
                return;
            }
            let mut text = String::new();
            if let Ok(mut last) = last.lock()
                && *last != row.collective
            {
                text.push_str(&table::head(std::slice::from_ref(&row.collective)));
                last.clone_from(&row.collective);
            }
            text.push_str(&table::line(row, plan.dtype.name()));
            // The report at the end says if standard output is gone.
            let _ = print(&text);
        };
        let crew = Crew { driver, nccl: (nccl, path), wire, ranks, n_processes, devices };
        let mut report = ringleader_probe::bench::run(crew, &plan, &ways, &progress)
            .map_err(|error| failed("measure", error))?;
        if !is_first || self.unstable_once {
            return Ok(Code::NothingFound.into());
        }
        if let Some(then) = &then {
            let (changes, notes) = baseline::compare(then, &report);
            report.changes = changes;
            report.notes.extend(notes);
        }
        self.tell(&report)?;
        Ok(self.code(&report).into())
    }
}

impl BenchArgs {
    fn plan(&self, n_ranks: usize) -> BenchPlan {
        let once = self.unstable_once;
        BenchPlan {
            collectives: if self.collectives.is_empty() { USUAL.to_vec() } else { self.collectives.clone() },
            sizes: sizes(self.min_bytes, self.max_bytes, self.factor, self.step_bytes),
            dtype: self.dtype,
            op: self.op,
            root: self.root.min(n_ranks.saturating_sub(1)),
            n_warmup: if once { 0 } else { self.warmup },
            n_iterations: if once { 1 } else { self.iterations },
            n_checks: if once { 0 } else { self.checks },
            n_graphs: if once { 0 } else { self.graphs },
            n_latencies: if once { 0 } else { self.latencies },
            in_place: !self.no_in_place && !once,
            pairs: !self.no_pairs && !once,
            timeout: Duration::from_secs(self.timeout_secs.max(1)),
        }
    }

    fn devices(&self, n_visible: usize, place: Option<&RankAssignment>) -> Result<Vec<usize>, Failure> {
        let devices = match place {
            _ if !self.gpus.is_empty() => self.gpus.clone(),
            // Where the launcher shows each process its own GPU alone, that is number 0.
            Some(place) => vec![place.local_rank % n_visible.max(1)],
            None => (0..n_visible).collect(),
        };
        check_devices(&devices, n_visible)?;
        Ok(devices)
    }

    /// Runs this program once more, with NCCL's log on, and reads what NCCL chose.
    fn read_back(&self) -> readback::Ways {
        let missing = |why: String| readback::Ways {
            notes: vec![format!("NCCL's choices are unknown: {why}")],
            ..readback::Ways::default()
        };
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(error) => return missing(error.to_string()),
        };
        let file = folder.path().join("nccl.log");
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return missing(error.to_string()),
        };
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).arg("--unstable-once");
        command.envs(readback::variables(&file.to_string_lossy()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return missing(error.to_string()),
        };
        let deadline = Instant::now() + Duration::from_secs(self.timeout_secs.max(1));
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => {
                    let mut said = String::new();
                    if let Some(mut stderr) = child.stderr.take() {
                        let _ = io::Read::read_to_string(&mut stderr, &mut said);
                    }
                    let said = said.lines().next().unwrap_or_default().to_owned();
                    return missing(format!("the run with NCCL's log ended with {status}: {said}"));
                }
                Ok(None) if Instant::now() > deadline => {
                    // Our own child, by its handle.
                    let _ = child.kill();
                    let _ = child.wait();
                    return missing("the run with NCCL's log did not finish".to_owned());
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return missing(error.to_string()),
            }
        }
        match std::fs::read(&file) {
            Ok(log) => readback::parse(&String::from_utf8_lossy(&log)),
            Err(error) => missing(error.to_string()),
        }
    }

    fn tell(&self, report: &Report) -> Result<(), Failure> {
        let json = || serde_json::to_string_pretty(report).map(|text| text + "\n").map_err(Failure::Json);
        match self.format {
            ProbeFormat::Text => {
                let who =
                    table::who(report).iter().map(|line| format!("# {line}") + "\n").collect::<String>();
                print(&format!("#\n{who}{}", table::verdicts(report)))?;
            }
            ProbeFormat::Json | ProbeFormat::JsonV1 => print(&json()?)?,
        }
        if let Some(path) = &self.save {
            write(path, &json()?)?;
        }
        if let Some(path) = &self.html {
            write(path, &html::render(report))?;
        }
        Ok(())
    }

    fn code(&self, report: &Report) -> Code {
        let worst = report.verdicts.iter().map(|verdict| verdict.level).max();
        let is_worse = report.changes.iter().any(|change| change.is_worse);
        match (self.fail_on, worst) {
            (FailOn::Never, _) => Code::NothingFound,
            (_, Some(Level::Wrong)) | (FailOn::Low, Some(Level::Low)) => Code::Findings,
            (FailOn::Low, _) if is_worse => Code::Findings,
            _ => Code::NothingFound,
        }
    }
}

fn load(path: &Path) -> Result<Report, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::NoSuchFile { path: path.to_owned(), source })?;
    baseline::parse(&text).map_err(|why| Failure::Measurement { path: path.to_owned(), why })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |source| Failure::CannotWrite { path: path.to_owned(), source };
    let mut file = std::fs::File::create(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// NCCL, from the first place that has one.
pub(crate) fn load_nccl(named: Option<&Path>, pid: Option<u32>) -> Result<(Nccl, String), Failure> {
    let mut last = None;
    for path in find::nccl(named, pid) {
        match Nccl::load(&path) {
            Ok(nccl) => return Ok((nccl, path.display().to_string())),
            Err(error) => last = last.or(Some(error)),
        }
    }
    let trouble = last
        .unwrap_or(LibraryError::NoLibrary { name: "libnccl.so.2".to_owned(), why: "not found".to_owned() });
    Err(Failure::Gpu {
        what: "load NCCL",
        trouble,
        help: "name it: --nccl FILE, or --pid of a process that has it",
    })
}

/// All of these GPUs are there, each once.
pub(crate) fn check_devices(devices: &[usize], n_visible: usize) -> Result<(), Failure> {
    let mut seen = std::collections::BTreeSet::new();
    if devices.is_empty() {
        let trouble = LibraryError::World("the driver shows no GPU to this process".to_owned());
        return Err(no_gpu(trouble));
    }
    for device in devices {
        if *device >= n_visible || !seen.insert(device) {
            let why = format!("--gpus names {device}; there are {n_visible} GPUs, counted from 0");
            return Err(Failure::Nodes { why, help: "each GPU once: --gpus 0,1" });
        }
    }
    Ok(())
}

pub(crate) fn no_gpu(trouble: LibraryError) -> Failure {
    Failure::Gpu {
        what: "find a GPU: nothing was measured or checked",
        trouble,
        help: "does this node have GPUs, and does the container show them? `ringleader check` shows it",
    }
}

pub(crate) fn failed(what: &'static str, trouble: LibraryError) -> Failure {
    Failure::Gpu {
        what,
        trouble,
        help: "NCCL_DEBUG=WARN makes NCCL print more; `ringleader check` examines the node",
    }
}

/// A static build cannot load the libraries of the GPU.
pub(crate) fn needs_full_build() -> Failure {
    Failure::Nodes {
        why: "this static build cannot load CUDA and NCCL".to_owned(),
        help: "take the full build: the wheel, the deb or the rpm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_nccl_tests_writes_them() {
        for (text, want) in [
            ("8", 8),
            ("64K", 65536),
            ("32M", 32 << 20),
            ("1g", 1 << 30),
            ("2GiB", 2 << 30),
            ("5MB", 5 << 20),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "x", "1T", "-1", "99999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
