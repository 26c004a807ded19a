//! What can stop a run, with its exit code and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use ringleader_bundle::BundleError as BundleTrouble;
use ringleader_probe::sys::LibraryError;
use ringleader_report::quote;

use crate::exit::Code;

/// A run that ended without its report, or with one that says nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line does not parse. Also `--help` and `--version`, which clap treats alike.
    #[error("understand the command line")]
    Usage(#[source] clap::Error),
    /// A variable that sets an option does not fit it.
    #[error("obey {name}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong with its value.
        why: String,
    },
    /// A file of configuration is wrong.
    #[error("read the configuration")]
    Config {
        /// What is wrong, at its line.
        report: String,
    },
    /// A path that was named does not exist.
    #[error("find {}", path.display())]
    NoSuchPath {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
        /// What the command takes.
        help: &'static str,
    },
    /// A file that an option names cannot be read.
    #[error("read {}", path.display())]
    NoSuchFile {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nothing readable, or nothing known, in what was given.
    #[error("find evidence in {what}: {}", none_of(*n_files))]
    NoUsableEvidence {
        /// Files that were read.
        n_files: usize,
        /// The paths that were given.
        what: String,
        /// What to type next; empty where the report says it.
        help: &'static str,
    },
    /// The system gave no access to any of it.
    #[error("read what was given: {why}")]
    Unreadable {
        /// Which file, and why not.
        why: String,
    },
    /// The system does not let this user look at a process.
    #[error("look at process {pid}: {why}")]
    NotOurs {
        /// Pid of the process.
        pid: u32,
        /// Why not.
        why: String,
    },
    /// The process, or the job, that was asked for does not run here.
    #[error("find what was asked for: {why}")]
    Absent {
        /// What is not there.
        why: String,
    },
    /// Nothing is known by the name that was to be explained.
    #[error("explain '{query}': nothing is known by that name")]
    Unknown {
        /// What was asked.
        query: String,
        /// Names that are spelled alike.
        nearest: Vec<String>,
    },
    /// `explain --list` knows no such kind.
    #[error("list '{kind}': there is no such kind")]
    UnknownKind {
        /// What was asked for.
        kind: String,
        /// What there is.
        kinds: String,
    },
    /// No check, or probe, has that name.
    #[error("find a check called '{id}'")]
    UnknownCheck {
        /// What was asked.
        id: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A recorded snapshot is not one.
    #[error("read {} as a snapshot of a node", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The options parse and cannot be obeyed together, or not here.
    #[error("do what was asked: {why}")]
    Nodes {
        /// What is wrong.
        why: String,
        /// What to type next.
        help: &'static str,
    },
    /// The policy of `run` has a fault.
    #[error("read {from}, {fault}")]
    Policy {
        /// The policy file, or the option.
        from: String,
        /// What is wrong, and where.
        fault: Box<ringleader_run::policy::PolicyFault>,
    },
    /// A baseline cannot be used.
    #[error("read {} as a baseline", path.display())]
    Baseline {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A kept measurement cannot be used.
    #[error("read {} as a measurement", path.display())]
    Measurement {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no GPU, or it or one of its libraries failed.
    #[error("{what}")]
    Gpu {
        /// What could not be done.
        what: &'static str,
        /// Why not.
        #[source]
        trouble: LibraryError,
        /// What to do about it.
        help: &'static str,
    },
    /// A file cannot be written.
    #[error("write {}", path.display())]
    CannotWrite {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The program does not find itself, to start its probes.
    #[error("find this program's own file")]
    Program(#[source] io::Error),
    /// A new file could not be made.
    #[error("create {}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A bundle could not be written to its end.
    #[error("write the bundle")]
    Bundle(#[source] BundleTrouble),
    /// The evidence of a live job could not be put down.
    #[error("keep the evidence of the live job in {}", path.display())]
    Live {
        /// The bundle, or the folder for it.
        path: PathBuf,
        /// The user named it.
        is_named: bool,
        /// What failed.
        source: Box<Failure>,
    },
    /// The page and the metrics cannot be served.
    #[error("serve at {address}")]
    Serve {
        /// The address and port that were asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The command that was to be followed cannot be started.
    #[error("start {program}")]
    Start {
        /// Its first word.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// Standard input could not be read.
    #[error("read standard input")]
    Stdin(#[source] io::Error),
    /// The report could not be written.
    #[error("write the report")]
    Write(#[source] io::Error),
    /// The report could not be made.
    #[error("print the report as JSON")]
    Json(#[source] serde_json::Error),
}

impl Failure {
    /// The code to exit with.
    pub fn exit_code(&self) -> Code {
        match self {
            Self::Usage(error) if !error.use_stderr() => Code::NothingFound,
            Self::Live { source, .. } => source.exit_code(),
            Self::Usage(_)
            | Self::Variable { .. }
            | Self::Config { .. }
            | Self::Unknown { .. }
            | Self::UnknownKind { .. }
            | Self::UnknownCheck { .. }
            | Self::Nodes { .. }
            | Self::Policy { .. }
            | Self::Baseline { .. }
            | Self::Measurement { .. } => Code::Usage,
            Self::NoSuchPath { source, .. }
            | Self::NoSuchFile { source, .. }
            | Self::Create { source, .. }
            | Self::CannotWrite { source, .. }
            | Self::Serve { source, .. }
            | Self::Start { source, .. } => of_system(source),
            Self::NoUsableEvidence { .. }
            | Self::Absent { .. }
            | Self::Snapshot { .. }
            | Self::Stdin(_)
            | Self::Gpu { .. } => Code::NoUsableEvidence,
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => Code::NothingFound,
            Self::Unreadable { .. } | Self::NotOurs { .. } => Code::Refused,
            // A full disk is no finding, no usage error and no bug; a script must not take it for one.
            Self::Write(_) | Self::Program(_) | Self::Bundle(BundleTrouble::Write(_)) => Code::Refused,
            Self::Json(_) | Self::Bundle(BundleTrouble::Manifest(_)) => Code::OurBug,
        }
    }

    /// What to print on standard error: what failed, why, and what to type next. Empty if there is nothing to say.
    pub fn message(&self) -> String {
        let (why, help) = match self {
            Self::Usage(error) => return format!("{}{}", error.render(), tip(error)),
            Self::Config { report } => return report.clone(),
            Self::Variable { why, .. } => {
                (why.clone(), "`ringleader help configuration` lists what sets options")
            }
            Self::Unknown { nearest, .. } => {
                let titles: Vec<String> = nearest
                    .iter()
                    .filter_map(|name| ringleader_knowledge::symptom::get(name.strip_prefix("symptom ")?))
                    .map(|row| format!("\n    ringleader explain symptom {:<16} {}", row.id, row.title))
                    .collect();
                let help = if nearest.is_empty() {
                    "`ringleader explain` lists what can be explained, `ringleader explain --list symptoms` what users see"
                        .to_owned()
                } else if titles.len() == nearest.len() {
                    let lines = titles.concat();
                    return format!(
                        "error: failed to {}\n  help: the nearest symptoms are{lines}\n",
                        quote::plain(&self.to_string())
                    );
                } else {
                    format!("did you mean {}?", nearest.join(", "))
                };
                return format!("error: failed to {}\n  help: {help}\n", quote::plain(&self.to_string()));
            }
            Self::UnknownKind { kinds, .. } => (String::new(), &*format!("there is: {kinds}")),
            Self::UnknownCheck { known, .. } => (String::new(), &*format!("there is: {}", known.join(", "))),
            Self::Snapshot { source, .. } => {
                (source.to_string(), "take one with: ringleader check --format node-json")
            }
            Self::Create { source, .. } => {
                (source.to_string(), "name another file with -o; one that exists is not overwritten")
            }
            Self::Bundle(trouble) => {
                let why = std::error::Error::source(trouble).map_or_else(String::new, ToString::to_string);
                (why, "is there space left? --max-mib takes less; what was written so far can be read")
            }
            Self::Live { is_named, source, .. } => {
                let mut why = source.to_string();
                let mut next = std::error::Error::source(&**source);
                while let Some(error) = next {
                    let said = error.to_string();
                    // Whatever wraps an error of the system may have said it already.
                    why = if why.ends_with(&said) { why } else { format!("{why}: {said}") };
                    next = error.source();
                }
                let help = if *is_named {
                    "is there space left? --keep names another file; one that exists is not overwritten"
                } else {
                    "is there space left? TMPDIR names another folder, --keep FILE another file"
                };
                (why, help)
            }
            Self::Nodes { help, .. } => (String::new(), *help),
            Self::Policy { fault, .. } => {
                let said = quote::plain(&self.to_string());
                let help = "`ringleader run --print-policy` prints a complete policy";
                return format!("error: failed to {said}\n{}  help: {help}\n", pointed(fault));
            }
            Self::Baseline { why, .. } => {
                (why.clone(), "take one with: ringleader check --save-baseline FILE")
            }
            Self::Measurement { why, .. } => (why.clone(), "keep one with: ringleader bench --save FILE"),
            Self::Gpu { trouble, help, .. } => (trouble.to_string(), *help),
            Self::CannotWrite { source, .. } => {
                (source.to_string(), "does the folder exist, and is there space left?")
            }
            Self::Serve { source, .. } => (source.to_string(), "name a free port: --serve 8081"),
            Self::Start { source, .. } => (
                source.to_string(),
                "is it a program that can be found? What follows -- is its name or path, then its arguments",
            ),
            Self::Program(error) => (error.to_string(), "is /proc mounted, and is the program still there?"),
            Self::NoSuchPath { source, help, .. } => (source.to_string(), *help),
            Self::NoSuchFile { source, .. } => (source.to_string(), "is it there, and may you read it?"),
            Self::NoUsableEvidence { help, .. } => (String::new(), *help),
            Self::Unreadable { .. } => {
                (String::new(), "run as the owner of the files, or grant access to them")
            }
            Self::NotOurs { .. } => {
                (String::new(), "run as the user whose process it is (sudo -u USER), or as root")
            }
            Self::Absent { .. } => (
                String::new(),
                "does it still run, and on this node? check, collect and watch find ranks by themselves without --pid and --job",
            ),
            Self::Stdin(error) => (error.to_string(), "give the text as an argument"),
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => return String::new(),
            Self::Write(error) => (error.to_string(), "is there space left where standard output goes?"),
            Self::Json(error) => {
                (error.to_string(), "please report this with the evidence, as far as you may share it")
            }
        };
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let help = if help.is_empty() { String::new() } else { format!("  help: {help}\n") };
        format!("error: failed to {}\n{help}", quote::plain(&format!("{self}{why}")))
    }
}

/// What to type next where no file is of use, or a path is not there.
pub(crate) const HELP_EVIDENCE: &str = "`ringleader help evidence` lists what is read and how to get it";
pub(crate) const HELP_DIAGNOSE: &str =
    "name a folder, files, or - for standard input: ringleader diagnose PATH…";

/// Paths in a message, of many the first.
pub(crate) fn listed(paths: &[PathBuf]) -> String {
    const MAX: usize = 3;
    let mut shown: Vec<String> = paths.iter().take(MAX).map(|path| path.display().to_string()).collect();
    if paths.len() > MAX {
        shown.push(format!("{} more", paths.len() - MAX));
    }
    shown.join(", ")
}

fn none_of(n_files: usize) -> String {
    match n_files {
        0 => "no file could be read there".to_owned(),
        1 => "1 file read, not of a known kind".to_owned(),
        n => format!("{n} files read, none of a known kind"),
    }
}

/// What a frequent slip on the command line means.
fn tip(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let name = said(ContextKind::InvalidSubcommand);
    if name.contains(['/', '.']) || !name.is_empty() && std::path::Path::new(name).exists() {
        return format!("  tip: to diagnose files: ringleader diagnose {}\n", quote::plain(name));
    }
    if said(ContextKind::InvalidValue) == "html" && said(ContextKind::InvalidArg).starts_with("--format") {
        return "  tip: the page is written to a file: --html FILE\n".to_owned();
    }
    String::new()
}

/// What is asked about processes has an answer only where /proc is mounted: without it no process is missing, nothing is known.
pub(crate) fn has_proc() -> Result<(), Failure> {
    std::env::current_exe().map(drop).map_err(Failure::Program)
}

/// The code for what the system answered about a path or an address that was named: it is wrong, or it is refused.
fn of_system(error: &io::Error) -> Code {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound
        | Kind::AlreadyExists
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::InvalidInput
        | Kind::InvalidFilename
        | Kind::AddrInUse
        | Kind::AddrNotAvailable => Code::Usage,
        _ => Code::Refused,
    }
}

/// Where and why the last panic happened, for [`our_bug`].
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps panics off the terminal until the top says what they mean.
pub(crate) fn record_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = info.to_string();
        }
    }));
}

/// What the last panic said, on one line, safe to print.
pub(crate) fn last_panic() -> String {
    let text = LAST_PANIC.lock().map(|last| last.clone()).unwrap_or_default();
    quote::plain(&text.replace('\n', " "))
}

/// The message for a panic that reached the top.
pub(crate) fn our_bug() -> String {
    format!(
        "error: this is a bug of ringleader, not of your job: {}\n  \
         help: nothing was changed; please report it with the evidence, as far as you may share it\n",
        last_panic()
    )
}

/// The faulty line, and below it a pointer.
fn pointed(fault: &ringleader_run::policy::PolicyFault) -> String {
    let head: String = fault.text.chars().take(fault.column.saturating_sub(1) as usize).collect();
    let blank = " ".repeat(quote::columns(&quote::plain(&head)));
    format!("    {}\n    {blank}^\n", quote::plain(&fault.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_from_what_is_refused() {
        let code = |kind: io::ErrorKind| {
            let path = PathBuf::from("/x");
            let named = [
                Failure::CannotWrite { path: path.clone(), source: kind.into() },
                Failure::Create { path: path.clone(), source: kind.into() },
                Failure::NoSuchFile { path, source: kind.into() },
                Failure::Serve { address: ([127, 0, 0, 1], 80).into(), source: kind.into() },
                Failure::Start { program: "x".to_owned(), source: kind.into() },
            ];
            let codes = named.map(|failure| failure.exit_code());
            assert!(codes.iter().all(|code| *code == codes[0]), "{kind}: {codes:?}");
            codes[0]
        };
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists, io::ErrorKind::AddrInUse] {
            assert_eq!(code(kind), Code::Usage, "{kind}");
        }
        for kind in [
            io::ErrorKind::StorageFull,
            io::ErrorKind::QuotaExceeded,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ] {
            assert_eq!(code(kind), Code::Refused, "{kind}");
            assert_eq!(Failure::Write(kind.into()).exit_code(), Code::Refused, "{kind}");
            assert_eq!(
                Failure::Bundle(BundleTrouble::Write(kind.into())).exit_code(),
                Code::Refused,
                "{kind}"
            );
        }
        assert_eq!(Failure::Write(io::ErrorKind::BrokenPipe.into()).exit_code(), Code::NothingFound);
    }

    #[test]
    fn a_live_diagnosis_without_room_names_where_and_its_own_options() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let no_room = || Failure::Bundle(BundleTrouble::Write(full()));
        let no_folder = || Failure::Create { path: "/scratch".into(), source: full() };
        for source in [no_room(), no_folder()] {
            let code = source.exit_code();
            let live = Failure::Live { path: "/scratch".into(), is_named: false, source: Box::new(source) };
            let message = live.message();
            assert!(message.contains("/scratch") && message.contains(&full().to_string()), "{message}");
            assert!(message.contains("TMPDIR") && !message.contains("--max-mib"), "{message}");
            assert_eq!(live.exit_code(), code);
        }
        let named = Failure::Live { path: "/kept".into(), is_named: true, source: Box::new(no_room()) };
        assert!(
            named.message().contains("--keep") && !named.message().contains(" -o"),
            "{}",
            named.message()
        );
    }
}
