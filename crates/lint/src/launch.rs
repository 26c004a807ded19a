//! Scripts, manifests, images and files of variables as what they start: settings, commands, directives, containers.

mod image;
mod manifest;
mod shell;

use crate::finding::{Finding, Place};
use crate::{Language, Rule, Source};

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
    /// As it is written.
    pub(crate) raw: String,
    pub(crate) at: Spot,
}

/// A command with its words.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) words: Vec<String>,
    pub(crate) at: Spot,
}

/// A container of a manifest or of a `docker run`.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) n_gpus: u64,
    pub(crate) has_shared_memory: bool,
    pub(crate) at: Spot,
}

/// A launch file.
#[derive(Debug)]
pub(crate) struct Launch<'s> {
    pub(crate) path: &'s str,
    pub(crate) text: &'s str,
    pub(crate) settings: Vec<Setting>,
    pub(crate) commands: Vec<Command>,
    /// `#SBATCH --key=value`, the key without dashes in its long form.
    pub(crate) directives: Vec<(String, String, Spot)>,
    pub(crate) containers: Vec<Container>,
}

/// Reads a launch file; None if it is none.
pub(crate) fn read(language: Language, source: &Source) -> Option<Launch<'_>> {
    let mut launch = Launch {
        path: &source.path,
        text: &source.text,
        settings: Vec::new(),
        commands: Vec::new(),
        directives: Vec::new(),
        containers: Vec::new(),
    };
    match language {
        Language::Shell => shell::read(&source.text, 0, &mut launch),
        Language::Yaml => manifest::read(&source.text, &mut launch),
        Language::Dockerfile => image::read(&source.text, &mut launch),
        Language::Env => image::variables(&source.text, &mut launch),
        Language::Python | Language::Json | Language::Other => return None,
    }
    Some(launch)
}

impl Launch<'_> {
    /// The number that a directive or an option of a command gives.
    pub(crate) fn directive(&self, names: &[&str]) -> Option<(u64, Spot)> {
        let (_, value, at) = self.directives.iter().rfind(|(key, ..)| names.contains(&key.as_str()))?;
        Some((last_number(value)?, *at))
    }

    pub(crate) fn finding(&self, rule: &Rule, at: Spot, title: String, help: &str) -> Finding {
        let line = self.text.lines().nth(at.line.saturating_sub(1) as usize).unwrap_or_default();
        Finding {
            rule: rule.id,
            severity: rule.severity,
            confidence: rule.confidence,
            place: Place {
                path: self.path.to_owned(),
                line: at.line,
                column: at.column,
                end_line: at.line,
                end_column: at.end_column.max(at.column + 1),
                function: String::new(),
                text: crate::drafting::quote(line.trim()),
            },
            title,
            why: Vec::new(),
            related: Vec::new(),
            help: help.to_owned(),
            page: "",
            fix: None,
        }
    }
}

impl Command {
    /// The program, without its path.
    pub(crate) fn program(&self) -> &str {
        self.words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word))
    }

    /// Whether the command starts this program, also as what another program starts.
    pub(crate) fn starts(&self, program: &str) -> bool {
        self.words.iter().any(|word| word.rsplit('/').next() == Some(program))
            || (program == "torchrun"
                && self.words.iter().any(|word| {
                    matches!(word.as_str(), "torch.distributed.run" | "torch.distributed.launch")
                }))
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

    /// The number that an option gives; `1:4` is at most 4.
    pub(crate) fn number(&self, names: &[&str]) -> Option<u64> {
        self.option(names).and_then(last_number)
    }
}

/// The last number in a value: `gpu:a100:8`, `2-4`.
pub(crate) fn last_number(value: &str) -> Option<u64> {
    if value.contains(['$', '<', '{']) {
        return None;
    }
    value.rsplit([':', '-', '=']).next()?.trim().parse().ok()
}
