//! Plays what the rings of one node's processes tell once more, as the watcher would have seen it: what would it have said,
//! and when? `cargo run -p ringleader --example replay -- /dev/shm/ringleader/ring-*`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use ringleader_ring::{Done, Op, State};
use ringleader_watch::digest::{Digest, ProcessState, RankDigest, from_ring};
use ringleader_watch::engine::{Engine, Settings};
use ringleader_watch::event::What;

/// Between two looks, as watch has it.
const LOOK_NS: u64 = 500_000_000;
/// Looks on after the last thing that the rings tell of.
const AFTER_NS: u64 = 30_000_000_000;

fn main() {
    let states: Vec<State> = std::env::args().skip(1).filter_map(|path| read(&path)).collect();
    let begin = states.iter().flat_map(|s| s.comms.iter().map(|c| c.created_ns)).min().unwrap_or(0);
    let end = states.iter().map(newest).max().unwrap_or(begin) + AFTER_NS;
    let mut engine = Engine::new(Settings::default());
    let mut now = begin;
    while now < end {
        let seconds = (now - begin) as f64 / 1e9;
        let ranks = states.iter().enumerate().map(|(index, state)| RankDigest {
            pid: 1 + index as u32,
            process: ProcessState::Alive,
            would_show: true,
            ..from_ring(&at(state, now))
        });
        let unix = states.first().map_or(0, |s| s.taken.unix_of(now)) as i64;
        let digest = Digest {
            node: "node".to_owned(),
            agent: "replay".to_owned(),
            sequence: now / LOOK_NS,
            at_ns: unix,
            ranks: ranks.collect(),
            ..Digest::default()
        };
        engine.take(digest, unix);
        for event in engine.look(unix) {
            if !matches!(event.what, What::Progress { .. }) {
                println!("{seconds:8.1} {}", serde_json::to_string(&event).unwrap_or_default());
            }
        }
        for comm in &engine.view().comms {
            println!(
                "{seconds:8.1} {} of {}: {} done, {:.1} a second, {} in flight, still for {:.1} s of {:.1} s",
                comm.id,
                comm.size,
                comm.ops_done,
                comm.ops_per_s,
                comm.in_flight,
                comm.still_ns as f64 / 1e9,
                comm.patience_ns as f64 / 1e9,
            );
        }
        now += LOOK_NS;
    }
}

fn read(path: &str) -> Option<State> {
    match std::fs::read(path).map(|bytes| State::parse(&bytes)) {
        Ok(Ok(state)) => return Some(state),
        Ok(Err(why)) => eprintln!("{path}: {why}"),
        Err(why) => eprintln!("{path}: {why}"),
    }
    None
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
