//! Scripts, manifests, images and files of variables as what they start: settings, commands, directives, containers.

mod image;
mod manifest;
pub(crate) mod network;
pub(crate) mod release;
mod shell;
mod variables;

use ringleader_knowledge::program::{self, ProgramRole};
use ringleader_knowledge::version::NcclVersion;

use crate::finding::{LintFinding, Location, Related};
use crate::{Language, LintRule, SourceFile};

/// Lines and columns from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) end_column: u32,
}

/// A variable that the job's processes get.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// None: computed when the script runs.
    pub(crate) value: Option<String>,
    /// The value as it is written.
    pub(crate) raw: String,
    pub(crate) at: Spot,
}

/// A command with its words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pub(crate) words: Vec<String>,
    /// Variables that it alone gets: `NAME=value command`.
    pub(crate) own: Vec<Setting>,
    /// Whether the shell goes on while it runs.
    pub(crate) is_background: bool,
    /// Whether the command is in a loop.
    pub(crate) is_repeated: bool,
    /// Whether its variables are put in where it runs, and not by the script: `bash -c '... $X'`.
    pub(crate) is_late: bool,
    pub(crate) at: Spot,
}

/// A container of a manifest or of a `docker run`.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) n_gpus: u64,
    pub(crate) has_shared_memory: bool,
    /// Whether it gets an adapter for RDMA.
    pub(crate) has_rdma: bool,
    /// Whether it may lock memory, which RDMA needs.
    pub(crate) can_lock: bool,
    pub(crate) at: Spot,
}

/// The request of a TrainJob to the runtime that it names, or the offer of a runtime to its jobs.
#[derive(Clone, Debug)]
pub(crate) struct Training {
    /// Name of the runtime.
    pub(crate) runtime: String,
    /// Whether it is a job.
    pub(crate) is_job: bool,
    /// Processes of each node.
    pub(crate) per_node: Option<u64>,
    /// GPUs of each node.
    pub(crate) n_gpus: Option<u64>,
    pub(crate) at: Spot,
}

/// A launch file.
#[derive(Debug)]
pub(crate) struct Launch<'s> {
    pub(crate) path: &'s str,
    pub(crate) text: &'s str,
    pub(crate) settings: Vec<Setting>,
    /// All that a script sets, exported or not.
    pub(crate) assigned: Vec<Setting>,
    pub(crate) commands: Vec<Command>,
    /// `#SBATCH --key=value`, the key without dashes in its long form.
    pub(crate) directives: Vec<(String, String, Spot)>,
    pub(crate) containers: Vec<Container>,
    pub(crate) trainings: Vec<Training>,
    /// Batch sizes of a configuration of DeepSpeed.
    pub(crate) batch: Option<Batch>,
    /// The release of NCCL that its image or its installation pins.
    pub(crate) nccl: Option<NcclVersion>,
    /// Whether a controller starts one process of the launcher for each node: PyTorchJob, TrainJob, an indexed Job.
    pub(crate) is_controlled: bool,
}

/// `train_batch_size` and what it must be a multiple of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) train: u64,
    pub(crate) micro: u64,
    /// 1 where the file does not say.
    pub(crate) accumulation: u64,
    pub(crate) at: Spot,
}

/// Reads a launch file; None if it is none.
pub(crate) fn read(language: Language, source: &SourceFile) -> Option<Launch<'_>> {
    let mut launch = Launch {
        path: &source.path,
        text: &source.text,
        settings: Vec::new(),
        assigned: Vec::new(),
        commands: Vec::new(),
        directives: Vec::new(),
        containers: Vec::new(),
        trainings: Vec::new(),
        batch: None,
        nccl: release::pinned(&source.text),
        is_controlled: false,
    };
    match language {
        Language::Shell => shell::read(&source.text, 0, &mut launch),
        Language::Yaml => manifest::read(&source.text, &mut launch),
        Language::Dockerfile => image::read(&source.text, &mut launch),
        Language::Env => image::variables(&source.text, &mut launch),
        Language::Json => manifest::configuration(&source.text, &mut launch),
        Language::Python | Language::Requirements | Language::Other => return None,
    }
    Some(launch)
}

impl Launch<'_> {
    /// Number of nodes that the scheduler or a controller gives.
    pub(crate) fn nodes(&self) -> Option<(u64, Spot)> {
        let n = self.directives.iter().filter(|(key, ..)| key == "nodes").count();
        // Several jobs in one file: nobody knows which command is whose.
        if self.is_controlled && n > 1 { None } else { self.directive(&["nodes"]) }
    }

    /// Whether the script itself sets a variable, and no shell that it starts.
    pub(crate) fn is_of_script(&self, setting: &Setting) -> bool {
        let line = self.text.lines().nth(setting.at.line.saturating_sub(1) as usize).unwrap_or_default();
        let line = line.trim_start();
        line.starts_with(setting.name.as_str()) || line.starts_with("export ")
    }

    /// The number that a directive or an option of a command gives.
    pub(crate) fn directive(&self, names: &[&str]) -> Option<(u64, Spot)> {
        let (_, value, at) = self.directives.iter().rfind(|(key, ..)| names.contains(&key.as_str()))?;
        Some((last_number(value)?, *at))
    }

    /// The line of a command, with continued lines, that contains a word.
    pub(crate) fn line_of(&self, command: &Command, word: &str) -> Option<Spot> {
        let first = command.at.line;
        for (line, text) in (first..).zip(self.text.lines().skip(first.saturating_sub(1) as usize)) {
            if let Some(at) = text.find(word) {
                let column = text.get(..at).unwrap_or_default().chars().count() as u32 + 1;
                return Some(Spot { line, column, end_column: column + word.chars().count() as u32 });
            }
            if !text.trim_end().ends_with('\\') {
                break;
            }
        }
        None
    }

    /// Another place of this file that a finding names.
    pub(crate) fn related(&self, at: Spot, text: String) -> Related {
        Related { place: self.place(at), text }
    }

    fn place(&self, at: Spot) -> Location {
        let line = self.text.lines().nth(at.line.saturating_sub(1) as usize).unwrap_or_default();
        Location {
            path: self.path.to_owned(),
            line: at.line,
            column: at.column,
            end_line: at.line,
            end_column: at.end_column.max(at.column + 1),
            function: String::new(),
            text: crate::drafting::quote(line.trim()),
        }
    }

    pub(crate) fn finding(&self, rule: &LintRule, at: Spot, title: String, help: &str) -> LintFinding {
        LintFinding {
            rule: rule.id,
            severity: rule.severity,
            confidence: rule.confidence,
            place: self.place(at),
            title,
            why: Vec::new(),
            related: Vec::new(),
            help: help.to_owned(),
            page: "",
            fix: None,
        }
    }
}

/// Settings of a launcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    pub(crate) nodes: Option<u64>,
    /// Processes of each node.
    pub(crate) per_node: Option<u64>,
    /// Processes of the whole job.
    pub(crate) total: Option<u64>,
}

impl Command {
    /// The program, without its path.
    pub(crate) fn program(&self) -> &str {
        self.words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word))
    }

    /// Whether the command starts this program, also as what another program starts.
    pub(crate) fn starts(&self, program: &str) -> bool {
        let is_it = |word: &String| {
            word.rsplit('/').next() == Some(program)
                || program::launcher_as(ProgramRole::Elastic, word) == Some(program)
        };
        self.words.iter().any(is_it)
    }

    /// The value of an option, with `-` and `_` alike.
    pub(crate) fn option(&self, names: &[&str]) -> Option<&str> {
        let same = |word: &str, name: &str| word.trim_start_matches('-').replace('_', "-") == name;
        for (n, word) in self.words.iter().enumerate().filter(|(_, word)| word.starts_with('-')) {
            if let Some((key, value)) = word.split_once('=')
                && names.iter().any(|name| same(key, name))
            {
                return Some(value);
            }
            if names.iter().any(|name| same(word, name)) {
                return self.words.get(n + 1).map(String::as_str);
            }
        }
        None
    }

    /// What starts the processes of a node: torchrun, accelerate or deepspeed.
    pub(crate) fn launcher(&self) -> Option<Launcher> {
        if self.starts("torchrun") {
            let nodes = self.number(&["nnodes"]);
            return Some(Launcher {
                name: "torchrun",
                nodes,
                per_node: self.number(&["nproc-per-node"]),
                total: None,
            });
        }
        if self.starts("accelerate") && self.words.iter().any(|word| word == "launch") {
            let nodes = self.number(&["num-machines"]);
            let total = self.number(&["num-processes"]);
            return Some(Launcher { name: "accelerate", nodes, per_node: None, total });
        }
        if self.starts("deepspeed") {
            let nodes = self.number(&["num-nodes"]);
            return Some(Launcher {
                name: "deepspeed",
                nodes,
                per_node: self.number(&["num-gpus"]),
                total: None,
            });
        }
        None
    }

    /// Whether it starts Python, directly or through a shell.
    pub(crate) fn starts_python(&self) -> bool {
        let is_python = |word: &str| matches!(word.rsplit('/').next(), Some("python" | "python3"));
        self.words.iter().any(|word| is_python(word))
    }

    /// The number of its node, as it is written.
    pub(crate) fn node_rank(&self) -> Option<&str> {
        self.option(&["node-rank", "machine-rank"])
    }

    /// The number that an option gives; `1:4` is at most 4.
    pub(crate) fn number(&self, names: &[&str]) -> Option<u64> {
        self.option(names).and_then(last_number)
    }
}

/// Whether a size of shared memory is hardly more than the default: `64m`, `128mb`.
pub(crate) fn is_tiny(size: &str) -> bool {
    const LEAST_BYTES: f64 = 256.0 * 1024.0 * 1024.0;
    let size = size.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
    let end = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
    let (number, unit) = size.split_at(end);
    let factor = match unit.trim().chars().next() {
        None | Some('b') => 1.0,
        Some('k') => 1024.0,
        Some('m') => 1024.0 * 1024.0,
        _ => return false,
    };
    number.parse::<f64>().is_ok_and(|n| n * factor < LEAST_BYTES)
}

/// The last number in a value: `gpu:a100:8`, `2-4`.
pub(crate) fn last_number(value: &str) -> Option<u64> {
    if value.contains(['$', '<', '{']) {
        return None;
    }
    value.rsplit([':', '-', '=']).next()?.trim().parse().ok()
}
