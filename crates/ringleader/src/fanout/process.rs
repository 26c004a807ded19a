//! A local process with a deadline: reads what it says without waiting for anybody who merely holds its pipes.

use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::spool::Output;
use super::{Input, Limits, Ran};

/// How often to check for an exit that no pipe reports.
const TICK: Duration = Duration::from_millis(100);
/// Patience with a pipe after its process has ended: a master connection of ssh keeps it open for hours.
const LINGER: Duration = Duration::from_millis(300);
/// Time to end in good order.
const GRACE: Duration = Duration::from_secs(1);
/// Bytes of standard error that are kept: the last ones, since banners come first.
const MAX_SAID: usize = 8192;

/// How it ended.
pub(crate) enum CommandEnd {
    /// By itself.
    Ran(Ran),
    /// It was ended at the deadline, or because it is no longer needed. With its output until then.
    TimedOut(String),
}

/// Runs it to its end or to the deadline.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn run(
    command: &mut Command,
    input: &Input,
    mut output: Output<'_>,
    limits: &Limits<'_>,
) -> io::Result<CommandEnd> {
    let stdin = match input {
        Input::Nothing => Stdio::null(),
        Input::File(path) => File::open(path)?.into(),
    };
    let mut child = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    // When it ended, or was last heard after its end.
    let (mut ended_at, mut status) = (None, None);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let now = Instant::now();
        if status.is_none() {
            if let Some(ended) = child.try_wait()? {
                (status, ended_at) = (Some(ended), Some(now));
            } else if now >= limits.until || limits.stop.load(Ordering::Relaxed) {
                end(&mut child);
                return Ok(CommandEnd::TimedOut(String::from_utf8_lossy(&said).into_owned()));
            }
        }
        if let Some(status) = status {
            let is_over = stdout.is_none() && stderr.is_none();
            if is_over || ended_at.is_some_and(|at| now.duration_since(at) > LINGER) {
                return Ok(CommandEnd::Ran(ran(Some(status), output, &said)));
            }
        }
        let wait = TICK.min(limits.until.saturating_duration_since(now)).max(Duration::from_millis(1));
        let (is_out, is_err) = ready(stdout.as_ref(), stderr.as_ref(), wait)?;
        if is_out && let Some(n) = read(&mut stdout, &mut buffer)? {
            if !output.take(&buffer[..n]) {
                end(&mut child);
                return Ok(CommandEnd::Ran(ran(status, output, &said)));
            }
            // What it wrote before its end is read to its end, unless the deadline comes first.
            ended_at = ended_at.map(|at: Instant| if now < limits.until { now } else { at });
        }
        if is_err && let Some(n) = read(&mut stderr, &mut buffer)? {
            said.extend_from_slice(&buffer[..n]);
            let surplus = said.len().saturating_sub(MAX_SAID);
            said.drain(..surplus);
        }
    }
}

fn ran(status: Option<ExitStatus>, output: Output<'_>, said: &[u8]) -> Ran {
    let (output, n_output, is_cut) = output.end();
    let said = String::from_utf8_lossy(said).into_owned();
    Ran { status: status.and_then(|status| status.code()), output, n_output, said, is_cut }
}

/// Which of the two has something to read, or has ended.
fn ready(
    stdout: Option<&std::process::ChildStdout>,
    stderr: Option<&std::process::ChildStderr>,
    wait: Duration,
) -> io::Result<(bool, bool)> {
    let mut fds = Vec::with_capacity(2);
    fds.extend(stdout.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    fds.extend(stderr.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    if fds.is_empty() {
        std::thread::sleep(wait.min(Duration::from_millis(5)));
        return Ok((false, false));
    }
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut told = fds.iter().map(|fd| !fd.revents().is_empty());
    let is_out = stdout.is_some() && told.next().unwrap_or(false);
    Ok((is_out, stderr.is_some() && told.next().unwrap_or(false)))
}

/// Reads what is there; a pipe at its end is closed.
fn read<P: Read>(pipe: &mut Option<P>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let Some(open) = pipe else { return Ok(None) };
    match open.read(buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(None)
        }
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends our own child: asks first, since srun then cancels its step.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = Pid::from_raw(pid)
    {
        let _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}
