//! `ringleader run`: supervises a launcher. Diagnoses each failure and acts by its cause: restart, restart without the
//! bad node, or stop.
//!
//! The first process is the [`ringleader_run::holder`], the parent of the launcher. It starts a [`supervisor`], which
//! can be replaced at any time.

mod attempt;
mod council;
mod duty;
mod evidence;
mod launch;
mod limited;
mod metrics;
mod notice;
mod preflight;
mod printed;
mod scheduler;
mod statement;
mod supervisor;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ringleader_run::holder::{self, Setup};
use ringleader_run::journal;
use ringleader_run::output::Bounds;
use ringleader_run::policy::Policy;
use ringleader_run::resume::Checkpoints;
use ringleader_run::state::{Folder, RunRequest, now};

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;
use crate::watch::hooks;

/// Supervise a launcher: on failure, diagnose it, then restart, exclude the bad node, or stop
#[derive(Clone, Debug, Default, Args)]
#[command(after_long_help = include_str!("help/run.txt"))]
pub(crate) struct RunArgs {
    /// The launcher and its arguments: torchrun, accelerate, deepspeed, mpirun, python
    #[arg(value_name = "CMD", last = true)]
    pub(crate) command: Vec<String>,
    /// Policy for failures: budgets, pauses, node exclusion (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Change one key of the policy; may be repeated: exclude.mode=act, budget.unknown.max=5
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the policy in effect as a file and exit
    #[arg(long)]
    pub(crate) print_policy: bool,
    /// Write ready-to-use files for Slurm, Kubernetes and plain torchrun into this folder and exit
    #[arg(long, value_name = "DIR")]
    pub(crate) print_scripts: Option<PathBuf>,
    /// Print the newest complete checkpoint in the folder and exit; with a command for torchrun, one that its ranks can load
    #[arg(long)]
    pub(crate) print_checkpoint: bool,
    /// Folder for output, evidence and journal of this node [default: ringleader-run, plus the Slurm job id and the
    /// node name]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Folder where the program saves checkpoints [default: the policy's]
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoints: Option<String>,
    /// Name of the job, the same on all nodes [default: $SLURM_JOB_ID, else `job`]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// Hub for the supervisors of several nodes: dir:PATH or etcd://HOST:PORT/PREFIX
    #[arg(long, value_name = "HUB", env = "RINGLEADER_HUB", hide_env = true)]
    pub(crate) hub: Option<String>,
    /// Name of this node, as the scheduler knows it [default: $SLURMD_NODENAME, $NODE_NAME, host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Address under which other nodes reach this one [default: its name]
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<String>,
    /// Number of nodes the job runs on; further nodes that join are spares [default: MAX of torchrun's --nnodes
    /// MIN:MAX, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// Smallest number of nodes the job can run on [default: MIN of --nnodes MIN:MAX, else --nodes]
    #[arg(long, value_name = "N")]
    pub(crate) min_nodes: Option<usize>,
    /// Treat a node as lost if its supervisor is silent for longer than this while the job hangs, seconds
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub(crate) lost_after: f64,
    /// How long to wait for all --nodes before the job starts with fewer, seconds
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    pub(crate) join_within: f64,
    /// Examine the job if it prints no step for this long and for five times its usual pause, seconds
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub(crate) silence_floor: f64,
    /// Ignore pauses between NCCL operations that are shorter than this, seconds
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub(crate) stall_floor: f64,
    /// How long ranks may take to exit after SIGTERM, seconds
    #[arg(long, value_name = "SECONDS", default_value = "15")]
    pub(crate) end_grace: f64,
    /// Run this shell command for every decision and stall, with the journal record on standard input
    #[arg(long, value_name = "CMD", env = "RINGLEADER_ON_DECISION", hide_env = true)]
    pub(crate) on_decision: Option<String>,
    /// POST every decision and stall to this URL as JSON; only one node of the job does
    #[arg(long, value_name = "URL", env = "RINGLEADER_WEBHOOK", hide_env = true, hide_env_values = true,
          value_parser = hooks::address)]
    pub(crate) webhook: Option<String>,
    /// Write metrics of the run to this file, for the Prometheus textfile collector
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
    /// File of recorded incidents [default: $RINGLEADER_HISTORY, ~/.local/share/ringleader/history.db]
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Do not record incidents
    #[arg(long, conflicts_with = "history")]
    pub(crate) no_history: bool,
    /// Folder of the plugin's rings
    #[arg(long, value_name = "DIR")]
    pub(crate) rings: Option<PathBuf>,
    /// Do not query NCCL's RAS service
    #[arg(long)]
    pub(crate) no_ras: bool,
    /// Supervise what the holder of this state folder runs
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) unstable_supervise: Option<PathBuf>,
    /// For tests: use the verdict in this JSON file once instead of a diagnosis
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) unstable_verdict: Option<PathBuf>,
}

impl Subcommand for RunArgs {
    /// Exits with the launcher's own code.
    fn run(&self) -> Result<ExitCode, Failure> {
        let policy = self.policy()?;
        if self.print_policy {
            print(&policy.to_toml())?;
            return Ok(Code::NothingFound.into());
        }
        if self.print_checkpoint {
            return self.print_checkpoint(&policy);
        }
        if let Some(folder) = &self.print_scripts {
            return printed::write(self, policy, folder);
        }
        if let Some(state) = &self.unstable_supervise {
            return supervisor::supervise(self, policy, state);
        }
        if self.command.is_empty() {
            return Err(Failure::Nodes {
                why: "supervise a launcher: the command is missing".to_owned(),
                help: "ringleader run -- torchrun --nproc-per-node 8 train.py",
            });
        }
        // The hub may also come from the environment or a file.
        if self.hub.is_none() && (self.nodes.is_some_and(|n| n > 1) || self.min_nodes.is_some_and(|n| n > 1))
        {
            return Err(Failure::Nodes {
                why: "supervise several nodes: they need a --hub to agree".to_owned(),
                help: "--hub dir:/shared/folder or --hub etcd://host:2379/job",
            });
        }
        startable(&self.command[0])?;
        self.hold()
    }
}

/// A missing program would fail in every attempt.
fn startable(program: &str) -> Result<(), Failure> {
    let is_there = |path: &Path| path.is_file();
    let found = if program.contains('/') {
        is_there(Path::new(program))
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| is_there(&folder.join(program)))
    };
    if found {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    Err(Failure::Start { program: program.to_owned(), source })
}

impl RunArgs {
    fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = match &self.policy {
            None => Policy::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| Failure::NoSuchFile { path: path.clone(), source })?;
                let from = || format!("the policy {}", path.display());
                Policy::parse(&text).map_err(|fault| Failure::Policy { from: from(), fault: fault.into() })?
            }
        };
        for setting in &self.set {
            let from = || format!("the option --set {setting}");
            policy.set(setting).map_err(|fault| Failure::Policy { from: from(), fault: fault.into() })?;
        }
        if let Some(dir) = &self.checkpoints {
            policy.checkpoint.dir = Some(dir.clone());
        }
        Ok(policy)
    }

    pub(crate) fn node_name(&self) -> String {
        let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        self.node
            .clone()
            .or_else(|| of("SLURMD_NODENAME"))
            .or_else(|| of("NODE_NAME"))
            .unwrap_or_else(ringleader_collect::follow::host)
    }

    pub(crate) fn job_name(&self) -> String {
        let of_slurm = || std::env::var("SLURM_JOB_ID").ok().filter(|id| !id.is_empty());
        self.job.clone().or_else(of_slurm).unwrap_or_else(|| "job".to_owned())
    }

    /// Each start of a Slurm job has its own folder: budgets and the agreement of its nodes apply to one start.
    fn state(&self) -> PathBuf {
        let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let slurm = of("SLURM_JOB_ID").map(|job| match of("SLURM_RESTART_COUNT") {
            Some(n) if n != "0" => format!("{job}.{n}"),
            _ => job,
        });
        let named = || {
            let node = self.hub.is_some().then(|| self.node_name());
            let parts: Vec<String> =
                std::iter::once("ringleader-run".to_owned()).chain(slurm).chain(node).collect();
            parts.join("-")
        };
        self.state.clone().unwrap_or_else(|| named().into())
    }

    /// Number of nodes the job runs on.
    pub(crate) fn n_nodes(&self) -> usize {
        let of_range = || launch::range(&self.command).map(|(_, most)| most);
        self.nodes.or_else(of_range).unwrap_or(1).max(1)
    }

    /// Smallest number of nodes the job can run on.
    pub(crate) fn n_least(&self) -> usize {
        let of_range = || launch::range(&self.command).map(|(least, _)| least);
        let most = self.n_nodes();
        self.min_nodes.or_else(of_range).unwrap_or(most).clamp(1, most)
    }

    /// The checkpoint that the command, if there is one, would start from. Standard output gets only the path, for scripts; remarks go
    /// to standard error.
    fn print_checkpoint(&self, policy: &Policy) -> Result<ExitCode, Failure> {
        let Some(dir) = &policy.checkpoint.dir else {
            return Err(Failure::Nodes {
                why: "look for a checkpoint: the folder is missing".to_owned(),
                help: "ringleader run --print-checkpoint --checkpoints ckpt",
            });
        };
        let per_node = launch::per_node(&self.command, self.hub.is_some());
        let (chosen, remarks) = Checkpoints::look(policy, &[], per_node).chosen(self.n_nodes());
        for remark in &remarks {
            // Standard error may be closed.
            let text = ringleader_report::quote::plain(remark.text());
            let _ = writeln!(std::io::stderr().lock(), "ringleader: {text}");
        }
        let Some(chosen) = chosen else {
            let _ = writeln!(std::io::stderr().lock(), "ringleader: no checkpoint to start from in {dir}");
            return Ok(Code::NoUsableEvidence.into());
        };
        print(&format!("{}\n", chosen.path))?;
        Ok(Code::NothingFound.into())
    }

    /// Becomes the holder.
    fn hold(&self) -> Result<ExitCode, Failure> {
        let path = self.state();
        let refused = |source| Failure::CannotWrite { path: path.clone(), source };
        let taken = || Failure::Nodes {
            why: format!("use the folder {}: another run is using it", path.display()),
            help: "--state DIR gives each run a folder of its own",
        };
        let before = if path.exists() {
            let before = Folder::open(&path).and_then(|folder| folder.place()).map_err(refused)?;
            Some(before.ok_or_else(taken)?)
        } else {
            None
        };
        let path_of = fresh(&path).map_err(refused)?;
        let folder = Folder::open(&path_of).map_err(refused)?;
        drop(before);
        // Held until the end of this process.
        let _place = folder.place().map_err(refused)?.ok_or_else(taken)?;
        let asked = RunRequest {
            job: self.job_name(),
            node: self.node_name(),
            argv: self.command.clone(),
            options: std::env::args().skip(1).take_while(|word| word != "--").collect(),
            at: now(),
        };
        folder.write("run.json", &asked).map_err(refused)?;
        let program = std::env::current_exe().map_err(Failure::Program)?;
        let mut supervisor = vec![program.into_os_string()];
        let mut words = std::env::args_os().skip(1);
        supervisor.extend(words.next());
        supervisor.push("--unstable-supervise".into());
        supervisor.push(folder.path().into());
        supervisor.extend(words);
        let setup = Setup {
            folder,
            supervisor,
            bounds: Bounds::default(),
            users_to_ranks: launch::dies_of_user_signals(&self.command),
        };
        let code = holder::hold(setup).map_err(refused)?;
        Ok(ExitCode::from(code))
    }
}

/// Moves the state folder of a finished run aside, so that each run has its own journal. A run that was interrupted, by
/// a power failure or the end of its container, continues with its folder: it keeps its budgets.
fn fresh(path: &Path) -> std::io::Result<PathBuf> {
    let (records, _) = journal::read(&path.join("journal.jsonl"))?;
    let is_over = records.last().is_none_or(|record| record.to.is_end());
    if !path.join("run.json").exists() || !is_over {
        return Ok(path.to_owned());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for n in 1..10_000 {
        let aside = path.with_file_name(format!("{name}.{n}"));
        if !aside.exists() {
            std::fs::rename(path, &aside)?;
            return Ok(path.to_owned());
        }
    }
    Err(std::io::Error::other("too many folders of earlier runs"))
}

/// The incident history file; None if no file is named and the home folder is unknown.
#[cfg(feature = "history")]
pub(crate) fn history(named: Option<&PathBuf>) -> Option<PathBuf> {
    notice::history(named, false)
}

/// Command line that runs this program as a child.
pub(crate) fn own(words: &[&str]) -> Result<Vec<OsString>, Failure> {
    let program = std::env::current_exe().map_err(Failure::Program)?;
    Ok(std::iter::once(program.into_os_string()).chain(words.iter().map(OsString::from)).collect())
}
