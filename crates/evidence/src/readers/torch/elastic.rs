//! torchrun: the table of failed workers, and what its agent says.
//!
//! ```text
//! torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
//! ============================================================
//! /srv/train/train.py FAILED
//! ------------------------------------------------------------
//! Failures:
//! [1]:
//!   time      : 2026-11-20_08:22:23
//!   host      : localhost
//!   rank      : 1 (local_rank: 1)
//!   exitcode  : -15 (pid: 1620)
//!   error_file: <N/A>
//!   traceback : Signal 15 (SIGTERM) received by PID 1620
//! ```
//! Written by pytorch/pytorch `torch/distributed/elastic/multiprocessing/errors/__init__.py`, api.py beside it, and
//! `torch/distributed/elastic/agent/server/api.py`. The last block, "Root Cause", is the first exit that this agent
//! noticed, and no more than that.

use ringleader_model::{LocalRank, Pid, Rank, TorchEvent, WallTime, Who};

use super::crash::short_host;
use super::header::date_time;
use super::scan::{after, between, clip, count_after, digits, number};

/// Bytes kept of a block's traceback.
const MAX_MESSAGE: usize = 8 << 10;

/// The table, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct ElasticTable {
    script: Option<Box<str>>,
    root: bool,
    block: Option<Block>,
    n_blocks: u32,
    /// Lines in a row that fit nothing.
    misfits: u32,
    in_traceback: bool,
}

/// One block.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) who: Who,
    pub(super) at: Option<WallTime>,
    is_root: bool,
    exit_code: Option<i64>,
    time: Option<Box<str>>,
    host: Option<Box<str>>,
    message: Option<String>,
    /// Its lines.
    pub(super) text: String,
}

impl Block {
    /// The event; None if it was cut before the exit code.
    pub(super) fn event(&self) -> Option<TorchEvent> {
        Some(TorchEvent::ChildFailure {
            is_root: self.is_root,
            exit_code: self.exit_code?,
            time: self.time.clone(),
            host: self.host.clone(),
            message: self.message.as_deref().map(Into::into),
        })
    }
}

/// What a line was to the table.
#[derive(Debug)]
pub(super) enum ElasticLine {
    /// Part of it; a block may have ended.
    Part(Option<Block>),
    /// Its last line.
    Last(Option<Block>),
    /// Something else.
    Foreign,
    /// Something else, and the table is over.
    Over(Option<Block>),
}

/// `train.py FAILED`.
pub(super) fn failed_script(text: &str) -> Option<&str> {
    text.trim().strip_suffix(" FAILED").filter(|s| !s.is_empty() && !s.contains(": "))
}

impl ElasticTable {
    /// Whether any block was read.
    pub(super) fn is_empty(&self) -> bool {
        self.n_blocks == 0
    }

    /// The script it names.
    pub(super) fn script(&mut self) -> Option<Box<str>> {
        self.script.take()
    }

    /// The block in work, at the end of the file or of the table.
    pub(super) fn finish(&mut self) -> Option<Block> {
        self.in_traceback = false;
        let block = self.block.take()?;
        block.exit_code?;
        self.n_blocks += 1;
        Some(block)
    }

    /// Offers a line.
    pub(super) fn feed(&mut self, text: &str, line: u32, start: u64, end: u64) -> ElasticLine {
        let bare = text.trim();
        let rule = bare.len() >= 10 && (bare.bytes().all(|b| b == b'=') || bare.bytes().all(|b| b == b'-'));
        if rule {
            self.misfits = 0;
            let done = self.finish();
            let last = bare.starts_with('=') && (self.root || self.n_blocks > 0);
            return if last { ElasticLine::Last(done) } else { ElasticLine::Part(done) };
        }
        if bare == "Failures:" || bare.starts_with("Root Cause (first observed failure)") {
            self.misfits = 0;
            let done = self.finish();
            self.root = bare.starts_with("Root");
            return ElasticLine::Part(done);
        }
        if let Some(inside) = text.trim_end().strip_prefix('[').and_then(|t| t.strip_suffix("]:"))
            && !inside.is_empty()
            && digits(inside).1.is_empty()
        {
            self.misfits = 0;
            let done = self.finish();
            self.block = Some(Block { line, start, end, is_root: self.root, ..Block::default() });
            return ElasticLine::Part(done);
        }
        if let Some(block) = &mut self.block
            && let Some((name, value)) = field(text)
            && !(self.in_traceback && text.starts_with("   "))
        {
            self.misfits = 0;
            self.in_traceback = name == "traceback";
            block.set(name, value);
            block.end = end;
            block.add_text(text);
            return ElasticLine::Part(None);
        }
        if let Some(script) = failed_script(text) {
            self.script = Some(clip(script, 1_024).into());
            return ElasticLine::Part(None);
        }
        if bare == "<NO_OTHER_FAILURES>" || (bare.is_empty() && self.in_traceback) {
            return ElasticLine::Part(None);
        }
        if self.in_traceback
            && text.starts_with(' ')
            && let Some(message) = self.block.as_mut().and_then(|b| b.message.as_mut())
        {
            if message.len() < MAX_MESSAGE {
                message.push('\n');
                message.push_str(clip(bare, MAX_MESSAGE));
            }
            return ElasticLine::Part(None);
        }
        self.misfits += 1;
        if self.misfits > 20 { ElasticLine::Over(self.finish()) } else { ElasticLine::Foreign }
    }
}

/// `  exitcode  : -6 (pid: 1345)`.
fn field(text: &str) -> Option<(&str, &str)> {
    const NAMES: [&str; 6] = ["time", "host", "rank", "exitcode", "error_file", "traceback"];
    let (name, value) = text.strip_prefix(' ')?.split_once(':')?;
    let name = name.trim();
    NAMES.contains(&name).then(|| (name, value.trim()))
}

impl Block {
    fn add_text(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(clip(text, 500));
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            "time" => {
                self.at = date_time(value, 1_000_000_000);
                self.time = Some(value.into());
            }
            "host" => {
                self.who.host = (!value.is_empty()).then(|| short_host(value));
                self.host = Some(value.into());
            }
            "rank" => {
                self.who.rank = digits(value).0.parse().ok().map(Rank);
                self.who.local_rank =
                    count_after(value, "local_rank: ").and_then(|n| u32::try_from(n).ok()).map(LocalRank);
            }
            "exitcode" => {
                self.exit_code = number(value).map(|(code, _)| code);
                self.who.pid = count_after(value, "(pid: ").and_then(|n| u32::try_from(n).ok()).map(Pid);
            }
            "traceback" => self.message = Some(clip(value, MAX_MESSAGE).to_owned()),
            _ => {}
        }
    }
}

/// What the agent says in one line, and about whom.
pub(super) fn agent(text: &str) -> Option<(TorchEvent, Who)> {
    let pid_of = |text: &str| digits(text).0.parse().ok().map(Pid);
    if let Some(rest) = after(text, "Sending process ") {
        let pid = pid_of(rest)?;
        let signal = after(rest, "closing signal ")?.trim();
        return Some((
            TorchEvent::ClosingSignal { pid, signal: plain_signal(signal) },
            Who { pid: Some(pid), ..Who::default() },
        ));
    }
    if let Some(rest) = after(text, "Unable to shutdown process ") {
        let pid = pid_of(rest)?;
        let signal = between(rest, "forcefully exiting via ", " ").unwrap_or("SIGKILL");
        return Some((
            TorchEvent::ClosingSignal { pid, signal: plain_signal(signal) },
            Who { pid: Some(pid), ..Who::default() },
        ));
    }
    if let Some(rest) = after(text, "failed (exitcode: ") {
        let (exit_code, _) = number(rest)?;
        let local = after(rest, "local_rank: ").and_then(|t| digits(t).0.parse().ok()).map(LocalRank);
        let pid = after(rest, "(pid: ").and_then(pid_of);
        let exit = TorchEvent::ChildExit { exit_code, is_first: false };
        return Some((exit, Who { local_rank: local, pid, ..Who::default() }));
    }
    if let Some((_, rest)) = text.split_once("Received ")
        && let Some((signal, _)) = rest.split_once(" death signal")
        && !signal.contains(' ')
    {
        return Some((TorchEvent::LauncherKilled { signal: plain_signal(signal) }, Who::default()));
    }
    None
}

/// `Process 2324 got signal: 15`: the launcher's pid and the signal.
pub(super) fn launcher_signal(message: &str) -> (Option<Pid>, Box<str>) {
    let pid = after(message, "Process ").and_then(|t| digits(t).0.parse().ok()).map(Pid);
    let signal = after(message, "got signal: ").unwrap_or(message);
    (pid, plain_signal(signal.lines().next().unwrap_or_default()))
}

/// `Signals.SIGTERM` and `SIGTERM` and `15`, as printed but for the enum's name.
fn plain_signal(text: &str) -> Box<str> {
    let text = text.trim().trim_end_matches('.');
    clip(text.strip_prefix("Signals.").unwrap_or(text), 40).into()
}
