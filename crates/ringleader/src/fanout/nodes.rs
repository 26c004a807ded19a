//! Which nodes are meant, and in what way they are asked: options that `check` and `collect` share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ringleader_model::hostlist;

use super::Transport;
use super::copy::Program;
use super::slurm::{self, Slurm};
use super::ssh::Ssh;
use crate::failure::Failure;

/// Many nodes at once
#[derive(Debug, Args)]
#[command(next_help_heading = "Many nodes")]
pub(crate) struct NodesArgs {
    /// These hosts over ssh: a,b, node[01-16], or @FILE
    #[arg(long, value_name = "LIST", conflicts_with_all = ["slurm", "kube"])]
    pub hosts: Vec<String>,
    /// The hosts of this file over ssh, one a line; text after the name (slots=8) is ignored
    #[arg(long, value_name = "FILE", conflicts_with_all = ["slurm", "kube"])]
    pub hostfile: Option<PathBuf>,
    /// The nodes of this Slurm job, through srun
    #[arg(long, value_name = "JOBID", conflicts_with = "kube")]
    pub slurm: Option<String>,
    /// The pods that match this label selector, through the Kubernetes API
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
    /// Longest wait for a node, copying included [default: 30; of `collect` 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub node_deadline_secs: Option<u64>,
    /// Longest wait for a connection
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub connect_timeout_secs: u64,
    /// Copy this program to ~/.cache/ringleader on nodes without this version, and run it there
    #[arg(long, conflicts_with = "remote_program")]
    pub copy: bool,
    /// The program on the nodes [default: ringleader by the shell's path; with --slurm this program's own path]
    #[arg(long, value_name = "PATH")]
    pub remote_program: Option<String>,
    /// Configuration file for ssh [default: yours]
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

    /// Longest wait for a node, copying included.
    pub(crate) fn deadline(&self, default_secs: u64) -> Duration {
        Duration::from_secs(self.node_deadline_secs.unwrap_or(default_secs))
    }

    /// The way to the nodes, and their names.
    pub(crate) fn transport(&self) -> Result<(Box<dyn Transport>, Vec<String>), Failure> {
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

    /// What is run on the nodes.
    pub(crate) fn program(&self) -> Result<Program, Failure> {
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
    let kube = super::kube::Kube::connect(
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
    let why = "this build of ringleader has no Kubernetes support".to_owned();
    let help = "build it with: cargo build --release -p ringleader --features kube; deploy/kubernetes/check.yaml needs no such build";
    Err(Failure::Nodes { why, help })
}

/// The hosts of a file: the first word of each line. The forms of Slurm, pdsh, OpenMPI and DeepSpeed agree on that.
fn hosts_of(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| Failure::NoSuchFile { path: file.to_owned(), source })?;
    let words = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().next()
    });
    Ok(words.collect::<Vec<_>>().join(","))
}
