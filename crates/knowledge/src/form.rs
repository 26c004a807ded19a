//! Detects by its form that a line reports a failure, whether or not a table knows it: levels of loggers, exceptions
//! of any language, exit codes, signals, errno, words such as `failed`, `nan` as the value of a metric, results marked
//! wrong, and schedulers' names for the end of a task.
//!
//! The forms are broad. Text that resembles a failure (`0 errors`, `--error`, `error_feedback`, `error rate 0.03`) is
//! excluded by form, too; failures that healthy jobs also print are the harmless rows of [`crate::message`].

mod level;
mod lists;
pub(crate) mod needle_hash;
mod needle_list;
mod needles;
mod template;
mod words;

pub use level::{Level, level};
pub use needle_list::NEEDLES;
pub use needles::{wanted, wanted_blind, wanted_blind_in_line, wanted_in_line};
pub use template::template;

use crate::errno::{self, Errno};
use crate::signal::{self, Signal};

/// Longer lines are judged by their first bytes.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The signs of failure in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form<'t> {
    /// The level of its logger, if stated.
    pub level: Option<Level>,
    /// The name of an exception, or of its equivalent in another language.
    pub exception: Option<&'t str>,
    /// An exit code other than 0.
    pub exit: Option<i64>,
    /// A signal that ended or hit a process.
    pub signal: Option<&'static Signal>,
    /// An errno, in any spelling.
    pub errno: Option<&'static Errno>,
    /// A word of failure: `failed`, `refused`, `unable`.
    pub word: Option<&'t str>,
    /// The metric whose value is not a number; empty if it has no name.
    pub nan: Option<&'t str>,
    /// Words that mark a result as wrong.
    pub wrong: Option<&'t str>,
    /// Words of a launcher, scheduler or orchestrator for a task that ended or cannot start.
    pub ended: Option<&'t str>,
}

/// The strength of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A word alone, or a word in a line whose own level is below error.
    Weak,
    /// A level of error, an exception, an exit code, a signal, a wrong result, an end reported by a launcher.
    Strong,
}

/// The signs of failure in `line`; None if there are none.
pub fn of(line: &str) -> Option<Form<'_>> {
    let line = line.get(..line.floor_char_boundary(MAX_LINE_BYTES)).unwrap_or(line).trim_end();
    let (level, message) = level::split(line);
    let severe = level.is_some_and(|l| l >= Level::Error);
    if !severe && !wanted_in_line(line.as_bytes())
        || words::is_code(message)
        || words::is_deprecation(message)
    {
        return None;
    }
    let mut form = Form {
        level,
        exception: words::exception(message),
        exit: words::exit(message),
        signal: words::signal(message),
        errno: None,
        word: words::failing(message),
        nan: words::not_a_number(message),
        wrong: words::wrong(message),
        ended: words::ended(line),
    };
    form.errno = errno::in_text(message).filter(|e| !words::is_config(message, e.name));
    let speaks = severe
        || form.exception.is_some()
        || form.exit.is_some()
        || form.signal.is_some()
        || form.errno.is_some()
        || form.word.is_some()
        || form.nan.is_some()
        || form.wrong.is_some()
        || form.ended.is_some();
    speaks.then_some(form)
}

impl Form<'_> {
    /// The strength of the form.
    pub fn weight(&self) -> Weight {
        let by_level = match self.level {
            Some(level) if level >= Level::Error => return Weight::Strong,
            Some(Level::Trace | Level::Debug | Level::Info) => false,
            _ => true,
        };
        let said = self.exception.is_some()
            || self.errno.is_some()
            || self.exit.is_some()
            || self.signal.is_some()
            || self.ended.is_some();
        if self.wrong.is_some() || self.nan.is_some() || by_level && said {
            Weight::Strong
        } else {
            Weight::Weak
        }
    }

    /// The meaning of the exit code, if there is one.
    pub fn ended_by(&self) -> Option<signal::ExitStatus> {
        self.exit.map(signal::exit)
    }
}

#[cfg(test)]
mod tests;
