//! Stacks of the ranks during a stall, for the digest: where each is outside any collective. Taken by processes of
//! their own, as `collect` takes them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_collect::{Request, Target};
use ringleader_watch::digest::MAX_FRAMES;

/// Between two samples.
const PAUSE: Duration = Duration::from_secs(3);
/// Patience with one process.
const PATIENCE_MS: u64 = 2_500;
/// Ranks that are looked into.
const MAX_RANKS: usize = 64;

/// By pid: frames, outermost first.
type Stacks = BTreeMap<u32, Vec<String>>;

#[derive(Default)]
pub(crate) struct Sampler {
    under_way: Option<Receiver<Stacks>>,
    last: Option<Instant>,
}

impl Sampler {
    /// Begins a sample, unless one is under way or was taken less than `pause` ago.
    pub(crate) fn sample(&mut self, mut pids: Vec<u32>, pause: Duration) {
        if self.under_way.is_some() || self.last.is_some_and(|last| last.elapsed() < pause.max(PAUSE)) {
            return;
        }
        pids.truncate(MAX_RANKS);
        let (sender, receiver) = mpsc::channel();
        self.under_way = Some(receiver);
        thread::spawn(move || {
            let stacks = pids.into_iter().filter_map(|pid| Some((pid, frames(&take(pid)?)))).collect();
            // The watcher may have ended.
            let _ = sender.send(stacks);
        });
    }

    /// What has come since.
    pub(crate) fn taken(&mut self) -> Option<Stacks> {
        match self.under_way.as_ref()?.try_recv() {
            Ok(stacks) => {
                self.under_way = None;
                self.last = Some(Instant::now());
                Some(stacks)
            }
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => {
                self.under_way = None;
                None
            }
        }
    }
}

/// The text that the task `stacks-of` gives of a process; none if there is none in time.
fn take(pid: u32) -> Option<String> {
    let request = Request {
        target: Target { pids: vec![pid], ..Target::default() },
        deadline_ms: PATIENCE_MS,
        ..Request::default()
    };
    let mut child = Command::new(std::env::current_exe().ok()?)
        .args(["probe", "stacks-of"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    if let Some(input) = child.stdin.take() {
        serde_json::to_writer(input, &request).ok()?;
    }
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take()?;
    thread::spawn(move || {
        let answer: Option<serde_json::Value> = serde_json::from_reader(output).ok();
        let _ = sender.send(answer);
    });
    let answer = receiver.recv_timeout(Duration::from_millis(PATIENCE_MS)).ok().flatten();
    // Our own child, which reads another process's memory; one that hangs in that is given up.
    let _ = child.kill();
    thread::spawn(move || child.wait());
    answer?["seen"].as_str().map(str::to_owned)
}

/// Frames of the main thread in `py-spy dump`'s form, outermost first.
fn frames(text: &str) -> Vec<String> {
    let mut frames: Vec<String> = text
        .lines()
        .skip_while(|line| !line.contains("\"MainThread\"") && !line.starts_with("Thread "))
        .skip(1)
        .take_while(|line| line.starts_with("    "))
        .map(|line| line.trim().to_owned())
        .take(MAX_FRAMES)
        .collect();
    frames.reverse();
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_thread_from_the_outside_in() {
        let text = "Process 17: python\nPython v3.12.3 (/usr/bin/python3)\n\n\
                    Thread 17 (idle): \"MainThread\"\n    wait (threading.py:355)\n    step (train.py:83)\n    \
                    <module> (train.py:90)\nThread 18 (idle): \"loader\"\n    get (queue.py:1)\n";
        assert_eq!(frames(text), ["<module> (train.py:90)", "step (train.py:83)", "wait (threading.py:355)"]);
    }
}
