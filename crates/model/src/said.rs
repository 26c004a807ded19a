//! Statements in texts of any program: lines that report a failure by their form or match a row of a table, and signs
//! of progress.

use crate::{Cite, Host, Pid, Rank, WallTime};

/// Equal lines of one source and speaker, folded into one. The observation cites the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The line with a placeholder for each number, address and random name. Equal templates are the same statement.
    pub template: Box<str>,
    /// Number of lines with this template.
    pub count: u32,
    /// The last of them.
    pub last: Cite,
    /// When the last of them was printed.
    pub last_at: Option<WallTime>,
    /// The signs of failure in its form.
    pub form: SaidForm,
    /// Matching rows of the message table, narrowest first.
    pub rows: Vec<&'static str>,
    /// Processes and hosts that the line names: often others than the speaker.
    pub named: Named,
    /// Whether another reader understood the line as well.
    pub is_read: bool,
}

/// The signs of failure in the form of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidForm {
    /// Strength of the form.
    pub weight: FormWeight,
    /// Whether its own level is a warning or lower.
    pub is_warning: bool,
    /// Name of the exception.
    pub exception: Option<Box<str>>,
    /// An exit code other than 0.
    pub exit: Option<i64>,
    /// Number of a signal.
    pub signal: Option<i32>,
    /// Number of an errno.
    pub errno: Option<i32>,
    /// The value of a metric is not a number.
    pub nan: Option<NanLine>,
    /// Whether a result is marked as wrong.
    pub is_wrong: bool,
    /// Whether a launcher, scheduler or orchestrator reports the end of a task.
    pub is_end: bool,
}

/// A line in which the value of a metric is not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NanLine {
    /// Whether it shows values of a step: it names a loss, a step, an epoch.
    pub is_of_step: bool,
    /// Whether that value is a loss.
    pub is_loss: bool,
    /// Number of the step.
    pub step: Option<u64>,
    /// The rank in brackets at its end: `(local_rank 5)`.
    pub at_end: Option<Rank>,
}

/// Strength of a form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormWeight {
    /// None: only a row of the table matches the line.
    #[default]
    Nothing,
    /// A word such as `failed`, or a word in a line of a low level.
    Weak,
    /// A level of error, an exception, an exit code, a signal, a wrong result.
    Strong,
}

/// Processes and hosts that a line names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Ranks, ascending.
    pub ranks: Vec<Rank>,
    /// Hosts, in the order of the line.
    pub hosts: Vec<Host>,
    /// Processes, in the order of the line.
    pub pids: Vec<Pid>,
}

/// Where a text changes its machine: a prompt of a shell, or a line that names the machine that it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAt {
    /// Line, counted from 1.
    pub line: u32,
    /// The machine; None from a prompt on that names none.
    pub host: Option<Host>,
    /// How far it reaches.
    pub reach: HostReach,
}

/// How far the name of a machine reaches in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReach {
    /// Up to the next of this kind: what a command printed.
    Session,
    /// Likewise, from a heading: only if something else names this machine.
    Heading,
    /// This line.
    Line,
}

/// Signs in one source that the job makes progress or ended successfully.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Lines that show a step, an epoch, a bar or a rate.
    pub n_lines: u32,
    /// Distinct steps among them, at most 2: a repeated line is no progress.
    pub n_steps: u32,
    /// The step before the last one: lines before it were followed by two steps.
    pub before_last: Option<Cite>,
    /// The last of them.
    pub last: Option<Cite>,
    /// When it was printed.
    pub last_at: Option<WallTime>,
    /// A line that reports a successful end of the job.
    pub ended: Option<Cite>,
    /// Steps of its loop, `[3/100]`, if its first line tells them.
    pub total: Option<u64>,
}

/// A sign of the table in one source: a fact that states nothing by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Id of its row.
    pub id: &'static str,
    /// Lines that give it.
    pub count: u32,
}

/// Where the time of the steps of one source goes, by its own lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// Steps with both times.
    pub n_steps: u32,
    /// Sum of the steps' times, in the source's own unit.
    pub total: f64,
    /// Sum of the times in which they waited for data.
    pub data: f64,
}

/// How fast one run goes, by the lines of its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunPace {
    /// What is counted or timed, as the lines name it: only runs of one unit compare.
    pub unit: &'static str,
    /// The lines tell times, and not rates.
    pub is_time: bool,
    /// The times are of whole epochs.
    pub is_epoch: bool,
    /// Median of the steps: work in a time, in that unit. Larger is faster.
    pub speed: f64,
    /// Steps that tell it.
    pub n_steps: u32,
    /// GPUs or processes of the run, if its start shows them.
    pub devices: Option<u32>,
}

/// One rank, GPU or host whose number differs from those of all others, which agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// What the rows of the table are named by.
    pub key: OutlierKey,
    /// What precedes the number, or is above it.
    pub column: Box<str>,
    /// Its number.
    pub value: f64,
    /// That of the others.
    pub others: f64,
    /// Rows that were compared.
    pub n_rows: u32,
}

/// Name of a row in a table that compares ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutlierKey {
    /// A rank.
    Rank(Rank),
    /// A GPU of a node.
    Gpu(u32),
    /// A host.
    Host(Host),
}

/// Ranks that lines of one source set apart without a word of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// In what they differ.
    pub by: ApartBy,
    /// They, ascending; none if the source only shows who was there.
    pub ranks: Vec<Rank>,
    /// Ranks that were compared, or spoke in ordinary lines; ascending.
    pub among: Vec<Rank>,
}

/// In what ranks differ from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApartBy {
    /// A list names them as those for which the others wait.
    Missing,
    /// They say that they are at their end, and others do not.
    Done,
    /// They have the least of what is counted for each rank: batches, samples, files.
    Least,
    /// They have not printed the line with which all others end.
    Behind,
    /// Their values in a table are not numbers from some row on, and those of the others are.
    NotANumber,
    /// They submitted other tensors than the rest: each group lacks what the other one waits for. No rank is named where both groups
    /// are equally large.
    OtherTensors,
}

/// A word of the table of likeness, and its first place in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordAt {
    /// Number of the word in the table.
    pub word: u16,
    /// Its first line.
    pub cite: Cite,
}
