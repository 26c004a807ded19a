//! How many nodes have answered, on standard error.

use crate::progress::LateBar;

pub(super) struct HostProgress(LateBar);

impl HostProgress {
    pub(super) fn new(n_hosts: usize, wanted: bool) -> Self {
        Self(LateBar::new(n_hosts as u64, "{spinner} asking nodes {wide_bar} {pos}/{len} {msg}", wanted))
    }

    pub(super) fn answered(&self, host: &str, has_answered: bool) {
        if !has_answered {
            self.0.say(format!("silent: {}", ringleader_report::quote::plain(host)));
        }
        self.0.advance(1);
    }

    /// Does something that may print, with the bar out of its way.
    pub(super) fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.aside(work)
    }

    pub(super) fn finish(&self) {
        self.0.finish();
    }
}
