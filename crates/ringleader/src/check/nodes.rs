//! `check` on many nodes: who is asked, in what way, and what becomes of the answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringleader_check::fleet::{Fleet, FleetReport, Silence, SilentNode, SilentSchema};
use ringleader_check::{NodeReport, SCHEMA, Verdict, hostlist};

use super::output::Out;
use super::{CheckArgs, CheckFailOn, CheckFormat, fleet_table, junit, past, prometheus};
use crate::exit::Code;
use crate::failure::Failure;
use crate::fanout::copy::Program;
use crate::fanout::slurm::{self, Slurm};
use crate::fanout::ssh::Ssh;
use crate::fanout::{Answer, Fanout, Ran, Transport};
use crate::report::{Detail, Look};

/// Many nodes at once
#[derive(Debug, Args)]
#[command(next_help_heading = "Many nodes")]
pub(crate) struct NodesArgs {
    /// These hosts over ssh: a,b, node[01-16], or @FILE
    #[arg(long, value_name = "LIST", conflicts_with_all = ["slurm", "kube"])]
    pub hosts: Vec<String>,
    /// The hosts of this file over ssh, one a line; what follows the name (slots=8) is passed over
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slurm", "kube"])]
    pub hostfile: Option<PathBuf>,
    /// The nodes of this Slurm job, through srun
    #[arg(long, value_name = "JOBID", conflicts_with = "kube")]
    pub slurm: Option<String>,
    /// The pods that this label selector chooses, through the API of Kubernetes
    #[arg(long, value_name = "SELECTOR")]
    pub kube: Option<String>,
    /// Namespace of the pods [default: that of your context]
    #[arg(long, value_name = "NAME", requires = "kube")]
    pub namespace: Option<String>,
    /// Container within each pod [default: the first]
    #[arg(long, value_name = "NAME", requires = "kube")]
    pub container: Option<String>,
    /// Nodes asked at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub parallel: u16,
    /// Longest wait for a node, copying included
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub node_deadline_secs: u64,
    /// Longest wait for a connection
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub connect_timeout_secs: u64,
    /// Copy this very program to ~/.cache/ringleader of the nodes where this version of it is absent, and run that
    #[arg(long, conflicts_with = "remote_program")]
    pub copy: bool,
    /// The program on the nodes [default: ringleader by the shell's path; with --slurm this program's own path]
    #[arg(long, value_name = "PATH")]
    pub remote_program: Option<String>,
    /// Another configuration for ssh than your own
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// A program in place of ssh, for tests
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub unstable_ssh: Option<PathBuf>,
    /// Folder of programs in place of srun and squeue, for tests
    #[arg(long, hide = true, value_name = "DIR")]
    pub unstable_slurm: Option<PathBuf>,
}

impl NodesArgs {
    /// Other nodes are meant, not this one.
    pub(crate) fn is_asked(&self) -> bool {
        !self.hosts.is_empty() || self.hostfile.is_some() || self.slurm.is_some() || self.kube.is_some()
    }

    /// The way to the nodes, and their names.
    fn transport(&self) -> Result<(Box<dyn Transport>, Vec<String>), Failure> {
        if let Some(job) = &self.slurm {
            let tool =
                |name: &str| self.unstable_slurm.as_ref().map_or(PathBuf::from(name), |dir| dir.join(name));
            let hosts =
                slurm::nodes(job, &tool("squeue")).map_err(|(why, help)| Failure::Nodes { why, help })?;
            let slurm = Slurm {
                job: job.clone(),
                srun: tool("srun"),
                connect_timeout_secs: self.connect_timeout_secs,
            };
            return Ok((Box::new(slurm), hosts));
        }
        if let Some(selector) = &self.kube {
            return pods(self, selector);
        }
        let mut hosts = Vec::new();
        let mut add = |text: &str| -> Result<(), Failure> {
            let list = hostlist::parse(text)
                .map_err(|why| Failure::Nodes { why, help: "lists look like node[01-16],login or @FILE" })?;
            for host in list {
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
            Ok(())
        };
        for list in &self.hosts {
            match list.strip_prefix('@') {
                Some(file) => add(&hosts_of(Path::new(file))?)?,
                None => add(list)?,
            }
        }
        if let Some(file) = &self.hostfile {
            add(&hosts_of(file)?)?;
        }
        if hosts.is_empty() {
            let why = "no host is named".to_owned();
            return Err(Failure::Nodes { why, help: "lists look like node[01-16],login or @FILE" });
        }
        let ssh = Ssh {
            program: self.unstable_ssh.clone().unwrap_or_else(|| "ssh".into()),
            config: self.ssh_config.clone(),
            connect_timeout_secs: self.connect_timeout_secs,
        };
        Ok((Box::new(ssh), hosts))
    }

    fn program(&self) -> Result<Program, Failure> {
        if self.copy {
            return Program::running(env!("CARGO_PKG_VERSION")).map_err(Failure::Program);
        }
        if let Some(name) = &self.remote_program {
            return Ok(Program::Named(name.clone()));
        }
        if self.slurm.is_some() {
            // Nodes of a Slurm cluster mostly share their file systems; srun itself looks there too.
            let own = std::env::current_exe().map_err(Failure::Program)?;
            return Ok(Program::Named(own.to_string_lossy().into_owned()));
        }
        Ok(Program::Named("ringleader".to_owned()))
    }
}

#[cfg(feature = "kube")]
fn pods(args: &NodesArgs, selector: &str) -> Result<(Box<dyn Transport>, Vec<String>), Failure> {
    let failed = |why| Failure::Nodes { why, help: "`kubectl get pods -l SELECTOR` should list them" };
    let kube = crate::fanout::kube::Kube::connect(
        args.namespace.as_deref(),
        args.container.as_deref(),
        Duration::from_secs(args.connect_timeout_secs),
    )
    .map_err(failed)?;
    let pods = kube.pods(selector).map_err(failed)?;
    Ok((Box::new(kube), pods))
}

#[cfg(not(feature = "kube"))]
fn pods(_: &NodesArgs, _selector: &str) -> Result<(Box<dyn Transport>, Vec<String>), Failure> {
    let why = "this build of ringleader does not speak with Kubernetes".to_owned();
    let help = "build it with: cargo build --release -p ringleader --features kube; deploy/daemonset.yaml needs no such build";
    Err(Failure::Nodes { why, help })
}

/// The hosts of a file: the first word of each line. The forms of Slurm, pdsh, OpenMPI and DeepSpeed agree on that.
fn hosts_of(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| Failure::NoSuchPath { path: file.to_owned(), source })?;
    let words = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().next()
    });
    Ok(words.collect::<Vec<_>>().join(","))
}

/// Bytes of one node's report. A node with everything amiss stays below a hundredth of it.
const MAX_REPORT: usize = 16 << 20;

/// Asks the nodes and prints what they say.
pub(crate) fn run(args: &CheckArgs, look: &Look) -> Result<Code, Failure> {
    if let Some(why) = conflict(args) {
        return Err(Failure::Nodes { why, help: "leave one of the two out" });
    }
    let (transport, hosts) = args.nodes.transport()?;
    let program = args.nodes.program()?;
    let remote = remote_args(args);
    let fanout = Fanout {
        transport: &*transport,
        hosts: &hosts,
        program: &program,
        args: &remote,
        parallel: args.nodes.parallel.into(),
        deadline: Duration::from_secs(args.nodes.node_deadline_secs),
        max_bytes: MAX_REPORT,
        show_progress: look.detail != Detail::Verdict,
    };
    let mut fleet = Fleet::new(past::load(args.against.as_deref())?);
    let mut saved = past::Saved::new(args.save_baseline.as_deref());
    let mut out = Out::new(args.output.as_deref())?;
    if args.format == CheckFormat::Junit {
        junit::start(&mut out)?;
    }
    fanout.run(|answer| {
        let Answer { host, timing, outcome } = answer;
        let outcome = outcome.and_then(|ran| read(&ran, &host).ok_or_else(|| transport.explain(&host, &ran)));
        match &outcome {
            Ok(report) => {
                fleet.answered(report, Some(timing));
                saved.add(report);
            }
            Err(silence) => fleet.silent(&host, silence.clone()),
        }
        if args.format == CheckFormat::Jsonl {
            line(&mut out, &host, &outcome)?;
        }
        if args.format == CheckFormat::Junit {
            match &outcome {
                Ok(report) => junit::node(&mut out, report)?,
                Err(silence) => junit::silent(&mut out, &host, silence)?,
            }
        }
        Ok::<(), Failure>(())
    })?;
    let report = fleet.report();
    match args.format {
        CheckFormat::Text => out.write(&fleet_table::render(&report, look))?,
        CheckFormat::Json | CheckFormat::JsonV1 => {
            out.write(&(serde_json::to_string_pretty(&report).map_err(Failure::Json)? + "\n"))?;
        }
        CheckFormat::Jsonl => {
            out.write(&(serde_json::to_string(&report).map_err(Failure::Json)? + "\n"))?;
            if look.detail != Detail::Verdict {
                aside(&fleet_table::render(&report, look));
            }
        }
        CheckFormat::Junit => junit::end(&mut out)?,
        CheckFormat::Prometheus => out.write(&prometheus::render(&fleet))?,
        CheckFormat::NodeJson => {}
    }
    out.finish()?;
    saved.write()?;
    Ok(code(&report, args.fail_on))
}

/// A table beside the stream, for the eyes.
fn aside(text: &str) {
    use std::io::Write as _;
    // Nobody is left to tell if standard error is gone.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn conflict(args: &CheckArgs) -> Option<String> {
    let other = [
        (args.from.is_some(), "--from"),
        (args.format == CheckFormat::NodeJson, "--format node-json"),
        (!args.pid.is_empty(), "--pid"),
        (args.fix, "--fix"),
        (!args.kill_orphans.is_empty(), "--kill-orphans"),
    ];
    let (_, name) = other.iter().find(|(is_set, _)| *is_set)?;
    Some(format!("{name} is for one node, and many are named"))
}

/// What the nodes are asked.
fn remote_args(args: &CheckArgs) -> Vec<String> {
    let mut remote = ["check", "--format", "jsonl", "--fail-on", "never"].map(str::to_owned).to_vec();
    let mut push = |words: &[&str]| remote.extend(words.iter().map(|word| (*word).to_owned()));
    if !args.only.is_empty() {
        push(&["--only", &args.only.join(",")]);
    }
    if args.quick {
        push(&["--quick"]);
    }
    if args.purpose.is_some() {
        push(&["--for", "prolog"]);
    }
    if let Some(n) = args.gpus {
        push(&["--gpus", &n.to_string()]);
    }
    if let Some(ms) = args.deadline_ms {
        push(&["--deadline-ms", &ms.to_string()]);
    }
    remote
}

/// The report in what a node printed. A login shell may have said something before it.
fn read(ran: &Ran, host: &str) -> Option<NodeReport> {
    if ran.is_cut {
        return None;
    }
    let start = format!("{{\"schema\":\"{SCHEMA}\"");
    let line =
        ran.output.split(|byte| *byte == b'\n').rev().find(|line| line.starts_with(start.as_bytes()))?;
    let mut report: NodeReport = serde_json::from_slice(line).ok()?;
    if report.host != host {
        report.target = Some(host.to_owned());
    }
    Some(report)
}

/// A line for each node, whether it answered or not.
fn line(out: &mut Out, host: &str, outcome: &Result<NodeReport, Silence>) -> Result<(), Failure> {
    let text = match outcome {
        Ok(report) => serde_json::to_string(report),
        Err(silence) => serde_json::to_string(&SilentNode {
            schema: SilentSchema::V1,
            target: host.to_owned(),
            kind: silence.kind,
            why: silence.why.clone(),
            next: silence.next.clone(),
        }),
    };
    out.write(&(text.map_err(Failure::Json)? + "\n"))?;
    out.flush()
}

/// Failures are findings; without one, a node that did not answer leaves the question open; if none answered there is
/// nothing to go by.
pub(crate) fn code(report: &FleetReport, fail_on: CheckFailOn) -> Code {
    let least = match fail_on {
        CheckFailOn::Fail => Verdict::Fail,
        CheckFailOn::Warn => Verdict::Warn,
        CheckFailOn::Never => return Code::NothingFound,
    };
    if report.n_answered == 0 {
        Code::NoUsableEvidence
    } else if report.verdict() >= least {
        Code::Findings
    } else if report.n_silent() > 0 {
        Code::Undecided
    } else {
        Code::NothingFound
    }
}
