//! What texts say, whoever prints them: statements that speak of failure by their form or are known to a table, and
//! signs that the job goes on.

use crate::{Cite, Host, Pid, Rank, WallTime};

/// Lines of one source and speaker that say the same, folded into one. The observation cites the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The line with a sign in place of each number, address and made-up name. Equal templates are the same statement.
    pub template: Box<str>,
    /// Lines of this template.
    pub count: u32,
    /// The last of them.
    pub last: Cite,
    /// When the last of them was printed.
    pub last_at: Option<WallTime>,
    /// What its form shows.
    pub form: SaidForm,
    /// Rows of the message table that it was printed from, the narrowest first.
    pub rows: Vec<&'static str>,
    /// Whom and what the line names: often others than the speaker.
    pub named: Named,
    /// Another reader understood the line as well.
    pub is_read: bool,
}

/// What a line shows of a failure by its form alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaidForm {
    /// How much its form says.
    pub weight: FormWeight,
    /// Its own level is a warning or less.
    pub is_warning: bool,
    /// Name of the exception.
    pub exception: Option<Box<str>>,
    /// A code other than 0 with which something ended.
    pub exit: Option<i64>,
    /// Number of a signal.
    pub signal: Option<i32>,
    /// Number of an errno.
    pub errno: Option<i32>,
    /// The value of a metric is not a number.
    pub is_nan: bool,
    /// A result is marked as wrong.
    pub is_wrong: bool,
    /// A launcher, scheduler or orchestrator says that a task ended.
    pub is_end: bool,
}

/// How much the form of a line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormWeight {
    /// Nothing: only a row of the table knows the line.
    #[default]
    Nothing,
    /// A word such as `failed`, or a word in a line of a low level.
    Weak,
    /// A level of errors, an exception, an exit code, a signal, a wrong result.
    Strong,
}

/// Whom and what a line names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Ranks, ascending.
    pub ranks: Vec<Rank>,
    /// Hosts, in the order of the line.
    pub hosts: Vec<Host>,
    /// Processes, in the order of the line.
    pub pids: Vec<Pid>,
}

/// Signs of one source that the job goes on or has ended well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Lines that show a step, an epoch, a bar or a rate.
    pub n_lines: u32,
    /// Distinct steps among them, at most 2: one line repeated is no progress.
    pub n_steps: u32,
    /// The step before the last one: what stands before it was followed by two steps.
    pub before_last: Option<Cite>,
    /// The last of them.
    pub last: Option<Cite>,
    /// When it was printed.
    pub last_at: Option<WallTime>,
    /// A line that says that the job ended as it should.
    pub ended: Option<Cite>,
}
