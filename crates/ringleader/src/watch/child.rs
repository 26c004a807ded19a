//! The command that is started and followed.
//!
//! The job must not depend on its watcher: what it prints goes into files, which we pass on, and not into pipes, which
//! would break when we end. The files are evidence as well.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::plugin::{self, LIBRARY};

/// Where NCCL looks for the plugin.
const VARIABLE: &str = "NCCL_PROFILER_PLUGIN";
/// With it PyTorch's profiler asks whether it shall record. Read once, at the start.
const RECORDABLE: &str = "KINETO_USE_DAEMON";
/// Between two looks at what was printed.
const PASS_ON: Duration = Duration::from_millis(50);

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    ended: Option<ExitStatus>,
    passed: Passed,
}

/// What it prints, on its way through files.
#[derive(Default)]
struct Passed {
    logs: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    passers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts it. `name` begins the names of the files in `folder` that take what it prints. Also answers with what
    /// should be said about it.
    ///
    /// # Errors
    /// If it cannot be started, or the files not be made.
    pub(crate) fn start(
        argv: &[OsString],
        rings: Option<&Path>,
        folder: &Path,
        name: &str,
        is_stdout_ours: bool,
        is_recordable: bool,
    ) -> io::Result<(Self, Vec<String>)> {
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments);
        let mut notes = Vec::new();
        match (std::env::var_os(VARIABLE), plugin::find()) {
            (Some(set), _) if !set.to_string_lossy().contains(LIBRARY) => notes.push(format!(
                "{VARIABLE} is already {set} and is left unchanged: operations are not visible. Both can be loaded: \
                 {VARIABLE}={LIBRARY} RINGLEADER_PLUGIN_NEXT={set}",
                set = set.to_string_lossy()
            )),
            (Some(_), _) => {}
            (None, Some(path)) => {
                command.env(VARIABLE, path);
            }
            (None, None) => notes.push(format!(
                "{LIBRARY} is not beside this program: operations are not visible; RINGLEADER_PLUGIN names it"
            )),
        }
        if let Some(rings) = rings {
            command.env("RINGLEADER_RING_DIR", rings);
        }
        if is_recordable && std::env::var_os(RECORDABLE).is_none() {
            command.env(RECORDABLE, "1");
        }
        let mut passed = Passed::default();
        // A terminal is left to the job, since programs print at once only to one.
        if is_stdout_ours || !io::stdout().is_terminal() {
            let to = if is_stdout_ours { Stream::Error } else { Stream::Output };
            command.stdout(passed.on(&folder.join(format!("{name}.stdout.log")), to)?);
        }
        command.stderr(passed.on(&folder.join(format!("{name}.stderr.log")), Stream::Error)?);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                passed.end(false);
                return Err(error);
            }
        };
        Ok((Self { child, ended: None, passed }, notes))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Files with what it has printed.
    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.passed.logs
    }

    /// The last lines that it printed to standard error, else to its output: at most this many non-empty lines.
    pub(crate) fn last_words(&self) -> Vec<String> {
        const LINES: usize = 5;
        const BYTES: usize = 16 << 10;
        let of = |log: &PathBuf| -> Vec<String> {
            let bytes = fs::read(log).unwrap_or_default();
            let tail = bytes.get(bytes.len().saturating_sub(BYTES)..).unwrap_or_default();
            let text = String::from_utf8_lossy(tail);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| (*line).to_owned()).collect()
        };
        self.passed.logs.iter().rev().map(of).find(|lines| !lines.is_empty()).unwrap_or_default()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Hands a signal on that was meant for it.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let (None, Some(pid)) = (self.ended, pid) {
            // Fails only if it has just ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Forwards the rest of its output. Removes the files if they are not needed.
    pub(crate) fn finish(mut self, is_kept: bool) {
        self.passed.end(is_kept || self.ended.is_none());
    }
}

impl Passed {
    /// A file that takes what is printed, and a thread that passes it on.
    fn on(&mut self, path: &Path, to: Stream) -> io::Result<Stdio> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        let (read, stop) = (File::open(path)?, Arc::clone(&self.stop));
        self.passers.push(thread::spawn(move || pass_on(read, to, &stop)));
        self.logs.push(path.to_owned());
        Ok(file.into())
    }

    fn end(&mut self, is_kept: bool) {
        self.stop.store(true, Ordering::Relaxed);
        for passer in self.passers.drain(..) {
            let _ = passer.join();
        }
        for log in self.logs.iter().filter(|_| !is_kept) {
            // A file that cannot be removed stays; that is harmless.
            let _ = fs::remove_file(log);
        }
    }
}

/// The exit code by which a shell shows how a process ended.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

/// Copies what is appended, until asked to stop and nothing is left.
fn pass_on(mut from: File, to: Stream, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        match from.read(&mut buffer) {
            Ok(0) if is_last => return,
            Ok(0) => thread::sleep(PASS_ON),
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or_default();
                // Nobody may be listening any more; the file has it all.
                let _ = match to {
                    Stream::Output => {
                        io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush())
                    }
                    Stream::Error => io::stderr().lock().write_all(bytes),
                };
            }
            Err(_) => return,
        }
    }
}
