//! One command on many hosts, with a limit on how many at once and a deadline for each; answers come as they arrive.
//!
//! Knows nothing of what the command is: `check` reads reports from it, `collect` has bundles written to files. What is
//! held at any time is bounded by the hosts that are being asked, not by those in the list.

pub(crate) mod copy;
#[cfg(feature = "kube")]
pub(crate) mod kube;
pub(crate) mod nodes;
pub(crate) mod process;
mod progress;
pub(crate) mod slurm;
pub(crate) mod spool;
pub(crate) mod ssh;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_check::fleet::{Silence, SilenceKind, Timing};

use self::copy::Program;
use self::progress::HostProgress;
use self::spool::{Output, Spool, Spooled};

/// A way to a host.
pub(crate) trait Transport: Sync {
    /// Runs a command there and waits for it, at most until `limits.until`.
    fn ask(
        &self,
        host: &str,
        argv: &[String],
        input: &Input,
        output: Output<'_>,
        limits: &Limits<'_>,
    ) -> Result<Ran, Silence>;

    /// What an answer means that is not what was asked for.
    fn explain(&self, host: &str, ran: &Ran) -> Silence;
}

/// What the command reads.
pub(crate) enum Input {
    /// An empty input.
    Nothing,
    /// A file of this machine.
    File(PathBuf),
}

/// How long to wait for a command.
pub(crate) struct Limits<'a> {
    /// When to give up.
    pub until: Instant,
    /// The deadline in whole, to say so.
    pub deadline: Duration,
    /// Set when the answers are no longer needed.
    pub stop: &'a AtomicBool,
}

/// A command that ended.
pub(crate) struct Ran {
    /// Exit status; None if a signal ended it.
    pub status: Option<i32>,
    /// Standard output, unless it went to a file.
    pub output: Vec<u8>,
    /// Bytes of it, there or here.
    pub n_output: u64,
    /// The last of standard error.
    pub said: String,
    /// More came than may be kept.
    pub is_cut: bool,
}

/// What came of one host.
pub(crate) struct HostAnswer {
    pub host: String,
    pub timing: Timing,
    pub outcome: Result<Ran, Silence>,
    /// What was printed, where it goes to files; also of one that failed in the middle.
    pub spooled: Option<Spooled>,
}

/// One command for many hosts.
pub(crate) struct Fanout<'a> {
    pub transport: &'a dyn Transport,
    pub hosts: &'a [String],
    pub program: &'a Program,
    /// Arguments of the program.
    pub args: &'a [String],
    /// More of them, for the host of that place in the list.
    pub args_of: &'a (dyn Fn(usize) -> Vec<String> + Sync),
    /// Hosts at once.
    pub parallel: usize,
    /// For each host, copying included.
    pub deadline: Duration,
    /// Bytes of an answer.
    pub max_bytes: u64,
    /// Where answers go that are too large to be held.
    pub spool: Option<&'a Spool>,
    pub show_progress: bool,
}

impl Fanout<'_> {
    /// Asks all hosts; `take` gets each answer as it comes, on the caller's thread. If it fails, the hosts that are
    /// being asked are let go of and the others are not asked.
    ///
    /// # Errors
    /// What `take` failed with.
    pub(crate) fn run<E>(&self, mut take: impl FnMut(HostAnswer) -> Result<(), E>) -> Result<(), E> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let n_threads = self.parallel.clamp(1, self.hosts.len().max(1));
        // An answer waits here while another is being taken in; askers wait rather than pile up answers.
        let (sender, receiver) = mpsc::sync_channel::<HostAnswer>(n_threads);
        let progress = HostProgress::new(self.hosts.len(), self.show_progress);
        thread::scope(|scope| {
            for _ in 0..n_threads {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(host) = self.hosts.get(at) else { break };
                        if sender.send(self.ask(at, host, stop)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let mut failed = None;
            // Drains the channel, so that no sender waits for room in it.
            for answer in receiver {
                if failed.is_none() {
                    progress.answered(&answer.host, answer.outcome.is_ok());
                    if let Err(error) = progress.aside(|| take(answer)) {
                        stop.store(true, Ordering::Relaxed);
                        failed = Some(error);
                    }
                }
            }
            progress.finish();
            failed.map_or(Ok(()), Err)
        })
    }

    fn ask(&self, at: usize, host: &str, stop: &AtomicBool) -> HostAnswer {
        let mut sent_ns = now_ns();
        let until = Instant::now() + self.deadline;
        let limits = Limits { until, deadline: self.deadline, stop };
        let mut argv = self.program.argv(self.args);
        argv.extend((self.args_of)(at));
        let mut spooled = self.spool.map(Spool::open);
        let output = Output::new(self.max_bytes, spooled.as_mut());
        let mut outcome = self.transport.ask(host, &argv, &Input::Nothing, output, &limits);
        if self.program.is_missing(&outcome) {
            outcome = self.program.send(self.transport, host, &limits).and_then(|()| {
                sent_ns = now_ns();
                let output = Output::new(self.max_bytes, spooled.as_mut());
                self.transport.ask(host, &argv, &Input::Nothing, output, &limits)
            });
        }
        HostAnswer {
            host: host.to_owned(),
            timing: Timing { sent_ns, arrived_ns: now_ns() },
            outcome,
            spooled,
        }
    }
}

/// A transport that could not be started on this machine: said once for each host, since each is silent for it.
pub(crate) fn not_started(program: &str, error: &std::io::Error) -> Silence {
    Silence {
        kind: SilenceKind::NotAsked,
        why: format!("{program} could not be started here: {error}"),
        next: format!("install {program} on this machine, or name the nodes another way"),
    }
}

/// No answer in time.
pub(crate) fn timed_out(limits: &Limits<'_>) -> Silence {
    if limits.stop.load(Ordering::Relaxed) {
        return Silence { kind: SilenceKind::NotAsked, why: "broken off".to_owned(), next: String::new() };
    }
    Silence {
        kind: SilenceKind::TimedOut,
        why: format!("no answer within {} s", limits.deadline.as_secs_f64()),
        next: "check that you can log in there; --node-deadline-secs waits longer".to_owned(),
    }
}

/// The last line that says something, fit to be grouped with that of others: without the host's name.
pub(crate) fn last_line(said: &str, host: &str) -> String {
    let bare = host.rsplit('@').next().unwrap_or(host);
    let line = said
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("Warning: Permanently added"))
        .unwrap_or("");
    nameless(&nameless(line, host), bare).chars().take(300).collect()
}

/// A text with a host's name removed where it is a word: a host called `c` is no letter of others.
pub(crate) fn nameless(text: &str, host: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(host).filter(|(_, found)| !found.is_empty()) {
        let end = at + host.len();
        if !text[..at].ends_with(is_part) && !text[end..].starts_with(is_part) {
            out.push_str(&text[done..at]);
            out.push_str("HOST");
            done = end;
        }
    }
    out.push_str(&text[done..]);
    out
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
