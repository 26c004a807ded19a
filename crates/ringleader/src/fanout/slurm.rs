//! Nodes of a Slurm job, one step for each through srun: inside of the allocation and outside of it alike.
//!
//! A step for each node, not one for all: srun gives up a whole step when one of its nodes does not answer, and a
//! dead node is what is looked for. `--overlap` (Slurm 20.11) lets the step share what the job holds.
//!
//! Source: srun(1), squeue(1).

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ringleader_check::fleet::{Silence, SilenceKind};
use ringleader_model::hostlist;

use super::process::{self, CommandEnd};
use super::spool::Output;
use super::ssh::{no_program, no_report};
use super::{Input, Limits, Ran, Transport, last_line, nameless, not_started, timed_out};

pub(crate) struct Slurm {
    pub job: String,
    /// `srun`; another in tests.
    pub srun: PathBuf,
    /// Seconds that a step may wait for its turn.
    pub connect_timeout_secs: u64,
}

/// Patience with the controller.
const ASK_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a list of nodes.
const MAX_LIST: u64 = 4 << 20;

impl Transport for Slurm {
    fn ask(
        &self,
        host: &str,
        argv: &[String],
        input: &Input,
        output: Output<'_>,
        limits: &Limits<'_>,
    ) -> Result<Ran, Silence> {
        let mut command = tool(&self.srun);
        command.args(["--jobid", &self.job, "--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"]);
        command.arg(format!("--nodelist={host}"));
        // Not bound to a processor that the job is busy on, and no share of the memory for itself.
        command.args(["--cpu-bind=none", "--mem=0", "--job-name=ringleader", "--chdir=/"]);
        command.arg(format!("--immediate={}", self.connect_timeout_secs));
        command.arg(if matches!(input, Input::Nothing) { "--input=none" } else { "--input=all" });
        command.args(argv);
        match process::run(&mut command, input, output, limits) {
            Ok(CommandEnd::Ran(ran)) => match explain(host, &ran) {
                Some(silence) => Err(silence),
                None => Ok(ran),
            },
            Ok(CommandEnd::TimedOut(said)) => {
                let mut silence = timed_out(limits);
                // Said on every cluster that does not bind tasks to processors, which is what we ask for.
                let said: Vec<&str> =
                    said.lines().filter(|line| !line.contains("support for cpu binding")).collect();
                let line = last_line(&said.join("\n"), host);
                if !line.is_empty() {
                    silence.why = format!("{}; {}", silence.why, without_numbers(&line));
                }
                "look at it with `scontrol show node`; --node-deadline-secs waits longer"
                    .clone_into(&mut silence.next);
                Err(silence)
            }
            Err(error) => Err(not_started(&self.srun.to_string_lossy(), &error)),
        }
    }

    fn explain(&self, host: &str, ran: &Ran) -> Silence {
        no_program(ran.status, &ran.said).unwrap_or_else(|| no_report(host, ran))
    }
}

/// What srun itself failed at; it ends with the status of the task otherwise.
fn explain(host: &str, ran: &Ran) -> Option<Silence> {
    // Whatever was said beside it: a task that answered is an answer.
    if ran.n_output > 0 {
        return None;
    }
    let is_ours = |line: &&str| line.starts_with("srun: error:") || line.starts_with("srun: fatal:");
    let unreachable = [
        "Communication connection failure",
        "Unable to contact",
        "Zero Bytes were transmitted",
        "Connection refused",
        "Connection timed out",
        "No route to host",
        "Required node not available",
        "are down",
        "not responding",
        "Node failure",
        "Socket timed out",
        "Unable to resolve",
        "Unspecified error",
        "Requested nodes are busy",
        "Unable to create step",
        "Invalid job id",
        "Job/step already completing",
        "Invalid node name",
    ];
    let line =
        ran.said.lines().filter(is_ours).find(|line| unreachable.iter().any(|text| line.contains(text)))?;
    let line = nameless(line.trim_start_matches("srun: ").trim_start_matches("error: "), host);
    Some(Silence {
        kind: SilenceKind::Unreachable,
        why: without_numbers(&line),
        next: "look at it with `scontrol show node` and at the log of slurmd there".to_owned(),
    })
}

/// `StepId=17.4294967293` and the like differ from node to node; the reason does not.
fn without_numbers(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        words.push(if word.starts_with("StepId=") { "the step" } else { word });
    }
    words.join(" ").replace("for job the step", "for the step")
}

/// Nodes that the job holds.
///
/// # Errors
/// Why they are not known, and what to do.
pub(crate) fn nodes(job: &str, squeue: &std::path::Path) -> Result<Vec<String>, (String, &'static str)> {
    const HELP: &str = "squeue lists running jobs; --hosts takes the nodes by name";
    if job.is_empty() || !job.chars().all(|c| c.is_ascii_alphanumeric() || "_+.".contains(c)) {
        return Err((format!("'{job}' is no id of a Slurm job"), HELP));
    }
    let stop = AtomicBool::new(false);
    let limits = Limits { until: Instant::now() + ASK_LIMIT, deadline: ASK_LIMIT, stop: &stop };
    let mut command = tool(squeue);
    command.args(["--noheader", "--jobs", job, "--states=all", "--format=%T %N"]);
    let ran = match process::run(&mut command, &Input::Nothing, Output::new(MAX_LIST, None), &limits) {
        Ok(CommandEnd::Ran(ran)) => ran,
        Ok(CommandEnd::TimedOut(_)) => {
            return Err((format!("squeue did not answer within {} s", ASK_LIMIT.as_secs()), HELP));
        }
        Err(error) => {
            return Err((
                format!("squeue could not be started: {error}"),
                "run it where Slurm's commands are",
            ));
        }
    };
    if ran.status != Some(0) {
        return Err((format!("squeue: {}", ran.said.trim()), HELP));
    }
    let text = String::from_utf8_lossy(&ran.output);
    let mut hosts = Vec::new();
    let mut states = Vec::new();
    // A line for each part of an array or of a heterogeneous job.
    for line in text.lines() {
        let (state, list) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        states.push(state.to_owned());
        if !matches!(state, "RUNNING" | "SUSPENDED" | "COMPLETING" | "STOPPED" | "SIGNALING" | "STAGE_OUT") {
            continue;
        }
        for host in hostlist::parse(list).map_err(|why| (format!("the list of nodes: {why}"), HELP))? {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
    }
    if hosts.is_empty() {
        states.dedup();
        let state = if states.is_empty() { "not known to Slurm".to_owned() } else { states.join(", ") };
        return Err((format!("job {job} holds no nodes: it is {state}"), HELP));
    }
    Ok(hosts)
}

/// A command of Slurm's, without the job's own wishes that srun would take from its environment.
fn tool(program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_kept = ["SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"].contains(&&*name);
        if !is_kept && ["SLURM_", "SRUN_", "SQUEUE_"].iter().any(|start| name.starts_with(start)) {
            command.env_remove(&*name);
        }
    }
    command
}
