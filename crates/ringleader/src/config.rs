//! Options from variables and files: flag > `RINGLEADER_*` > project file > user file > system file.
//!
//! The list of options is the command line's own, so that an option exists in all of these places as soon as it exists. What is
//! set here becomes the option's default: a flag always wins, and what contradicts a flag is passed over.

mod file;
mod place;
mod wrong;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::failure::Failure;

/// Commands that take no configuration: help, and the probes that the program starts for itself.
const WITHOUT: [&str; 2] = ["help", "probe"];
/// Variables by which no option is set: other parts read them.
const RESERVED: [&str; 8] = [
    "RINGLEADER_BUNDLE",
    "RINGLEADER_CHAIN",
    "RINGLEADER_NO_CONFIG",
    "RINGLEADER_PLUGIN",
    "RINGLEADER_PLUGIN_EVENTS",
    "RINGLEADER_PLUGIN_FOLLOW",
    "RINGLEADER_PROFILE",
    "RINGLEADER_RING_DIR",
];

/// Variables that a job, the plugin, the Python package or our tests read.
const OTHERS: [&str; 13] = [
    "RINGLEADER_ATTEMPT",
    "RINGLEADER_BIN",
    "RINGLEADER_CHECKPOINT",
    "RINGLEADER_CHECKPOINT_STEP",
    "RINGLEADER_COMMIT",
    "RINGLEADER_DUMP_DIR",
    "RINGLEADER_GENERATION",
    "RINGLEADER_NCCL",
    "RINGLEADER_PLUGIN_NEXT",
    "RINGLEADER_PROFILE_DIR",
    "RINGLEADER_SEEDS",
    "RINGLEADER_SUPERVISOR",
    "RINGLEADER_TEST_HUNG_MOUNT",
];

/// How variables that set options begin.
const PREFIX: &str = "RINGLEADER_";

/// Where a value was set, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Variable,
    Project,
    User,
    System,
}

/// A value for an option of the command that runs.
struct Set {
    id: String,
    values: Vec<String>,
    layer: Layer,
}

/// The command line with what variables and files add to it.
///
/// # Errors
/// If one of the three cannot be obeyed.
pub(crate) fn matches(
    program: Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, Failure> {
    let args: Vec<OsString> = args.into_iter().collect();
    let program = without_variables(program);
    let given = program.clone().try_get_matches_from(&args).map_err(Failure::Usage)?;
    let Some((name, own)) = given.subcommand().filter(|(name, _)| !WITHOUT.contains(name)) else {
        return Ok(given);
    };
    let Some(command) = program.find_subcommand(name) else { return Ok(given) };
    misspelt(&program);
    let mut set = variables(command)?;
    for found in place::files(&evidence(command, own)) {
        set.extend(file::read(&found.path, found.layer, &program, command)?);
    }
    let set = chosen(command, own, set);
    if set.is_empty() {
        return Ok(given);
    }
    let name = name.to_owned();
    let program = program.mut_subcommand(name, |command| set.iter().fold(command, with));
    program.try_get_matches_from(&args).map_err(Failure::Usage)
}

/// The option with this value as its default.
fn with(command: Command, set: &Set) -> Command {
    command.mut_arg(&set.id, |arg| arg.default_values(set.values.clone()))
}

/// The variables are read here, and not by clap: to clap they are as strong as a flag, and contradict it.
fn without_variables(program: Command) -> Command {
    let names: Vec<String> = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(program, |program, name| {
        program.mut_subcommand(name, |command| command.mut_args(|arg| arg.env(None::<&str>)))
    })
}

/// What an option is called in a file: its long name.
fn options(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let is_one = |arg: &&Arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version);
    command.get_arguments().filter(is_one).filter_map(|arg| Some((arg.get_long()?, arg)))
}

/// What an option is called as a variable.
fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.replace('-', "_").to_uppercase())
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == ValueParser::path_buf().type_id()
}

fn takes_several(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

fn variables(command: &Command) -> Result<Vec<Set>, Failure> {
    let mut out = Vec::new();
    for (long, arg) in options(command) {
        let name = variable(long);
        let value = std::env::var_os(&name).filter(|value| !value.is_empty());
        let Some(value) = value.filter(|_| !RESERVED.contains(&&*name)) else { continue };
        let wrong = |why: String| Failure::Variable { name: name.clone(), why };
        let value = value.into_string().map_err(|_| wrong("it is not text".to_owned()))?;
        let values = if is_flag(arg) {
            // As everywhere: whatever does not say no means yes.
            let no = ["0", "f", "false", "n", "no", "off"];
            vec![(!no.contains(&&*value.to_ascii_lowercase())).to_string()]
        } else if takes_several(arg) {
            value.split(arg.get_value_delimiter().unwrap_or(',')).map(str::to_owned).collect()
        } else {
            vec![value]
        };
        misfit(command, long, arg, &values).map_or(Ok(()), |why| Err(wrong(why)))?;
        out.push(Set { id: arg.get_id().to_string(), values, layer: Layer::Variable });
    }
    Ok(out)
}

/// Says which variables are spelt nearly as one that sets an option. What has no such name belongs to others.
fn misspelt(program: &Command) {
    let known: BTreeSet<String> = program
        .get_subcommands()
        .flat_map(|command| options(command).map(|(long, _)| variable(long)))
        .chain(RESERVED.iter().chain(&OTHERS).map(|name| (*name).to_owned()))
        .collect();
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX) && !known.contains(*name))
        else {
            continue;
        };
        if let Some(near) = nearly(name, &known) {
            // Nobody is left to tell if standard error is gone.
            let _ = writeln!(std::io::stderr(), "note: nothing reads {name}: {near} is spelt nearly so");
        }
    }
}

/// The name that one or two letters tell from this one.
fn nearly<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let own = &name[PREFIX.len()..];
    // Of short names another one is as near.
    let most = match own.len() {
        0..=4 => 0,
        5..=8 => 1,
        _ => 2,
    };
    let near = known.iter().map(|other| (strsim::osa_distance(own, &other[PREFIX.len()..]), other.as_str()));
    near.filter(|(distance, _)| (1..=most).contains(distance)).min().map(|(_, other)| other)
}

/// Why the option does not take these values, in clap's words.
fn misfit(command: &Command, long: &str, arg: &Arg, values: &[String]) -> Option<String> {
    if is_flag(arg) {
        return None;
    }
    let given = values.iter().map(|value| format!("--{long}={value}"));
    let given = if takes_several(arg) { given.collect() } else { given.take(1).collect::<Vec<_>>() };
    let line = std::iter::once(command.get_name().to_owned()).chain(given);
    let error = command.clone().try_get_matches_from(line).err()?;
    let is_about_value =
        matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::NoEquals);
    is_about_value.then(|| {
        let text = error.render().to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("For more information"));
        let said = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        said.trim_start_matches("error: ").to_owned()
    })
}

/// The strongest value of each option, without those that contradict a flag or something stronger.
fn chosen(command: &Command, given: &ArgMatches, mut set: Vec<Set>) -> Vec<Set> {
    set.sort_by_key(|set| set.layer);
    let is_typed = |arg: &&Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let mut taken: BTreeSet<String> =
        command.get_arguments().filter(is_typed).map(|arg| arg.get_id().to_string()).collect();
    set.retain(|set| {
        let contradicted = contradictions(command, &set.id).any(|other| taken.contains(&other));
        let is_off = set.values == ["false"];
        !contradicted && taken.insert(set.id.clone()) && !is_off
    });
    set
}

/// Options that contradict this one, whichever of the two says so.
fn contradictions<'a>(command: &'a Command, id: &'a str) -> impl Iterator<Item = String> + 'a {
    let of = |arg: &Arg| -> BTreeSet<String> {
        command.get_arg_conflicts_with(arg).iter().map(|other| other.get_id().to_string()).collect()
    };
    let own = command.get_arguments().find(|arg| arg.get_id() == id).map(of).unwrap_or_default();
    let others = command.get_arguments().filter(move |arg| of(arg).contains(id));
    own.into_iter().chain(others.map(|arg| arg.get_id().to_string()))
}

/// Paths with evidence on the command line. Code that is looked at is none.
fn evidence(command: &Command, given: &ArgMatches) -> Vec<PathBuf> {
    let is_one = |arg: &&Arg| is_path(arg) && (arg.is_positional() || arg.get_long() == Some("replay"));
    let args = command.get_arguments().filter(is_one).filter(|_| command.get_name() != "lint");
    let raw = args.filter_map(|arg| given.get_raw(arg.get_id().as_str())).flatten();
    raw.filter(|path| *path != "-").map(|path| Path::new(path).to_owned()).collect()
}

/// The files that would be read from here, for `version --verbose`.
pub(crate) fn places() -> Vec<PathBuf> {
    place::files(&[]).into_iter().map(|found| found.path).collect()
}

#[cfg(test)]
mod tests;
