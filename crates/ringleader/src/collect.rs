//! `ringleader collect`: takes along what a diagnosis can use, before it is gone.

mod nodes;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use ringleader_bundle::{Caps, Item, ItemOutcome, Manifest, Origin};
use ringleader_collect::collectors::{self, Ask};
use ringleader_collect::{Request, Roots, Target};
use ringleader_report::quote;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;
use crate::fanout::nodes::NodesArgs;
use crate::jobs;

/// Collect logs, dumps, stacks, NCCL RAS and the state of this node, or of many, before it is gone
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/collect.txt"))]
pub(crate) struct CollectArgs {
    /// Files and folders to include
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The bundle, or `-` for standard output. With several jobs, -pidPID is added before the first dot. With many nodes: a new folder with one bundle per node [default: ringleader-HOST-SECONDS.tar.zst, ringleader-nodes-SECONDS]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Processes of the job, with their children [default: every job of this node, each by itself]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Processes of this Slurm job
    #[arg(long, value_name = "SLURM", conflicts_with = "pid")]
    job: Option<String>,
    /// Limit for all items together, before compression; a log above its share keeps head and tail
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    max_mib: u64,
    /// Limit for one file
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    max_item_mib: u64,
    /// Leave out stacks
    #[arg(long)]
    no_stacks: bool,
    /// Leave out NCCL RAS
    #[arg(long)]
    no_ras: bool,
    /// Leave out logs and dumps, which are taken as they are
    #[arg(long)]
    no_logs: bool,
    /// Ask the live job for a Flight Recorder dump through its pipe: the job writes a file and continues
    #[arg(long)]
    ask_dump: bool,
    #[command(flatten)]
    nodes: NodesArgs,
    /// Where proc, sys, dev and etc are, for tests
    #[arg(long, hide = true, value_name = "DIR")]
    unstable_root: Option<PathBuf>,
    /// NVML's library, for tests
    #[arg(long, hide = true, value_name = "FILE")]
    unstable_nvml: Option<PathBuf>,
}

/// Between two looks at the stacks: a rank at one place for this long is stuck, or slow.
const AGAIN_MS: u64 = 3_000;

impl Subcommand for CollectArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let (text, code) = if self.nodes.is_asked() { nodes::run(self)? } else { here(self)? };
        print(&text)?;
        // Everything else was collected first: what is there now may be gone soon.
        let is_asked_here = !self.nodes.is_asked() && code == Code::NothingFound;
        for path in self.paths.iter().filter(|_| is_asked_here) {
            if let Err(source) = path.symlink_metadata()
                && source.kind() == io::ErrorKind::NotFound
            {
                let help = "everything else was collected; name files and folders that are there";
                return Err(Failure::NoSuchPath { path: path.clone(), source, help });
            }
        }
        Ok(code.into())
    }
}

/// Collects on this node, a bundle for each job, and says what came of it.
fn here(args: &CollectArgs) -> Result<(String, Code), Failure> {
    let output = args.output.clone().unwrap_or_else(default_name);
    if output.as_os_str() == "-" {
        let manifest = into_output(&ask(args, args.pid.clone()))?;
        // Nobody is left to tell if standard error is gone.
        let _ = io::stderr().lock().write_all(summary(&manifest, None).as_bytes());
        return Ok((String::new(), code(&manifest)));
    }
    let is_named = !args.pid.is_empty() || args.job.is_some() || args.unstable_root.is_some();
    let found = if is_named { Vec::new() } else { jobs::here() };
    if found.len() < 2 {
        let manifest = into_file(&ask(args, args.pid.clone()), &output, true)?;
        return Ok((summary(&manifest, Some(&output)), code(&manifest)));
    }
    let mut text = format!("{} jobs run on this node: each has a bundle of its own\n", found.len());
    for job in &found {
        let path = jobs::named_after(&output, job.root);
        let manifest = into_file(&ask(args, job.pids.clone()), &path, true)?;
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}\n{}", quote::plain(&job.label), summary(&manifest, Some(&path)));
    }
    Ok((text, Code::NothingFound))
}

fn ask(args: &CollectArgs, pids: Vec<u32>) -> Ask {
    Ask {
        request: Request {
            roots: args.unstable_root.as_deref().map_or_else(Roots::default, Roots::under),
            target: Target { pids, slurm_job: args.job.clone(), ..Target::default() },
            window_ms: Request::WINDOW_MS,
            nvml: args.unstable_nvml.clone(),
            connect_ms: Request::CONNECT_MS,
            ..Request::default()
        },
        caps: Caps { item_bytes: args.max_item_mib << 20, all_bytes: args.max_mib << 20 },
        with_stacks: !args.no_stacks,
        stacks_again_ms: Some(AGAIN_MS),
        with_ras: !args.no_ras,
        with_logs: !args.no_logs,
        with_dump_request: args.ask_dump,
        paths: args.paths.clone(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        asked: std::env::args().skip(1).collect(),
        ..Ask::default()
    }
}

/// What was taken of the node stays; a user who asked for a job must not mistake it for the job's.
fn code(manifest: &Manifest) -> Code {
    let Some(why) = absent(manifest) else { return Code::NothingFound };
    let failure = Failure::Absent { why: why.to_owned() };
    // Nobody is left to tell if standard error is gone.
    let _ = io::stderr().lock().write_all(failure.message().as_bytes());
    failure.exit_code()
}

/// Why the processes that were asked for are not there.
fn absent(manifest: &Manifest) -> Option<&str> {
    manifest.items.iter().find_map(|item| match (&item.origin, &item.outcome) {
        (Origin::Reading(of), ItemOutcome::Skipped(why)) if of == "probe jobs" => Some(why.as_str()),
        _ => None,
    })
}

/// Collects what a live diagnosis reads. Asks nothing of the job. Fails if the processes that were asked for are not
/// there: a diagnosis of the rest would pass for theirs.
pub(crate) fn for_diagnosis(
    pids: &[u32],
    job: Option<&str>,
    with_ras: bool,
    to: &Path,
    may_be_gone: bool,
) -> Result<(), Failure> {
    let ask = Ask {
        request: Request {
            target: Target { pids: pids.to_vec(), slurm_job: job.map(str::to_owned), may_be_gone },
            window_ms: Request::WINDOW_MS,
            connect_ms: Request::CONNECT_MS,
            ..Request::default()
        },
        with_stacks: true,
        stacks_again_ms: Some(AGAIN_MS),
        with_ras,
        with_logs: true,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        asked: std::env::args().skip(1).collect(),
        ..Ask::default()
    };
    let manifest = into_file(&ask, to, true)?;
    absent(&manifest).map_or(Ok(()), |why| Err(Failure::Absent { why: why.to_owned() }))
}

/// A new file that its owner alone may read: logs may hold anything.
pub(crate) fn into_file(ask: &Ask, path: &Path, shows: bool) -> Result<Manifest, Failure> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let file = options.open(path).map_err(|source| Failure::Create { path: path.to_owned(), source })?;
    collect(ask, file, shows)
}

/// Standard output, as what asks many nodes reads it.
fn into_output(ask: &Ask) -> Result<Manifest, Failure> {
    let out = io::stdout();
    if out.is_terminal() {
        let why = "a bundle is binary and cannot be printed on a terminal".to_owned();
        return Err(Failure::Nodes { why, help: "name a file: -o job.tar.zst" });
    }
    // Its own buffer looks for line ends, which mean nothing here.
    let out = out.as_fd().try_clone_to_owned().map_err(Failure::Write)?;
    collect(ask, File::from(out), true)
}

fn collect(ask: &Ask, file: File, shows: bool) -> Result<Manifest, Failure> {
    let program = std::env::current_exe().map_err(Failure::Program)?;
    let mut out = BufWriter::new(file);
    let shows = shows && io::stderr().is_terminal();
    let progress = |name: &str| {
        if shows {
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(io::stderr().lock(), "collecting: {name}");
        }
    };
    collectors::collect(&program, ask, &mut out, &progress).map_err(Failure::Bundle)
}

fn default_name() -> PathBuf {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default().to_owned();
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("ringleader-{host}-{seconds}.tar.zst").into()
}

/// Items of one outcome that are named one by one.
const MAX_NAMED: usize = 12;

/// What was taken, what was not and why, what to do next.
fn summary(manifest: &Manifest, path: Option<&Path>) -> String {
    let path = path.map(|path| path.display().to_string());
    let mut out = String::new();
    let taken: Vec<&Item> = manifest.items.iter().filter(|item| !item.name.is_empty()).collect();
    let bytes: u64 = taken.iter().map(|item| item.bytes).sum();
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for item in &taken {
        match kinds.iter_mut().find(|(kind, _)| *kind == item.kind) {
            Some((_, n)) => *n += 1,
            None => kinds.push((item.kind.as_str(), 1)),
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "wrote {}: {} items ({}), {:.1} MiB before compression, {:.1} s",
        path.as_deref().unwrap_or("a bundle"),
        taken.len(),
        kinds.join(", "),
        bytes as f64 / f64::from(1 << 20),
        manifest.took_ms as f64 / 1e3
    );
    let mut told = Vec::new();
    for item in &manifest.items {
        let (word, why) = match &item.outcome {
            ItemOutcome::Failed(chain) => ("failed", chain.join(": ")),
            ItemOutcome::Partial(why) => ("in part", why.clone()),
            ItemOutcome::Skipped(why) => ("left out", why.clone()),
            ItemOutcome::Done => match item.cut {
                Some(cut) => ("cut", format!("{} bytes of its middle omitted", cut.left_out_bytes)),
                None => continue,
            },
        };
        told.push(format!("  {word}: {} {}: {why}", item.kind, origin(&item.origin)));
    }
    let n_more = told.len().saturating_sub(MAX_NAMED);
    for line in told.iter().take(MAX_NAMED) {
        let _ = writeln!(out, "{line}");
    }
    if n_more > 0 {
        let _ = writeln!(out, "  … and {n_more} more; the manifest in the bundle names them all");
    }
    for remark in &manifest.remarks {
        let _ = writeln!(out, "note: {remark}");
    }
    if let Some(path) = path {
        let _ = writeln!(out, "next: ringleader diagnose {path}");
    }
    out.lines().map(|line| quote::plain(line) + "\n").collect()
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Unknown => String::new(),
        Origin::Path(text) | Origin::Address(text) | Origin::Reading(text) => text.clone(),
        Origin::Argv(words) => words.join(" "),
    }
}
