//! How many nodes have answered, on standard error, if that is a terminal and it takes long enough to wonder.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET_FOR: Duration = Duration::from_millis(500);

pub(super) struct HostProgress {
    bar: ProgressBar,
    started: Instant,
    shown: Once,
    wanted: bool,
}

impl HostProgress {
    pub(super) fn new(n_hosts: usize, wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(n_hosts as u64), ProgressDrawTarget::hidden());
        let template = "{spinner} asking nodes {wide_bar} {pos}/{len} {msg}";
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

    pub(super) fn answered(&self, host: &str, has_answered: bool) {
        if !self.wanted {
            return;
        }
        if !has_answered {
            self.bar.set_message(format!("silent: {}", ringleader_report::quote::plain(host)));
        }
        self.bar.inc(1);
        if self.started.elapsed() >= QUIET_FOR {
            self.shown.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
    }

    /// Does something that may print, with the bar out of its way.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.wanted && io::stdout().is_terminal() { self.bar.suspend(work) } else { work() }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
