//! Pasted text: what the readers of evidence recognise in it, explained.

use ringleader_evidence::{Limits, Scratch};
use ringleader_knowledge::{cuda_error, message, nccl_result, saying, signal};
use ringleader_model::{
    Cause, Fact, GlooEvent, NcclLog, NcclMessage, Observation, PythonException, StoreEvent, TorchEvent, Who,
    WorkDescription,
};

use crate::explain::answer::{Kind, Topic};
use crate::explain::{kernel, settings, topics};

/// What the readers see in `text`, most telling first; empty if they see nothing.
pub(super) fn read(text: &str) -> Vec<Topic> {
    let limits = Limits { max_observations: 200, max_notes: 1, max_calls: 200, ..Limits::default() };
    let mut input = format!("{text}\n");
    let extract = ringleader_evidence::read(
        "pasted",
        &mut std::mem::take(&mut input).as_bytes(),
        &mut Scratch::default(),
        &limits,
    );
    let mut found: Vec<(u8, Topic)> = Vec::new();
    for observation in &extract.observations {
        of_observation(observation, &mut found);
    }
    found.sort_by_key(|(order, _)| *order);
    let mut topics: Vec<Topic> = Vec::new();
    for (_, topic) in found {
        if !topics.iter().any(|t| t.name == topic.name && t.read == topic.read) {
            topics.push(topic);
        }
    }
    topics
}

/// How specific a topic is: errors before the lines around them.
const ERROR: u8 = 0;
const ABOUT: u8 = 1;
const ASIDE: u8 = 2;

fn of_observation(observation: &Observation, found: &mut Vec<(u8, Topic)>) {
    match &observation.fact {
        Fact::Nccl(log) => nccl(log, found),
        Fact::Torch(event) => {
            if let Some((order, mut topic)) = torch(event) {
                who(&mut topic, &observation.who);
                found.push((order, topic));
            }
        }
        Fact::Environment(listing) => {
            for setting in &listing.settings {
                found.extend(settings::explained(&setting.name, &setting.value, None).map(|t| (ABOUT, t)));
            }
        }
        Fact::Kernel(event) => {
            if let Some(mut topic) = kernel::explained(event) {
                topic
                    .read("host", observation.who.host.as_ref().map(ToString::to_string).unwrap_or_default());
                found.push((ERROR, topic));
            }
        }
        _ => {}
    }
}

fn who(topic: &mut Topic, who: &Who) {
    topic.read("rank", who.rank.map(|r| r.0.to_string()).unwrap_or_default());
    topic.read("host", who.host.as_ref().map(ToString::to_string).unwrap_or_default());
    topic.read("process", who.pid.map(|p| p.0.to_string()).unwrap_or_default());
}

fn nccl(log: &NcclLog, found: &mut Vec<(u8, Topic)>) {
    let process = |index: u32| log.processes.get(index as usize).map(|p| &p.who);
    for message in &log.messages {
        let mut topic = of_message(message);
        if let Some(process) = process(message.process) {
            who(&mut topic, process);
        }
        topic.read("GPU of the thread", message.cuda_dev.map(|d| d.to_string()).unwrap_or_default());
        topic.read("place", message.origin.as_deref().unwrap_or_default());
        found.push((ERROR, topic));
    }
    for setting in &log.settings {
        let value = setting.value.trim_end_matches('.');
        if let Some(mut topic) = settings::explained(&setting.name, value, None) {
            if let Some(process) = process(setting.process) {
                who(&mut topic, process);
            }
            found.push((ABOUT, topic));
        }
    }
    for backtrace in &log.backtraces {
        if let Some(mut topic) = topics::of_event("nccl-backtrace") {
            topic.read("place", &*backtrace.origin);
            if let Some(result) = nccl_result::get(backtrace.result) {
                topic.read("result", format!("{} {}: {}", result.code, result.name, result.text));
                topic.see(result.name);
            }
            found.push((ABOUT, topic));
        }
    }
    if found.is_empty() {
        found.extend(topics::of_event("nccl-info").map(|topic| (ASIDE, topic)));
    }
}

fn of_message(message: &NcclMessage) -> Topic {
    let text = &*message.text;
    let origin = message.origin.as_deref().unwrap_or_default();
    let mut topic = said_by_nccl(text, origin);
    topic.read("text", text);
    if let Some(result) = message.result.and_then(nccl_result::get) {
        topic.read("result", result.name);
        topic.see(result.name);
    }
    topic
}

/// What NCCL means by a text.
pub(super) fn said_by_nccl(text: &str, origin: &str) -> Topic {
    let known = saying::of(text, origin, true);
    let mut topic = match (topics::warn_of(text), known) {
        // What is known of the text with its values tells more than what is known of the format.
        (Some(row), Some(known)) => {
            let mut topic = topics::warn(row);
            let own = topics::saying(known);
            topic.title = own.title;
            topic.meaning = own.meaning;
            topic.is_not = own.is_not;
            topic.actions = if own.actions.is_empty() { topic.actions } else { own.actions };
            topic.see_first(own.see_also);
            topic
        }
        (Some(row), None) => topics::warn(row),
        (None, Some(known)) => topics::saying(known),
        (None, None) => {
            let mut topic =
                Topic::new(Kind::NcclMessage, "an NCCL message", "text that no release is known to print");
            topic.meaning.push_str(
                "NCCL 2.14.3 to 2.30.7 does not print this text as a warning: it comes from another release or a plugin, or is truncated.",
            );
            topic
                .sources
                .push("NVIDIA/nccl src/, WARN calls of all release tags 2.14.3 to 2.30.7".to_owned());
            topic
        }
    };
    errors_within(&mut topic, text);
    topic
}

/// CUDA errors quoted in a text.
fn errors_within(topic: &mut Topic, text: &str) {
    if let Some(error) = cuda_error::in_text(text) {
        topic.read("CUDA error", format!("{} {}", error.code, error.text));
        topic.see(format!("CUDA error {}", error.code));
    }
}

fn work(topic: &mut Topic, work: &WorkDescription) {
    let number = work.seq.map_or_else(String::new, |seq| format!(" number {seq}"));
    topic.read("operation", format!("{:?}{number}", work.kind));
    let size = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    topic.read("elements in, out", format!("{}, {}", size(work.numel_in), size(work.numel_out)));
    topic.read("timeout", work.timeout_ms.map(|ms| format!("{} s", ms / 1000)).unwrap_or_default());
}

/// A text of a program: what its saying knows, else the form it has.
fn said(text: &str, form: &str) -> Option<(u8, Topic)> {
    if let Some(known) = saying::of(text, "", false) {
        let mut topic = topics::saying(known);
        topic.read("text", text);
        errors_within(&mut topic, text);
        return Some((ERROR, topic));
    }
    // What `diagnose` would classify it as, where that names a cause.
    let names_cause =
        |found: &message::Match<'_>| !found.row.cause().is_empty() || found.row.candidates().next().is_some();
    if let Some(found) = message::best(text).filter(names_cause) {
        return Some((ERROR, topics::message_read(&found, text)));
    }
    let mut topic = topics::of_event(form)?;
    topic.read("text", text);
    errors_within(&mut topic, text);
    Some((ABOUT, topic))
}

fn torch(event: &TorchEvent) -> Option<(u8, Topic)> {
    let of = |id: &str| topics::of_event(id);
    let topic = match event {
        TorchEvent::WatchdogTimeout { work: what, ran_ms, .. } => {
            let mut topic = of("watchdog-timeout")?;
            work(&mut topic, what);
            topic.read("ran for", format!("{} s", ran_ms / 1000));
            topic
        }
        TorchEvent::WatchdogPosition { last_enqueued, last_completed, .. } => {
            let mut topic = of("watchdog-position")?;
            topic.read("last enqueued", last_enqueued.to_string());
            topic.read("last completed", last_completed.to_string());
            topic
        }
        TorchEvent::FailedCollectiveStack { .. } => of("watchdog-timeout")?,
        TorchEvent::AsyncError { work: what, error, last_error } => {
            let mut topic = of("async-error")?;
            if let Some(what) = what {
                work(&mut topic, what);
            }
            backend(&mut topic, error, last_error.as_deref());
            topic
        }
        TorchEvent::WatchdogDied { error } => {
            let mut topic = of("watchdog-died")?;
            topic.read("text", &**error);
            errors_within(&mut topic, error);
            topic
        }
        TorchEvent::DumpSignal { .. } => return Some((ASIDE, of("dump-signal")?)),
        TorchEvent::WatchdogStuck { seconds } => {
            let mut topic = of("watchdog-stuck")?;
            topic.read("for", seconds.map(|s| format!("{s} s")).unwrap_or_default());
            topic
        }
        TorchEvent::GilStuck => of("gil-stuck")?,
        TorchEvent::Desync { .. } => of("desync-report")?,
        TorchEvent::FingerprintMismatch { mine, theirs } => {
            let mut topic = of("fingerprint-mismatch")?;
            for print in [mine, theirs] {
                let rank = print.rank.map_or("a rank".to_owned(), |r| format!("rank {}", r.0));
                topic.read(&rank, format!("{} {} {}", print.op_type, print.shape, print.dtypes));
            }
            topic
        }
        TorchEvent::Exception(exception) => return exception_topic(exception),
        TorchEvent::Crash { reason, signal, .. } => crash(reason, *signal)?,
        TorchEvent::ChildFailure { exit_code, host, .. } => {
            let mut topic = of("child-failure")?;
            exit(&mut topic, *exit_code);
            topic.read("on", host.as_deref().unwrap_or_default());
            topic
        }
        TorchEvent::ChildExit { exit_code, .. } => {
            let mut topic = of("child-failure")?;
            exit(&mut topic, *exit_code);
            topic
        }
        TorchEvent::LauncherFailed { .. } => of("launcher-failed")?,
        TorchEvent::Started => return None,
        TorchEvent::ClosingSignal { .. } => return Some((ASIDE, of("closing-signal")?)),
        TorchEvent::LauncherKilled { signal } => {
            let mut topic = of("launcher-killed")?;
            topic.read("signal", &**signal);
            topic
        }
        TorchEvent::Store(event) => return store(event),
        TorchEvent::Gloo(event) => {
            let mut topic = of("gloo")?;
            match event {
                GlooEvent::ClosedByPeer { peer } => topic.read("peer", &**peer),
                GlooEvent::ConnectFailed { text, .. } | GlooEvent::Other { text } => {
                    return said(text, "gloo");
                }
                GlooEvent::TimedOut | GlooEvent::LoopbackFallback => {}
            }
            topic
        }
        TorchEvent::BarrierMissed { absent } => {
            let mut topic = of("barrier-missed")?;
            topic.read("absent", absent.to_string());
            topic
        }
        TorchEvent::NoNccl { .. } => of("no-nccl")?,
        TorchEvent::Echo { what } => {
            let mut topic = of("echo")?;
            topic.read("what", *what);
            return Some((ASIDE, topic));
        }
        TorchEvent::ErrorLine { text } => return said(text, "exception"),
    };
    Some((ERROR, topic))
}

/// What ended a process may be said in words that tell more than the signal.
fn crash(reason: &str, signal: Option<u32>) -> Option<Topic> {
    let known = saying::of(reason, "", false);
    if let Some(known) = known.filter(|known| known.cause != Some(Cause::ProcessCrashed)) {
        let mut topic = topics::saying(known);
        topic.read("text", reason);
        return Some(topic);
    }
    // So may the words of a scheduler; what else a signal tells of, its own page has.
    let names = |found: &message::Match<'_>| !found.row.cause().is_empty();
    if let Some(found) = message::best(reason).filter(names) {
        return Some(topics::message_read(&found, reason));
    }
    let signalled = signal.and_then(|number| topics::of_event(&format!("signal-{number}")));
    let mut topic = signalled.or_else(|| topics::of_event("crash"))?;
    topic.read("reason", reason);
    topic.read("signal", signal.map(|s| s.to_string()).unwrap_or_default());
    Some(topic)
}

fn exit(topic: &mut Topic, code: i64) {
    let signal = signal::of_exit(code).map(|s| format!(" ({}: {})", s.name, s.means));
    topic.read("exit code", format!("{code}{}", signal.unwrap_or_default()));
}

fn store(event: &StoreEvent) -> Option<(u8, Topic)> {
    let (id, text): (&str, &str) = match event {
        StoreEvent::ConnectTimeout { text, .. } | StoreEvent::ConnectFailed { text, .. } => {
            ("store-connect", text)
        }
        StoreEvent::ClientsMissing { .. } => ("store-wait", ""),
        StoreEvent::WaitTimeout { keys, .. } => ("store-wait", keys),
        StoreEvent::ConnectionLost { text } => ("store-lost", text),
        StoreEvent::AddressInUse { .. } => ("address-in-use", ""),
        StoreEvent::Unresolved { text, .. } => ("unresolved-name", text),
        StoreEvent::Rendezvous { text } => ("store-lost", text),
    };
    let mut topic = topics::of_event(id)?;
    topic.read("text", text);
    match event {
        StoreEvent::ConnectFailed { address, errno, .. } => {
            topic.read("address", &**address);
            topic.read("errno", errno.map(|n| n.to_string()).unwrap_or_default());
        }
        StoreEvent::ClientsMissing { joined, expected } => {
            topic.read("joined", format!("{joined} of {expected}"));
        }
        StoreEvent::WaitTimeout { setter: Some(rank), .. } => {
            topic.read("which rank should have set it", format!("rank {}", rank.0));
        }
        StoreEvent::AddressInUse { port } => {
            topic.read("port", port.map(|p| p.to_string()).unwrap_or_default());
        }
        _ => {}
    }
    Some((ERROR, topic))
}

fn exception_topic(exception: &PythonException) -> Option<(u8, Topic)> {
    let text = format!("{}: {}", exception.class, exception.message);
    let last = exception.nccl_last_error.as_deref();
    if last.is_some() || exception.class.ends_with("DistBackendError") {
        let mut topic = topics::of_event("backend-error")?;
        topic.read("class", &*exception.class);
        backend(&mut topic, &exception.message, last);
        return Some((ERROR, topic));
    }
    let (order, mut topic) = said(&text, "exception")?;
    if let Some(frame) = exception.frames.first() {
        topic.read("place", format!("{}:{} in {}", frame.file, frame.line, frame.function));
    }
    Some((order, topic))
}

/// The result and NCCL's last error that torch quotes.
fn backend(topic: &mut Topic, message: &str, last: Option<&str>) {
    // The last error gets a row of its own.
    let own = message.split("Last error:").next().unwrap_or_default();
    topic.read("text", own.split_whitespace().collect::<Vec<_>>().join(" "));
    let result = nccl_result::in_text(message);
    if let Some(result) = result {
        topic.read("result", format!("{}: {}", result.name, result.meaning));
    }
    errors_within(topic, message);
    if let Some(last) = last.map(str::trim).filter(|last| !last.is_empty()) {
        topic.read("last error", last);
        if topics::warn_of(last).is_some() || saying::of(last, "", true).is_some() {
            let known = said_by_nccl(last, "");
            topic.read("which means", known.meaning);
            topic.is_not.extend(known.is_not);
            topic.actions = known.actions;
            // What the last error points at is narrower than what any such failure may be.
            topic.see_also = known.see_also;
            topic.sources.extend(known.sources);
        }
    }
    if let Some(result) = result {
        topic.see(result.name);
    }
}
