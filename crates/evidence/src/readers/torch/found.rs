//! What was found, and what a traceback comes to.

use ringleader_model::{
    GroupLabel, PythonException, Rank, StoreEvent, TorchEvent, WallTime, Who, user_frame,
};

use super::traceback::Traceback;
use super::{elastic, fingerprint, header, scan, store, watchdog};

/// Something found, kept to the end of the file so that it is handed on in the file's order.
#[derive(Debug)]
pub(super) struct FoundEvent {
    pub(super) line: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) who: Who,
    pub(super) at: Option<WallTime>,
    pub(super) event: TorchEvent,
    pub(super) text: String,
}

impl FoundEvent {
    /// What a traceback says: the exception, and what its message states directly.
    pub(super) fn from_traceback(seen: Traceback) -> Vec<Self> {
        let launchers = seen.is_launchers();
        let last_error = seen.nccl_last_error().map(Into::into);
        let Traceback { mut who, at, line, start, end, class, message, mut frames, chained, interleaved } =
            seen;
        frames.reverse();
        let mut text = match message.lines().next() {
            Some(first) => format!("{class}: {first}"),
            None => class.to_string(),
        };
        let name = class.rsplit('.').next().unwrap_or_default();
        let found = |who: &Who, event, text: &str| Self {
            line,
            start,
            end,
            who: who.clone(),
            at,
            event,
            text: text.to_owned(),
        };
        if launchers {
            let event = match name {
                "SignalException" => {
                    let (pid, signal) = elastic::launcher_signal(&message);
                    who.pid = pid.or(who.pid);
                    TorchEvent::LauncherKilled { signal }
                }
                "KeyboardInterrupt" => TorchEvent::LauncherKilled { signal: "SIGINT".into() },
                "ChildFailedError" => {
                    let script = message.lines().find_map(elastic::failed_script).map(Into::into);
                    TorchEvent::LauncherFailed { script }
                }
                "CalledProcessError" | "" => TorchEvent::LauncherFailed { script: None },
                _ => match store::read(&text) {
                    Some(event) => event,
                    None if name.starts_with("Rendezvous") => {
                        TorchEvent::Store(StoreEvent::Rendezvous { text: text.as_str().into() })
                    }
                    None => TorchEvent::ErrorLine { text: text.as_str().into() },
                },
            };
            return vec![found(&who, event, &text)];
        }
        if who.rank.is_none() {
            who.rank = speaker_of(&message);
        }
        let mut also: Vec<TorchEvent> = Vec::new();
        also.extend(fingerprint::read(&message));
        also.extend(watchdog::timeout(&message, &GroupLabel::default()));
        also.extend(store::read(&message).or_else(|| (name == "gaierror").then(|| store::read(&text))?));
        if let Some(frame) = user_frame(&frames) {
            text = format!("{text}\n  File \"{}\", line {}, in {}", frame.file, frame.line, frame.function);
        }
        let exception = PythonException {
            class,
            message: message.into(),
            frames,
            chained,
            nccl_last_error: last_error,
            interleaved,
        };
        let mut all = vec![found(&who, TorchEvent::Exception(Box::new(exception)), &text)];
        all.extend(also.into_iter().map(|event| found(&who, event, &text)));
        all
    }
}

/// The rank that an error's own words name as the one speaking.
fn speaker_of(message: &str) -> Option<Rank> {
    if let Some((figures, rest)) = message.strip_prefix('[').and_then(|t| t.split_once(']'))
        && rest.starts_with(" is setting up NCCL communicator")
    {
        return figures.parse().ok().map(Rank);
    }
    if let Some(rest) = scan::after(message, "Detected mismatch between collectives on ranks. Rank ") {
        return scan::digits(rest).0.parse().ok().map(Rank);
    }
    header::speaker(message).0.rank
}
