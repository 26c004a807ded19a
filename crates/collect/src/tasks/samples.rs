//! Where the main thread of a running process is, many times: Python's frames by py-spy, as a library, without stopping the
//! process. Printed folded, as `py-spy record --format raw` prints, whose form the reader of stacks knows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};

use super::stacks::{explain, name_of};
use crate::request::{ReadingError, Request};

/// A process that has not been read so often in a row is given up.
const MAX_FAILED: u32 = 8;

pub(super) fn take(request: &Request) -> Result<String, ReadingError> {
    let pid = request.pid()?;
    let id = py_spy::Pid::try_from(pid).map_err(|error| ReadingError::Failed(error.to_string()))?;
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let every = Duration::from_millis(request.every_ms);
    let began = Instant::now();
    let mut spy: Option<PythonSpy> = None;
    let mut folded: BTreeMap<String, u32> = BTreeMap::new();
    let (mut n_failed, mut last) = (0, String::new());
    for n in 0..request.n_samples {
        thread::sleep((every * n).saturating_sub(began.elapsed()));
        let read = match &mut spy {
            Some(spy) => spy.get_stack_traces(),
            None => PythonSpy::new(id, &config).and_then(|new| spy.insert(new).get_stack_traces()),
        };
        match read {
            Ok(traces) => {
                n_failed = 0;
                if let Some(stack) = traces.iter().find(|trace| is_main(trace, pid)).and_then(fold) {
                    *folded.entry(stack).or_default() += 1;
                }
            }
            Err(error) => {
                last = format!("{error:#}");
                n_failed += 1;
                // It may be about to end, or a read was torn.
                if n_failed > MAX_FAILED {
                    break;
                }
            }
        }
    }
    if folded.is_empty() {
        let why = if last.is_empty() { "no thread has a Python frame".to_owned() } else { explain(&last) };
        return Err(ReadingError::Failed(why));
    }
    let (shown, name) = (request.known_pid.unwrap_or(pid), name_of(pid));
    let mut out = String::new();
    for (stack, n) in folded {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "process {shown}:\"{name}\";{stack} {n}");
    }
    Ok(out)
}

fn is_main(trace: &StackTrace, pid: u32) -> bool {
    trace.thread_name.as_deref() == Some("MainThread") || trace.os_thread_id == Some(u64::from(pid))
}

/// Frames, outermost first; None without any.
fn fold(trace: &StackTrace) -> Option<String> {
    let frames: Vec<String> = trace
        .frames
        .iter()
        .rev()
        .map(|frame| {
            let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
            let line = format!("{} ({file}:{})", frame.name, frame.line.max(0));
            // What separates frames, and lines, is not to be in a name.
            line.chars().map(|c| if c == ';' || c.is_control() { '?' } else { c }).collect()
        })
        .collect();
    (!frames.is_empty()).then(|| frames.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_make_a_frame_or_a_line() {
        let frame = |name: &str, line| py_spy::Frame {
            name: name.to_owned(),
            filename: "/srv/train.py".to_owned(),
            module: None,
            short_filename: None,
            line,
            locals: None,
            is_entry: false,
            is_shim_entry: false,
        };
        let trace = StackTrace {
            pid: 1,
            thread_id: 1,
            thread_name: Some("MainThread".to_owned()),
            os_thread_id: None,
            active: true,
            owns_gil: false,
            frames: vec![frame("load;x\n", 3), frame("<module>", 90)],
            process_info: None,
        };
        assert!(is_main(&trace, 7));
        assert_eq!(fold(&trace).as_deref(), Some("<module> (/srv/train.py:90);load?x? (/srv/train.py:3)"));
    }
}
