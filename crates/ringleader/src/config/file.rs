//! One file: its keys are long options. At its top they are for every command that has them, in `[NAME]` for one.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use clap::{Arg, Command};
use strsim::jaro_winkler;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::wrong::Wrong;
use crate::config::{Layer, Set, WITHOUT, is_flag, is_path, misfit, options, takes_several};
use crate::failure::Failure;

/// A file of configuration is small.
const MAX_BYTES: u64 = 1 << 20;
/// Options that a project's file may not set to any value: programs to start, addresses to contact, libraries to load, processes to
/// end. Each option is here or below, and one that is in neither list is refused (a test asks).
pub(super) const NOT_IN_A_PROJECT: &[&str] = &[
    "on-stall",
    "on-decision",
    "webhook",
    "webhook-template",
    "serve",
    "hub",
    "hosts",
    "hostfile",
    "slurm",
    "kube",
    "ssh-config",
    "remote-program",
    "copy",
    "peer",
    "fleet-peer",
    "address",
    "master",
    "nccl",
    "python",
    "policy",
    "set",
    "state",
    "kill-orphans",
    "inject",
    "unstable-cuda",
    "unstable-nvml",
    "unstable-ssh",
    "unstable-slurm",
    "unstable-supervise",
    "unstable-verdict",
];

/// Options that a project's file may set, if they are flags, numbers, choices, or paths below the project.
pub(super) const IN_A_PROJECT: &[&str] = &[
    "against",
    "ask-dump",
    "baseline",
    "brief",
    "brief-bytes",
    "changed-since",
    "check",
    "checkpoints",
    "checks",
    "color",
    "confidence",
    "connect-timeout-secs",
    "container",
    "deadline-ms",
    "dir",
    "dtype",
    "end-grace",
    "factor",
    "fail-on",
    "file",
    "fix",
    "for",
    "format",
    "from",
    "full",
    "gpus",
    "graphs",
    "history",
    "hold",
    "html",
    "ignore",
    "in-use",
    "info",
    "interval",
    "iterations",
    "job",
    "join-within",
    "json",
    "keep",
    "latencies",
    "lemons",
    "list",
    "live",
    "lost-after",
    "margin-mib",
    "max-bytes",
    "max-item-mib",
    "max-mib",
    "metrics",
    "min-bytes",
    "min-nodes",
    "namespace",
    "no-history",
    "no-in-place",
    "no-logs",
    "no-pager",
    "no-pairs",
    "no-ras",
    "no-readback",
    "no-screen",
    "no-stacks",
    "node",
    "node-deadline-secs",
    "nodes",
    "once",
    "only",
    "op",
    "out",
    "output",
    "parallel",
    "perfetto",
    "pid",
    "png",
    "print-checkpoint",
    "print-policy",
    "print-scripts",
    "prove",
    "quick",
    "quiet",
    "record-late",
    "replay",
    "rings",
    "root",
    "save",
    "save-baseline",
    "seed",
    "select",
    "silence-floor",
    "since",
    "source",
    "stall-factor",
    "stall-floor",
    "stay",
    "step-bytes",
    "svg",
    "tests",
    "timeline",
    "timeout-secs",
    "unstable-brief",
    "unstable-first-floor",
    "unstable-node",
    "unstable-once",
    "unstable-root",
    "until-verdict",
    "verbose",
    "warmup",
    "width",
    "write-baseline",
];

/// What it sets for `command`.
///
/// # Errors
/// If it cannot be read, or holds what no command of `program` knows, for `command` or for another one.
pub(super) fn read(
    path: &Path,
    layer: Layer,
    program: &Command,
    command: &Command,
) -> Result<Vec<Set>, Failure> {
    let failed = |source| Failure::NoSuchFile { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    parse(&text, layer, program, command)
        .map_err(|wrong| Failure::Config { report: wrong.render(path, &text) })
}

pub(super) fn parse(
    text: &str,
    layer: Layer,
    program: &Command,
    command: &Command,
) -> Result<Vec<Set>, Wrong> {
    let table = DeTable::parse(text).map_err(|error| {
        Wrong::new(error.span().unwrap_or(0..0), error.message().to_owned(), "this is not TOML")
    })?;
    let mut general = Vec::new();
    let mut own = Vec::new();
    for (key, value) in table.get_ref() {
        let name = key.get_ref().as_ref();
        if let DeValue::Table(section) = value.get_ref() {
            let of = commands(program).find(|command| command.get_name() == name);
            let of = of.ok_or_else(|| unknown(key, "a command", commands(program).map(Command::get_name)))?;
            for (key, value) in section {
                let set = entry(key, value, layer, of)?.ok_or_else(|| {
                    unknown(key, "an option of this command", options(of).map(|(long, _)| long))
                })?;
                if of.get_name() == command.get_name() {
                    own.push(set);
                }
            }
            continue;
        }
        // Commands take different words for one option: what fits none of them is wrong.
        let mut is_known = false;
        let mut misfit = None;
        for of in commands(program) {
            let set = match entry(key, value, layer, of) {
                Ok(Some(set)) => set,
                Ok(None) => continue,
                Err(wrong) if wrong.is_misfit => {
                    misfit = misfit.or(Some(wrong));
                    continue;
                }
                Err(wrong) => return Err(wrong),
            };
            is_known = true;
            if of.get_name() == command.get_name() {
                general.push(set);
            }
        }
        if let (false, Some(wrong)) = (is_known, misfit) {
            return Err(wrong);
        }
        if !is_known {
            let all = commands(program).flat_map(|command| options(command).map(|(long, _)| long));
            return Err(unknown(key, "an option or a command", all));
        }
    }
    // What is said of one command is stronger than what is said of all.
    general.retain(|set| !own.iter().any(|other| other.id == set.id));
    own.extend(general);
    Ok(own)
}

pub(super) fn commands(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !WITHOUT.contains(&command.get_name()))
}

type SpannedKey<'a> = Spanned<std::borrow::Cow<'a, str>>;

fn unknown<'a>(key: &SpannedKey<'_>, what: &str, names: impl Iterator<Item = &'a str>) -> Wrong {
    let name = key.get_ref();
    let near = names.map(|known| (jaro_winkler(name, known), known)).filter(|(likeness, _)| *likeness > 0.8);
    let near = near.max_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| y.cmp(x)));
    let help = near.map_or_else(
        || "keys are the long options of the commands, as in `ringleader help watch`".to_owned(),
        |(_, known)| format!("did you mean `{known}`?"),
    );
    Wrong::new(key.span(), format!("`{name}` is not {what}"), help)
}

/// The value for the option of this name, if the command has it.
fn entry(
    key: &SpannedKey<'_>,
    value: &Spanned<DeValue<'_>>,
    layer: Layer,
    command: &Command,
) -> Result<Option<Set>, Wrong> {
    let name: &str = key.get_ref();
    let Some((long, arg)) = options(command).find(|(long, _)| *long == name) else { return Ok(None) };
    let at = value.span();
    let values = match value.get_ref() {
        DeValue::Array(items) if takes_several(arg) => {
            items.iter().map(|item| word(item.get_ref(), item.span(), arg)).collect::<Result<Vec<_>, _>>()?
        }
        DeValue::Array(_) => {
            return Err(Wrong::new(at, format!("`{long}` takes one value"), "write it without brackets"));
        }
        one => vec![word(one, at.clone(), arg)?],
    };
    if let Some(why) = misfit(command, long, arg, &values) {
        let help = format!("`ringleader help {}` lists what it takes", command.get_name());
        return Err(Wrong::misfit(at, why, help));
    }
    if layer == Layer::Project
        && let Some(why) = refused(long, arg, &values)
    {
        let help = "a project's file comes with other people's code; set it in ~/.config/ringleader/ringleader.toml, \
                    by its variable, or on the command line";
        return Err(Wrong::new(key.span(), format!("a project's file may not set `{long}`: {why}"), help));
    }
    Ok(Some(Set { id: arg.get_id().to_string(), values, layer }))
}

fn word(value: &DeValue<'_>, at: Range<usize>, arg: &Arg) -> Result<String, Wrong> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        _ => {
            return Err(Wrong::new(
                at,
                "options take text, numbers, true or false",
                "see `ringleader help configuration`",
            ));
        }
    };
    if is_flag(arg) != matches!(value, DeValue::Boolean(_)) {
        let what = if is_flag(arg) { "this is a flag" } else { "this is not a flag" };
        let help = if is_flag(arg) { "write true or false" } else { "write a number, or text in quotes" };
        return Err(Wrong::new(at, what, help));
    }
    Ok(text)
}

/// Why a project's file may not set this. What is no flag, number or choice is refused unless it is a path below the project.
fn refused(long: &str, arg: &Arg, values: &[String]) -> Option<&'static str> {
    if NOT_IN_A_PROJECT.contains(&long) {
        return Some("it starts or ends something, or names a machine, an address, a program or a library");
    }
    if !IN_A_PROJECT.contains(&long) {
        return Some("nobody has said that it does no harm there");
    }
    let is_harmless = |value: &String| value.parse::<f64>().is_ok();
    if is_flag(arg) || !arg.get_possible_values().is_empty() || values.iter().all(is_harmless) {
        return None;
    }
    if is_path(arg) {
        let is_below = |value: &String| {
            let path = Path::new(value);
            path.is_relative() && !path.components().any(|part| part == std::path::Component::ParentDir)
        };
        return (!values.iter().all(is_below)).then_some("paths there stay below the working directory");
    }
    Some("it takes free text")
}
