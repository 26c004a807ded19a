//! A progress bar on standard error, if that is a terminal and the work takes long enough to wonder.

use std::io::{self, IsTerminal, Read};
use std::sync::Once;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET_FOR: Duration = Duration::from_millis(500);

/// A bar that appears late.
pub(crate) struct LateBar {
    bar: ProgressBar,
    started: Instant,
    shown: Once,
    wanted: bool,
}

impl LateBar {
    /// `length`: what it counts up to; `template`: how it looks, in the words of `indicatif`.
    pub(crate) fn new(length: u64, template: &str, wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self {
            bar,
            started: Instant::now(),
            shown: Once::new(),
            wanted: wanted && io::stderr().is_terminal(),
        }
    }

    pub(crate) fn advance(&self, by: u64) {
        if !self.wanted {
            return;
        }
        self.bar.inc(by);
        if self.started.elapsed() >= QUIET_FOR {
            self.shown.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
    }

    /// What the template calls `msg`.
    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Does something that may print, with the bar out of its way.
    pub(crate) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.wanted && io::stdout().is_terminal() { self.bar.suspend(work) } else { work() }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of reading files.
pub(crate) struct Progress(LateBar);

impl Progress {
    pub(crate) fn new(n_files: usize, size_bytes: u64, wanted: bool) -> Self {
        let template = "{spinner} reading evidence {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
        // Every file weighs something, so that many small ones move the bar too.
        Self(LateBar::new(size_bytes + weight(n_files), template, wanted))
    }

    /// Counts what is read.
    pub(crate) fn count<'a>(&'a self, input: Box<dyn Read + 'a>) -> Counted<'a> {
        Counted { input, bar: &self.0 }
    }

    pub(crate) fn file_done(&self) {
        self.0.advance(weight(1));
    }

    pub(crate) fn finish(&self) {
        self.0.finish();
    }
}

/// Bytes that opening files counts as.
fn weight(n_files: usize) -> u64 {
    n_files as u64 * 4096
}

pub(crate) struct Counted<'a> {
    input: Box<dyn Read + 'a>,
    bar: &'a LateBar,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_read = self.input.read(buffer)?;
        self.bar.advance(n_read as u64);
        Ok(n_read)
    }
}
