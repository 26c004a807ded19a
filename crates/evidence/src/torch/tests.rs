#![expect(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods, clippy::indexing_slicing, reason = "tests read recordings and may fail loudly")]

use std::fmt::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;
use ringleader_model::{Fact, Frame, GlooEvent, Observation, StoreEvent, TorchEvent, Who, user_frame};

use crate::sink::Limits;
use crate::text::LineReader as _;
use crate::{Extract, Scratch};

fn read_bytes(bytes: &[u8]) -> Extract {
    crate::read("stderr.log", &mut &*bytes, &mut Scratch::default(), &Limits::default())
}

/// What torch's reader tells of `bytes`, whatever other readers make of the same lines.
fn told(bytes: &[u8]) -> Vec<Observation> {
    read_bytes(bytes).observations.into_iter().filter(|o| matches!(o.fact, Fact::Torch(_))).collect()
}

fn who(who: &Who) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let gap = if text.is_empty() { "" } else { " " };
            write!(text, "{gap}{name}{value}").unwrap();
        }
    };
    add("r", who.rank.map(|r| r.0.to_string()));
    add("local", who.local_rank.map(|r| r.0.to_string()));
    add("pid", who.pid.map(|r| r.0.to_string()));
    add("@", who.host.as_ref().map(ToString::to_string));
    if text.is_empty() { "-".to_owned() } else { text }
}

fn place(frames: &[Frame]) -> String {
    let user = user_frame(frames).map_or("-".to_owned(), |f| format!("{}:{} {}", f.file, f.line, f.function));
    format!("{} frames, user {user}", frames.len())
}

fn short(text: &str) -> String {
    let line = text.replace('\n', " | ");
    match line.char_indices().nth(110) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn event(event: &TorchEvent) -> String {
    match event {
        TorchEvent::WatchdogTimeout { work, ran_ms, group } => format!(
            "timeout #{} {} numel {:?}/{:?} limit {:?} ran {ran_ms} group {:?}",
            work.seq,
            work.kind.name(),
            work.numel_in,
            work.numel_out,
            work.timeout_ms,
            group.guid
        ),
        TorchEvent::WatchdogPosition { seq, last_enqueued, last_completed, group } => {
            format!("position at {seq:?} enqueued {last_enqueued} completed {last_completed} group {:?} {:?}", group.guid, group.desc)
        }
        TorchEvent::FailedCollectiveStack { frames } => format!("stack {}", place(frames)),
        TorchEvent::AsyncError { work, error, last_error } => {
            format!("async #{:?} {} last {:?}", work.as_ref().map(|w| w.seq), short(error), last_error)
        }
        TorchEvent::WatchdogDied { error } => format!("watchdog died: {}", short(error)),
        TorchEvent::DumpSignal { from } => format!("dump signal from {from:?}"),
        TorchEvent::WatchdogStuck { seconds } => format!("watchdog stuck {seconds:?}"),
        TorchEvent::GilStuck => "gil".to_owned(),
        TorchEvent::Desync { unfinished, not_joined, never_joined } => {
            let list = |l: &[(ringleader_model::RankSet, u64)]| {
                l.iter().map(|(r, n)| format!("{r}#{n}")).collect::<Vec<_>>().join(" ")
            };
            format!("desync unfinished [{}] not joined [{}] never [{never_joined}]", list(unfinished), list(not_joined))
        }
        TorchEvent::FingerprintMismatch { mine, theirs } => {
            let one = |f: &ringleader_model::Fingerprint| format!("{:?} #{:?} {} {} {}", f.rank.map(|r| r.0), f.seq, f.op_type, f.shape, f.dtypes);
            format!("mismatch {} / {}", one(mine), one(theirs))
        }
        TorchEvent::Exception(e) => {
            let chained: Vec<&str> = e.chained.iter().map(|(class, _)| &**class).collect();
            let torn = if e.interleaved { " interleaved" } else { "" };
            let chain = if chained.is_empty() { String::new() } else { format!(" after {}", chained.join(", ")) };
            let last = e.nccl_last_error.as_ref().map_or(String::new(), |l| format!(" last-error {l:?}"));
            format!("exception {}: {} ({}){torn}{chain}{last}", e.class, short(&e.message), place(&e.frames))
        }
        TorchEvent::Crash { reason, signal, threads } => {
            let stack = threads.iter().find(|t| t.current).or_else(|| threads.last());
            let stack = stack.map_or("-".to_owned(), |t| place(&t.frames));
            format!("crash {} signal {signal:?} {} threads, {stack}", short(reason), threads.len())
        }
        TorchEvent::ChildFailure { is_root, exit_code, time, host, message } => format!(
            "{} exit {exit_code} {} {} {}",
            if *is_root { "root" } else { "child" },
            time.as_deref().unwrap_or("-"),
            host.as_deref().unwrap_or("-"),
            short(message.as_deref().unwrap_or("-"))
        ),
        TorchEvent::ChildExit { exit_code } => format!("child exit {exit_code}"),
        TorchEvent::LauncherFailed { script } => format!("launcher failed {script:?}"),
        TorchEvent::ClosingSignal { pid, signal } => format!("closing {} {signal}", pid.0),
        TorchEvent::LauncherKilled { signal } => format!("launcher killed {signal}"),
        TorchEvent::Store(StoreEvent::ConnectTimeout { address, .. }) => format!("store connect timeout {address}"),
        TorchEvent::Store(StoreEvent::ConnectFailed { address, errno, .. }) => format!("store connect failed {address} {errno:?}"),
        TorchEvent::Store(StoreEvent::ClientsMissing { joined, expected }) => format!("store clients {joined}/{expected}"),
        TorchEvent::Store(StoreEvent::WaitTimeout { keys, setter }) => {
            format!("store wait [{keys}] setter {:?}", setter.map(|r| r.0))
        }
        TorchEvent::Store(StoreEvent::ConnectionLost { text }) => format!("store lost: {}", short(text)),
        TorchEvent::Store(StoreEvent::AddressInUse { port }) => format!("store port in use {port:?}"),
        TorchEvent::Store(StoreEvent::Unresolved { name, .. }) => format!("store unresolved [{name}]"),
        TorchEvent::Store(StoreEvent::Rendezvous { text }) => format!("rendezvous: {}", short(text)),
        TorchEvent::Gloo(GlooEvent::ClosedByPeer { peer }) => format!("gloo closed by {peer}"),
        TorchEvent::Gloo(GlooEvent::TimedOut) => "gloo timed out".to_owned(),
        TorchEvent::Gloo(GlooEvent::ConnectFailed { remote, .. }) => format!("gloo connect failed [{remote}]"),
        TorchEvent::Gloo(GlooEvent::LoopbackFallback) => "gloo loopback".to_owned(),
        TorchEvent::Gloo(GlooEvent::Other { text }) => format!("gloo: {}", short(text)),
        TorchEvent::BarrierMissed { absent } => format!("barrier missed {absent}"),
        TorchEvent::NoNccl { text } => format!("no nccl: {}", short(text)),
        TorchEvent::Echo { what } => format!("echo {what}"),
        TorchEvent::ErrorLine { text } => format!("error line {}", short(text)),
    }
}

fn clock(at: Option<ringleader_model::WallTime>) -> String {
    let Some(at) = at else { return String::new() };
    let seconds = at.ns.div_euclid(1_000_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let year = if at.has_year { "y" } else { "" };
    format!("{year}{day}+{:02}:{:02}:{:02} ", second / 3600, second / 60 % 60, second % 60)
}

fn summary(observations: &[Observation]) -> String {
    let mut text = String::new();
    for o in observations {
        let Fact::Torch(e) = &o.fact else { continue };
        writeln!(text, "{} {}{}: {}", o.cite.line, clock(o.at), who(&o.who), event(e)).unwrap();
    }
    text
}

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// Every stderr of the recordings, by case and file name.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for case in std::fs::read_dir(cases()).unwrap() {
        let case = case.unwrap();
        let Ok(files) = std::fs::read_dir(case.path().join("evidence")) else { continue };
        for file in files {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            if name.starts_with("stderr") {
                let name = format!("{}_{name}", case.file_name().to_string_lossy());
                all.push((name, std::fs::read(file).unwrap()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn recordings_are_read_as_reviewed() {
    let all = recordings();
    assert!(all.len() > 40);
    for (name, bytes) in all {
        insta::assert_snapshot!(name, summary(&told(&bytes)));
    }
}
