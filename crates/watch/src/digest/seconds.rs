//! For how long a rank's collectives were open in each of the newest seconds.

use ringleader_ring::{Comm, Done, Op, State};

use super::{MAX_SECONDS, SecondDigest, is_p2p, is_symmetric};

const SECOND_NS: u64 = 1_000_000_000;

/// Between a call and its end, mono ns; `started_ns` where its kernel was seen.
struct OpenSpan {
    called_ns: u64,
    started_ns: Option<u64>,
    ended_ns: u64,
    has_ended: bool,
}

/// The newest whole seconds of the node's clock, oldest first. Empty where ends cannot be seen, and where the rank sends or receives:
/// its part in the job then differs from that of others.
pub(super) fn seconds(state: &State) -> Vec<SecondDigest> {
    let now = state.taken.mono_ns;
    let to_unix = state.taken.unix_of(0);
    let newest = state.taken.unix_of(now) / SECOND_NS;
    // What the ring no longer holds is not known not to have been open.
    let Some(first) = state.recent.iter().map(|done| done.ended_ns).min() else { return Vec::new() };
    let starts: Vec<u64> = (newest.saturating_sub(MAX_SECONDS as u64)..newest)
        .filter_map(|second| (second * SECOND_NS).checked_sub(to_unix).filter(|start| *start >= first))
        .collect();
    let Some(from) = starts.first().copied() else { return Vec::new() };
    let Some(spans) = spans(state, from) else { return Vec::new() };
    let of = |start: u64| {
        let end = start + SECOND_NS;
        let ended = spans.iter().filter(|s| s.has_ended && (start..end).contains(&s.ended_ns)).count();
        SecondDigest {
            second: ((start + to_unix) / SECOND_NS).cast_signed(),
            open_ms: covered_ms(spans.iter().map(|s| (s.called_ns, s.ended_ns)), start, end),
            ran_ms: covered_ms(spans.iter().filter_map(|s| Some((s.started_ns?, s.ended_ns))), start, end),
            n: u32::try_from(ended).unwrap_or(u32::MAX),
        }
    };
    starts.into_iter().map(of).collect()
}

/// Symmetric collectives that were open after `from`; none if something else was.
fn spans(state: &State, from: u64) -> Option<Vec<OpenSpan>> {
    let own = |peer: u32, comm: Option<&Comm>| comm.and_then(|c| c.rank) == Some(peer);
    let mut spans = Vec::new();
    // By their ends: those that ended before are of no interest.
    for done in state.recent.iter().rev().take_while(|done| done.ended_ns > from) {
        if meets_some(done) {
            let comm = state.comms.iter().find(|c| c.slot == done.comm);
            done.call.peer.filter(|peer| own(*peer, comm))?;
        } else if !done.is_end_seen {
            return None;
        } else if is_symmetric(&done.call.function) {
            spans.push(OpenSpan {
                called_ns: done.enqueued_ns,
                started_ns: Some(done.started_ns),
                ended_ns: done.ended_ns,
                has_ended: true,
            });
        }
    }
    let is_meant = |op: &&Op| !op.call.is_captured && is_symmetric(&op.call.function);
    let in_flight = state.comms.iter().filter(|c| !c.lacks_kernels).flat_map(|c| &c.in_flight);
    spans.extend(in_flight.filter(is_meant).map(|op| OpenSpan {
        called_ns: op.enqueued_ns,
        started_ns: op.started_ns,
        ended_ns: state.taken.mono_ns,
        has_ended: false,
    }));
    Some(spans)
}

/// A send or receive: with one rank, not with all.
fn meets_some(done: &Done) -> bool {
    done.is_p2p || done.call.peer.is_some() || is_p2p(&done.call.function)
}

/// Milliseconds from `start` to `end` that at least one span covers.
fn covered_ms(spans: impl Iterator<Item = (u64, u64)>, start: u64, end: u64) -> u32 {
    let mut inside: Vec<(u64, u64)> =
        spans.map(|(a, b)| (a.clamp(start, end), b.clamp(start, end))).filter(|(a, b)| a < b).collect();
    inside.sort_unstable();
    let (mut sum, mut upto) = (0, start);
    for (a, b) in inside {
        sum += b.saturating_sub(a.max(upto));
        upto = upto.max(b);
    }
    u32::try_from(sum / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ringleader_ring::{CallArgs, Comm, Done, Op, State};

    use super::{SECOND_NS, seconds};

    const MS: u64 = 1_000_000;

    /// A ring that was read `now_ms` after a whole second, 20 s after its first operation; one operation each 100 ms.
    fn ring(function: &str, peer: Option<u32>) -> State {
        let call = || CallArgs { function: function.to_owned(), peer, ..CallArgs::default() };
        let done = |n: u64| Done {
            call: call(),
            number: n,
            enqueued_ns: n * 100 * MS,
            started_ns: n * 100 * MS + 20 * MS,
            ended_ns: n * 100 * MS + 60 * MS,
            is_end_seen: true,
            ..Done::default()
        };
        let comms = vec![Comm { rank: Some(0), size: 2, ..Comm::default() }];
        let mut state = State { comms, recent: (0..200).map(done).collect(), ..State::default() };
        state.taken.mono_ns = 20_300 * MS;
        state.taken.unix_ns = 1_700_000_000 * SECOND_NS + 300 * MS;
        state
    }

    #[test]
    fn what_was_open_and_what_ran() {
        let found = seconds(&ring("AllReduce", None));
        assert_eq!(found.len(), super::MAX_SECONDS);
        let newest = found.last().unwrap();
        assert_eq!((newest.second, newest.open_ms, newest.ran_ms, newest.n), (1_699_999_999, 600, 400, 10));
    }

    #[test]
    fn one_that_has_not_ended() {
        let mut state = ring("AllReduce", None);
        let op = Op {
            enqueued_ns: 18_500 * MS,
            call: CallArgs { function: "AllReduce".to_owned(), ..CallArgs::default() },
            ..Op::default()
        };
        state.recent.truncate(185);
        state.comms[0].in_flight = vec![op];
        let found: Vec<(u32, u32)> = seconds(&state).iter().map(|s| (s.open_ms, s.ran_ms)).collect();
        assert_eq!(found[found.len() - 2..], [(300 + 500, 200), (1000, 0)]);
    }

    #[test]
    fn ranks_that_send_and_ends_that_are_unseen() {
        assert!(seconds(&ring("Send", Some(1))).is_empty());
        // To itself.
        assert!(seconds(&ring("Send", Some(0))).iter().all(|s| s.open_ms == 0));
        let mut state = ring("AllReduce", None);
        state.recent[195].is_end_seen = false;
        assert!(seconds(&state).is_empty());
        assert!(seconds(&State::default()).is_empty());
    }
}
