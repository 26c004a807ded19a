//! What ProcessGroupNCCL and its watchdog say.
//!
//! `[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45, OpType=ALLREDUCE, NumelIn=1048576,
//! NumelOut=1048576, Timeout(ms)=8000) ran for 8012 milliseconds before timing out.`, written by pytorch/pytorch
//! `torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp`; the wordings of 2.0 to 2.11 are read.

use ringleader_model::{Frame, GroupLabel, OpKind, Rank, TorchEvent, WorkDescription};

use super::scan::{after, between, clip, count_after, digits, number_after};

/// A statement of several lines that goes on below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// `#0 all_reduce from /…/distributed_c10d.py:3068` lines follow.
    Stack,
    /// `raised the following async exception`.
    AsyncError,
    /// `terminated with exception`.
    Died,
}

/// What one line says.
#[derive(Debug, Default)]
pub(super) struct WatchdogLine {
    pub(super) events: Vec<TorchEvent>,
    pub(super) begins: Option<Begins>,
    /// The process announced that it ends itself.
    pub(super) terminates: bool,
}

/// Statements that are harmless, or echo what was said already.
const ECHOES: [(&str, &str); 20] = [
    ("destroy_process_group() was not called", "destroy_process_group() was not called"),
    ("An unbatched P2P op", "unbatched point-to-point operation"),
    ("is deprecated; use", "deprecated environment variable"),
    ("First PG on this rank to signal dumping", "first group of this rank to signal a dump"),
    ("preparing to dump debug info", "writes its flight record"),
    ("Observed flight recorder dump signal from another rank", "another rank signalled a dump"),
    ("Terminating the process after attempting to dump debug info", "ends itself after the dump"),
    (
        "Stack trace of the failed collective not found",
        "no stack of the failed collective: flight recorder off",
    ),
    ("Some NCCL operations have failed or timed out", "says that operations failed"),
    ("To avoid data inconsistency, we are taking the entire process down", "takes the process down"),
    ("NCCL communicator was aborted on rank", "communicator was aborted"),
    (
        "to perform barrier as devices used by this process are currently unknown",
        "barrier without a known device",
    ),
    ("No device id is provided via `init_process_group`", "barrier without a known device"),
    ("The hostname of the client socket cannot be retrieved", "reverse lookup of a client failed"),
    ("waitForInput: poll for socket", "a socket of the store timed out"),
    ("waitForInput: socket", "a socket of the store timed out"),
    ("Read callback failed. code:-4095", "a client of the store closed its connection"),
    ("The debug level is set to", "debug level"),
    ("Guessing device ID based on global rank", "device guessed from the rank"),
    ("Tensors may be leaked", "tensors may be leaked"),
];

/// Reads a message of torch, without its prefixes.
pub(super) fn read(text: &str, group: &GroupLabel) -> WatchdogLine {
    let mut said = WatchdogLine::default();
    if text.contains("terminated with exception") && text.contains("watchdog") {
        said.begins = Some(Begins::Died);
        said.events.extend(timeout(text, group));
    } else if text.contains("raised the following async exception") {
        said.begins = Some(Begins::AsyncError);
    } else if let Some(event) = timeout(text, group).or_else(|| position(text, group)) {
        said.events.push(event);
    } else if text.contains("Received a dump signal due to") {
        said.events.push(TorchEvent::DumpSignal {
            from: after(text, "from  rank ")
                .or_else(|| after(text, "from rank "))
                .and_then(|t| digits(t).0.parse().ok())
                .map(Rank),
        });
        said.events.extend(dump_position(text, group));
    } else if text.starts_with("Stack trace of the failed collective:") {
        said.begins = Some(Begins::Stack);
    } else if let Some(rest) = after(text, "watchdog got stuck for ") {
        said.events.push(TorchEvent::WatchdogStuck { seconds: digits(rest).0.parse().ok() });
    } else if text.contains("Heartbeat monitor timed out")
        || text.contains("due to ProcessGroupNCCL watchdog hang")
    {
        said.events.push(TorchEvent::WatchdogStuck { seconds: None });
        said.terminates = text.contains("Terminating the process");
    } else if text.contains("possible GIL induced hang") {
        said.events.push(TorchEvent::GilStuck);
    } else if let Some((_, what)) = ECHOES.iter().find(|(words, _)| text.contains(words)) {
        said.terminates = text.contains("Terminating the process");
        said.events.push(TorchEvent::Echo { what });
    }
    said
}

/// A timeout, wherever it is quoted.
pub(super) fn timeout(text: &str, group: &GroupLabel) -> Option<TorchEvent> {
    if let Some(rest) = after(text, "Watchdog caught collective operation timeout: ") {
        let work = work(rest)?;
        let ran_ms = count_after(rest, "ran for ").or(work.timeout_ms)?;
        return Some(TorchEvent::WatchdogTimeout { work, ran_ms, group: group.clone() });
    }
    if text.contains("timed out in blocking wait") || text.contains("timed out in call to wait()") {
        let work = work(text)?;
        let ran_ms = work.timeout_ms?;
        return Some(TorchEvent::WatchdogTimeout { work, ran_ms, group: group.clone() });
    }
    None
}

fn position(text: &str, group: &GroupLabel) -> Option<TorchEvent> {
    let (seq, rest) = if let Some(rest) = after(text, "failure detected by watchdog at work sequence id: ") {
        (digits(rest).0, rest)
    } else if let Some(rest) = after(text, "Timeout at NCCL work: ") {
        (digits(rest).0, rest)
    } else {
        return None;
    };
    let last_enqueued = number_after(rest, "last enqueued work: ")
        .or_else(|| number_after(rest, "last enqueued NCCL work: "))?;
    let last_completed = number_after(rest, "last completed work: ")
        .or_else(|| number_after(rest, "last completed NCCL work: "))?;
    Some(TorchEvent::WatchdogPosition {
        seq: seq.parse().ok(),
        last_enqueued,
        last_completed,
        group: group.clone(),
    })
}

fn dump_position(text: &str, group: &GroupLabel) -> Option<TorchEvent> {
    Some(TorchEvent::WatchdogPosition {
        seq: None,
        last_enqueued: number_after(text, "Last enqueued NCCL work: ")?,
        last_completed: number_after(text, "last completed NCCL work: ")?,
        group: group.clone(),
    })
}

/// `WorkNCCL(SeqNum=45, OpType=ALLREDUCE, NumelIn=…, NumelOut=…, Timeout(ms)=8000)`, `WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=8000)`.
pub(super) fn work(text: &str) -> Option<WorkDescription> {
    let text = after(text, "WorkNCCL(")?;
    let kind = after(text, "OpType=")?;
    Some(WorkDescription {
        seq: count_after(text, "SeqNum="),
        kind: OpKind::from_op_type(kind.split([',', ')']).next().unwrap_or(kind)),
        numel_in: count_after(text, "NumelIn="),
        numel_out: count_after(text, "NumelOut="),
        timeout_ms: count_after(text, "Timeout(ms)="),
    })
}

/// `#2 sync_grads from /srv/train/train.py:80`.
pub(super) fn stack_line(text: &str) -> Option<Frame> {
    let (_, rest) = digits(text.strip_prefix('#')?);
    let (function, place) = rest.strip_prefix(' ')?.split_once(" from ")?;
    let (file, line) = place.trim_end().rsplit_once(':')?;
    Some(Frame {
        function: clip(function, 512).into(),
        file: clip(file, 1_024).into(),
        line: line.parse().ok()?,
    })
}

/// An async error from all of its lines.
pub(super) fn async_error(text: &str) -> TorchEvent {
    let error = after(text, "raised the following async exception:").unwrap_or(text).trim();
    let (error, last_error) = match error.split_once("Last error:") {
        Some((error, last)) => (error.trim(), Some(last.trim()).filter(|l| !l.is_empty())),
        None => (error, None),
    };
    TorchEvent::AsyncError { work: work(text), error: error.into(), last_error: last_error.map(Into::into) }
}

/// The end of a watchdog thread from all of its lines.
pub(super) fn died(text: &str) -> TorchEvent {
    let error = between(text, "terminated with exception:", "\0").unwrap_or(text).trim();
    TorchEvent::WatchdogDied { error: error.into() }
}
