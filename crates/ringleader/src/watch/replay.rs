//! `watch --replay`: what the rings of a job tell, once more, as the watcher would have seen it while it ran.
//!
//! Rings are read from files, folders and bundles. A ring reaches as far back as it has room; nothing is collected and nothing
//! judged: `diagnose` does that.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ringleader_ring::{Done, Op, State};
use ringleader_watch::digest::{Digest, ProcessState, RankDigest, from_ring};
use ringleader_watch::engine::{Engine, Settings};

use crate::exit::Code;
use crate::failure::Failure;
use crate::watch::events::Teller;

/// Between two looks, as watch has it.
const LOOK_NS: u64 = 500_000_000;
/// Looks on after the last thing that the rings tell of.
const AFTER_NS: u64 = 30_000_000_000;
/// Looks in all: a week.
const MAX_LOOKS: u64 = 1_209_600;
/// Largest ring that is read, and rings in all.
const MAX_RING: u64 = 256 << 20;
const MAX_RINGS: usize = 4096;
/// Folders within folders.
const MAX_DEPTH: usize = 6;

/// Plays them.
pub(super) fn replay(paths: &[PathBuf], settings: Settings, teller: &Teller) -> Result<Code, Failure> {
    let mut states = Vec::new();
    for path in paths {
        let before = states.len();
        read(path, 0, &mut states);
        if states.len() == before {
            return Err(Failure::Nodes {
                why: format!("replay {}: no ring found", path.display()),
                help: "name rings (/dev/shm/ringleader/ring-*), a folder of them, or a bundle that holds them",
            });
        }
    }
    let begin = states.iter().flat_map(|s| s.comms.iter().map(|c| c.created_ns)).min().unwrap_or(0);
    let end = states.iter().map(newest).max().unwrap_or(begin) + AFTER_NS;
    let mut engine = Engine::new(settings);
    let mut has_stalled = false;
    for look in 0..((end.saturating_sub(begin)) / LOOK_NS).min(MAX_LOOKS) {
        let now = begin + look * LOOK_NS;
        let ranks = states.iter().map(|state| RankDigest {
            // The ring says nothing about dead processes: they are taken to be where they were.
            process: ProcessState::Alive,
            would_show: true,
            ..from_ring(&at(state, now))
        });
        let unix = states.first().map_or(0, |s| s.taken.unix_of(now)) as i64;
        let digest = Digest {
            node: "replay".to_owned(),
            agent: "replay".to_owned(),
            sequence: look,
            at_ns: unix,
            ranks: ranks.collect(),
            ..Digest::default()
        };
        engine.take(digest, unix);
        for event in engine.look(unix) {
            has_stalled |= matches!(event.what, ringleader_watch::event::What::Stall(_));
            teller.say(&event);
        }
        teller.see(engine.view());
    }
    Ok(if has_stalled { Code::Findings } else { Code::NothingFound })
}

/// The rings of a file, of a folder, or of a bundle.
fn read(path: &Path, depth: usize, states: &mut Vec<State>) {
    if states.len() >= MAX_RINGS || depth > MAX_DEPTH {
        return;
    }
    if path.is_dir() {
        let mut names: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect();
        names.sort();
        // Links within a folder are not followed.
        names.retain(|name| fs::symlink_metadata(name).is_ok_and(|data| !data.is_symlink()));
        for name in &names {
            read(name, depth + 1, states);
        }
        return;
    }
    let Ok(file) = fs::File::open(path) else { return };
    let mut bytes = Vec::new();
    if file.take(MAX_RING).read_to_end(&mut bytes).is_err() {
        return;
    }
    if let Ok(state) = State::parse(&bytes) {
        states.push(state);
        return;
    }
    let Ok(decoder) = zstd::stream::read::Decoder::new(bytes.as_slice()) else { return };
    let mut archive = tar::Archive::new(decoder);
    for entry in archive.entries().into_iter().flatten().map_while(Result::ok).take(MAX_RINGS) {
        let mut image = Vec::new();
        if entry.take(MAX_RING).read_to_end(&mut image).is_ok()
            && let Ok(state) = State::parse(&image)
        {
            states.push(state);
        }
    }
}
fn newest(state: &State) -> u64 {
    let done = state.recent.iter().map(|d| d.ended_ns);
    let open = state.comms.iter().flat_map(|c| c.in_flight.iter().map(|op| op.enqueued_ns));
    done.chain(open).max().unwrap_or(0)
}

/// The same ring as it was at a moment, as far as it reaches back.
fn at(state: &State, now: u64) -> State {
    let mut then = state.clone();
    then.taken.unix_ns = state.taken.unix_of(now);
    then.taken.mono_ns = now;
    // How it ended was not known before.
    if now < newest(state) {
        (then.process.is_ended, then.process.exit, then.process.kernels_ended_ns) = (false, None, None);
    }
    then.recent.retain(|done| done.ended_ns <= now);
    then.comms.retain(|comm| comm.created_ns <= now);
    for comm in &mut then.comms {
        let later = || state.recent.iter().filter(|d| d.comm == comm.slot && d.ended_ns > now);
        let not_yet = |is_p2p: bool| {
            let done = later().filter(|d| d.enqueued_ns > now && d.is_p2p == is_p2p).count();
            let open = comm.in_flight.iter().filter(|op| op.enqueued_ns > now && op.is_p2p == is_p2p).count();
            (done + open) as u64
        };
        let ends = |is_p2p: bool| later().filter(|d| d.is_p2p == is_p2p).count() as u64;
        let (collectives, p2p) = (not_yet(false), not_yet(true));
        let open: Vec<Op> = later().filter(|d| d.enqueued_ns <= now).map(|done| running(done, now)).collect();
        comm.collectives_done = comm.collectives_done.saturating_sub(ends(false));
        comm.p2p_done = comm.p2p_done.saturating_sub(ends(true));
        comm.collectives = comm.collectives.saturating_sub(collectives);
        comm.p2p = comm.p2p.saturating_sub(p2p);
        comm.ended_ns = comm.ended_ns.filter(|ended| *ended <= now);
        comm.progress_ns = comm.progress_ns.min(now);
        comm.in_flight.retain(|op| op.enqueued_ns <= now);
        comm.in_flight.splice(0..0, open);
    }
    then
}

fn running(done: &Done, now: u64) -> Op {
    Op {
        number: done.number,
        call: done.call.clone(),
        enqueued_ns: done.enqueued_ns,
        handed_over_ns: Some(done.enqueued_ns),
        started_ns: Some(done.started_ns).filter(|started| *started <= now && done.is_end_seen),
        is_end_visible: done.is_end_seen,
        is_p2p: done.is_p2p,
        is_launched: true,
        ..Op::default()
    }
}
