//! The policy file: budgets, pauses, exclusion of nodes, and the location of checkpoints.
//!
//! ```text
//! version = 1
//! [budget]
//! transient = { max = 5, per = "6h" }
//! [exclude]
//! confidence = "high"
//! max_share = 0.05
//! ```
//!
//! An invalid file is rejected with the line and key of the fault. Missing keys have their defaults.

use std::ops::Range;
use std::time::Duration;

use ringleader_model::{Class, Confidence};
use serde::Deserialize;
use toml::Spanned;

use crate::words::{CONFIDENCES, confidence_name};

/// Policy for failed attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Restarts per class within a time window. `External` has none, and `Program` has [`Policy::same_place`].
    pub budgets: Vec<Budget>,
    /// Stop after the same program error at the same step this many times.
    pub same_place: u32,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// When to exclude a node.
    pub exclude: Exclude,
    /// Least confidence to stop because of a program fault.
    pub stop_confidence: Confidence,
    /// Two verdicts of medium confidence on the same line of code at the same step are certain enough to stop.
    pub stop_repeated: bool,
    /// How long to wait for a diagnosed stall to resolve itself.
    pub stall_grace: Duration,
    /// Location of checkpoints.
    pub checkpoint: Checkpoint,
    /// The preflight check of a node before an attempt.
    pub preflight: Preflight,
}

/// Budget of restarts for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Class of the failures.
    pub class: Class,
    /// Number of restarts.
    pub max: u32,
    /// Time window.
    pub per: Duration,
}

/// Growing pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Pause after the first failure.
    pub first: Duration,
    /// Each further failure without progress multiplies the pause by this.
    pub factor: f64,
    /// Longest pause.
    pub cap: Duration,
    /// Random variation of the pause, as a share from 0 to 1.
    pub jitter: f64,
}

/// When to exclude a node from further attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exclude {
    /// Least confidence of the verdict.
    pub confidence: Confidence,
    /// Largest share of all nodes that may be excluded, 0 to 1.
    pub max_share: f64,
    /// Whether commands that affect shared nodes (drain, cordon) are run or only printed.
    pub mode: Mode,
    /// How often the scheduler may be asked to requeue the whole job without the node, if too few nodes remain.
    pub requeue: u32,
    /// Time after which the node may rejoin, if it passes the preflight check; None: never. Each further exclusion
    /// lasts four times as long. The first time, a node that was only silent may rejoin at once.
    pub back_after: Option<Duration>,
}

/// Whether scheduler commands are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only print them.
    DryRun,
    /// Run them.
    Act,
}

/// Location and checking of checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The folder where the program saves them.
    pub dir: Option<String>,
    /// Read every byte and compare checksums.
    pub hash: bool,
    /// What to do if the next attempt has a number of ranks that can load none of the checkpoints.
    pub other_world: OtherWorld,
}

/// What to do about checkpoints of another number of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherWorld {
    /// They are skipped. If there is no other, no attempt starts with that number.
    #[default]
    Stop,
    /// They are skipped. If there is no other, the job starts from the beginning.
    Begin,
    /// The program can load them.
    Use,
}

impl OtherWorld {
    const ALL: [(Self, &'static str); 3] = [(Self::Stop, "stop"), (Self::Begin, "begin"), (Self::Use, "use")];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(other, _)| *other == self).map_or("stop", |(_, name)| name)
    }
}

/// The preflight check of a node before an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// `check --quick`.
    pub check: bool,
    /// A command for `sh -c` that must exit with 0: `ringleader bench --for 5`, a site's own test.
    pub command: Option<String>,
    /// Time limit of the command.
    pub within: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        let hours = |n: u64| Duration::from_secs(n * 3600);
        Self {
            budgets: vec![
                Budget { class: Class::Transient, max: 5, per: hours(6) },
                Budget { class: Class::Node, max: 3, per: hours(24) },
                Budget { class: Class::Unknown, max: 2, per: hours(6) },
            ],
            same_place: 2,
            backoff: Backoff {
                first: Duration::from_secs(10),
                factor: 2.0,
                cap: Duration::from_mins(10),
                jitter: 0.2,
            },
            exclude: Exclude {
                confidence: Confidence::High,
                max_share: 0.05,
                mode: Mode::DryRun,
                requeue: 0,
                back_after: Some(hours(1)),
            },
            stop_confidence: Confidence::High,
            stop_repeated: true,
            stall_grace: Duration::from_secs(20),
            checkpoint: Checkpoint::default(),
            preflight: Preflight { check: true, command: None, within: Duration::from_secs(30) },
        }
    }
}

impl Preflight {
    /// Longest duration of a preflight check.
    pub fn longest(&self) -> Duration {
        self.within * (u32::from(self.check) + u32::from(self.command.is_some()))
    }
}

/// A fault in a policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {why}", key.as_ref().map(|key| format!(", {key}")).unwrap_or_default())]
pub struct PolicyFault {
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1.
    pub column: u32,
    /// The key, with its table: `backoff.factor`.
    pub key: Option<String>,
    /// What is wrong and what is expected.
    pub why: String,
    /// The line itself.
    pub text: String,
}

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    version: Option<Spanned<i64>>,
    budget: RawBudgets,
    backoff: RawBackoff,
    exclude: RawExclude,
    stop: RawStop,
    stall: RawStall,
    checkpoint: RawCheckpoint,
    preflight: RawPreflight,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawBudgets {
    transient: Option<RawBudget>,
    node: Option<RawBudget>,
    unknown: Option<RawBudget>,
    program: Option<RawProgram>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBudget {
    max: Option<Spanned<i64>>,
    per: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProgram {
    same_place: Spanned<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawBackoff {
    first: Option<Spanned<String>>,
    factor: Option<Spanned<f64>>,
    cap: Option<Spanned<String>>,
    jitter: Option<Spanned<f64>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawExclude {
    confidence: Option<Spanned<String>>,
    max_share: Option<Spanned<f64>>,
    mode: Option<Spanned<String>>,
    requeue: Option<Spanned<i64>>,
    back_after: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawStop {
    confidence: Option<Spanned<String>>,
    repeated: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawStall {
    grace: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawCheckpoint {
    dir: Option<Spanned<String>>,
    hash: Option<bool>,
    other_world: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawPreflight {
    check: Option<bool>,
    command: Option<Spanned<String>>,
    within: Option<Spanned<String>>,
}

/// Value instead of a time.
const NEVER: &str = "never";

/// Largest policy file, bytes.
pub const MAX_BYTES: usize = 64 << 10;

impl Policy {
    /// Parses a policy file. Errors: the first fault, with its line and key.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        let page = Page(text);
        if text.len() > MAX_BYTES {
            return Err(page.fault(0..0, format!("the file is longer than {MAX_BYTES} bytes")));
        }
        let file = page.file()?;
        match &file.version {
            Some(version) if *version.get_ref() == 1 => {}
            Some(version) => {
                return Err(page.fault(version.span(), "this program supports version 1".to_owned()));
            }
            None => return Err(page.fault(0..0, "`version = 1` is missing".to_owned())),
        }
        let mut policy = Self::default();
        policy.take(&page, &file)?;
        Ok(policy)
    }

    /// Changes one key: `exclude.mode=act`, `budget.unknown.max=5`. A text needs no quotes. Errors: as [`Policy::parse`].
    pub fn set(&mut self, setting: &str) -> Result<(), PolicyFault> {
        let is_key =
            |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        let Some((key, value)) = setting.split_once('=').filter(|(key, _)| is_key(key.trim())) else {
            return Err(Page(setting).fault(0..0, "expected KEY=VALUE, such as exclude.mode=act".to_owned()));
        };
        let (key, value) = (key.trim(), value.trim());
        let changed = |value: &str| {
            let text = format!("{key} = {value}");
            let page = Page(&text);
            let mut policy = self.clone();
            policy.take(&page, &page.file()?).map(|()| policy)
        };
        // A JSON string is also a TOML string.
        let quoted = serde_json::to_string(value).unwrap_or_default();
        let is_value = toml::from_str::<toml::Table>(&format!("x = {value}")).is_ok();
        let as_text = changed(&quoted);
        *self = if is_value { changed(value).or_else(|fault| as_text.map_err(|_| fault)) } else { as_text }?;
        Ok(())
    }

    fn take(&mut self, page: &Page<'_>, file: &File) -> Result<(), PolicyFault> {
        self.take_budgets(page, &file.budget)?;
        self.take_backoff(page, &file.backoff)?;
        self.take_rest(page, file)
    }

    fn take_budgets(&mut self, page: &Page<'_>, raw: &RawBudgets) -> Result<(), PolicyFault> {
        let rows =
            [(Class::Transient, &raw.transient), (Class::Node, &raw.node), (Class::Unknown, &raw.unknown)];
        for (class, row) in rows {
            let (Some(row), Some(budget)) =
                (row, self.budgets.iter_mut().find(|budget| budget.class == class))
            else {
                continue;
            };
            if let Some(max) = &row.max {
                budget.max = page.count(max, 0, 10_000)?;
            }
            if let Some(per) = &row.per {
                budget.per = page.duration(per, Duration::from_secs(1), Duration::from_hours(8784))?;
            }
        }
        if let Some(program) = &raw.program {
            self.same_place = page.count(&program.same_place, 1, 1_000)?;
        }
        Ok(())
    }

    fn take_backoff(&mut self, page: &Page<'_>, raw: &RawBackoff) -> Result<(), PolicyFault> {
        let day = Duration::from_hours(24);
        if let Some(first) = &raw.first {
            self.backoff.first = page.duration(first, Duration::ZERO, day)?;
        }
        if let Some(factor) = &raw.factor {
            self.backoff.factor = page.number(factor, 1.0, 100.0)?;
        }
        if let Some(jitter) = &raw.jitter {
            self.backoff.jitter = page.number(jitter, 0.0, 1.0)?;
        }
        if let Some(cap) = &raw.cap {
            self.backoff.cap = page.duration(cap, Duration::ZERO, day)?;
            if self.backoff.cap < self.backoff.first {
                return Err(page.fault(cap.span(), "`cap` is below `first`".to_owned()));
            }
        }
        self.backoff.cap = self.backoff.cap.max(self.backoff.first);
        Ok(())
    }

    fn take_rest(&mut self, page: &Page<'_>, file: &File) -> Result<(), PolicyFault> {
        let day = Duration::from_hours(24);
        if let Some(confidence) = &file.exclude.confidence {
            self.exclude.confidence = page.confidence(confidence)?;
        }
        if let Some(share) = &file.exclude.max_share {
            self.exclude.max_share = page.number(share, 0.0, 1.0)?;
        }
        if let Some(mode) = &file.exclude.mode {
            self.exclude.mode = match mode.get_ref().as_str() {
                "dry-run" => Mode::DryRun,
                "act" => Mode::Act,
                other => {
                    return Err(
                        page.fault(mode.span(), format!("expected \"dry-run\" or \"act\", not {other:?}"))
                    );
                }
            };
        }
        if let Some(requeue) = &file.exclude.requeue {
            self.exclude.requeue = page.count(requeue, 0, 100)?;
        }
        if let Some(after) = &file.exclude.back_after {
            let year = Duration::from_hours(8784);
            let is_never = after.get_ref() == NEVER;
            self.exclude.back_after =
                if is_never { None } else { Some(page.duration(after, Duration::ZERO, year)?) };
        }
        if let Some(confidence) = &file.stop.confidence {
            self.stop_confidence = page.confidence(confidence)?;
        }
        self.stop_repeated = file.stop.repeated.unwrap_or(self.stop_repeated);
        if let Some(grace) = &file.stall.grace {
            self.stall_grace = page.duration(grace, Duration::ZERO, day)?;
        }
        if let Some(dir) = &file.checkpoint.dir {
            if dir.get_ref().is_empty() {
                return Err(page.fault(dir.span(), "the folder is empty".to_owned()));
            }
            self.checkpoint.dir = Some(dir.get_ref().clone());
        }
        self.checkpoint.hash = file.checkpoint.hash.unwrap_or(self.checkpoint.hash);
        if let Some(word) = &file.checkpoint.other_world {
            let named = OtherWorld::ALL.iter().find(|(_, name)| *name == word.get_ref());
            let Some((other, _)) = named else {
                let why = format!("expected \"stop\", \"begin\" or \"use\", not {:?}", word.get_ref());
                return Err(page.fault(word.span(), why));
            };
            self.checkpoint.other_world = *other;
        }
        self.preflight.check = file.preflight.check.unwrap_or(self.preflight.check);
        if let Some(command) = &file.preflight.command {
            if command.get_ref().trim().is_empty() {
                return Err(page.fault(command.span(), "the command is empty".to_owned()));
            }
            self.preflight.command = Some(command.get_ref().clone());
        }
        if let Some(within) = &file.preflight.within {
            self.preflight.within = page.duration(within, Duration::from_secs(1), day)?;
        }
        Ok(())
    }

    /// The budget of a class; None for classes without one.
    pub fn budget(&self, class: Class) -> Option<Budget> {
        self.budgets.iter().copied().find(|budget| budget.class == class)
    }

    /// The policy as TOML; [`Policy::parse`] returns the same policy.
    pub fn to_toml(&self) -> String {
        use std::fmt::Write as _;
        let mut out = "version = 1\n[budget]\n".to_owned();
        // Writing to a String cannot fail.
        for budget in &self.budgets {
            let _ = writeln!(
                out,
                "{} = {{ max = {}, per = \"{}\" }}",
                budget.class,
                budget.max,
                words(budget.per)
            );
        }
        let _ = writeln!(out, "program = {{ same_place = {} }}", self.same_place);
        let Backoff { first, factor, cap, jitter } = self.backoff;
        let (first, cap) = (words(first), words(cap));
        let _ = writeln!(
            out,
            "[backoff]\nfirst = \"{first}\"\nfactor = {factor:?}\ncap = \"{cap}\"\njitter = {jitter:?}"
        );
        let mode = if self.exclude.mode == Mode::Act { "act" } else { "dry-run" };
        let _ = writeln!(
            out,
            "[exclude]\nconfidence = \"{}\"\nmax_share = {:?}\nmode = \"{mode}\"\nrequeue = {}\nback_after = \"{}\"",
            confidence_name(self.exclude.confidence),
            self.exclude.max_share,
            self.exclude.requeue,
            self.exclude.back_after.map_or_else(|| NEVER.to_owned(), words)
        );
        let _ = writeln!(
            out,
            "[stop]\nconfidence = \"{}\"\nrepeated = {}",
            confidence_name(self.stop_confidence),
            self.stop_repeated
        );
        let _ = writeln!(out, "[stall]\ngrace = \"{}\"", words(self.stall_grace));
        // A JSON string is also a TOML string.
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let Checkpoint { hash, other_world, .. } = &self.checkpoint;
        let _ = writeln!(out, "[checkpoint]\nhash = {hash}\nother_world = \"{}\"", other_world.name());
        if let Some(dir) = &self.checkpoint.dir {
            let _ = writeln!(out, "dir = {}", quoted(dir));
        }
        let _ = writeln!(
            out,
            "[preflight]\ncheck = {}\nwithin = \"{}\"",
            self.preflight.check,
            words(self.preflight.within)
        );
        if let Some(command) = &self.preflight.command {
            let _ = writeln!(out, "command = {}", quoted(command));
        }
        out
    }
}

/// Parses `10s`, `250ms`, `6h`, `1h30m`, `2d`. Errors: the expected format.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a time such as \"10s\", \"10m\" or \"6h\", not {text:?}");
    let mut rest = text.trim();
    let mut ms: u64 = 0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..n).and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
        rest = rest.get(n..).unwrap_or_default();
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let (unit, factor) = units.into_iter().find(|(unit, _)| rest.starts_with(unit)).ok_or_else(wrong)?;
        rest = rest.get(unit.len()..).unwrap_or_default();
        ms = number.checked_mul(factor).and_then(|part| ms.checked_add(part)).ok_or_else(wrong)?;
    }
    Ok(Duration::from_millis(ms))
}

/// Formats a time for [`duration`].
pub fn words(time: Duration) -> String {
    let ms = time.as_millis() as u64;
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let unit = units.into_iter().find(|(_, factor)| ms > 0 && ms.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, factor)| format!("{}{unit}", ms / factor))
}

/// The text of the file, to look up lines and keys.
struct Page<'a>(&'a str);

impl Page<'_> {
    fn file(&self) -> Result<File, PolicyFault> {
        toml::from_str(self.0).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.fault(span, error.message().trim().replace('\n', ", "))
        })
    }

    fn fault(&self, span: Range<usize>, why: String) -> PolicyFault {
        let at =
            (0..=span.start.min(self.0.len())).rev().find(|at| self.0.is_char_boundary(*at)).unwrap_or(0);
        let head = self.0.get(..at).unwrap_or_default();
        let line_at = head.rfind('\n').map_or(0, |at| at + 1);
        let text = self.0.get(line_at..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let column = head.get(line_at..).unwrap_or_default().chars().count() as u32 + 1;
        PolicyFault {
            line: head.matches('\n').count() as u32 + 1,
            column,
            key: if span.is_empty() && span.start == 0 { None } else { self.key(line_at, text, column) },
            why,
            text: text.to_owned(),
        }
    }

    /// The key at a position: the table above it, and the last key before it on its line, also in an inline table.
    fn key(&self, line_at: usize, text: &str, column: u32) -> Option<String> {
        let is_table = |line: &&str| line.trim_start().starts_with('[');
        let above = self.0.get(..line_at).unwrap_or_default();
        let table = above.lines().rfind(is_table).map(|line| line.trim().trim_matches(['[', ']']).trim());
        let head: String = text.chars().take(column as usize).collect();
        let word = |part: &str| {
            let name: String = part.trim_matches([' ', '\t', '{', '}']).to_owned();
            (!name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-')))
                .then_some(name)
        };
        if is_table(&text) {
            return word(text.trim().trim_matches(['[', ']']));
        }
        let mut keys: Vec<String> = Vec::new();
        if let Some((first, rest)) = text.split_once('=') {
            keys.extend(word(first));
            // The part of an inline table that contains the position.
            if rest.trim_start().starts_with('{') && head.contains('{') {
                let part = head.rsplit(['{', ',']).next().unwrap_or_default();
                let at = head.len() - part.len();
                keys.extend(text.get(at..).and_then(|part| word(part.split('=').next().unwrap_or_default())));
            }
        }
        let keys: Vec<String> = table.map(str::to_owned).into_iter().chain(keys).collect();
        (!keys.is_empty()).then(|| keys.join("."))
    }

    fn number(&self, value: &Spanned<f64>, least: f64, most: f64) -> Result<f64, PolicyFault> {
        let number = *value.get_ref();
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(self.fault(value.span(), format!("expected a number from {least} to {most}, not {number}")))
    }

    fn count(&self, value: &Spanned<i64>, least: u32, most: u32) -> Result<u32, PolicyFault> {
        let number = u32::try_from(*value.get_ref()).ok().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| {
            let why = format!("expected a whole number from {least} to {most}, not {}", value.get_ref());
            self.fault(value.span(), why)
        })
    }

    fn duration(
        &self,
        value: &Spanned<String>,
        least: Duration,
        most: Duration,
    ) -> Result<Duration, PolicyFault> {
        let time = duration(value.get_ref()).map_err(|why| self.fault(value.span(), why))?;
        if time < least || time > most {
            let why = format!("expected {} to {}, not {:?}", words(least), words(most), value.get_ref());
            return Err(self.fault(value.span(), why));
        }
        Ok(time)
    }

    fn confidence(&self, value: &Spanned<String>) -> Result<Confidence, PolicyFault> {
        let found = CONFIDENCES.iter().find(|(word, _)| word == value.get_ref()).map(|(_, of)| *of);
        found.ok_or_else(|| {
            let why = format!("expected \"low\", \"medium\" or \"high\", not {:?}", value.get_ref());
            self.fault(value.span(), why)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_file_of_the_contract() {
        let text = "version = 1\n[budget]\ntransient = { max = 5, per = \"6h\" }\nnode = { max = 3, per = \"24h\" }\n\
                    unknown = { max = 2, per = \"6h\" }\nprogram = { same_place = 2 }\n[backoff]\nfirst = \"10s\"\n\
                    factor = 2\ncap = \"10m\"\njitter = 0.2\n[exclude]\nconfidence = \"high\"\nmax_share = 0.05\n\
                    mode = \"dry-run\"\n[stop]\nconfidence = \"high\"\n[stall]\ngrace = \"20s\"\n[checkpoint]\n\
                    dir = \"ckpt\"\nhash = false\n";
        let policy = Policy::parse(text).unwrap();
        let checkpoint = Checkpoint { dir: Some("ckpt".to_owned()), ..Checkpoint::default() };
        assert_eq!(policy, Policy { checkpoint, ..Policy::default() });
        assert_eq!(Policy::parse(&policy.to_toml()).unwrap(), policy);
        assert_eq!(Policy::parse("version = 1").unwrap(), Policy::default());
    }

    fn fault(text: &str) -> (u32, String, String) {
        let fault = Policy::parse(text).unwrap_err();
        (fault.line, fault.key.unwrap_or_default(), fault.why)
    }

    #[test]
    fn faults_have_line_and_key() {
        for (text, line, key, why) in [
            ("", 1, "", "`version = 1` is missing"),
            ("version = 2", 1, "version", "supports version 1"),
            ("version = 1\n\n[backoff]\nfirst = \"ten\"", 4, "backoff.first", "expected a time such as"),
            ("version = 1\n[backoff]\nfactor = 0.5", 3, "backoff.factor", "from 1 to 100"),
            ("version = 1\n[backoff]\ncap = \"1s\"", 3, "backoff.cap", "below `first`"),
            ("version = 1\n[exclude]\nmax_share = 5", 3, "exclude.max_share", "from 0 to 1"),
            ("version = 1\n[exclude]\nmode = \"on\"", 3, "exclude.mode", "\"dry-run\" or \"act\""),
            ("version = 1\n[exclude]\nrequeue = 1000", 3, "exclude.requeue", "from 0 to 100"),
            ("version = 1\n[exclude]\nback_after = \"soon\"", 3, "exclude.back_after", "expected a time"),
            ("version = 1\n[stop]\nconfidence = \"sure\"", 3, "stop.confidence", "\"low\", \"medium\""),
            (
                "version = 1\n[budget]\nnode = { max = -1, per = \"1h\" }",
                3,
                "budget.node.max",
                "whole number",
            ),
            (
                "version = 1\n[budget]\nnode = { max = 1, per = \"1x\" }",
                3,
                "budget.node.per",
                "expected a time",
            ),
            ("version = 1\n[budget]\nprogram = { same_place = 0 }", 3, "budget.program.same_place", "from 1"),
            (
                "version = 1\n[budget]\nexternal = { max = 1, per = \"1h\" }",
                3,
                "budget.external",
                "unknown field",
            ),
            ("version = 1\n[bakoff]\n", 2, "bakoff", "unknown field"),
            ("version = 1\n[checkpoint]\ndir = 5", 3, "checkpoint.dir", "invalid type"),
            (
                "version = 1\n[checkpoint]\nother_world = \"no\"",
                3,
                "checkpoint.other_world",
                "\"stop\", \"begin\" or",
            ),
            ("version = 1\n[stall\n", 2, "", ""),
        ] {
            let (at, of, said) = fault(text);
            assert_eq!(at, line, "{text}: {said}");
            assert!(said.contains(why), "{text}: {said}");
            assert!(key.is_empty() || of == key, "{text}: key {of}, {said}");
        }
    }

    #[test]
    fn single_keys() {
        let mut policy = Policy::default();
        for setting in [
            "exclude.mode=act",
            "exclude.max_share = 0.5",
            "budget.unknown.max=7",
            "backoff.first=\"2s\"",
            "stop.repeated=false",
            "checkpoint.dir=/data/a b",
            "checkpoint.other_world=use",
            "preflight.command=true",
        ] {
            policy.set(setting).unwrap();
        }
        let text = "version = 1\n[budget]\nunknown = { max = 7 }\n[exclude]\nmode = \"act\"\nmax_share = 0.5\n\
                    [backoff]\nfirst = \"2s\"\n[stop]\nrepeated = false\n[checkpoint]\ndir = \"/data/a b\"\n\
                    other_world = \"use\"\n[preflight]\ncommand = \"true\"";
        assert_eq!(policy, Policy::parse(text).unwrap());
        assert_eq!(Policy::parse(&policy.to_toml()).unwrap(), policy);
        let before = policy.clone();
        for (setting, why) in [
            ("exclude.mode=on", "expected \"dry-run\" or \"act\", not \"on\""),
            ("exclude.max_share=2", "from 0 to 1"),
            ("exclude.speed=2", "unknown field"),
            ("exclude.mode", "expected KEY=VALUE"),
            ("[x]\ny=1", "expected KEY=VALUE"),
        ] {
            let fault = policy.set(setting).unwrap_err();
            assert!(fault.why.contains(why) && fault.line == 1, "{setting}: {fault:?}");
        }
        assert_eq!(policy, before);
    }

    #[test]
    fn times() {
        for (text, ms) in
            [("10s", 10_000), ("250ms", 250), ("1h30m", 5_400_000), ("2d", 172_800_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "10", "s", "-1s", "1.5h", "99999999999999999999s", "10 s x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_come_back(ms in 0_u64..10_u64.pow(12)) {
            let time = Duration::from_millis(ms);
            prop_assert_eq!(duration(&words(time)), Ok(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(version = 1\n)?(\\[[a-z]{1,12}\\]\n)?([a-z_]{1,9} = [{}\"0-9a-z., =]{0,20}\n){0,3}") {
            if let Err(fault) = Policy::parse(&text) {
                prop_assert!(fault.line as usize <= text.lines().count().max(1) + 1);
            }
        }
    }
}
