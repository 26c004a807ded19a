//! A file read through a process of its own: a file system that stops to answer in the middle costs the rest of the file
//! and a moment.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_bundle::ItemSource;
use ringleader_node::Outcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::request::{FileAsk, Request};
use crate::run::stuck_in;
use crate::tasks::BYTES_OF;

/// Patience between one piece and the next: a file server may be busy for a moment.
const SILENCE: Duration = Duration::from_secs(4);
/// Patience with a process that has said all and has to end.
const TO_END: Duration = Duration::from_millis(200);
/// Longest first line.
const MAX_LINE: usize = 4_096;

/// One file.
pub(super) struct Poured<'c> {
    program: &'c Path,
    ask: FileAsk,
    running: Option<Running>,
    until: Instant,
    /// It timed out.
    is_hung: bool,
}

struct Running {
    /// None when it has ended.
    child: Option<Child>,
    output: ChildStdout,
}

impl<'c> Poured<'c> {
    /// Begins with [`Self::start`], or when it is first read from.
    pub(super) fn new(program: &'c Path, ask: FileAsk, longest: Duration) -> Self {
        Self { program, ask, running: None, until: Instant::now() + longest, is_hung: false }
    }

    /// Whether it timed out.
    pub(super) fn is_hung(&self) -> bool {
        self.is_hung
    }

    /// Opens it where the reading begins.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let mut child = Command::new(self.program)
            .args(["probe", BYTES_OF])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            let request = Request { file: Some(self.ask.clone()), ..Request::default() };
            // One that dies before it has read the request is recognised by its answer.
            let _ = serde_json::to_writer(&mut input, &request);
        }
        let output = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        self.running = Some(Running { child: Some(child), output });
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\n") && line.len() < MAX_LINE && self.read_some(&mut byte)? > 0 {
            line.extend_from_slice(&byte);
        }
        match serde_json::from_slice::<Outcome<()>>(&line) {
            Ok(Outcome::Seen(())) => Ok(()),
            Ok(Outcome::Failed(why)) => Err(io::Error::other(why)),
            _ => Err(io::Error::other("the process that reads it ended at once")),
        }
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(running) = &mut self.running else { return Ok(0) };
        let heard = Instant::now();
        loop {
            let wait =
                SILENCE.min(self.until.saturating_duration_since(heard)).saturating_sub(heard.elapsed());
            let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let mut fds = [PollFd::new(&running.output, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if wait.is_zero() => {
                    let place = running.child.as_ref().map(|child| stuck_in(child.id())).unwrap_or_default();
                    self.is_hung = true;
                    self.running = None;
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no answer within {:.1} s: {place}", heard.elapsed().as_secs_f64()),
                    ));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return running.output.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Poured<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_hung {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        if self.running.is_none() {
            self.start()?;
        }
        let n = self.read_some(buffer)?;
        self.ask.from += n as u64;
        if n == 0 && !buffer.is_empty() && self.running.as_mut().is_some_and(|running| !running.ended_well())
        {
            return Err(io::Error::other("reading it failed"));
        }
        Ok(n)
    }
}

impl ItemSource for Poured<'_> {
    /// Another process begins behind the gap.
    fn pass_over(&mut self, n_bytes: u64) -> io::Result<()> {
        self.running = None;
        self.ask.from += n_bytes;
        Ok(())
    }
}

impl Running {
    fn ended_well(&mut self) -> bool {
        let until = Instant::now() + TO_END;
        while let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(Some(status)) => {
                    self.child = None;
                    return status.success();
                }
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                _ => return false,
            }
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if it has just ended; one in the kernel dies when the kernel lets it.
            let _ = child.kill();
            thread::spawn(move || child.wait());
        }
    }
}
