//! `ringleader env`: the settings that make the next failure diagnosable, for what is installed here.

pub mod answer;
mod installed;
mod job;
mod plan;
mod show;

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use ringleader_knowledge::export::Meets;
use ringleader_knowledge::version::NcclVersion as Release;
use ringleader_report::quote::plain;

use crate::command::{Subcommand, print};
use crate::env::answer::{Answer, Check, Compared, Standing, State, Variable};
use crate::env::installed::Installed;
use crate::env::job::{RunningJob, Sort};
use crate::env::plan::{Setting, SettingFate, Wants, fate};
use crate::exit::Code;
use crate::failure::{Failure, has_proc};
use crate::plugin;

/// Name of the format.
const SCHEMA: &str = "ringleader.env.v1";
/// Folder for logs and dumps, below the working directory.
const FOLDER: &str = "ringleader-evidence";
const WIDTH: usize = 80;

/// Print the settings that make the next failure diagnosable: eval "$(ringleader env)" before the start
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/env.txt"))]
pub(crate) struct EnvArgs {
    /// Compare the running job of this process with these settings: what is missing, and what that costs
    #[arg(long, value_name = "PID")]
    check: Option<u32>,
    /// Form of the output; json is json-v1
    #[arg(long, value_enum, default_value_t = EnvFormat::Shell)]
    format: EnvFormat,
    /// Folder for logs and dumps, preferably shared by all nodes [default: ./ringleader-evidence]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The Python whose PyTorch the job uses [default: the one of this shell]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Also settings that cost time in each call: every call in NCCL's log, native frames, start times
    #[arg(long)]
    full: bool,
    /// Also settings that `trace record` needs
    #[arg(long)]
    timeline: bool,
    /// Leave every value that is set, also one that is not suitable: for a prolog, whose user has chosen it
    #[arg(long, conflicts_with = "check")]
    keep: bool,
    /// Print settings without reasons
    #[arg(long, short, value_parser = FalseyValueParser::new())]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EnvFormat {
    /// Lines for a shell, or what `--check` found, for people
    Shell,
    Json,
    JsonV1,
    /// NAME=value
    Dotenv,
    /// Output of a TaskProlog
    Slurm,
    /// `env:` of a container
    K8s,
}

impl Subcommand for EnvArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let here = std::env::current_dir().unwrap_or_default();
        let dir = here.join(self.dir.as_deref().unwrap_or(Path::new(FOLDER)));
        if let Some(python) = &self.python {
            let missing = |source| Failure::NoSuchFile { path: python.clone(), source };
            std::fs::metadata(python).map_err(missing)?;
        }
        let mut installed = installed::find(self.python.as_deref());
        let job = match self.check {
            Some(pid) => {
                Some(RunningJob::read(Path::new("/proc"), pid).map_err(|source| unreadable(pid, &source))?)
            }
            None => None,
        };
        if let (Some(pid), Some(Sort::NoRank)) = (self.check, job.as_ref().map(|job| job.sort)) {
            return Err(Failure::Absent { why: no_rank(pid) });
        }
        let next = self.next(job.as_ref(), &installed);
        // What a job has loaded is what counts for it.
        if let Some(job) = &job {
            installed.torch = job.torch.clone().or(installed.torch);
            installed.nccl = job.nccl.clone().or(installed.nccl);
        }
        let wants = Wants {
            is_full: self.full,
            has_timeline: self.timeline,
            ..Wants::of(&installed, plugin::find(), &dir)
        };
        let settings = wants.settings();
        let mut without_nccl = false;
        let check = job.map(|job| {
            let mut check = job.check(&settings, wants.torch, wants.nccl);
            check.settings.splice(0..0, without_plugin(&job, &wants));
            if job.sort == Sort::WithoutNccl {
                check.settings.retain(|setting| !is_of_nccl(&setting.name));
                without_nccl = true;
            }
            check
        });
        let lacks = check
            .as_ref()
            .is_some_and(|check| check.settings.iter().any(|setting| setting.standing != Standing::Good));
        let mut answer = answer(&installed, &wants, &settings, check, self.keep);
        if without_nccl {
            answer.notes = vec![WITHOUT_NCCL.to_owned()];
        }
        let text = match (self.format, &answer.check) {
            (EnvFormat::Json | EnvFormat::JsonV1, _) => {
                serde_json::to_string_pretty(&answer).map(|text| text + "\n").map_err(Failure::Json)?
            }
            (EnvFormat::Shell, Some(check)) => said(&answer, check, &next, self.quiet),
            (EnvFormat::Shell, None) => show::shell(&answer, self.quiet),
            (EnvFormat::Dotenv, _) => show::dotenv(&answer),
            (EnvFormat::Slurm, _) => show::slurm(&answer),
            (EnvFormat::K8s, _) => show::k8s(&answer),
        };
        if !self.quiet {
            self.remark(&answer);
        }
        print(&text)?;
        Ok(if lacks { Code::Findings } else { Code::NothingFound }.into())
    }
}

impl EnvArgs {
    /// The command that prints the settings for the next start of a job: with what was asked here, and with the Python of the job
    /// where this shell's has other packages.
    fn next(&self, job: Option<&RunningJob>, installed: &Installed) -> String {
        let of_job = || {
            let python = job?.python.clone()?;
            let own = installed::find(Some(&python));
            ((own.torch, own.nccl) != (installed.torch.clone(), installed.nccl.clone())).then_some(python)
        };
        let mut command = "ringleader env".to_owned();
        for (name, path) in [("--python", self.python.clone().or_else(of_job)), ("--dir", self.dir.clone())] {
            if let Some(path) = path {
                let _ = write!(command, " {name} {}", show::quoted(&path.to_string_lossy()));
            }
        }
        for (name, is_asked) in [("--full", self.full), ("--timeline", self.timeline)] {
            if is_asked {
                let _ = write!(command, " {name}");
            }
        }
        format!("eval \"$({command})\"")
    }

    /// What must be known where the printed lines go to a shell or a file: on standard error.
    fn remark(&self, answer: &Answer) {
        let is_shown = std::io::stdout().is_terminal();
        let mut out = std::io::stderr().lock();
        for remark in self.remarks(answer, is_shown) {
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(out, "note: {remark}");
        }
    }

    /// `is_shown`: the user reads the lines themselves, whose comments say the same.
    fn remarks(&self, answer: &Answer, is_shown: bool) -> Vec<String> {
        let mut remarks = Vec::new();
        if is_shown && self.format == EnvFormat::Shell && answer.check.is_none() {
            return remarks;
        }
        // Of a running job the report itself says what it has loaded.
        if answer.check.is_none() {
            let is_missing = |note: &&String| note.starts_with("PyTorch ") || note.starts_with("NCCL ");
            remarks.extend(answer.notes.iter().filter(is_missing).cloned());
        }
        let is_asked_for = answer.check.is_none() || !answer.notes.iter().any(|note| note == WITHOUT_NCCL);
        if answer.installed.plugin.is_none() && is_asked_for {
            remarks.push(format!("{}; without it nothing sees single operations of NCCL", plugin::missing()));
        }
        if matches!(self.format, EnvFormat::Dotenv | EnvFormat::Slurm | EnvFormat::K8s) {
            remarks.push(format!(
                "these lines do not create {}, into which logs and dumps go: create it on every node (mkdir -p), or name a \
                 shared folder with --dir",
                plain(&answer.directory)
            ));
        }
        remarks
    }
}

/// What there is to say of a job that has not loaded NCCL.
const WITHOUT_NCCL: &str = "no process of this job has loaded NCCL: it uses gloo or another backend, and settings of NCCL (NCCL_*, \
                            TORCH_NCCL_*) have no effect there";

/// Names that only NCCL, or PyTorch's backend for it, reads, and the path on which NCCL finds a plugin.
fn is_of_nccl(name: &str) -> bool {
    name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_") || name == "LD_LIBRARY_PATH"
}

fn no_rank(pid: u32) -> String {
    format!(
        "process {pid} is no rank: neither it nor a process that it started has a rank in its environment (RANK, SLURM_PROCID, \
         OMPI_COMM_WORLD_RANK and others), and it has loaded neither PyTorch nor NCCL"
    )
}

/// The plugin, as a setting that a job lacks: it was not found, so no value for it can be named.
fn without_plugin(job: &RunningJob, wants: &Wants) -> Option<Compared> {
    const NAME: &str = "NCCL_PROFILER_PLUGIN";
    let row = ringleader_knowledge::export::all().iter().find(|row| row.name == NAME)?;
    let pids = job.without(NAME);
    let is_wanted = wants.plugin.is_none() && wants.nccl.is_some() && row.is_read_by(wants.nccl);
    (is_wanted && !pids.is_empty()).then(|| Compared {
        name: NAME.to_owned(),
        standing: Standing::Missing,
        is: None,
        should: None,
        why: format!("{} ({})", row.without, plugin::missing()),
        pids,
    })
}

fn unreadable(pid: u32, source: &std::io::Error) -> Failure {
    if let Err(failure) = has_proc() {
        return failure;
    }
    match source.kind() {
        std::io::ErrorKind::NotFound => Failure::Absent { why: format!("no process {pid} runs here") },
        std::io::ErrorKind::PermissionDenied => Failure::NotOurs { pid, why: source.to_string() },
        kind => Failure::NoSuchFile { path: format!("/proc/{pid}/environ").into(), source: kind.into() },
    }
}

fn answer(
    installed: &Installed,
    wants: &Wants,
    settings: &[Setting],
    check: Option<Check>,
    is_kept: bool,
) -> Answer {
    let text = |path: &Path| path.display().to_string();
    let version =
        |package: &Option<installed::Package>| package.as_ref().map(|package| package.version.clone());
    // With --check the environment of this shell says nothing.
    let current = |name: &str| check.is_none().then(|| std::env::var(name).ok()).flatten();
    // Under an old name it is set as well, and the new one would be stronger.
    let of_user = |setting: &Setting| {
        let old = setting.row.old.iter().filter(|_| is_kept);
        let mut names = std::iter::once(&setting.row.name).chain(old);
        names.find_map(|name| current(name).filter(|value| !value.is_empty()))
    };
    let variables = settings.iter().filter_map(|setting| {
        let mut value = setting.value.clone();
        let extends = setting.row.meets == Meets::PathHolds;
        let (state, was) = match fate(setting, of_user(setting).as_deref()) {
            SettingFate::Set => (State::Export, None),
            // What only adds to a value takes nothing from it.
            SettingFate::Replaces(was) if is_kept && !extends => (State::Left, Some(was)),
            SettingFate::Replaces(was) => {
                if extends {
                    value = format!("{value}:{was}");
                }
                (State::Export, Some(was))
            }
            SettingFate::Does(was) => (State::Kept, Some(was)),
            SettingFate::Left(was) => (State::Left, Some(was)),
            SettingFate::Unset => return None,
        };
        let row = setting.row;
        Some(Variable {
            name: row.name.to_owned(),
            value,
            reader: row.reader.name().to_owned(),
            state,
            was,
            gives: row.gives.to_owned(),
            costs: row.costs.to_owned(),
            without: row.without.to_owned(),
        })
    });
    let mut notes = Vec::new();
    for (name, package, release) in
        [("PyTorch", &installed.torch, wants.torch), ("NCCL", &installed.nccl, wants.nccl)]
    {
        if release.is_none() {
            let found = package.as_ref().map_or("was not found", |_| "has no version that can be read");
            notes.push(format!(
                "{name} {found}: names that any of its releases reads are printed; --python names its Python"
            ));
        }
    }
    if wants.plugin.is_none() {
        notes.push(plugin::missing());
    }
    Answer {
        schema: SCHEMA.to_owned(),
        installed: answer::Installed {
            python: installed.python.as_deref().map(text),
            torch: version(&installed.torch),
            nccl: version(&installed.nccl),
            plugin: wants.plugin.as_deref().map(text),
        },
        directory: text(&wants.dir),
        variables: variables.collect(),
        notes,
        check,
    }
}

/// What a running job lacks, for people.
fn said(answer: &Answer, check: &Check, next: &str, is_quiet: bool) -> String {
    let mut out = String::new();
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "not found".to_owned());
    let processes = if check.pids.len() == 1 { "process" } else { "processes" };
    let _ = writeln!(
        out,
        "job of pid {}: {} {processes}; PyTorch {}, NCCL {}",
        check.pid,
        check.pids.len(),
        version(&answer.installed.torch),
        version(&answer.installed.nccl)
    );
    let bad: Vec<_> = check.settings.iter().filter(|setting| setting.standing != Standing::Good).collect();
    for setting in &bad {
        let is = setting.is.as_deref().map_or(String::new(), |is| format!("={}", plain(is)));
        let of = if setting.pids.len() == check.pids.len() {
            String::new()
        } else {
            let pids: Vec<String> = setting.pids.iter().map(u32::to_string).collect();
            format!(" (pid {})", pids.join(", "))
        };
        let _ = writeln!(out, "  {:<8} {}{is}{of}", setting.standing.name(), setting.name);
        if is_quiet {
            continue;
        }
        let should =
            setting.should.as_deref().map_or(String::new(), |value| format!("should be {}; ", plain(value)));
        let why = match setting.standing {
            Standing::Missing => format!("{should}without it: {}", setting.why),
            Standing::Differs => format!("{should}with this value: {}", setting.why),
            _ => setting.why.clone(),
        };
        for line in wrapped(&why, WIDTH - 11) {
            let _ = writeln!(out, "           {line}");
        }
    }
    let n_good = check.settings.len() - bad.len();
    let _ = writeln!(out, "  good     {n_good} of {} settings", check.settings.len());
    if answer.notes.iter().any(|note| note == WITHOUT_NCCL) {
        for line in wrapped(WITHOUT_NCCL, WIDTH) {
            let _ = writeln!(out, "{line}");
        }
    }
    if !bad.is_empty() {
        let before = "A running job cannot be changed. Before its next start:";
        // A command that does not fit has a line of its own, to be copied whole.
        let gap = if before.len() + 1 + next.chars().count() <= WIDTH { " " } else { "\n  " };
        let _ = writeln!(out, "{before}{gap}{}", plain(next));
    }
    out
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The table as Python code: what the package falls back on where this program is not to be had.
pub fn python_table() -> String {
    use ringleader_knowledge::export::{self, Needs, SettingLevel};
    let release = |release: Option<Release>| {
        release.map_or("None".to_owned(), |at| format!("({}, {}, {})", at.major, at.minor, at.patch))
    };
    let rows =
        export::all().iter().filter(|row| row.level == SettingLevel::Usual && row.needs == Needs::Nothing);
    let mut out = String::from(
        "\"\"\"Settings that make the next failure diagnosable. Made by `cargo xtask gen`; do not edit.\"\"\"\n\n\
         # name, reader, first release, first release that no longer counts, value ({dir}: the folder for evidence)\nEXPORTS = [\n",
    );
    for row in rows.filter(|row| row.is_printed) {
        let _ = writeln!(
            out,
            "    ({:?}, {:?}, {}, {}, {:?}),",
            row.name,
            row.reader.name(),
            release(row.from),
            release(row.until),
            row.value
        );
    }
    out.push_str("]\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_each_note_once() {
        let args = EnvArgs {
            check: None,
            format: EnvFormat::Shell,
            dir: None,
            python: None,
            full: false,
            timeline: false,
            keep: false,
            quiet: false,
        };
        let installed = Installed::default();
        let answer =
            answer(&installed, &Wants::of(&installed, None, Path::new("/evidence")), &[], None, false);
        assert_eq!(answer.notes.len(), 3, "{:?}", answer.notes);
        assert_eq!(args.remarks(&answer, false).len(), 3, "behind eval the comments are not seen");
        assert_eq!(args.remarks(&answer, true), Vec::<String>::new());
    }
}
